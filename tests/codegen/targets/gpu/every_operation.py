"""A kernel with every primitive of a dtype."""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.graph.types import DTYPES, int64
from tests.codegen.targets.cpu.kernel_build import Build

FLOAT_UNARY = [
    "neg",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sqrt",
    "rsqrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "lgamma",
    "digamma",
]
BINARY = ["add", "sub", "mul", "div", "floordiv", "rem", "mod", "min", "max"]
FLOAT_BINARY = [*BINARY, "pow", "atan2"]
INTEGER_BINARY = [*BINARY, "pow", "and", "or", "xor", "shl", "shr"]
DTYPE_NAMES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
               "uint32", "uint64")  # fmt: skip


def every_operation(dtype) -> Kernel:
    """One lane's worth of each primitive of a dtype."""
    b = Build(100)
    x_param, y_param = b.param(dtype, 100), b.param(dtype, 100)
    unary = FLOAT_UNARY if dtype.is_float else ["neg", "abs", "sign", "invert"]
    if dtype.kind == "u":
        unary = ["invert", "bit_count"]
    (lane,) = b.indices
    x, y = b.load(x_param, lane), b.load(y_param, lane)
    results = [b.one(name, (x,)) for name in unary]
    results += [b.one(name, (x, y)) for name in (FLOAT_BINARY if dtype.is_float else INTEGER_BINARY)]
    if dtype.is_float and dtype.bits >= 32:
        results.append(b.one("fma", (x, y, results[0])))
    results += [
        b.one("cast", (b.one("cast", (x,), other),), dtype) for other in DTYPES.values() if other.kind in "biuf"
    ]
    for result in results:
        b.store(b.param(dtype, 100, "write"), lane, result)
    for kind in ("add", "min", "max", "mul"):
        b.accumulate(b.param(dtype, 10, "accumulate"), b.one("rem", (lane, b.const(10, int64))), x, kind)
    return b.kernel("every")
