"""Deciding, for each loop and branch, between one kernel and a sub-program.

A region node becomes part of a kernel when it is lane-local (graph.lanes) for some lane shape and what a
lane does is affordable (lane_bills): its carries fit in registers and its body unrolls to a reasonable size,
or both take arrays and loops; and a few lanes don't do work that many could share. Nodes that hand a stack to
each other must agree, since kernel stacks live in one kernel. What fails runs as steps; loops with lanes of
their own are masked first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from loopgrad.codegen.options import LANE_BYTES
from loopgrad.codegen.schedule.lane_bills import factorises, unaffordable, unaffordable_rolled, unshared
from loopgrad.codegen.schedule.lane_memory import memory_operand
from loopgrad.graph.lanes import LaneReport, candidate_domain, lane_report
from loopgrad.graph.nodes import Graph, Node
from loopgrad.graph.primitives import STACKS
from loopgrad.graph.regions import Region
from loopgrad.graph.stacks import handled_in_lanes
from loopgrad.graph.types import StackType


@dataclass(frozen=True, slots=True)
class KernelRegion:
    """A region node that kernels of `lanes` lanes may contain."""

    lanes: int
    report: LaneReport
    memory: frozenset[int]  # operands whose memory the lanes scatter into
    rolled: bool = False  # values of many elements are kept in arrays of the lane

    def exclusive(self, operand: int) -> bool:
        """Whether no two lanes update one element of the accumulator."""
        record = self.report.accumulators.get(operand)
        return self.lanes == 1 or record is None or record.exclusive

    def keeps_lanes(self, operand: int) -> bool:
        """Whether the operand is read at the lane's own index only."""
        if operand in self.memory:
            return False
        return self.lanes == 1 or operand in self.report.identity_inputs


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a region node can't be in a kernel."""

    node: Node
    reason: str

    def note(self, form: str) -> str:
        where = f" at {self.node.loc}" if self.node.loc else ""
        return f"{self.node.op}{where} {form}: {self.reason}"


@dataclass(slots=True)
class Decision:
    """`kernel`: regions inside kernels; `program`: regions, and stack operations, that are steps."""

    kernel: dict[Node, KernelRegion]
    program: dict[Node, Refusal | None]


def decide(
    graph: Graph, refused: dict[Node, Refusal], lane_bytes: int = LANE_BYTES, side_by_side: bool = False
) -> Decision:
    """For every region node and stack operation of `graph` itself. `lane_bytes`: for the arrays of a lane;
    `side_by_side`: lanes run so, and a few leave a device idle."""
    decision = Decision({}, {})
    for group in _stack_groups(graph):
        regions = [n for n in group if n.regions]
        outcome = (
            _mixed(group, graph) or _fit(regions, refused, lane_bytes, side_by_side) if _closed(group, graph) else None
        )
        if isinstance(outcome, dict) and regions:
            decision.kernel.update(outcome)
        else:
            decision.program.update({n: outcome if isinstance(outcome, Refusal) else None for n in group})
    return decision


def _stack_groups(graph: Graph) -> list[list[Node]]:
    """Region nodes and stack operations, those that share a stack together."""
    leader: dict[Node, Node] = {}

    def find(node: Node) -> Node:
        while leader[node] is not node:
            node = leader[node]
        return node

    members = [n for n in graph.nodes if n.regions or n.op in STACKS]
    for node in members:
        leader[node] = node
        for v in node.operands:
            if isinstance(v.type, StackType) and v.node is not None:
                leader[find(v.node)] = find(node)
    groups: dict[Node, list[Node]] = {}
    for node in members:
        groups.setdefault(find(node), []).append(node)
    return list(groups.values())


def _closed(group: Sequence[Node], graph: Graph) -> bool:
    """Whether no stack enters or leaves the graph, and only regions push and pop."""
    if any(n.op in ("push", "pop") for n in group):
        return False
    outside = {*graph.inputs, *graph.outputs}
    values = [v for n in group for v in (*n.operands, *n.results)]
    return not any(isinstance(v.type, StackType) and v in outside for v in values)


def _mixed(group: Sequence[Node], graph: Graph) -> Refusal | None:
    """A stack that lanes pop for themselves and that all lanes push together, or the other way round. Whole tensors are
    pushed and popped then."""
    for node in group:
        if node.op == "stack_new" and len(handled_in_lanes(graph, node.results[0])) > 1:
            reader = next(n for n in graph.nodes if node.results[0] in n.operands)
            return Refusal(reader, "all lanes together and each for itself push to one stack or pop from it")
    return None


def _fit(
    regions: Sequence[Node], refused: dict[Node, Refusal], lane_bytes: int, side_by_side: bool
) -> dict[Node, KernelRegion] | Refusal | None:
    """Kernel regions of one common number of lanes; a Refusal where there is none."""
    known = next((refused[n] for n in regions if n in refused), None)
    if known is not None:
        return known
    if not regions:
        return None
    first: Refusal | None = None
    most = lane_bytes if any(map(factorises, regions)) else None  # all that hand stacks to each other
    for shape in _candidates(regions):
        outcome = {n: fits(n, shape, most, side_by_side) for n in regions}
        bad = next((o for o in outcome.values() if isinstance(o, Refusal)), None)
        if bad is None:
            return {n: o for n, o in outcome.items() if isinstance(o, KernelRegion)}
        first = first or bad
    return first


def _candidates(regions: Sequence[Node]) -> list[tuple[int, ...]]:
    """Lane shapes to try, widest first. Nodes with lanes of their own leave no choice."""
    fixed = {candidate_domain(n) for n in regions if Region.of(n).lanes}
    if fixed:
        return list(fixed) if len(fixed) == 1 else []
    shape = min((candidate_domain(n) for n in regions), key=prod)
    prefixes = [shape[:k] for k in range(len(shape), -1, -1)]
    return [s for k, s in enumerate(prefixes) if prod(s) and (k == 0 or prod(s) != prod(prefixes[k - 1]))]


def fits(
    node: Node, shape: tuple[int, ...], lane_bytes: int | None, side_by_side: bool = False
) -> KernelRegion | Refusal:
    """Whether one region node can run with these lanes. `lane_bytes`: for arrays of each, where it may be rolled."""
    report = lane_report(node, shape)
    if not report.local:
        where = f" at {report.culprit.loc}" if report.culprit is not None and report.culprit.loc else ""
        return Refusal(node, f"{report.reason}{where}")
    lanes = prod(shape)
    reason, rolled = unaffordable(node, lanes), False
    if reason is not None and lane_bytes is not None:
        reason, rolled = unaffordable_rolled(node, lanes, lane_bytes), True
    if reason is None and side_by_side:
        reason = unshared(node, lanes)
    if reason is not None:
        return Refusal(node, reason)
    memory = [memory_operand(Region.of(node), j) for j in range(len(node.results))]
    return KernelRegion(lanes, report, frozenset([i for i in memory if i is not None]), rolled)
