"""Who does a routine: the first provider that doesn't refuse, in launches that see each other's scratch memory."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.options import Options
from loopgrad.codegen.program import HOST, ArraySlot, Program, RoutineStep
from loopgrad.codegen.targets.gpu.routines.routine import Provider
from loopgrad.codegen.targets.gpu.routines.table import PROVIDERS
from loopgrad.codegen.targets.gpu.support.support_kernels import copy_kernel
from loopgrad.graph.types import TensorType, int64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

VECTOR = TensorType((100,), int64)
NEVER = Provider(
    "never", lambda routine: f"{routine.name} of {routine.inputs[0].type.size} is too much", lambda _: None
)


def through_scratch(routine):
    """Not sorting at all, so that it is seen who did it."""
    block = routine.scratch(100)
    for source, target in ((*routine.inputs, block), (block, *routine.outputs)):
        routine.by_lanes(copy_kernel(8), 100, source, target)


def program():
    step = RoutineStep("sort", (0,), (1,), (("axis", 0),))
    return Program((ArraySlot(VECTOR, "input"), ArraySlot(VECTOR, "output")), (0,), (1,), (), (step,))


@pytest.fixture
def providers(monkeypatch):
    return lambda *given: monkeypatch.setitem(PROVIDERS, "sort", given)


def run(executable, x):
    (result,) = executable.run([device().put(x)])
    return device().get(result)


X = np.arange(100)[::-1].copy()


def test_launches_hand_on_scratch_memory(providers):
    providers(NEVER, Provider("copies", lambda _: "", through_scratch))
    executable = executable_of(program())
    for _ in range(2):
        np.testing.assert_array_equal(run(executable, X), X)
    (row,) = executable.plan().routines
    assert (row.provider, row.reason) == ("copies", "never: sort of 100 is too much")
    (step,) = executable.program.steps
    assert len(executable.program.slots) == 3
    assert step.scratch == (2,)
    assert 2 in executable.program.arena.slots


def test_the_host_does_what_nobody_else_does(providers):
    providers(NEVER)
    executable = executable_of(program())
    np.testing.assert_array_equal(run(executable, X), np.sort(X))
    (row,) = executable.plan().routines
    assert (row.provider, row.reason) == (HOST, "never: sort of 100 is too much")
    assert executable.program.slots == program().slots


def test_the_same_code_is_made_once(providers):
    providers(Provider("copies", lambda _: "", through_scratch))
    artifact = device().emit(program(), Options())
    assert len(artifact.program.modules) == 1
    assert len(artifact.program.support) == 1
