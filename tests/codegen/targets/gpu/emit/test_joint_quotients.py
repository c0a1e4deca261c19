"""Which quotients share a rare way, what else goes there, and that nothing comes before what it needs."""

from __future__ import annotations

from itertools import chain

import pytest

from loopgrad.codegen.kernel.nodes import KValue, walk
from loopgrad.codegen.targets.gpu.emit.joint_quotients import MOST_JOINED, JointQuotients, with_joint_quotients
from loopgrad.graph.types import bool_, float32, float64
from tests.codegen.kernel.random_kernels import random_kernel
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.guarded_quotients import guarded_quotients


def flat(steps):
    return list(chain.from_iterable(s.ops if isinstance(s, JointQuotients) else (s,) for s in steps))


def groups(ops):
    return [step for step in with_joint_quotients(ops, ["f32"]) if isinstance(step, JointQuotients)]


def operands(count, dtype=float32):
    return Build(1), [KValue(dtype) for _ in range(count)]


def test_guards_of_a_cotangent_lie_in_the_rare_way():
    (group,) = groups(guarded_quotients().ops)
    assert len(group.quotients) == 2
    assert len(group.guards) == 2
    assert sorted(op.opcode for op in group.ops) == sorted(
        ["div", "div", "mul", "neg", "is_nan", "is_nan", "and", "and", "select", "select"]
    )


def test_guards_stay_where_numerators_are_often_zero():
    """A derivative of what was cut off is 0 there, and as likely as not in some lane of a warp."""
    b, (c, m, y) = operands(3)
    zero = b.const(0.0, float32)
    cut = b.one("mul", (b.one("select", (b.one("gt", (m, zero), bool_), c, zero), float32), m))
    quotient = b.one("div", (cut, y))
    spoiled = b.one("and", (b.one("eq", (cut, zero), bool_), b.one("is_nan", (quotient,), bool_)))
    b.one("select", (spoiled, zero, quotient), float32)
    (group,) = groups(b.ops)
    assert group.zeros
    assert not group.guards
    assert not groups(guarded_quotients().ops)[0].zeros


def test_a_guard_for_another_number_stays_where_it_is():
    b, (c, y, other) = operands(3)
    zero = b.const(0.0, float32)
    quotient = b.one("div", (c, y))
    spoiled = b.one("and", (b.one("eq", (other, zero), bool_), b.one("is_nan", (quotient,), bool_)))
    b.one("select", (spoiled, zero, quotient), float32)
    assert groups(b.ops) == []


def test_a_select_that_does_not_need_the_zero_stays_where_it_is():
    b, (c, y) = operands(2)
    zero = b.const(0.0, float32)
    quotient = b.one("div", (c, y))
    either = b.one("or", (b.one("eq", (c, zero), bool_), b.one("is_nan", (quotient,), bool_)))
    b.one("select", (either, zero, quotient), float32)
    assert groups(b.ops) == []


def test_quotients_that_need_each_other_are_not_joined():
    b, (x, y) = operands(2)
    first = b.one("div", (x, y))
    b.one("div", (y, b.one("add", (first, x))))
    assert groups(b.ops) == []


def test_those_of_other_types_are_not_joined():
    b, (x, y) = operands(2, float64)
    b.one("div", (x, y)), b.one("div", (y, x))
    assert groups(b.ops) == []


def test_an_effect_between_them_keeps_its_place():
    b, (x, y) = operands(2)
    b.op("push", (b.one("div", (x, y)),), (), stack=0)
    b.one("div", (y, x))
    assert groups(b.ops) == []
    assert list(with_joint_quotients(b.ops, ["f32"])) == b.ops


def test_only_a_few_are_joined():
    b, (x, y) = operands(2)
    for _ in range(MOST_JOINED + 2):
        b.one("div", (x, y))
    assert [len(group.quotients) for group in groups(b.ops)] == [MOST_JOINED, 2]


def test_pops_stay_in_their_order():
    b, (x,) = operands(1)
    b.one("div", (x, b.one("pop", (), float32, stack=0)))
    unneeded = b.one("pop", (), float32, stack=0)
    b.one("sin", (unneeded,))
    b.one("div", (x, b.one("pop", (), float32, stack=0)))
    assert len(groups(b.ops)) == 1
    pops = [op for op in b.ops if op.opcode == "pop"]
    assert [op for op in flat(with_joint_quotients(b.ops, ["f32"])) if op.opcode == "pop"] == pops


@pytest.mark.parametrize("seed", range(20))
def test_every_operation_comes_once_and_after_what_it_needs(seed):
    kernel, *_ = random_kernel(seed)
    for block in (kernel.body, *(inner for op in walk(kernel.body) for inner in op.blocks)):
        ops = flat(with_joint_quotients(block.ops, ["f32"]))
        assert sorted(map(id, ops)) == sorted(map(id, block.ops))
        made = {v for op in block.ops for v in op.results}
        for op in ops:
            assert not made.intersection(op.operands)
            made.difference_update(op.results)
        effects = [op for op in block.ops if not op.results or op.blocks]
        assert [op for op in ops if not op.results or op.blocks] == effects
