"""A long list of what was noted one by one, alike, as a graph of arrays.

Enters: the note of a concat of many pieces, each the same operations on slices of the same leaves and on numbers.
Leaves: a Graph of few nodes that gives the same elements, as `graph.passes.alike` makes of nodes; here the pieces need
none, which takes a fifth of the time.

    [2.0 * x[i] + 1.0 for i in range(900)], stacked   ->   2.0 * x[:900] + 1.0, with an array in place of each number

What lies between a piece and its leaves must be read once: who else refers to it wants its elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from sys import getrefcount
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.graph.nodes import NO_ATTRS, CallAttributes, Graph, Leaf, Noted, Value, attrs_of_const
from loopgrad.graph.passes.alike import DEEPEST, MANY, concatenated, may_be_batched
from loopgrad.graph.passes.windows import Window, can_be_joined, joined_windows
from loopgrad.graph.primitives import KEEPING_SPLATS, PRIMITIVES
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.structure import LeafOf
from loopgrad.graph.types import DType, TensorType, float64, scalar_text

_INTEGERS: Final = frozenset({int})


class NotedList(NamedTuple):
    """`given`: the inputs, leaves and arrays of numbers, so that others make no other graph. `members`: the values that
    pieces are made of, and that a list of tensors may hold; their elements follow each other in the output."""

    graph: Graph
    given: list[Leaf | np.ndarray[Any, Any]]
    members: list[Noted]


class _NotAlike(Exception):
    """The pieces are no array."""


class _OfArrays(GraphBuilder):
    """Builds a graph whose literals are inputs. `given`: these, and leaves, by the inputs that they are."""

    __slots__ = ("given",)

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[Value, Leaf | np.ndarray[Any, Any]] = {}

    def emit(
        self, op: str, operands: Sequence[Value], attrs: Mapping[str, Any] = NO_ATTRS, regions: tuple[Graph, ...] = ()
    ) -> tuple[Value, ...]:
        if op != "literal":
            return super().emit(op, operands, attrs, regions)
        value = Value(attrs["type"])
        self.given[value] = np.frombuffer(attrs["data"], value.dtype.np).reshape(value.shape)
        return (value,)


ElementsOf = Callable[[Leaf], "np.ndarray[Any, Any] | None"]
"""The elements of a leaf, where they are few and in the host's memory."""


def _none_of(leaf: Leaf) -> None:
    return None


def noted_list(output: Noted, leaf_of: LeafOf, elements_of: ElementsOf = _none_of) -> NotedList | None:
    """See above; None where the value isn't such a list. `leaf_of` gives the leaf with the elements of what all pieces
    read, None where they aren't to be had; leaves that pieces have of their own are joined by `elements_of`."""
    op, pieces, attrs, loc = output.note[:4]
    if op != "concat" or len(pieces) < MANY or attrs["axis"] != 0 or set(map(type, pieces)) != {Noted}:
        return None
    joiner = _ListJoiner(leaf_of, elements_of)
    joiner.builder.loc = loc
    reshaped = {p.note[0] for p in pieces} == {"reshape"} and {*map(getrefcount, pieces)} == {READ_ONCE - 1}
    members: list[Noted] = [p.note[1][0] for p in pieces] if reshaped else list(pieces)
    if set(map(type, members)) != {Noted} or len({v.shape for v in pieces}) > 1 or len({v.shape for v in members}) > 1:
        return None
    try:
        stacked = joiner.rows(members)
    except _NotAlike:
        return None
    b = joiner.builder
    result = concatenated(stacked, 0, output.shape, b)
    return NotedList(Graph(tuple(b.given), tuple(b.nodes), (result,)), [*b.given.values()], members)


def noted_rows(members: list[Noted], leaf_of: LeafOf, elements_of: ElementsOf = _none_of) -> NotedList | None:
    """The same of values of one type, which become rows; None where they aren't alike, or are no array."""
    joiner = _ListJoiner(leaf_of, elements_of)
    joiner.builder.loc = members[0].note[3]
    try:
        rows = joiner.rows(members)
    except _NotAlike:
        return None
    b = joiner.builder
    return NotedList(Graph(tuple(b.given), tuple(b.nodes), (rows,)), [*b.given.values()], members)


class _ListJoiner:
    """`inputs`: of the graph that `builder` builds, by the leaves that they are. `leaf_of`, `elements_of`: see
    noted_list."""

    def __init__(self, leaf_of: LeafOf, elements_of: ElementsOf) -> None:
        self.leaf_of = leaf_of
        self.elements_of = elements_of
        self.builder = _OfArrays()
        self.inputs: dict[Leaf, Value] = {}

    def rows(self, values: Sequence[Noted], depth: int = 0, exact: bool = True) -> Value:
        """Values that are noted alike, with the axis of the pieces in front. `exact`: what reads them is, so that it
        doesn't depend on what is known of numbers."""
        notes = [v.note for v in values]
        op, operands, attrs = notes[0][:3]
        if {note[0] for note in notes} != {op} or len({len(note[1]) for note in notes}) != 1 or depth == DEEPEST:
            raise _NotAlike
        if [v.known for v in values].count(None) != len(values):
            raise _NotAlike
        if op == "const":
            each = attrs["type"]
            if any(note[2]["type"] != each for note in notes):
                raise _NotAlike
            return self._numbers([note[2]["value"] for note in notes], each, exact)
        if op == "slice":
            return self._windows(values)
        if type(attrs) is CallAttributes:
            return self._called(values, attrs.function, depth)
        if not operands or not may_be_batched(op) or not _equal_attributes([note[2] for note in notes]):
            raise _NotAlike
        columns = [*zip(*[note[1] for note in notes], strict=True)]
        exact = PRIMITIVES[op].exact is not None and (exact or op not in KEEPING_SPLATS)
        found = [None if set(map(type, c)) == {float} else self._column(c, depth + 1, exact) for c in columns]
        (beside, *_) = [column[0].type for column, rows in zip(columns, found, strict=True) if rows is not None]
        rule = PRIMITIVES[op].batched
        given = [rows or self._numbers(column, beside, exact) for column, rows in zip(columns, found, strict=True)]
        return self.builder.emit(op, given, attrs if rule is None else rule(attrs, len(values)))[0]

    def _called(self, values: Sequence[Noted], function: Graph, depth: int) -> Value:
        """Results of calls of one function, which only computes element by element."""
        notes = [v.note for v in values]
        if any(note[2].function is not function for note in notes):
            raise _NotAlike
        columns = zip(*[note[1] for note in notes], strict=True)
        env = dict(zip(function.inputs, [self._column(c, depth + 1, False) for c in columns], strict=True))
        b, count = self.builder, len(values)
        for node in function.nodes:
            (result,) = node.results if len(node.results) == 1 else (None,)
            if result is None or node.regions or not (may_be_batched(node.op) or not node.operands):
                raise _NotAlike
            if node.operands:
                rule = PRIMITIVES[node.op].batched
                attrs = node.attrs if rule is None else rule(node.attrs, count)
                env[result] = b.value(node.op, *[env[v] for v in node.operands], **attrs)
                continue
            each = result.type
            assert isinstance(each, TensorType)
            whole = TensorType((count, *each.shape), each.dtype)
            if node.op == "const":
                env[result] = b.const(node.attrs["value"], whole)
                continue
            made = b.value(node.op, **node.attrs)
            env[result] = b.value("broadcast", made, shape=whole.shape, dims=tuple(range(1, len(whole.shape))))
        return env[function.outputs[0]]

    def _column(self, values: Sequence[Any], depth: int, exact: bool) -> Value:
        """One operand of each."""
        if len({*map(id, values)}) == 1:
            return self._shared(values[0], len(values), exact)
        if isinstance(values[0], Leaf):
            return self._leaves(values)
        if {*map(getrefcount, values)} != {READ_ONCE} or set(map(type, values)) != {Noted}:
            raise _NotAlike
        return self.rows(values, depth, exact)

    def _leaves(self, values: Sequence[Any]) -> Value:
        """Leaves of one type, one a piece."""
        type = values[0].type
        if not isinstance(type, TensorType) or any(not isinstance(v, Leaf) or v.type != type for v in values):
            raise _NotAlike
        arrays = [self.elements_of(v) for v in values]
        if any(array is None for array in arrays):
            raise _NotAlike
        value = Value(TensorType((len(values), *type.shape), type.dtype))
        self.builder.given[value] = np.stack(arrays)  # type: ignore[arg-type]
        return value

    def _shared(self, value: Any, count: int, exact: bool) -> Value:
        """What all pieces read: a constant, or what is a leaf."""
        if attrs := attrs_of_const(value):
            return self._numbers([attrs["value"]] * count, attrs["type"], exact)
        shape = (count, *value.shape)
        return self.builder.value("broadcast", self._input(value), shape=shape, dims=tuple(range(1, len(shape))))

    def _input(self, read: Value) -> Value:
        leaf = read if isinstance(read, Leaf) else self.leaf_of(read)
        if leaf is None:
            raise _NotAlike
        value = self.inputs.get(leaf)
        if value is None:
            assert isinstance(leaf.type, TensorType)
            value = self.inputs[leaf] = Value(leaf.type)
            self.builder.given[value] = leaf
        return value

    def _numbers(self, numbers: Sequence[Any], type: TensorType, exact: bool) -> Value:
        b, count = self.builder, len(numbers)
        first = numbers[0]
        if numbers.count(first) == count and (first or len(set(map(scalar_text, numbers))) == 1):  # a zero has a sign
            return b.const(first, TensorType((count, *type.shape), type.dtype))
        if not exact:  # powers depend on exponents that are known
            raise _NotAlike
        with np.errstate(over="ignore"):  # a number beyond the type's range is infinity, as in kernels
            data = np.array(numbers, type.dtype.np).tobytes()
        own = b.value("literal", data=data, type=TensorType((count,), type.dtype))
        return b.value("broadcast", own, shape=(count, *type.shape), dims=(0,)) if type.shape else own

    def _windows(self, values: Sequence[Noted]) -> Value:
        source, shape = values[0].note[1][0], values[0].shape
        if len({id(v.note[1][0]) for v in values}) != 1:
            raise _NotAlike
        if len({id(v.type) for v in values}) != 1 and any(v.shape != shape for v in values):
            raise _NotAlike
        windows = [Window(v.note[2], source.shape, shape) for v in values]
        if not can_be_joined(windows):
            raise _NotAlike
        return joined_windows(windows, self._input(source), self.builder)


def _equal_attributes(attrs: Sequence[Any]) -> bool:
    """Whether they are the same integers and dtypes. (Others may be equal and differ: 0.0 and -0.0, 1 and True.)"""
    first = attrs[0]
    if all(other is first for other in attrs):
        return first is NO_ATTRS or _plain(first)
    return all(_plain(other) and other == first for other in attrs)


def _plain(attrs: Any) -> bool:
    for value in attrs.values():
        kind = type(value)
        if kind is not int and kind is not DType and not (kind is tuple and _INTEGERS.issuperset(map(type, value))):
            return False
    return True


def _read_once() -> int:
    """What `getrefcount` gives for a value in a column that one note reads."""
    read = [(Noted(TensorType((), float64), "alias", (), NO_ATTRS, None),)]
    (column,) = zip(*read, strict=True)
    return next(map(getrefcount, column))


READ_ONCE: Final = _read_once()
