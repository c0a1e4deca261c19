"""Emitted modules without any device: spirv-val accepts them, features decide what is in them."""

from dataclasses import replace

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import Block, KValue
from loopgrad.codegen.options import DEFAULT_OPTIONS, Options
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.support.support_kernels import tree_widths
from loopgrad.codegen.targets.spirv import target
from loopgrad.codegen.targets.spirv.assembler import REASONED_ABOUT
from loopgrad.codegen.targets.spirv.assembly import Words
from loopgrad.codegen.targets.spirv.features import CAPABILITIES, Features
from loopgrad.codegen.targets.spirv.listing import listing
from loopgrad.codegen.targets.spirv.target import compile_program
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.types import (
    TensorType,
    bfloat16,
    bool_,
    dtype_named,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
)
from tests.codegen.kernel.random_kernels import random_kernel
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import program_of
from tests.codegen.targets.spirv.vulkan_harness import validate

POOREST = Features(
    fused=False,
    endless_loops=False,
    widening=False,
    known_bits=False,
    denormals=(32, 64),
    specials=(16, 32),
    nearest=(64,),
)


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("features", [Features(), POOREST], ids=["good", "poor"])
def test_random_kernels_are_valid(seed, features):
    kernel, _ = random_kernel(seed)
    validate(compile_program(program_of(kernel), Options(), features))


def squares(dtype):
    build = Build(8)
    (i,) = build.indices
    x = build.load(build.param(dtype, 8), i)
    build.store(build.param(dtype, 8, "write"), i, build.one("mul" if dtype is not bool_ else "and", (x, x)))
    return program_of(build.kernel())


@pytest.mark.parametrize(
    ("dtype", "feature", "name"),
    [
        (float64, "float64", "shaderFloat64"),
        (float16, "float16", "shaderFloat16"),
        (float16, "storage16", "storageBuffer16BitAccess"),
        (bfloat16, "int16", "shaderInt16"),
        (int16, "int16", "shaderInt16"),
        (int8, "int8", "shaderInt8"),
        (bool_, "storage8", "storageBuffer8BitAccess"),
    ],
)
def test_a_missing_feature_is_named(dtype, feature, name):
    compile_program(squares(dtype), Options(), Features())
    with pytest.raises(LoopgradError, match=f"expected a device with the Vulkan feature {name} .*another dtype"):
        compile_program(squares(dtype), Options(), replace(Features(), **{feature: False}))


def test_drivers_that_reason_wrongly_about_bits_can_not():
    """What masks and quotients of integers give is used by an exclusive or with an unknown zero alone."""
    build = Build(6, 5)
    i, j = build.indices
    at = build.one("floordiv", (build.one("add", (i, j)), build.const(3, int64)))
    x = build.load(build.param(int64, 4), at)
    build.store(build.param(int64, 30, "write"), build.linear(), build.one("mod", (x, build.const(7, int64))))
    program = program_of(build.kernel())
    for features, masked in ((Features(), False), (Features(known_bits=False), True)):
        text = compile_program(program, Options(), features).texts["spirv"].split("\n\n")[0]
        lines = [line.split() for line in text.splitlines()]
        made = [line[2] for line in lines if line[0][2:] in REASONED_ABOUT]
        uses = [[line[0] for line in lines if name in line[3:]] for name in made]
        zeros = [used for used in uses if "OpUConvert" in used and "OpBitwiseXor" in used]  # the unknown zero itself
        assert len(zeros) == masked
        assert masked == all(used == ["OpBitwiseXor"] for used in uses if used not in zeros)
        assert len(made) > 3


def test_products_by_constants_say_of_what_they_are_multiples():
    """What is hidden is the product by the odd part; the power of two is a shift."""
    build = Build(6)
    (i,) = build.indices
    x = build.load(build.param(int32, 6), i)
    build.store(build.param(int32, 6, "write"), i, build.one("mul", (x, build.const(12, int32))))
    artifact = compile_program(program_of(build.kernel()), Options(), Features(known_bits=False))
    validate(artifact)
    lines = [line.split() for line in artifact.texts["spirv"].split("\n\n")[0].splitlines()]
    values = {line[2]: int(line[3].removeprefix("%"), 0) for line in lines if line[0] == "OpConstant"}

    def used_by(name):
        return [line for line in lines if name in line[3:]]

    (product,) = [line for line in lines if line[0] == "OpIMul" and values.get(line[4]) == 3]
    (hidden,) = used_by(product[2])
    assert hidden[0] == "OpBitwiseXor"
    (shifted,) = used_by(hidden[2])
    assert shifted[0] == "OpShiftLeftLogical"
    assert values[shifted[4]] == 2


def test_rows_of_a_subgroup_meet_in_registers():
    """They wait for each other only where more have a row than exchange registers, and before the workgroup ends."""

    def centred(x):
        return [ops.sub(x, ops.broadcast(ops.reduce_max(x, (1,)), x.shape, (0,)))]

    graph, _ = trace(centred, [TensorType((1 << 12, 64), float32)])
    for neighbours, waits, exchanges in ((1, 3, 0), (4, 3, 2), (32, 1, 3)):
        features = Features(neighbours=neighbours, tile_group=256)
        artifact = compile_program(schedule(graph, DEFAULT_OPTIONS), Options(), features)
        validate(artifact)
        text = artifact.texts["spirv"]
        assert text.count("OpControlBarrier") == waits
        assert text.count("OpGroupNonUniformShuffleXor") == exchanges


def test_float32_asks_for_no_float64():
    text = compile_program(squares(float32), Options(), Features()).texts["spirv"]
    assert f"OpCapability %{CAPABILITIES['Float64'][0]}\n" not in text
    assert "OpTypeFloat" in text


def test_a_device_without_wide_atomics_adds_up_in_order():
    build = Build(80)
    (i,) = build.indices
    build.accumulate(build.param(int64, 2, "accumulate"), build.const(0, int64), i)
    program, number = program_of(build.kernel()), f"OpCapability %{CAPABILITIES['Int64Atomics'][0]}\n"
    for wide in (True, False):
        artifact = compile_program(program, Options(), replace(Features(), int64_atomics=wide))
        validate(artifact)
        assert (number in artifact.texts["spirv"]) == wide
        assert (artifact.program.kernels[0].copies > 0) != wide


def test_every_dtype_has_a_form():
    for name in ("bool", "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "float64"):
        validate(compile_program(squares(dtype_named(name)), Options(), Features()))


def test_tree_widths():
    assert tree_widths(1) == [1]
    assert tree_widths(64) == [1]
    assert tree_widths(65) == [2, 1]
    assert tree_widths(1 << 24) == [1 << 18, 1 << 12, 64, 1]


def test_the_listing_names_opcodes():
    artifact = compile_program(squares(float32), Options(), Features())
    lines = listing(artifact.code[: artifact.program.modules[0].size]).splitlines()
    assert lines[0].startswith("OpCapability")
    assert lines[-1] == "OpFunctionEnd"
    assert any(line.startswith("OpFMul ") for line in lines)
    assert np.all([line.startswith("Op") for line in lines])


def test_the_listing_is_written_when_it_is_read(monkeypatch):
    """It takes as long as half of the emission."""
    read = []
    monkeypatch.setattr(target, "listing", lambda code: read.append(code) or "shown")
    artifact = compile_program(squares(float32), Options(), Features())
    assert not read
    assert "shown" in artifact.texts["spirv"]
    assert b"".join(read) == artifact.code


def test_constants_are_made_once_and_zeros_keep_their_sign():
    words = Words()
    assert words.const("f32", 0.0) == words.const("f32", 0.0)
    assert words.const("f32", 0.0) != words.const("f32", -0.0)
    assert words.const("i32", 0) == words.const("i32", -0)
    assert words.const("f32", 1.0) != words.const("f64", 1.0)
    assert words.const("i8", -1) == words.const("i8", 255)
    assert words.const("f64", float("nan")) == words.const("f64", float("nan"))


@pytest.mark.parametrize("features", [Features(), POOREST], ids=["good", "poor"])
@pytest.mark.parametrize("dtype", [float16, float32, float64], ids=str)
def test_tiles_and_accumulators_are_valid(dtype, features):
    """A sum by workgroups over sorted lanes, lanes at once, and every way to meet in an element."""
    size = 1 << 20
    build = Build(size)
    (i,) = build.indices
    x = build.load(build.param(dtype, size), i)
    trips = build.one("mod", (i, build.const(7, int64)))
    (y,) = build.loop(trips, [x], lambda _k, v: [build.one("add", (v, x))])
    for kind in ("add", "min", "set"):
        build.accumulate(build.param(dtype, 100, "accumulate"), trips, y, kind)
    build.reduce(y, build.param(dtype, 1, "write"))
    lane = KValue(int64)
    build.order_key = Block((lane,), [], (lane,))
    validate(compile_program(program_of(build.kernel()), Options(), features))
    streamed = Build(size)
    x = streamed.load(streamed.param(dtype, size), streamed.indices[0])
    streamed.store(streamed.param(dtype, size, "write"), streamed.indices[0], streamed.one("add", (x, x)))
    validate(compile_program(program_of(streamed.kernel()), Options(), features))


def test_what_nobody_writes_is_read_as_such():
    """Addresses in tables and parameters that are only read; elements are found in 32-bit arithmetic."""
    own, *_ = compile_program(squares(float32), Options(), Features()).texts["spirv"].split("\n\n")
    lines = own.splitlines()
    assert [line.split()[2:] for line in lines if "OpMemberDecorate" in line].count(["%0", "%24"]) == 2
    shifted = {line.split()[2] for line in lines if line.startswith("OpShiftLeftLogical")}
    assert len(shifted) == 2
    assert shifted <= {line.split()[3] for line in lines if line.startswith("OpUConvert")}
