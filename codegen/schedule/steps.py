"""Loops, branches and stack operations over whole tensors, as steps.

A loop's carries have a buffer each. The body leaves the next value in the same buffer (a scatter into a
carry that nobody else reads), or in another one, with which the carry changes places after each pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loopgrad.codegen.lower.context import Stored
from loopgrad.codegen.program import CopyStep, ForStep, PopStep, PushStep, ReserveStep, Step, SwitchStep, WhileStep
from loopgrad.codegen.schedule.program_builder import ProgramBuffer
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Loop, Region, Switch
from loopgrad.graph.types import StackType, TensorType, bool_

if TYPE_CHECKING:
    from loopgrad.codegen.schedule.block import BlockScheduler, ScheduledBlock, Storage


def emit_step(block: BlockScheduler, node: Node) -> None:
    """Append the steps of one node and record where its results are."""
    match node.op:
        case "stack_new":
            stack = block.storage[node.results[0]]
            assert isinstance(stack, int)
            block.steps.append(ReserveStep(stack, block.buffer_of(node.operands[0]).number))
        case "push":
            stack = block.storage[node.operands[0]]
            assert isinstance(stack, int)
            block.steps.append(PushStep(stack, block.buffer_of(node.operands[1]).number))
            block.storage[node.results[0]] = stack
        case "pop":
            _pop(block, node)
        case _:
            region = Region.of(node)
            if isinstance(region, Loop):
                _loop(block, region)
            else:
                _switch(block, Switch.of(node))


def _pop(block: BlockScheduler, node: Node) -> None:
    stack = block.storage[node.operands[0]]
    assert isinstance(stack, int)
    rest, value = node.results
    assert isinstance(value.type, TensorType)
    buffer = block.builder.buffer(value.type)
    buffer.popped = True
    block.steps.append(PopStep(stack, buffer.number))
    block.storage[rest] = stack
    if block.pushed_again(node):
        kept = block.temp(value.type)
        block.steps.append(CopyStep(buffer.number, kept.number))
        buffer = kept
    block.storage[value] = Stored((buffer,))


# ---- loops


def _loop(block: BlockScheduler, loop: Loop) -> None:
    node = loop.node
    held = [_carry(block, v) for v in loop.inits]
    captured = [block.storage[v] for v in loop.captures]
    if loop.condition is None:
        index_type = loop.decider.type
        assert isinstance(index_type, TensorType)
        index = block.builder.buffer(index_type)
        steps, rotate = _body(block, loop, [Stored((index,))], held, captured)
        bound = block.buffer_of(loop.decider)
        reverse = bool(node.attrs["reverse"])
        block.steps.append(ForStep(bound.number, index.number, steps, rotate, reverse, node.loc))
    else:
        condition, pred = _condition(block, loop.condition, [*held, *captured])
        steps, rotate = _body(block, loop, [], held, captured)
        limit = node.attrs["max_steps"]
        block.steps.append(WhileStep(condition, pred.number, steps, rotate, limit, node.loc))
    block.storage.update(zip(node.results, held, strict=True))


def _carry(block: BlockScheduler, init: Value) -> Storage:
    """The buffer that a carry starts in: the initial value's own where nobody else reads it."""
    stored = block.storage[init]
    if isinstance(stored, int):
        return stored
    if block.partition.uses.get(init, 0) == 1 and block.owned(init):
        return stored
    source = block.buffer_of(init)
    own = block.temp(source.type)
    block.copy(source, own)
    return Stored((own,))


def _condition(
    block: BlockScheduler, graph: Graph, inputs: Sequence[Storage]
) -> tuple[tuple[Step, ...], ProgramBuffer]:
    pred = block.builder.buffer(TensorType((), bool_))
    done = block.nested(graph, inputs, [pred], frozenset())
    return done.steps, pred


def _body(
    block: BlockScheduler, loop: Loop, index: list[Storage], held: Sequence[Storage], captured: Sequence[Storage]
) -> tuple[tuple[Step, ...], tuple[tuple[int, int], ...]]:
    carries = loop.split(loop.body.inputs).carries
    done = block.nested(loop.body, [*index, *held, *captured], [None] * len(held), frozenset(carries))
    extra: list[Step] = []
    rotate: list[tuple[int, int]] = []
    taken: set[ProgramBuffer] = set()
    for own, new in zip(held, done.outputs, strict=True):
        if isinstance(own, int) or isinstance(new, int):
            continue
        mine, theirs = _buffer(own), _buffer(new)
        if mine is theirs:
            continue
        if not _can_swap(theirs, done, taken):
            spare = block.temp(mine.type)
            if mine.type.nbytes:
                extra.append(CopyStep(theirs.number, spare.number))
            theirs = spare
        taken.add(theirs)
        rotate.append((mine.number, theirs.number))
    return (*done.steps, *extra), tuple(rotate)


def _buffer(stored: Storage) -> ProgramBuffer:
    assert isinstance(stored, Stored)
    buffer = stored.buffers[0]
    assert isinstance(buffer, ProgramBuffer)
    return buffer


def _can_swap(buffer: ProgramBuffer, done: ScheduledBlock, taken: set[ProgramBuffer]) -> bool:
    """Made in the body, by nobody else wanted."""
    return buffer in done.fresh and buffer.kind == "temp" and not buffer.popped and buffer not in taken


# ---- branches


def _switch(block: BlockScheduler, switch: Switch) -> None:
    results = switch.node.results
    inputs = [block.storage[v] for v in switch.arguments]
    targets = [None if isinstance(r.type, StackType) else block.buffer_for(r) for r in results]
    branches = [block.nested(branch, inputs, targets, frozenset()) for branch in switch.branches]
    index = block.buffer_of(switch.index)
    block.steps.append(SwitchStep(index.number, tuple([b.steps for b in branches])))
    for r, target, stored in zip(results, targets, branches[0].outputs, strict=True):
        block.storage[r] = stored if target is None else Stored((target,))
