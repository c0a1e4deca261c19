"""Every elementwise operation against its NumPy reference, edge cases included."""

from fractions import Fraction

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.graph.types import (
    bool_,
    dtype_named,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from tests.codegen.targets.cpu.cpu_harness import CompiledKernel, Options, check, narrower
from tests.codegen.targets.cpu.kernel_build import Build

LANES = 83
INTEGERS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, np.inf, -np.inf, np.nan, 1e30, -3e9, 5e9, 300.0, 7.25]


def values(dtype, seed):
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.random(LANES) < 0.5
    if dtype.is_float:
        x = rng.uniform(-8, 8, LANES).astype(dtype.np)
        x[: len(EDGES)] = rng.permutation(EDGES)
        return x
    limits = np.iinfo(dtype.np)
    x = rng.integers(-9 if dtype.kind == "i" else 0, 10, LANES).astype(dtype.np)
    edges = [limits.min, limits.max, 0, -1 if dtype.kind == "i" else 1]
    x[:4] = np.array([edges[k] for k in rng.permutation(4)], dtype.np)
    return x


def elementwise(opcode, inputs, result, arrays, uniform=False, **attrs):
    build = Build(LANES)
    (i,) = build.indices
    at = build.const(3, int64) if uniform else i
    operands = [build.load(build.param(d, LANES), at) for d in inputs]
    out = build.param(result, LANES, "write")
    build.store(out, i, build.one(opcode, operands, result, **attrs))
    with np.errstate(all="ignore"):
        check(build.kernel(), [*arrays, np.zeros(LANES, result.np)])


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic(dtype):
    for seed, op in enumerate(
        ["add", "sub", "mul", "div", "floordiv", "rem", "mod", "min", "max", "and", "or", "xor", "shl", "shr"]
    ):
        arrays = [values(dtype, seed), values(dtype, seed + 100)]
        elementwise(op, (dtype, dtype), dtype, arrays)
        elementwise(op, (dtype, dtype), dtype, arrays, uniform=True)


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_unary_and_power(dtype):
    for seed, op in enumerate(["neg", "abs", "sign", "invert"] + ["bit_count"] * (dtype.kind == "u")):
        elementwise(op, (dtype,), dtype, [values(dtype, seed)])
    base, exponent = values(dtype, 1), np.abs(values(dtype, 2)) % dtype.np.type(6)
    elementwise("pow", (dtype, dtype), dtype, [base, exponent])


@pytest.mark.parametrize("dtype", [*INTEGERS, float32, float64, bool_], ids=str)
def test_comparisons(dtype):
    for seed, op in enumerate(["eq", "ne", "lt", "le", "gt", "ge"]):
        elementwise(op, (dtype, dtype), bool_, [values(dtype, seed), values(dtype, seed + 1)])


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_float_arithmetic(dtype):
    for seed, op in enumerate(["add", "sub", "mul", "div", "min", "max", "floordiv", "rem", "mod"]):
        elementwise(op, (dtype, dtype), dtype, [values(dtype, seed), values(dtype, seed + 100)])
    for seed, op in enumerate(["neg", "abs", "sign", "floor", "ceil", "round", "trunc", "sqrt"]):
        elementwise(op, (dtype,), dtype, [values(dtype, seed)])
    for op in ("is_nan", "is_inf", "signbit"):
        elementwise(op, (dtype,), bool_, [values(dtype, 5)])


@pytest.mark.in_turns
@pytest.mark.parametrize("bits", [512, 256, 128])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_a_product_and_a_sum_are_rounded_once_where_the_machine_can(dtype, bits):
    machine = host_machine() if bits == 512 else narrower(bits)
    build = Build(LANES)
    (i,) = build.indices
    x = build.load(build.param(dtype, LANES), i)
    out = build.param(dtype, LANES, "write")
    build.store(out, i, build.one("fma", (x, x, build.one("neg", (build.one("mul", (x, x)),)))))
    data = np.random.default_rng(0).uniform(1, 2, LANES).astype(dtype.np)
    arrays = [data, np.zeros_like(data)]
    CompiledKernel(build.kernel(), machine=machine).run(arrays)
    lost = [float(Fraction(float(v)) ** 2 - Fraction(float(v * v))) for v in data]
    assert np.array_equal(arrays[1], lost if machine.fused else np.zeros(LANES))
    assert bits > 128 or not machine.fused


@pytest.mark.in_turns
@pytest.mark.parametrize("source", [*INTEGERS, float32, float64, bool_], ids=str)
def test_casts(source):
    for target in (*INTEGERS, float32, float64, bool_):
        elementwise("cast", (source,), target, [values(source, 3)])


def test_boolean_logic():
    for seed, op in enumerate(["and", "or", "xor"]):
        elementwise(op, (bool_, bool_), bool_, [values(bool_, seed), values(bool_, seed + 9)])
    elementwise("invert", (bool_,), bool_, [values(bool_, 1)])


@pytest.mark.parametrize("name", ["float32", "int64", "int8", "bool"])
def test_select(name):
    dtype = dtype_named(name)
    elementwise("select", (bool_, dtype, dtype), dtype, [values(bool_, 1), values(dtype, 2), values(dtype, 3)])


@pytest.mark.parametrize("dtype", [int32, int64], ids=str)
@pytest.mark.parametrize("divisor", [1, 3, -7, 0, -1, 64])
def test_division_by_a_constant(dtype, divisor):
    for op in ("div", "floordiv", "rem", "mod"):
        build = Build(LANES)
        (i,) = build.indices
        x = build.load(build.param(dtype, LANES), i)
        out = build.param(dtype, LANES, "write")
        build.store(out, i, build.one(op, (x, build.const(divisor, dtype))))
        check(build.kernel(), [values(dtype, 4), np.zeros(LANES, dtype.np)])


def test_fast_math_keeps_moderate_arguments_accurate():
    build = Build(LANES)
    (i,) = build.indices
    x = build.load(build.param(float32, LANES), i)
    out = build.param(float32, LANES, "write")
    build.store(out, i, build.one("mul", (build.one("sin", (x,)), build.one("rsqrt", (build.one("mul", (x, x)),)))))
    data = np.random.default_rng(0).uniform(0.5, 1000, LANES).astype(np.float32)
    check(build.kernel(), [data, np.zeros_like(data)], Options(fast_math=True), rtol=1e-5, atol=1e-9)


def test_floats_become_integers_as_vectors():
    """LLVM's conversions that saturate are made number by number."""
    narrowed = lg.compile(lambda x: [lg.astype(x, kind) for kind in (lg.uint8, lg.int16, lg.int32, lg.uint64)])
    assert ".sat." not in narrowed.text("llvm", np.ones(1000, np.float32))


def test_bits_are_counted_by_an_instruction() -> None:
    text = lg.compile(lg.bitwise_count, device="cpu").text("llvm", np.zeros(100, np.uint32))
    assert "llvm.ctpop" in text
