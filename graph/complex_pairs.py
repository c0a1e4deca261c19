"""Complex numbers become pairs of reals.

Enters: a Graph, after all derivatives. Leaves: a Graph without complex values. What computes with complex numbers was
emitted as operations on their parts; what is left is the same for both: movement, sums, loops, branches, stacks. An
input or output of the graph stays one array, in whose memory the parts of a number stand side by side: a last axis of
extent 2. Inside, each complex value, carry, capture and stack is two.

    (%z: complex64[3])                               (%z: float32[3,2])
    %1 = real(%z)                                    %1 = reshape(slice(%z))        the first of each pair
    %2 = flip(%z) {axes=(0,)}              ->        %2 = flip(%1), flip(reshape(slice(%z)))
    return %2                                        return concat(reshape(%2), reshape(%3)) {axis=1}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.rebuild import GraphBuilder, renewed
from loopgrad.graph.regions import Region, in_parts
from loopgrad.graph.types import DType, StackType, TensorType

Parts = tuple[Value, ...]  # a value of reals, or the real and the imaginary parts
Type = TensorType | StackType

PAIR: Final = 2
MOVED: Final[dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "reshape": lambda attrs: {"shape": (*attrs["shape"], PAIR)},
    "transpose": lambda attrs: {"perm": (*attrs["perm"], len(attrs["perm"]))},
    "alias": dict,
    "concat": dict,
    "flip": dict,
    "slice": lambda attrs: {
        "start": (*attrs["start"], 0),
        "stop": (*attrs["stop"], PAIR),
        "step": (*attrs["step"], 1),
    },
    "pad": lambda attrs: {"low": (*attrs["low"], 0), "high": (*attrs["high"], 0)},
}  # the attributes with which pairs that lie together move as the numbers do


def in_pairs(graph: Graph) -> Graph:
    """`graph` with inputs and outputs of pairs of reals in place of complex ones; itself where there are none."""
    if not _has_complex(graph):
        return graph
    splitter = _Splitter()
    inputs = [Value(paired_type(v.type)) for v in graph.inputs]
    for value, given in zip(graph.inputs, inputs, strict=True):
        if is_complex(value.type):
            splitter.env[value], splitter.whole[value] = _apart(splitter.builder, given), given
        else:
            splitter.env[value] = (given,)
    splitter.walk(graph)
    outputs = [splitter.together(v) for v in graph.outputs]
    return Graph(tuple(inputs), tuple(splitter.builder.nodes), tuple(outputs))


def is_complex(type: Type) -> bool:
    return (type.element if isinstance(type, StackType) else type).dtype.kind == "c"


def paired_type(type: Type) -> TensorType:
    """The array of pairs of reals that lies where one of this type does."""
    assert isinstance(type, TensorType)
    return TensorType((*type.shape, PAIR), type.dtype.part) if is_complex(type) else type


def _has_complex(graph: Graph) -> bool:
    met = {id(v.type): v.type for v in graph.inputs}
    for node in graph.nodes:
        for result in node.results:
            met[id(result.type)] = result.type  # most are one object
        if node.regions and any(map(_has_complex, node.regions)):
            return True
    return any(map(is_complex, met.values()))


def _apart(b: GraphBuilder, pairs: Value) -> Parts:
    """The parts of what lies in memory as pairs."""
    shape = pairs.shape[:-1]
    rank = len(shape)
    parts = [
        b.value("slice", pairs, start=(0,) * rank + (i,), stop=(*shape, i + 1), step=(1,) * (rank + 1))
        for i in range(PAIR)
    ]
    return tuple([b.value("reshape", part, shape=shape) for part in parts])


def _together(b: GraphBuilder, parts: Parts) -> Value:
    if len(parts) == 1:
        return parts[0]
    shape = parts[0].shape
    return b.emit("concat", [b.value("reshape", v, shape=(*shape, 1)) for v in parts], {"axis": len(shape)})[0]


class _Splitter:
    """`env`: the parts of each value met so far; `whole`: its pairs, where they lie together already, as those of
    inputs and of what a library gives do; `builder`: the graph under construction."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.env: dict[Value, Parts] = {}
        self.placed: set[Node] = set()  # as they were
        self.whole: dict[Value, Value] = {}

    def together(self, value: Value) -> Value:
        """A value of reals, or the pairs of a complex one."""
        return self.whole.get(value) or _together(self.builder, self.env[value])

    def walk(self, graph: Graph) -> None:
        for node in graph.nodes:
            self.builder.loc = node.loc
            self.env.update(zip(node.results, self.split(node), strict=True))

    def split(self, node: Node) -> Sequence[Parts]:
        """The parts of each result."""
        operands = [self.env[v] for v in node.operands]
        made_of = (*node.operands, *node.results)
        if node.regions:
            return self.region(node, operands)
        if not any(is_complex(v.type) for v in made_of):
            return [(v,) for v in self.kept(node, [v for (v,) in operands])]
        match node.op:
            case "complex":
                (re,), (im,) = operands
                return [(re, im)]
            case "real" | "imag":
                return [(operands[0][node.op == "imag"],)]
            case "pairs":
                return [(self.together(node.operands[0]),)]
            case "from_pairs":
                (self.whole[node.results[0]],) = operands[0]
                return [_apart(self.builder, *operands[0])]
            case "const" | "literal":
                return [tuple([self.constant(node, i) for i in range(PAIR)])]
        if PRIMITIVES[node.op].pairs:
            return self.routine(node)
        if node.op in MOVED:
            self.moved(node)
        attrs = {name: v.part if isinstance(v, TensorType | DType) else v for name, v in node.attrs.items()}
        made = [self.builder.emit(node.op, [v[i % len(v)] for v in operands], attrs) for i in range(PAIR)]
        combine = PRIMITIVES[node.op].combine_parts
        if combine:
            return [self.builder.emit(combine, [answer for (answer,) in made])]
        return list(zip(*made, strict=True))

    def moved(self, node: Node) -> None:
        """Pairs that lie together move together: whoever wants the parts of the result doesn't read these."""
        given = [self.whole.get(v) for v in node.operands]
        if node.op == "pad":
            given[1] = self.either_part(node.operands[1])
        pairs = [v for v in given if v is not None]
        if len(pairs) == len(given):
            (self.whole[node.results[0]],) = self.builder.emit(node.op, pairs, MOVED[node.op](node.attrs))

    def either_part(self, number: Value) -> Value | None:
        """Of a constant whose parts are alike, as of zeros around an array."""
        parts = self.env[number]
        found = [v.node.attrs["value"] for v in parts if v.node is not None and v.node.op == "const"]
        return parts[0] if len(found) == len(parts) and len({*map(repr, found)}) == 1 else None

    def routine(self, node: Node) -> Sequence[Parts]:
        """One that takes complex numbers as pairs."""
        kinds = "".join("c" if is_complex(v.type) else "r" for v in node.operands)
        given = [self.together(v) for v in node.operands]
        made = self.builder.emit(node.op, given, {**node.attrs, "pairs": kinds})
        self.whole.update({r: found for r, found in zip(node.results, made, strict=True) if is_complex(r.type)})
        return [
            _apart(self.builder, found) if is_complex(r.type) else (found,)
            for found, r in zip(made, node.results, strict=True)
        ]

    def kept(self, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
        """A node without complex numbers, of these operands; a copy where a function is called again."""
        current = renewed(node, tuple(operands), node.regions)
        if current in self.placed:
            types = tuple([r.type for r in node.results])
            current = Node(node.op, tuple(operands), types, node.attrs, node.regions, node.loc)
        self.placed.add(current)
        self.builder.nodes.append(current)
        return current.results

    def constant(self, node: Node, part: int) -> Value:
        type: TensorType = node.attrs["type"]
        if node.op == "const":
            value = complex(node.attrs["value"])
            return self.builder.value("const", value=(value.real, value.imag)[part], type=type.part)
        numbers = np.frombuffer(node.attrs["data"], type.dtype.np)
        data = np.ascontiguousarray((numbers.real, numbers.imag)[part]).tobytes()
        return self.builder.value("literal", data=data, type=type.part)

    def region(self, node: Node, operands: Sequence[Parts]) -> Sequence[Parts]:
        region = Region.of(node)
        if region.own:  # a stated derivative has done its work
            (function,) = region.running
            self.env.update(zip(function.inputs, operands, strict=True))
            self.walk(function)
            return [self.env[v] for v in function.outputs]
        given = [v for parts in operands for v in parts]
        if tuple(given) == node.operands and not any(map(_has_complex, region.running)):
            return [(v,) for v in self.kept(node, given)]
        widths = [PAIR if is_complex(r.type) else 1 for r in node.results]
        places = in_parts(range(sum(widths)), *widths)
        shared = [place for j in region.shared for place in places[j]]
        form = region.spread(given, [_closed(graph) for graph in region.running], shared, sum(widths))
        results = iter(self.builder.emit(*form))
        return [tuple([next(results) for _ in range(width)]) for width in widths]


def _closed(graph: Graph) -> Graph:
    """A region with two inputs and outputs in place of a complex one."""
    splitter = _Splitter()
    for value in graph.inputs:
        splitter.env[value] = tuple([Value(t) for t in _types(value.type)])
    inputs = [v for value in graph.inputs for v in splitter.env[value]]
    splitter.walk(graph)
    outputs = [v for value in graph.outputs for v in splitter.env[value]]
    return Graph(tuple(inputs), tuple(splitter.builder.nodes), tuple(outputs))


def _types(type: Type) -> Iterator[Type]:
    for _ in range(PAIR if is_complex(type) else 1):
        yield StackType(type.element.part) if isinstance(type, StackType) else type.part
