"""Intervals against the elements that random integer graphs have, and the rules one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.extract import extract
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Value
from loopgrad.graph.ranges import bounds, may_lie_in
from loopgrad.graph.types import (
    DType,
    TensorType,
    bool_,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

DTYPES = (int8, uint8, int16, uint16, int32, uint32, int64, uint64)
BINARY = (ops.add, ops.sub, ops.mul, ops.floordiv, ops.div, ops.mod, ops.rem, ops.min, ops.max, ops.and_, ops.or_,
          ops.xor, ops.shl, ops.shr, ops.pow)  # fmt: skip
UNARY = (ops.neg, ops.abs, ops.sign, ops.invert)
MOVED = (
    lambda v: ops.sort(v, 0),
    lambda v: ops.cumsum(v, 0),
    lambda v: ops.cummax(v, 0),
    lambda v: ops.cast(ops.argsort(v, 0), v.dtype),
    lambda v: ops.pad(ops.slice(v, (3,), (None,)), (2,), (1,), 2),
    lambda v: ops.broadcast(ops.reduce_sum(v, (0,)), v.shape, ()),
    lambda v: ops.broadcast(ops.reduce_min(v, (0,)), v.shape, ()),
    lambda v: ops.gather(v, ops.mod(ops.iota(v.type, 0), 5)),
    lambda v: ops.scatter("set", v, (ops.iota(v.type, 0),), ops.cast(ops.gt(v, 3), v.dtype)),
    lambda v: ops.select(ops.lt(v, 5), v, ops.full(3, v.type)),
)


def literal(rng: np.random.Generator, type: TensorType) -> Value:
    low, high = sorted(rng.integers(-9, 100, size=2).clip(-9 if type.dtype.kind == "i" else 0, 100).tolist())
    return ops.literal(rng.integers(low, high + 1, type.shape), type.dtype)


def random_value(rng: np.random.Generator, type: TensorType) -> Value:
    values = [ops.iota(type, 0), literal(rng, type), ops.full(int(rng.choice([0, 1, 2, 7, 100])), type)]
    for _ in range(int(rng.integers(1, 7))):
        kind, v = rng.random(), values[rng.integers(len(values))]
        if kind < 0.5:
            other = ops.cast(values[rng.integers(len(values))], v.dtype)
            values.append(BINARY[rng.integers(len(BINARY))](v, other))
        elif kind < 0.65:
            values.append(UNARY[rng.integers(len(UNARY))](v))
        elif kind < 0.8:
            values.append(MOVED[rng.integers(len(MOVED))](v))
        else:
            values.append(ops.cast(v, DTYPES[rng.integers(len(DTYPES))]))
    return values[-1]


@pytest.mark.parametrize("block", range(8))
def test_every_element_lies_within(block: int) -> None:
    for seed in range(block * 60, block * 60 + 60):
        rng = np.random.default_rng(seed)
        value = random_value(rng, TensorType((12,), DTYPES[rng.integers(len(DTYPES))]))
        (elements,) = interpret(extract([value]), [])
        low, high = bounds(value)
        assert low <= int(elements.min())
        assert int(elements.max()) <= high
        for n in elements[:4].tolist():
            assert may_lie_in(value, n, n), (seed, n)


def lanes(dtype: DType, count: int = 10) -> Value:
    return ops.iota(TensorType((count,), dtype), 0)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda k: ops.add(k, 5), (5, 14)),
        (lambda k: ops.sub(k, 5), (-5, 4)),
        (lambda k: ops.mul(k, -3), (-27, 0)),
        (lambda k: ops.mul(k, 20), (-128, 127)),
        (lambda k: ops.and_(ops.mul(k, 20), 7), (0, 7)),
        (lambda k: ops.cast(ops.sub(ops.mul(k, 20), ops.mul(k, 19)), int64), (-128, 127)),
        (lambda k: ops.mul(ops.cast(k, int64), 20), (0, 180)),
        (lambda k: ops.cast(ops.mul(ops.cast(k, int64), 20), int8), (-128, 127)),
        (lambda k: ops.floordiv(ops.neg(k), 4), (-3, 0)),
        (lambda k: ops.div(ops.neg(k), 4), (-2, 0)),
        (lambda k: ops.mod(ops.neg(k), 4), (0, 3)),
        (lambda k: ops.rem(ops.neg(k), 4), (-3, 0)),
        (lambda k: ops.shr(ops.sub(k, 5), 1), (-3, 2)),
        (lambda k: ops.shl(k, 2), (0, 36)),
        (lambda k: ops.or_(k, 4), (4, 15)),
        (lambda k: ops.invert(k), (-10, -1)),
        (lambda k: ops.abs(ops.sub(k, 5)), (0, 5)),
        (lambda k: ops.pow(k, 2), (0, 81)),
        (lambda k: ops.pow(k, 3), (-128, 127)),
        (lambda k: ops.reduce_sum(k, (0,)), (0, 90)),
        (lambda k: ops.cast(ops.gt(k, 3), int8), (0, 1)),
        (lambda k: ops.cast(ops.cast(k, float64), int8), (-128, 127)),
        (lambda k: ops.gt(k, 3), (0, 1)),
    ],
)
def test_bounds(make: Callable[[Value], Value], expected: tuple[int, int]) -> None:
    assert bounds(make(lanes(int8))) == expected


def test_sums_that_wrap_just_beyond_the_dtype_stay_far_from_the_end() -> None:
    """%k + 3 may pass 2**31 - 1, and is far below -50 then: it needs no position counted from the end."""

    def body(k: Value) -> list[Value]:
        assert k.scope is not None
        k.scope.ranges[k] = (0, 2**31 - 2)  # type: ignore[attr-defined]
        shifted, doubled = ops.add(k, 3), ops.add(k, k)
        assert bounds(shifted) == (-(2**31), 2**31 - 1)
        assert not may_lie_in(shifted, -50, -1)
        assert may_lie_in(doubled, -50, -1)
        assert not may_lie_in(ops.invert(ops.invert(shifted)), -50, -1)
        assert may_lie_in(ops.cast(shifted, int64), -50, -1)  # wider, -2**31 isn't far below any more
        return [shifted]

    trace(body, [TensorType((), int32)])


def test_nothing_is_known_of_data() -> None:
    def body(x: Value, flag: Value) -> list[Value]:
        assert bounds(x) == (-128, 127)
        assert bounds(flag) == (0, 1)
        assert bounds(ops.max(x, 3)) == (3, 127)
        inner, _ = trace(lambda k: [ops.add(k, x) if bounds(x) == (-128, 127) else k], [x.type])
        assert len(inner.nodes) == 1
        return [x]

    trace(body, [TensorType((4,), int8), TensorType((4,), bool_)])
