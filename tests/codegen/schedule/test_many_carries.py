"""Loops that carry many scalars a lane are kernels; what unrolls one value into many has a limit."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import Options
from loopgrad.codegen.schedule import schedule
from loopgrad.runtime.interpreter import InterpreterDevice


@pytest.fixture
def program_of(monkeypatch):
    """The scheduled program of a function, which isn't run."""

    class Found(Exception):
        pass

    def compile_graph(self, graph, options):
        raise Found(graph)

    def program(function, *arguments):
        monkeypatch.setattr(InterpreterDevice, "compile", compile_graph)
        with lg.default_device("interpreter"), pytest.raises(Found) as found:
            lg.compile(function)(*arguments)
        return schedule(found.value.args[0], Options())

    return program


def ring(count):
    """Each value times its neighbour's half: every one is saved in every trip."""

    def loss(x, trips):
        def body(_, v):
            return tuple(v[i] * (0.5 + 0.5 * v[(i + 1) % count]) for i in range(count))

        return lg.sum(lg.fori_loop(0, trips, body, tuple(x / (i + 1.0) for i in range(count)))[0])

    return loss


def test_a_scalar_a_carry_is_a_kernel(program_of):
    x, trips = np.ones(8, np.float32), np.full(8, 3, np.int32)
    program = program_of(lg.value_and_grad(ring(300)), x, trips)
    assert not program.notes
    assert max(len(kernel.stacks) for kernel in program.kernels) >= 300


def test_large_values_of_a_lane_are_not(program_of):
    def loss(x, trips):
        def body(_, v):
            return tuple(part * 0.5 for part in v)

        a, b = lg.fori_loop(0, trips, body, (x, x + 1.0))
        return lg.sum(a * b)

    program = program_of(loss, np.ones((8, 120), np.float32), np.full(8, 3, np.int32))
    assert not any("would hold" in note for note in program.notes)
    program = program_of(loss, np.ones((8, 200), np.float32), np.full(8, 3, np.int32))
    assert any("would hold 400 scalars (limit 258)" in note for note in program.notes), program.notes
