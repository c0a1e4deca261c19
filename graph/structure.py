"""The structure of a small graph as a tuple, which is looked up in less time than a digest takes.

Enters: a Graph without regions. Leave: words that two graphs share only where `key.abstract_key` gives both one digest,
and the numbers that this blanks out. Words are what Python hashes and compares at once: an operation's name, its
operands' numbers, then its attributes, of which what isn't an integer, a dtype or a tuple of integers is a text (in
those 0.0 and -0.0, 1 and True differ).

    %1 = const {value=0.3, type=float64[4]}     "const", None, float64, (4,)         and the number 0.3
    %2 = mul(%0, %1)                            "mul", 0, 1
    %3 = sum(%2) {axes=(0,)}                    "sum", 2, ("axes", (0,))
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from loopgrad.graph.key import RAISING, encode_attr
from loopgrad.graph.lift import open_number, slots, without_slots
from loopgrad.graph.nodes import Graph, Node, Value
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
        if node.regions:
            return None
        if node.attrs:
            _add_attrs(node, words, left_open)
        if op in RAISING:
            words.append(node.loc)
        for result in node.results:
            numbers[result] = len(numbers)
    words.append(None)
    words += [numbers[v] for v in graph.outputs]
    return tuple(words), tuple(left_open)


def digest(words: Words) -> bytes:
    """16 bytes for words: their text tells apart what they do, since names and attributes' texts are quoted there, and
    numbers and dtypes aren't."""
    return blake2b(repr(words).encode(errors="surrogatepass"), digest_size=16).digest()


def outline(graph: Graph) -> tuple[Any, ...] | None:
    """Operations and how they are connected, without attributes: less than words say, and in a fourth of their time.
    None for a graph with regions."""
    numbers: dict[Value, int] = {}
    words: list[Any] = []
    for value in graph.inputs:
        words.append(value.type)
        numbers[value] = len(numbers)
    for node in graph.nodes:
        if node.regions:
            return None
        words.append(node.op)
        words += [numbers[operand] for operand in node.operands]
        for result in node.results:
            numbers[result] = len(numbers)
    return tuple(words)


def _add_attrs(node: Node, words: list[Any], left_open: list[float | int]) -> None:
    attrs = node.attrs
    if node.op == "const":  # the commonest by far
        number, type = open_number(attrs), attrs["type"]
        if number is not None:
            left_open.append(number)
        words += (scalar_text(attrs["value"]) if number is None else None, type.dtype, type.shape)
        return
    found = slots(node)
    if found:
        left_open += [slot.value for slot in found]
        attrs = without_slots(node, found)
    words.append(_attr_words(attrs))


def _attr_words(attrs: Mapping[str, Any]) -> Words:
    words: list[Any] = []
    for name, value in attrs.items():
        kind = type(value)
        plain = kind is int or kind is DType or (kind is tuple and _INTEGERS.issuperset(map(type, value)))
        words += (name, value if plain else encode_attr(value))
    return tuple(words)
