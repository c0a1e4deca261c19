"""Which values differ between batch elements.

Enters: a Graph and which of its inputs are batched. Leaves: the set of its batched values. A result is
batched where an operand is; beyond that

- a carry is batched where its initial value is or where the body makes it so (a fixpoint);
- where a count, a predicate or an index is batched, every batch element becomes a lane of its own, and all
  carries or results are batched, because each lane stops or chooses by itself;
- where lanes lead the carries anyway, the batch axis must lead the lanes: batched carries make the count or
  predicate batched too. Under a lane mask (inside such a region) lane loops and shared accumulators are
  batched in any case: their lanes could be taken for those of the mask;
- a stack is batched from its making to its end where anything batched is pushed on it;
- an upper bound is not batched: the largest one serves all;
- what gathers along the named axis that is batched exists once, and what splits it is each element's own.

    while i < n: x = x * a; i = i + 1       a batched: x batched, i and the predicate not: a uniform loop
                                            n batched: one lane per batch element, i and x batched
"""

from __future__ import annotations

from typing import NamedTuple

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import NAMED_AXES
from loopgrad.graph.regions import Call, Loop, Region
from loopgrad.graph.types import StackType, TensorType

Flags = tuple[bool, ...]


class RegionPlan(NamedTuple):
    """How a region node is batched: which operands it must be given batched, which results are, and
    whether the batch axis becomes its first lane axis."""

    operands: Flags
    results: Flags
    per_lane: bool


class BatchAnalysis:
    """The analysis of one graph and its regions; answers are remembered. `level`: of the named axis that is batched."""

    def __init__(self, level: int | None = None) -> None:
        self.level = level
        self._graphs: dict[tuple[Graph, Flags, bool], frozenset[Value]] = {}
        self._plans: dict[tuple[Node, Flags, bool], RegionPlan] = {}

    def batched(self, graph: Graph, inputs: Flags, masked: bool) -> frozenset[Value]:
        """The batched values of `graph`; `masked`: it runs under a lane mask. Stack inputs may turn batched."""
        key = (graph, inputs, masked)
        known = self._graphs.get(key)
        if known is None:
            known = self._graphs[key] = self._walk(graph, inputs, masked)
        return known

    def plan(self, node: Node, operands: Flags, masked: bool) -> RegionPlan:
        key = (node, operands, masked)
        known = self._plans.get(key)
        if known is None:
            region = Region.of(node)
            if isinstance(region, Call) and not region.optional:
                known = self._ruled(region, operands, masked)
            else:
                known = self._fixpoint(region, operands, masked)
            self._plans[key] = known
        return known

    # ---- graphs

    def _walk(self, graph: Graph, inputs: Flags, masked: bool) -> frozenset[Value]:
        found = {v for v, b in zip(graph.inputs, inputs, strict=True) if b}
        for node in graph.nodes:
            self._visit(node, found, masked)
        stacks = any(isinstance(v.type, StackType) for node in graph.nodes for v in node.results)
        count = -1
        while stacks and count != len(found):  # what a push found out holds for the stack before it too
            count = len(found)
            for node in reversed(graph.nodes):
                self._visit(node, found, masked)
            for node in graph.nodes:
                self._visit(node, found, masked)
        return frozenset(found)

    def _visit(self, node: Node, found: set[Value], masked: bool) -> None:
        if node.regions:
            plan = self.plan(node, tuple([v in found for v in node.operands]), masked)
            found.update([r for r, b in zip(node.results, plan.results, strict=True) if b])
            self._unify_stacks(node, plan, found)
        elif node.op == "stack_new":
            return
        elif node.op in ("push", "pop"):
            stack = node.operands[0]
            if any(v in found for v in (*node.operands, node.results[0])):
                found.update((stack, *node.results))
        elif self.meets(node):
            if node.op == "axis_split" or (node.op == "axis_share" and node.operands[0] in found):
                found.update(node.results)
        elif any(v in found for v in node.operands) and not is_bound(node):
            found.update(node.results)

    def meets(self, node: Node) -> bool:
        """Whether the node is one in which the elements of this very batch meet."""
        return node.op in NAMED_AXES and node.attrs["level"] == self.level

    def _unify_stacks(self, node: Node, plan: RegionPlan, found: set[Value]) -> None:
        """A stack operand and the result that continues it are batched alike."""
        found.update(
            [v for v, b in zip(node.operands, plan.operands, strict=True) if b and isinstance(v.type, StackType)]
        )
        for result in node.results:
            if isinstance(result.type, StackType):
                stack = node.operands[Region.of(node).source(result.index)]
                if result in found or stack in found:
                    found.update((result, stack))

    # ---- regions

    def _fixpoint(self, region: Region, operands: Flags, masked: bool) -> RegionPlan:
        """A fixpoint: what a region makes batched may be what it starts with in the next trip, or what another branch
        continues."""
        marks = _Marks(region, operands, masked)
        before = None
        while before != marks.seen:
            before = marks.seen
            marks.choose_lanes(masked)
            for body in region.bodies:
                inside = self._region(body, marks, masked)
                for j, output in enumerate(body.outputs):
                    marks.results[j] |= output in inside
            if isinstance(region, Loop) and region.condition is not None:
                marks.per_lane |= region.decider in self._region(region.condition, marks, masked)
            marks.follow()
        return RegionPlan(*marks.seen)

    def _ruled(self, call: Call, operands: Flags, masked: bool) -> RegionPlan:
        """A result is batched where the function or a rule makes it so. With a rule of cotangents all of them are: each
        batch element has its own then, of which the rule makes what the batch shares is added up from. Under a mask all
        operands are: a cotangent that were summed over the batch would mix lanes."""
        flags = tuple([masked or b for b in operands])
        tangents = tuple([flags[i] for i in call.moving_operands]) if call.kind == "jvp" else ()
        places = [*range(len(call.node.results)), *(call.moving_results if call.kind == "jvp" else [])]
        results = [call.kind == "vjp" and any(flags)] * len(call.node.results)
        rules = [(rule, flags + tangents) for rule in call.rules[:1]]
        for region, inputs in ((call.function, flags), *rules):
            inside = self.batched(region, inputs, masked)
            for p, output in zip(places, region.outputs, strict=False):
                results[p] |= output in inside
        return RegionPlan(flags, tuple(results), per_lane=False)

    def _region(self, region: Graph, marks: _Marks, masked: bool) -> frozenset[Value]:
        """The batched values of a region; operands that are stacks and turn batched in it are marked."""
        offset = marks.region.offset
        inside = self.batched(region, tuple(marks.operands[offset:]), masked or marks.per_lane)
        for i, v in enumerate(region.inputs, offset):
            marks.operands[i] |= isinstance(v.type, StackType) and v in inside
        return inside


class _Marks:
    """What is known to be batched of a node whose regions run: marks are set, never taken away."""

    def __init__(self, region: Region, operands: Flags, masked: bool) -> None:
        self.region = region
        self.operands = list(operands)
        self.results = [masked and j in region.shared for j in range(len(region.node.results))]
        self.per_lane = False
        self._tensors = [r.index for r in region.node.results if isinstance(r.type, TensorType)]
        self._continued = region.continued
        self.follow()

    @property
    def seen(self) -> tuple[Flags, Flags, bool]:
        return tuple(self.operands), tuple(self.results), self.per_lane

    def choose_lanes(self, masked: bool) -> None:
        """Whether each batch element becomes a lane: where they differ in what decides, and where the node has lanes,
        in front of which the batch axis must stand if anything is batched. All tensors have it then."""
        region, first = self.region, self.region.first
        batched = any(self.results[j] for j in self._tensors)
        self.per_lane |= any(self.operands[:first]) or (region.lanes > 0 and (masked or batched))
        if self.per_lane:
            self.operands[:first] = [True] * first
            for j in self._tensors:
                self.results[j] = True
            self.follow()

    def follow(self) -> None:
        """A result and the operand that it continues are batched alike."""
        for result, operand in self._continued.items():
            self.operands[operand] = self.results[result] = self.operands[operand] or self.results[result]


def is_bound(node: Node) -> bool:
    """Whether the node makes an upper bound, see `ops.upper_bound`."""
    return node.op == "alias" and bool(node.attrs.get("bound"))
