"""Functions of halves in NumPy's arithmetic, with NVIDIA's approximations as far off as they may be: for every half
the result has bits enough to be rounded to one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.half_functions import HalfFunctions
from loopgrad.codegen.targets.nvptx.half_functions import Halves

WANTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "erf": special.erf, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log10": np.log10,
    "log1p": np.log1p, "log2": np.log2, "tanh": np.tanh,
}  # fmt: skip
BITS = 17
OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "FAdd": np.add, "FMul": np.multiply, "FNegate": np.negative, "FSub": np.subtract,
    "FOrdGreaterThan": np.greater, "FOrdLessThan": np.less, "Select": np.where,
}  # fmt: skip
HALVES = {"b16": ml_dtypes.bfloat16, "f16": np.float16}


def normal(x: np.ndarray) -> np.ndarray:
    """With zeros in place of subnormal numbers."""
    return np.where(np.abs(x) < np.finfo(np.float32).smallest_normal, np.copysign(np.float32(0), x), x)


class NumPyHalves(Halves):
    """Its values are arrays of float32. `error`: of the approximations, in units of what they may be off."""

    fast = False

    def __init__(self, error: int) -> None:
        self.error, self.arrays = np.float32(error), dict[str, np.ndarray]()

    def kept(self, array: np.ndarray) -> Val:
        self.arrays[name := f"%{len(self.arrays)}"] = np.asarray(array)
        return Val(name, "f32")

    def const(self, type, value):
        return self.kept(np.float32(value))

    def inst(self, name, type, *operands):
        return self.kept(OPERATIONS[name](*[self.arrays[v.id] for v in operands]))

    exact = inst

    def extended(self, name, type, *operands):
        return self._fma(*operands) if name == "Fma" else self.kept(np.abs(self.arrays[operands[0].id]))

    def called(self, function, result, given):
        x = self.arrays[given.split()[1]]
        off = self.error * np.float32(2.0**-22)
        if function == "llvm.nvvm.ex2.approx.ftz.f":
            return self.kept(normal(np.exp2(normal(x)) * (1 + off))).id
        assert function == "llvm.nvvm.lg2.approx.f"
        found = np.log2(x)
        return self.kept(np.where((x > 0.5) & (x < 2), found + off, found * (1 + off))).id

    def _approximate(self, function, x):
        found = np.float32(1) / normal(self.arrays[x.id])
        off = found + self.error * np.spacing(np.where(np.isfinite(found), found, 0))
        return self.kept(np.where(np.isfinite(found) & (found != 0), normal(off), found))  # what is exact stays so

    def _fma(self, x, y, z):
        x, y, z = (self.arrays[v.id].astype(np.float64) for v in (x, y, z))
        return self.kept((x * y + z).astype(np.float32))

    def _minus(self, x):
        return self.kept(-self.arrays[x.id])

    def _times(self, x, y):
        return self.kept(self.arrays[x.id] * self.arrays[y.id])

    def _size(self, x):
        return self.kept(np.abs(self.arrays[x.id]))


def inverse_by_power(b: NumPyHalves, x: Val) -> Val:
    """As SPIR-V has it."""
    return b._power_of_two(b.kept(-b.arrays[b._binary_logarithm(x).id]))


@pytest.mark.parametrize("error", [-1, 1])
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("inverse", [NumPyHalves._reciprocal, inverse_by_power])
def test_every_half(name, half, error, inverse):
    dtype = HALVES[half]
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    b = NumPyHalves(error)
    with np.errstate(all="ignore"):
        made = HalfFunctions(b, b._power_of_two, b._binary_logarithm, partial(inverse, b)).of(name, half, b.kept(x))
        got, wanted = b.arrays[made.id], WANTED[name](x.astype(np.float64))
        special = ~np.isfinite(wanted) | (np.abs(wanted) > np.finfo(np.float32).max) | (wanted == 0)
        rounded = [array[special].astype(dtype).astype(np.float32) for array in (got, wanted)]
        np.testing.assert_array_equal(*rounded)
        assert (np.signbit(got) == np.signbit(wanted))[~np.isnan(wanted)].all()
        off = np.abs(got - wanted)[~special]
    least = ml_dtypes.finfo(dtype).smallest_subnormal
    assert (off <= np.maximum(np.abs(wanted[~special]) * 2.0**-BITS, 2.0**-6 * float(least))).all()


@pytest.mark.parametrize("error", [-1, 1])
@pytest.mark.parametrize("half", HALVES)
def test_quotients_are_rounded_to_the_nearest_half(half, error):
    """Also where one is subnormal, and may be in the middle of two."""
    every = np.arange(1 << 16, dtype=np.uint16).view(HALVES[half])
    x, y = every[::251].astype(np.float32)[:, None], every[::7].astype(np.float32)
    b = NumPyHalves(error)
    with np.errstate(all="ignore"):
        got = b.arrays[b.for_half("div", half, b.kept(x), b.kept(y)).id].astype(HALVES[half])
        wanted = (x / y).astype(HALVES[half])
    same = (got.view(np.uint16) == wanted.view(np.uint16)) | (np.isnan(got) & np.isnan(wanted))
    assert same.all(), (np.broadcast_to(x, same.shape)[~same][:5], np.broadcast_to(y, same.shape)[~same][:5])
