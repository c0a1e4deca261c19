"""The Graph IR on one screen: values, nodes, graphs.

A `Graph` is a closed function: `inputs` are its block arguments, `nodes` are in topological
order, `outputs` are values of inputs or nodes. A region (the body of a loop, a branch) *is* a
Graph, so every pass and transform that works on a Graph works on a region. A region never refers
to a value outside itself: captured values are explicit operands of the region node.

Values are compared by identity. Nodes and graphs are never changed after they are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from loopgrad.graph.types import DType, StackType, TensorType


class Location(NamedTuple):
    """Where the user wrote the operation."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Value:
    """One SSA value. `node` is None for block arguments and leaves. `known` is where the lazy layer notes
    a leaf that holds the value's elements; None, and without meaning, everywhere else. `expression`: what
    `graph.expressions` has found for a value of the top level."""

    __slots__ = ("__weakref__", "expression", "index", "known", "node", "scope", "type")

    known: Any
    expression: Any

    def __init__(
        self, type: TensorType | StackType, node: Node | None = None, index: int = 0, scope: object = None
    ) -> None:
        self.type = type
        self.node = node
        self.index = index
        self.known = self.expression = None
        self.scope = scope  # the Scope (graph.build) the value belongs to; None at the top level

    @property
    def shape(self) -> tuple[int, ...]:
        assert isinstance(self.type, TensorType)
        return self.type.shape

    @property
    def dtype(self) -> DType:
        assert isinstance(self.type, TensorType)
        return self.type.dtype

    def __repr__(self) -> str:
        origin = self.node.op if self.node is not None else "arg"
        return f"<{origin}.{self.index}: {self.type}>"


class Leaf(Value):
    """A top-level value whose elements exist: `buffer` is the runtime's (opaque to the graph)."""

    __slots__ = ("buffer",)

    def __init__(self, type: TensorType, buffer: Any) -> None:
        super().__init__(type)
        self.buffer = buffer


NO_ATTRS: Final[Mapping[str, Any]] = MappingProxyType({})


class CallAttributes(dict[str, Any]):
    """The attributes of a call that is noted, and the function that it calls, its node's only region."""

    __slots__ = ("function",)

    def __init__(self, attrs: Mapping[str, Any], function: Graph) -> None:
        super().__init__(attrs)
        self.function = function


class Noted(Value):
    """A top-level value that is the only result of its node, which is made when somebody looks at it. Most lines of a
    script come again, and an evaluation that knows them reads notes only: a node and its result refer to each other, so
    that they would wait for the garbage collector.

    `note`: operation, operands, attributes, location, and then the node. Among two operands a float is a constant of
    the other's type; the attributes of a call bring its function (`CallAttributes`). (Appending is one step for all
    threads: the node that came first is everybody's.)
    `holder`: a weak reference to the tensor that was made of the value, which the lazy layer puts here; None, and
    without meaning, everywhere else.
    """

    __slots__ = ("holder", "note")

    holder: Any
    note: list[Any]

    def __init__(
        self, type: TensorType | StackType, op: str, operands: tuple[Value, ...], attrs: Mapping[str, Any],
        loc: Location | None,
    ) -> None:  # fmt: skip
        self.type = type
        self.index = 0
        self.known = self.scope = self.expression = self.holder = None
        self.note = [op, operands, attrs, loc]

    def __getattr__(self, name: str) -> Node:
        if name != "node":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        note = self.note
        if len(note) == NODE:
            note.append(_node_of(self, *note[:NODE]))
        node: Node = note[NODE]
        note[1] = node.operands
        self.node = node
        return node


NODE: Final = 4  # where a note has its node


class Node:
    """One operation. `replaces`, where set, is an earlier node whose results equal the first
    results of this one: whoever forms a Graph holding both keeps only this one (autodiff emits
    an augmented loop this way, so that value and gradient share one forward loop)."""

    __slots__ = ("attrs", "loc", "op", "operands", "regions", "replaces", "results")

    op: str
    operands: tuple[Value, ...]
    attrs: Mapping[str, Any]  # hashable values only; regions are not attributes
    regions: tuple[Graph, ...]
    results: tuple[Value, ...]
    loc: Location | None
    replaces: Node | None

    def __init__(
        self,
        op: str,
        operands: tuple[Value, ...],
        types: tuple[TensorType | StackType, ...],
        attrs: Mapping[str, Any] = NO_ATTRS,
        regions: tuple[Graph, ...] = (),
        loc: Location | None = None,
        replaces: Node | None = None,
        scope: object = None,
    ) -> None:
        self.op = op
        self.operands = operands
        self.attrs = attrs
        self.regions = regions
        self.loc = loc
        self.replaces = replaces
        if len(types) == 1:
            self.results = (Value(types[0], self, 0, scope),)
        else:
            self.results = tuple([Value(t, self, i, scope) for i, t in enumerate(types)])

    def __repr__(self) -> str:
        return f"<Node {self.op} {dict(self.attrs)} -> {', '.join(str(r.type) for r in self.results)}>"


def _node_of(value: Noted, op: str, operands: tuple[Any, ...], attrs: Mapping[str, Any], loc: Location | None) -> Node:
    if float in map(type, operands):
        operands = tuple([_constant(v, operands, loc) if type(v) is float else v for v in operands])
    node: Node = object.__new__(Node)
    node.op = op
    node.operands = operands
    node.attrs = attrs
    node.regions = (attrs.function,) if type(attrs) is CallAttributes else ()
    node.results = (value,)
    node.loc = loc
    node.replaces = None
    return node


def _constant(number: float, operands: tuple[Any, ...], loc: Location | None) -> Noted:
    (type,) = [v.type for v in operands if isinstance(v, Value)]
    return Noted(type, "const", (), {"value": number, "type": type}, loc)


def is_made(value: Value) -> bool:
    """Whether a node gives the value; makes none, unlike a look at `node`."""
    return type(value) is Noted or value.node is not None


def noted_node(value: Noted) -> Node:
    """The node that a note describes, or will have: one of the caller's own where nobody has looked at it so far."""
    note = value.note
    node: Node = note[NODE] if len(note) > NODE else _node_of(value, *note[:NODE])
    return node


def passing_node(value: Value) -> Node | None:
    """As above, of any value: none is made that stays."""
    return noted_node(value) if type(value) is Noted else value.node


def node_so_far(value: Value) -> Node | None:
    """The node that gives a value, where somebody has looked at it."""
    if type(value) is not Noted:
        return value.node
    return value.note[NODE] if len(value.note) > NODE else None


def is_zero(value: Value) -> bool:
    """Whether all elements are a constant 0, or -0.0."""
    attrs = attrs_of_const(value)
    return attrs is not None and attrs["value"] == 0


def attrs_of_const(value: Value) -> Mapping[str, Any] | None:
    """The attributes of the constant that the value is; None where it is none. Makes no node, either."""
    if type(value) is Noted:
        op, _, attrs, *_ = value.note
        return attrs if op == "const" else None
    node = value.node
    return node.attrs if node is not None and node.op == "const" else None


class Graph:
    """A closed dataflow function (also: a region)."""

    __slots__ = ("__weakref__", "inputs", "nodes", "outputs")

    def __init__(self, inputs: tuple[Value, ...], nodes: tuple[Node, ...], outputs: tuple[Value, ...]) -> None:
        self.inputs = inputs
        self.nodes = nodes
        self.outputs = outputs

    @property
    def input_types(self) -> tuple[TensorType | StackType, ...]:
        return tuple(v.type for v in self.inputs)

    @property
    def output_types(self) -> tuple[TensorType | StackType, ...]:
        return tuple(v.type for v in self.outputs)

    def __str__(self) -> str:
        from loopgrad.graph.text import print_graph  # text imports nodes; late to keep the IR free of it

        return print_graph(self)
