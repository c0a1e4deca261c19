"""The heap that all GPU drivers share: sizes, pieces used again, what goes back to the driver."""

from __future__ import annotations

from itertools import pairwise

import pytest

from loopgrad.runtime.gpu.memory import CHUNK, LARGE_STEP, LARGEST_PIECE, PATIENCE, SMALLEST, Heap, piece


class Chunk:
    """A driver's memory; `Driver` counts it."""

    def __init__(self, driver: Driver, size: int) -> None:
        if size > driver.available:
            raise MemoryError("no more")
        driver.available -= size
        self.driver, self.size = driver, size
        self.address = driver.next
        driver.next += size

    def destroy(self) -> None:
        self.driver.available += self.size
        self.driver.destroyed += 1


class Driver:
    def __init__(self, available: int) -> None:
        self.available, self.next, self.destroyed = available, 1 << 20, 0
        self.heap = Heap(lambda size: Chunk(self, size), lambda: f"{self.available + self.heap.idle()} are available")


@pytest.mark.parametrize(
    ("size", "given"),
    [
        (0, SMALLEST),
        (1, SMALLEST),
        (SMALLEST, SMALLEST),
        (SMALLEST + 1, 2 * SMALLEST),
        (LARGEST_PIECE, LARGEST_PIECE),
        (LARGEST_PIECE + 1, LARGEST_PIECE + LARGE_STEP),
        (10 * LARGE_STEP, 10 * LARGE_STEP),
    ],
)
def test_sizes(size, given):
    assert piece(size) == given
    assert Driver(1 << 40).heap.take(size).size == given


def test_pieces_are_apart_and_aligned():
    heap = Driver(1 << 40).heap
    taken = [heap.take(size) for size in (1, 300, 5000, 256, 1 << 20, LARGEST_PIECE + 5) for _ in range(70)]
    spans = sorted((a.address, a.address + a.size) for a in taken)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert all(a.address % 256 == 0 for a in taken)


def test_what_nobody_holds_is_taken_again():
    heap = Driver(1 << 40).heap
    for size in (100, 5000, LARGEST_PIECE + 1):
        address = heap.take(size).address
        held = heap.held
        assert heap.ready(size)
        assert heap.take(size).address == address
        assert heap.held == held


def test_large_pieces_go_back_when_they_were_of_no_use_for_long():
    driver = Driver(1 << 40)
    kept = driver.heap.take(2 * CHUNK)
    driver.heap.take(3 * CHUNK)
    for _ in range(PATIENCE // 2):
        driver.heap.take(1)
    assert driver.heap.idle() == 3 * CHUNK
    driver.heap.take(3 * CHUNK)  # it is of use again
    for _ in range(PATIENCE + 1):
        driver.heap.take(1)
    assert driver.destroyed == 1
    assert driver.heap.idle() == 0
    assert driver.heap.held < kept.size + CHUNK


def test_large_pieces_go_back_under_pressure():
    driver = Driver(8 * CHUNK)
    kept = driver.heap.take(4 * CHUNK)
    driver.heap.take(3 * CHUNK)
    assert driver.heap.idle() == 3 * CHUNK
    assert driver.heap.take(4 * CHUNK).size == 4 * CHUNK
    with pytest.raises(MemoryError, match=f"no more: expected {5 * CHUNK:,} bytes, {4 * CHUNK} are available"):
        driver.heap.take(5 * CHUNK)
    assert driver.heap.take(4 * CHUNK).size == kept.size
    driver.heap.release()
    assert driver.heap.held == 4 * CHUNK
