"""Rows put together of single elements are made by a lane each, and what goes on with them stays in these lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.pipeline import schedule
from loopgrad.codegen.program import LaunchStep
from loopgrad.codegen.schedule.points import MANY_ROWS
from loopgrad.graph.extract import extract


def turned(m: Any, x: Any) -> Any:
    a, b = m.cos(x[:, 0]), m.sin(x[:, 1])
    return m.stack([a * x[:, 1] - b, b + x[:, 0], a], axis=-1)


def scaled(m: Any, x: Any) -> Any:
    y = turned(m, x)
    return 2.0 * y / m.sum(y * y, axis=-1, keepdims=True)


def coloured(m: Any, x: Any) -> Any:
    """Pieces of two elements and of one."""
    o = m.cos(x[:, :1])
    return m.concatenate([x * o, o + x[:, 1:]], axis=-1)


def lit(m: Any, x: Any) -> Any:
    """Both elements need what is expensive, of the whole row."""
    return x * m.exp(m.cos(m.sum(x * x, axis=-1, keepdims=True))) + 1.0


def apart(m: Any, x: Any) -> Any:
    """Each is read by lanes of other rows."""
    y = turned(m, x)
    return m.sum(m.abs(y[:, None] - y[None]), axis=-1)


def test_vectors_of_a_cpu_make_elements_of_rows_side_by_side() -> None:
    given = lg.asarray(np.random.default_rng(0).normal(size=(MANY_ROWS, 2)))
    program = schedule(extract([lit(lg, given)._value], [given._value]), in_order=True)
    assert [int(np.prod(kernel.domain)) for kernel in program.kernels] == [MANY_ROWS, 2 * MANY_ROWS]


@pytest.mark.parametrize(
    ("function", "rows", "lanes"),
    [
        (turned, 5, [5]),
        (lambda m, x: turned(m, x) + 1.0, MANY_ROWS, [MANY_ROWS]),
        (scaled, MANY_ROWS, [MANY_ROWS]),
        (lambda m, x: turned(m, x).reshape(-1, 1, 3) * 2.0, MANY_ROWS, [MANY_ROWS]),
        (lambda m, x: turned(m, x) + 1.0, 5, [15]),
        (lit, MANY_ROWS, [MANY_ROWS]),
        (coloured, 5, [5]),
        (lambda m, x: 2.0 * coloured(m, x), MANY_ROWS, [MANY_ROWS]),
        (lambda m, x: coloured(m, x)[::-1], 5, [15]),
        (apart, MANY_ROWS, [MANY_ROWS, MANY_ROWS**2]),
    ],
)
def test_lanes(function: Callable[..., Any], rows: int, lanes: list[int]) -> None:
    x = np.random.default_rng(0).normal(size=(rows, 2))
    given = lg.asarray(x)
    program = schedule(extract([function(lg, given)._value], [given._value]))
    assert all(isinstance(step, LaunchStep) for step in program.steps)
    assert [int(np.prod(kernel.domain)) for kernel in program.kernels] == lanes
    np.testing.assert_allclose(np.asarray(function(lg, given)), function(np, x), rtol=1e-14, atol=1e-14)


def test_results_that_others_are_made_of_stay_with_them() -> None:
    """A velocity that a place is moved by, both results."""
    x = np.random.default_rng(0).normal(size=(MANY_ROWS, 2))
    given = lg.asarray(x)
    speed = lit(lg, given)
    program = schedule(extract([speed._value, (given + 0.1 * speed)._value], [given._value]))
    assert [int(np.prod(kernel.domain)) for kernel in program.kernels] == [MANY_ROWS]
    np.testing.assert_allclose(np.asarray(given + 0.1 * speed), x + 0.1 * lit(np, x), rtol=1e-14)


def test_what_a_product_reads_is_made_by_rows() -> None:
    x = np.random.default_rng(1).normal(size=MANY_ROWS)
    given = lg.asarray(x)
    powers = lg.stack([given**k for k in range(3)], axis=1)
    kernel, *_ = schedule(extract([(powers.T @ powers)._value], [given._value]), in_order=True).kernels
    assert kernel.domain == (MANY_ROWS,)
    expected = np.vander(x, 3, increasing=True)
    np.testing.assert_allclose(np.asarray(powers.T @ powers), expected.T @ expected, rtol=1e-13)


def test_rows_are_stored_rather_than_all_products_of_their_elements() -> None:
    x = np.random.default_rng(2).normal(size=8 * MANY_ROWS)
    given = lg.asarray(x)
    powers = lg.stack([given**k for k in range(6)], axis=1)
    total = lg.sum(powers[:, :, None] * powers[:, None], axis=0)
    program = schedule(extract([total._value], [given._value]))
    assert max(slot.type.size for slot in program.slots) == 6 * len(x)
    expected = np.vander(x, 6, increasing=True)
    np.testing.assert_allclose(np.asarray(total), expected.T @ expected, rtol=1e-12)
