"""Long functions in parts: same bits, bounded lengths, the types of what goes through memory."""

from __future__ import annotations

import re

import numpy as np
import pytest

from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.module import emit_kernels
from loopgrad.codegen.targets.cpu.vector import parts
from loopgrad.codegen.targets.cpu.vector.result_types import result_type, size_of
from loopgrad.graph.types import bool_, float64, int32
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel, Options, narrower
from tests.codegen.targets.cpu.kernel_build import Build

LANES = 83


def loops_and_branches(steps, loops):
    """Loops after each other whose bodies are long, branch, call sines, push and ask; then the same in reverse."""
    build = Build(LANES)
    (i,) = build.indices
    x, n = build.load(build.param(float64, LANES), i), build.load(build.param(int32, LANES), i)
    one, half = build.const(1.0, float64), build.const(0.5, float64)
    stacks = [build.stack(float64) for _ in range(loops)]

    def long(v):
        for k in range(steps):
            v = build.one("add", (build.one("mul", (v, half)), build.one("sin", (build.one("add", (v, x)),))))
            if k % 7 == 3:
                low = build.one("lt", (v, one), bool_)
                v = build.branch(low, lambda v=v: [build.one("exp", (v,))], lambda v=v: [v], [float64])[0]
        return v

    def forward(stack, v):
        def body(_k, v):
            build.op("push", (v,), (), stack=stack)
            return [long(v)]

        return build.loop(n, [v], body)[0]

    def back(stack, g):
        return build.loop(n, [g], lambda _k, g: [long(build.one("mul", (g, popped(stack))))], reverse=True)[0]

    def popped(stack):
        return build.one("pop", (), float64, stack=stack)

    v = x
    for stack in stacks:
        v = forward(stack, v)
    more = build.const(3.0, float64)
    (v,) = build.while_loop(
        [v], lambda v: build.one("lt", (v, more), bool_), lambda v: [build.one("add", (build.one("abs", (v,)), half))]
    )
    g = v
    for stack in reversed(stacks):
        g = back(stack, g)
    build.store(build.param(float64, LANES, "write"), i, build.one("add", (v, g)))
    build.reduce(g, build.param(float64, 1, "write"))
    return build.kernel()


def run(kernel, machine=None):
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-2, 2, LANES), rng.integers(0, 5, LANES).astype(np.int32), np.zeros(LANES), np.zeros(1)]
    compiled = CompiledKernel(kernel, Options(), machine)
    control = compiled.run(arrays)
    return compiled.text, [a.tobytes() for a in arrays], control.needed


def limit(monkeypatch, longest, part, window):
    for name, value in (("LONGEST", longest), ("PART", part), ("WINDOW", window)):
        monkeypatch.setattr(parts, name, value)


@pytest.mark.parametrize("bits", [None, 128])
def test_parts_have_the_bits_of_the_whole(bits, monkeypatch):
    machine = narrower(bits) if bits else None
    kernel = loops_and_branches(4, 2)
    whole, expected, needed = run(kernel, machine)
    assert ".part" not in whole
    for sizes in ((0, 15, 5), (100, 300, 100)):
        limit(monkeypatch, *sizes)
        text, found, deep = run(kernel, machine)
        assert text.count("define internal void @k0.part") > 2
        assert found == expected
        assert deep == needed


def functions(text):
    """The number of lines of each function."""
    return {name: body.count("\n") for name, body in re.findall(r"define [^@]*(@[\w.]+)\((.*?)\n}\n", text, re.S)}


@pytest.mark.parametrize("shape", [(600, 1), (4, 60)], ids=["a long body", "many loops"])
def test_no_function_is_long(shape):
    steps, loops = shape
    text, _ = emit_kernels([loops_and_branches(steps, loops)], host_machine(), Options())
    lengths = functions(text)
    assert sum(lengths.values()) > 2 * parts.LONGEST
    assert max(lengths.values()) < parts.LONGEST
    assert sum(name.startswith("@k0.part") for name in lengths) > 3
    assert "  %depth.0 = getelementptr inbounds i8, ptr %frame, " in text  # the counters themselves are in the frame


def stores_at_the_end(values):
    """Values that are made one after the other, and wait until all of them are stored."""
    build = Build(LANES)
    (i,) = build.indices
    v = build.load(build.param(float64, LANES), i)
    more = build.const(1.25, float64)
    kept = []
    for _ in range(values):
        for _ in range(5):
            v = build.one("sub", (build.one("mul", (v, v)), more))
        kept.append(v)
    for v in kept:
        build.store(build.param(float64, LANES, "write"), i, v)
    return build.kernel()


def test_what_reads_long_before_is_counted_with_its_loads(monkeypatch):
    """LLVM's scheduler compares all loads and stores of a block with each other."""
    values = 400
    kernel = stores_at_the_end(values)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, LANES), *[np.zeros(LANES) for _ in range(values)]]
    expected, v = [arrays[0]], arrays[0]
    for _ in range(values):
        for _ in range(5):
            v = v * v - 1.25
        expected.append(v)
    limit(monkeypatch, 1000, 300, 100)
    compiled = CompiledKernel(kernel, Options())
    lengths = [n for name, n in functions(compiled.text).items() if ".part" in name]
    assert len(lengths) > 10
    assert max(lengths) < 2 * (parts.PART + parts.WINDOW)
    compiled.run(arrays)
    np.testing.assert_array_equal(arrays, expected)


def test_short_functions_stay_whole():
    text, _ = emit_kernels([loops_and_branches(3, 1)], host_machine(), Options())
    assert ".part" not in text


def test_memory_of_values_that_are_done_is_used_again():
    frame = parts._Frame()
    assert frame.place(64, 1, 5) == 0
    assert frame.place(8, 2, 9) == 64
    assert frame.place(64, 5, 7) == 128  # the first is read in this line
    assert frame.place(64, 6, 8) == 0
    assert frame.size == 192


@pytest.mark.parametrize(
    ("text", "type", "size"),
    [
        ("fadd reassoc nsz <8 x double> %a, %b", "<8 x double>", 64),
        ("icmp slt <16 x i32> %a, zeroinitializer", "<16 x i1>", 2),
        ("fcmp contract olt float %a, %b", "i1", 1),
        ("load volatile i64, ptr %p", "i64", 8),
        ("load atomic i64, ptr %p monotonic, align 8", "i64", 8),
        ("getelementptr inbounds i8, ptr %p, i64 4", "ptr", 8),
        ("getelementptr double, ptr %p, <8 x i64> %i", "<8 x ptr>", 64),
        ("select <8 x i1> %m, <8 x float> %a, <8 x float> splat (float 0x0)", "<8 x float>", 32),
        ("shufflevector <8 x double> %a, <8 x double> %b, <4 x i32> <i32 0, i32 1, i32 2, i32 3>", "<4 x double>", 32),
        ("extractvalue { <8 x i64>, <8 x double> } %a, 1", "<8 x double>", 64),
        ("extractelement <8 x half> %a, i64 3", "half", 2),
        ("phi <8 x double> [ zeroinitializer, %a ], [ %x, %b ]", "<8 x double>", 64),
        ("call fast <8 x double> @llvm.fma.v8f64(<8 x double> %a, <8 x double> %b)", "<8 x double>", 64),
        ("call { i64, double } @f(double %x)", "{ i64, double }", None),
        ("bitcast <8 x i1> %a to i8", "i8", 1),
        ("zext nneg <8 x i1> %a to <8 x i64>", "<8 x i64>", 64),
        ("atomicrmw add ptr %p, i64 1 monotonic", "i64", 8),
        ("alloca [32 x i64], align 64", "ptr", 8),
    ],
)
def test_types_are_read_from_definitions(text, type, size):
    assert result_type(f"  %r = {text}") == type
    assert size_of(type) == size
