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
from dataclasses import dataclass, field
from typing import Final

from loopgrad.autodiff.activity import active_results, differentiable, useful_operands
from loopgrad.autodiff.loops.adjoint import active_hoisted, pull_hoisted, require_local, scattered, settle
from loopgrad.autodiff.loops.normal import Normal, NotLaneLocalError, looked_up, normalized, without_inputs
from loopgrad.autodiff.loops.residuals import (
    Split,
    Threads,
    chosen,
    forward_part,
    next_stack,
    reverse_part,
    split,
    stack_type,
)
from loopgrad.autodiff.loops.sizes import switch_depth
from loopgrad.autodiff.pullback import Adjoints, Context, Freedom, explicit, pull
from loopgrad.graph import ops
from loopgrad.graph.build import emit, inline, trace
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import dce
from loopgrad.graph.passes.carries import run as without_dead_carries
from loopgrad.graph.primitives.primitive import tensor_type
from loopgrad.graph.rebuild import read_values
from loopgrad.graph.regions import lane_shape
from loopgrad.graph.types import StackType, TensorType, int8

Received = Sequence[Value | None]

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


@dataclass(frozen=True, slots=True)
class Branch:
    """One joint branch, (operands, cotangents, accumulators) -> (results, plain cotangents, accumulators), cut
    in two, and the values saved from inside it: in slots shared with other branches, or pushed."""

    parts: Split
    in_slots: list[Value]
    slots: list[int]
    pushed: list[Value]


def pull_switch(node: Node, received: Received, adjoints: Adjoints, context: Context) -> None:
    normal = normalized(node, context.lanes)
    adjoints.active |= active_hoisted(node, normal, adjoints)
    lanes = lane_shape(node) or context.lanes
    flow = _flow(node, normal, received, adjoints)
    joints, flow = _traced(normal, flow, context, lanes)
    cotangents = explicit([node.results[r] for r in flow.results], [received[r] for r in flow.results])
    if flow.plain or flow.tables:
        _require_lanes(joints, normal, flow, lanes)
        _pull_branches(node, normal, joints, flow, cotangents, adjoints, context)
    for p, i in flow.handed.items():
        adjoints.add(normal.operands[1 + p], cotangents[i])
    pull_hoisted(node, normal, adjoints, context)


def _pull_branches(
    node: Node, normal: Normal, joints: Sequence[Graph], flow: Flow, cotangents: Sequence[Value],
    adjoints: Adjoints, context: Context,
) -> None:  # fmt: skip
    """Emit the augmented and the reverse switch, and add up the cotangents they give."""
    branches = _cut(joints, node, normal, flow, context)
    index = _narrow(node, context)
    extra = _emit_augmented(node, normal, branches, context)
    starts = _starts(normal, flow, adjoints)
    lanes = lane_shape(node) or context.lanes
    results = _emit_reverse(node, normal, branches, flow, index, (*cotangents, *starts.values(), *extra), lanes)
    given = dict(zip(flow.results, cotangents, strict=True))
    require_local(results[0], node, [given.get(r) for r in range(len(node.results))], context)
    continues = [False] * len(flow.plain)
    continues += [start is adjoints.get(normal.operands[1 + p]) for p, start in starts.items()]
    targets = [normal.operands[1 + p] for p in (*flow.plain, *flow.tables)]
    settle(list(zip(targets, results, continues, strict=False)), adjoints)


# ---- what flows


def _flow(node: Node, normal: Normal, received: Received, adjoints: Adjoints) -> Flow:
    operands = normal.operands[1:]
    active = [v in adjoints.active and differentiable(v.type) for v in operands]
    depends = active_results(node, [v in adjoints.active for v in node.operands])
    useful = useful_operands(node, [ct is not None for ct in received])
    popped = {
        next_stack(node, i).index for i, v in enumerate(node.operands) if useful[i] and isinstance(v.type, StackType)
    }
    results = [r for r, flag in enumerate(depends) if flag and (received[r] is not None or r in popped)]
    tables = [p for p, flag in enumerate(active) if flag and any(looked_up(b, b.inputs[p]) for b in normal.regions)]
    plain = [p for p, flag in enumerate(active) if (flag and p not in tables) or _handed_back(node, normal, p, results)]
    return Flow(results, plain, tables)


def _handed_back(node: Node, normal: Normal, operand: int, results: Sequence[int]) -> bool:
    """Whether an operand is a stack on whose way through the node cotangents are popped: what is left of them is a
    result, also where the stack began empty and nobody asks, because a further derivative follows it to its end."""
    is_stack = isinstance(normal.operands[1 + operand].type, StackType)
    return is_stack and next_stack(node, 1 + operand).index in results


def _traced(normal: Normal, flow: Flow, context: Context, lanes: tuple[int, ...]) -> tuple[list[Graph], Flow]:
    """The joint branches, and the flow without operands that no branch sends a cotangent to."""
    n, r = len(normal.operands) - 1, len(normal.regions[0].outputs)
    graphs, reached = [], set[int]()
    for branch in normal.regions:
        graph, hits = _traced_branch(branch, normal, flow, context, lanes)
        graphs.append(graph)
        reached |= hits
    first = len(flow.results) + n
    handed = {
        p: i
        for q, p in enumerate(flow.plain)
        for i in range(len(flow.results))
        if p in reached and all(g.outputs[r + q] is g.inputs[n + i] for g in graphs)
    }
    plain = [p for p in flow.plain if p in reached and p not in handed]
    offset = r + len(flow.plain)
    tables = [
        t for i, t in enumerate(flow.tables) if any(g.outputs[offset + i] is not g.inputs[first + i] for g in graphs)
    ]
    kept = Flow(flow.results, plain, tables, handed)
    positions = [i for i, p in enumerate((*flow.plain, *flow.tables)) if p in plain or p in tables]
    inputs = [first + i for i, t in enumerate(flow.tables) if t in tables]
    joints = []
    for g in graphs:
        outputs = (*g.outputs[:r], *(g.outputs[r + i] for i in positions))
        joints.append(extract(outputs, (*g.inputs[:first], *(g.inputs[i] for i in inputs))))
    return joints, kept


def _traced_branch(
    branch: Graph, normal: Normal, flow: Flow, context: Context, lanes: tuple[int, ...]
) -> tuple[Graph, set[int]]:
    n, wrt = len(branch.inputs), [*flow.plain, *flow.tables]
    types = [
        *branch.input_types,
        *(branch.outputs[i].type for i in flow.results),
        *(branch.inputs[p].type for p in flow.tables),
    ]
    reached: set[int] = set()

    def function(*arguments: Value) -> list[Value]:
        outputs = inline(branch, arguments[:n])
        free = Freedom({a: context.is_free(v) for a, v in zip(arguments, normal.operands[1:], strict=False)})
        inner = Context(context.regions, True, context.masked, lanes, free)
        given = arguments[n : n + len(flow.results)]
        before = [None] * len(flow.plain) + list(arguments[n + len(flow.results) :])
        adjoint = pull([outputs[i] for i in flow.results], given, [arguments[p] for p in wrt], inner, before)
        reached.update(p for p, ct in zip(flow.plain, adjoint, strict=False) if ct is not None)
        return [*outputs, *explicit([arguments[p] for p in wrt], adjoint)]

    return trace(function, types)[0], reached


def _require_lanes(joints: Sequence[Graph], normal: Normal, flow: Flow, lanes: tuple[int, ...]) -> None:
    """Inside lanes, a cotangent without the lane dims can only accumulate by scatters."""
    for p in flow.plain:
        type = normal.operands[1 + p].type
        if isinstance(type, TensorType) and type.shape[: len(lanes)] != lanes:
            raise NotLaneLocalError
    for i, p in enumerate(flow.tables):
        if normal.operands[1 + p].shape[: len(lanes)] != lanes and not _only_scattered(joints, normal, flow, i, lanes):
            raise NotLaneLocalError


def _only_scattered(
    joints: Sequence[Graph], normal: Normal, flow: Flow, table: int, lanes: tuple[int, ...]
) -> bool:
    before = len(normal.operands) - 1 + len(flow.results) + table
    after = len(normal.regions[0].outputs) + len(flow.plain) + table
    ends = [(g, g.inputs[before], g.outputs[after]) for g in joints]
    return all(end is start or scattered(g, start, end, lanes) for g, start, end in ends)


# ---- cutting the branches


def _cut(joints: Sequence[Graph], node: Node, normal: Normal, flow: Flow, context: Context) -> list[Branch]:
    n, branches = len(normal.operands) - 1, []
    slot_types: list[TensorType] = []
    for joint in joints:
        if node.attrs.get("recompute"):
            branches.append(Branch(Split(joint, len(node.results), (), Threads((), (), ())), [], [], []))
            continue
        parts = split(joint, n, len(node.results))
        operands = joint.inputs[:n]
        paid = {v for v, outer in zip(operands, normal.operands[1:], strict=True) if not context.is_free(outer)}
        saved = chosen(parts, paid, near_sources=True)
        inside = [v for v in saved if v not in paid]
        lanes = lane_shape(node)
        pushed = [v for v in inside if v.shape[: len(lanes)] != lanes]
        in_slots = [v for v in inside if v not in pushed]
        branches.append(Branch(parts, in_slots, _slots(in_slots, slot_types), pushed))
    return branches


def _slots(values: Sequence[Value], types: list[TensorType]) -> list[int]:
    """A slot of the right type for each value; `types` grows by the slots that are missing."""
    taken: list[int] = []
    for v in values:
        free = [i for i, t in enumerate(types) if t == v.type and i not in taken]
        if not free:
            types.append(tensor_type("switch", v))
        taken.append(free[0] if free else len(types) - 1)
    return taken


def _slot_types(branches: Sequence[Branch]) -> list[TensorType]:
    found = {i: tensor_type("switch", v) for b in branches for i, v in zip(b.slots, b.in_slots, strict=True)}
    return [found[i] for i in range(len(found))]


def _stack_types(branch: Branch) -> list[StackType]:
    made = [stack_type(v) for v in branch.parts.threads.made]
    return [*made, *(StackType(tensor_type("push", v)) for v in branch.pushed)]


def _narrow(node: Node, context: Context) -> Value:
    """The index in one byte, where it will have to be saved."""
    index, last = node.operands[0], len(node.regions) - 1
    if index.dtype.bits <= 8 or last > _NARROW_BRANCHES or context.is_free(index):
        return index
    return ops.cast(ops.min(ops.max(index, 0), last), int8)


# ---- the two switches


def _emit_augmented(node: Node, normal: Normal, branches: Sequence[Branch], context: Context) -> tuple[Value, ...]:
    """Emit the switch again with slots and stacks as extra results, which are returned; none, no switch."""
    slots = _slot_types(branches)
    stacks = [t for b in branches for t in _stack_types(b)]
    if not slots and not stacks:
        return ()
    n = len(normal.operands) - 1
    types = [*(v.type for v in normal.operands[1:]), *stacks]
    graphs, offset = [], 0
    for branch in branches:
        graphs.append(_augmented_branch(branch, types, n, slots, offset))
        offset += len(_stack_types(branch))
    made = []
    for i, type in enumerate(stacks):
        depth = None if context.nested else switch_depth(graphs, normal.operands[1:], n + i)
        made.append(ops.stack_new(type.element, depth, "branch"))
    results = emit("switch", (*normal.operands, *made), node.attrs, tuple(graphs), node)
    return results[len(node.results) :]


def _augmented_branch(
    branch: Branch, types: Sequence[TensorType | StackType], n: int, slots: Sequence[TensorType], offset: int
) -> Graph:
    parts, own = branch.parts, len(_stack_types(branch))
    part = forward_part(parts, parts.joint.inputs[:n], (*branch.in_slots, *branch.pushed))
    threaded, results = len(parts.threads.made), parts.primal_outputs

    def function(*arguments: Value) -> list[Value]:
        stacks = list(arguments[n:])
        mine = stacks[offset : offset + own]
        outputs = inline(part, (*arguments[:n], *mine[:threaded]))
        saved = outputs[results + threaded :]
        filled = dict(zip(branch.slots, saved, strict=False))
        pushed = [ops.push(s, v) for s, v in zip(mine[threaded:], saved[len(branch.slots) :], strict=True)]
        stacks[offset : offset + own] = [*outputs[results : results + threaded], *pushed]
        in_slots = [filled[i] if i in filled else ops.full(0, t) for i, t in enumerate(slots)]
        return [*outputs[:results], *in_slots, *stacks]

    return trace(function, types)[0]


def _starts(normal: Normal, flow: Flow, adjoints: Adjoints) -> dict[int, Value]:
    """Where the accumulators of tables start: from what has accumulated, each table once."""
    starts: dict[int, Value] = {}
    for p in flow.tables:
        table = normal.operands[1 + p]
        known = adjoints.get(table)
        starts[p] = ops.zeros_like(table) if known is None or known in starts.values() else known
    return starts


def _needed_only(part: Graph) -> Graph:
    """Without dead carries of loops and dead results of switches, in each other to any depth."""
    while True:
        smaller = dce.run(without_dead_carries(dce.run(part)))
        if smaller is part:
            return part
        part = smaller


def _emit_reverse(
    node: Node, normal: Normal, branches: Sequence[Branch], flow: Flow, index: Value, given: Sequence[Value],
    lanes: tuple[int, ...],
) -> tuple[Value, ...]:  # fmt: skip
    """`given`: cotangents of results, accumulators, slots, stacks. Returns plain cotangents, accumulators."""
    n = len(normal.operands) - 1
    adjoints = len(flow.results) + len(flow.tables)
    slots = len(_slot_types(branches))
    reverse = [_reverse_part(b, n) for b in branches]
    if node.attrs.get("recompute"):  # an accumulator needn't be there again, nor need what only scatters into it
        reverse = [_needed_only(part) for part in reverse]
    read = [i for i in range(n) if any(g.inputs[i] in read_values(g) for g in reverse)]
    types = [*(normal.operands[1 + i].type for i in read), *(v.type for v in given)]
    graphs, offset = [], 0
    for branch, part in zip(branches, reverse, strict=True):
        graphs.append(_reverse_branch(branch, part, types, read, n, adjoints, slots, offset))
        offset += len(_stack_types(branch))
    shared = [
        len(flow.plain) + i
        for i in range(len(flow.tables))
        if _only_scattered([b.parts.joint for b in branches], normal, flow, i, lanes)
    ]
    attrs: dict[str, object] = {"lanes": node.attrs["lanes"], "shared": tuple(shared)}
    if node.attrs.get("recompute"):
        attrs["apart"] = True  # else what it computes again would be found computed already, and kept for it
    operands = (index, *(normal.operands[1 + i] for i in read), *given)
    return emit("switch", operands, attrs, tuple(graphs))


def _reverse_part(branch: Branch, n: int) -> Graph:
    """(operands, cotangents, accumulators, saved values, filled stacks) -> (cotangents, emptied stacks)"""
    joint, results = branch.parts.joint, branch.parts.primal_outputs
    inputs = (*joint.inputs, *branch.in_slots, *branch.pushed)
    return reverse_part(branch.parts, inputs, joint.outputs[results:])


def _reverse_branch(
    branch: Branch, part: Graph, types: Sequence[TensorType | StackType], read: Sequence[int], n: int,
    adjoints: int, slots: int, offset: int,
) -> Graph:  # fmt: skip
    own, threaded = len(_stack_types(branch)), len(branch.parts.threads.made)
    emitted = len(part.outputs) - threaded
    pruned = without_inputs(part, set(range(n)) - set(read))

    def function(*arguments: Value) -> list[Value]:
        operands, rest = arguments[: len(read)], arguments[len(read) :]
        in_slots, stacks = rest[adjoints : adjoints + slots], list(rest[adjoints + slots :])
        mine = stacks[offset : offset + own]
        popped = [ops.pop(s) for s in mine[threaded:]]
        saved = [*(in_slots[i] for i in branch.slots), *(v for _, v in popped)]
        outputs = inline(pruned, (*operands, *rest[:adjoints], *saved, *mine[:threaded]))
        stacks[offset : offset + own] = [*outputs[emitted:], *(s for s, _ in popped)]
        return [*outputs[:emitted], *stacks]

    return trace(function, types)[0]
