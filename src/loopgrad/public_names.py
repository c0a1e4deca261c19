"""The public names and where each is found: the one list of them.

`loopgrad` imports a name's module when the name is first used, since derivatives, batching and compilation bring half
of the package. Type checkers and editors read `__init__.pyi`, which `python -m tests.architecture.public_stub` writes
from this list; a test compares them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

from loopgrad.lazy.numpy.not_offered import ABSENT, absent_name

# module -> names; `abs=absolute`: the module calls it absolute
MODULES: Final = {
    "codegen.options": "Options",
    "graph.errors": (
        "DTypeError GradientError IndexRangeError LeakedValueError LoopgradError LoopLimitError NestingError "
        "ShapeError"
    ),
    "graph.types": (
        "bfloat16 bool_ bool=bool_ complex128 complex64 DType float16 float32 float64 int16 int32 int64 int8 uint16 "
        "uint32 uint64 uint8"
    ),
    "lazy.loops.branches": "cond switch",
    "lazy.loops.fori_loop": "fori_loop",
    "lazy.loops.scan": "scan",
    "lazy.loops.while_loop": "EndlessLoopError while_loop",
    "lazy.numpy.creation": (
        "arange array asarray astype copy empty empty_like eye from_dlpack fromfunction full full_like geomspace "
        "identity indices linspace logspace ones ones_like tri zeros zeros_like"
    ),
    "lazy.numpy.elementwise": (
        "absolute abs=absolute acos arccos=acos acosh arccosh=acosh add asin arcsin=asin asinh arcsinh=asinh atan "
        "arctan=atan atan2 arctan2=atan2 atanh arctanh=atanh bitwise_and bitwise_invert bitwise_not=bitwise_invert "
        "invert=bitwise_invert bitwise_left_shift left_shift=bitwise_left_shift bitwise_or bitwise_right_shift "
        "right_shift=bitwise_right_shift bitwise_xor ceil cos cosh digamma divide true_divide=divide equal erf erfc "
        "exp exp2 expm1 floor floor_divide fmod greater greater_equal less less_equal lgamma log log10 log1p log2 "
        "logical_and logical_not logical_or logical_xor maximum minimum multiply negative not_equal positive power "
        "pow=power reciprocal remainder mod=remainder round around=round rsqrt sign sin sinh sqrt square stop_gradient "
        "subtract tan tanh trunc"
    ),
    "lazy.numpy.elementwise_compositions": (
        "allclose array_equal bitwise_count deg2rad degrees divmod fabs float_power fmax fmin gcd heaviside isclose "
        "isin isneginf isposinf lcm ldexp logaddexp2 modf rad2deg radians rint select sinc"
    ),
    "lazy.numpy.indexing": "argwhere compress delete extract flatnonzero nonzero take take_along_axis unravel_index",
    "lazy.numpy.joining": (
        "append array_split atleast_1d atleast_2d atleast_3d block column_stack dsplit dstack fliplr flipud hsplit "
        "hstack kron rot90 vsplit vstack"
    ),
    "lazy.numpy.matrix_products": (
        "cross diag diagflat diagonal dot einsum inner matmul outer tensordot trace vdot vecdot"
    ),
    "lazy.numpy.movement": (
        "broadcast_arrays broadcast_shapes broadcast_to concat concatenate=concat expand_dims flip matrix_transpose "
        "moveaxis permute_dims ravel reshape roll split squeeze stack swapaxes transpose tril triu unstack"
    ),
    "lazy.numpy.norms": "matrix_norm vector_norm",
    "lazy.numpy.reduction": (
        "all any argmax argmin argsort count_nonzero cummax cummin cumprod cumulative_prod=cumprod cumsum "
        "cumulative_sum=cumsum diff logsumexp max amax=max mean min amin=min prod searchsorted sort std sum var"
    ),
    "lazy.numpy.repetition": "meshgrid pad repeat tile",
    "lazy.numpy.sampled_functions": "convolve correlate gradient interp polyval trapezoid vander",
    "lazy.numpy.shapes_and_dtypes": "finfo iinfo isdtype ndim promote_types result_type shape size",
    "lazy.numpy.smooth_functions": "cbrt hypot logaddexp sigmoid",
    "lazy.numpy.special_values": "clip copysign isfinite isinf isnan nan_to_num signbit where",
    "lazy.numpy.statistics": (
        "average bincount corrcoef cov digitize histogram median nanargmax nanargmin nancumprod nancumsum nanmax "
        "nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar percentile ptp quantile"
    ),
    "lazy.tensor.config": "default_device default_dtype options set_default_dtype",
    "lazy.tensor.errors": (
        "DeviceError HistoryError StaleCaptureError StaticArgumentError StructureError TracedValueError"
    ),
    "lazy.tensor.evaluation": "eval=evaluate memory_stats synchronize to_device",
    "lazy.tensor.graph_export": "to_dot to_networkx to_text",
    "lazy.tensor.promotion": "can_cast",
    "lazy.tensor.tensor": "Tensor",
    "lazy.transforms.captured_call": "Replay",
    "lazy.transforms.checkpoint": "checkpoint name",
    "lazy.transforms.compile": "compile Compiled",
    "lazy.transforms.derivatives": "grad hessian hvp jacfwd jacrev jvp linearize value_and_grad vjp",
    "lazy.transforms.gradients_of_tensors": "gradients",
    "lazy.transforms.own_rules": "custom_jvp custom_vjp",
    "lazy.transforms.policies": "checkpoint_policies",
    "lazy.transforms.static_arguments": "register_pytree register_static",
    "lazy.transforms.vmap": "vmap",
    "runtime.devices": "devices DeviceStatus",
    "runtime.failures": "StackCapacityError",
    "runtime.plan": "MemoryStats Plan",
    "runtime.replay": "ReplayStats",
    "math": "e inf nan pi",
}


class Origin(NamedTuple):
    """The module in which something is found, and its name there."""

    module: str
    name: str


def _origins() -> dict[str, Origin]:
    found = {}
    for module, names in MODULES.items():
        full = module if module == "math" else f"loopgrad.{module}"
        for entry in names.split():
            public, _, name = entry.partition("=")
            found[public] = Origin(full, name or public)
    return found


ORIGINS: Final = _origins()


def find(name: str) -> Any:
    """What `loopgrad` offers under this name; AttributeError, with what to do instead where NumPy has it."""
    if name == "linalg":
        return import_module("loopgrad.linalg")
    origin = ORIGINS.get(name)
    if origin is None:
        instead = absent_name("loopgrad", name, ABSENT)
        raise AttributeError(instead or f"module 'loopgrad' has no attribute {name!r}")
    return getattr(import_module(origin.module), origin.name)
