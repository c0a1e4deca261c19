"""At which of LLVM's levels tests have the CPU's programs compiled.

Most of these programs run once or twice, and good code takes LLVM four times as long as any code. So tests whose
subject isn't code compile at level 0 and without passes that make code better, but for a sample, always the same one,
by the hash of their names: LOOPGRAD_TEST_OPTIMISED is its share; with 1 all compile as users do. A third of the tests
of the CPU's vector code does, and always those of other code generation, of the runtime and of benchmarks, and what
runs in processes of its own. Elements don't depend on the level, or a kernel promises what isn't so. On disk, code of
the two levels is kept apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from functools import cache
from typing import Any

import pytest

SHARE = float(os.environ.get("LOOPGRAD_TEST_OPTIMISED", 1 / 10))
ABOUT_CODE = ("tests/benchmarks/", "tests/codegen/", "tests/runtime/")
VECTOR = "tests/codegen/targets/cpu/vector/"  # what they check is in the text that LLVM gets


class CodeLevels:
    """`quick`: whether the test that runs has its programs compiled at level 0; `share` gives names their hash."""

    def __init__(self, share: Callable[[str], float]) -> None:
        self.share = share
        self.quick = False

    def watch(self) -> None:
        """Whatever is compiled from now on is compiled at the level of the test that runs."""
        from loopgrad.codegen.targets.cpu import llvm  # late: the library
        from loopgrad.runtime.cpu.device import CpuDevice

        # each piece of a long program has a machine of its own, of others all share one
        shipped, new, environment = llvm.target_machine, llvm.new_target_machine, CpuDevice.environment
        shared = cache(lambda machine: new(machine, level=0))
        llvm.target_machine = lambda machine: (shared if self.quick else shipped)(machine)  # type: ignore[assignment]
        llvm.new_target_machine = lambda machine: new(machine, 0) if self.quick else new(machine)  # type: ignore[misc]
        bench = llvm.bench
        llvm.bench = lambda target, stack: bench(target, stack, combined=not self.quick)  # type: ignore[misc]
        CpuDevice.environment = lambda device: (  # type: ignore[method-assign]
            (*environment(device), "level 0") if self.quick else environment(device)
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.quick = self.share(f"{item.nodeid} optimised") >= optimised_share(item.nodeid)
        try:
            return (yield)
        finally:
            self.quick = False


def optimised_share(test: str) -> float:
    """The share of tests like this one that compile as users do."""
    if test.startswith(VECTOR):
        return max(SHARE, 1 / 3)
    return 1.0 if test.startswith(ABOUT_CODE) else SHARE


def start(config: pytest.Config, share: Callable[[str], float]) -> None:
    if SHARE < 1:
        levels = CodeLevels(share)
        levels.watch()
        config.pluginmanager.register(levels)
