"""Hand-built Programs with kernels in LLVM IR: every kind of step, results, refusals, replay."""

from __future__ import annotations

import ctypes
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, Reduction
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
    ReserveStep,
    Residual,
    RoutineStep,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.targets.cpu.entry.call_context import HEADER
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface
from loopgrad.graph.errors import (
    DTypeError,
    LoopLimitError,
    ShapeError,
)
from loopgrad.graph.nodes import Location
from loopgrad.graph.types import DTYPES, DType, TensorType, bool_, float32, float64, int32, int64
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.cpu import memory
from loopgrad.runtime.cpu.call_code import OFTEN

HERE = Location("model.py", 12, "step")
N = 1000
CHUNKS = 10
VECTOR = TensorType((N,), float64)
COUNT = TensorType((), int64)
FLAG = TensorType((), bool_)

# out[i] = in[i] + 1 over chunks of 100
INCREMENT = """
define void @increment(ptr %params, i64 %chunk, ptr %worker, ptr %control) {
entry:
  %in = load ptr, ptr %params
  %out_pp = getelementptr ptr, ptr %params, i64 1
  %out = load ptr, ptr %out_pp
  %first = mul i64 %chunk, 100
  %last = add i64 %first, 100
  br label %next
next:
  %i = phi i64 [ %first, %entry ], [ %j, %next ]
  %p = getelementptr double, ptr %in, i64 %i
  %x = load double, ptr %p
  %y = fadd double %x, 1.0
  %q = getelementptr double, ptr %out, i64 %i
  store double %y, ptr %q
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, %last
  br i1 %done, label %out_block, label %next
out_block:
  ret void
}
"""
INCREMENT_KERNEL = Kernel(
    "increment", (N,), (BufferParam(float64, N, "read"), BufferParam(float64, N, "write")), Block()
)
INCREMENT_INTERFACE = CpuKernelInterface("increment", None, CHUNKS, 100, 8, False, (), (), 0)

# below(flag = x[0] < 5.0)
BELOW = """
define void @below(ptr %params, i64 %chunk, ptr %worker, ptr %control) {
  %in = load ptr, ptr %params
  %out_pp = getelementptr ptr, ptr %params, i64 1
  %out = load ptr, ptr %out_pp
  %x = load double, ptr %in
  %c = fcmp olt double %x, 5.0
  %b = zext i1 %c to i8
  store i8 %b, ptr %out
  ret void
}
"""
BELOW_KERNEL = Kernel("below", (), (BufferParam(float64, N, "read"), BufferParam(bool_, 1, "write")), Block())
BELOW_INTERFACE = CpuKernelInterface("below", None, 1, 1, 1, False, (), (), 0)


def vector(value: float = 0.0, n: int = N) -> Buffer:
    return buffer(np.full(n, value))


def buffer(array: Any) -> Buffer:
    return Buffer(np.array(array, order="C"), "cpu")


def scalar(value: int, dtype: DType = int64) -> Buffer:
    return buffer(np.asarray(value, dtype.np))


def slots(*kinds: tuple[TensorType, str]) -> tuple[ArraySlot, ...]:
    return tuple(ArraySlot(type, kind) for type, kind in kinds)


def increment(source: int, target: int) -> LaunchStep:
    return LaunchStep(0, (source, target))


def test_launches_in_a_row(load: Any) -> None:
    program = Program(
        slots((VECTOR, "input"), (VECTOR, "output"), (VECTOR, "temp")),
        (0,), (1,), (INCREMENT_KERNEL,), (increment(0, 2), increment(2, 1)),
    )  # fmt: skip
    executable = load(program, (INCREMENT_INTERFACE,), INCREMENT)
    x = buffer(np.arange(N, dtype=float))
    (y,) = executable.run([x])
    np.testing.assert_array_equal(y.array, np.arange(N) + 2.0)
    np.testing.assert_array_equal(x.array, np.arange(N))
    assert not y.array.flags.writeable


def test_results_stay_while_they_are_held(load: Any) -> None:
    program = Program(slots((VECTOR, "input"), (VECTOR, "output")), (0,), (1,), (INCREMENT_KERNEL,), (increment(0, 1),))
    executable = load(program, (INCREMENT_INTERFACE,), INCREMENT)
    held = [executable.run([vector(float(i))])[0] for i in range(20)]
    views = [executable.run([vector(float(i))])[0].array[3:5] for i in range(20)]
    for i in range(20):
        assert held[i].array[0] == i + 1
        assert views[i][0] == i + 1


def test_an_output_may_be_an_input_a_constant_or_returned_twice(load: Any) -> None:
    constant = ArraySlot(TensorType((2,), int32), "constant", 0)
    program = Program(
        (*slots((VECTOR, "input"), (VECTOR, "output")), constant),
        (0,), (1, 0, 2, 1), (INCREMENT_KERNEL,), (increment(0, 1),), constants=np.array([4, 5], np.int32).tobytes(),
    )  # fmt: skip
    executable = load(program, (INCREMENT_INTERFACE,), INCREMENT)
    x = vector(1.0)
    outputs = executable.run([x])
    assert outputs[0] is outputs[3]
    assert outputs[1] is x
    assert outputs[2].array.tolist() == [4, 5]
    assert outputs[0].array[0] == 2.0


@pytest.mark.parametrize("count_type", ["int8", "int32", "int64", "uint8", "uint32"])
@pytest.mark.parametrize("trips", [0, 1, 4, 7])
def test_for_rotates_and_leaves_inputs_alone(load: Any, count_type: str, trips: int) -> None:
    count = TensorType((), DTYPES[count_type])
    program = Program(
        slots((VECTOR, "input"), (count, "input"), (VECTOR, "output"), (VECTOR, "temp"), (count, "temp")),
        (0, 1), (2,), (INCREMENT_KERNEL,),
        (CopyStep(0, 2), ForStep(1, 4, (increment(2, 3),), ((2, 3),), False, HERE)),
    )  # fmt: skip
    executable = load(program, (INCREMENT_INTERFACE,), INCREMENT)
    for start in (0.0, 10.0):
        (y,) = executable.run([vector(start), scalar(trips, DTYPES[count_type])])
        np.testing.assert_array_equal(y.array, start + trips)


def test_a_negative_count_makes_no_trip(load: Any) -> None:
    program = Program(
        slots((VECTOR, "input"), (COUNT, "input"), (VECTOR, "output"), (COUNT, "temp")),
        (0, 1), (2,), (INCREMENT_KERNEL,),
        (CopyStep(0, 2), ForStep(1, 3, (increment(0, 2),), (), False, HERE)),
    )  # fmt: skip
    (y,) = load(program, (INCREMENT_INTERFACE,), INCREMENT).run([vector(3.0), scalar(-5)])
    assert y.array[0] == 3.0


def test_a_rotated_input_is_copied_first(load: Any) -> None:
    program = Program(
        slots((VECTOR, "input"), (COUNT, "input"), (VECTOR, "temp"), (COUNT, "temp"), (VECTOR, "output")),
        (0, 1), (4,), (INCREMENT_KERNEL,),
        (ForStep(1, 3, (increment(0, 2),), ((0, 2),), False, HERE), CopyStep(0, 4)),
    )  # fmt: skip
    x = vector(1.0)
    (y,) = load(program, (INCREMENT_INTERFACE,), INCREMENT).run([x, scalar(3)])
    assert y.array[0] == 4.0
    assert x.array[0] == 1.0


@pytest.mark.parametrize("reverse", [False, True])
def test_the_index_of_a_loop(load: Any, reverse: bool) -> None:
    """Pushes every index, pops the last: the last index seen."""
    program = Program(
        slots((COUNT, "input"), (COUNT, "temp"), (COUNT, "output")),
        (0,), (2,), (), (ForStep(0, 1, (CopyStep(1, 2),), (), reverse, HERE),),
    )  # fmt: skip
    (last,) = load(program).run([scalar(5)])
    assert int(last.array) == (0 if reverse else 4)


def test_nested_loops(load: Any) -> None:
    inner = ForStep(1, 4, (increment(2, 3),), ((2, 3),), False, HERE)
    program = Program(
        slots((VECTOR, "input"), (COUNT, "input"), (VECTOR, "output"), (VECTOR, "temp"), (COUNT, "temp"),
              (COUNT, "temp")),
        (0, 1), (2,), (INCREMENT_KERNEL,),
        (CopyStep(0, 2), ForStep(1, 5, (inner,), (), False, HERE)),
    )  # fmt: skip
    (y,) = load(program, (INCREMENT_INTERFACE,), INCREMENT).run([vector(0.0), scalar(3)])
    assert y.array[0] == 9.0


def while_program(max_steps: int | None) -> Program:
    kernels = (INCREMENT_KERNEL, BELOW_KERNEL)
    loop = WhileStep((LaunchStep(1, (1, 3)),), 3, (increment(1, 2),), ((1, 2),), max_steps, HERE)
    return Program(
        slots((VECTOR, "input"), (VECTOR, "output"), (VECTOR, "temp"), (FLAG, "temp")),
        (0,), (1,), kernels, (CopyStep(0, 1), loop),
    )  # fmt: skip


def test_while(load: Any) -> None:
    executable = load(while_program(None), (INCREMENT_INTERFACE, BELOW_INTERFACE), INCREMENT + BELOW)
    assert executable.run([vector(0.5)])[0].array[0] == 5.5
    assert executable.run([vector(9.0)])[0].array[0] == 9.0


def test_max_steps_raises_at_the_loop_and_the_next_call_works(load: Any) -> None:
    executable = load(while_program(3), (INCREMENT_INTERFACE, BELOW_INTERFACE), INCREMENT + BELOW)
    for _ in range(OFTEN):
        with pytest.raises(LoopLimitError, match=r"max_steps=3[\s\S]*model\.py:12"):
            executable.run([vector(0.0)])
        assert executable.run([vector(2.0)])[0].array[0] == 5.0
    assert len(executable._free) == 1


@pytest.mark.parametrize(("index", "expected"), [(-3, 10.0), (0, 10.0), (1, 11.0), (2, 12.0), (99, 12.0)])
def test_switch_clamps(load: Any, index: int, expected: float) -> None:
    program = Program(
        slots((VECTOR, "input"), (COUNT, "input"), (VECTOR, "output"), (VECTOR, "temp")),
        (0, 1), (2,), (INCREMENT_KERNEL,),
        (SwitchStep(1, ((CopyStep(0, 2),), (increment(0, 2),), (increment(0, 3), increment(3, 2)))),),
    )  # fmt: skip
    (y,) = load(program, (INCREMENT_INTERFACE,), INCREMENT).run([vector(10.0), scalar(index)])
    assert y.array[0] == expected


def test_switch_on_a_bool(load: Any) -> None:
    program = Program(
        slots((VECTOR, "input"), (FLAG, "input"), (VECTOR, "output")),
        (0, 1), (2,), (INCREMENT_KERNEL,), (SwitchStep(1, ((CopyStep(0, 2),), (increment(0, 2),))),),
    )  # fmt: skip
    executable = load(program, (INCREMENT_INTERFACE,), INCREMENT)
    for flag in (0, 1):
        (y,) = executable.run([vector(0.0), scalar(flag, bool_)])
        assert y.array[0] == flag


def stack_program(element: TensorType) -> Program:
    """Pushes x + k for k in 1..n, then pops all: the last popped is x + 1."""
    push = ForStep(1, 4, (increment(2, 3), PushStep(0, 3)), ((2, 3),), False, HERE)
    pop = ForStep(1, 4, (PopStep(0, 5), CopyStep(5, 6)), (), True, HERE)
    return Program(
        slots((element, "input"), (COUNT, "input"), (element, "temp"), (element, "temp"), (COUNT, "temp"),
              (element, "temp"), (element, "output")),
        (0, 1), (6,), (INCREMENT_KERNEL,), (CopyStep(0, 2), push, pop),
        stacks=(ProgramStack(element, "v", HERE),),
        residuals=(Residual("v", element, "n", "read by the reverse pass", "program", HERE),),
    )  # fmt: skip


@pytest.mark.parametrize("trips", [1, 3, 5, 100, 1000])
def test_program_stacks_grow(load: Any, trips: int) -> None:
    executable = load(stack_program(VECTOR), (INCREMENT_INTERFACE,), INCREMENT)
    for start in (0.0, 5.0):
        (y,) = executable.run([vector(start), scalar(trips)])
        np.testing.assert_array_equal(y.array, start + 1)
    (row,) = executable.plan().residuals
    assert row.depth == trips
    assert row.bytes == trips * 8 * N
    assert "model.py:12" in str(executable.plan())
    assert executable.memory_stats().program_stack_bytes >= row.bytes


@pytest.mark.parametrize("depth", [2000, 1 << 40, (1 << 63) - 1])
def test_a_known_depth_is_refused_before_the_loop(load: Any, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = stack_program(VECTOR)
    program = replace(program, steps=(ReserveStep(0, 1), *program.steps))
    executable = load(program, (INCREMENT_INTERFACE,), INCREMENT)
    monkeypatch.setattr(memory, "UNCHECKED_BYTES", 0)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1_000_000)
    with pytest.raises(MemoryError, match=r"'v'.*, needed [\d,]+ bytes[\s\S]*model\.py:12"):
        executable.run([vector(0.0), scalar(depth)])
    monkeypatch.undo()
    (y,) = executable.run([vector(2.0), scalar(40)])
    assert y.array[0] == 3.0
    assert executable.memory_stats().program_stack_bytes == 40 * 8 * N


def test_idle_memory_is_given_back_before_a_refusal(load: Any) -> None:
    executable = load(stack_program(VECTOR), (INCREMENT_INTERFACE,), INCREMENT)
    executable.run([vector(0.0), scalar(1000)])
    assert executable.memory_stats().program_stack_bytes >= 1000 * 8 * N
    memory.release_idle()
    assert executable.memory_stats().program_stack_bytes == 0
    assert executable.memory_stats().heap_bytes == 0
    assert executable.run([vector(1.0), scalar(100)])[0].array[0] == 2.0


def test_a_program_stack_that_cannot_fit_raises(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = load(stack_program(VECTOR), (INCREMENT_INTERFACE,), INCREMENT)
    monkeypatch.setattr(memory, "UNCHECKED_BYTES", 20_000)
    monkeypatch.setattr(memory, "available_bytes", lambda: 4_000)
    with pytest.raises(MemoryError, match=r"'v'.*[\d,]+ bytes available, needed [\d,]+ bytes[\s\S]*model\.py:12"):
        executable.run([vector(0.0), scalar(10_000)])
    monkeypatch.undo()
    (y,) = executable.run([vector(2.0), scalar(4)])
    assert y.array[0] == 3.0


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind != "c"], ids=str)
@pytest.mark.parametrize("value", [0, 1])
def test_fills(load: Any, dtype: DType, value: int) -> None:
    type = TensorType((37,), dtype)
    kernel = Kernel("nothing", (0,), (BufferParam(dtype, 37, "accumulate"),), Block())
    interface = CpuKernelInterface("nothing", None, 0, 1, 1, False, (), (), 0)
    program = Program(
        slots((type, "output")), (), (0,), (kernel,), (LaunchStep(0, (0,), ((0, Initial(None, value)),)),)
    )
    (y,) = load(program, (interface,)).run([])
    np.testing.assert_array_equal(y.array.astype(float), float(value))


def test_scratch_and_finish(load: Any) -> None:
    """Each chunk leaves a partial sum; finish adds them in order; no chunk at all gives 0."""
    text = """
define void @partial(ptr %params, i64 %chunk, ptr %worker, ptr %control) {
  %scratch_pp = getelementptr ptr, ptr %params, i64 1
  %scratch = load ptr, ptr %scratch_pp
  %p = getelementptr i64, ptr %scratch, i64 %chunk
  store i64 %chunk, ptr %p
  ret void
}
define void @combine(ptr %params) {
entry:
  %out = load ptr, ptr %params
  %scratch_pp = getelementptr ptr, ptr %params, i64 1
  %scratch = load ptr, ptr %scratch_pp
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %j, %add ]
  %sum = phi i64 [ 0, %entry ], [ %sum2, %add ]
  %more = icmp slt i64 %i, CHUNKS
  br i1 %more, label %add, label %done
add:
  %p = getelementptr i64, ptr %scratch, i64 %i
  %x = load i64, ptr %p
  %sum2 = add i64 %sum, %x
  %j = add i64 %i, 1
  br label %next
done:
  store i64 %sum, ptr %out
  ret void
}
"""
    for chunks in (0, 1, 2, 77):
        kernel = Kernel(
            "partial",
            (chunks,),
            (BufferParam(int64, 1, "write"),),
            Block(),
            reductions=(Reduction("add", int64, 0, 1),),
        )
        interface = CpuKernelInterface("partial", "combine", chunks, 1, 1, False, (8 * chunks,), (), 0)
        program = Program(slots((COUNT, "output")), (), (0,), (kernel,), (LaunchStep(0, (0,)),))
        (y,) = load(program, (interface,), text.replace("CHUNKS", str(chunks))).run([])
        assert int(y.array) == chunks * (chunks - 1) // 2


MATMULS = [(1, 3, 4, 5), (3, 2, 6, 1), (2, 1, 1, 7), (1, 0, 3, 2), (2, 3, 0, 4), (0, 2, 2, 2), (1, 40, 50, 60)]


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int32", "int64", "uint16"])
@pytest.mark.parametrize("shape", MATMULS)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_matmul(load: Any, dtype: str, shape: tuple[int, int, int, int], transposed: tuple[bool, bool]) -> None:
    batch, m, k, n = shape
    rng = np.random.default_rng(0)
    left = rng.integers(-3, 4, (batch, m, k)).astype(dtype)
    right = rng.integers(-3, 4, (batch, k, n)).astype(dtype)
    stored = [
        np.ascontiguousarray(a.swapaxes(1, 2) if t else a) for a, t in zip((left, right), transposed, strict=True)
    ]
    types = [TensorType(a.shape, DTYPES[dtype]) for a in (*stored, left @ right)]
    program = Program(
        slots((types[0], "input"), (types[1], "input"), (types[2], "output")), (0, 1), (2,), (),
        (MatmulStep(0, 1, 2, batch, m, k, n, *transposed),),
    )  # fmt: skip
    (product,) = load(program).run([buffer(a) for a in stored])
    np.testing.assert_array_equal(product.array, left @ right)


def product_program(m: int, k: int, n: int) -> Program:
    types = [TensorType(shape, float32) for shape in ((m, k), (k, n), (m, n))]
    return Program(
        slots((types[0], "input"), (types[1], "input"), (types[2], "output")), (0, 1), (2,), (),
        (MatmulStep(0, 1, 2, 1, m, k, n),),
    )  # fmt: skip


def test_products_for_which_there_is_no_memory_are_numpys(load: Any) -> None:
    executable = load(product_program(20, 30, 40))
    x = np.arange(1200, dtype=np.float32) % 7
    given = [buffer(x[:600].reshape(20, 30)), buffer(x.reshape(30, 40))]
    want = x[:600].reshape(20, 30) @ x.reshape(30, 40)
    np.testing.assert_array_equal(executable.run(given)[0].array, want)
    refuse = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 6)(lambda *_: 1)
    (context,) = executable._free
    context.words[HEADER["product_f32"]] = ctypes.cast(refuse, ctypes.c_void_p).value
    np.testing.assert_array_equal(executable.run(given)[0].array, want)


def test_host_calls_and_their_errors(load: Any) -> None:
    program = Program(
        slots((VECTOR, "input"), (VECTOR, "output"), (VECTOR, "temp")), (0,), (1,), (INCREMENT_KERNEL,),
        (RoutineStep("sort", (0,), (2,), (("axis", 0),)), increment(2, 1)),
    )  # fmt: skip
    x = np.random.default_rng(1).normal(size=N)
    (y,) = load(program, (INCREMENT_INTERFACE,), INCREMENT).run([buffer(x)])
    np.testing.assert_array_equal(y.array, np.sort(x) + 1)
    broken = Program(
        slots((VECTOR, "input"), (VECTOR, "output")), (0,), (1,), (), (RoutineStep("no such", (0,), (1,)),)
    )
    executable = load(broken)
    for _ in range(2):
        with pytest.raises(KeyError, match="no such"):
            executable.run([buffer(x)])


def test_refuses_other_shapes_dtypes_and_numbers(load: Any) -> None:
    program = Program(slots((VECTOR, "input"), (VECTOR, "output")), (0,), (1,), (INCREMENT_KERNEL,), (increment(0, 1),))
    executable = load(program, (INCREMENT_INTERFACE,), INCREMENT)
    replay = executable.capture([vector(0.0)])
    for _ in range(OFTEN):  # code of its own refuses them, too
        executable.run([vector(0.0)])
    assert executable._often is not None
    new = load(program, (INCREMENT_INTERFACE,), INCREMENT)
    for call in (executable.run, new.run, executable.capture, replay.replay):
        with pytest.raises(ShapeError, match="expected 1 inputs, got 0"):
            call([])
        with pytest.raises(ShapeError, match=r"shape \(1000,\), got \(999,\)"):
            call([vector(0.0, 999)])
        with pytest.raises(DTypeError, match="float64, got float32"):
            call([buffer(np.zeros(N, np.float32))])
        with pytest.raises(ValueError, match="on cpu, got it on interpreter"):
            call([Buffer(np.zeros(N), "interpreter")])


def test_replay_repeats_and_rebinds(load: Any) -> None:
    program = Program(slots((VECTOR, "input"), (VECTOR, "output")), (0,), (1,), (INCREMENT_KERNEL,), (increment(0, 1),))
    replay = load(program, (INCREMENT_INTERFACE,), INCREMENT).capture([vector(1.0)])
    first = replay.replay()[0]
    second = replay.replay([vector(5.0)])[0]
    third = replay.replay()[0]
    assert (first.array[0], second.array[0], third.array[0]) == (2.0, 6.0, 6.0)
    assert (replay.stats().captures, replay.stats().replays) == (1, 3)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_signal_interrupts_an_endless_loop(load: Any) -> None:
    def handler(number: int, frame: object) -> None:
        raise KeyError("alarm")

    executable = load(while_program(None), (INCREMENT_INTERFACE, BELOW_INTERFACE), INCREMENT + BELOW)
    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyError, match="alarm"):
            executable.run([vector(-1e300)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert executable.run([vector(0.5)])[0].array[0] == 5.5
