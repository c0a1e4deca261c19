"""loopgrad: write the loop, get the gradient.

The public names. What is heavy (compilers, graph export) is imported by the layers when it is first
used; this import costs little more than NumPy's.
"""

from __future__ import annotations

from importlib import import_module
from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import (
    DeviceError,
    DTypeError,
    IndexRangeError,
    LeakedValueError,
    LoopgradError,
    LoopLimitError,
    ShapeError,
    StackCapacityError,
)
from loopgrad.graph.types import (
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
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
)
from loopgrad.graph.types import bool_ as bool
from loopgrad.lazy.branches import cond, switch
from loopgrad.lazy.config import default_device, default_dtype, options, set_default_dtype
from loopgrad.lazy.control import EndlessLoopError, fori_loop, scan, while_loop
from loopgrad.lazy.creation import (
    arange,
    array,
    asarray,
    astype,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    identity,
    linspace,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from loopgrad.lazy.elementwise import (
    absolute,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    cbrt,
    ceil,
    clip,
    copysign,
    cos,
    cosh,
    digamma,
    divide,
    equal,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    fmod,
    greater,
    greater_equal,
    hypot,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    lgamma,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    nan_to_num,
    negative,
    not_equal,
    positive,
    power,
    reciprocal,
    remainder,
    result_type,
    round,
    rsqrt,
    sigmoid,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    stop_gradient,
    subtract,
    tan,
    tanh,
    trunc,
    where,
)
from loopgrad.lazy.errors import GradientError, HistoryError, StructureError, TracedValueError
from loopgrad.lazy.evaluation import evaluate as eval
from loopgrad.lazy.evaluation import memory_stats, to_device
from loopgrad.lazy.export import to_dot, to_networkx, to_text
from loopgrad.lazy.indexing import nonzero, take, take_along_axis
from loopgrad.lazy.linalg import (
    cross,
    diag,
    diagonal,
    dot,
    einsum,
    inner,
    matmul,
    outer,
    tensordot,
    trace,
    vecdot,
    vector_norm,
)
from loopgrad.lazy.movement import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    meshgrid,
    moveaxis,
    pad,
    permute_dims,
    ravel,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
    tril,
    triu,
    unstack,
)
from loopgrad.lazy.promotion import can_cast
from loopgrad.lazy.reduction import (
    all,
    any,
    argmax,
    argmin,
    argsort,
    count_nonzero,
    cummax,
    cummin,
    cumprod,
    cumsum,
    diff,
    logsumexp,
    max,
    mean,
    min,
    prod,
    searchsorted,
    sort,
    std,
    sum,
    var,
)
from loopgrad.lazy.tensor import Tensor
from loopgrad.runtime.devices import devices
from loopgrad.runtime.options import Options

if TYPE_CHECKING:
    from loopgrad.lazy.checkpoint import checkpoint
    from loopgrad.lazy.compile import Compiled, Replay, compile
    from loopgrad.lazy.gradients import gradients
    from loopgrad.lazy.transforms import grad, hessian, hvp, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp
    from loopgrad.lazy.vectorize import vmap

# name -> module, imported when the name is first used: derivatives and batching bring half of the package
_LATER: Final = {
    "Compiled": "compile",
    "Replay": "compile",
    "checkpoint": "checkpoint",
    "compile": "compile",
    "grad": "transforms",
    "gradients": "gradients",
    "hessian": "transforms",
    "hvp": "transforms",
    "jacfwd": "transforms",
    "jacrev": "transforms",
    "jvp": "transforms",
    "linearize": "transforms",
    "value_and_grad": "transforms",
    "vjp": "transforms",
    "vmap": "vectorize",
}


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'loopgrad' has no attribute {name!r}")
    value = getattr(import_module(f"loopgrad.lazy.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


__version__ = "0.1.0"
newaxis = None

# NumPy's names beside those of the array API standard
abs = absolute
pow = power
mod = remainder
true_divide = divide
invert = bitwise_not = bitwise_invert
left_shift = bitwise_left_shift
right_shift = bitwise_right_shift
arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
arcsinh, arccosh, arctanh = asinh, acosh, atanh
concatenate = concat
amin, amax = min, max
cumulative_sum, cumulative_prod = cumsum, cumprod
bool_ = bool

__all__ = [
    "Compiled", "DType", "DTypeError", "DeviceError", "EndlessLoopError", "GradientError", "HistoryError",
    "IndexRangeError", "LeakedValueError", "LoopLimitError", "LoopgradError", "Options", "Replay", "ShapeError",
    "StackCapacityError", "StructureError", "Tensor", "TracedValueError", "abs", "absolute", "acos", "acosh", "add",
    "all", "amax", "amin",
    "any", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin",
    "argsort", "array", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh", "bfloat16", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bool",
    "bool_", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "can_cast", "cbrt", "ceil", "checkpoint", "clip",
    "compile", "complex64", "complex128", "concat", "concatenate", "cond", "copysign", "cos", "cosh", "count_nonzero",
    "cross", "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "default_device",
    "default_dtype", "devices", "diag", "diagonal", "diff", "digamma", "divide", "dot", "e", "einsum", "empty",
    "empty_like", "equal", "erf", "erfc", "eval", "exp", "exp2", "expand_dims", "expm1", "eye", "flip", "float16",
    "float32", "float64", "floor", "floor_divide", "fmod", "fori_loop", "from_dlpack", "full", "full_like", "grad",
    "gradients", "greater", "greater_equal", "hessian", "hvp", "hypot", "identity", "inf", "inner", "int8", "int16",
    "int32", "int64", "invert", "isfinite", "isinf", "isnan", "jacfwd", "jacrev", "jvp", "left_shift", "less",
    "less_equal", "lgamma", "linearize", "linspace", "log", "log1p", "log2", "log10", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logsumexp", "matmul", "matrix_transpose", "max", "maximum", "mean",
    "memory_stats", "meshgrid", "min", "minimum", "mod", "moveaxis", "multiply", "nan", "nan_to_num", "negative",
    "newaxis", "nonzero", "not_equal", "ones", "ones_like", "options", "outer", "pad", "permute_dims", "pi", "positive",
    "pow", "power", "prod", "ravel", "reciprocal", "remainder", "repeat", "reshape", "result_type", "right_shift",
    "roll", "round", "rsqrt", "scan", "searchsorted", "set_default_dtype", "sigmoid", "sign", "signbit", "sin", "sinh",
    "sort", "split", "sqrt", "square", "squeeze", "stack", "std", "stop_gradient", "subtract", "sum", "swapaxes",
    "switch", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "to_device", "to_dot", "to_networkx",
    "to_text", "trace", "transpose", "tril", "triu", "true_divide", "trunc", "uint8", "uint16", "uint32", "uint64",
    "unstack", "value_and_grad", "var", "vecdot", "vector_norm", "vjp", "vmap", "where", "while_loop", "zeros",
    "zeros_like",
]  # fmt: skip
