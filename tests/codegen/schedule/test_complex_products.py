"""Complex products of matrices for GPUs: one call, which takes and leaves pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.program import LaunchStep, MatmulStep, Program
from loopgrad.codegen.schedule import schedule
from loopgrad.graph.complex_pairs import in_pairs
from loopgrad.graph.extract import extract

A, B = (3, 40, 33), (3, 33, 30)


def numbers(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(len(shape))
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


def scheduled(function: Callable[..., Any], *arrays: np.ndarray) -> tuple[Program, np.ndarray]:
    """The program for GPUs, and its first output."""
    given = [lg.asarray(x) for x in arrays]
    found = function(*given)
    graph = in_pairs(extract([found._value], [x._value for x in given]))
    program = schedule(graph)
    (result,) = interpret_program(program, [x.view(np.float32).reshape(*x.shape, 2) for x in arrays])
    return program, result[..., 0] + 1j * result[..., 1]


@pytest.mark.parametrize(
    ("function", "shapes", "launches"),
    [
        (lambda m, a, b: m.matmul(a, b), (A, B), 1),
        (lambda m, a, b: m.matmul(m.conj(a), b), (A, B), 2),
        (lambda m, a, b: m.matmul(m.swapaxes(b, -1, -2), m.swapaxes(a, -1, -2)), (A, B), 2),
        (lambda m, a, b: 1j * m.matmul(a, b), (A, B), 2),
    ],
)
def test_one_product(function: Any, shapes: Any, launches: int) -> None:
    a, b = (numbers(*shape) for shape in shapes)
    program, got = scheduled(lambda a, b: function(lg, a, b), a, b)
    steps = [type(step) for step in program.steps]
    assert steps.count(MatmulStep) == 1
    assert steps.count(LaunchStep) == launches
    wanted = function(np, a, b)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_with_a_column_it_is_sums() -> None:
    a, b = numbers(2, 300, 200), numbers(2, 200, 1)
    program, got = scheduled(lg.matmul, a, b)
    assert [type(step) for step in program.steps] == [LaunchStep] * len(program.steps)
    assert max(slot.type.size for slot in program.slots if slot.kind == "temp") == 2 * 300  # parts of the result
    np.testing.assert_allclose(got, a @ b, rtol=0, atol=1e-5 * np.abs(a @ b).max())


def test_small_ones_are_left() -> None:
    """Small ones, and those of few rows."""
    for shapes, products in ((((4, 4), (4, 4)), 0), (((1, 400), (400, 300)), 4)):
        a, b = (numbers(*shape) for shape in shapes)
        program, got = scheduled(lg.matmul, a, b)
        assert [type(step) for step in program.steps].count(MatmulStep) == products
        np.testing.assert_allclose(got, a @ b, rtol=0, atol=1e-5 * np.abs(a @ b).max())


@pytest.mark.parametrize(("complex", "products"), [(True, 1), (False, 4)])
def test_parts_may_be_arrays_of_their_own(complex: bool, products: int) -> None:
    """Sums of other products stay."""
    p, q, r, s = (numbers(40, 40).real * k for k in range(1, 5))

    def sums(p: Any, q: Any, r: Any, s: Any) -> tuple[Any, Any]:
        return p @ r - q @ s, p @ s + (q @ r if complex else r @ q)

    given = [lg.asarray(x) for x in (p, q, r, s)]
    program = schedule(extract([x._value for x in sums(*given)], [x._value for x in given]))
    assert [type(step) for step in program.steps].count(MatmulStep) == products
    for got, wanted in zip(interpret_program(program, [p, q, r, s]), sums(p, q, r, s), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
