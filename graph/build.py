"""Building graphs: the ambient scope, `emit`, and `trace`.

Nodes simply point at their operands: a DAG that `graph.extract` cuts into a Graph on demand.
Inside `trace` a `Scope` marks which values belong to the function being traced; an operand from
an enclosing scope is captured: it becomes an extra input of the graph under construction.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from loopgrad.graph.ambient import AMBIENT
from loopgrad.graph.errors import LeakedValueError, NestingError, explained
from loopgrad.graph.expressions import OPAQUE, Expression, beside, expression_of, number_word, of_two
from loopgrad.graph.extract import extract
from loopgrad.graph.location import at, located, user_location
from loopgrad.graph.nodes import NO_ATTRS, Graph, Location, Node, Noted, Value
from loopgrad.graph.primitives import INFER
from loopgrad.graph.types import StackType, TensorType

__all__ = [
    "LeakedValueError", "Scope", "at", "close", "copy_node", "current_scope", "emit", "emit_alike", "emit_beside",
    "emit_element", "enter", "inline", "trace", "unbound", "user_location",
]  # fmt: skip

DEEPEST: Final = 1000  # functions traced inside each other
FRAMES: Final = 40  # of Python's, for one level of nesting, in tracing or in a pass
STRIDE: Final = 16
_new: Final = object.__new__
MOST_TYPES: Final = 1024  # of vectors without an expression whose elements' types are remembered
ELEMENT: Final = "element"  # the key of what `emit_element` gives, whatever the place
NO_AXES: Final = {"shape": ()}
ONE: Final = (1,)


class Scope:
    """A graph under construction."""

    __slots__ = ("captures", "depth", "drawn", "inputs", "lifted", "numbers", "parent", "ranges", "required")

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.inputs: list[Value] = []
        self.captures: dict[Value, Value] = {}  # any enclosing value -> its stand-in here
        self.lifted: dict[Value, Value] = {}  # stand-in here -> the value as the parent sees it
        self.ranges: dict[Value, tuple[int, int]] = {}  # between what a loop's index lies (graph.ranges)
        self.drawn: set[Value] = set()  # counters of generators after the latest draws, which must leave the function
        self.numbers: set[Value] = set()  # the inputs that stand for Python numbers (graph.python_numbers)
        self.required: dict[Value, tuple[int, int]] = {}  # between what those must lie, which a caller checks

    def add_input(self, type: TensorType | StackType) -> Value:
        value = Value(type, scope=self)
        self.inputs.append(value)
        return value

    def resolve(self, value: Value) -> Value:
        """`value` as seen from this scope; captures it when it belongs to an enclosing one."""
        if value.scope is self:
            return value
        known = self.captures.get(value)
        if known is not None:
            return known
        if self.parent is not None:
            outer = self.parent.resolve(value)
        elif value.scope is not None:
            raise LeakedValueError(leak_message(value))
        else:
            outer = value
        inner = self.captures.get(outer)
        if inner is None:
            inner = Value(value.type, scope=self)
            self.captures[outer] = inner
            self.lifted[inner] = outer
        self.captures[value] = inner
        return inner


def current_scope() -> Scope | None:
    """The scope that `emit` adds to; None at the top level. Each thread has its own."""
    scope: Scope | None = AMBIENT.scope
    return scope


@contextmanager
def enter(scope: Scope | None) -> Iterator[Scope | None]:
    previous = AMBIENT.scope
    AMBIENT.belong(scope, AMBIENT.loc)
    try:
        yield scope
    finally:
        AMBIENT.belong(previous, AMBIENT.loc)


def leak_message(value: Value) -> str:
    where = f" made at {value.node.loc}" if value.node is not None and value.node.loc else ""
    text = (
        f"expected a value of this function or of an enclosing one, got {value.type}{where} that was made while "
        "tracing another function; return it from that function (or carry it through the loop) instead of storing it"
    )
    return located(text, user_location())


def emit(
    op: str,
    operands: Sequence[Value],
    attrs: Mapping[str, Any] = NO_ATTRS,
    regions: tuple[Graph, ...] = (),
    replaces: Node | None = None,
) -> tuple[Value, ...]:
    """Append one node to the current scope and return its results.

    Raises ValueError or TypeError, with the user's line, where the primitive's rule refuses the
    operand types.
    """
    scope = AMBIENT.scope
    if scope is not None:
        operands = tuple([v if v.scope is scope else scope.resolve(v) for v in operands])
    else:
        operands = tuple(operands)
        for v in operands:
            if v.scope is not None:
                raise LeakedValueError(leak_message(v))
    types = INFER[op](operands, attrs, regions)
    if scope is None and len(types) == 1 and not regions and replaces is None:
        return (Noted(types[0], op, operands, attrs, user_location(1)),)
    return Node(op, operands, types, attrs, regions, user_location(1), replaces, scope).results


def emit_alike(op: str, a: Value, b: Value, type: TensorType | None) -> Value:
    """The result of a binary operation on values of one type: as `emit` gives it, in half the time. The caller is a
    method that the user's line calls, and says the type where that is the operands'."""
    scope = AMBIENT.scope
    if scope is not None or a.scope is not None or b.scope is not None:
        if type is None or a.scope is not scope or b.scope is not scope:
            return emit(op, (a, b))[0]
        return Node(op, (a, b), (type,), NO_ATTRS, (), user_location(2), None, scope).results[0]
    one, two = a.expression or expression_of(a), b.expression or expression_of(b)
    found = one.further.get((op, two))
    if found is None:
        type = type or _inferred(op, (a, b))
        found = of_two(one, op, two, type)
    return _noted([op, (a, b), NO_ATTRS, user_location(2)], type or found.type, found)


def emit_beside(
    op: str, value: Value, number: float, number_first: bool = False, type: TensorType | None = None
) -> Value:
    """The same of a value of floats and a constant of its type, as two calls of `emit` give it: operators on a tensor
    and a Python number are the commonest lines there are."""
    scope, number = AMBIENT.scope, float(number)
    if scope is not None or value.scope is not None:
        return _emit_constant_beside(op, value, number, number_first)
    one = value.expression or expression_of(value)
    word = number_word(number)
    found = one.further.get((word, op) if number_first else (op, word))
    if found is None:
        type = type or _inferred(op, (value, value))
        found = beside(one, op, word, number_first, type)
    operands = (number, value) if number_first else (value, number)
    return _noted([op, operands, NO_ATTRS, user_location(2)], type or found.type, found)


def emit_element(vector: Value, place: int) -> Value:
    """The element at a place of a vector of more than one: a slice and a reshape, as two calls of `emit` give them."""
    top = AMBIENT.scope is None and vector.scope is None
    base: Expression | None = (vector.expression or expression_of(vector)) if top else None
    found = None if base is None else base.further.get(ELEMENT)
    if found is None:
        attrs = {"start": (place,), "stop": (place + 1,), "step": ONE}
        types = OPAQUE.further.get((ELEMENT, id(vector.type))) if base is OPAQUE else None
        if types is not None:  # of a loop that goes on for long
            loc = user_location(1)
            sliced = _noted(["slice", (vector,), attrs, loc], types[1], OPAQUE)
            return _noted(["reshape", (sliced,), NO_AXES, loc], types[2], OPAQUE)
        (inner,) = emit("slice", (vector,), attrs)
        result = emit("reshape", (inner,), NO_AXES)[0]
        if base is not None and (made := expression_of(result)) is not OPAQUE:
            base.further[ELEMENT] = made
        elif base is not None and len(OPAQUE.further) < MOST_TYPES:
            OPAQUE.further[ELEMENT, id(vector.type)] = vector.type, inner.type, result.type
        return result
    return element_again(vector, place, found, user_location(1))


def note_places(value: Value, count: int, result: Value) -> None:
    """Remember that `result` is what a value of the top level has at so many places, one along each of the first axes,
    where it was noted as a slice and a reshape: `places_again` notes others."""
    sliced = result.note[1][0] if type(result) is Noted and result.note[0] == "reshape" else None
    if type(sliced) is Noted and sliced.note[0] == "slice" and sliced.note[1][0] is value:
        made = expression_of(result)
        if made is not OPAQUE:
            expression_of(value).further[ELEMENT, count] = made


def places_again(value: Value, places: tuple[int, ...], found: Expression, loc: Location | None) -> Noted:
    """What `value` has at other places, as two calls of `emit` give it."""
    inner: Expression = found.operands[0]
    kept: tuple[int, ...] = found.type.shape
    attrs = {
        "start": (*places, *(0,) * len(kept)),
        "stop": (*[i + 1 for i in places], *kept),
        "step": ONE * (len(places) + len(kept)),
    }
    sliced = _noted(["slice", (value,), attrs, loc], inner.type, inner)
    return _noted(["reshape", (sliced,), {"shape": kept} if kept else NO_AXES, loc], found.type, found)


def emit_each(op: str, values: Sequence[Value], attrs: Sequence[Mapping[str, Any]]) -> list[Value]:
    """The results of an operation on each of many values: where those are alike and have the same attributes, `emit`
    is called once."""
    if AMBIENT.scope is not None:
        return [emit(op, (v,), a)[0] for v, a in zip(values, attrs, strict=True)]
    loc = user_location(1)
    known: dict[tuple[Expression, int], Expression] = {}
    results: list[Value] = []
    for v, each in zip(values, attrs, strict=True):
        key = v.expression, id(each)
        found = known.get(key)
        if found is None:
            result = emit(op, (v,), each)[0]
            if v.expression is not None and (made := expression_of(result)) is not OPAQUE:
                known[key] = made
            results.append(result)
        else:
            results.append(_noted([op, (v,), each, loc], found.type, found))
    return results


def element_again(vector: Value, place: int, found: Expression, loc: Location | None) -> Noted:
    """The same at the top level where the vector's expression knows that of its elements."""
    inner: Expression = found.operands[0]
    attrs = {"start": (place,), "stop": (place + 1,), "step": ONE}
    sliced = _noted(["slice", (vector,), attrs, loc], inner.type, inner)
    return _noted(["reshape", (sliced,), NO_AXES, loc], found.type, found)


def _inferred(op: str, operands: tuple[Value, ...]) -> TensorType:
    (type,) = INFER[op](operands, NO_ATTRS, ())
    assert isinstance(type, TensorType), type
    return type


def _emit_constant_beside(op: str, value: Value, number: float, number_first: bool) -> Value:
    scope, loc = AMBIENT.scope, user_location(3)
    if scope is None:
        raise LeakedValueError(leak_message(value))
    value = scope.resolve(value)
    attrs = {"value": number, "type": value.type}
    constant = Node("const", (), (value.type,), attrs, (), loc, None, scope).results[0]
    operands = (constant, value) if number_first else (value, constant)
    return Node(op, operands, INFER[op](operands, NO_ATTRS, ()), NO_ATTRS, (), loc, None, scope).results[0]


def _noted(note: list[Any], type: TensorType, expression: Expression) -> Noted:
    """What is noted, of a known expression: the operation, its operands, its attributes, the line."""
    value: Noted = _new(Noted)
    value.type = type
    value.index = 0
    value.known = value.scope = value.holder = None
    value.note = note
    value.expression = expression
    return value


def trace(
    function: Callable[..., Sequence[Value]], input_types: Sequence[TensorType | StackType]
) -> tuple[Graph, tuple[Value, ...]]:
    """Call `function` on fresh block arguments and return the graph it builds and its captures.

    The graph's inputs are the arguments followed by one input per captured outer value; the second
    result holds those outer values, as the scope that was current before sees them. NestingError where functions
    are traced inside each other too deeply.
    """
    parent = AMBIENT.scope
    scope = Scope(parent)
    if scope.depth and scope.depth % STRIDE == 0:
        _make_room(scope.depth)
    arguments = [scope.add_input(t) for t in input_types]
    try:
        with enter(scope):
            outputs = tuple([scope.resolve(v) for v in function(*arguments)])
    except RecursionError as error:  # Python 3.12 has a limit that can't be raised, for calls by way of C
        if isinstance(error, NestingError) or scope.depth < STRIDE:
            raise
        raise _too_deep(scope.depth - 1, scope.depth) from error
    return close(scope, outputs)


def _make_room(depth: int) -> None:
    """Let Python recurse as deep as regions of this depth need: the passes walk them recursively."""
    if depth > DEEPEST:
        raise _too_deep(DEEPEST, depth)
    needed = FRAMES * (depth + 2 * STRIDE)
    if sys.getrecursionlimit() < needed:
        sys.setrecursionlimit(needed)


def _too_deep(most: int, depth: int) -> NestingError:
    fix = "use one loop, or a switch with many branches, instead of nesting them by recursion"
    return NestingError(explained("control flow", f"a nesting depth of at most {most}", f"{depth} and more", fix))


def close(scope: Scope, outputs: tuple[Value, ...]) -> tuple[Graph, tuple[Value, ...]]:
    """Finish a scope: only what `outputs` need stays."""
    graph = extract(outputs, tuple(scope.inputs))
    captures = graph.inputs[len(scope.inputs) :]
    return graph, tuple([scope.lifted[v] for v in captures])


def inline(graph: Graph, arguments: Sequence[Value], replacing: bool = False) -> tuple[Value, ...]:
    """Copy the nodes of `graph` into the current scope, with `arguments` for its inputs. Where the arguments
    equal the inputs, the copies may stand for the originals (`replacing`), so that only one of the two runs."""
    assert len(arguments) == len(graph.inputs), (len(arguments), len(graph.inputs))
    env: dict[Value, Value] = dict(zip(graph.inputs, arguments, strict=True))
    scope = AMBIENT.scope
    if scope is not None:
        env = {k: scope.resolve(v) for k, v in env.items()}
    for node in graph.nodes:
        copy_node(node, env, scope, node if replacing else None)
    return tuple([env[v] for v in graph.outputs])


def copy_node(node: Node, env: dict[Value, Value], scope: Scope | None, replaces: Node | None = None) -> Node:
    """A copy of `node` with operands taken from `env`; its results are entered into `env`."""
    operands = tuple([env[v] for v in node.operands])
    types = tuple([r.type for r in node.results])
    copy = Node(node.op, operands, types, node.attrs, node.regions, node.loc, replaces, scope)
    env.update(zip(node.results, copy.results, strict=True))
    return copy


def unbound(graph: Graph) -> Graph:
    """The same graph of fresh arguments: what keeps it doesn't keep the leaves that were its inputs."""
    copy, _ = trace(lambda *values: inline(graph, values), [v.type for v in graph.inputs])
    return copy
