"""The rules of the Graph IR, checked.

Enters: a Graph. Leaves: nothing, or a VerifyError that lists every broken rule above the printed graph:
  - every value is defined once, before its uses, in the graph that uses it (regions are closed);
  - every operation is known, its attributes are hashable, and its result types are those that its
    primitive infers;
  - a stack value is consumed at most once;
  - what a loop or switch declares as shared flows through scatters only, whose indices are over its lanes.
"""

from __future__ import annotations

from loopgrad.graph.accumulators import passed
from loopgrad.graph.errors import LoopgradError, VerifyError
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import INFER
from loopgrad.graph.primitives.control import region_labels
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.text import GraphTextError, print_graph
from loopgrad.graph.types import StackType


def verify(graph: Graph, after: str = "") -> None:
    """Raise VerifyError if `graph` breaks a rule; `after` names the pass that made it."""
    errors = violations(graph)
    if errors:
        source = f" after {after}" if after else ""
        listed = "\n".join(f"  - {e}" for e in errors)
        raise VerifyError(f"the graph{source} breaks the IR's rules:\n{listed}\n{_printed(graph)}")


def violations(graph: Graph) -> list[str]:
    """Every broken rule, one line each."""
    verifier = _GraphVerifier()
    verifier.graph(graph, "graph")
    return verifier.errors


def _printed(graph: Graph) -> str:
    try:
        return print_graph(graph)
    except (GraphTextError, TypeError, ValueError, AttributeError) as error:  # too broken to print
        return f"(not printable: {error!r})"


class _GraphVerifier:
    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, where: str, message: str) -> None:
        self.errors.append(f"{where}: {message}")

    def graph(self, graph: Graph, path: str) -> None:
        defined: set[Value] = set()
        consumed: dict[Value, str] = {}
        for i, value in enumerate(graph.inputs):
            self.define(value, defined, f"{path} input {i}")
        for position, node in enumerate(graph.nodes):
            where = f"{path}/{position}:{node.op}"
            for i, operand in enumerate(node.operands):
                self.use(operand, defined, consumed, f"{where} operand {i}")
            self.node(node, where)
            for value in node.results:
                self.define(value, defined, where)
        for i, value in enumerate(graph.outputs):
            self.use(value, defined, consumed, f"{path} output {i}")

    def define(self, value: Value, defined: set[Value], where: str) -> None:
        if value in defined:
            self.error(where, "this value is defined twice")
        defined.add(value)

    def use(self, value: Value, defined: set[Value], consumed: dict[Value, str], where: str) -> None:
        if value not in defined:
            self.error(where, f"{value!r} isn't defined before in this graph")
        if isinstance(value.type, StackType):
            if value in consumed:
                self.error(where, f"this stack is consumed already by {consumed[value]}")
            consumed[value] = where

    def node(self, node: Node, where: str) -> None:
        for i, region in enumerate(node.regions):
            self.graph(region, f"{where} region {i}")
        try:
            hash(tuple(node.attrs.items()))
        except TypeError:
            self.error(where, f"an attribute isn't hashable: {dict(node.attrs)}")
        if node.op not in INFER:
            self.error(where, "unknown operation")
        elif node.op == "switch" or len(node.regions) == len(expected := region_labels(node.op, node.attrs)):
            self.types(node, where)
        else:
            self.error(where, f"expected {len(expected)} regions, got {len(node.regions)}")

    def types(self, node: Node, where: str) -> None:
        try:
            types = INFER[node.op](node.operands, node.attrs, node.regions)
        except (LoopgradError, KeyError, ValueError, AttributeError, AssertionError) as error:
            self.error(where, f"its operands are refused: {error!r}")
            return
        got = tuple([r.type for r in node.results])
        if types != got:
            self.error(where, f"expected results of types {_listed(types)}, got {_listed(got)}")
        elif node.regions:
            self.shared(Region.of(node), where)

    def shared(self, region: Region, where: str) -> None:
        if not region.lanes or not region.shared:
            return
        entering = map(region.position, region.shared) if isinstance(region, Loop) else region.captured
        chains = [passed(region.node, i) for i in entering]
        reached = {chain.output: chain for chain in chains if chain is not None}
        lanes = region.lane_shape
        for position in region.shared:
            if position not in reached:
                self.error(where, f"shared result {position} doesn't flow from its operand through scatters only")
            elif not reached[position].over(lanes):
                self.error(where, f"shared result {position} is scattered into at indices not over the lanes {lanes}")


def _listed(types: tuple[object, ...]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"
