"""What LLVM is told before it compiles."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from llvmlite import binding

from loopgrad.codegen.targets import llvm_modules
from loopgrad.codegen.targets.llvm_modules import NEWEST, REGION, bound_scheduling, parsed


def test_llvm_is_told_once_whoever_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice would end the process, and so would an option that LLVM doesn't know."""
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(binding, "set_option", lambda *option: told.append(option))
    monkeypatch.setattr(llvm_modules, "_untold", [True])
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: bound_scheduling(), range(16)))
    with parsed("define void @f() {\n  ret void\n}"):
        pass
    assert told == [("", f"-dag-maps-huge-region={REGION}")]


def test_a_newer_llvm_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "set_option", lambda *option: pytest.fail(f"{option} may be unknown"))
    monkeypatch.setattr(binding, "llvm_version_info", (NEWEST + 1, 0, 0))
    monkeypatch.setattr(llvm_modules, "_untold", [True])
    bound_scheduling()
