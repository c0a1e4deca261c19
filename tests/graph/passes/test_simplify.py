"""Each rule fires on its pattern, keeps the meaning, and leaves alone what floats forbid."""

from __future__ import annotations

from itertools import pairwise

import pytest

from loopgrad.graph import ops
from loopgrad.graph.passes import dce, fold, simplify
from loopgrad.graph.types import bool_, float32, float64, int8, int32, int64, uint8, uint32
from tests.graph.passes import checking

checked, f, i, b, ops_of = checking.checked, checking.f, checking.i, checking.b, checking.ops_of


@pytest.mark.parametrize("seed", checking.SEEDS)
def test_random_programs(seed):
    checking.check_random(simplify.run, seed)


def simplified(graph):
    return dce.run(simplify.run(fold.run(graph)))


def result(function, *types):
    return ops_of(checked(simplified, function, *types))


@pytest.mark.parametrize(
    "identity",
    [
        lambda x: ops.add(x, -0.0),
        lambda x: ops.add(ops.full(-0.0, f(4)), x),
        lambda x: ops.sub(x, 0.0),
        lambda x: ops.mul(x, 1.0),
        lambda x: ops.div(x, 1.0),
        lambda x: ops.neg(ops.neg(x)),
        lambda x: ops.max(x, x),
        lambda x: ops.min(x, x),
        lambda x: ops.pow(x, 1.0),
        lambda x: ops.alias(ops.stop_gradient(x)),
        lambda x: ops.select(ops.full(True, b(4)), x, ops.sin(x)),
        lambda x: ops.select(ops.full(False, b(4)), ops.sin(x), x),
        lambda x: ops.select(ops.lt(x, 0.0), x, x),
        lambda x: ops.mul(ops.mul(x, -1.0), -1.0),
        lambda x: ops.broadcast(x, (4,), (0,)),
        lambda x: ops.reshape(ops.reshape(x, (2, 2)), (4,)),
        lambda x: ops.slice(x, (0,), (4,)),
        lambda x: ops.slice(x, (0,), (None,)),
        lambda x: ops.flip(ops.flip(x, (0,)), (0,)),
        lambda x: ops.reshape(ops.reduce_max(ops.reshape(x, (4, 1)), (1,)), (4,)),
    ],
)
def test_identities(identity):
    assert result(lambda x: [identity(x)], f(4)) == []


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: ops.sub(ops.full(0, i(4)), x), ["neg"]),
        (lambda x: ops.add(ops.invert(x), 1), ["neg"]),
        (lambda x: ops.add(ops.full(1, i(4)), ops.invert(x)), ["neg"]),
        (lambda x: ops.add(x, 0), []),
        (lambda x: ops.sub(x, x), ["const"]),
        (lambda x: ops.mul(x, 0), ["const"]),
        (lambda x: ops.mul(x, 1), []),
        (lambda x: ops.pow(x, 3), ["mul", "mul"]),
        (lambda x: ops.cast(ops.cast(x, float64), int64), ["cast", "cast"]),
        (lambda x: ops.invert(ops.lt(x, 2)), ["const", "ge"]),
        (lambda x: ops.eq(x, x), ["const"]),
    ],
)
def test_integers(function, expected):
    assert result(lambda x: [function(x)], i(4)) == expected


@pytest.mark.parametrize(
    "kept",
    [
        lambda x: ops.add(x, 0.0),
        lambda x: ops.sub(x, -0.0),
        lambda x: ops.mul(x, 0.0),
        lambda x: ops.sub(x, x),
        lambda x: ops.div(x, 3.0),
        lambda x: ops.eq(x, x),
        lambda x: ops.pow(x, 2.5),
        lambda x: ops.pow(x, 3.0),  # a product of three is rounded twice
        lambda x: ops.pow(x, -2.0),
    ],
)
def test_what_floats_forbid(kept):
    before = checking.traced(lambda x: [kept(x)], f(4))
    assert len(simplified(before).nodes) == len(before.nodes)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, y: ops.add(x, ops.neg(y)), ["sub"]),
        (lambda x, y: ops.add(ops.neg(x), y), ["sub"]),
        (lambda x, y: ops.sub(x, ops.neg(y)), ["add"]),
        (lambda x, _y: ops.abs(ops.neg(x)), ["abs"]),
        (lambda x, _y: ops.abs(ops.abs(x)), ["abs"]),
        (lambda x, _y: ops.div(x, 4.0), ["const", "mul"]),
        (lambda x, _y: ops.div(x, -0.125), ["const", "mul"]),
        (lambda x, _y: ops.pow(x, 2.0), ["mul"]),
        (lambda x, _y: ops.pow(x, -1.0), ["const", "div"]),
        (lambda x, y: ops.select(ops.invert(ops.lt(x, y)), x, y), ["lt", "select"]),
        (lambda x, y: ops.invert(ops.eq(x, y)), ["ne"]),
        (lambda x, y: ops.invert(ops.lt(x, y)), ["lt", "invert"]),
        (lambda x, y: ops.and_(ops.lt(x, y), ops.full(True, b(4))), ["lt"]),
        (lambda x, y: ops.or_(ops.lt(x, y), ops.full(True, b(4))), ["const"]),
        (lambda x, y: ops.cast(ops.cast(ops.lt(x, y), int64), bool_), ["lt"]),
        (lambda x, y: ops.select(ops.lt(x, y), ops.full(True, b(4)), ops.full(False, b(4))), ["lt"]),
    ],
)
def test_cheaper_forms(function, expected):
    assert result(lambda x, y: [function(x, y)], f(4), f(4)) == expected


def test_nested_selects_of_one_predicate():
    def program(x, y, z):
        pred = ops.lt(x, y)
        return [ops.select(pred, ops.select(pred, x, y), z), ops.select(pred, x, ops.select(pred, y, z))]

    after = checked(simplified, program, f(4), f(4), f(4))
    assert ops_of(after) == ["lt", "select", "select"]


def test_the_root_of_a_power_keeps_its_special_cases():
    before = checking.traced(lambda x: [ops.pow(x, 0.5)], f(6))
    after = simplified(before)
    assert "pow" not in ops_of(after)
    inf = float("inf")
    arrays = [checking.np.array([4.0, 0.0, -0.0, inf, -inf, -1.0])]
    with checking.np.errstate(invalid="ignore"):
        checking.same_meaning(before, after, arrays)
        assert not checking.np.signbit(checking.interpret(after, arrays)[0][2])


def test_division_by_tiny_powers_of_two_stays():
    assert "div" in result(lambda x: [ops.div(x, 2.0**-1040)], f(4))


@pytest.mark.parametrize(
    ("through", "target", "kept"),
    [(float64, int64, 1), (int64, float64, 1), (int32, int32, 0), (uint8, int32, 2), (float32, float64, 2),
     (float64, int8, 2), (float64, uint32, 2), (int64, int8, 1), (float64, float32, 1)],
)  # fmt: skip
def test_cast_chains(through, target, kept):
    """A cast through a type that holds every value of the source is redundant, unless the float between saturates
    where the integer wraps."""
    source = checking.TensorType((4,), int32)
    before = checking.traced(lambda x: [ops.cast(ops.cast(x, through), target)], source)
    after = simplified(before)
    assert len(after.nodes) == kept
    checking.same_meaning(before, after, [checking.np.array([1, -5, 2**31 - 1, -(2**31)], "int32")])


def test_movement_is_composed():
    def program(x):
        wide = ops.broadcast(ops.broadcast(x, (4, 3), (0,)), (4, 3, 2), (0, 1))
        return [ops.transpose(ops.transpose(wide, (1, 2, 0)), (2, 0, 1)), ops.reshape(ops.reshape(x, (2, 2)), (4, 1))]

    assert result(program, f(4)) == ["broadcast", "reshape"]


def test_slices_behind_each_other_are_one():
    def cut(v, *ends):
        return [ops.slice(v, (0, start), (2, stop)) for start, stop in pairwise(ends)]

    assert result(lambda v: [ops.concat(cut(v, 0, 1, 4, 9), 1)], f(2, 9)) == []
    assert result(lambda v: [ops.concat(cut(v, 1, 4, 6), 1)], f(2, 9)) == ["slice"]


@pytest.mark.parametrize(
    "pieces",
    [
        lambda v: [ops.slice(v, (0, 0), (2, 4)), ops.slice(v, (0, 5), (2, 9))],
        lambda v: [ops.slice(v, (0, 4), (2, 9)), ops.slice(v, (0, 0), (2, 4))],
        lambda v: [ops.slice(v, (0, 0), (1, 4)), ops.slice(v, (1, 4), (2, 9))],
        lambda v: [ops.slice(v, (0, 0), (2, 4)), ops.slice(ops.neg(v), (0, 4), (2, 9))],
        lambda v: [ops.slice(v, (0, 0), (2, 4)), ops.slice(v, (0, 4), (2, 9), (1, 2))],
    ],
)
def test_other_slices_are_joined(pieces):
    assert "concat" in result(lambda v: [ops.concat(pieces(v), 1)], f(2, 9))


def test_elementwise_work_moves_in_front_of_broadcasts():
    def program(x, y):
        wide = [ops.broadcast(v, (4, 3), (0,)) for v in (x, y)]
        return [ops.add(ops.mul(wide[0], wide[1]), 2.0)]

    after = checked(simplified, program, f(4), f(4))
    assert after.nodes[-1].op == "broadcast"
    assert {n.results[0].shape for n in after.nodes[:-1]} == {(4,)}


@pytest.mark.parametrize("axis", [0, 2])
def test_the_largest_of_what_is_stacked_is_that_of_two_and_two(axis):
    def stacked(*xs):
        shape = (1, 3, 2) if axis == 0 else (3, 2, 1)
        return ops.concat([ops.reshape(x, shape) for x in xs], axis)

    def program(*xs):
        return [ops.reduce_max(stacked(*xs), (axis,)), ops.reduce_min(stacked(*xs[:2]), (axis,))]

    after = checked(lambda graph: simplified(simplified(graph)), program, *[f(3, 2)] * 5)
    assert sorted(ops_of(after)) == ["max"] * 4 + ["min"]


def test_what_is_joined_in_longer_pieces_stays_a_reduction():
    def program(x, y):
        joined = ops.concat([x, y], 0)
        return [ops.reduce_max(joined, (0,)), ops.reduce_max(joined, (0, 1))]

    assert result(program, f(2, 3), f(1, 3)) == ["concat", "reduce_max", "reduce_max"]
