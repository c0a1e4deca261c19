"""Slots: inputs and outputs first, temporaries shared once nobody reads them."""

from itertools import pairwise

import numpy as np

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.program import CopyStep, ForStep, PopStep
from loopgrad.codegen.schedule.assign import assign_slots
from loopgrad.codegen.schedule.program_builder import ProgramBuilder
from loopgrad.graph.types import TensorType, float32, float64, int32

TENSOR = TensorType((8,), float64)


def made(*kinds):
    builder = ProgramBuilder(DEFAULT_OPTIONS)
    return [builder.buffer(TENSOR, kind) for kind in kinds]


def chain(buffers):
    return [CopyStep(a.number, b.number) for a, b in pairwise(buffers)]


def test_a_chain_needs_two_temporaries():
    buffers = made("input", *["temp"] * 6, "output")
    slots, steps, numbers, _ = assign_slots(buffers, (), chain(buffers), [buffers[0], buffers[-1]])
    assert [s.kind for s in slots] == ["input", "output", "temp", "temp"]
    assert numbers[buffers[0].number] == 0
    assert all(s.source != s.target for s in steps)


def test_only_equal_sizes_and_dtypes_share():
    builder = ProgramBuilder(DEFAULT_OPTIONS)
    types = [TENSOR, TensorType((8,), float32), TensorType((16,), float32), TensorType((2, 4), float64)]
    buffers = [builder.buffer(t) for t in types]
    steps = [CopyStep(b.number, b.number) for b in buffers]
    _, _, numbers, _ = assign_slots(buffers, (), steps, [])
    assert len({numbers[b.number] for b in buffers}) == 3
    assert numbers[0] == numbers[3]


def test_what_a_loop_reads_from_outside_lives_until_its_end():
    outside, carry, first, second, after = made(*["temp"] * 5)
    builder = ProgramBuilder(DEFAULT_OPTIONS)
    builder.buffers = [outside, carry, first, second, after]
    count, index = (builder.buffer(TensorType((), int32)) for _ in range(2))
    body = (CopyStep(outside.number, first.number), CopyStep(first.number, second.number))
    loop = ForStep(count.number, index.number, body, ((carry.number, second.number),), False, None)
    steps = [CopyStep(outside.number, outside.number), loop, CopyStep(carry.number, after.number)]
    _, _, numbers, _ = assign_slots(builder.buffers, (), steps, [])
    inside = [numbers[b.number] for b in (outside, carry, first, second)]
    assert len(set(inside)) == 4
    assert numbers[after.number] in (numbers[outside.number], numbers[first.number], numbers[second.number])


def test_a_popped_slot_is_nobody_elses():
    a, b, c = made("temp", "temp", "temp")
    b.popped = True
    steps = [
        CopyStep(a.number, a.number),
        PopStep(0, b.number),
        CopyStep(b.number, b.number),
        CopyStep(c.number, c.number),
    ]
    _, _, numbers, _ = assign_slots([a, b, c], (), steps, [])
    assert numbers[b.number] not in (numbers[a.number], numbers[c.number])
    assert numbers[a.number] == numbers[c.number]


def test_constants_are_stored_once():
    builder = ProgramBuilder(DEFAULT_OPTIONS)
    assert builder.splat(2.0, TENSOR) is builder.constant(np.full(8, 2.0).tobytes(), TENSOR)


def test_new_carries_of_successive_loops_share_a_slot():
    """The second loop's is what the first left dead, which only the rotations at run time decide on."""
    carry, first, second = made("temp", "temp", "temp")
    builder = ProgramBuilder(None)
    builder.buffers = [carry, first, second]
    count, index = (builder.buffer(TensorType((), int32)) for _ in range(2))
    steps = [
        ForStep(count.number, index.number, (CopyStep(carry.number, new.number),), ((0, new.number),), False, None)
        for new in (first, second)
    ]
    _, _, numbers, _ = assign_slots(builder.buffers, (), steps, [])
    assert numbers[first.number] == numbers[second.number] != numbers[carry.number]
