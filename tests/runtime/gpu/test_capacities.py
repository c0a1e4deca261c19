"""What grows: with room for more where that costs little memory."""

from __future__ import annotations

from loopgrad.runtime.gpu.capacities import ROOM_BYTES, roomy


def test_small_stacks_get_room_and_large_ones_what_they_need():
    assert roomy(100, 8 * 67_584) == 125
    assert roomy(100, ROOM_BYTES // 100) == 100
    assert roomy(1, 8) == 1


def test_trip_counts_that_creep_up_rarely_make_a_stack_grow():
    capacity, growths = 0, 0
    for needed in range(1, 1000):
        if needed > capacity:
            capacity, growths = roomy(needed, 1024), growths + 1
    assert growths < 30
