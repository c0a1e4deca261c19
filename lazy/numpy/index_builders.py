"""Grids and positions: what NumPy builds of slices (`mgrid`, `r_`), and indices of parts of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.types import bool_, int64
from loopgrad.lazy.numpy.creation import MOST_AXES, arange, asarray
from loopgrad.lazy.numpy.elementwise import add, multiply, remainder
from loopgrad.lazy.numpy.found_positions import flatnonzero, nonzero
from loopgrad.lazy.numpy.movement import broadcast_to, concat, reshape, stack
from loopgrad.lazy.numpy.positions_out_of_range import check_positions
from loopgrad.lazy.numpy.spaced_numbers import linspace
from loopgrad.lazy.numpy.special_values import clip
from loopgrad.lazy.tensor.blamed_arguments import blaming
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, cast
from loopgrad.lazy.tensor.operands import normal_shape, whole_number
from loopgrad.lazy.tensor.promotion import promote_all
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = (
    "c_ diag_indices diag_indices_from index_exp ix_ mask_indices mgrid ogrid r_ ravel_multi_index s_ tril_indices "
    "tril_indices_from triu_indices triu_indices_from"
)


def _line(op: str, part: slice) -> Tensor:
    """`start:stop:step` as `arange`; a step of `n * 1j` as n points, the end included."""
    for bound in (part.start, part.stop, part.step):
        if isinstance(bound, TensorCore):
            fix = "the length must be known: use lg.linspace, whose ends may be tensors"
            raise DTypeError(explained(op, "Python numbers", bound._value.type, fix))
    start, step = part.start or 0, 1 if part.step is None else part.step
    if part.stop is None:
        raise ValueError(explained(op, "a slice with an end", part, "write start:stop"))
    if isinstance(step, complex):
        points: Tensor = linspace(start, part.stop, int(abs(step)))
        return points
    return arange(start, part.stop, step)


class _Grid:
    """`mgrid` (dense) and `ogrid` (not): subscript them with slices, one an axis."""

    __slots__ = ("_dense",)

    def __init__(self, dense: bool) -> None:
        self._dense = dense

    def __getitem__(self, key: Any) -> Any:
        op = "mgrid" if self._dense else "ogrid"
        if isinstance(key, slice):
            return _line(op, key)
        lines = [_line(op, part) for part in key]
        if not lines:
            return arange(0) if self._dense else ()
        dtype = promote_all(*[(line._value.dtype, False) for line in lines])[0]
        shape = tuple([line._value.shape[0] for line in lines])
        columns = [
            reshape(cast(line, dtype), tuple([n if d == k else 1 for d in range(len(lines))]))
            for k, (line, n) in enumerate(zip(lines, shape, strict=True))
        ]
        return stack([broadcast_to(c, shape) for c in columns]) if self._dense else tuple(columns)


class _JoinOfSlices:
    """`r_` and `c_`: subscript them with slices, numbers and arrays, which are joined along an axis."""

    __slots__ = ("_axis", "_first", "_rank")

    def __init__(self, axis: int = 0, rank: int = 1, first: int = -1) -> None:
        self._axis, self._rank, self._first = axis, rank, first

    def __getitem__(self, key: Any) -> Tensor:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, rank, first = self._axis, self._rank, self._first
        if items and isinstance(items[0], str):
            axis, rank, first = _directive(items.pop(0), axis, rank, first)
        parts = []
        for item in items:
            t = _line("r_", item) if isinstance(item, slice) else as_tensor(item)
            own = 1 if isinstance(item, slice) or not t._value.shape else len(t._value.shape)
            t = reshape(t, t._value.shape or (1,))
            parts.append(_with_axes(t, own, rank, first))
        return concat(parts, axis=axis)


def _directive(text: str, axis: int, rank: int, first: int) -> tuple[int, int, int]:
    """`"axis"`, `"axis,rank"` or `"axis,rank,first"`."""
    try:
        given = [int(n) for n in text.split(",")]
    except ValueError:
        fix = "NumPy's matrices ('r', 'c') have no place here"
        raise ValueError(explained("r_", "up to three integers in the text", repr(text), fix)) from None
    rest = [axis, rank, first][len(given) :]
    axis, rank, first = [*given, *rest]
    return axis, rank, first


def _with_axes(t: Tensor, own: int, rank: int, first: int) -> Tensor:
    """t with new axes until it has `rank`; `first` is where its own begin (negative: counted from the end)."""
    missing = rank - own
    if missing <= 0:
        return t
    start = missing + 1 + first if first < 0 else min(first, missing)
    start = max(start, 0)
    return reshape(t, (*(1,) * start, *t._value.shape, *(1,) * (missing - start)))


mgrid: Final = _Grid(dense=True)
ogrid: Final = _Grid(dense=False)
r_: Final = _JoinOfSlices()
c_: Final = _JoinOfSlices(-1, 2, 0)
s_: Final = np.s_
index_exp: Final = np.index_exp


@repeated
def ix_(*vectors: ArrayLike) -> tuple[Tensor, ...]:
    """Indices of the sub-array at the crossings of these vectors: each as an axis of its own, bools as positions.

    Raises ShapeError for what isn't a vector.

    >>> lg.asarray([[1, 2, 3], [4, 5, 6]])[lg.ix_([0, 1], [0, 2])]
    Tensor([[1, 3],
            [4, 6]], dtype=int64)
    """
    found = []
    for k, vector in enumerate(vectors):
        t = as_tensor(vector)
        if len(t._value.shape) != 1:
            raise ShapeError(explained("ix_", "vectors", t._value.type, "ravel it"))
        if t._value.dtype is bool_:
            t = flatnonzero(t)
        elif not t._value.shape[0]:
            t = cast(t, int64)
        found.append(reshape(t, tuple([t._value.shape[0] if d == k else 1 for d in range(len(vectors))])))
    return tuple(found)


@repeated
def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """The indices of the diagonal of an array of `ndim` axes of extent n: int64 vectors.

    >>> lg.diag_indices(2)
    (Tensor([0, 1], dtype=int64), Tensor([0, 1], dtype=int64))
    """
    count = whole_number("diag_indices", "a whole number of axes", ndim)
    if not 0 <= count <= MOST_AXES:
        raise ValueError(explained("diag_indices", f"0 to {MOST_AXES} axes, as NumPy has", count, "pass fewer"))
    return (arange(n),) * count


def diag_indices_from(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """`diag_indices` of x's extents. Raises ShapeError unless x has two axes or more, of one extent.

    >>> lg.diag_indices_from(lg.ones((2, 2)))[0]
    Tensor([0, 1], dtype=int64)
    """
    shape = as_tensor(x)._value.shape
    if len(shape) < 2 or len(set(shape)) != 1:
        raise ShapeError(explained("diag_indices_from", "two axes or more, of one extent", shape, "reshape it"))
    return diag_indices(shape[0], len(shape))


def _positions(mask: np.ndarray[Any, Any]) -> tuple[Tensor, ...]:
    return tuple([asarray(p.astype(np.int64)) for p in np.nonzero(mask)])


@repeated
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """The indices of the lower triangle, up to diagonal k, of an (n, m) matrix (square unless told): int64 vectors.

    >>> lg.tril_indices(2)
    (Tensor([0, 1, 1], dtype=int64), Tensor([0, 0, 1], dtype=int64))
    """
    return _positions(_lower(n, k, m))  # type: ignore[return-value]


@repeated
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """The indices of the upper triangle, from diagonal k on, of an (n, m) matrix (square unless told): int64 vectors.

    >>> lg.triu_indices(2)
    (Tensor([0, 0, 1], dtype=int64), Tensor([0, 1, 1], dtype=int64))
    """
    return _positions(~_lower(n, k, m, 1))  # type: ignore[return-value]


def _lower(n: int, k: int, m: int | None, less: int = 0) -> np.ndarray[Any, Any]:
    """Which elements of a matrix lie below its k-th diagonal or on it, or on one that is so many lower."""
    rows, columns, diagonal = [index(x) if hasattr(x, "__index__") else x for x in (n, n if m is None else m, k)]
    return np.tri(rows, columns, diagonal - less, dtype=bool)


def _matrix_shape(op: str, x: ArrayLike) -> tuple[int, int]:
    shape = as_tensor(x)._value.shape
    if len(shape) != 2:
        raise ShapeError(explained(op, "two dimensions", shape, "index the matrix first"))
    return shape[0], shape[1]


@blaming
def tril_indices_from(x: ArrayLike, /, k: int = 0) -> tuple[Tensor, Tensor]:
    """`tril_indices` of a matrix' extents. Raises ShapeError for what isn't a matrix.

    >>> lg.tril_indices_from(lg.ones((2, 2)), k=-1)
    (Tensor([1], dtype=int64), Tensor([0], dtype=int64))
    """
    n, m = _matrix_shape("tril_indices_from", x)
    return tril_indices(n, k, m)


@blaming
def triu_indices_from(x: ArrayLike, /, k: int = 0) -> tuple[Tensor, Tensor]:
    """`triu_indices` of a matrix' extents. Raises ShapeError for what isn't a matrix.

    >>> lg.triu_indices_from(lg.ones((2, 2)), k=1)
    (Tensor([0], dtype=int64), Tensor([1], dtype=int64))
    """
    n, m = _matrix_shape("triu_indices_from", x)
    return triu_indices(n, k, m)


def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0) -> tuple[Tensor, ...]:
    """Where `mask_func(matrix, k)` of an (n, n) matrix of ones isn't 0 (`lg.tril`, `lg.triu`): int64 vectors.

    >>> lg.mask_indices(2, lg.triu)
    (Tensor([0, 0, 1], dtype=int64), Tensor([0, 1, 1], dtype=int64))
    """
    return nonzero(mask_func(broadcast_to(as_tensor(1), (n, n)), k))


@repeated
def ravel_multi_index(
    multi_index: Sequence[ArrayLike] | ArrayLike, dims: Any, mode: str | Sequence[str] = "raise", order: str = "C"
) -> Tensor:
    """Positions in a raveled array of shape `dims`, of one index array for each axis: int64, of their joint shape.

    `mode` says what becomes of indices out of range, for all axes or each: "wrap" them, "clip" them, or "raise"
    ValueError for Python's and NumPy's numbers; tensors are clipped then, as every index that is data. Raises
    ShapeError unless there is an index for each axis, ValueError for another mode or order.

    >>> lg.ravel_multi_index(([0, 1], [1, 2]), (2, 3))
    Tensor([1, 5], dtype=int64)
    """
    shape = normal_shape("ravel_multi_index", dims)
    parts = list(multi_index if isinstance(multi_index, tuple | list | np.ndarray) else as_tensor(multi_index))
    modes = [mode] * len(shape) if isinstance(mode, str) else list(mode)
    if len(parts) != len(shape) or len(modes) != len(shape):
        raise ShapeError(explained("ravel_multi_index", f"{len(shape)} indices", len(parts), "pass one for each axis"))
    if order not in ("C", "F"):
        raise ValueError(explained("ravel_multi_index", "order 'C' or 'F'", repr(order), "leave it out"))
    total: Tensor = as_tensor(0)
    for d, (part, extent, how) in enumerate(zip(parts, shape, modes, strict=True)):
        stride = prod(shape[d + 1 :]) if order == "C" else prod(shape[:d])
        total = add(total, multiply(_inside(part, extent, how), stride))
    return cast(total, int64)


def _inside(part: ArrayLike, extent: int, mode: str) -> Tensor:
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(explained("ravel_multi_index", "mode 'raise', 'wrap' or 'clip'", repr(mode), "pass one"))
    if mode == "raise":
        check_positions("ravel_multi_index", part, 0, extent - 1, ValueError)
    t = as_tensor(part)
    if not t._value.dtype.is_integer:
        raise DTypeError(explained("ravel_multi_index", "integers", t._value.type, "convert with .astype(lg.int64)"))
    t = cast(t, int64)
    return remainder(t, extent) if mode == "wrap" else clip(t, 0, extent - 1)
