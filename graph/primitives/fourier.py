"""Discrete Fourier transforms along the last axis of complex numbers, which are pairs of reals here: library routines.

    dft             z: (..., n, 2)           ->  (..., n, 2)            sum over j of z[j] exp(-2 pi i j k / n)
                                                                        (with `inverse`: exp(+2 pi i j k / n))
    real_dft        x: (..., n)              ->  (..., n // 2 + 1, 2)   the first half of the dft of real numbers
    hermitian_dft   z: (..., n // 2 + 1, 2)  ->  (..., n)               the real inverse dft of what the first half
                                                                        stands for; `length`: n. The imaginary parts
                                                                        of element 0, and n / 2 of an even n, count as 0

`norm` says what a transform is multiplied by: "none" 1, "ortho" 1 / sqrt(n), "full" 1 / n.

Where a device does transforms along several axes, or along one that isn't the last, as one step, they are these when a
program is scheduled. `axes` are distinct; of half a spectrum the last one named has half.

    dft_along           z: (..., n, ..., 2)           ->  (..., n, ..., 2)           dft along each of the axes
    real_dft_along      x: (..., n, ...)              ->  (..., n // 2 + 1, ..., 2)  real_dft along the last, dft along
                                                                                     the others
    hermitian_dft_along z: (..., n // 2 + 1, ..., 2)  ->  (..., n, ...)              the inverse dft along the others,
                                                                                     then hermitian_dft along the last

The references are NumPy's, that is pocketfft (M. Reinecke), in the operands' dtype.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    AxisRule,
    Kind,
    Primitive,
    Types,
    dtype_error,
    shape_error,
    table,
    tensor_type,
)
from loopgrad.graph.types import TensorType, float32, float64

WHY: Final = "it is made of transforms along one axis, which have derivatives, when a program is scheduled"
NORMS: Final = ("none", "ortho", "full")
_FORWARD: Final = {"none": "backward", "ortho": "ortho", "full": "forward"}
_INVERSE: Final = {"none": "forward", "ortho": "ortho", "full": "backward"}


def norm_of(norm: str, inverse: bool) -> Any:
    """What NumPy calls `norm` for a transform in that direction."""
    return (_INVERSE if inverse else _FORWARD)[norm]


def factor_of(norm: str, n: int) -> float:
    """What the sums of a transform of n numbers are multiplied by."""
    if norm == "none":
        return 1.0
    return 1.0 / n if norm == "full" else 1.0 / sqrt(n)


def transform_length(op: str, attrs: Attrs, operand: TensorType) -> int:
    """How many numbers the transform of one row takes, as if all were there."""
    if op == "hermitian_dft":
        length: int = attrs["length"]
        return length
    return operand.shape[-1] if op == "real_dft" else operand.shape[-2]


def axes_of(attrs: Attrs) -> tuple[int, ...]:
    """Of a transform along axes, that of half a spectrum last."""
    axes: tuple[int, ...] = attrs["axes"]
    return axes


def spectrum_shape(op: str, operand: TensorType, result: TensorType) -> tuple[int, ...]:
    """The shape of the numbers of a transform along axes, as if all of them were there: that of the reals, if any."""
    if op == "hermitian_dft_along":
        return result.shape
    return operand.shape if op == "real_dft_along" else operand.shape[:-1]


def as_complex(pairs: Array) -> Array:
    """The complex numbers in whose memory these pairs lie."""
    dense = np.ascontiguousarray(pairs)
    numbers: Array = dense.view(np.result_type(dense.dtype, np.complex64))
    return numbers.reshape(dense.shape[:-1])


def as_pairs(numbers: Array) -> Array:
    dense = np.ascontiguousarray(numbers)
    return dense.view(dense.real.dtype).reshape(*dense.shape, 2)


# ---- shapes


def _reals(op: str, value: Value, rank: int) -> TensorType:
    t = tensor_type(op, value)
    if t.dtype not in (float32, float64):
        raise dtype_error(op, "float32 or float64 elements", t, "cast the operand")
    if len(t.shape) < rank:
        raise shape_error(op, f"at least {rank} dims", t, "a transform goes along an axis")
    return t


def _pairs(op: str, value: Value) -> TensorType:
    t = _reals(op, value, 2)
    if t.shape[-1] != 2:
        raise shape_error(op, "pairs of reals", t, "the last axis holds a real and an imaginary part")
    return t


def _not_empty(op: str, n: int) -> int:
    if n < 1:
        raise shape_error(op, "a transform of at least 1 number", n, "check the length")
    return n


def _infer_dft(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    t = _pairs("dft", operands[0])
    _not_empty("dft", t.shape[-2])
    return (t,)


def _infer_real_dft(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    t = _reals("real_dft", operands[0], 1)
    n = _not_empty("real_dft", t.shape[-1])
    return (TensorType((*t.shape[:-1], n // 2 + 1, 2), t.dtype),)


def _infer_hermitian_dft(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    t = _pairs("hermitian_dft", operands[0])
    n = _not_empty("hermitian_dft", attrs["length"])
    if t.shape[-2] != n // 2 + 1:
        raise shape_error("hermitian_dft", f"{n // 2 + 1} numbers for a length of {n}", t, "cut or pad them")
    return (TensorType((*t.shape[:-2], n), t.dtype),)


def _along(op: str, shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    axes = axes_of(attrs)
    if not axes or len({*axes}) < len(axes) or not 0 <= min(axes) <= max(axes) < len(shape):
        raise shape_error(op, f"distinct axes of {shape}", axes, "name others")
    for axis in axes:
        _not_empty(op, shape[axis])
    return axes


def _infer_dft_along(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    t = _pairs("dft_along", operands[0])
    _along("dft_along", t.shape[:-1], attrs)
    return (t,)


def _infer_real_dft_along(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    t = _reals("real_dft_along", operands[0], 1)
    last = _along("real_dft_along", t.shape, attrs)[-1]
    half = t.shape[last] // 2 + 1
    return (TensorType((*t.shape[:last], half, *t.shape[last + 1 :], 2), t.dtype),)


def _infer_hermitian_dft_along(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    t = _pairs("hermitian_dft_along", operands[0])
    last = _along("hermitian_dft_along", t.shape[:-1], attrs)[-1]
    n = _not_empty("hermitian_dft_along", attrs["length"])
    if t.shape[last] != n // 2 + 1:
        raise shape_error("hermitian_dft_along", f"{n // 2 + 1} numbers for a length of {n}", t, "cut or pad them")
    return (TensorType((*t.shape[:last], n, *t.shape[last + 1 : -1]), t.dtype),)


# ---- references


def dft(attrs: Attrs, z: Array) -> tuple[Array]:
    function = np.fft.ifft if attrs["inverse"] else np.fft.fft
    return (as_pairs(function(as_complex(z), norm=norm_of(attrs["norm"], attrs["inverse"]))),)


def real_dft(attrs: Attrs, x: Array) -> tuple[Array]:
    return (as_pairs(np.fft.rfft(x, norm=norm_of(attrs["norm"], inverse=False))),)


def hermitian_dft(attrs: Attrs, z: Array) -> tuple[Array]:
    return (np.fft.irfft(as_complex(z), attrs["length"], norm=norm_of(attrs["norm"], inverse=True)),)


def dft_along(attrs: Attrs, z: Array) -> tuple[Array]:
    function = np.fft.ifftn if attrs["inverse"] else np.fft.fftn
    return (as_pairs(function(as_complex(z), axes=attrs["axes"], norm=norm_of(attrs["norm"], attrs["inverse"]))),)


def real_dft_along(attrs: Attrs, x: Array) -> tuple[Array]:
    return (as_pairs(np.fft.rfftn(x, axes=attrs["axes"], norm=norm_of(attrs["norm"], inverse=False))),)


def hermitian_dft_along(attrs: Attrs, z: Array) -> tuple[Array]:
    numbers, axes = as_complex(z), attrs["axes"]
    lengths = [*(numbers.shape[axis] for axis in axes[:-1]), attrs["length"]]
    return (np.fft.irfftn(numbers, lengths, axes, norm=norm_of(attrs["norm"], inverse=True)),)


# ---- axes


def _rows(own: int) -> AxisRule:
    """Rows don't meet, their elements do; `own`: axes of a row in the operand."""

    def rule(node: Node, operand: int, axes: Axes) -> Axes | None:
        return axes if all(a < len(node.operands[0].shape) - own for a in axes) else None

    return rule


def _without_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    along = node.attrs["axes"]
    return axes if all(a < min(along) for a in axes) else None


def _axes_after_batch(attrs: Attrs, size: int) -> Attrs:
    return {**attrs, "axes": tuple([a + 1 for a in attrs["axes"]])}


def _same(attrs: Attrs, size: int) -> Attrs:
    """The batched attributes of what works on the last axes."""
    return attrs


ALONE: Final[dict[str, Primitive]] = table(
    Primitive(
        name="dft", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer_dft, reference=dft, axes=_rows(2),
        batched=_same, linear=True, heavy=True,
    ),
    Primitive(
        name="real_dft", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer_real_dft, reference=real_dft,
        axes=_rows(1), batched=_same, linear=True, heavy=True,
    ),
    Primitive(
        name="hermitian_dft", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer_hermitian_dft,
        reference=hermitian_dft, axes=_rows(2), batched=_same, linear=True, heavy=True,
    ),
)  # fmt: skip
"""Along the last axis: what programs are made of."""
TOGETHER: Final[dict[str, Primitive]] = table(
    Primitive(
        name="dft_along", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer_dft_along, reference=dft_along,
        axes=_without_axes, batched=_axes_after_batch, heavy=True, not_differentiable=WHY,
    ),
    Primitive(
        name="real_dft_along", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer_real_dft_along,
        reference=real_dft_along, axes=_without_axes, batched=_axes_after_batch, heavy=True,
        not_differentiable=WHY,
    ),
    Primitive(
        name="hermitian_dft_along", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer_hermitian_dft_along,
        reference=hermitian_dft_along, axes=_without_axes, batched=_axes_after_batch, heavy=True,
        not_differentiable=WHY,
    ),
)  # fmt: skip
"""What a device makes of several of these."""
ROWS: Final[dict[str, Primitive]] = {**ALONE, **TOGETHER}
