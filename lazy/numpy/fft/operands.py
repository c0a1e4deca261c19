"""What transforms are given: numbers along an axis, how many of them, and what the sums are multiplied by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType, complex_dtype_of, float32
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast_operand
from loopgrad.lazy.tensor.operands import normal_axis
from loopgrad.lazy.tensor.promotion import float_dtype

_FORWARD: Final = {"backward": "none", "ortho": "ortho", "forward": "full"}
_INVERSE: Final = {"backward": "full", "ortho": "ortho", "forward": "none"}


def float_value(x: ArrayLike) -> Value:
    """The operand as it is computed with: integers become the default float, 16-bit floats float32."""
    t = as_tensor(x)
    dtype = float_dtype(t._value.dtype)
    return cast_operand(t, float32 if dtype.kind == "f" and dtype.bits < 32 else dtype)


def complex_value(x: ArrayLike) -> Value:
    value = float_value(x)
    return value if value.dtype.kind == "c" else ops.cast(value, complex_dtype_of(value.dtype))


def real_value(op: str, x: ArrayLike) -> Value:
    value = float_value(x)
    if value.dtype.kind == "c":
        fix = "use fft, or the real part: lg.real(x)"
        raise DTypeError(explained(op, "real numbers", value.type, fix))
    return value


def real_result(x: ArrayLike) -> DType:
    """The dtype of real numbers that are made of these: their own for 16-bit floats, as in NumPy."""
    dtype = float_dtype(as_tensor(x)._value.dtype)
    return dtype.part


def norm_word(op: str, norm: str | None, inverse: bool) -> str:
    """What the primitives call it."""
    word = "backward" if norm is None else norm
    if word not in _FORWARD:
        words = " or ".join(map(repr, _FORWARD))
        raise ValueError(explained(op, f"norm {words}", repr(norm), "use one of these"))
    return (_INVERSE if inverse else _FORWARD)[word]


def axis_of(op: str, value: Value, axis: Any) -> int:
    return normal_axis(op, axis, len(value.shape))


def length(op: str, n: Any, usual: int | None) -> int:
    """How many numbers a transform takes: `n`, or as many as there are, where that is known."""
    if n is None:
        n = usual
    try:
        count = int(n.__index__())
    except (AttributeError, TypeError):
        raise DTypeError(explained(op, "an integer n", repr(n), "pass an int")) from None
    if count < 1:
        raise ShapeError(explained(op, "a transform of at least 1 number", count, "check n and the shape"))
    return count


def fitted(value: Value, axis: int, n: int) -> Value:
    """The first n numbers along the axis, with zeros after them where there are fewer."""
    extent, rank = value.shape[axis], len(value.shape)
    if extent > n:
        stop = tuple([n if d == axis else e for d, e in enumerate(value.shape)])
        return ops.slice(value, (0,) * rank, stop)
    none = (0,) * rank
    return ops.pad(value, none, tuple([n - extent if d == axis else 0 for d in range(rank)]))


def at_end(value: Value, axis: int) -> Value:
    """With the axis last."""
    return ops.transpose(value, (*[d for d in range(len(value.shape)) if d != axis], axis))


def put_back(value: Value, axis: int) -> Value:
    """With the last axis at its place."""
    order = list(range(len(value.shape) - 1))
    return ops.transpose(value, (*order[:axis], len(order), *order[axis:]))


def axes_and_lengths(
    op: str, value: Value, s: Sequence[Any] | None, axes: Sequence[Any] | None, half: bool = False
) -> list[tuple[int, int]]:
    """Each axis with the length of its transforms. `half`: the last one holds half a spectrum, and its length is that
    of the result."""
    rank = len(value.shape)
    for name, given in (("s", s), ("axes", axes)):
        if given is not None and not isinstance(given, Sequence):
            raise DTypeError(explained(op, f"a sequence of ints for {name}", repr(given), "pass a tuple"))
    if axes is None:
        axes = range(rank) if s is None else range(-len(s), 0)
    if s is not None and len(s) != len(axes):
        raise ShapeError(explained(op, "as many lengths as axes", f"s={s!r} and axes={axes!r}", "make them as many"))
    found = [normal_axis(op, axis, rank) for axis in axes]
    usual = [value.shape[axis] for axis in found]
    if half and usual:
        usual[-1] = (usual[-1] - 1) * 2
    wanted = [None] * len(found) if s is None else [None if _is_whole(n) else n for n in s]
    extents = [value.shape[axis] if s is not None else u for axis, u in zip(found, usual, strict=True)]
    return [(axis, length(op, n, e)) for axis, n, e in zip(found, wanted, extents, strict=True)]


def _is_whole(n: Any) -> bool:
    """Whether it stands for all there is, as -1 and None do in NumPy."""
    return n is None or (isinstance(n, int) and n == -1)
