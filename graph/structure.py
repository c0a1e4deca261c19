"""The structure of a small graph as a tuple, which is looked up in less time than a digest takes.

Enters: a Graph without regions but those of closed calls, whose digest is a word. Leave: words
that two graphs share only where `key.abstract_key` gives both one digest, and the numbers that this blanks out. Words
are what Python hashes and compares at once: an operation's name, its operands' numbers, then its attributes, of which
what isn't an integer, a dtype or a tuple of integers is a text (in those 0.0 and -0.0, 1 and True differ).

    %1 = const {value=0.3, type=float64[4]}     "const", None, float64, (4,)         and the number 0.3
    %2 = mul(%0, %1)                            "mul", 0, 1
    %3 = sum(%2) {axes=(0,)}                    "sum", 2, ("axes", (0,))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from math import isfinite
from typing import Any, Final

from loopgrad.graph.closed_calls import called, is_closed_call
from loopgrad.graph.key import RAISING, encode_attr, key
from loopgrad.graph.lift import BAKED, POSITIONS, NumberPlace, open_axes, open_number, slots, without_slots
from loopgrad.graph.nodes import NO_ATTRS, CallAttributes, Graph, Leaf, Node, Noted, Value
from loopgrad.graph.types import DType, TensorType, scalar_text

MOST_NODES: Final = 500
"""Words of longer graphs take more memory than is worth while: their digest is kept in their place."""

_INTEGERS: Final = frozenset({int})

Words = tuple[Any, ...]
Numbers = tuple[float | int, ...]


def structure(graph: Graph) -> tuple[Words, Numbers] | None:
    """The words of a graph and the numbers that they leave open; None where only a digest will do."""
    nodes = graph.nodes
    numbers: dict[Value, int] = {}
    words: list[Any] = [len(graph.inputs)]
    left_open: list[float | int] = []
    for value in graph.inputs:
        type = value.type
        if not isinstance(type, TensorType):
            return None
        words += (type.dtype, type.shape)
        numbers[value] = len(numbers)
    for node in nodes:
        op = node.op
        words.append(op)
        for operand in node.operands:
            words.append(numbers[operand])
        closed = bool(node.regions)
        if closed:
            if not is_closed_call(node):
                return None
            words.append(key(called(node)))
        if node.attrs:
            _add_attrs(node, words, left_open)
        if op in RAISING and not closed:
            words.append(node.loc)
        for result in node.results:
            numbers[result] = len(numbers)
    words.append(None)
    words += [numbers[v] for v in graph.outputs]
    return tuple(words), tuple(left_open)


NotedStructure = tuple[Words, Numbers, list[Leaf], list[Noted]]
"""What notes say of a value: words, which two values share only where `structure` gives their graphs the same ones; the
numbers that these leave open; the leaves, each once; and the values on the way."""


LeafOf = Callable[[Value], Leaf | None]
"""The leaf that holds the elements of a value which is known; None where that has gone."""


def _gone(value: Value) -> Leaf | None:
    return None


def noted_structure(output: Noted, leaf_of: LeafOf = _gone) -> NotedStructure | None:
    """As above, in a third of the time that it takes to cut a graph of these nodes and look at it; None where something
    else than notes leads to the value. What is known on the way is the leaf that holds its elements.

    A value that is met again is the number of the first meeting, a leaf its dtype and shape. An operation's name goes
    before its attributes, and these before its operands; how many those are is said (as a negative number) but for two.
    """
    words: list[Any] = []
    numbers: list[float | int] = []
    leaves: list[Leaf] = []
    inner: list[Noted] = []
    places: dict[Value, int] = {}
    pending: list[Any] = [output]
    if output.known is not None:
        return None
    while pending:
        value = pending.pop()
        if type(value) is Noted and value.known is not None:
            value = leaf_of(value) or value
        kind = type(value)
        if kind is Noted:
            if value in places:
                words.append(places[value])
                continue
            places[value] = len(places)
            op, operands, attrs = value.note[:3]
            words.append(op)
            if attrs is not NO_ATTRS:
                words += noted_attr_words(value, numbers)
            if op in RAISING and type(attrs) is not CallAttributes:
                words.append(value.note[3])
            if len(operands) != 2:
                words.append(~len(operands))
            inner.append(value)
            pending += operands
            if len(inner) > MOST_NODES:
                return None
        elif kind is float:
            if value in BAKED or not isfinite(value):
                words.append(scalar_text(value))
            else:
                words.append(None)
                numbers.append(value)
        elif value in places:
            words.append(places[value])
        elif isinstance(value, Leaf) and type(value.type) is TensorType:
            places[value] = len(places)
            words += (value.type.dtype, value.type.shape)
            leaves.append(value)
        else:
            return None
    if not inner:
        return None  # another thread has computed it
    del inner[0]
    return tuple(words), tuple(numbers), leaves, inner


def number_places(output: Value, leaf_of: LeafOf = _gone) -> list[NumberPlace]:
    """Where the numbers are that `noted_structure` leaves open, in its order."""
    found: list[NumberPlace] = []
    seen: set[Value] = set()
    pending = [output]
    while pending:
        value = pending.pop()
        if value.node is not None and value not in seen and (value.known is None or leaf_of(value) is None):
            seen.add(value)
            found += slots(value.node)
            pending += value.node.operands
    return found


def noted_attr_words(value: Noted, left_open: list[float | int]) -> Words:
    """The words of a noted value's attributes; the numbers that they leave open are added to `left_open`."""
    op, operands, attrs = value.note[:3]
    if not attrs:
        return ()
    words: list[Any] = []
    if op == "const":
        _add_const(attrs, words, left_open)
        return tuple(words)
    if type(attrs) is CallAttributes:
        return (key(attrs.function),)
    if op in POSITIONS:
        names, kept = POSITIONS[op], value.shape
        axes = open_axes(op, attrs, operands[0].shape, kept)
        if axes:
            first, last = (attrs[name] for name in names)
            left_open += [first[a] for a in axes]
            words.append(tuple([None if a in axes else (v, last[a]) for a, v in enumerate(first)]))
            words.append(kept)
            attrs = {name: v for name, v in attrs.items() if name not in names}
    return (*words, _attr_words(attrs))


def digest(words: Words) -> bytes:
    """16 bytes for words: their text tells apart what they do, since names and attributes' texts are quoted there, and
    numbers and dtypes aren't."""
    return blake2b(repr(words).encode(errors="surrogatepass"), digest_size=16).digest()


def outline(graph: Graph) -> tuple[Any, ...] | None:
    """Operations and how they are connected, without attributes: less than words say, and in a fourth of their time.
    None for a graph with regions but those of closed calls."""
    numbers: dict[Value, int] = {}
    words: list[Any] = []
    for value in graph.inputs:
        words.append(value.type)
        numbers[value] = len(numbers)
    for node in graph.nodes:
        if node.regions:
            if not is_closed_call(node):
                return None
            words.append(key(called(node)))
        words.append(node.op)
        words += [numbers[operand] for operand in node.operands]
        for result in node.results:
            numbers[result] = len(numbers)
    return tuple(words)


def _add_attrs(node: Node, words: list[Any], left_open: list[float | int]) -> None:
    attrs = node.attrs
    if node.op == "const":  # the commonest by far
        _add_const(attrs, words, left_open)
        return
    found = slots(node)
    if found:
        left_open += [slot.value for slot in found]
        attrs = without_slots(node, found)
    words.append(_attr_words(attrs))


def _add_const(attrs: Mapping[str, Any], words: list[Any], left_open: list[float | int]) -> None:
    number, type = open_number(attrs), attrs["type"]
    if number is not None:
        left_open.append(number)
    words += (scalar_text(attrs["value"]) if number is None else None, type.dtype, type.shape)


def _attr_words(attrs: Mapping[str, Any]) -> Words:
    words: list[Any] = []
    for name, value in attrs.items():
        kind = type(value)
        plain = kind is int or kind is DType or (kind is tuple and _INTEGERS.issuperset(map(type, value)))
        words += (name, value if plain else encode_attr(value))
    return tuple(words)
