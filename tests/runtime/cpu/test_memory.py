"""Results whose memory is used again."""

from __future__ import annotations

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


def test_nothing_is_used_again_where_threads_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the interpreter's lock two threads may find the same buffer free."""
    monkeypatch.setattr(memory, "COUNTED", False)
    spares = Recycler().spares(TYPE)
    held = [spares.take() for _ in range(3)]
    assert len({buffer.address for buffer in held}) == 3
    assert not spares._buffers
