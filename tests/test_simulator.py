"""Invocations that wait for each other in the simulator: each finds what those before the barrier wrote; without one,
what it finds depends on the order, of which a pipeline takes both in turn."""

from __future__ import annotations

import numpy as np

from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.runtime.cpu.loader import Code
from tests.simulator.code import generate
from tests.simulator.coroutines import DECLARATIONS, WAIT
from tests.simulator.driver import Pipeline

COUNT = 8

# element n becomes what the next invocation wrote, its number; %w0 is where they lie
NEIGHBOURS = """target triple = "{triple}"
{declarations}
@k0.waits = constant i8 1
define void @k0.run(i64 %w0, i64 %w1, i64 %w2, i64 %w3, i64 %w4, i64 %w5, i32 %groups, i32 %first, i32 %end,
    ptr %shared, ptr %barrier) {{
  %mine = getelementptr i32, ptr %shared, i32 %first
  store i32 %first, ptr %mine
  {wait}
  %next = urem i32 %end, 8
  %other = getelementptr i32, ptr %shared, i32 %next
  %found = load i32, ptr %other
  %elements = inttoptr i64 %w0 to ptr
  %element = getelementptr i32, ptr %elements, i32 %first
  store i32 %found, ptr %element
  ret void
}}"""


def found(wait: str) -> list[list[int]]:
    """The elements after each of two launches."""
    text = NEIGHBOURS.format(triple=host_machine().triple, declarations=DECLARATIONS, wait=wait)
    pipeline = Pipeline(Code(generate(text)[0], ["k0.run", "k0.waits"]), "k0", COUNT)
    elements, launches = np.zeros(COUNT, np.int32), []
    for _ in range(2):
        pipeline.dispatch(1, (elements.ctypes.data, 0, 0, 0, 0, 0))
        launches.append(elements.tolist())
    return launches


def test_after_a_barrier_all_is_there() -> None:
    assert found(WAIT) == [[*range(1, COUNT), 0]] * 2


def test_without_a_barrier_one_order_finds_what_was_there_before() -> None:
    forwards, backwards = found("")
    right = np.array([*range(1, COUNT), 0])
    np.testing.assert_array_equal(forwards == right, [False] * (COUNT - 1) + [True])
    np.testing.assert_array_equal(backwards == right, [True] * (COUNT - 1) + [False])
