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
    NestingError,
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
from loopgrad.lazy.loops.branches import cond, switch
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.loops.scan import scan
from loopgrad.lazy.loops.while_loop import EndlessLoopError, while_loop
from loopgrad.lazy.numpy.creation import (
    arange,
    array,
    asarray,
    astype,
    copy,
    empty,
    empty_like,
    eye,
    from_dlpack,
    fromfunction,
    full,
    full_like,
    geomspace,
    identity,
    indices,
    linspace,
    logspace,
    ones,
    ones_like,
    tri,
    zeros,
    zeros_like,
)
from loopgrad.lazy.numpy.elementwise import (
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
from loopgrad.lazy.numpy.indexing import (
    argwhere,
    compress,
    delete,
    extract,
    flatnonzero,
    nonzero,
    take,
    take_along_axis,
    unravel_index,
)
from loopgrad.lazy.numpy.matrix_products import (
    cross,
    diag,
    diagflat,
    diagonal,
    dot,
    einsum,
    inner,
    matmul,
    outer,
    tensordot,
    trace,
    vdot,
    vecdot,
)
from loopgrad.lazy.numpy.movement import (
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
from loopgrad.lazy.numpy.not_offered import ABSENT, absent_name
from loopgrad.lazy.numpy.reduction import (
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
from loopgrad.lazy.tensor.config import default_device, default_dtype, options, set_default_dtype
from loopgrad.lazy.tensor.errors import (
    GradientError,
    HistoryError,
    StaleCaptureError,
    StaticArgumentError,
    StructureError,
    TracedValueError,
)
from loopgrad.lazy.tensor.evaluation import evaluate as eval
from loopgrad.lazy.tensor.evaluation import memory_stats, synchronize, to_device
from loopgrad.lazy.tensor.graph_export import to_dot, to_networkx, to_text
from loopgrad.lazy.tensor.promotion import can_cast
from loopgrad.lazy.tensor.tensor import Tensor
from loopgrad.runtime.devices import DeviceStatus, devices
from loopgrad.runtime.options import Options
from loopgrad.runtime.plan import MemoryStats, Plan
from loopgrad.runtime.replay import ReplayStats

if TYPE_CHECKING:
    from loopgrad import linalg
    from loopgrad.lazy.numpy.elementwise_compositions import (
        allclose,
        array_equal,
        bitwise_count,
        deg2rad,
        degrees,
        divmod,
        fabs,
        float_power,
        fmax,
        fmin,
        gcd,
        heaviside,
        isclose,
        isin,
        isneginf,
        isposinf,
        lcm,
        ldexp,
        logaddexp2,
        modf,
        rad2deg,
        radians,
        rint,
        select,
        sinc,
    )
    from loopgrad.lazy.numpy.joining import (
        append,
        array_split,
        atleast_1d,
        atleast_2d,
        atleast_3d,
        block,
        column_stack,
        dsplit,
        dstack,
        fliplr,
        flipud,
        hsplit,
        hstack,
        kron,
        rot90,
        vsplit,
        vstack,
    )
    from loopgrad.lazy.numpy.norms import matrix_norm, vector_norm
    from loopgrad.lazy.numpy.sampled_functions import convolve, correlate, gradient, interp, polyval, trapezoid, vander
    from loopgrad.lazy.numpy.shapes_and_dtypes import finfo, iinfo, isdtype, ndim, promote_types, shape, size
    from loopgrad.lazy.numpy.statistics import (
        average,
        bincount,
        corrcoef,
        cov,
        digitize,
        histogram,
        median,
        nanargmax,
        nanargmin,
        nancumprod,
        nancumsum,
        nanmax,
        nanmean,
        nanmedian,
        nanmin,
        nanpercentile,
        nanprod,
        nanquantile,
        nanstd,
        nansum,
        nanvar,
        percentile,
        ptp,
        quantile,
    )
    from loopgrad.lazy.transforms.checkpoint import checkpoint
    from loopgrad.lazy.transforms.compile import Compiled, Replay, compile
    from loopgrad.lazy.transforms.derivatives import (
        grad,
        hessian,
        hvp,
        jacfwd,
        jacrev,
        jvp,
        linearize,
        value_and_grad,
        vjp,
    )
    from loopgrad.lazy.transforms.gradients_of_tensors import gradients
    from loopgrad.lazy.transforms.static_arguments import register_pytree, register_static
    from loopgrad.lazy.transforms.vmap import vmap

# module -> names, imported when the name is first used: derivatives and batching bring half of the package
_MODULES: Final = {
    "transforms.checkpoint": "checkpoint",
    "transforms.compile": "Compiled Replay compile",
    "numpy.elementwise_compositions": (
        "allclose array_equal bitwise_count deg2rad degrees divmod fabs float_power fmax fmin gcd heaviside isclose "
        "isin isneginf isposinf lcm ldexp logaddexp2 modf rad2deg radians rint select sinc"
    ),
    "transforms.gradients_of_tensors": "gradients",
    "numpy.shapes_and_dtypes": "finfo iinfo isdtype ndim promote_types shape size",
    "numpy.joining": (
        "append array_split atleast_1d atleast_2d atleast_3d block column_stack dsplit dstack fliplr flipud hsplit "
        "hstack kron rot90 vsplit vstack"
    ),
    "numpy.norms": "matrix_norm vector_norm",
    "numpy.sampled_functions": "convolve correlate gradient interp polyval trapezoid vander",
    "transforms.static_arguments": "register_pytree register_static",
    "numpy.statistics": (
        "average bincount corrcoef cov digitize histogram median nanargmax nanargmin nancumprod nancumsum nanmax "
        "nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar percentile ptp quantile"
    ),
    "transforms.derivatives": "grad hessian hvp jacfwd jacrev jvp linearize value_and_grad vjp",
    "transforms.vmap": "vmap",
}
_LATER: Final = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "linalg":
        return import_module("loopgrad.linalg")
    module = _LATER.get(name)
    if module is None:
        instead = absent_name("loopgrad", name, ABSENT)
        raise AttributeError(instead or f"module 'loopgrad' has no attribute {name!r}")
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
around = round
cumulative_sum, cumulative_prod = cumsum, cumprod
bool_ = bool

__all__ = [
    "Compiled", "DType", "DTypeError", "DeviceError", "DeviceStatus", "EndlessLoopError", "GradientError",
    "HistoryError", "IndexRangeError", "LeakedValueError", "LoopLimitError", "LoopgradError", "MemoryStats",
    "NestingError", "Options", "Plan", "Replay", "ReplayStats", "ShapeError", "StackCapacityError", "StaleCaptureError",
    "StaticArgumentError", "StructureError", "Tensor", "TracedValueError", "abs", "absolute", "acos", "acosh",
    "add", "all", "allclose", "amax", "amin", "any", "append", "arange", "arccos", "arccosh", "arcsin", "arcsinh",
    "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "argwhere", "around", "array", "array_equal",
    "array_split", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d",
    "atleast_3d", "average", "bfloat16", "bincount", "bitwise_and", "bitwise_count", "bitwise_invert",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "block", "bool",
    "bool_", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "can_cast", "cbrt", "ceil", "checkpoint",
    "clip", "column_stack", "compile", "complex64", "complex128", "compress", "concat", "concatenate", "cond",
    "convolve", "copy", "copysign", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov", "cross",
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "default_device", "default_dtype",
    "deg2rad", "degrees", "delete", "devices", "diag", "diagflat", "diagonal", "diff", "digamma", "digitize",
    "divide", "divmod", "dot", "dsplit", "dstack", "e", "einsum", "empty", "empty_like", "equal", "erf", "erfc",
    "eval", "exp", "exp2", "expand_dims", "expm1", "extract", "eye", "fabs", "finfo", "flatnonzero", "flip",
    "fliplr", "flipud", "float16", "float32", "float64", "float_power", "floor", "floor_divide", "fmax", "fmin",
    "fmod", "fori_loop", "from_dlpack", "fromfunction", "full", "full_like", "gcd", "geomspace", "grad", "gradient",
    "gradients", "greater", "greater_equal", "heaviside", "hessian", "histogram", "hsplit", "hstack", "hvp",
    "hypot", "identity", "iinfo", "indices", "inf", "inner", "int8", "int16", "int32", "int64", "interp", "invert",
    "isclose", "isdtype", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "jacfwd", "jacrev", "jvp",
    "kron", "lcm", "ldexp", "left_shift", "less", "less_equal", "lgamma", "linalg", "linearize", "linspace", "log",
    "log1p", "log2", "log10", "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor",
    "logspace", "logsumexp", "matmul", "matrix_norm", "matrix_transpose", "max", "maximum", "mean", "median",
    "memory_stats", "meshgrid", "min", "minimum", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num",
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin",
    "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "ndim", "negative", "newaxis",
    "nonzero", "not_equal", "ones", "ones_like", "options", "outer", "pad", "percentile", "permute_dims", "pi",
    "polyval", "positive", "pow", "power", "prod", "promote_types", "ptp", "quantile", "rad2deg", "radians",
    "ravel", "reciprocal", "register_pytree", "register_static", "remainder", "repeat", "reshape", "result_type",
    "right_shift", "rint", "roll", "rot90", "round", "rsqrt", "scan", "searchsorted", "select", "set_default_dtype",
    "shape", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "size", "sort", "split", "sqrt", "square",
    "squeeze", "stack", "std", "stop_gradient", "subtract", "sum", "swapaxes", "switch", "synchronize", "take",
    "take_along_axis", "tan", "tanh", "tensordot", "tile", "to_device", "to_dot", "to_networkx", "to_text", "trace",
    "transpose", "trapezoid", "tri", "tril", "triu", "true_divide", "trunc", "uint8", "uint16", "uint32", "uint64",
    "unravel_index", "unstack", "value_and_grad", "vander", "var", "vdot", "vecdot", "vector_norm", "vjp", "vmap",
    "vsplit", "vstack", "where", "while_loop", "zeros", "zeros_like",
]  # fmt: skip
