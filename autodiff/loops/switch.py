"""Reverse of a switch: the branch that ran is pulled back, chosen by the same index.

Each branch becomes an augmented branch and a reverse branch (`loops.residuals`). The reverse switch takes the
operands again, so elementwise work is done anew from them; what is saved from inside a branch is an extra
result of the augmented switch. Slots of one type are shared by the branches, zero where a branch has nothing
to put there, so an untaken branch costs nothing and can't poison. Stacks of loops inside a branch are threaded
through the switch; the other branches hand them on.

    y = switch(p, [2 * x, sin(x)])   ->   x_adj = switch(p, [2 * y_adj, y_adj * cos(x)])

A saved index takes one byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from loopgrad.autodiff.activity import active_results, differentiable, useful_operands
from loopgrad.autodiff.loops.adjoint import active_hoisted, pull_hoisted, require_local, scattered, settle
from loopgrad.autodiff.loops.normal import (
    NormalCall,
    NormalSwitch,
    NotLaneLocalError,
    looked_up,
    normal_switch,
)
from loopgrad.autodiff.loops.residuals import (
    Joint,
    JointValues,
    ReverseInputs,
    ReversePart,
    Split,
    chosen,
    forward_part,
    reverse_part,
    split,
)
from loopgrad.autodiff.loops.saveable import stack_for, stack_like
from loopgrad.autodiff.loops.sizes import depth_of
from loopgrad.autodiff.pullback import Adjoints, Context, Freedom, explicit, pull
from loopgrad.graph import ops
from loopgrad.graph.build import emit, inline
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes.calls import without_plain
from loopgrad.graph.primitives.primitive import tensor_type
from loopgrad.graph.region_ops import tied
from loopgrad.graph.regions import Region, Switch, brings_rules, in_parts
from loopgrad.graph.signature import Signature
from loopgrad.graph.stacks import next_stack
from loopgrad.graph.types import StackType, TensorType, int8

Received = Sequence[Value | None]
Branching = NormalSwitch | NormalCall
T = TypeVar("T")

_NARROW_BRANCHES: Final = 127  # as many as int8 can tell apart


@dataclass(frozen=True, slots=True)
class CotangentFlow:
    """Positions: results with a cotangent; operands with a plain cotangent; operands that are tables, whose
    cotangent accumulates by scatters. `handed`: operands to which every branch hands on the cotangent of one
    result unchanged (an accumulator's), and the place of that result in `results`."""

    results: list[int]
    plain: list[int]
    tables: list[int]
    handed: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Branch:
    """One joint branch cut in two, and the values saved from inside it: in slots shared with other branches, or
    pushed."""

    parts: Split
    in_slots: list[Value]
    slots: list[int]
    pushed: list[Value]

    @property
    def saved(self) -> list[Value]:
        return [*self.in_slots, *self.pushed]

    @property
    def stacks(self) -> BranchStacks:
        """Stand-ins for its stacks."""
        return BranchStacks(self.parts.threads.made, [Value(StackType(tensor_type("push", v))) for v in self.pushed])


class BranchStacks(Signature):
    """The stacks of a branch: of loops inside it, and those for what it saves itself."""

    threaded: Sequence[Value]
    pushed: Sequence[Value]


def pull_switch(node: Node, received: Received, adjoints: Adjoints, context: Context) -> None:
    switch = normal_switch(node, context.lanes)
    adjoints.active |= active_hoisted(switch, adjoints)
    flow = flow_of(switch, received, adjoints)
    joints, flow = traced(switch, flow, context)
    cotangents = explicit([node.results[r] for r in flow.results], [received[r] for r in flow.results])
    if flow.plain or flow.tables:
        require_lanes(joints, switch, flow)
        _pull_branches(switch, joints, flow, cotangents, adjoints, context)
    for p, i in flow.handed.items():
        adjoints.add(switch.arguments[p], cotangents[i])
    pull_hoisted(switch, adjoints, context)


def _pull_branches(
    switch: NormalSwitch, joints: Sequence[Joint], flow: CotangentFlow, cotangents: Sequence[Value],
    adjoints: Adjoints, context: Context,
) -> None:  # fmt: skip
    """Emit the augmented and the reverse switch, and add up the cotangents they give."""
    branches = _cut(joints, switch, context)
    index = _narrow(switch, context)
    slots, stacks, anchor = _emit_augmented(switch, branches, context)
    starts = starts_of(switch, flow, adjoints)
    operands = ReverseOperands(switch.arguments, (*cotangents, *starts.values()), slots, stacks)
    results = _emit_reverse(switch, branches, joints, index, operands)
    given = dict(zip(flow.results, cotangents, strict=True))
    require_local(results[0], switch, [given.get(r) for r in range(len(switch.node.results))], context)
    settle_flow(switch, flow, starts, tied(results, anchor) if anchor else results, adjoints)


def settle_flow(
    switch: Branching, flow: CotangentFlow, starts: dict[int, Value], results: Sequence[Value], adjoints: Adjoints
) -> None:
    """Enter the cotangents that the reverse node gives."""
    continues = [False] * len(flow.plain)
    continues += [start is adjoints.get(switch.arguments[p]) for p, start in starts.items()]
    targets = [switch.arguments[p] for p in (*flow.plain, *flow.tables)]
    settle(list(zip(targets, results, continues, strict=False)), adjoints)


# ---- what flows


def flow_of(switch: Branching, received: Received, adjoints: Adjoints) -> CotangentFlow:
    node = switch.original
    active = [v in adjoints.active and differentiable(v.type) for v in switch.arguments]
    depends = active_results(node, [v in adjoints.active for v in node.operands])
    useful = useful_operands(node, [ct is not None for ct in received])
    continued = [_continued(node, i) for i in Region.of(node).captured]
    popped = {r for r, flag in zip(continued, useful[switch.first :], strict=True) if flag}
    results = [r for r, flag in enumerate(depends) if flag and (received[r] is not None or r in popped)]
    tables = [p for p, flag in enumerate(active) if flag and any(looked_up(b, b.inputs[p]) for b in switch.bodies)]
    # what is left of cotangents that are popped on a stack's way through the node is a result, also where the stack
    # began empty and nobody asks, because a further derivative follows it to its end
    handed_back = [p for p, r in enumerate(continued) if r in results]
    plain = [p for p, flag in enumerate(active) if (flag and p not in tables) or p in handed_back]
    return CotangentFlow(results, plain, tables)


def _continued(node: Node, operand: int) -> int | None:
    """The result that continues an operand which is a stack."""
    is_stack = isinstance(node.operands[operand].type, StackType)
    following = next_stack(node, operand) if is_stack else None
    return None if following is None else following.index


def traced(switch: Branching, flow: CotangentFlow, context: Context) -> tuple[list[Joint], CotangentFlow]:
    """The joint branches, and the flow without operands that no branch sends a cotangent to."""
    ends, reached = [], set[int]()
    for branch in switch.bodies:
        joint, hits = _traced_branch(branch, switch, flow, context)
        ends.append((joint.inputs, joint.outputs))
        reached |= hits
    handed = {
        p: i
        for q, p in enumerate(flow.plain)
        for i in range(len(flow.results))
        if p in reached and all(after.cotangents[q] is before.cotangents[i] for before, after in ends)
    }
    sent = [q for q, p in enumerate(flow.plain) if p in reached and p not in handed]
    pairs = [(before.accumulators, after.accumulators) for before, after in ends]
    changed = [i for i in range(len(flow.tables)) if any(after[i] is not before[i] for before, after in pairs)]
    joints = []
    for before, after in ends:
        inputs = before.replaced(accumulators=_at(changed, before.accumulators))
        outputs = JointValues(after.primal, _at(sent, after.cotangents), _at(changed, after.accumulators))
        graph = extract(outputs.values, inputs.values)
        joints.append(Joint(graph, inputs, outputs.split(graph.outputs)))
    return joints, CotangentFlow(flow.results, _at(sent, flow.plain), _at(changed, flow.tables), handed)


def _at(places: Sequence[int], values: Sequence[T]) -> list[T]:
    return [values[i] for i in places]


def _traced_branch(branch: Graph, switch: Branching, flow: CotangentFlow, context: Context) -> tuple[Joint, set[int]]:
    reached: set[int] = set()

    def function(given: JointValues) -> list[Value]:
        operands = given.primal
        outputs = inline(branch, operands)
        free = Freedom({a: context.is_free(v) for a, v in zip(operands, switch.arguments, strict=True)})
        inner = replace(context, nested=True, lanes=switch.within, is_free=free)
        wrt = [operands[p] for p in (*flow.plain, *flow.tables)]
        before = [*[None] * len(flow.plain), *given.accumulators]
        adjoint = pull([outputs[i] for i in flow.results], given.cotangents, wrt, inner, before)
        reached.update(p for p, ct in zip(flow.plain, adjoint, strict=False) if ct is not None)
        return [*outputs, *explicit(wrt, adjoint)]

    tables = _at(flow.tables, branch.inputs)
    inputs = JointValues(branch.inputs, _at(flow.results, branch.outputs), tables)
    outputs = JointValues(branch.outputs, _at(flow.plain, branch.inputs), tables)
    graph = without_plain(inputs.traced(function))
    return Joint(graph, inputs.split(graph.inputs), outputs.split(graph.outputs)), reached


def require_lanes(joints: Sequence[Joint], switch: Branching, flow: CotangentFlow) -> None:
    """Inside lanes, a cotangent without the lane dims can only accumulate by scatters."""
    lanes = switch.within
    for p in flow.plain:
        type = switch.arguments[p].type
        if isinstance(type, TensorType) and type.shape[: len(lanes)] != lanes:
            raise NotLaneLocalError
    for i, p in enumerate(flow.tables):
        if switch.arguments[p].shape[: len(lanes)] != lanes and not only_scattered(joints, i, lanes):
            raise NotLaneLocalError


def only_scattered(joints: Sequence[Joint], table: int, lanes: tuple[int, ...]) -> bool:
    """Whether every branch hands on the accumulator of this table, or only scatters into it."""
    for graph, inputs, outputs in joints:
        before, after = inputs.accumulators[table], outputs.accumulators[table]
        if after is not before and not scattered(graph, before, after, lanes):
            return False
    return True


# ---- cutting the branches


def _cut(joints: Sequence[Joint], switch: NormalSwitch, context: Context) -> list[Branch]:
    branches: list[Branch] = []
    slots: list[TensorType] = []
    for joint in joints:
        outputs = joint.outputs
        parts = split(joint.inputs, outputs.primal, (*outputs.cotangents, *outputs.accumulators))
        operands = zip(joint.inputs.primal, switch.arguments, strict=True)
        paid = {v for v, outer in operands if not context.is_free(outer)}
        inside = [v for v in chosen(parts, paid, near_sources=True).saved if v not in paid]
        lanes = switch.lane_shape
        pushed = [v for v in inside if v.shape[: len(lanes)] != lanes]
        in_slots = [v for v in inside if v not in pushed]
        branches.append(Branch(parts, in_slots, _slots(in_slots, slots), pushed))
    return branches


def _slots(values: Sequence[Value], slots: list[TensorType]) -> list[int]:
    """A slot of the right type for each value; `slots` grows by those that are missing."""
    taken: list[int] = []
    for v in values:
        wanted = tensor_type("switch", v)
        free = [i for i, s in enumerate(slots) if s == wanted and i not in taken]
        if not free:
            slots.append(wanted)
        taken.append(free[0] if free else len(slots) - 1)
    return taken


def _slot_types(branches: Sequence[Branch]) -> list[TensorType]:
    found = {i: tensor_type("switch", v) for b in branches for i, v in zip(b.slots, b.in_slots, strict=True)}
    return [found[i] for i in range(len(found))]


def _new_stacks(branch: Branch, depths: Sequence[Value | None]) -> Sequence[Value]:
    """Empty stacks for the branch."""
    made = branch.parts.threads.made
    threaded, own = in_parts(depths, len(made), len(branch.pushed))
    marks = [branch.parts.saveable.get(v, v) for v in branch.pushed]
    pushed = [stack_for(v, depth, "branch") for v, depth in zip(marks, own, strict=True)]
    return BranchStacks([stack_like(v, d) for v, d in zip(made, threaded, strict=True)], pushed).values


def _narrow(switch: Switch, context: Context) -> Value:
    """The index in one byte, where it will have to be saved."""
    index, last = switch.index, len(switch.branches) - 1
    if index.dtype.bits <= 8 or last > _NARROW_BRANCHES or context.is_free(index):
        return index
    return ops.cast(ops.min(ops.max(index, 0), last), int8)


# ---- the two switches


class AugmentedOperands(Signature):
    """What an augmented branch takes: the operands, and the stacks of all branches."""

    operands: Sequence[Value]
    stacks: Sequence[Value]


class AugmentedBranch(Signature):
    """What an augmented branch gives: the results, the slots, and the stacks of all branches."""

    results: Sequence[Value]
    slots: Sequence[Value]
    stacks: Sequence[Value]


def _emit_augmented(
    switch: NormalSwitch, branches: Sequence[Branch], context: Context
) -> tuple[Sequence[Value], Sequence[Value], Sequence[Value]]:
    """Emit the switch again with slots and stacks as extra results, which are returned; none, no switch. Unless it
    calls functions that bring rules, which are inline in this one: a result of it comes last."""
    types, stacks = _slot_types(branches), [v for b in branches for v in b.stacks.values]
    if not types and not stacks and not any(map(brings_rules, switch.branches)):
        return (), (), ()
    given = AugmentedOperands(switch.arguments, stacks)
    graphs = [_augmented_branch(branches, number, given, types) for number in range(len(branches))]
    augmented = Switch.of(switch.rebuilt(branches=graphs).node(switch.node.loc))
    first = switch.first + len(given.operands)
    depths = [None if context.nested else depth_of(augmented, first + i) for i in range(len(stacks))]
    own = in_parts(depths, *[len(b.stacks.values) for b in branches])
    made = [v for b, found in zip(branches, own, strict=True) for v in _new_stacks(b, found)]
    form = switch.rebuilt(operands=given.replaced(stacks=made).values, branches=graphs)
    everything = emit(*form, switch.original)
    results = AugmentedBranch(switch.node.results, [Value(t) for t in types], stacks).split(everything)
    return results.slots, results.stacks, () if types or stacks else results.results[:1]


def _augmented_branch(
    branches: Sequence[Branch], number: int, given: AugmentedOperands, slots: Sequence[TensorType]
) -> Graph:
    branch = branches[number]
    part = forward_part(branch.parts, branch.saved)

    def function(given: AugmentedOperands) -> Sequence[Value]:
        stacks = _by_branch(branches, given.stacks)
        made = part.inlined(given.operands, stacks[number].threaded)
        in_slots, values = in_parts(made.saved, len(branch.slots), len(branch.pushed))
        filled = dict(zip(branch.slots, in_slots, strict=True))
        pushed = [ops.push(s, v) for s, v in zip(stacks[number].pushed, values, strict=True)]
        stacks[number] = BranchStacks(made.filled, pushed)
        all_slots = [filled[i] if i in filled else ops.full(0, t) for i, t in enumerate(slots)]
        return AugmentedBranch(made.primal, all_slots, [v for s in stacks for v in s.values]).values

    return given.traced(function)


def _by_branch(branches: Sequence[Branch], stacks: Sequence[Value]) -> list[BranchStacks]:
    """The stacks of all branches, each branch's by themselves."""
    own = [branch.stacks for branch in branches]
    parts = in_parts(stacks, *[len(s.values) for s in own])
    return [s.split(part) for s, part in zip(own, parts, strict=True)]


def starts_of(switch: Region, flow: CotangentFlow, adjoints: Adjoints) -> dict[int, Value]:
    """Where the accumulators of tables start: from what has accumulated, each table once."""
    starts: dict[int, Value] = {}
    for p in flow.tables:
        table = switch.arguments[p]
        known = adjoints.get(table)
        starts[p] = ops.zeros_like(table) if known is None or known in starts.values() else known
    return starts


class ReverseOperands(Signature):
    """What a reverse branch takes: the operands that are read, cotangents and accumulators, the slots, and the stacks
    of all branches."""

    outside: Sequence[Value]
    adjoint: Sequence[Value]
    slots: Sequence[Value]
    stacks: Sequence[Value]


def _emit_reverse(
    switch: NormalSwitch, branches: Sequence[Branch], joints: Sequence[Joint], index: Value, given: ReverseOperands
) -> Sequence[Value]:
    """Plain cotangents, accumulators. `given` has all operands, of which only those that are read are taken."""
    parts = [_reverse_part(b) for b in branches]
    read = sorted({i for part in parts for i in part.read})
    given = given.replaced(outside=_at(read, given.outside))
    graphs = [_reverse_branch(branches, number, part.taking(read), given) for number, part in enumerate(parts)]
    plain, tables = len(joints[0].outputs.cotangents), len(joints[0].outputs.accumulators)
    shared = [plain + i for i in range(tables) if only_scattered(joints, i, switch.within)]
    attrs = {"lanes": switch.lanes, "shared": tuple(shared)}
    return emit("switch", (index, *given.values), attrs, tuple(graphs))


def _reverse_part(branch: Branch) -> ReversePart:
    inputs = branch.parts.inputs
    return reverse_part(branch.parts, inputs.primal, (*inputs.cotangents, *inputs.accumulators), branch.saved)


def _reverse_branch(branches: Sequence[Branch], number: int, part: ReversePart, given: ReverseOperands) -> Graph:
    branch = branches[number]

    def function(given: ReverseOperands) -> list[Value]:
        stacks = _by_branch(branches, given.stacks)
        popped = [ops.pop(s) for s in stacks[number].pushed]
        saved = [*_at(branch.slots, given.slots), *(v for _, v in popped)]
        made = part.inlined(ReverseInputs(given.outside, given.adjoint, saved, stacks[number].threaded))
        stacks[number] = BranchStacks(made.emptied, [s for s, _ in popped])
        return [*made.adjoint, *(v for s in stacks for v in s.values)]

    return given.traced(function)
