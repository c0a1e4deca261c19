"""Our quotients, and LLVM's roots, as machine code in the emulator: whatever the approximations that they start from
lose within what AMD documents, the results are IEEE's, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from loopgrad.codegen.targets.amdgpu.assembler import AmdgpuAssembler
from loopgrad.codegen.targets.amdgpu.flavour import AMDGPU
from loopgrad.codegen.targets.amdgpu.linker import link
from loopgrad.codegen.targets.amdgpu.target import relocatable
from loopgrad.codegen.targets.gpu.assembler import Val
from tests.codegen.targets.gpu.hard_quotients import (
    BITS,
    PRECISION,
    any_divisors,
    differing,
    divided_at_once,
    near_middle,
    nearly_ones,
)
from tests.emulator import device, disassembler
from tests.emulator.code_object import CodeObject

pytestmark = pytest.mark.skipif(disassembler.library() is None, reason=device.found()[1])
GROUP = 256
TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
NEWEST = device.PROCESSORS[0]

Write = Callable[..., Val]


def module(write: Write, type: str, size: int, operands: int) -> str:
    """A kernel of which each invocation stores write(b, *operands) of one element."""
    b = AmdgpuAssembler(AMDGPU, "k", GROUP)
    table, *_ = b.launch_words()
    places = []
    for i in range(operands + 1):
        base = b.load(b.inst("IAdd", "i64", table, b.const("i64", 8 * i)), "i64", invariant=True)
        offset = b.inst("IMul", "i64", b.inst("UConvert", "i64", b.invocation()), b.const("i64", size))
        places.append(b.inst("IAdd", "i64", base, offset))
    b.store(places[-1], write(b, *[b.load(place, type) for place in places[:-1]]))
    lines = [
        f'target triple = "{AMDGPU.triple}"',
        b.finish(0),
        AMDGPU.declarations,
        *b.declarations,
        f"attributes #0 = {{ {AMDGPU.attributes.format(group=GROUP)} }}",
        "!0 = !{}",
        '!1 = !{!"branch_weights", i32 2000, i32 1}',
        "",
    ]
    return "\n".join(lines)


def compute(write: Write, error: int, *operands: np.ndarray, processor: str = NEWEST) -> np.ndarray:
    dtype, count = operands[0].dtype, operands[0].size
    groups = -(-count // GROUP)
    arrays = [np.resize(a, groups * GROUP) for a in (*operands, np.zeros(1, dtype))]
    code = relocatable(module(write, TYPES[dtype], dtype.itemsize, len(operands)), processor)
    table = np.array([a.ctypes.data for a in arrays], np.uint64)
    words = np.array([table.ctypes.data, 0, 0, 0, 0, 0], np.uint64)
    held = [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in (*arrays, table, words)]
    CodeObject(link(code)).kernel("k").launch(groups, words.ctypes.data, sorted(held), error)
    return arrays[-1][:count]


def check(x: np.ndarray, y: np.ndarray, error: int, processor: str = NEWEST) -> None:
    with np.errstate(all="ignore"):
        wanted = x / y
    got = compute(lambda b, x, y: b.exact("FDiv", x.type, x, y), error, x, y, processor=processor)
    assert differing(got, wanted).size == 0, [(v[differing(got, wanted)][:3]) for v in (x, y, got, wanted)]


def odd(dtype: type) -> np.ndarray:
    """Numbers at ends of ranges, of both signs."""
    info = np.finfo(dtype)
    powers = np.array([info.minexp - info.nmant, info.minexp - 1, info.minexp, info.minexp + 1, -100, -99, -1, 0, 1,
                       info.nmant, 100, info.maxexp - 2, info.maxexp - 1])  # fmt: skip
    exact = np.ldexp(np.ones(1, dtype), powers)
    ones = np.ldexp(np.array([2 - info.eps], dtype), powers[2:])
    found = np.concatenate([exact, ones, np.array([0, np.inf, np.nan, 3, info.max, 1 + info.eps], dtype)])
    return np.concatenate([found, -found]).astype(dtype)


@pytest.mark.parametrize("error", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_divisors_of_nearly_all_ones(dtype: type, error: int) -> None:
    """LLVM's own sequence fails for some of both types where the reciprocal is too small, and some too large."""
    ones = nearly_ones(dtype, 3000)
    x, y = near_middle(dtype, ones)
    powers = np.full(len(ones), 2.0 ** np.finfo(dtype).nmant, dtype)
    check(np.concatenate([x, powers]), np.concatenate([y, np.array(list(ones), np.uint64).astype(dtype)]), error)


@pytest.mark.parametrize("error", [-1, 0, 1])
def test_every_dividend_of_the_divisors_nearest_to_all_ones(error: int) -> None:
    dividends = np.arange(1 << 23, 1 << 24, 29).astype(np.float32)
    for y in nearly_ones(np.float32, 5):
        check(dividends, np.full_like(dividends, y), error)


@pytest.mark.parametrize("error", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_hard_quotients(dtype: type, error: int) -> None:
    x, y = near_middle(dtype, any_divisors(dtype, 3000))
    assert x.size > 9_000
    check(x, y, error)
    low, high = np.finfo(dtype).minexp, np.finfo(dtype).maxexp
    check(np.ldexp(x, low), y, error)  # the dividend is tiny
    check(np.ldexp(x, low), np.ldexp(y, 16), error)  # so is the quotient, and rounded to fewer bits
    check(np.ldexp(x, high - 60), np.ldexp(y, -59), error)


@pytest.mark.parametrize("error", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_operands(dtype: type, error: int) -> None:
    special, bits = odd(dtype), BITS[np.dtype(dtype)]
    x, y = np.random.default_rng(1).integers(0, np.iinfo(bits).max, (2, 50_000), dtype=bits).view(dtype)
    n = special.size
    x = np.concatenate([x, np.repeat(special, n), special.repeat(200)])
    y = np.concatenate([y, np.tile(special, n), y[: 200 * n]])
    check(np.concatenate([x, y]), np.concatenate([y, x]), error)


@pytest.mark.parametrize("error", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_roots(dtype: type, error: int) -> None:
    """Of any numbers, and of those next to squares of the middle between two."""
    bits, unsigned = PRECISION[dtype], BITS[np.dtype(dtype)]
    any_number = np.random.default_rng(2).integers(0, np.iinfo(unsigned).max, 50_000, dtype=unsigned).view(dtype)
    squares = [(2 * y + 1) ** 2 for y in any_divisors(dtype, 5000)]
    near = [(square >> (square.bit_length() - bits)) + above for square in squares for above in (0, 1)]
    x = np.concatenate([any_number, odd(dtype), np.array(near, np.uint64).astype(dtype)])
    with np.errstate(all="ignore"):
        wanted = np.sqrt(x)
    assert differing(compute(lambda b, x: b.extended("Sqrt", x.type, x), error, x), wanted).size == 0


@pytest.mark.parametrize("processor", device.PROCESSORS[1:])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_other_processors(dtype: type, processor: str) -> None:
    special = odd(dtype)
    x, y = near_middle(dtype, [*nearly_ones(dtype, 500), *any_divisors(dtype, 500)])
    for error in (-1, 0, 1):
        check(x, y, error, processor)
        check(np.repeat(special, special.size), np.tile(special, special.size), error, processor)


def test_quotients_of_lanes_at_once() -> None:
    """They share one test and one rare way."""
    special = odd(np.float32)
    x, y = np.repeat(special, special.size), np.tile(special, special.size)
    with np.errstate(all="ignore"):
        wanted = x / y, y / x
    for i in range(2):
        assert differing(compute(partial(divided_at_once, i), 1, x, y), wanted[i]).size == 0
