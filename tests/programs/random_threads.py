"""Threads that share lazy tensors: random operations on them, each checked against NumPy.

A family is a handful of lazy tensors that depend on each other: results, a value and its gradient, a loop's results.
All threads look at members of the same few families, evaluate them alone and together, build on them, differentiate
through them, write to copies, call and replay shared compiled functions, compile their own, and ask for statistics and
plans. Run it for longer: `python tests/programs/random_threads.py --threads 64 --count 100000`.
"""

from __future__ import annotations

import argparse
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import loopgrad as lg

FAMILIES = 6
SHAPES = ((40, 3), (30_000,))  # the last is worth several threads of the pool
STEPS = 4


@dataclass(frozen=True)
class Member:
    tensor: Any
    expected: np.ndarray


Family = dict[str, Member]


def looped(x: Any, sin: Callable[[Any], Any]) -> Any:
    for _ in range(STEPS):
        x = sin(x) * 1.25 + 0.5
    return x


def loss(x: Any) -> Any:
    return lg.sum(lg.sin(x) * x)


def family(seed: int) -> Family:
    rng = np.random.default_rng(seed)
    data = rng.uniform(0.5, 2.0, SHAPES[seed % len(SHAPES)])
    x = lg.asarray(data)
    a = x * 2 + 1
    b = lg.sqrt(a) - x
    value, gradient = lg.value_and_grad(loss)(a)
    carry, count = lg.fori_loop(0, STEPS, lambda _, c: (lg.sin(c[0]) * 1.25 + 0.5, c[1] + 1), (b, lg.asarray(0)))
    doubled = 2 * data + 1
    root = np.sqrt(doubled) - data
    slope = np.cos(doubled) * doubled + np.sin(doubled)
    return {
        "x": Member(x, data),
        "a": Member(a, doubled),
        "b": Member(b, root),
        "value": Member(value, np.asarray(np.sum(np.sin(doubled) * doubled))),
        "gradient": Member(gradient, slope),
        "carry": Member(carry, looped(root, np.sin)),
        "count": Member(count, np.asarray(STEPS)),
        "last": Member(gradient * carry, slope * looped(root, np.sin)),
    }


class Stress:
    """What the threads share, and what they found wrong."""

    def __init__(self, seed: int, device: str) -> None:
        self.seed, self.device = seed, device
        self.families = [family(seed + i) for i in range(FAMILIES)]
        self.next = seed + FAMILIES
        self.wrong: list[str] = []
        self.done = 0
        self.compiled = lg.compile(lambda x, c: looped(x, lg.sin) * c, device)
        self.graded = lg.compile(lg.value_and_grad(loss), device)
        example = np.ones(SHAPES[0])
        self.captured = self.compiled.capture(example, 1.0)
        self.operations = [self.look, self.look_together, self.build, self.write, self.view, self.differentiate]
        self.operations += [self.call, self.call_gradient, self.replay, self.ask, self.renew, self.compile_own]

    def run(self, number: int, count: int) -> None:
        rng = Random(self.seed * 1000 + number)
        weights = [6, 3, 4, 2, 2, 2, 4, 2, 2, 2, 3, 0.05]
        with lg.default_device(self.device):
            for _ in range(count):
                (operation,) = rng.choices(self.operations, weights)
                try:
                    operation(rng)
                except Exception:
                    self.wrong.append(f"{operation.__name__}: {traceback.format_exc()}")
                self.done += 1

    def check(self, what: str, found: Any, expected: Any) -> None:
        if not np.allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-9):
            self.wrong.append(f"{what}: {np.asarray(found).ravel()[:3]} for {np.asarray(expected).ravel()[:3]}")

    def member(self, rng: Random, *names: str) -> Member:
        members = rng.choice(self.families)
        return members[rng.choice(names or list(members))]

    # operations

    def look(self, rng: Random) -> None:
        m = self.member(rng)
        self.check("look", m.tensor, m.expected)

    def look_together(self, rng: Random) -> None:
        members = rng.choice(self.families)
        some = rng.choice([("value", "carry"), ("a", "last"), ("gradient", "b", "count")])
        lg.eval([members[name].tensor for name in some])
        for name in some:
            self.check(f"together {name}", members[name].tensor, members[name].expected)

    def build(self, rng: Random) -> None:
        members = rng.choice(self.families)
        m, n = members[rng.choice(["a", "b", "gradient"])], members[rng.choice(["carry", "last"])]
        built = m.tensor * 3 - n.tensor
        if rng.random() < 0.5:
            self.check("other", n.tensor, n.expected)
        self.check("build", built, m.expected * 3 - n.expected)

    def write(self, rng: Random) -> None:
        m = self.member(rng, "a", "b", "carry")
        own = m.tensor.copy()
        own[1] = 5.0
        expected = m.expected.copy()
        expected[1] = 5.0
        if rng.random() < 0.5:
            self.check("original", m.tensor, m.expected)
        self.check("write", own, expected)

    def view(self, rng: Random) -> None:
        """Of a shared tensor one to read, of an own one one to write through."""
        m = self.member(rng, "a", "b", "carry")
        first = m.tensor[:2]
        own = m.tensor.copy()
        part = own[1:3]
        part *= 2
        expected = m.expected.copy()
        expected[1:3] *= 2
        self.check("view", first, m.expected[:2])
        self.check("written through", own, expected)

    def differentiate(self, rng: Random) -> None:
        members = rng.choice(self.families)
        b, carry = members["b"], members["carry"]
        found = lg.gradients(lg.sum(carry.tensor), [b.tensor])[0]
        x, slope = b.expected, np.ones_like(b.expected)
        for _ in range(STEPS):
            slope, x = slope * np.cos(x) * 1.25, np.sin(x) * 1.25 + 0.5
        self.check("differentiate", found, slope)

    def call(self, rng: Random) -> None:
        m, c = self.member(rng, "x", "a", "b"), rng.random()
        self.check("call", self.compiled(m.tensor, c), looped(m.expected, np.sin) * c)

    def call_gradient(self, rng: Random) -> None:
        members = rng.choice(self.families)
        value, gradient = self.graded(members["a"].tensor)
        self.check("gradient of a call", gradient, members["gradient"].expected)
        self.check("value of a call", value, members["value"].expected)

    def replay(self, rng: Random) -> None:
        data, c = np.full(SHAPES[0], rng.random()), rng.random()
        self.check("replay", self.captured.replay(data, c), looped(data, np.sin) * c)

    def ask(self, rng: Random) -> None:
        m = self.member(rng, "x")
        asked = [
            lg.memory_stats,
            self.compiled.memory_stats,
            self.compiled.explain,
            self.captured.stats,
            lg.synchronize,
            lambda: self.graded.plan(m.tensor),
            lambda: repr(self.compiled),
            lambda: self.member(rng).tensor.device,
        ]
        rng.choice(asked)()

    def renew(self, rng: Random) -> None:
        self.next += 1
        self.families[rng.randrange(FAMILIES)] = family(self.next)

    def compile_own(self, rng: Random) -> None:
        m, c = self.member(rng, "b"), rng.randrange(10)
        own = lg.compile(lambda x: looped(x, lg.sin) + c, self.device)
        self.check("own", own(m.tensor), looped(m.expected, np.sin) + c)


def stress(seed: int, threads: int, count: int, device: str, interval: float = 1e-5) -> list[str]:
    """What went wrong in `count` operations of so many threads that take turns as fast as they can."""
    before = sys.getswitchinterval()
    with lg.default_device(device):
        shared = Stress(seed, device)
    workers = [threading.Thread(target=shared.run, args=(i, -(-count // threads))) for i in range(threads)]
    sys.setswitchinterval(interval)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(before)
    return shared.wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--interval", type=float, default=1e-5, help="seconds between two switches of threads")
    given = parser.parse_args()
    wrong = stress(given.seed, given.threads, given.count, given.device, given.interval)
    for text in wrong[:5]:
        print(text)
    print(f"{given.count} operations of {given.threads} threads on {given.device}: {len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
