"""Loop-invariant code motion.

Enters: a Graph. Leaves: a Graph in which what a loop's body or condition computes from captured values
alone is computed once, before the loop, and captured. Innermost loops first, so that a value can leave
several loops at once; branches of a switch are never left.

    %2 = for(%n, %x, %a)                            %1 = sin(%a)
      body(%k, %c, %b)                              %2 = for(%n, %x, %1)
        %3 = sin(%b)                        ->        body(%k, %c, %b)
        %4 = add(%c, %3)                                %4 = add(%c, %b)
        return %4                                       return %4

Operations are total, so computing one for a loop that then doesn't run is safe (with index checks on, a
gather that left a loop is checked even if the loop doesn't run). Loops and switches can be long: they
leave only a `for` of constant positive count. Stack operations stay, and what processes do together.
Constants, iotas and what is merely moved from them stay too: a body is better off knowing them.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes.fold import known_scalar
from loopgrad.graph.primitives import KEEPING_SPLATS, NULLARY, PRIMITIVES, STACKS
from loopgrad.graph.rebuild import renewed, substituted
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import StackType


def run(graph: Graph) -> Graph:
    """`graph` with invariant nodes of loops hoisted into the graph around the loop."""
    env: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        operands = tuple([env.get(v, v) for v in node.operands]) if env else node.operands
        current = renewed(node, operands, tuple([run(r) for r in node.regions]))
        if current.regions:
            region = Region.of(current)
            current = _hoist(region, nodes) if isinstance(region, Loop) else current
        if current is not node:
            env.update(zip(node.results, current.results, strict=True))
        nodes.append(current)
    if len(nodes) == len(graph.nodes) and not env:
        return graph
    return Graph(graph.inputs, tuple(nodes), tuple([env.get(v, v) for v in graph.outputs]))


class _Region:
    """One region split into what stays and what leaves."""

    def __init__(self, region: Graph, captures: Sequence[Value], certain: bool) -> None:
        self.region = region
        self.captures = captures
        self.leaving: list[Node] = []
        self.staying: list[Node] = []
        self.constants: dict[Value, Node] = {}  # results of nullary nodes and of what is moved from them
        invariant = set(captures)
        for node in region.nodes:
            if self._is_constant(node):
                self.constants.update(dict.fromkeys(node.results, node))
                self.staying.append(node)
            elif _may_leave(node, certain) and all(v in invariant or v in self.constants for v in node.operands):
                self.leaving.append(node)
                invariant.update(node.results)
            else:
                self.staying.append(node)

    def _is_constant(self, node: Node) -> bool:
        moves = node.op in KEEPING_SPLATS or node.op == "cast"
        return node.op in NULLARY or (moves and node.operands[0] in self.constants)

    def exported(self) -> list[Value]:
        """Values of the leaving nodes that the region still reads."""
        made = {v for node in self.leaving for v in node.results}
        read = dict.fromkeys(v for node in self.staying for v in node.operands)
        read.update(dict.fromkeys(self.region.outputs))
        return [v for v in read if v in made]

    def move_out(self, env: dict[Value, Value], nodes: list[Node]) -> None:
        """Append the leaving nodes to the enclosing graph's, their results entered into `env`."""
        for node in self.leaving:
            for v in node.operands:
                self._copy_constant(v, env, nodes)
            copied(node, env, nodes)

    def _copy_constant(self, value: Value, env: dict[Value, Value], nodes: list[Node]) -> None:
        node = self.constants.get(value)
        if node is None or value in env:
            return
        for v in node.operands:
            self._copy_constant(v, env, nodes)
        copied(node, env, nodes)


def copied(node: Node, env: dict[Value, Value], nodes: list[Node]) -> None:
    """Append a copy of `node`, with operands and results through `env`."""
    types = tuple([r.type for r in node.results])
    copy = Node(node.op, tuple([env[v] for v in node.operands]), types, node.attrs, node.regions, node.loc)
    nodes.append(copy)
    env.update(zip(node.results, copy.results, strict=True))


def _communicates(node: Node) -> bool:
    """Whether processes meet in a node, or in its regions, or would if there were several."""
    here = PRIMITIVES[node.op].collective or bool(node.attrs and node.attrs.get("meets"))
    return here or any(_communicates(n) for region in node.regions for n in region.nodes)


def _may_leave(node: Node, certain: bool) -> bool:
    if node.op in STACKS or _communicates(node):
        return False
    if not node.regions:
        return True
    return certain and not any(isinstance(v.type, StackType) for v in (*node.operands, *node.results))


def _hoist(loop: Loop, nodes: list[Node]) -> Node:
    """The loop without its invariant nodes, which are appended to `nodes`."""
    count = None if loop.count is None else known_scalar(loop.count)
    split = [(r, loop.split(r.inputs).captures) for r in loop.node.regions]
    regions = [_Region(r, captures, count is not None and count > 0) for r, captures in split]
    if not any(r.leaving for r in regions):
        return loop.node
    exported = [r.exported() for r in regions]
    captures: list[Value] = []
    for region, values in zip(regions, exported, strict=True):
        env = dict(zip(region.captures, loop.captures, strict=True))
        region.move_out(env, nodes)
        captures += [env[v] for v in values]
    return _with_captures(loop, regions, exported, captures)


def _with_captures(loop: Loop, regions: list[_Region], exported: list[list[Value]], captures: list[Value]) -> Node:
    """The loop with the exported values of each region as captures that every region takes."""
    graphs = []
    for i, split in enumerate(regions):
        inputs = [Value(v.type) for values in exported for v in values]
        before = sum(len(values) for values in exported[:i])
        own = inputs[before : before + len(exported[i])]
        graph = Graph((*split.region.inputs, *inputs), tuple(split.staying), split.region.outputs)
        graphs.append(substituted(graph, dict(zip(exported[i], own, strict=True))))
    return loop.recaptured((), captures, graphs).node(loop.node.loc)
