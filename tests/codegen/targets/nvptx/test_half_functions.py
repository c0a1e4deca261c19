"""Functions of halves in NumPy's arithmetic, with NVIDIA's approximations as far off as they may be: for every half
the result has bits enough to be rounded to one."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.nvptx.half_functions import HalfFunctions

WANTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "erf": special.erf, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log10": np.log10,
    "log1p": np.log1p, "log2": np.log2, "tanh": np.tanh,
}  # fmt: skip
BITS = 17
OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "FAdd": np.add, "FSub": np.subtract, "FOrdLessThan": np.less, "Select": np.where,
}  # fmt: skip


class NumPyHalves(HalfFunctions):
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

    def called(self, function, result, given):
        x, *others = [self.arrays[operand.split()[1]] for operand in given.split(", ")]
        off = self.error * np.float32(2.0**-22)
        if function == "llvm.copysign.f32":
            return self.kept(np.copysign(x, *others)).id
        if function == "llvm.nvvm.ex2.approx.f":
            return self.kept(np.exp2(x) * (1 + off)).id
        assert function == "llvm.nvvm.lg2.approx.f"
        found = np.log2(x)
        return self.kept(np.where((x > 0.5) & (x < 2), found + off, found * (1 + off))).id

    def _approximate(self, function, x):
        found = np.float32(1) / self.arrays[x.id]
        return self.kept(found + self.error * np.spacing(np.where(np.isfinite(found), found, 0)))

    def _fma(self, x, y, z):
        x, y, z = (self.arrays[v.id].astype(np.float64) for v in (x, y, z))
        return self.kept((x * y + z).astype(np.float32))

    def _minus(self, x):
        return self.kept(-self.arrays[x.id])

    def _times(self, x, y):
        return self.kept(self.arrays[x.id] * self.arrays[y.id])

    def _size(self, x):
        return self.kept(np.abs(self.arrays[x.id]))


@pytest.mark.parametrize("error", [-1, 1])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("name", WANTED)
def test_every_half(name, dtype, error):
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    b = NumPyHalves(error)
    with np.errstate(all="ignore"):
        made = b.for_half(name, b.kept(x))
        got, wanted = b.arrays[made.id], WANTED[name](x.astype(np.float64))
        special = ~np.isfinite(wanted) | (np.abs(wanted) > np.finfo(np.float32).max) | (wanted == 0)
        np.testing.assert_array_equal(got[special], wanted[special].astype(np.float32))
        assert (np.signbit(got) == np.signbit(wanted))[~np.isnan(wanted)].all()
        off = np.abs(got - wanted)[~special]
    least = ml_dtypes.finfo(dtype).smallest_subnormal
    assert (off <= np.maximum(np.abs(wanted[~special]) * 2.0**-BITS, 2.0**-6 * float(least))).all()
