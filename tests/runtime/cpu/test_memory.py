"""Results whose memory is used again."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopgrad.graph.types import TensorType, float64
from loopgrad.runtime.cpu import memory
from loopgrad.runtime.cpu.memory import Recycler

TYPE = TensorType((5,), float64)


def test_a_result_that_nobody_holds_is_used_again() -> None:
    spares = Recycler().spares(TYPE)
    first = spares.take()
    address = first.address
    assert spares.take().address != address
    view = first.array[1:]
    del first
    assert spares.take().address != address, "a view holds it"
    del view
    assert spares.take().address == address


def test_results_that_are_kept_until_the_next_ones_are_there_take_turns() -> None:
    spares = Recycler().spares(TYPE)
    held = [spares.take() for _ in range(10)]
    met = set()
    for _ in range(8):
        met.update([buffer.address for buffer in held])
        held = [spares.take() for _ in range(10)]  # before the others go
        assert len({buffer.address for buffer in held}) == 10
    assert {buffer.address for buffer in held} <= met
    free = spares.idle_bytes()
    del held
    assert spares.idle_bytes() == free + 10 * TYPE.nbytes
    spares.drop()
    assert spares.idle_bytes() == 0


def test_nothing_is_used_again_where_threads_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the interpreter's lock two threads may find the same buffer free."""
    monkeypatch.setattr(memory, "COUNTED", False)
    spares = Recycler().spares(TYPE)
    held = [spares.take() for _ in range(3)]
    assert len({buffer.address for buffer in held}) == 3
    assert not spares._buffers


@pytest.mark.parametrize(
    ("limit", "usage", "left"),
    [("1000\n", "400\n", 600), ("400\n", "1000\n", 0), ("max\n", "400\n", None), (f"{(1 << 63) - 4096}\n", "4\n", None),
     (None, "400\n", None), ("1000\n", None, None)],
)  # fmt: skip
def test_a_containers_limit_bounds_what_is_available(
    limit: str | None, usage: str | None, left: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its files say one; else the machine's memory does."""
    files = tmp_path / "limit", tmp_path / "usage"
    for file, text in zip(files, (limit, usage), strict=True):
        if text is not None:
            file.write_text(text)
    monkeypatch.setattr(memory, "_CGROUP_FILES", ((str(files[0]), str(files[1])),))
    monkeypatch.setattr(memory, "_meminfo", lambda: 5000)
    assert memory.available_bytes() == (5000 if left is None else left)


def test_the_machines_memory_is_what_it_says() -> None:
    found = memory._meminfo()
    assert found is None or 0 < found < 1 << 50
    assert (found is None) == (not Path("/proc/meminfo").exists())
