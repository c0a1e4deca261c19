"""Structural keys: two graphs with equal keys compute the same thing from equal inputs.

Enters: a Graph. Leaves: a 16-byte blake2b digest over operations, attributes, input types and
topology, regions included. Result types follow from those, so they aren't read. Names and locations
don't change what is computed; they count only where asked for, and then only on operations that can
put them into an error message of the compiled program.

`abstract_key` also blanks out float constants, so that graphs which differ in a learning rate share
a key; `lift_constants` makes those constants extra inputs, in the same order:

    %1 = const {value=0.3, type=float64[4]}          (%x: float64[4], %c: float64[])
    %2 = mul(%x, %1)                           ->    %1 = broadcast(%c) {shape=(4,), dims=()}
                                                     %2 = mul(%x, %1)

A constant inside a region becomes a capture of the region's node.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from hashlib import blake2b
from math import isfinite
from typing import Any, Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.types import StackType, TensorType

RAISING: Final = frozenset({"for", "while", "switch", "stack_new", "push", "pop", "gather", "scatter"})
"""Operations whose location or name can appear in an error of a compiled program."""

BAKED: Final = frozenset({0.0, 1.0, -1.0, 2.0, 0.5})
"""Float constants that stay in the graph: simplification lives on them."""

_END: Final = -1


def key(graph: Graph, with_locations: bool = True) -> bytes:
    """The digest of `graph`; `with_locations`: also of the lines and names its errors would show."""
    encoder = _Encoder(with_locations, abstract=False)
    encoder.graph(graph)
    return encoder.digest()


def abstract_key(graph: Graph, with_locations: bool = True) -> tuple[bytes, tuple[float, ...], tuple[Node, ...]]:
    """The digest with float constants blanked out, their values, and their nodes in order of visit."""
    encoder = _Encoder(with_locations, abstract=True)
    encoder.graph(graph)
    consts = tuple([float(node.attrs["value"]) for node in encoder.consts])
    return encoder.digest(), consts, tuple(encoder.consts)


def is_liftable(node: Node) -> bool:
    """Whether `node` is a float constant that an abstract key blanks out."""
    if node.op != "const" or not node.attrs["type"].dtype.is_float:
        return False
    value = node.attrs["value"]
    return value not in BAKED and isfinite(value)


class _Encoder:
    """Writes a graph as integers; strings, attributes and types are numbered at first sight."""

    def __init__(self, with_locations: bool, abstract: bool) -> None:
        self.with_locations = with_locations
        self.abstract = abstract
        self.words: list[int] = []
        self.strings: dict[str, int] = {}
        self.consts: list[Node] = []

    def digest(self) -> bytes:
        state = blake2b(array("q", self.words).tobytes(), digest_size=16)
        state.update("\0".join(self.strings).encode(errors="surrogatepass"))
        return state.digest()

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def graph(self, graph: Graph) -> None:
        words, strings = self.words, self.strings
        numbers: dict[Value, int] = {}
        words.append(len(graph.inputs))
        for value in graph.inputs:
            numbers[value] = len(numbers)
            words.append(self.string(str(value.type)))
        for node in graph.nodes:
            op = node.op
            words.append(strings.setdefault(op, len(strings)))
            for operand in node.operands:
                words.append(numbers[operand])
            words.append(_END)
            if node.attrs:
                self.attrs(node)
            for region in node.regions:
                self.graph(region)
            if self.with_locations and op in RAISING:
                words.append(self.string(str(node.loc)))
            for result in node.results:
                numbers[result] = len(numbers)
        words.append(_END)
        words.extend([numbers[v] for v in graph.outputs])

    def attrs(self, node: Node) -> None:
        if self.abstract and is_liftable(node):
            self.consts.append(node)
            self.words.append(self.string("lifted " + str(node.attrs["type"])))
        else:
            self.words.append(self.string(encode_attrs(node.attrs, self.with_locations)))


def encode_attrs(attrs: Mapping[str, Any], with_name: bool = True) -> str:
    """Attributes as text; equal texts mean equal attributes (0.0 and -0.0, 1 and True differ)."""
    parts = [f"{name}={_encode(attrs[name])}" for name in sorted(attrs) if with_name or name != "name"]
    return ";".join(parts)


def _encode(value: Any) -> str:
    if type(value) is tuple:
        return "(" + ",".join(map(_encode, value)) + ")"
    if isinstance(value, TensorType | StackType):
        return str(value)
    return repr(value)


def lift_constants(graph: Graph) -> tuple[Graph, tuple[float, ...]]:
    """`graph` with its liftable constants as extra scalar inputs at the end, and their values."""
    lifted, consts = _lift(graph)
    return lifted, tuple([float(node.attrs["value"]) for node in consts])


def _lift(graph: Graph) -> tuple[Graph, list[Node]]:
    consts: list[Node] = []
    extra: list[Value] = []
    nodes: list[Node] = []
    env: dict[Value, Value] = {}
    for node in graph.nodes:
        if is_liftable(node):
            consts.append(node)
            extra.append(_scalar_like(node))
            env[node.results[0]] = _splat(extra[-1], node, nodes)
            continue
        regions, inner = _lift_regions(node)
        consts += inner
        captures = [_scalar_like(const) for const in inner]
        extra += captures
        operands = (*[env.get(v, v) for v in node.operands], *captures)
        if operands != node.operands:
            types = tuple([r.type for r in node.results])
            copy = Node(node.op, operands, types, node.attrs, regions, node.loc)
            env.update(zip(node.results, copy.results, strict=True))
            node = copy
        nodes.append(node)
    if not consts:
        return graph, consts
    return Graph((*graph.inputs, *extra), tuple(nodes), tuple([env.get(v, v) for v in graph.outputs])), consts


def _scalar_like(const: Node) -> Value:
    return Value(TensorType((), const.attrs["type"].dtype))


def _splat(scalar: Value, const: Node, nodes: list[Node]) -> Value:
    """The scalar in the shape of the constant it replaces."""
    type = const.attrs["type"]
    if not type.shape:
        return scalar
    nodes.append(Node("broadcast", (scalar,), (type,), {"shape": type.shape, "dims": ()}, (), const.loc))
    return nodes[-1].results[0]


def _lift_regions(node: Node) -> tuple[tuple[Graph, ...], list[Node]]:
    """The node's regions, each taking the lifted constants of all of them as last inputs."""
    if not node.regions:
        return (), []
    lifted = [_lift(region) for region in node.regions]
    consts = [const for _, inner in lifted for const in inner]
    regions = []
    position = 0
    for region, inner in lifted:
        split = len(region.inputs) - len(inner)
        before = [_scalar_like(const) for const in consts[:position]]
        after = [_scalar_like(const) for const in consts[position + len(inner) :]]
        inputs = (*region.inputs[:split], *before, *region.inputs[split:], *after)
        regions.append(Graph(inputs, region.nodes, region.outputs) if consts else region)
        position += len(inner)
    return tuple(regions), consts
