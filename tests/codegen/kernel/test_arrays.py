"""Arrays of lanes: what they hold, what is left of them, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, OwnArray, walk
from loopgrad.codegen.kernel.passes import dce, optimise
from loopgrad.codegen.kernel.text import print_kernel
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.graph.errors import VerifyError
from loopgrad.graph.types import float32, float64, int64


def op(opcode, operands, dtypes, blocks=(), **attrs):
    return KOp(opcode, tuple(operands), tuple(dtypes), attrs, tuple(blocks))


def squares() -> Kernel:
    """Array 1 holds k * k for k below 5; a lane finds the element that it has the number of. Nobody reads array 0."""
    lane, k = KValue(int64), KValue(int64)
    five = op("const", (), (int64,), value=5)
    square = op("mul", (k, k), (int64,))
    body = Block((k,), [square, op("array_store", (k, square.results[0]), (), array=1)])
    loop = op("for", (five.results[0],), (), (body,), reverse=False)
    unused = op("array_store", (lane, lane), (), array=0)
    found = op("array_load", (lane,), (int64,), array=1)
    store = op("store", (lane, found.results[0]), (), param=0)
    ops = [five, unused, loop, found, store]
    arrays = (OwnArray(int64, 5), OwnArray(int64, 5))
    return Kernel("k", (5,), (BufferParam(int64, 5, "write"),), Block((lane,), ops), arrays=arrays)


def test_lanes_find_what_they_stored():
    for kernel in (squares(), optimise(squares())):
        verify_kernel(kernel)
        found = np.zeros(5, np.int64)
        interpret_kernel(kernel, [found])
        assert found.tolist() == [0, 1, 4, 9, 16]
    assert "array a1: int64[5]" in print_kernel(squares())


def test_arrays_that_nobody_reads_go():
    kernel = dce.run(squares())
    assert len(kernel.arrays) == 1
    assert [o.attrs["array"] for o in walk(kernel.body) if "array" in o.attrs] == [0, 0]


def test_loads_stay_behind_stores():
    """Two loads of one element with a store between them aren't one, nor does either leave a loop."""
    lane, zero, one = KValue(int64), op("const", (), (int64,), value=0), op("const", (), (int64,), value=1)
    store = op("array_store", (zero.results[0], one.results[0]), (), array=0)
    k, total = KValue(int64), KValue(int64)
    first = op("array_load", (zero.results[0],), (int64,), array=0)
    more = op("add", (first.results[0], one.results[0]), (int64,))
    again = op("array_store", (zero.results[0], more.results[0]), (), array=0)
    second = op("array_load", (zero.results[0],), (int64,), array=0)
    both = op("add", (first.results[0], second.results[0]), (int64,))
    sum_ = op("add", (total, both.results[0]), (int64,))
    three = op("const", (), (int64,), value=3)
    body = Block((k, total), [first, more, again, second, both, sum_], (sum_.results[0],))
    loop = op("for", (three.results[0], zero.results[0]), (int64,), (body,), reverse=False)
    out = op("store", (lane, loop.results[0]), (), param=0)
    ops = [zero, one, three, store, loop, out]
    params = (BufferParam(int64, 2, "write"),)
    kernel = optimise(Kernel("k", (2,), params, Block((lane,), ops), arrays=(OwnArray(int64, 1),)))
    found = np.zeros(2, np.int64)
    interpret_kernel(kernel, [found])
    assert found.tolist() == [1 + 2 + 2 + 3 + 3 + 4] * 2


@pytest.mark.parametrize(
    ("arrays", "finding"),
    [
        ((OwnArray(int64, 5), OwnArray(float64, 5)), "value is not the array's dtype"),
        ((OwnArray(float32, 5), OwnArray(int64, 5)), "value is not the array's dtype"),
    ],
)
def test_wrong_arrays_are_refused(arrays, finding):
    with pytest.raises(VerifyError, match=finding):
        verify_kernel(replace(squares(), arrays=arrays))


def test_an_index_that_is_known_must_be_inside():
    kernel = squares()
    index = op("const", (), (int64,), value=5)
    ops = [index, op("array_store", (index.results[0], kernel.body.arguments[0]), (), array=0), *kernel.body.ops]
    with pytest.raises(VerifyError, match="index out of range"):
        verify_kernel(replace(kernel, body=Block(kernel.body.arguments, ops)))
