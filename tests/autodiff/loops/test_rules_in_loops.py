"""Every primitive that has a derivative, inside loops: its rules to second order on carries, on shared accumulators,
over counted lanes and over lanes that stop by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.autodiff.rules import ACCUMULATE, PARTIALS, VJP
from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.primitives import PRIMITIVES, Kind
from loopgrad.graph.region_ops import traced_for, traced_while
from loopgrad.graph.types import TensorType, float64, int64

X = np.array([0.1, 0.7, -0.4, 0.9])
ROWS = np.cos(np.arange(12.0) * 1.7).reshape(4, 3)
TRIPS = np.array([0, 1, 3, 2])
PLACES = np.array([1, 0, 1, 2])
DOMAIN = {"asin": (-0.8, 0.8), "acos": (-0.8, 0.8), "atanh": (-0.8, 0.8), "acosh": (1.2, 3.0), "digamma": (1.2, 3.0)}


OF_REALS = [op for op in PARTIALS if PRIMITIVES[op].kind is not Kind.PARTS]


def within(op, v):
    """v, brought into the domain of the primitive."""
    low, high = DOMAIN.get(op, (0.3, 1.4))
    return ops.add(ops.mul(ops.sin(v), (high - low) / 2), (high + low) / 2)


def elementwise(op, v, x):
    """The primitive of the carry and of what the loop captures."""
    a, b = within(op, v), ops.add(ops.mul(x, 0.2), 1.1)
    if op == "select":
        return ops.select(ops.gt(v, x), ops.mul(v, b), ops.mul(a, a))
    if op == "cast":
        return ops.cast(a, float64)
    return emit(op, (a, b) if len(PARTIALS[op]) == 2 else (a,))[0]


def counted(op, x, n):
    return traced_for(n, [x], lambda k, v: [ops.add(elementwise(op, v, x), ops.mul(v, 0.1))])


def stopping(op, x, n):
    def body(k, v):
        return [ops.add(k, 1), ops.add(elementwise(op, v, x), ops.mul(v, 0.1))]

    return traced_while([ops.zeros_like(n), x], lambda k, v: ops.lt(k, n), body)[1:]


def accumulated(op, x, n):
    """A carry, and a table that lanes add to, of which the loss isn't linear."""
    table = ops.full(0.1, TensorType((3,), float64))
    place = ops.literal(PLACES, n.dtype)

    def body(k, v, t):
        result = elementwise(op, v, x)
        return [ops.add(result, ops.mul(v, 0.1)), ops.scatter("add", t, [place], ops.mul(result, x))]

    v, t = traced_for(n, [x, table], body, shared=[1])
    return [v, ops.sin(ops.mul(t, t))]


@pytest.mark.in_turns
@pytest.mark.parametrize("op", OF_REALS)
@pytest.mark.parametrize("loop", [counted, stopping, accumulated])
def test_elementwise_rules_over_lanes(derivatives, loop, op):
    derivatives.check(lambda x, n: loop(op, x, n), [X, TRIPS], order=2)


@pytest.mark.parametrize("op", OF_REALS)
def test_elementwise_rules_in_a_uniform_loop(derivatives, op):
    derivatives.check(lambda x, n: counted(op, x, n), [X, np.array(2)], order=2)


def _rows(v, op, **attrs):
    return emit(op, (v,), attrs)[0]


def _spread(v, like):
    """One number per row, for every element of it."""
    return ops.broadcast(v, like.shape, (0,))


def _own(v, *columns):
    """Indices of each row's own elements in these columns."""
    type = TensorType((v.shape[0], len(columns)), int64)
    return ops.iota(type, 0), ops.broadcast(ops.literal(np.array(columns), int64), type.shape, (1,))


def _scattered(kind):
    """Two of the three updates of a row meet."""
    return lambda v, x: ops.scatter(kind, v, _own(v, 2, 0, 2), ops.add(x, ops.mul(v, v)))


# functions of a carry with rows of 3 and of a captured array of that shape; no row looks at another
STRUCTURED = {
    "reduce_sum": lambda v, x: ops.mul(_spread(_rows(v, "reduce_sum", axes=(1,)), v), x),
    "reduce_prod": lambda v, x: ops.mul(_spread(_rows(v, "reduce_prod", axes=(1,)), v), x),
    "reduce_max": lambda v, x: ops.mul(_spread(_rows(v, "reduce_max", axes=(1,)), v), x),
    "reduce_min": lambda v, x: ops.mul(_spread(_rows(v, "reduce_min", axes=(1,)), v), x),
    "cumsum": lambda v, x: ops.mul(ops.cumsum(v, 1), x),
    "cumprod": lambda v, x: ops.mul(ops.cumprod(v, 1, True), x),
    "cummax": lambda v, x: ops.mul(ops.cummax(v, 1), x),
    "cummin": lambda v, x: ops.mul(ops.cummin(v, 1, True), x),
    "logcumsumexp": lambda v, x: ops.mul(ops.logcumsumexp(v, 1), x),
    "sort": lambda v, x: ops.mul(ops.sort(v, 1), x),
    "gather": lambda v, x: ops.mul(ops.gather(v, *_own(v, 2, 0, 2)), x),
    "scatter": _scattered("add"),
    "scatter set": _scattered("set"),
    "scatter mul": _scattered("mul"),
    "scatter max": _scattered("max"),
    "scatter min": _scattered("min"),
    "matmul": lambda v, x: ops.reshape(ops.matmul(ops.matmul(_column(v), _row(x)), _column(v)), v.shape),
    "conv": lambda v, x: ops.mul(_smoothed(v), x),
    "broadcast": lambda v, x: ops.mul(ops.broadcast(ops.gather(v, *_first(v)), v.shape, (0,)), x),
    "reshape": lambda v, x: ops.mul(ops.reshape(_row(v), v.shape), x),
    "transpose": lambda v, x: ops.mul(ops.reshape(ops.transpose(_column(v), (0, 2, 1)), v.shape), x),
    "slice": lambda v, x: ops.concat([ops.slice(v, (0, 1), v.shape), ops.mul(ops.slice(x, (0, 0), (4, 1)), 0.5)], 1),
    "pad": lambda v, x: ops.mul(ops.pad(ops.slice(v, (0, 1), v.shape), (0, 1), (0, 0), 0.3), x),
    "concat": lambda v, x: ops.slice(ops.concat([x, ops.mul(v, v)], 1), (0, 2), (4, 5)),
    "flip": lambda v, x: ops.mul(ops.flip(v, (1,)), x),
}


def _smoothed(v):
    """The sum of each element and half of the one before."""
    attrs = {"strides": (1,), "low": (1,), "high": (0,), "spread": (1,), "dilation": (1,), "groups": 1, "absent": False}
    kernel = ops.literal(np.array([[[0.5, 1.0]]]), v.dtype)
    return ops.reshape(emit("conv", (_row(v), kernel), attrs)[0], v.shape)


def _column(v):
    return ops.reshape(v, (*v.shape, 1))


def _row(v):
    return ops.reshape(v, (v.shape[0], 1, v.shape[1]))


def _first(v):
    rows = TensorType((v.shape[0],), int64)
    return ops.iota(rows, 0), ops.full(0, rows)


@pytest.mark.in_turns
@pytest.mark.parametrize("trips", [TRIPS, np.array(2)], ids=["lanes", "uniform"])
@pytest.mark.parametrize("name", STRUCTURED)
def test_rules_of_rows(derivatives, name, trips):
    def function(x, n):
        def body(k, v):
            return [ops.add(ops.sin(STRUCTURED[name](v, x)), ops.mul(v, 0.3))]

        return traced_for(n, [ops.mul(x, 0.9)], body)

    derivatives.check(function, [ROWS, trips], order=2)


def test_no_rule_is_left_out():
    """Routines over whole arrays, complex numbers, and what is only made by derivatives of loops have tests of their
    own."""
    elsewhere = {op for op in VJP if PRIMITIVES[op].kind in (Kind.LIBRARY, Kind.PARTS, Kind.NAMED_AXIS, Kind.STACK)}
    assert {*VJP, *ACCUMULATE} - {*STRUCTURED} - elsewhere == set()
