from __future__ import annotations

import math

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph import types as T
from loopgrad.graph.build import trace
from loopgrad.graph.errors import DTypeError, ShapeError
from loopgrad.graph.primitives import FAMILIES
from loopgrad.graph.region_ops import share_captures, traced_while
from loopgrad.graph.types import TensorType

EMITTERS = {"and": "and_", "or": "or_", "for": "for_loop", "while": "while_loop", "const": "full", "complex": "join"}


def test_every_primitive_has_an_emitter():
    """But for those of which one room alone makes nodes, by their names."""
    elsewhere = (
        "attention",
        "collectives",
        "convolution",
        "factorisations",
        "fourier",
        "lapack",
        "random",
        "running",
        "segments",
        "shards",
        "window_products",
    )
    for op in [op for family, records in FAMILIES.items() if family not in elsewhere for op in records]:
        assert callable(getattr(ops, EMITTERS.get(op, op))), op


def test_a_number_takes_the_type_of_the_tensor_beside_it(leaf):
    for name, value in (("float32", 2.0), ("int8", 2), ("uint64", 2)):
        x = leaf(name, 3)
        for v in (ops.sub(x, 2), ops.sub(2, x), ops.select(ops.eq(x, 2), 2, x), ops.select(ops.eq(2, x), x, 2)):
            assert v.type == x.type
            (const,) = [o for o in v.node.operands if o.node is not None and o.node.op == "const"]
            assert const.type == x.type
            assert const.node.attrs["value"] == value
            assert type(const.node.attrs["value"]) is type(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int32", 0.5), ("int32", math.nan), ("int32", math.inf), ("int8", 128), ("int8", -129), ("uint8", -1),
        ("uint64", 2**64), ("bool", 2), ("float32", 1j), ("int32", 1j), ("int32", np.float32(0.5)),
    ],
)  # fmt: skip
def test_a_number_the_dtype_cannot_hold_is_refused(leaf, name, value):
    with pytest.raises(DTypeError, match="full: expected"):
        ops.full(value, leaf(name).type)


def test_a_number_the_dtype_holds_exactly_is_taken(run):
    for name, value in (("int8", -128), ("uint8", 255), ("int32", 3.0), ("bool", 1), ("float32", True), ("int8", True)):
        got = run(lambda name=name, value=value: (ops.full(value, TensorType((2,), T.dtype_named(name))),))[0]
        assert got.tolist() == [value, value]


def test_two_numbers_are_refused():
    with pytest.raises(DTypeError, match="add: expected at least one tensor, got 1 and 2"):
        ops.add(1, 2)
    with pytest.raises(DTypeError, match="select: expected at least one tensor"):
        ops.select(ops.full(True, TensorType((), T.bool_)), 1, 2)


def test_what_changes_nothing_emits_nothing(leaf):
    x = leaf("float32", 2, 3)
    assert ops.cast(x, T.float32) is x
    assert ops.broadcast_to(x, (2, 3)) is x
    assert ops.broadcast_leading(x, (2, 3)) is x
    assert ops.reshape(x, (2, 3)) is x
    assert ops.transpose(x, (0, 1)) is x
    assert ops.reduce_sum(x, ()) is x
    assert ops.pad(x, (0, 0), (0, 0)) is x
    assert ops.flip(x, ()) is x
    assert ops.concat([x], 0) is x


@pytest.mark.parametrize(
    ("small", "large"),
    [((), (2, 3)), ((3,), (2, 3)), ((2, 1), (2, 3)), ((1, 1), (2, 3)), ((1, 3), (4, 2, 3)), ((1,), (0,)), ((2,), (2,))],
)  # fmt: skip
def test_broadcast_to_is_numpys(run, small, large):
    x = np.random.default_rng(0).normal(size=small)
    np.testing.assert_array_equal(run(lambda x: (ops.broadcast_to(x, large),), x)[0], np.broadcast_to(x, large))


def test_broadcast_leading_aligns_the_leading_dims(run):
    x = np.array([1.0, 2.0])
    np.testing.assert_array_equal(run(lambda x: (ops.broadcast_leading(x, (2, 3)),), x)[0], np.repeat(x[:, None], 3, 1))


def test_shapes_that_cannot_be_broadcast_are_refused(leaf):
    x = leaf("float32", 2, 3)
    with pytest.raises(ShapeError, match="at least rank 2"):
        ops.broadcast_to(x, (3,))
    with pytest.raises(ShapeError, match="broadcast: expected extents"):
        ops.broadcast_to(x, (2, 4))


def test_literal_round_trips_any_layout(run):
    array = np.arange(6, dtype=np.int16).reshape(2, 3).T
    np.testing.assert_array_equal(run(lambda: (ops.literal(array, T.int16),))[0], array)


def test_results_carry_the_callers_line(leaf):
    node = ops.add(leaf("float32"), 1).node
    assert node.loc.file == __file__
    assert node.loc.function == "test_results_carry_the_callers_line"


def test_share_captures_gives_both_graphs_all_captures(leaf):
    x, a, b = leaf("float32"), leaf("float32"), leaf("float32", 2)
    first = trace(lambda c: (ops.add(c, a),), [x.type])
    second = trace(lambda c: (ops.add(ops.mul(c, a), ops.reduce_sum(b, (0,))),), [x.type])
    third = trace(lambda c: (c,), [x.type])
    graphs, captures = share_captures([first, second, third])
    assert captures == (a, b)
    assert {g.input_types for g in graphs} == {(x.type, a.type, b.type)}
    assert [g.nodes for g in graphs] == [first[0].nodes, second[0].nodes, third[0].nodes]


def test_condition_and_body_may_capture_differently(run):
    def program(x, limit, step):
        return traced_while([x], lambda c: ops.lt(c, limit), lambda c: (ops.add(c, step),))

    assert run(program, 0.0, 10.0, 3.0)[0] == 12
