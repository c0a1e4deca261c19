"""exp by an instruction that gives 2**x for small x, which GPUs' units of special functions have."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Assembler, Val

LOG2_E, LOG2_E_HIGH = 1 / log(2), float.fromhex("0x1.715476p+0")
MAGIC: Final = 1.5 * 2.0**23
EXPONENTS: Final = 252.0  # of normal numbers whose squares' halves are normal, from -126 to 126


def exp_by_power(b: Assembler, x: Val, saturated: Callable[[Val, Val, Val], Val], power: Callable[[Val], Val]) -> Val:
    """2**n * 2**f with x = (n + f) * ln 2, of f32; `saturated`: x * y + z, but 0 or 1 beyond these (either of NaN);
    `power`: 2**f for f between -1/2 and 1/2. Where n were too large or too small for the exponent of a number, f is
    what is left, so that the product over- or underflows. The sum of MAGIC has n's exponent in its lowest bits."""

    def fma(x: Val, y: float, z: Val) -> Val:
        return b.extended("Fma", "f32", x, b.const("f32", y), z)

    share = saturated(x, b.const("f32", LOG2_E / EXPONENTS), b.const("f32", 0.5))
    shifted = fma(share, EXPONENTS, b.const("f32", MAGIC + 1.0))
    minus = b.exact("FSub", "f32", b.const("f32", MAGIC + 127.0), shifted)
    near = power(fma(x, LOG2_E - LOG2_E_HIGH, fma(x, LOG2_E_HIGH, minus)))
    bits = b.inst("ShiftLeftLogical", "i32", b.inst("Bitcast", "i32", shifted), b.const("i32", 23))
    return b.exact("FMul", "f32", near, b.inst("Bitcast", "f32", bits))
