"""A graph apart from its extents.

Enters: a Graph. Leave: its skeleton (operations, how they are connected, dtypes, ranks, attributes), which graphs share
that differ in integers alone; and these integers, those of shapes and of attributes, in the order of a walk. A float
of an attribute that is a whole number is one of them: means divide by extents.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

from loopgrad.graph.key import RAISING, encode_attr
from loopgrad.graph.nodes import NO_ATTRS, Graph, Node, Value
from loopgrad.graph.types import StackType, TensorType

MOST_COUNTED: Final = 2.0**53
"""Larger floats aren't told from the next integer."""

Skeleton = tuple[Hashable, ...]
Type = TensorType | StackType


def outlined(graph: Graph) -> tuple[Skeleton, list[int]]:
    """The skeleton and the integers of a graph, whose regions are part of it."""
    words: list[Hashable] = []
    integers: list[int] = []
    _outline(graph, words, integers)
    return tuple(words), integers


def _outline(graph: Graph, words: list[Hashable], integers: list[int]) -> None:
    numbers: dict[Value, int] = {}
    words.append(len(graph.inputs))
    for value in graph.inputs:
        _type(value.type, words, integers)
        numbers[value] = len(numbers)
    for node in graph.nodes:
        words.append(node.op)
        words += [numbers[v] for v in node.operands]
        words.append(None)
        if node.attrs:
            for name, value in node.attrs.items():
                words.append(name)
                _attr(value, words, integers)
        if node.op in RAISING:
            words.append(node.loc)
        words.append(len(node.regions))
        for region in node.regions:
            _outline(region, words, integers)
        for result in node.results:
            _type(result.type, words, integers)
            numbers[result] = len(numbers)
    words.append(None)
    words += [numbers[v] for v in graph.outputs]


def _type(type: Type, words: list[Hashable], integers: list[int]) -> None:
    if isinstance(type, StackType):
        words.append("stack")
        type = type.element
    words += (type.dtype, len(type.shape))
    integers += type.shape


def _attr(value: Any, words: list[Hashable], integers: list[int]) -> None:
    kind = type(value)
    if kind is int:
        words.append(int)
        integers.append(value)
    elif kind is tuple:
        words += (tuple, len(value))
        for item in value:
            _attr(item, words, integers)
    elif kind is TensorType:
        _type(value, words, integers)
    elif kind is float and _counts(value):
        words.append(float)
        integers.append(int(value))
    else:
        words.append(encode_attr(value))


def _counts(value: float) -> bool:
    """Whether it may be an extent, or follow from some."""
    return 1.0 <= value < MOST_COUNTED and value.is_integer()


def with_integers(graph: Graph, integers: Sequence[int]) -> Graph:
    """The graph with other integers in the places of its own."""
    return _rebuilt(graph, iter(integers))


def _rebuilt(graph: Graph, given: Iterator[int]) -> Graph:
    inputs = tuple([Value(_new_type(v.type, given)) for v in graph.inputs])
    env = dict(zip(graph.inputs, inputs, strict=True))
    nodes = []
    for node in graph.nodes:
        attrs: Mapping[str, Any] = NO_ATTRS
        if node.attrs:
            attrs = {name: _new_attr(value, given) for name, value in node.attrs.items()}
        regions = tuple([_rebuilt(region, given) for region in node.regions])
        types = tuple([_new_type(r.type, given) for r in node.results])
        operands = tuple([env[v] for v in node.operands])
        new = Node(node.op, operands, types, attrs, regions, node.loc)
        env.update(zip(node.results, new.results, strict=True))
        nodes.append(new)
    return Graph(inputs, tuple(nodes), tuple([env[v] for v in graph.outputs]))


def _new_type(type: Type, given: Iterator[int]) -> Type:
    element = type.element if isinstance(type, StackType) else type
    new = TensorType(tuple([next(given) for _ in element.shape]), element.dtype)
    return StackType(new) if isinstance(type, StackType) else new


def _new_attr(value: Any, given: Iterator[int]) -> Any:
    kind = type(value)
    if kind is int:
        return next(given)
    if kind is tuple:
        return tuple([_new_attr(item, given) for item in value])
    if kind is float and _counts(value):
        return next(given) * 1.0
    return _new_type(value, given) if kind is TensorType else value
