"""Our quotients and square roots as machine code of this computer, with the approximations that they start from
modelled: whatever these lose within NVIDIA's bounds, the results are IEEE's, bit by bit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import Block
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.joint_quotients import JointQuotients, emit_joined, with_joint_quotients
from loopgrad.codegen.targets.gpu.emit.kernel import emit_block
from loopgrad.codegen.targets.nvptx.assembler import NvptxAssembler
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.guarded_quotients import guarded_quotients
from tests.codegen.targets.gpu.hard_quotients import any_divisors, differing, divided_at_once, near_middle, nearly_ones
from tests.simulator.code import GROUP, HostAssembler, flavour, generate
from tests.simulator.driver import Image

ODD = [0.0, np.inf, np.nan, 1.0, 3.0, 2.0**-149, 2.0**-127, 2.0**-126, 2.0**-125, 2.0**-101, 2.0**-100, 2.0**-99,
       0.5, 2.0**100, 2.0**125, 2.0**126, 2.0**126 * (1 + 2.0**-23), 2.0**127, 2.0**128 - 2.0**104]  # fmt: skip
# for nearly all ones 1/y is so close to the middle between two numbers that Newton's step only mends some errors;
# NVIDIA's own rcp.rn and div.rn begin with the same step, so those are the errors there
NEAR_MIDDLE = 0x7FFFFD
# the model of the reciprocal in f64 keeps 20 bits, as NVIDIA's has
MODELS = """
define float @model.rcp(float %y) {{
  %size = call float @llvm.fabs.f32(float %y)
  %least = fcmp olt float %size, 0x3810000000000000
  %none = call float @llvm.copysign.f32(float 0.0, float %y)
  %operand = select i1 %least, float %none, float %y
  %near = fdiv float 1.0, %operand
  %bits = bitcast float %near to i32
  %fraction.y = bitcast float %y to i32
  %fraction = and i32 %fraction.y, 8388607
  %sure = icmp uge i32 %fraction, {near_middle}
  %size.near = call float @llvm.fabs.f32(float %near)
  %finite = fcmp olt float %size.near, 0x7FF0000000000000
  %normal = fcmp oge float %size.near, 0x3810000000000000
  %usual = and i1 %finite, %normal
  %step = select i1 %sure, i32 0, i32 {error}
  %moved = add i32 %bits, %step
  %wrong = bitcast i32 %moved to float
  %size.wrong = call float @llvm.fabs.f32(float %wrong)
  %flush = fcmp olt float %size.wrong, 0x3810000000000000
  %nothing = call float @llvm.copysign.f32(float 0.0, float %wrong)
  %flushed = select i1 %flush, float %nothing, float %wrong
  %gone = fcmp olt float %size.near, 0x3810000000000000
  %plain = select i1 %gone, float %nothing, float %near
  %result = select i1 %usual, float %flushed, float %plain
  ret float %result
}}
define double @model.rcp64(double %y) {{
  %near = fdiv double 1.0, %y
  %bits = bitcast double %near to i64
  %high = and i64 %bits, -4294967296
  %found = bitcast i64 %high to double
  %size = call double @llvm.fabs.f64(double %found)
  %flush = fcmp olt double %size, 0x0010000000000000
  %nothing = call double @llvm.copysign.f64(double 0.0, double %found)
  %result = select i1 %flush, double %nothing, double %found
  ret double %result
}}
define float @model.rsqrt(float %x) {{
  %root = call float @llvm.sqrt.f32(float %x)
  %near = fdiv float 1.0, %root
  %bits = bitcast float %near to i32
  %moved = add i32 %bits, {error}
  %wrong = bitcast i32 %moved to float
  %size = call float @llvm.fabs.f32(float %near)
  %finite = fcmp olt float %size, 0x7FF0000000000000
  %usual = select i1 %finite, float %wrong, float %near
  ret float %usual
}}
declare double @llvm.fabs.f64(double)
declare double @llvm.copysign.f64(double, double)
declare float @llvm.fabs.f32(float)
declare float @llvm.copysign.f32(float, float)
declare float @llvm.sqrt.f32(float)
"""


class Modelled(HostAssembler, NvptxAssembler):
    """NVIDIA's arithmetic with models of its special functions."""

    shared_quotients, usual_quotients = NvptxAssembler.shared_quotients, NvptxAssembler.usual_quotients

    def _approximate(self, function, x):
        kind = {"f32": "float", "f64": "double"}[x.type]
        name = f"@model.{function}{'64' if x.type == 'f64' else ''}"
        return self._value(x.type, f"call {kind} {name}({kind} {x.id})")


def compute(write, error, *operands):
    """write(b, *operands) of every element; each invocation does one."""
    count, dtype = operands[0].size, operands[0].dtype
    groups = -(-count // GROUP)
    arrays = [np.resize(a, groups * GROUP) for a in (*operands, np.zeros(1, dtype))]
    f = flavour()
    b = Modelled(f, "k0", GROUP)
    table, *_ = b.launch_words()
    places = []
    for i in range(len(arrays)):
        base = b.load(b.inst("IAdd", "i64", table, b.const("i64", 8 * i)), "i64", invariant=True)
        offset = b.inst("IMul", "i64", b.inst("UConvert", "i64", b.invocation()), b.const("i64", dtype.itemsize))
        places.append(b.inst("IAdd", "i64", base, offset))
    b.store(places[-1], write(b, *[b.load(place, f"f{8 * dtype.itemsize}") for place in places[:-1]]))
    declared = [line for line in b.declarations if line.split("(")[0].split("@")[1] + "(" not in MODELS]
    text = "\n".join(
        [
            f'target triple = "{f.triple}"',
            b.finish(0),
            f.declarations,
            *declared,
            MODELS.format(error=error, near_middle=NEAR_MIDDLE),
            f"attributes #0 = {{ {f.attributes} }}",
            "!0 = !{}",
            '!1 = !{!"branch_weights", i32 2000, i32 1}',
        ]
    )
    addresses = np.array([a.ctypes.data for a in arrays], np.uint64)
    Image(generate(text)[0]).pipeline("k0", "k0", GROUP).dispatch(groups, (addresses.ctypes.data, 0, 0, 0, 0, 0))
    return arrays[-1][:count]


def divide(x, y, error):
    return compute(lambda b, x, y: b.exact("FDiv", "f32", x, y), error, x, y)


def hard_quotients():
    return np.stack(near_middle(np.float32, any_divisors(np.float32, 20_000), 3))


@pytest.mark.parametrize("error", [-1, 0, 1])
def test_hard_quotients(error):
    x, y = hard_quotients()
    assert x.size > 20_000
    assert differing(divide(x, y, error), x / y).size == 0


def test_hard_quotients_of_tiny_numbers():
    """They take the rare way, since their remainders wouldn't be exact."""
    x, y = hard_quotients() * np.float32([[2.0**-125], [2.0**-24]])
    assert (x < 2.0**-100).all()
    assert differing(divide(x, y, 1), x / y).size == 0


@pytest.mark.parametrize("error", [-1, 0, 1])
def test_any_operands(error):
    bits = np.random.default_rng(1).integers(0, 1 << 32, (2, 200_000), dtype=np.uint32)
    odd = np.array([*ODD, *(-v for v in ODD)], np.float32)
    any_x, any_y = bits.view(np.float32)
    x = np.concatenate([any_x, np.repeat(odd, odd.size), odd.repeat(200)])
    y = np.concatenate([any_y, np.tile(odd, odd.size), any_x[: odd.size * 200]])
    x, y = np.concatenate([x, y]), np.concatenate([y, x])
    with np.errstate(all="ignore"):
        wanted = x / y
    wrong = differing(divide(x, y, error), wanted)
    assert wrong.size == 0, (x[wrong][:3], y[wrong][:3])


@pytest.mark.parametrize("error", [-1, 0, 1])
def test_roots(error):
    bits = np.random.default_rng(2).integers(0, 1 << 32, 200_000, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), np.array([*ODD, *(-v for v in ODD)], np.float32)])
    with np.errstate(all="ignore"):
        wanted = np.sqrt(x)
    got = compute(lambda b, x: b.extended("Sqrt", "f32", x), error, x)
    assert differing(got, wanted).size == 0


@pytest.mark.parametrize("error", [-1, 0, 1])
def test_joined_quotients_and_their_guards(error):
    """As where each has its own rare way: any of them may be zero, infinite, no number, or out of range."""
    block = guarded_quotients()
    steps = with_joint_quotients(block.ops, ["f32"])
    assert [len(step.quotients) for step in steps if isinstance(step, JointQuotients)] == [2]
    odd = np.array([*ODD, *(-v for v in ODD)], np.float32)
    near = np.random.default_rng(3).integers(0, 1 << 32, (3, 20_000), dtype=np.uint32).view(np.float32)
    c, x, y = np.concatenate([np.stack(np.meshgrid(odd, odd, odd)).reshape(3, -1), near], axis=1)
    with np.errstate(all="ignore"):
        slope, ratio = -c / y, x / y
        product = -(slope * ratio)
        zero = np.float32(0)
        idle = c == 0
        wanted = (
            np.where(idle & np.isnan(product), zero, product),
            np.where(idle & np.isnan(slope), zero, slope),
            ratio,
        )

    def write(b, i, *values):
        e = Emitter(Build(1).kernel("empty"), b)
        e.values.update(zip(block.arguments, values, strict=True))
        return emit_block(e, block)[i]

    for i, expected in enumerate(wanted):
        got = compute(lambda b, *values, i=i: write(b, i, *values), error, c, x, y)
        wrong = differing(got, expected)
        assert wrong.size == 0, (i, c[wrong][:3], x[wrong][:3], y[wrong][:3])


@pytest.mark.parametrize("lane", [0, 1])
def test_joined_quotients_of_lanes_at_once(lane):
    """One test and one rare way for those of both lanes, of which only the other one may need it."""
    block = guarded_quotients()
    odd = np.array([*ODD, *(-v for v in ODD)], np.float32)
    c, x, y = np.stack(np.meshgrid(odd, odd, odd)).reshape(3, -1)
    with np.errstate(all="ignore"):
        wanted = (x / y, x / c)[lane]

    def write(b, *values):
        e = Emitter(Build(1).kernel("empty"), b)
        lanes = [
            dict(zip(block.arguments, given, strict=True)) for given in (values, (values[2], values[1], values[0]))
        ]

        def emit(op):
            for e.values in lanes:
                emit_block(e, Block((), [op]))

        for step in with_joint_quotients(block.ops, ["f32"]):
            if isinstance(step, JointQuotients):
                emit_joined(e, step, lanes, emit)
            else:
                emit(step)
        return lanes[lane][block.yields[2]]

    assert differing(compute(write, 1, c, x, y), wanted).size == 0


def test_quotients_of_lanes_at_once():
    odd = np.array([*ODD, *(-v for v in ODD)], np.float32)
    x, y = np.repeat(odd, odd.size), np.tile(odd, odd.size)
    with np.errstate(all="ignore"):
        wanted = x / y, y / x
    for i in range(2):
        assert differing(compute(partial(divided_at_once, i), 1, x, y), wanted[i]).size == 0


CONSTANTS = [6.0, 255.0, -3.0, 0.7, -1 / 12.92, 1 - 2.0**-24, 2.0**60, -(2.0**-60) / 3, 2.0**61, 1e-30]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quotients_by_constants(dtype):
    """As by any other divisor, zeros with their sign; those that are too large or too small go the usual way."""
    whole = [*any_divisors(dtype, 4), *nearly_ones(dtype, 2)]
    by = np.array([*CONSTANTS, *whole], dtype)
    bits = np.random.default_rng(4).integers(0, 1 << 64, 4_000, dtype=np.uint64)
    odd = np.concatenate([np.finfo(dtype).tiny * by, np.array(ODD, dtype)])
    near, divisors = near_middle(dtype, whole, 99)
    for divisor in by:
        with np.errstate(all="ignore"):
            x = np.concatenate([bits.view(dtype), odd, -odd, odd * divisor, near[divisors == divisor]])
            wanted = x / divisor

        def write(b, x, divisor=divisor):
            values, usual = b.usual_quotients([(x, b.const(x.type, divisor))])
            return b.inst("Select", x.type, usual, values[0], b.exact("FDiv", x.type, x, b.const(x.type, divisor)))

        wrong = differing(compute(write, 0, x), wanted)
        assert wrong.size == 0, (divisor, x[wrong][:3])


def test_zeros_by_constants_are_usual():
    x = np.array([0.0, -0.0, 2.0**-149, 1.0, np.inf, np.nan], np.float32)

    def write(b, x):
        usual = b.usual_quotients([(x, b.const("f32", -6.0))])[1]
        return b.inst("Select", "f32", usual, b.const("f32", 1.0), b.const("f32", 0.0))

    assert compute(write, 0, x).tolist() == [1, 1, 0, 1, 0, 0]


def test_double_quotients_of_lanes_at_once():
    """Those of NVIDIA's own div.rn, step by step, and its range; elsewhere they are LLVM's."""
    odd = np.array([0.0, np.inf, np.nan, 1.0, 3.0, 2.0**-1074, 2.0**-1022, 2.0**-1020, 2.0**-970, 2.0**-960, 2.0**-959,
                    2.0**1000, 2.0**1017, 2.0**1020, 2.0**1022, 2.0**1023, 2.0**1023 * (2 - 2.0**-52)])  # fmt: skip
    odd = np.concatenate([odd, -odd])
    near, far = near_middle(np.float64, [*nearly_ones(np.float64, 500), *any_divisors(np.float64, 5_000)], 3)
    any_x, any_y = np.random.default_rng(1).integers(0, 1 << 64, (2, 20_000), dtype=np.uint64).view(np.float64)
    x = np.concatenate([np.repeat(odd, odd.size), near, any_x])
    y = np.concatenate([np.tile(odd, odd.size), far, any_y])
    with np.errstate(all="ignore"):
        wanted = x / y, y / x
    for i in range(2):
        wrong = differing(compute(partial(divided_at_once, i), 1, x, y), wanted[i])
        assert wrong.size == 0, (wrong.size, x[wrong][:3], y[wrong][:3])


@pytest.mark.parametrize("error", [-1, 0, 1])
def test_zeros_are_usual_where_they_are_frequent(error):
    """Their quotients have the sign of IEEE's; those that no rule covers are left to the rare way as ever."""
    odd = np.array([*ODD, *(-v for v in ODD)], np.float32)
    x, y = np.stack(np.meshgrid(odd, odd)).reshape(2, -1)

    def usual(b, x, y):
        (value,), right = b.usual_quotients([(x, y)], True)
        return value, right

    def write(b, x, y):
        value, right = usual(b, x, y)
        return b.inst("Select", "f32", right, value, b.exact("FDiv", "f32", x, y))

    def is_usual(b, x, y):
        return b.inst("Select", "f32", usual(b, x, y)[1], b.const("f32", 1.0), b.const("f32", 0.0))

    with np.errstate(all="ignore"):
        assert differing(compute(write, error, x, y), x / y).size == 0
    ordinary = (np.abs(y) >= 2.0**-100) & (np.abs(y) <= 2.0**100)
    assert compute(is_usual, error, x, y)[(x == 0) & ordinary].all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_near_quotients(dtype):
    x, y = np.random.default_rng(2).uniform(0.1, 10, (2, 20_000)).astype(dtype)
    x[:9] = 0
    got = compute(lambda b, x, y: b.near_quotient(x, y), 1, x, y)
    assert (np.abs(got - x / y) <= np.spacing(x / y)).all()
