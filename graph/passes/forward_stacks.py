"""Stack traffic that can be known or skipped.

Enters: a Graph. Leaves: a Graph in which
  - a pop of what was just pushed gives the pushed value;
  - a stack that only ever holds one constant isn't read: its pops give the constant;
  - a stack whose popped values nobody reads is neither pushed nor popped (`carries` and `dce` then remove
    it from loops).

    %1 = push(%s, %x);  %2, %3 = pop(%1);  return %2, sin(%3)     ->     return %s, sin(%x)

All values that one stack passes through, loops and branches included, form its family. A family that
reaches the graph's inputs or outputs is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loopgrad.graph.key import encode_attrs
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, read_values, rebuild
from loopgrad.graph.regions import Region
from loopgrad.graph.types import StackType


def run(graph: Graph) -> Graph:
    """`graph` with fewer stack operations."""
    graph = rebuild(graph, _pop_of_push)
    families = _Families(graph)
    if not families.removable:
        return graph
    return rebuild(graph, families.without_traffic)


def _pop_of_push(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    if node.op != "pop":
        return None
    pushed = node.operands[0].node
    return pushed.operands if pushed is not None and pushed.op == "push" else None


class _Families:
    """Stack values joined by the operations and regions that thread them.

    `removable`: pushes and pops that can go, the pops with the constant that stands for their value
    (None where nobody reads it).
    """

    def __init__(self, graph: Graph) -> None:
        self.parent: dict[Value, Value] = {}
        self.pushes: list[Node] = []
        self.pops: list[tuple[Node, bool]] = []  # and whether the popped value is read
        self.removable: dict[Node, Node | None] = {}
        self._visit(graph)
        outside = {self.find(v) for v in (*graph.inputs, *graph.outputs) if isinstance(v.type, StackType)}
        read = {self.find(node.operands[0]) for node, is_read in self.pops if is_read}
        constants = self._constants()
        for node in (*self.pushes, *[node for node, _ in self.pops]):
            family = self.find(node.operands[0])
            if family not in outside and (family not in read or family in constants):
                self.removable[node] = constants.get(family)

    def find(self, value: Value) -> Value:
        root = value
        while root in self.parent:
            root = self.parent[root]
        while value is not root:
            self.parent[value], value = root, self.parent[value]
        return root

    def join(self, a: Value, b: Value) -> None:
        a, b = self.find(a), self.find(b)
        if a is not b:
            self.parent[a] = b

    def _visit(self, graph: Graph) -> None:
        read = read_values(graph)
        for node in graph.nodes:
            match node.op:
                case "push":
                    self.join(node.operands[0], node.results[0])
                    self.pushes.append(node)
                case "pop":
                    self.join(node.operands[0], node.results[0])
                    self.pops.append((node, node.results[1] in read))
                case _ if node.regions:
                    for a, b in _threads(Region.of(node)):
                        self.join(a, b)
                    for region in Region.of(node).running:
                        self._visit(region)

    def _constants(self) -> dict[Value, Node]:
        """Family -> the constant that all its pushes push."""
        found: dict[Value, Node | None] = {}
        for push in self.pushes:
            family = self.find(push.operands[0])
            made = push.operands[1].node
            if made is None or made.op != "const":
                found[family] = None
            else:
                first = found.setdefault(family, made)
                if first is not None and encode_attrs(first.attrs) != encode_attrs(made.attrs):
                    found[family] = None
        return {family: made for family, made in found.items() if made is not None}

    def without_traffic(self, node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        if builder.original not in self.removable:
            return None
        if node.op == "push":
            return node.operands[:1]
        known = self.removable[builder.original]
        value = node.results[1] if known is None else builder.emit("const", (), known.attrs)[0]
        return [node.operands[0], value]


def _threads(region: Region) -> Iterator[tuple[Value, Value]]:
    """Pairs of values outside and inside a region node that are the same stack."""
    operands, results = region.node.operands, region.node.results
    for i in range(region.first, len(operands)):
        if isinstance(operands[i].type, StackType):
            for inside in region.inputs_of(i):
                yield operands[i], inside
    for j, result in enumerate(results):
        if isinstance(result.type, StackType):
            yield operands[region.source(j)], result
            for body in region.bodies:
                yield body.outputs[j], result
