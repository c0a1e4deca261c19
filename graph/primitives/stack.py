"""Stacks of tensors, threaded through the graph as values; each stack value is consumed once.

stack_new  () or (depth: int64 scalar, how many pushes will be live at most); attrs element, name
push       (stack, value) -> stack
pop        (stack,) -> (stack, value)
"""

from __future__ import annotations

from typing import Final

from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives.primitive import Attrs, Kind, Primitive, Types, dtype_error, table, types_text
from loopgrad.graph.types import StackType, TensorType, int64

_DEPTH: Final = TensorType((), int64)


def _stack_type(op: str, value: Value) -> StackType:
    if not isinstance(value.type, StackType):
        raise dtype_error(op, "a stack", value.type, "make one with stack_new")
    return value.type


def _infer_new(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    if len(operands) > 1 or any(v.type != _DEPTH for v in operands):
        raise dtype_error("stack_new", f"no operand or one depth of type {_DEPTH}", types_text(operands), "cast it")
    return (StackType(attrs["element"]),)


def _infer_push(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    stack, value = operands
    type = _stack_type("push", stack)
    if value.type != type.element:
        raise dtype_error("push", f"a value of type {type.element}", value.type, "cast or reshape it")
    return (type,)


def _infer_pop(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = _stack_type("pop", operands[0])
    return (type, type.element)


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="stack_new", public=None, kind=Kind.STACK, infer=_infer_new,
        not_differentiable="holds nothing yet", cost=0.0,
    ),
    Primitive(name="push", public=None, kind=Kind.STACK, infer=_infer_push, linear=True, updates=True),
    Primitive(name="pop", public=None, kind=Kind.STACK, infer=_infer_pop, linear=True, updates=True, heavy=True),
)  # fmt: skip
