"""Programs that compute little are compiled quickly, and to the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import Options
from loopgrad.codegen.pipeline import build_program
from loopgrad.codegen.targets.cpu import work
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.work import computes_little
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, float64
from loopgrad.runtime.cpu.shared_code import SharedCode
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.session import SESSION

Function = Callable[[Any], Any]


def little(function: Callable[..., Any], count: int) -> bool:
    graph, _ = trace(lambda v: (function(v),), [TensorType((count,), float64)])
    return computes_little(build_program(graph, Options(), {}, in_order=True), host_machine())


def test_elements_times_instructions_decide() -> None:
    assert little(ops.sin, 100)
    assert not little(ops.sin, 100_000)
    assert little(lambda v: ops.add(v, v), 1000)
    assert little(ops.sin, 0)


@pytest.mark.parametrize(
    ("loop", "wanted"),
    [
        (lambda v: lg.fori_loop(0, 10, lambda _, c: c * 1.01 + v, v), True),
        (lambda v: lg.fori_loop(0, 10_000_000, lambda _, c: c * 1.01 + v, v), False),
        (lambda v: lg.while_loop(lambda c: c < 3.0, lambda c: c * 1.01 + 0.1, v), False),  # only values decide
        (lambda v: lg.while_loop(lambda c: c < 3.0, lambda c: c * 1.01 + 0.1, v, max_steps=40), True),
        (lambda v: lg.while_loop(lambda c: lg.sum(c) < 3.0, lambda c: c * 1.01 + lg.sum(c), v), False),
    ],
)
def test_trips_count_where_they_are_known(loop: Function, wanted: bool, answers: list[bool]) -> None:
    lg.eval(lg.compile(loop)(lg.asarray(np.linspace(0.1, 1.0, 17))))
    assert answers == [wanted]


def test_code_is_shared_only_with_what_computes_little(answers: list[bool]) -> None:
    """How often a loop with a stack runs isn't in the text of its code."""
    x = lg.asarray(np.linspace(0.1, 0.2, 5))
    for trips in (10, 12, 50_000, 11):
        slope = lg.compile(lg.grad(lambda v, n=trips: lg.sum(lg.fori_loop(0, n, lambda _, c: lg.sin(c) * v, v))))(x)
        assert np.all(np.isfinite(slope))
    (classes,) = get_device("cpu")._shared._classes.values()
    assert [one.quick for one in classes] == [True, False]
    assert answers[-1]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of the programs that were compiled, whether each computes little."""
    device, found, real = get_device("cpu"), list[bool](), work.computes_little

    def computes_little(*given: Any) -> bool:
        found.append(real(*given))
        return found[-1]

    monkeypatch.setattr(work, "computes_little", computes_little)
    monkeypatch.setattr(device, "cache", None)
    monkeypatch.setattr(device, "_shared", SharedCode(device._shared._compile))
    SESSION.clear()
    return found


def test_bits_are_those_of_optimised_code(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(-2.0, 3.0, 37)
    functions: list[Function] = [
        lambda v: lg.sum(lg.exp(v) * lg.sin(v) / (v + 5.0)),
        lambda v: lg.sum(lg.fori_loop(0, 7, lambda i, c: lg.tanh(c) * 1.1 + i * v, v) ** 2),
        lambda v: lg.sum(lg.zeros(9).at[lg.arange(37) // 5].add(v * v) ** 3),
        lambda v: lg.sum(lg.cumsum(v) * lg.where(v > 0, lg.log(v + 4.0), v)),
        lambda v: lg.sum(lg.max(lg.outer(v, v)[:12], axis=0) @ lg.outer(v, v)),
    ]
    device, found = get_device("cpu"), []
    monkeypatch.setattr(device, "cache", None)
    for quick in (True, False):
        monkeypatch.setattr(work, "computes_little", lambda *_, quick=quick: quick)
        monkeypatch.setattr(device, "_shared", SharedCode(device._shared._compile))
        SESSION.clear()
        for dtype in ("float64", "float32", "bfloat16"):
            given = lg.asarray(x).astype(dtype)
            results = [lg.compile(lg.value_and_grad(f))(given) for f in functions]
            found.append([np.asarray(r).tobytes() for pair in results for r in pair])
    assert found[:3] == found[3:]


def test_a_loop_that_begins_with_a_constant_bfloat16(answers: list[bool]) -> None:
    """LLVM selects no such constant where instructions weren't combined before."""
    x = np.linspace(-1.0, 1.0, 17)
    total = lg.compile(lambda v: lg.cummax(v))(lg.asarray(x).astype("bfloat16"))
    np.testing.assert_array_equal(
        np.asarray(total), np.maximum.accumulate(np.asarray(lg.asarray(x).astype("bfloat16")))
    )
    assert answers == [True]
