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
from typing import Final, NamedTuple, TypeVar

from loopgrad.autodiff.activity import active_results, differentiable, useful_operands
from loopgrad.autodiff.loops.adjoint import active_hoisted, pull_hoisted, require_local, scattered, settle
from loopgrad.autodiff.loops.kept import Names, kept, marked, stack_like
from loopgrad.autodiff.loops.normal import (
    NormalCall,
    NormalSwitch,
    NotLaneLocalError,
    looked_up,
    normal_switch,
    without_inputs,
)
from loopgrad.autodiff.loops.residuals import Split, chosen, forward_nodes, forward_part, reverse_part, split
from loopgrad.autodiff.loops.sizes import depth_of
from loopgrad.autodiff.pullback import Adjoints, Context, Freedom, explicit, pull
from loopgrad.graph import ops
from loopgrad.graph.build import emit, inline, trace
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes.calls import without_plain
from loopgrad.graph.primitives.primitive import tensor_type
from loopgrad.graph.rebuild import read_values
from loopgrad.graph.region_ops import tied
from loopgrad.graph.regions import Region, Switch, brings_rules, in_parts
from loopgrad.graph.stacks import next_stack, stack_type
from loopgrad.graph.types import StackType, TensorType, int8

Received = Sequence[Value | None]
Branching = NormalSwitch | NormalCall
T = TypeVar("T")

_NARROW_BRANCHES: Final = 127  # as many as int8 can tell apart


@dataclass(frozen=True, slots=True)
class Flow:
    """Positions: results with a cotangent; operands with a plain cotangent; operands that are tables, whose
    cotangent accumulates by scatters. `handed`: operands to which every branch hands on the cotangent of one
    result unchanged (an accumulator's), and the place of that result in `results`."""

    results: list[int]
    plain: list[int]
    tables: list[int]
    handed: dict[int, int] = field(default_factory=dict)


class Slot(NamedTuple):
    """A result of the augmented switch for values of this type; for kept ones of this name alone."""

    type: TensorType
    kept: bool
    name: str | None


@dataclass(frozen=True, slots=True)
class Branch:
    """One joint branch, (operands, cotangents, accumulators) -> (results, plain cotangents, accumulators), cut
    in two, and the values saved from inside it: in slots shared with other branches, or pushed. `kept`: by a policy."""

    parts: Split
    in_slots: list[Value]
    slots: list[int]
    pushed: list[Value]
    kept: Names


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
    switch: NormalSwitch, joints: Sequence[Graph], flow: Flow, cotangents: Sequence[Value],
    adjoints: Adjoints, context: Context,
) -> None:  # fmt: skip
    """Emit the augmented and the reverse switch, and add up the cotangents they give."""
    branches = _cut(joints, switch, context)
    index = _narrow(switch, context)
    slots, stacks, anchor = _emit_augmented(switch, branches, context)
    starts = starts_of(switch, flow, adjoints)
    results = _emit_reverse(switch, branches, flow, index, cotangents, list(starts.values()), slots, stacks)
    given = dict(zip(flow.results, cotangents, strict=True))
    require_local(results[0], switch, [given.get(r) for r in range(len(switch.node.results))], context)
    settle_flow(switch, flow, starts, tied(results, anchor) if anchor else results, adjoints)


def settle_flow(
    switch: Branching, flow: Flow, starts: dict[int, Value], results: Sequence[Value], adjoints: Adjoints
) -> None:
    """Enter the cotangents that the reverse node gives."""
    continues = [False] * len(flow.plain)
    continues += [start is adjoints.get(switch.arguments[p]) for p, start in starts.items()]
    targets = [switch.arguments[p] for p in (*flow.plain, *flow.tables)]
    settle(list(zip(targets, results, continues, strict=False)), adjoints)


# ---- what flows


def flow_of(switch: Branching, received: Received, adjoints: Adjoints) -> Flow:
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
    return Flow(results, plain, tables)


def _continued(node: Node, operand: int) -> int | None:
    """The result that continues an operand which is a stack."""
    is_stack = isinstance(node.operands[operand].type, StackType)
    following = next_stack(node, operand) if is_stack else None
    return None if following is None else following.index


def _inputs(switch: Branching, flow: Flow, values: Sequence[T]) -> list[Sequence[T]]:
    """Operands, cotangents, accumulators: what there is one of for each input of a joint branch."""
    return in_parts(values, len(switch.arguments), len(flow.results), len(flow.tables))


def _outputs(switch: Branching, flow: Flow, values: Sequence[T]) -> list[Sequence[T]]:
    """Results, plain cotangents, accumulators: what there is one of for each output of a joint branch."""
    return in_parts(values, len(switch.node.results), len(flow.plain), len(flow.tables))


def traced(switch: Branching, flow: Flow, context: Context) -> tuple[list[Graph], Flow]:
    """The joint branches, and the flow without operands that no branch sends a cotangent to."""
    graphs, reached = [], set[int]()
    for branch in switch.bodies:
        graph, hits = _traced_branch(branch, switch, flow, context)
        graphs.append(graph)
        reached |= hits
    ends = [(_inputs(switch, flow, g.inputs), _outputs(switch, flow, g.outputs)) for g in graphs]
    handed = {
        p: i
        for q, p in enumerate(flow.plain)
        for i in range(len(flow.results))
        if p in reached and all(found[q] is cotangents[i] for (_, cotangents, _), (_, found, _) in ends)
    }
    plain = [p for p in flow.plain if p in reached and p not in handed]
    pairs = [(before, after) for (_, _, before), (_, _, after) in ends]
    changed = [i for i in range(len(flow.tables)) if any(after[i] is not before[i] for before, after in pairs)]
    tables = [flow.tables[i] for i in changed]
    joints = []
    for (operands, cotangents, before), (results, found, after) in ends:
        sent = [ct for p, ct in zip(flow.plain, found, strict=True) if p in plain]
        outputs = (*results, *sent, *(after[i] for i in changed))
        joints.append(extract(outputs, (*operands, *cotangents, *(before[i] for i in changed))))
    return joints, Flow(flow.results, plain, tables, handed)


def _traced_branch(branch: Graph, switch: Branching, flow: Flow, context: Context) -> tuple[Graph, set[int]]:
    types = [
        *branch.input_types,
        *(branch.outputs[i].type for i in flow.results),
        *(branch.inputs[p].type for p in flow.tables),
    ]
    reached: set[int] = set()

    def function(*arguments: Value) -> list[Value]:
        operands, given, accumulated = _inputs(switch, flow, arguments)
        outputs = inline(branch, operands)
        free = Freedom({a: context.is_free(v) for a, v in zip(operands, switch.arguments, strict=True)})
        inner = replace(context, nested=True, lanes=switch.within, is_free=free)
        wrt = [operands[p] for p in (*flow.plain, *flow.tables)]
        before = [*[None] * len(flow.plain), *accumulated]
        adjoint = pull([outputs[i] for i in flow.results], given, wrt, inner, before)
        reached.update(p for p, ct in zip(flow.plain, adjoint, strict=False) if ct is not None)
        return [*outputs, *explicit(wrt, adjoint)]

    return without_plain(trace(function, types)[0]), reached


def require_lanes(joints: Sequence[Graph], switch: Branching, flow: Flow) -> None:
    """Inside lanes, a cotangent without the lane dims can only accumulate by scatters."""
    lanes = switch.within
    for p in flow.plain:
        type = switch.arguments[p].type
        if isinstance(type, TensorType) and type.shape[: len(lanes)] != lanes:
            raise NotLaneLocalError
    for i, p in enumerate(flow.tables):
        if switch.arguments[p].shape[: len(lanes)] != lanes and not only_scattered(joints, switch, flow, i):
            raise NotLaneLocalError


def only_scattered(joints: Sequence[Graph], switch: Branching, flow: Flow, table: int) -> bool:
    for graph in joints:
        before = _inputs(switch, flow, graph.inputs)[-1][table]
        after = _outputs(switch, flow, graph.outputs)[-1][table]
        if after is not before and not scattered(graph, before, after, switch.within):
            return False
    return True


# ---- cutting the branches


def _cut(joints: Sequence[Graph], switch: NormalSwitch, context: Context) -> list[Branch]:
    n, results, branches = len(switch.arguments), len(switch.node.results), []
    slot_types: list[Slot] = []
    for joint in joints:
        parts = split(joint, n, results)
        operands = joint.inputs[:n]
        paid = {v for v, outer in zip(operands, switch.arguments, strict=True) if not context.is_free(outer)}
        names = kept(forward_nodes(parts), context.save, operands)
        saved = chosen(parts, paid, near_sources=True, kept=names)
        inside = [v for v in saved if v not in paid]
        lanes = switch.lane_shape
        pushed = [v for v in inside if v.shape[: len(lanes)] != lanes]
        in_slots = [v for v in inside if v not in pushed]
        branches.append(Branch(parts, in_slots, _slots(in_slots, slot_types, names), pushed, names))
    return branches


def _slots(values: Sequence[Value], slots: list[Slot], names: Names) -> list[int]:
    """A slot of the right type for each value; `slots` grows by those that are missing."""
    taken: list[int] = []
    for v in values:
        wanted = _slot(v, names)
        free = [i for i, s in enumerate(slots) if s == wanted and i not in taken]
        if not free:
            slots.append(wanted)
        taken.append(free[0] if free else len(slots) - 1)
    return taken


def _slot(value: Value, names: Names) -> Slot:
    return Slot(tensor_type("switch", value), value in names, names.get(value))


def _slot_rows(branches: Sequence[Branch]) -> list[Slot]:
    found = {i: _slot(v, b.kept) for b in branches for i, v in zip(b.slots, b.in_slots, strict=True)}
    return [found[i] for i in range(len(found))]


def _stack_types(branch: Branch) -> list[StackType]:
    made = [stack_type(v) for v in branch.parts.threads.made]
    return [*made, *(StackType(tensor_type("push", v)) for v in branch.pushed)]


def _new_stacks(branch: Branch, depths: Sequence[Value | None]) -> list[Value]:
    """An empty stack for each of `_stack_types`."""
    made = [stack_like(v, d) for v, d in zip(branch.parts.threads.made, depths, strict=False)]
    for v, depth in zip(branch.pushed, depths[len(made) :], strict=True):
        name = branch.kept.get(v) or "branch"
        made.append(ops.stack_new(tensor_type("push", v), depth, name, kept=v in branch.kept))
    return made


def _narrow(switch: Switch, context: Context) -> Value:
    """The index in one byte, where it will have to be saved."""
    index, last = switch.index, len(switch.branches) - 1
    if index.dtype.bits <= 8 or last > _NARROW_BRANCHES or context.is_free(index):
        return index
    return ops.cast(ops.min(ops.max(index, 0), last), int8)


# ---- the two switches


def _emit_augmented(
    switch: NormalSwitch, branches: Sequence[Branch], context: Context
) -> tuple[Sequence[Value], Sequence[Value], Sequence[Value]]:
    """Emit the switch again with slots and stacks as extra results, which are returned; none, no switch. Unless it
    calls functions that bring rules, which are inline in this one: a result of it comes last."""
    slots = _slot_rows(branches)
    stacks = [t for b in branches for t in _stack_types(b)]
    if not slots and not stacks and not any(map(brings_rules, switch.branches)):
        return (), (), ()
    types, n = [v.type for v in switch.arguments], len(switch.arguments)
    graphs, offset = [], 0
    for branch in branches:
        graphs.append(_augmented_branch(branch, types, stacks, [s.type for s in slots], offset))
        offset += len(_stack_types(branch))
    augmented = Switch.of(switch.rebuilt(branches=graphs).node(switch.node.loc))
    places = range(switch.first + n, switch.first + n + len(stacks))
    depths = iter([None if context.nested else depth_of(augmented, i) for i in places])
    made = [v for b in branches for v in _new_stacks(b, [next(depths) for _ in _stack_types(b)])]
    results = emit(*switch.rebuilt(operands=(*switch.arguments, *made), branches=graphs), switch.original)
    _, filled, pushed = in_parts(results, len(switch.node.results), len(slots), len(stacks))
    held = [marked(v, s.name) if s.kept else v for v, s in zip(filled, slots, strict=True)]
    return held, pushed, () if slots or stacks else results[:1]


def _augmented_branch(
    branch: Branch,
    types: Sequence[TensorType | StackType],
    all_stacks: Sequence[StackType],
    slots: Sequence[TensorType],
    offset: int,
) -> Graph:
    parts, own, results = branch.parts, len(_stack_types(branch)), branch.parts.primal_outputs
    part = forward_part(parts, parts.joint.inputs[: len(types)], (*branch.in_slots, *branch.pushed))
    threaded, pushing = len(parts.threads.made), len(branch.pushed)

    def function(*arguments: Value) -> list[Value]:
        operands, stacks = in_parts(arguments, len(types), len(all_stacks))
        empty, mine = in_parts(stacks[offset : offset + own], threaded, pushing)
        outputs = inline(part, (*operands, *empty))
        following, threads, in_slots, values = in_parts(outputs, results, threaded, len(branch.slots), pushing)
        filled = dict(zip(branch.slots, in_slots, strict=True))
        pushed = [ops.push(s, v) for s, v in zip(mine, values, strict=True)]
        given = [filled[i] if i in filled else ops.full(0, t) for i, t in enumerate(slots)]
        return [*following, *given, *stacks[:offset], *threads, *pushed, *stacks[offset + own :]]

    return trace(function, [*types, *all_stacks])[0]


def starts_of(switch: Region, flow: Flow, adjoints: Adjoints) -> dict[int, Value]:
    """Where the accumulators of tables start: from what has accumulated, each table once."""
    starts: dict[int, Value] = {}
    for p in flow.tables:
        table = switch.arguments[p]
        known = adjoints.get(table)
        starts[p] = ops.zeros_like(table) if known is None or known in starts.values() else known
    return starts


def _emit_reverse(
    switch: NormalSwitch, branches: Sequence[Branch], flow: Flow, index: Value, cotangents: Sequence[Value],
    starts: Sequence[Value], slots: Sequence[Value], stacks: Sequence[Value],
) -> tuple[Value, ...]:  # fmt: skip
    """`starts`: of the accumulators. Returns plain cotangents, accumulators."""
    n, reverse = len(switch.arguments), [_reverse_part(b) for b in branches]
    read = [i for i in range(n) if any(g.inputs[i] in read_values(g) for g in reverse)]
    segments = ([switch.arguments[i] for i in read], (*cotangents, *starts), slots, stacks)
    graphs, offset = [], 0
    for branch, part in zip(branches, reverse, strict=True):
        pruned = without_inputs(part, set(range(n)) - set(read))
        graphs.append(_reverse_branch(branch, pruned, segments, offset))
        offset += len(_stack_types(branch))
    joints = [b.parts.joint for b in branches]
    shared = [len(flow.plain) + i for i in range(len(flow.tables)) if only_scattered(joints, switch, flow, i)]
    attrs = {"lanes": switch.lanes, "shared": tuple(shared)}
    return emit("switch", (index, *(v for segment in segments for v in segment)), attrs, tuple(graphs))


def _reverse_part(branch: Branch) -> Graph:
    """(operands, cotangents, accumulators, saved values, filled stacks) -> (cotangents, emptied stacks)"""
    joint, results = branch.parts.joint, branch.parts.primal_outputs
    inputs = (*joint.inputs, *branch.in_slots, *branch.pushed)
    return reverse_part(branch.parts, inputs, joint.outputs[results:])


def _reverse_branch(branch: Branch, part: Graph, segments: Sequence[Sequence[Value]], offset: int) -> Graph:
    """`segments`: the operands that are read, cotangents and accumulators, slots, stacks of all branches."""
    own, threaded = len(_stack_types(branch)), len(branch.parts.threads.made)
    emitted = len(part.outputs) - threaded

    def function(*arguments: Value) -> list[Value]:
        operands, adjoints, in_slots, stacks = in_parts(arguments, *map(len, segments))
        filled, mine = in_parts(stacks[offset : offset + own], threaded, len(branch.pushed))
        popped = [ops.pop(s) for s in mine]
        saved = [*(in_slots[i] for i in branch.slots), *(v for _, v in popped)]
        cotangents, emptied = in_parts(inline(part, (*operands, *adjoints, *saved, *filled)), emitted, threaded)
        return [*cotangents, *stacks[:offset], *emptied, *(s for s, _ in popped), *stacks[offset + own :]]

    return trace(function, [v.type for segment in segments for v in segment])[0]
