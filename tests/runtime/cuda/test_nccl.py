"""What NCCL is told when it is loaded."""

from __future__ import annotations

import os

import pytest

from loopgrad.runtime.cuda import nccl


@pytest.mark.parametrize("chosen", [None, "1"])
def test_graphs_hold_no_arrays_of_other_processes_unless_the_user_says_so(chosen, monkeypatch):
    monkeypatch.setenv(nccl.REGISTERS, chosen or "")
    if chosen is None:
        monkeypatch.delenv(nccl.REGISTERS)
    seen: list[str] = []
    monkeypatch.setattr(nccl, "opened", lambda _: seen.append(os.environ[nccl.REGISTERS]))
    nccl.load()
    assert seen == [chosen or "0"]  # before the library reads it
