"""Region nodes and stack operations: effects, emitted once, in node order.

Enters: a region node in a frame. Leaves: a `for`, `while` or `if` whose carries are scalars, one per
register of each live carry; the node's results are then bound to registers. Carries that are stacks or
accumulators are memory and pass through as they are. What a kernel doesn't need of a loop (dead carries,
pushes that nobody pops here) isn't emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from loopgrad.codegen.kernel.nodes import KValue, StackSlot
from loopgrad.codegen.lower import arrays
from loopgrad.codegen.lower.context import (
    AccumulatorRef,
    Binding,
    Frame,
    InArray,
    Lowering,
    NotLaneLocal,
    Outer,
    Registers,
    StackRef,
    Stored,
)
from loopgrad.codegen.lower.emitter import Index
from loopgrad.codegen.lower.factorisations.table import ROUTINES
from loopgrad.codegen.lower.indexing import scatter_into
from loopgrad.codegen.lower.liveness import Live
from loopgrad.graph.accumulators import chain_from
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import STACKS
from loopgrad.graph.regions import Loop, Region, Switch
from loopgrad.graph.types import DType, StackType, TensorType, bool_, int64


class Carry(NamedTuple):
    """A live carry held in registers: its position and its scalars' dtype and number."""

    position: int
    dtype: DType
    scalars: int


def emit_effects(ctx: Lowering, frame: Frame, live: Live, outputs: Iterable[Value] | None) -> None:
    """Emit the effects among the live nodes, in order; of a rolled region also what is computed once for `outputs` and
    others. None: outside of regions, where no value but the lanes' own is."""
    known = _settled(ctx, live, outputs)
    for node, results in live.needed.items():
        target = _memory(frame, node.operands[0]) if node.op == "scatter" else None
        if isinstance(target, AccumulatorRef):
            scatter_into(ctx, frame, node, target, lane_prefix(ctx, node.operands[-1]))
            frame.bindings[node.results[0]] = target
        elif node.regions or node.op in STACKS:
            emit_effect(ctx, frame, node, frozenset(results))
        elif node.op in ROUTINES:
            ROUTINES[node.op].emit(ctx, frame, node)
        elif node.results[0] in known:
            arrays.settle(ctx, frame, node.results[0], known[node.results[0]])


def _settled(ctx: Lowering, live: Live, outputs: Iterable[Value] | None) -> Mapping[Value, bool]:
    if not ctx.rolled:
        return {}

    def count(value: Value) -> int:
        return ctx.register_count(value.shape) if outputs is not None or ctx.leads(value.shape) else arrays.MOST + 1

    found = arrays.kept_values(list(live.needed), outputs or (), count)
    if outputs is None:
        found = {v: many for v, many in found.items() if v not in ctx.unlike}
        ctx.beforehand |= found.keys()
    return found


def lane_prefix(ctx: Lowering, updates: Value) -> Index:
    """The lane's part of the index into the updates of an accumulator."""
    if ctx.leads(updates.shape):
        return ctx.lane_index
    if ctx.lanes != 1:
        raise NotLaneLocal(updates)  # every lane would repeat the update
    return ()


def emit_effect(ctx: Lowering, frame: Frame, node: Node, needed: frozenset[int]) -> None:
    """Emit one effect and bind its results."""
    match node.op:
        case _ if node.regions:
            region = Region.of(node)
            if isinstance(region, Loop):
                _loop(ctx, frame, region, needed)
            else:
                _switch(ctx, frame, Switch.of(node), needed)
        case "stack_new":
            frame.bindings[node.results[0]] = _new_stack(ctx, frame, node)
        case "push":
            _push(ctx, frame, node)
        case "pop":
            _pop(ctx, frame, node)


# ---- stacks


def _new_stack(ctx: Lowering, frame: Frame, node: Node) -> StackRef:
    """Slots of the kernel, one per scalar that the lane pushes. The depth is known before the launch
    where its buffer is; a depth computed in a loop body is measured instead."""
    element: TensorType = node.attrs["element"]
    depth: int | None = None
    if node.operands:
        _, _, binding = frame.resolve(node.operands[0])
        if isinstance(binding, Stored):
            depth = ctx.params.number(binding.buffers[0], TensorType((), int64), "read")
    first = len(ctx.stacks)
    count = ctx.register_count(element.shape)
    name, row = node.attrs.get("name") or "stack", ctx.settings.residual(node)
    if ctx.rolled and count > arrays.FEW:
        ctx.stacks.append(StackSlot(element.dtype, depth, name, node.loc, row, count))
        return StackRef((first,), count)
    for t in range(count):
        label = name if count == 1 else f"{name}.{t}"
        ctx.stacks.append(StackSlot(element.dtype, depth, label, node.loc, row))
    return StackRef(tuple(range(first, first + count)))


def _stack_of(frame: Frame, value: Value) -> StackRef:
    _, _, binding = frame.resolve(value)
    if not isinstance(binding, StackRef):
        raise NotLaneLocal(value)
    return binding


def _push(ctx: Lowering, frame: Frame, node: Node) -> None:
    stack, value = node.operands
    ref = _stack_of(frame, stack)
    if ref.elements > 1:
        arrays.push(ctx, frame, value, ref)
        frame.bindings[node.results[0]] = ref
        return
    for slot, x in zip(ref.slots, ctx.pull_all(frame, value), strict=True):
        ctx.emitter.effect("push", (x,), (), {"stack": slot})
    frame.bindings[node.results[0]] = ref


def _pop(ctx: Lowering, frame: Frame, node: Node) -> None:
    ref = _stack_of(frame, node.operands[0])
    rest, value = node.results
    if ref.elements > 1:
        frame.bindings[rest], frame.bindings[value] = ref, arrays.popped(ctx, value, ref)
        return
    popped = [ctx.emitter.effect("pop", (), (value.dtype,), {"stack": slot})[0] for slot in ref.slots]
    frame.bindings[rest] = ref
    frame.bindings[value] = Registers(tuple(popped), ctx.leads(value.shape))


# ---- loops


def _memory(frame: Frame, value: Value) -> Binding | None:
    """The binding of a carry that isn't held in registers."""
    _, _, binding = frame.resolve(value)
    return binding if isinstance(binding, StackRef | AccumulatorRef) else None


def _loop(ctx: Lowering, frame: Frame, loop: Loop, needed: frozenset[int]) -> None:
    node, liveness = loop.node, ctx.settings.liveness
    inner: dict[Value, Binding] = {}
    carries: list[Carry] = []
    kept: dict[int, InArray] = {}
    inits: list[KValue] = []
    for c in sorted(liveness.carries(loop, needed)):
        init, result = loop.init(c), node.results[c]
        memory = ctx.accumulators.get(result) or _memory(frame, init)
        if memory is not None:
            inner[loop.argument(c)] = frame.bindings[result] = memory
            continue
        _check_own(ctx, loop, c)
        assert isinstance(init.type, TensorType)
        if arrays.keeps(ctx, init):
            inner[loop.argument(c)] = held = arrays.computed(ctx, frame, init)
            kept[c] = held
            continue
        carries.append(Carry(c, init.dtype, ctx.register_count(init.shape)))
        inits.extend(ctx.pull_all(frame, init))
    inner |= _outer_captures(frame, loop, loop.body)
    captured = loop.captured
    _hoist(ctx, frame, node, [i for i in liveness.operands(node, needed) if i in captured])
    if loop.condition is None:
        results = _for(ctx, frame, loop, inner, carries, kept, inits)
    else:
        results = _while(ctx, frame, loop, loop.condition, inner, carries, kept, inits)
    _bind_results(ctx, frame, node, carries, results)
    _bind_kept(frame, node, kept)


def _bind_kept(frame: Frame, node: Node, kept: Mapping[int, InArray]) -> None:
    for c, held in kept.items():
        if not isinstance(frame.bindings.get(node.results[c]), Stored):
            frame.bindings[node.results[c]] = held


def _outer_captures(frame: Frame, loop: Loop, region: Graph) -> dict[Value, Binding]:
    inside = loop.split(region.inputs).captures
    return {v: Outer(frame, outer) for v, outer in zip(inside, loop.captures, strict=True)}


def _check_own(ctx: Lowering, region: Region, position: int) -> None:
    """What lanes combine into is never a register of one lane, which would hold that lane's part only."""
    if ctx.lanes != 1 and position in region.shared:
        raise NotLaneLocal(region.node.results[position])


def _hoist(ctx: Lowering, frame: Frame, node: Node, operands: Iterable[int]) -> None:
    """Evaluate per-lane captures before the region: otherwise their first use inside would be the place."""
    for i in operands:
        v = node.operands[i]
        if not isinstance(v.type, TensorType) or not ctx.leads(v.shape) or ctx.register_count(v.shape) != 1:
            continue
        _, _, binding = frame.resolve(v)
        if binding is None:
            ctx.pull_at(frame, v, 0)


def _bind_results(ctx: Lowering, frame: Frame, node: Node, carries: Sequence[Carry], results: Sequence[KValue]) -> None:
    at = 0
    for c in carries:
        value = node.results[c.position]
        if not isinstance(frame.bindings.get(value), Stored):  # a carry made again for others: memory has all lanes'
            frame.bindings[value] = Registers(tuple(results[at : at + c.scalars]), ctx.leads(value.shape))
        at += c.scalars


def _decision(ctx: Lowering, frame: Frame, value: Value) -> KValue:
    """A count, predicate or index: the lane's own, or one for all."""
    size = prod(value.shape)
    if size == 1:
        return ctx.pull(frame, value, ())
    if not ctx.leads(value.shape) or size != ctx.lanes:
        raise NotLaneLocal(value)
    return ctx.pull(frame, value, ctx.lane_index)


def _bind_carries(
    ctx: Lowering,
    bindings: dict[Value, Binding],
    inputs: Sequence[Value],
    carries: Sequence[Carry],
    values: Sequence[KValue],
) -> None:
    at = 0
    for c in carries:
        v = inputs[c.position]
        bindings[v] = Registers(tuple(values[at : at + c.scalars]), ctx.leads(v.shape))
        at += c.scalars


def _run_body(
    ctx: Lowering, frame: Frame, body: Graph, carries: Sequence[Carry], kept: Mapping[int, InArray], live: Sequence[int]
) -> list[KValue]:
    emit_effects(ctx, frame, ctx.settings.liveness.graph(body, live), [body.outputs[i] for i in live])
    yields = [x for c in carries for x in ctx.pull_all(frame, body.outputs[c.position])]
    arrays.replace(ctx, frame, {held.array: body.outputs[c] for c, held in kept.items()})
    return yields


def _for(
    ctx: Lowering,
    frame: Frame,
    loop: Loop,
    inner: dict[Value, Binding],
    carries: Sequence[Carry],
    kept: Mapping[int, InArray],
    inits: Sequence[KValue],
) -> Sequence[KValue]:
    e = ctx.emitter
    count = _decision(ctx, frame, loop.decider)
    dtypes = [c.dtype for c in carries for _ in range(c.scalars)]
    k, *arguments = e.open((count.dtype, *dtypes))
    (index,), own, _ = loop.split(loop.body.inputs)
    bindings = {index: Registers((k,), False, splat=True), **inner}
    _bind_carries(ctx, bindings, own, carries, arguments)
    yields = _run_body(ctx, Frame(bindings), loop.body, carries, kept, _live_outputs(loop, inner, carries))
    block = e.close(yields)
    return e.effect("for", (count, *inits), dtypes, {"reverse": bool(loop.node.attrs["reverse"])}, (block,))


def _live_outputs(loop: Loop, inner: dict[Value, Binding], carries: Sequence[Carry]) -> list[int]:
    """The carries that are emitted: those in registers and those in memory."""
    registers = [c.position for c in carries]
    return sorted([*registers, *(i for i, v in enumerate(loop.split(loop.body.inputs).carries) if v in inner)])


def _while(
    ctx: Lowering,
    frame: Frame,
    loop: Loop,
    condition: Graph,
    inner: dict[Value, Binding],
    carries: Sequence[Carry],
    kept: Mapping[int, InArray],
    inits: Sequence[KValue],
) -> Sequence[KValue]:
    e, node = ctx.emitter, loop.node
    dtypes = [c.dtype for c in carries for _ in range(c.scalars)]
    arguments = e.open(dtypes)
    bindings = _outer_captures(frame, loop, condition)
    seen = loop.split(condition.inputs).carries
    _bind_carries(ctx, bindings, seen, carries, arguments)
    inside = Frame(bindings | {seen[c]: held for c, held in kept.items()})
    emit_effects(ctx, inside, ctx.settings.liveness.graph(condition, (0,)), condition.outputs[:1])
    block = e.close((_decision(ctx, inside, condition.outputs[0]),))
    arguments = e.open(dtypes)
    bindings = dict(inner)
    _bind_carries(ctx, bindings, loop.split(loop.body.inputs).carries, carries, arguments)
    yields = _run_body(ctx, Frame(bindings), loop.body, carries, kept, _live_outputs(loop, inner, carries))
    attrs: dict[str, Any] = {"max_steps": node.attrs["max_steps"]}
    if attrs["max_steps"] is not None:
        message = f"while loop: expected to end within max_steps={attrs['max_steps']} trips in lane {{lane}}"
        attrs["error"] = ctx.error_site("max_steps", message, node)
    return e.effect("while", inits, dtypes, attrs, (block, e.close(yields)))


# ---- branches


def _switch(ctx: Lowering, frame: Frame, switch: Switch, needed: frozenset[int]) -> None:
    node, results = switch.node, list[Carry]()
    inside: dict[int, Binding] = {i: Outer(frame, v) for i, v in enumerate(switch.arguments)}
    memory: dict[int, Binding] = {}
    for r in sorted(needed):
        result = node.results[r]
        source = memory_source(switch, r)
        held = None if source is None else ctx.accumulators.get(result) or _memory(frame, node.operands[source])
        if source is not None and held is not None:
            memory[source - switch.offset] = frame.bindings[result] = held
        else:
            _check_own(ctx, switch, r)
            assert isinstance(result.type, TensorType), "a stack that doesn't come from outside the branch"
            results.append(Carry(r, result.dtype, ctx.register_count(result.shape)))
    read = ctx.settings.liveness.operands(node, needed)
    _hoist(ctx, frame, node, [i for i in read if i >= switch.first])
    if len(switch.branches) == 1:
        _only_branch(ctx, frame, switch, inside | memory, needed, results)
        return
    index = _decision(ctx, frame, switch.index)
    many = [c.position for c in results if arrays.keeps(ctx, node.results[c.position])]
    kept = {r: arrays.new_kept(ctx, node.results[r]) for r in many}
    results = [c for c in results if c.position not in kept]
    values = _branches(ctx, switch.branches, inside | memory, needed, results, kept, index, 0)
    _bind_results(ctx, frame, node, results, values)
    _bind_kept(frame, node, kept)


def _only_branch(
    ctx: Lowering,
    frame: Frame,
    switch: Switch,
    bindings: Mapping[int, Binding],
    needed: frozenset[int],
    results: Sequence[Carry],
) -> None:
    """Nothing is chosen; what is in an array stays there. `unrolled`: its values are registers all the same."""
    (branch,) = switch.branches
    inside, outside = Frame({v: bindings[i] for i, v in enumerate(branch.inputs)}), ctx.rolled
    ctx.rolled = outside and not switch.node.attrs.get("unrolled", False)
    emit_effects(ctx, inside, ctx.settings.liveness.graph(branch, needed), [branch.outputs[r] for r in sorted(needed)])
    for c in results:
        value, output = switch.node.results[c.position], branch.outputs[c.position]
        if isinstance(frame.bindings.get(value), Stored):
            continue
        held = inside.resolve(output)[2]
        if isinstance(held, InArray):
            frame.bindings[value] = held
        elif ctx.rolled and c.scalars > arrays.FEW:
            frame.bindings[value] = arrays.computed(ctx, inside, output)
        elif outside and c.scalars > arrays.FEW:
            frame.bindings[value] = arrays.gathered(ctx, value, ctx.pull_all(inside, output))
        else:
            frame.bindings[value] = Registers(tuple(ctx.pull_all(inside, output)), ctx.leads(value.shape))
    ctx.rolled = outside


def memory_source(region: Region, result: int) -> int | None:
    """The operand whose stack or accumulator a result of a switch continues."""
    value, body = region.node.results[result], region.bodies[0]
    if isinstance(value.type, StackType):
        return region.source(result)
    for i, v in enumerate(body.inputs):
        chain = chain_from(body, i) if v.type == value.type else None
        if chain is not None and chain.output == result:
            return i + region.offset
    return None


def _branches(
    ctx: Lowering,
    branches: Sequence[Graph],
    bindings: Mapping[int, Binding],
    needed: frozenset[int],
    results: Sequence[Carry],
    kept: Mapping[int, InArray],
    index: KValue,
    position: int,
) -> Sequence[KValue]:
    """Branch `position` where the index isn't beyond it, else the later ones."""
    e = ctx.emitter
    last = min(len(branches), 2 if index.dtype is bool_ else len(branches)) - 1
    if position == last:
        return _branch(ctx, branches[position], bindings, needed, results, kept)
    if index.dtype is bool_:
        here = e.op("invert", (index,), bool_)
    else:
        here = e.compare("le", index, e.const(position, index.dtype))
    dtypes = [c.dtype for c in results for _ in range(c.scalars)]
    e.open((), fence=True)
    then = e.close(_branch(ctx, branches[position], bindings, needed, results, kept))
    e.open((), fence=True)
    other = e.close(_branches(ctx, branches, bindings, needed, results, kept, index, position + 1))
    return e.effect("if", (here,), dtypes, {}, (then, other))


def _branch(
    ctx: Lowering,
    branch: Graph,
    bindings: Mapping[int, Binding],
    needed: frozenset[int],
    results: Sequence[Carry],
    kept: Mapping[int, InArray],
) -> list[KValue]:
    inside = Frame({v: bindings[i] for i, v in enumerate(branch.inputs)})
    emit_effects(ctx, inside, ctx.settings.liveness.graph(branch, needed), [branch.outputs[r] for r in sorted(needed)])
    for position, held in kept.items():
        arrays.fill(ctx, inside, branch.outputs[position], held.array)
    return [x for c in results for x in ctx.pull_all(inside, branch.outputs[c.position])]
