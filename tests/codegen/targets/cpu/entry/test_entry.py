"""The driver's text: valid LLVM, numbered host calls, only what is used. tests/runtime/cpu runs it."""

from __future__ import annotations

import json
from dataclasses import replace

from llvmlite import binding

from loopgrad.codegen.codec import decode, encode
from loopgrad.codegen.kernel.nodes import Block, BufferParam, ErrorSite, Kernel, StackSlot
from loopgrad.codegen.program import (
    ArraySlot,
    CopyStep,
    ForStep,
    Initial,
    LaunchStep,
    MatmulStep,
    PopStep,
    Program,
    ProgramStack,
    PushStep,
    RoutineStep,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.targets.cpu.entry.call_context import stack_stride
from loopgrad.codegen.targets.cpu.entry.entry import emit_entry
from loopgrad.codegen.targets.cpu.entry.launch import emit_runner
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface, StackInterface
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord, host_calls, record
from loopgrad.graph.nodes import Location
from loopgrad.graph.types import TensorType, bool_, float32, float64, int64

VECTOR = TensorType((100,), float64)
COUNT = TensorType((), int64)
HERE = Location("model.py", 3, "f")
KERNEL = Kernel(
    "work", (100,), (BufferParam(float64, 100, "read"), BufferParam(float64, 100, "accumulate")), Block(),
    (StackSlot(float64, None, "loop", HERE),), errors=(ErrorSite("index", "message", HERE),),
)  # fmt: skip
INTERFACE = CpuKernelInterface("k0", "k0_finish", 3, 40, 8, False, (128,), (StackInterface(64, None),), 1)
KERNEL_TEXT = """
define void @k0(ptr %params, i64 %chunk, ptr %worker, ptr %control) {
  ret void
}
define void @k0_finish(ptr %params) {
  ret void
}
"""


def everything() -> Program:
    slots = (
        ArraySlot(VECTOR, "input"), ArraySlot(VECTOR, "output"), ArraySlot(VECTOR, "temp"), ArraySlot(COUNT, "temp"),
        ArraySlot(TensorType((), bool_), "temp"), ArraySlot(COUNT, "input"), ArraySlot(VECTOR, "constant", 0),
    )  # fmt: skip
    launch = LaunchStep(0, (0, 1), ((1, Initial(None, 1.5)),))
    loop = ForStep(5, 3, (launch, PushStep(0, 1)), ((1, 2),), True, HERE)
    body = (PopStep(0, 1), MatmulStep(0, 0, 2, 1, 10, 10, 10), SwitchStep(4, ((), (CopyStep(0, 2),))))
    steps = (loop, WhileStep((), 4, body, (), 100, HERE), RoutineStep("sort", (0,), (1,), (("axis", 0),)))
    return Program(slots, (0, 5), (1,), (KERNEL,), steps, (ProgramStack(VECTOR, "v", HERE),), constants=bytes(832))


def test_every_step_gives_valid_text() -> None:
    module = binding.parse_assembly(emit_entry(everything(), (INTERFACE,)) + KERNEL_TEXT)
    module.verify()
    assert module.get_function("entry").linkage.name == "external"


def test_the_pool_launches_kernels_without_stacks() -> None:
    """They need no function, and what runs once a call isn't worth optimising; what loops repeat is."""
    slots = (ArraySlot(VECTOR, "input"), ArraySlot(VECTOR, "output"), *[ArraySlot(COUNT, "temp")] * 2)
    launch, interface = LaunchStep(0, (0, 1), ()), replace(INTERFACE, stacks=())
    program = Program(slots, (0,), (1,), (replace(KERNEL, stacks=()),), (launch,))
    once = emit_entry(program, (interface,))
    assert once.count("define") == 1
    assert "ptr @k0, i64 3" in once
    assert "define i32 @entry(ptr %context) noinline optnone {" in once
    repeated = emit_entry(replace(program, steps=(ForStep(2, 3, (launch,), (), False, HERE),)), (interface,))
    assert "@run.k0" not in repeated
    assert "define i32 @entry(ptr %context) {" in repeated
    assert "define internal i32 @run.k0" in emit_entry(replace(program, kernels=(KERNEL,)), (INTERFACE,))


def test_only_used_support_is_given() -> None:
    program = Program((ArraySlot(VECTOR, "input"), ArraySlot(VECTOR, "output")), (0,), (1,), (), (CopyStep(0, 1),))
    text = emit_entry(program, ())
    assert "drv." not in text
    assert "drv.product.float64" in emit_entry(everything(), (INTERFACE,))
    assert "drv.product.float32" not in emit_entry(everything(), (INTERFACE,))


def test_the_text_is_the_same_every_time() -> None:
    assert emit_entry(everything(), (INTERFACE,)) == emit_entry(everything(), (INTERFACE,))


def test_the_text_does_not_grow_with_simple_steps() -> None:
    """But for the words of a table."""
    slots = (ArraySlot(VECTOR, "input"), ArraySlot(VECTOR, "output"))
    lines = []
    for many in (100, 400):
        program = Program(slots, (0,), (1,), (), (CopyStep(0, 1),) * many)
        lines.append(emit_entry(program, ()).count("\n"))
    assert lines[0] == lines[1]


def test_a_launch_does_not_grow_with_the_stacks_of_its_kernel() -> None:
    lines = []
    for many in (2, 300):
        stacks = KERNEL.stacks * many
        text = emit_runner(0, replace(KERNEL, stacks=stacks), replace(INTERFACE, stacks=INTERFACE.stacks * many), 9)
        lines.append(text.count("\n"))
    assert lines[0] == lines[1]


def test_host_calls_are_numbered_in_program_order() -> None:
    assert [type(call) for call in host_calls(everything())] == [MatmulStep, RoutineStep]


def test_the_record_survives_json() -> None:
    found = record(everything(), (INTERFACE,))
    assert decode(CpuProgramRecord, json.loads(json.dumps(encode(CpuProgramRecord, found)))) == found
    assert found.loops == (HERE, HERE)


def test_large_stack_elements_are_aligned() -> None:
    assert stack_stride(TensorType((), float32)) == 4
    assert stack_stride(TensorType((0,), float32)) == 1
    assert stack_stride(TensorType((17,), float32)) == 128
