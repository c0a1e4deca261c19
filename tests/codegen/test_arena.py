"""Memory of temporaries: what is alive together doesn't overlap, what isn't shares."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from loopgrad.codegen import arena as arenas
from loopgrad.codegen.arena import Arena, plan_arena
from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel
from loopgrad.codegen.program import (
    ArraySlot,
    CopyStep,
    ForStep,
    Initial,
    LaunchStep,
    Program,
    Step,
    SwitchStep,
    WhileStep,
)
from loopgrad.graph.types import TensorType, bool_, float64, int64

SIZE = 800
ROUNDED = 832
VECTOR = TensorType((100,), float64)


def arena(kinds: str, steps: tuple[Step, ...], outputs: tuple[int, ...], scratch: int = 0) -> Arena:
    """kinds: one letter a slot: i(nput) o(utput) t(emp) n(umber) b(ool)."""
    names = {"i": "input", "o": "output"}
    types = {"n": TensorType((), int64), "b": TensorType((), bool_)}
    slots = tuple(ArraySlot(types.get(k, VECTOR), names.get(k, "temp")) for k in kinds)
    access = (BufferParam(float64, 100, "read"), BufferParam(float64, 100, "accumulate"))
    kernel = Kernel("k", (100,), access, Block())
    inputs = tuple(i for i, k in enumerate(kinds) if k == "i")
    program = Program(slots, inputs, outputs, (kernel,), steps)
    owned = frozenset(i for i, slot in enumerate(slots) if slot.kind == "temp")
    return plan_arena(program, [(scratch,) if scratch else ()], owned)


def disjoint(planned: Arena, *slots: int) -> bool:
    spans = sorted((planned.slots[s], planned.slots[s] + SIZE) for s in slots)
    return all(a[1] <= b[0] for a, b in pairwise(spans))


def test_a_chain_needs_two_blocks() -> None:
    steps = tuple(CopyStep(i, i + 1) for i in range(6))
    planned = arena("itttttto"[:6] + "o", steps, (6,))
    assert planned.size == 2 * ROUNDED
    for i in range(1, 5):
        assert disjoint(planned, i, i + 1)
    assert all(offset % 64 == 0 for offset in planned.slots.values())


def test_what_crosses_a_loop_lives_through_all_of_it() -> None:
    # slot 2 is written before the loop and read inside; 3 and 4 live inside one pass
    loop = ForStep(1, 5, (CopyStep(0, 3), CopyStep(2, 4), CopyStep(4, 6)), (), False, None)
    planned = arena("intttno", (CopyStep(0, 2), loop), (6,))
    assert disjoint(planned, 2, 3)
    assert disjoint(planned, 2, 4)
    assert planned.slots[3] == planned.slots[4] or disjoint(planned, 3, 4)


def test_rotated_slots_keep_their_places() -> None:
    loop = ForStep(1, 5, (CopyStep(2, 3), CopyStep(0, 4)), ((2, 3),), False, None)
    planned = arena("intttno", (CopyStep(0, 2), loop, CopyStep(2, 6)), (6,))
    assert disjoint(planned, 2, 3, 4)


def test_read_before_written_lives_through_the_loop() -> None:
    loop = WhileStep((CopyStep(2, 3),), 5, (CopyStep(0, 4), CopyStep(4, 2)), (), None, None)
    planned = arena("iotttb", (loop,), (1,))
    assert disjoint(planned, 2, 4)


def test_branches_share() -> None:
    step = SwitchStep(1, ((CopyStep(0, 2), CopyStep(2, 4)), (CopyStep(0, 3), CopyStep(3, 4))))
    planned = arena("intto", (step,), (4,))
    assert planned.size == ROUNDED


def test_scratch_is_apart_from_what_the_launch_touches() -> None:
    launch = LaunchStep(0, (0, 1), ((1, Initial(None, 0)),))
    planned = arena("itto", (CopyStep(0, 2), launch, CopyStep(1, 2), CopyStep(2, 3)), (3,), scratch=500)
    ((offset,),) = planned.scratch
    assert offset >= planned.slots[1] + SIZE or offset + 500 <= planned.slots[1]


def test_an_output_that_is_a_temp_survives() -> None:
    planned = arena("ittt", (CopyStep(0, 1), CopyStep(0, 2), CopyStep(2, 3)), (1,))
    assert disjoint(planned, 1, 2)
    assert disjoint(planned, 1, 3)


@pytest.mark.parametrize("seed", range(20))
def test_very_many_lives_placed_in_order_never_share_bytes_while_alive(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lives = []
    for item in range(int(rng.integers(1, 80))):
        first = int(rng.integers(40))
        lives.append(arenas._Life(item, int(rng.integers(500)), first, first + int(rng.integers(15))))
    size = arenas._place_in_order(lives, 64)
    for a, b in combinations(lives, 2):
        if a.first <= b.last and b.first <= a.last:
            assert a.offset + max(a.size, 1) <= b.offset or b.offset + max(b.size, 1) <= a.offset
    assert all(life.offset % 64 == 0 and life.offset + life.size <= size for life in lives)
