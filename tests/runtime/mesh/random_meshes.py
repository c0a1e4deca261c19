"""Random programs on meshes of 1 to 4 processes (threads), value and gradients:
`python -m tests.runtime.mesh.random_meshes --count 100 --seed 0`.

Bits must be the same on any number of processes, and numbers those of the program on arrays that aren't sharded. A
program is a chain of blocks over lanes `x`, weights `w` that all processes have, and a number `c`, some of them in
loops and branches. What fails is printed with its seed and its blocks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np

import loopgrad as lg
from tests.runtime.mesh.thread_processes import on_threads

State = tuple[Any, Any, Any]  # lanes (n, 3), weights (3, 3), a number
Block = Callable[[State], State]
SIZES: Final = (1, 2, 3, 4)
COUNTS: Final = (1, 2, 5, 70)


def _mixed(s: State) -> State:
    x, w, c = s
    return lg.tanh(x @ w) + c * x, w, c


def _normalised(s: State) -> State:
    x, w, c = s
    return x - lg.pmean(x)[None, :], w, c


def _weighted(s: State) -> State:
    x, w, c = s
    e = lg.exp(x[:, 0] - lg.pmax(x[:, 0]))
    return x, w, lg.tanh(lg.psum(e * x[:, 1]) / lg.psum(e) + c)


def _moments(s: State) -> State:
    x, w, c = s
    return x, w + 0.01 * (x.T @ x) / (1.0 + lg.psum(lg.sum(x * x, axis=1))), c


def _both(s: State) -> State:
    x, w, c = s
    return lg.sin(x * c), w * lg.cos(c), 0.5 * c + 0.1 * lg.pmean(x[:, 2]) * lg.sum(w)


def _gathered(s: State) -> State:
    x, w, c = s
    y = lg.gather_all(x[:, 0])
    return x, w, c + 0.01 * lg.sum(lg.cumsum(y) * lg.cos(y))


def _ragged(s: State) -> State:
    x, w, c = s
    trips = lg.astype(lg.abs(x[:, 0]) * 4.0, lg.int32)
    y = lg.fori_loop(0, trips, lambda _, v: lg.sin(v * w[0, 0]) + 0.1 * c, x[:, 1])
    return lg.stack([x[:, 0], y, x[:, 2]], axis=1), w, c


def _table(s: State) -> State:
    x, w, c = s
    return x * w[lg.astype(lg.abs(x[:, 0]) * 2.0, lg.int32) % 3], w, c


BLOCKS: Final = (_mixed, _normalised, _weighted, _moments, _both, _gathered, _ragged, _table)


def _looped(body: list[Block], trips: int) -> Block:
    return lambda s: lg.fori_loop(0, trips, lambda _, s: _chain(body, s), s)


def _until(body: list[Block], trips: int) -> Block:
    def run(s: State) -> State:
        condition = lambda t: (lg.psum(lg.abs(t[0][0][:, 0])) > 0.01) & (t[1] < trips)  # noqa: E731
        return lg.while_loop(condition, lambda t: (_chain(body, t[0]), t[1] + 1), (s, 0))[0]  # type: ignore[no-any-return]

    return run


def _again(body: list[Block], _: int) -> Block:
    return lg.checkpoint(lambda s: _chain(body, s))


def _chosen(body: list[Block], _: int) -> Block:
    return lambda s: lg.cond(lg.psum(s[0][:, 0]) * s[2] > 0.0, lambda s: _chain(body, s), lambda s: s, s)


def _chain(blocks: list[Block], s: State) -> State:
    for block in blocks:
        s = block(s)
    return s


def _program(rng: np.random.Generator) -> tuple[str, Callable[..., Any]]:
    blocks, names = list[Block](), list[str]()
    for _ in range(int(rng.integers(1, 4))):
        chosen = [BLOCKS[i] for i in rng.integers(0, len(BLOCKS), int(rng.integers(1, 3)))]
        wrap = (None, _looped, _until, _again, _chosen)[int(rng.integers(0, 5))]
        trips = int(rng.integers(1, 4))
        blocks += chosen if wrap is None else [wrap(chosen, trips)]
        inside = " ".join([b.__name__[1:] for b in chosen])
        names.append(inside if wrap is None else f"{wrap.__name__[1:]}{trips}({inside})")

    def loss(w: Any, c: Any, x: Any) -> Any:
        x, w, c = _chain(blocks, (x, w, c))
        return lg.psum(lg.sum(x * x, axis=1)) * 0.1 + lg.sum(w * w) * c

    return " ".join(names), lg.value_and_grad(loss, argnums=(0, 1, 2))


def _leaves(found: Any) -> list[Any]:
    return [np.asarray(lg.gather_all(v)) for v in lg.tree.leaves(found)]


def _called_again(program: Callable[..., Any], w: Any, c: Any, x: Any, mesh: lg.Mesh) -> list[list[Any]]:
    """What three calls give: later ones start what was recorded."""
    compiled = lg.compile(program)
    return [_leaves(compiled(lg.asarray(w), lg.asarray(c), lg.shard(x, mesh))) for _ in range(3)]


def check(seed: int, inner: str = "cpu") -> str | None:
    """What is wrong with the program of a seed on meshes of that device."""
    rng = np.random.default_rng(seed)
    name, program = _program(rng)
    n = COUNTS[int(rng.integers(0, len(COUNTS)))]
    x, w, c = rng.random((n, 3)), rng.standard_normal((3, 3)) * 0.5, rng.random()
    where = f"seed {seed}, {n} lanes: {name}"
    first: list[bytes] | None = None
    try:
        expected = _leaves(program(*[lg.asarray(a, device="interpreter") for a in (w, c, x)]))
        for size in (SIZES[0], *rng.choice(SIZES[1:], 2, replace=False)):
            for found in chain(*on_threads(int(size), partial(_called_again, program, w, c, x), inner)):
                first = first or [v.tobytes() for v in found]
                if [v.tobytes() for v in found] != first:
                    return f"{where}: other bits on {size} processes"
                for value, reference in zip(found, expected, strict=True):
                    np.testing.assert_allclose(value, reference, rtol=1e-8, atol=1e-11)
    except Exception as error:
        return f"{where}: {type(error).__name__}: {error}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    wrong = 0
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        found = check(seed)
        if found is not None:
            wrong += 1
            sys.stdout.write(f"{found}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{chosen.count - wrong} of {chosen.count} programs are right\n")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
