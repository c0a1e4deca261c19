"""Integers of a function being traced that Python would compute, as ints without limits, when the function is called
by itself: its arguments that were Python numbers, and what operators give of them.

In the graph they are int64, and what an operator gives of those wraps. Where one meets elements of a dtype, it must be
one that this dtype holds, as Python's must: `require` notes that, and whoever calls the function computes the number
as Python does (`in_python`) and checks it. Of a loop's values nobody can say before it runs what they will be: they
stand for no numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from loopgrad.graph.build import Scope
from loopgrad.graph.nodes import Node, Value, attrs_of_const
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.ranges import limits, outermost
from loopgrad.graph.types import DType, int64

Number = Callable[[Sequence[Any]], Any]

LARGEST: Final = 64
"""Operators in a number's expression, each counted where it is read; longer ones stand for no number."""


class Requirement(NamedTuple):
    """`number` of the arguments must be one of low, ..., high. `text` says which number that is."""

    number: Number
    low: int
    high: int
    text: str


def stands_for_number(value: Value) -> bool:
    """Whether Python would compute the value of arguments that are its numbers."""
    return bool(_arguments_of(value))


def known_number(value: Value) -> Any:
    """The number that Python would compute of constants alone; None where the value is more than that."""
    if (attrs := attrs_of_const(outermost(value))) is not None:
        return attrs["value"]
    return in_python(value, {})(()) if _arguments_of(value) == set() else None


def require(value: Value, low: int, high: int) -> None:
    """Note that a number must be one of low, ..., high, where Python computes it; and those of which it is computed
    int64's, since they are, too."""
    scopes = {argument.scope for argument in _arguments_of(value) or ()}
    if len(scopes) != 1:  # none, or of functions that are called one in the other
        return
    (scope,) = scopes
    assert isinstance(scope, Scope)
    value = outermost(value)
    first, last = scope.required.get(value, (low, high))
    scope.required[value] = max(first, low), min(last, high)
    if value.node is not None:
        for operand in value.node.operands:
            if outermost(operand).node is not None and operand.dtype is int64:
                require(operand, *limits(int64))


def requirements(scope: Scope, arguments: Sequence[Value]) -> tuple[Requirement, ...]:
    """What callers of the function that was traced in a scope have to check, of its arguments in their order."""
    places = {value: i for i, value in enumerate(arguments)}
    found = []
    for value, (low, high) in scope.required.items():
        node = value.node
        text = f"for argument {places[value]}" if node is None else f"where it is computed of arguments at {node.loc}"
        found.append(Requirement(in_python(value, places), low, high, text))
    return tuple(found)


def in_python(value: Value, places: Mapping[Value, int]) -> Number:
    """What computes a number that stands for one of Python's from the arguments at `places`."""
    value = outermost(value)
    if value in places:
        return _argument(places[value])
    if (attrs := attrs_of_const(value)) is not None:
        return _constant(attrs["value"])
    node = value.node
    assert node is not None, value
    operands = [in_python(v, places) for v in node.operands]
    if node.op == "cast":
        return _converted(node.results[0].dtype, operands[0])
    return _applied(PRIMITIVES[node.op].python, operands)


def _argument(place: int) -> Number:
    return lambda arguments: arguments[place]


def _constant(number: Any) -> Number:
    return lambda _: number


def _converted(dtype: DType, operand: Number) -> Number:
    kind = {"b": bool, "i": int, "f": float}[dtype.kind]
    return lambda arguments: kind(operand(arguments))


def _applied(function: Any, operands: Sequence[Number]) -> Number:
    if len(operands) == 1:
        (only,) = operands
        return lambda arguments: function(only(arguments))
    one, two = operands
    return lambda arguments: function(one(arguments), two(arguments))


def _arguments_of(value: Value) -> set[Value] | None:
    """The arguments of which Python would compute a number; None where it is none, or a long expression's."""
    found: set[Value] = set()
    waiting, left = [value], LARGEST
    while waiting:
        value = outermost(waiting.pop())
        left -= 1
        if left < 0 or value.shape:
            return None
        if attrs_of_const(value) is not None:
            continue
        if not isinstance(value.scope, Scope):
            return None
        if value in value.scope.numbers:
            found.add(value)
        elif value.node is None or not _of_python(value.node):
            return None
        else:
            waiting.extend(value.node.operands)
    return found


def _of_python(node: Node) -> bool:
    dtype = node.operands[0].dtype
    if node.op == "cast":
        return dtype.kind in "bif"
    if node.op == "div":
        return dtype.kind == "f"  # of ints it is another function than Python's
    return PRIMITIVES[node.op].python is not None and dtype.kind in "if"
