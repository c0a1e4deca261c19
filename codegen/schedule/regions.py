"""Deciding, for each loop and branch, between one kernel and a sub-program.

A region node becomes part of a kernel when it is lane-local (graph.lanes) for some lane shape and what a
lane does is affordable: its carries fit in registers, its body unrolls to a reasonable size, and a few
lanes don't do work that many could share. Nodes that hand a stack to each other must agree, since kernel
stacks live in one kernel. What fails runs as steps; loops with lanes of their own are masked first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from loopgrad.codegen.lower.context import leading_dims
from loopgrad.codegen.lower.control import memory_source
from loopgrad.graph.accumulators import is_accumulator
from loopgrad.graph.lanes import LaneReport, candidate_domain, lane_report
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import LIBRARY, PRIMITIVES, RUNNING_TOTALS, STACKS, Kind
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.stacks import handled_in_lanes
from loopgrad.graph.types import StackType, TensorType

MAX_REGISTERS = 256  # scalars that a lane carries beyond one a carry
MAX_CARRIES = 4096
MAX_OPS = 6000  # operations of a body, unrolled, beyond one a node
MAX_UNROLL = 256  # elements of one value computed separately
FREE_WORK = 4096  # elements a lone lane may process per pass
WORK_PER_LANE = 256


@dataclass(frozen=True, slots=True)
class KernelRegion:
    """A region node that kernels of `lanes` lanes may contain."""

    lanes: int
    report: LaneReport
    memory: frozenset[int]  # operands whose memory the lanes scatter into

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


def decide(graph: Graph, refused: dict[Node, Refusal]) -> Decision:
    """For every region node and stack operation of `graph` itself."""
    decision = Decision({}, {})
    for group in _stack_groups(graph):
        regions = [n for n in group if n.regions]
        outcome = _mixed(group, graph) or _fit(regions, refused) if _closed(group, graph) else None
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


def _fit(regions: Sequence[Node], refused: dict[Node, Refusal]) -> dict[Node, KernelRegion] | Refusal | None:
    """Kernel regions of one common number of lanes; a Refusal where there is none."""
    known = next((refused[n] for n in regions if n in refused), None)
    if known is not None:
        return known
    if not regions:
        return None
    first: Refusal | None = None
    for shape in _candidates(regions):
        outcome = {n: fits(n, shape) for n in regions}
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


def fits(node: Node, shape: tuple[int, ...]) -> KernelRegion | Refusal:
    """Whether one region node can run with these lanes."""
    report = lane_report(node, shape)
    if not report.local:
        where = f" at {report.culprit.loc}" if report.culprit is not None and report.culprit.loc else ""
        return Refusal(node, f"{report.reason}{where}")
    lanes = prod(shape)
    bill = _Bill(lanes)
    bill.region_node(node)
    reason = bill.verdict()
    if reason is not None:
        return Refusal(node, reason)
    memory = [memory_operand(Region.of(node), j) for j in range(len(node.results))]
    return KernelRegion(lanes, report, frozenset([i for i in memory if i is not None]))


class _Bill:
    """What one lane does in one pass through all bodies, roughly."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.ops = 0
        self.nodes = 0
        self.work = 0
        self.reason: str | None = None

    def verdict(self) -> str | None:
        if self.reason is not None:
            return self.reason
        if self.ops > MAX_OPS + self.nodes:
            return f"its body unrolls to about {self.ops} operations per lane (limit {MAX_OPS + self.nodes})"
        limit = FREE_WORK + WORK_PER_LANE * (self.lanes - 1)
        if self.ops + self.work > limit:
            return f"each of {self.lanes} lanes would process about {self.ops + self.work} elements per pass"
        return None

    def scalars(self, value: Value) -> int:
        """Elements of a value that belong to one lane."""
        type = value.type.element if isinstance(value.type, StackType) else value.type
        assert isinstance(type, TensorType)
        if self.lanes > 1 and leading_dims(type.shape, self.lanes) is not None:
            return type.size // self.lanes
        return type.size

    def region_node(self, node: Node) -> None:
        region = Region.of(node)
        loop = region if isinstance(region, Loop) else None
        held = [r for j, r in enumerate(node.results) if j not in region.shared]
        if loop is not None:
            held = [r for r in held if memory_operand(loop, r.index) is None]
        count, carried = len(held), sum(self.scalars(r) for r in held if isinstance(r.type, TensorType))
        if loop is not None and any(self.scalars(v) > MAX_UNROLL for v in held):
            carried = count + MAX_REGISTERS + 1
        limit = min(count + MAX_REGISTERS, MAX_CARRIES)
        if carried > limit:
            self.reason = self.reason or f"each lane would hold {carried} scalars (limit {limit})"
        if loop is not None and loop.lanes and self.lanes == 1 and self.scalars(loop.decider) > 1:
            self.reason = self.reason or "its lanes differ from those of the loop around it"
        for graph in node.regions:
            for inner in graph.nodes:
                self.node(inner)

    def node(self, node: Node) -> None:
        if node.regions:
            self.region_node(node)
            return
        if node.op in LIBRARY:
            self.reason = self.reason or f"{node.op} isn't done inside a lane"
            return
        self.nodes += 1
        count = max([self.scalars(r) for r in node.results], default=0)
        if PRIMITIVES[node.op].cost == 0:
            return
        if node.op == "scatter":
            self.spend(self.scalars(node.operands[-1]) * (1 if count > MAX_UNROLL else count))
        elif node.op == "matmul":
            self.spend(count * node.operands[0].shape[-1] * 2)
        elif PRIMITIVES[node.op].kind is Kind.REDUCTION:
            self.spend(self.scalars(node.operands[0]))
        elif node.op in RUNNING_TOTALS:
            self.spend(count * 2)
        else:
            self.spend(count)

    def spend(self, elements: int) -> None:
        if elements <= MAX_UNROLL:
            self.ops += elements
        else:
            self.ops += 8
            self.work += elements


def memory_operand(region: Region, result: int) -> int | None:
    """The operand of a top-level region whose memory a result is: one that scatters combine into."""
    if not isinstance(region, Loop):
        return memory_source(region, result) if result in region.shared else None
    if result in region.shared or (not region.lanes and is_accumulator(region, result)):
        return region.source(result)
    return None
