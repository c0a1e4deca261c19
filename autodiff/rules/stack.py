"""Derivatives of stacks: the cotangent of a stack is a stack of cotangents, its tangent a stack of tangents.

    push (s, x) -> s1      reverse: (s_adj, x_adj) = pop(s1_adj)
    pop  s -> (s1, x)      reverse: s_adj = push(s1_adj, x_adj)

so what the forward program pushes first is the last to get its cotangent, in both directions.
"""

from __future__ import annotations

from typing import Final

from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import ops
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import StackType


def _empty(stack: Value, name: str) -> Value:
    assert isinstance(stack.type, StackType)
    return ops.stack_new(stack.type.element, None, name)


def _push_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,) = cotangents
    assert ct is not None
    return ops.pop(ct)


def _pop_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    rest, x = cotangents
    stack = _empty(node.operands[0], "cotangents") if rest is None else rest
    return (ops.push(stack, ops.zeros_like(node.results[1]) if x is None else x),)


def _push_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    stack, x = tangents
    stack = _empty(node.operands[0], "tangents") if stack is None else stack
    return (ops.push(stack, ops.zeros_like(node.operands[1]) if x is None else x),)


def _pop_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (stack,) = tangents
    assert stack is not None
    return ops.pop(stack)


VJP: Final[dict[str, Rule]] = {"push": _push_vjp, "pop": _pop_vjp}
JVP: Final[dict[str, Rule]] = {"push": _push_jvp, "pop": _pop_jvp}
