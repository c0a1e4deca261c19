"""Scripts and loops run directly and compiled: every program of theirs gives the same bits both ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import Options
from loopgrad.graph.build import unbound
from loopgrad.graph.errors import LoopLimitError
from loopgrad.graph.nodes import Graph
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.cpu import direct as direct_programs
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.executable import DirectProgram, Executable
from loopgrad.runtime.session import SESSION
from tests.programs.numpy_scripts.scripts import generate
from tests.programs.numpy_scripts.ways import check
from tests.programs.same_bits import same_bits

SCRIPTS = 30


class BothWays(DirectProgram):
    """Runs a graph directly and compiled, and compares."""

    def __init__(self, graph: Graph, program: DirectProgram, compiled: Executable) -> None:
        self.graph = graph
        self.program = program
        self.compiled = compiled
        self.work = 0

    def explain(self) -> tuple[str, ...]:
        return self.program.explain()

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        found = self.program.run(buffers)
        for i, (a, b) in enumerate(zip(found, self.compiled.run(buffers), strict=True)):
            assert same_bits(a.array, b.array), f"output {i} of\n{self.graph}"
        return found


def both_ways(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Programs that could run directly do, and are compared; the list gets whether each could."""
    direct, ran = CpuDevice.direct, []

    def both(self: CpuDevice, graph: Graph, options: Options) -> DirectProgram | None:
        program = direct(self, graph, options)
        ran.append(program is not None)
        return None if program is None else BothWays(graph, program, self.compile(unbound(graph), options))

    monkeypatch.setattr(CpuDevice, "direct", both)
    SESSION.clear()
    return ran


@pytest.mark.in_turns
@pytest.mark.parametrize("first", [5_000, 6_000], ids=["held", "written over"])
def test_scripts_have_the_same_bits_directly_and_compiled(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if first == 6_000:  # every program spares memory, as those of large arrays do
        monkeypatch.setattr(direct_programs, "KEPT", 0)
    ran = both_ways(monkeypatch)
    with lg.default_device("cpu"):
        for seed in range(first, first + SCRIPTS):
            outcome = check(generate(seed), "lazy", np.random.default_rng(seed))
            assert outcome.difference is None, generate(seed).text()
    assert sum(ran) > 0.8 * len(ran)


def collatz(n: Any) -> Any:
    """How many steps each number takes to 1, and 1."""
    odd = lambda m, k: (3 * m + 1, k + 1)
    even = lambda m, k: (m // 2, k + 1)
    step = lambda c: lg.cond(c[0] % 2 == 1, odd, even, *c)
    return lg.while_loop(lambda c: c[0] > 1, step, (n, lg.zeros_like(n)))


def nested(x: Any, n: Any) -> Any:
    inner = lambda v, i: lg.fori_loop(0, n % 3, lambda j, w: lg.sin(w) * (i + j) + 0.1, v)
    return lg.fori_loop(0, n, lambda i, v: inner(v, i) - lg.exp(-v), x)


LOOPS: dict[str, Callable[[Any, Any], Any]] = {
    "counted": lambda x, _n: lg.fori_loop(0, 7, lambda i, v: v * 0.3 + lg.cos(v) * i, x),
    "counted by lanes": lambda x, n: lg.fori_loop(0, n, lambda _i, v: lg.sin(v) + 0.1, x),
    "no trips": lambda x, _n: lg.fori_loop(0, 0, lambda _i, v: lg.sin(v), x),
    "counted by a value": lambda x, n: lg.fori_loop(0, n[0], lambda i, v: lg.roll(v, 1) + i, x),
    "until all are done": lambda x, _n: lg.while_loop(lambda v: lg.any(v < 50.0), lambda v: v * 1.5 + 0.1, lg.abs(x)),
    "each until done": lambda x, _n: lg.while_loop(
        lambda v: lg.abs(v * v - x * x) > 1e-9, lambda v: 0.5 * (v + x * x / v), lg.abs(x) + 1.0
    ),
    "collatz": lambda _x, n: lg.stack(collatz(n + 1)),
    "nested": nested,
    "one branch": lambda x, n: lg.cond(n[0] > 3, lambda v: lg.exp(v), lambda v: v - 1.0, x),
    "a branch a lane": lambda x, n: lg.switch(n % 3, [lg.sin, lg.cos, lambda v: v * v], x),
    "constants carried": lambda x, _n: lg.fori_loop(0, 5, lambda _i, c: (c[0] * c[1], c[1]), (x, lg.full_like(x, 0.7)))[
        0
    ],
    "taken by position": lambda x, n: lg.fori_loop(0, 4, lambda i, v: v + x[n % 5] * i, x),
    "written by position": lambda x, n: lg.fori_loop(0, 4, lambda i, v: v.at[i].set(v[i + 1] * 0.5), x),
    "whole numbers": lambda _x, n: lg.fori_loop(0, 9, lambda i, v: (v * 1103515245 + 12345 + i) & 0x7FFFFFFF, n),
    "singles": lambda x, n: lg.fori_loop(0, n, lambda _i, v: lg.sin(v) * 0.7, x.astype(lg.float32)),
    "halves": lambda x, n: lg.fori_loop(0, n, lambda _i, v: v * 0.7 - lg.exp(v), x.astype(lg.float16)),
    "a checkpoint": lambda x, _n: lg.checkpoint(lambda v: lg.sin(v) * v)(x) + 1.0,
}


@pytest.mark.in_turns
@pytest.mark.parametrize("count", [5, 150])
def test_loops_have_the_same_bits_directly_and_compiled(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, ran = np.random.default_rng(count), both_ways(monkeypatch)
    x, n = lg.asarray(rng.normal(size=count) * 3), lg.asarray(rng.integers(0, 6, count))
    for name, function in LOOPS.items():
        ran.clear()
        np.asarray(function(x, n))
        assert ran == [True], name


POWERS: dict[str, Callable[[Any], Any]] = {
    "made of constants": lambda x: x ** (lg.full_like(x, 1.5) * 2.0),
    "cast": lambda x: x ** lg.full(x.shape, 3).astype(lg.float64),
    "captured": lambda x: lg.fori_loop(0, 2, lambda _i, v: v ** lg.full_like(v, 3.0), x),
    "carried": lambda x: lg.fori_loop(0, 2, lambda _i, c: (c[0] ** c[1], c[1]), (x, lg.full_like(x, 3.0)))[0],
}


@pytest.mark.parametrize("power", POWERS)
def test_exponents_that_become_constants(power: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both_ways(monkeypatch)
    np.asarray(POWERS[power](lg.asarray(np.random.default_rng(0).normal(size=500) * 10)))


COMPILED: dict[str, Callable[[Any], Any]] = {
    "a sum beside a loop": lambda x: lg.sum(lg.fori_loop(0, 3, lambda _i, v: v * 0.5, x)),
    "a sum in a loop": lambda x: lg.fori_loop(0, 3, lambda _i, v: v * lg.sum(v), x),
    "a derivative": lambda x: lg.grad(lambda v: lg.sum(lg.fori_loop(0, 3, lambda _i, w: lg.sin(w) * v, v)))(x),
    "functions of constants": lambda x: lg.fori_loop(0, 3, lambda _i, v: v * lg.sin(lg.full_like(v, 0.7)), x),
    "long loops": lambda x: lg.fori_loop(0, 1_000_000, lambda _i, v: v * 0.999, x),
}


def test_what_of_loops_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, x = both_ways(monkeypatch), lg.asarray(np.linspace(0.1, 1.0, 6))
    for name, function in COMPILED.items():
        compiled = SESSION.compiled
        np.asarray(function(x))
        assert SESSION.compiled == compiled + 1, name
    with lg.options(check_indices=True):
        np.asarray(lg.fori_loop(0, 3, lambda i, v: v + x[i], x))
    assert not any(ran[-1:])


def test_loops_that_turn_out_to_be_long_are_compiled() -> None:
    SESSION.clear()
    compiled, count = SESSION.compiled, lg.asarray(np.array([200_000, 3, 100_000]))
    for _ in range(2):
        steps = lg.fori_loop(0, count, lambda _i, v: v + 1, lg.zeros(3, lg.int64))
        np.testing.assert_array_equal(np.asarray(steps), np.asarray(count))
        assert SESSION.compiled == compiled + 1


def test_loops_that_never_end_say_which(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = both_ways(monkeypatch)
    x = lg.while_loop(lambda v: v > 0, lambda v: v + 1, lg.asarray([1, 2]), max_steps=5, name="upwards")
    with pytest.raises(LoopLimitError, match=r"upwards(.|\n)*test_direct_programs.py"):
        np.asarray(x)
    assert ran == [True]


def test_explain_says_what_runs_directly() -> None:
    SESSION.clear()
    x = lg.asarray(np.linspace(0.1, 1.0, 6))
    y, compiled = lg.sin(x) * 2.0, SESSION.compiled
    for _ in range(2):  # before it is computed, and after that
        assert "cpu: runs directly, without being compiled: 2 operations" in lg.explain(y)
        np.asarray(y)
    assert "trip by trip" in lg.explain(lg.fori_loop(0, 3, lambda _i, v: v * 0.5, x))
    assert SESSION.compiled == compiled
    derivative = lg.grad(lambda v: lg.sum(lg.fori_loop(0, 3, lambda _i, w: lg.sin(w) * v, v)))(x)
    text = lg.explain(derivative)
    assert "directly" not in text
    assert "compiled" in text
    compiled = SESSION.compiled
    np.asarray(derivative)
    assert SESSION.compiled == compiled  # explain had it made
    assert "nothing to compute" in lg.explain(x)
    with pytest.raises(lg.TracedValueError, match="explain"):
        lg.vmap(lambda v: (lg.explain(v), v)[1])(x)


def test_lists_of_pieces_of_which_one_has_its_elements() -> None:
    numbers = np.arange(20) + 0.25
    for _ in range(2):  # from the second time on the piece stays a node
        x, y = lg.asarray(numbers), lg.asarray(numbers) * 1.5
        pieces = [x[i] * y[i] for i in range(20)]
        float(pieces[0].sum())
        found = lg.concat([lg.reshape(piece, (-1,)) for piece in pieces])
        np.testing.assert_array_equal(found, numbers * (numbers * 1.5))
