"""Every kernel pass keeps the meaning of random kernels, and does what it is for."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, OwnArray, StackSlot
from loopgrad.codegen.kernel.passes import cse, dce, fold, licm, optimise, share_arrays
from loopgrad.codegen.kernel.text import print_kernel
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.graph.types import float32, int32, int64
from tests.codegen.kernel import random_kernels as _random_kernels

random_kernel = _random_kernels.random_kernel


def ran(kernel, arrays):
    copies = [a.copy() for a in arrays]
    interpret_kernel(kernel, copies)
    return copies


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(60))
def test_passes_keep_meaning(seed):
    kernel, arrays = random_kernel(seed)
    verify_kernel(kernel)
    wanted = ran(kernel, arrays)
    for run in (fold.run, cse.run, licm.run, dce.run, share_arrays.run, optimise):
        after = run(kernel)
        verify_kernel(after)
        for a, b in zip(wanted, ran(after, arrays), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{run.__module__}\n{print_kernel(after)}")


def test_what_is_skipped_changes_nothing():
    """The pipeline merges again only where code moved out of a loop."""
    moved = []
    for seed in range(12):
        kernel, _ = random_kernel(seed)
        merged = cse.run(fold.run(kernel))
        after = licm.run(merged)
        moved.append(after is not merged)
        every = share_arrays.run(dce.run(cse.run(after)))
        assert print_kernel(optimise(kernel)) == print_kernel(every)
    assert {*moved} == {True, False}


def count(block, opcode):
    return sum((op.opcode == opcode) + sum(count(b, opcode) for b in op.blocks) for op in block.ops)


def loop_kernel(body_ops, index, argument, result, stacks=()):
    lane = KValue(int64)
    load = KOp("load", (lane,), (float32,), {"param": 0})
    trips = KOp("const", (), (int32,), {"value": 5})
    block = Block((index, argument), body_ops, (result,))
    loop = KOp("for", (trips.results[0], load.results[0]), (float32,), {"reverse": False}, (block,))
    store = KOp("store", (lane, loop.results[0]), (), {"param": 1})
    params = (BufferParam(float32, 4, "read"), BufferParam(float32, 4, "write"))
    return Kernel("k", (4,), params, Block((lane,), [load, trips, loop, store]), stacks)


def test_licm_moves_invariant_code_out():
    index, argument = KValue(int32), KValue(float32)
    c = KOp("const", (), (float32,), {"value": 0.5})
    s = KOp("sin", (c.results[0],), (float32,))
    a = KOp("add", (argument, s.results[0]), (float32,))
    kernel = licm.run(loop_kernel([c, s, a], index, argument, a.results[0]))
    (loop,) = [op for op in kernel.body.ops if op.opcode == "for"]
    assert [op.opcode for op in loop.blocks[0].ops] == ["add"]


def test_dce_drops_a_stack_that_nobody_pops():
    index, argument = KValue(int32), KValue(float32)
    push = KOp("push", (argument,), (), {"stack": 0})
    a = KOp("add", (argument, argument), (float32,))
    kernel = dce.run(loop_kernel([push, a], index, argument, a.results[0], (StackSlot(float32, None, "s", None),)))
    assert kernel.stacks == ()
    assert count(kernel.body, "push") == 0


def test_cse_merges_across_a_loop():
    index, argument = KValue(int32), KValue(float32)
    first = KOp("sin", (argument,), (float32,))
    second = KOp("sin", (argument,), (float32,))
    a = KOp("add", (first.results[0], second.results[0]), (float32,))
    kernel = cse.run(loop_kernel([first, second, a], index, argument, a.results[0]))
    assert count(kernel.body, "sin") == 1


def test_arrays_that_are_needed_at_different_times_are_one():
    """Array 0 goes round a loop, in which 1 and 2 come one after the other; 3 is needed when that is over, 4 is of
    another dtype."""
    lane, index, zero = KValue(int64), KValue(int32), KOp("const", (), (int64,), {"value": 0})
    x = KOp("load", (lane,), (float32,), {"param": 0})
    trips = KOp("const", (), (int32,), {"value": 5})
    at = zero.results[0]

    def put(array, value):
        return KOp("array_store", (at, value), (), {"array": array})

    def get(array, dtype=float32):
        return KOp("array_load", (at,), (dtype,), {"array": array})

    first, second, third = get(0), get(1), get(2)
    more = KOp("add", (second.results[0], x.results[0]), (float32,))
    body = [first, put(1, first.results[0]), second, more, put(2, more.results[0]), third, put(0, third.results[0])]
    loop = KOp("for", (trips.results[0],), (), {"reverse": False}, (Block((index,), body),))
    fourth, fifth, last = get(0), get(3), get(4, int64)
    ops = [x, zero, trips, put(4, at), put(0, x.results[0]), loop, fourth, put(3, fourth.results[0]), fifth, last]
    ops.append(KOp("store", (last.results[0], fifth.results[0]), (), {"param": 1}))
    params = (BufferParam(float32, 1, "read"), BufferParam(float32, 1, "write"))
    arrays = (*[OwnArray(float32, 1)] * 4, OwnArray(int64, 1))
    kernel = Kernel("k", (1,), params, Block((lane,), ops), (), arrays=arrays)
    after = share_arrays.run(kernel)
    verify_kernel(after)
    assert [slot.dtype for slot in after.arrays].count(float32) == 2
    given = [np.array([2.0], np.float32), np.zeros(1, np.float32)]
    assert ran(kernel, given)[1] == ran(after, given)[1] == 12.0


def test_an_index_that_lies_within_its_array_is_not_clamped():
    def kernel(shift, extent):
        lane = KValue(int64)
        ops = [KOp("const", (), (int64,), {"value": value}) for value in (shift, 0, extent - 1)]
        by, low, high = (op.results[0] for op in ops)
        at = KOp("add", (lane, by), (int64,))
        above = KOp("max", (at.results[0], low), (int64,))
        below = KOp("min", (above.results[0], high), (int64,))
        load = KOp("load", (below.results[0],), (float32,), {"param": 0})
        store = KOp("store", (lane, load.results[0]), (), {"param": 1})
        params = (BufferParam(float32, extent, "read"), BufferParam(float32, 10, "write"))
        return Kernel("k", (10,), params, Block((lane,), [*ops, at, above, below, load, store]))

    def kept(shift, extent):
        before, after = kernel(shift, extent), optimise(kernel(shift, extent))
        arrays = [np.arange(extent, dtype=np.float32), np.zeros(10, np.float32)]
        np.testing.assert_array_equal(ran(before, arrays)[1], ran(after, arrays)[1])
        return [count(after.body, opcode) for opcode in ("max", "min")]

    assert kept(2, 12) == [0, 0]
    assert kept(2, 11) == [0, 1]
    assert kept(-1, 12) == [1, 0]
