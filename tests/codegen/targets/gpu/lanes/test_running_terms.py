"""Launches that make what a scan alone reads become its lanes; others stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, RunningTotal
from loopgrad.codegen.targets.gpu.lanes.flat_lanes import flat
from loopgrad.graph.types import float32, int64

SCAN, OTHERS = "a running total whose lanes make its terms", "running totals of any function"


def recurrence(a: Any, x: Any, **how: Any) -> Any:
    return lg.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, x), **how)[1]


def by_numpy(a: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    found, total = np.empty_like(x), 0.0
    for k in range(x.shape[axis]):
        place = (slice(None),) * axis + (k,)
        found[place] = total = total * a[place] + x[place]
    return found


@pytest.fixture(autouse=True)
def there(gpu: str) -> Iterator[None]:
    with lg.default_device(gpu), lg.options(direct=False):
        yield


def used(compiled: Any, *operands: Any) -> list[str]:
    """Who does the scans of a program."""
    return [row.provider for row in compiled.plan(*operands).routines if row.name == "associative_scan"]


@pytest.mark.parametrize(("shape", "axis"), [((333,), 0), ((5, 40), 1), ((5, 41), 1), ((3, 20, 4), 1), ((70, 6), 0)])
def test_terms_are_made_in_the_scan(shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(0)
    a, x = rng.uniform(0.3, 1.0, shape), rng.normal(size=shape)
    compiled = lg.compile(lambda a, x: recurrence(lg.sqrt(a), x * x - 1.0, axis=axis))
    operands = lg.asarray(a), lg.asarray(x)
    np.testing.assert_allclose(np.asarray(compiled(*operands)), by_numpy(np.sqrt(a), x * x - 1, axis), rtol=1e-12)
    assert used(compiled, *operands) == [SCAN]


@pytest.mark.parametrize("shown", [False, True])
def test_what_others_read_is_stored(shown: bool) -> None:
    def program(a: Any, x: Any) -> Any:
        terms = x * 2.0
        return (recurrence(a, terms), terms if shown else lg.sum(lg.flip(terms, 0) * a))

    a, x = np.linspace(0.5, 1, 50), np.linspace(-1, 1, 50)
    compiled, operands = lg.compile(program), (lg.asarray(a), lg.asarray(x))
    scanned, other = compiled(*operands)
    np.testing.assert_allclose(np.asarray(scanned), by_numpy(a, 2 * x, 0), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(other), 2 * x if shown else np.sum(2 * x[::-1] * a), rtol=1e-12)
    assert used(compiled, *operands) == [OTHERS]


def kernel_of(rows: int, length: int, by_column: bool) -> Kernel:
    i, j = KValue(int64), KValue(int64)
    ops = [KOp("const", (), (int64,), {"value": length})]
    ops.append(KOp("mul", (i, *ops[0].results), (int64,)))
    ops.append(KOp("add", (*ops[1].results, j), (int64,)))
    ops.append(KOp("load", (j,) if by_column else ops[2].results, (float32,), {"param": 0}))
    ops.append(KOp("scan", ops[3].results, ()))
    params = (BufferParam(float32, rows * length, "read"), BufferParam(float32, rows * length, "write"))
    running = RunningTotal("add", float32, 1, (rows, length, 1), False)
    return Kernel("total", (rows, length), params, Block((i, j), ops), running=running)


def test_lanes_that_touch_their_own_elements_have_one_dim() -> None:
    made = flat(kernel_of(6, 7, by_column=False))
    assert made.domain == (42,)
    load = next(op for op in made.body.ops if op.opcode == "load")
    assert load.operands == made.body.arguments
    kept = kernel_of(6, 7, by_column=True)
    assert flat(kept) is kept
