"""One primitive, one row: every table handles every primitive exactly once, or says why not."""

from __future__ import annotations

import pytest

from loopgrad.autodiff import rules
from loopgrad.codegen.lower import kernel
from loopgrad.graph import batching
from loopgrad.graph.primitives import FAMILIES, INFER, PRIMITIVES, REFERENCE

CONTROL = {"for", "while", "switch"}
STACK = {"stack_new", "push", "pop"}
LIBRARY_CALLS = {"sort", "argsort"}  # whole arrays, by the runtime's host calls

# How each mode handles a primitive: exactly one of these tables holds it.
REVERSE = {
    "partial derivatives": set(rules.PARTIALS),
    "vjp": set(rules.VJP),
    "accumulation": set(rules.ACCUMULATE) - set(rules.VJP),
    "loops": CONTROL,
    "not differentiable": set(rules.NONDIFFERENTIABLE),
}
FORWARD = {
    "partial derivatives": set(rules.PARTIALS),
    "jvp": set(rules.JVP),
    "loops": CONTROL,
    "not differentiable": set(rules.NONDIFFERENTIABLE),
}


def test_families_do_not_overlap():
    names = [op for rows in FAMILIES.values() for op in rows]
    assert len(names) == len(set(names)) == len(PRIMITIVES)


@pytest.mark.parametrize("op", sorted(PRIMITIVES))
def test_shape_rule_and_reference(op):
    assert op in INFER
    interpreted_elsewhere = CONTROL | STACK  # graph.interpret runs regions and stacks itself
    assert (op in REFERENCE) != (op in interpreted_elsewhere)


@pytest.mark.parametrize("op", sorted(PRIMITIVES))
@pytest.mark.parametrize("mode", [REVERSE, FORWARD], ids=["reverse", "forward"])
def test_one_derivative(op, mode):
    assert len([name for name, table in mode.items() if op in table]) == 1


@pytest.mark.parametrize("op", sorted(rules.NONDIFFERENTIABLE))
def test_reasons_are_given(op):
    assert len(rules.NONDIFFERENTIABLE[op]) > 5


@pytest.mark.parametrize("op", sorted(PRIMITIVES))
def test_one_batching_rule(op):
    assert op in batching.ROWS


@pytest.mark.parametrize("op", sorted(PRIMITIVES))
def test_one_lowering(op):
    """Control flow and stacks are lowered by the walk over regions, all others by a row or a library."""
    assert (op in kernel.RULES) != (op in CONTROL | STACK | LIBRARY_CALLS)


def test_no_table_holds_what_is_no_primitive():
    for table in (*REVERSE.values(), *FORWARD.values(), set(batching.ROWS), set(kernel.RULES)):
        assert table <= set(PRIMITIVES)
