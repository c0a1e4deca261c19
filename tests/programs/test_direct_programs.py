"""Random NumPy scripts run directly and compiled: every program of theirs gives the same bits both ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import Options
from loopgrad.graph.build import unbound
from loopgrad.graph.nodes import Graph
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.cpu import direct as direct_programs
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.executable import DirectProgram, Executable
from tests.programs.numpy_scripts.scripts import generate
from tests.programs.numpy_scripts.ways import check
from tests.programs.same_bits import same_bits

SCRIPTS = 30


class BothWays(DirectProgram):
    """Runs a graph directly and compiled, and compares."""

    def __init__(self, graph: Graph, program: DirectProgram, compiled: Executable) -> None:
        self.graph = graph
        self.program = program
        self.compiled = compiled
        self.work = 0

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        found = self.program.run(buffers)
        for i, (a, b) in enumerate(zip(found, self.compiled.run(buffers), strict=True)):
            assert same_bits(a.array, b.array), f"output {i} of\n{self.graph}"
        return found


@pytest.mark.parametrize("first", [5_000, 6_000], ids=["held", "written over"])
def test_scripts_have_the_same_bits_directly_and_compiled(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if first == 6_000:  # every program spares memory, as those of large arrays do
        monkeypatch.setattr(direct_programs, "KEPT", 0)
    direct, ran = CpuDevice.direct, []

    def both(self: CpuDevice, graph: Graph, options: Options) -> DirectProgram | None:
        program = direct(self, graph, options)
        ran.append(program is not None)
        return None if program is None else BothWays(graph, program, self.compile(unbound(graph), options))

    monkeypatch.setattr(CpuDevice, "direct", both)
    with lg.default_device("cpu"):
        for seed in range(first, first + SCRIPTS):
            outcome = check(generate(seed), "lazy", np.random.default_rng(seed))
            assert outcome.difference is None, generate(seed).text()
    assert sum(ran) > 0.8 * len(ran)
