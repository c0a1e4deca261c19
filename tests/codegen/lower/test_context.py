"""Index digits: cutting, dividing, folding while compiling, and the boundaries they ask of the domain."""

import itertools
import math
import random

import numpy as np
import pytest

from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.lower.context import Lowering, Params, Settings, leading_dims
from loopgrad.codegen.lower.emitter import Part
from loopgrad.codegen.lower.kernel import RULES
from loopgrad.codegen.lower.liveness import Liveness
from loopgrad.graph.types import TensorType, float32, int64


def lowering(*dims):
    settings = Settings(lambda data, type: (data, type), lambda _: 0, Liveness())
    return Lowering(settings, RULES, dims, lane_loops=False)


def run(ctx, positions):
    """The values of positions for every lane, by the kernel interpreter."""
    arrays = []
    for p in positions:
        buffer = np.zeros(ctx.lanes, np.int64)
        param = ctx.params.number(buffer, TensorType((ctx.lanes,), int64), "write")
        ctx.emitter.effect("store", (ctx.emitter.value(ctx.emitter.linear(ctx.lane_index)), ctx.emitter.value(p)), (), {
            "param": param})  # fmt: skip
        arrays.append(buffer)
    interpret_kernel(Kernel("k", ctx.dims, tuple(ctx.params.params), ctx.emitter.blocks[0].block), arrays)
    return arrays


def test_digits_agree_with_numpy():
    """Any regrouping of the lane's dims gives NumPy's indices: all of up to three sizes, and some of four."""
    rng, extents = random.Random(0), (1, 2, 3, 4, 6)
    shapes = [s for rank in (1, 2, 3) for s in itertools.product(extents, repeat=rank)]
    shapes += [tuple(rng.choices(extents, k=4)) for _ in range(50)]
    for sizes in shapes:
        total = math.prod(sizes)
        dims, rest = [], total
        for f in rng.sample([2] * 8 + [3] * 5, 13):
            if rest % f == 0:
                dims.append(f)
                rest //= f
        ctx = lowering(*dims)
        assert ctx.lanes == total
        got = run(ctx, ctx.radix(ctx.lane_index, sizes))
        for digit, wanted in zip(got, np.unravel_index(np.arange(total), sizes), strict=True):
            np.testing.assert_array_equal(digit, wanted, err_msg=f"{sizes} of lanes {dims}")


def test_known_positions_emit_nothing():
    ctx = lowering(7)
    before = ctx.emitter.ops
    digits = ctx.radix((Part(24, 17),), (2, 3, 4))
    assert digits == [1, 1, 1]
    assert ctx.emitter.linear((Part(2, 1), Part(3, 1), Part(4, 1))) == 17
    assert ctx.emitter.clamp(9, 5) == 4
    assert ctx.emitter.inside(-1, 5) is False
    assert ctx.emitter.ops == before


def test_digits_are_kept_where_they_fit():
    ctx = lowering(4, 6)
    (lead, rest) = ctx.cuts((*ctx.lane_index, Part(5, 3)), (24, 5))
    assert lead == ctx.lane_index
    assert rest == (Part(5, 3),)
    assert ctx.emitter.ops == 0


def test_a_divided_lane_digit_asks_for_a_boundary():
    ctx = lowering(24)
    ctx.cuts(ctx.lane_index, (4, 6))
    assert ctx.split == {6}
    inner = lowering(5, 24)
    inner.cuts(inner.lane_index, (10, 12))
    assert inner.split == {12}


def test_equal_operations_are_emitted_once_and_outside_loops():
    ctx = lowering(8)
    e = ctx.emitter
    (lane,) = (p.at for p in ctx.lane_index)
    (k,) = e.open((int64,))
    invariant = e.add(lane, 3)
    variant = e.add(k, lane)
    assert e.depth[invariant] == 0
    assert e.depth[variant] == 1
    e.effect("for", (e.const(2, int64),), (), {"reverse": False}, (e.close(),))
    assert e.add(lane, 3) is invariant


def test_nothing_is_hoisted_out_of_a_branch_but_what_is_known_there_is_used():
    ctx = lowering(8)
    e = ctx.emitter
    (lane,) = (p.at for p in ctx.lane_index)
    outside = e.add(lane, 3)
    e.open((), fence=True)
    assert e.add(lane, 3) is outside
    assert e.depth[e.add(lane, 4)] == 1
    e.close()


@pytest.mark.parametrize(
    ("shape", "size", "dims"),
    [((3, 4), 3, 1), ((3, 4), 12, 2), ((1, 3, 4), 1, 0), ((3, 4), 6, None), ((), 1, 0), ((3, 1, 4), 12, 3)],
)
def test_leading_dims(shape, size, dims):
    assert leading_dims(shape, size) == dims


def test_a_buffer_is_one_parameter_per_access():
    params, buffer = Params(), object()
    type = TensorType((4,), float32)
    assert params.number(buffer, type, "read") == params.number(buffer, type, "read") == 0
    assert params.number(buffer, type, "write") == 1
    assert [p.access for p in params.params] == ["read", "write"]
