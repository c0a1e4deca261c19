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
- an upper bound is not batched: the largest one serves all.

    while i < n: x = x * a; i = i + 1       a batched: x batched, i and the predicate not: a uniform loop
                                            n batched: one lane per batch element, i and x batched
"""

from __future__ import annotations

from typing import NamedTuple

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Call, Loop, Region
from loopgrad.graph.types import StackType, TensorType

Flags = tuple[bool, ...]


class RegionPlan(NamedTuple):
    """How a region node is batched: which operands it must be given batched, which results are, and
    whether the batch axis becomes its first lane axis."""

    operands: Flags
    results: Flags
    per_lane: bool


class Flow:
    """The analysis of one graph and its regions; answers are remembered."""

    def __init__(self) -> None:
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
            if isinstance(region, Loop):
                known = self._loop(region, operands, masked)
            elif isinstance(region, Call) and not region.optional:
                known = self._ruled(region, operands, masked)
            else:
                known = self._switch(region, operands, masked)
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
        elif any(v in found for v in node.operands) and not is_bound(node):
            found.update(node.results)

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

    def _loop(self, loop: Loop, operands: Flags, masked: bool) -> RegionPlan:
        tensors = [loop.position(j) for j, v in enumerate(loop.inits) if isinstance(v.type, TensorType)]
        counts = list(range(loop.first))
        flags = list(operands)
        for j in loop.shared if masked else ():
            flags[loop.position(j)] = True
        per_lane = False
        while True:
            batched = any(flags[p] for p in tensors)
            per_lane = per_lane or (loop.lanes > 0 and (masked or batched)) or any(flags[p] for p in counts)
            if per_lane:
                for p in (*counts, *tensors):
                    flags[p] = True
            before, decided = list(flags), per_lane
            inside = self._region(loop.body, flags, masked or per_lane)
            for j, output in enumerate(loop.body.outputs):
                flags[loop.position(j)] |= output in inside
            if loop.condition is not None:
                inside = self._region(loop.condition, flags, masked or per_lane)
                per_lane |= loop.decider in inside
            if flags == before and per_lane == decided:
                return RegionPlan(tuple(flags), tuple(loop.split(flags).carries), per_lane)

    def _switch(self, switch: Region, operands: Flags, masked: bool) -> RegionPlan:
        """Also of any other region whose results are those of its bodies."""
        node, first = switch.node, switch.first
        flags = list(operands)
        results = [masked and p in switch.shared for p in range(len(node.results))]
        threaded = switch.threaded
        tensors = [p for p, r in enumerate(node.results) if isinstance(r.type, TensorType)]
        while True:
            batched = any(results[p] for p in tensors)
            per_lane = any(flags[:first]) or (switch.lanes > 0 and (masked or batched))
            if per_lane:
                flags[:first] = [True] * first
                for p in tensors:
                    results[p] = True
            before = (list(flags), list(results))
            for body in switch.bodies:
                inputs = flags[first:]
                inside = self._region(body, inputs, masked or per_lane)
                flags[first:] = inputs
                for p, output in enumerate(body.outputs):
                    results[p] |= output in inside
            for p, source in threaded.items():
                flags[source] = results[p] = flags[source] or results[p]
            if (flags, results) == before:
                return RegionPlan(tuple(flags), tuple(results), per_lane)

    def _ruled(self, call: Call, operands: Flags, masked: bool) -> RegionPlan:
        """A result is batched where the function or a rule makes it so. Under a mask all operands are: a cotangent that
        were summed over the batch would mix lanes."""
        flags = [masked or b for b in operands]
        tangents = [flags[i] for i in call.moving_operands] if call.kind == "jvp" else []
        places = [*range(len(call.node.results)), *(call.moving_results if call.kind == "jvp" else [])]
        results = [False] * len(call.node.results)
        for region, inputs in ((call.function, flags), (call.rules[0], [*flags, *tangents])):
            inside = self._region(region, inputs, masked)
            for p, output in zip(places, region.outputs, strict=False):
                results[p] |= output in inside
        return RegionPlan(tuple(flags), tuple(results), per_lane=False)

    def _region(self, region: Graph, flags: list[bool], masked: bool) -> frozenset[Value]:
        """The batched values of a region; stacks that turn batched in it are set in `flags`."""
        inside = self.batched(region, tuple(flags), masked)
        for p, v in enumerate(region.inputs):
            if isinstance(v.type, StackType) and v in inside:
                flags[p] = True
        return inside


def is_bound(node: Node) -> bool:
    """Whether the node makes an upper bound, see `ops.upper_bound`."""
    return node.op == "alias" and bool(node.attrs.get("bound"))
