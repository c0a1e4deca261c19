"""NumPy's short names for joining, splitting and turning arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.elementwise import multiply
from loopgrad.lazy.numpy.movement import concat, expand_dims, flip, reshape, split, swapaxes
from loopgrad.lazy.tensor.blamed_arguments import blaming
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor
from loopgrad.lazy.tensor.operands import meet_arrays, normal_axes, normal_axis, whole_number
from loopgrad.lazy.tensor.repeated_calls import repeated, repeated_view
from loopgrad.lazy.tensor.storage import whole

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

_MOST_EMPTY: Final = 1 << 16  # sections of which most have no element
PUBLIC: Final = (
    "append array_split atleast_1d atleast_2d atleast_3d block column_stack dsplit dstack fliplr flipud hsplit hstack "
    "kron rot90 vsplit vstack"
)


def _each(xs: Sequence[ArrayLike], function: Callable[[Tensor], Tensor]) -> Any:
    made = tuple([function(as_tensor(x)) for x in xs])
    return made[0] if len(made) == 1 else made


def atleast_1d(*xs: ArrayLike) -> Any:
    """x (of several a tuple), a scalar as an array of shape (1,); the dtype stays.

    >>> lg.atleast_1d(2.0)
    Tensor([2.], dtype=float64)
    """
    return _each(xs, lambda t: reshape(t, t._value.shape or (1,)))


def atleast_2d(*xs: ArrayLike) -> Any:
    """x (of several a tuple) with axes of extent 1 in front until there are two: of a vector of n shape (1, n).

    >>> lg.atleast_2d(lg.arange(3)).shape
    (1, 3)
    """
    return _each(xs, lambda t: reshape(t, (1,) * (2 - len(t._value.shape)) + t._value.shape))


def atleast_3d(*xs: ArrayLike) -> Any:
    """x (of several a tuple) with three axes at least: a vector of n becomes (1, n, 1), a matrix (m, n, 1) in shape.

    >>> lg.atleast_3d(lg.arange(3)).shape
    (1, 3, 1)
    """
    return _each(xs, _with_three_axes)


def _with_three_axes(t: Tensor) -> Tensor:
    shape = t._value.shape
    if len(shape) >= 3:
        return whole(t)
    return reshape(t, (1, 1, 1) if not shape else (1, *shape, 1) if len(shape) == 1 else (*shape, 1))


# ---- joining


@repeated
def vstack(xs: Sequence[ArrayLike], /, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    """Join along the first axis, vectors as rows; dtypes and errors are those of `concat`.

    >>> lg.vstack([lg.asarray([1, 2]), lg.asarray([3, 4])])
    Tensor([[1, 2],
            [3, 4]], dtype=int64)
    """
    return concat([atleast_2d(x) for x in xs], axis=0, dtype=dtype, casting=casting)


@repeated
def hstack(xs: Sequence[ArrayLike], /, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    """Join along the second axis, vectors end to end; dtypes and errors are those of `concat`.

    >>> lg.hstack([lg.asarray([1, 2]), lg.asarray([3, 4])])
    Tensor([1, 2, 3, 4], dtype=int64)
    """
    parts = [atleast_1d(x) for x in xs]
    return concat(parts, axis=0 if not parts or len(parts[0]._value.shape) == 1 else 1, dtype=dtype, casting=casting)


@repeated
def dstack(xs: Sequence[ArrayLike], /) -> Tensor:
    """Join along the third axis, after `atleast_3d`; dtypes and errors are those of `concat`.

    >>> lg.dstack([lg.asarray([1, 2]), lg.asarray([3, 4])])
    Tensor([[[1, 3],
             [2, 4]]], dtype=int64)
    """
    return concat([atleast_3d(x) for x in xs], axis=2)


@repeated
def column_stack(xs: Sequence[ArrayLike], /) -> Tensor:
    """Join along the second axis, vectors as columns; dtypes and errors are those of `concat`.

    >>> lg.column_stack([lg.asarray([1, 2]), lg.asarray([3, 4])])
    Tensor([[1, 3],
            [2, 4]], dtype=int64)
    """
    parts = [as_tensor(x) for x in xs]
    return concat([p if len(p._value.shape) > 1 else reshape(p, (p._type.size, 1)) for p in parts], axis=1)


@repeated
def block(rows: Any, /) -> Tensor:
    """An array of nested lists of blocks: the innermost lists join along the last axis, those around along the one
    before it, and so on.

    Dtypes are promoted to one. Raises ShapeError for lists of different depths and for blocks that don't fit.

    >>> lg.block([[lg.ones((1, 1)), lg.zeros((1, 2))], [lg.zeros((1, 3))]])
    Tensor([[1., 0., 0.],
            [0., 0., 0.]], dtype=float64)
    """
    depth = _depth(rows)
    return _joined_blocks(rows, depth, depth)


def _depth(blocks: Any) -> int:
    return 1 + max(map(_depth, blocks)) if isinstance(blocks, list) and blocks else 0


def _joined_blocks(blocks: Any, level: int, rank: int) -> Tensor:
    if not level and not isinstance(blocks, list):
        t = as_tensor(blocks)
        return reshape(t, (1,) * (rank - len(t._value.shape)) + t._value.shape)
    if not level or not isinstance(blocks, list) or not blocks:
        fix = "nest all blocks equally deep, and leave no list empty"
        raise ShapeError(explained("block", f"a list of blocks {level} deep", repr(blocks)[:80], fix))
    return concat([_joined_blocks(b, level - 1, rank) for b in blocks], axis=-level)


@repeated
def append(x: ArrayLike, /, values: ArrayLike, axis: int | None = None) -> Tensor:
    """`concat([x, values], axis)`, with its dtypes and errors; without an axis both are raveled.

    >>> lg.append(lg.asarray([1, 2]), 3)
    Tensor([1, 2, 3], dtype=int64)
    """
    return concat(meet_arrays(x, values), axis=axis)


# ---- splitting


@repeated_view
def array_split(x: ArrayLike, /, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """As `split`, with sections that may differ by one element along the axis: the longer ones come first.

    Raises ShapeError for less than one section, and for more than there are elements and 65,536.

    >>> lg.array_split(lg.arange(5), 2)
    [Tensor([0, 1, 2], dtype=int64), Tensor([3, 4], dtype=int64)]
    """
    if np.ndim(indices_or_sections):
        return split(x, indices_or_sections, axis=axis)
    t = as_tensor(x)
    extent = t._value.shape[normal_axis("array_split", axis, len(t._value.shape))]
    sections = whole_number("array_split", "an integer number of sections, or indices", indices_or_sections)
    if not 0 < sections <= max(extent, _MOST_EMPTY):
        expected = f"from one section to as many as elements, or {_MOST_EMPTY}"
        raise ShapeError(explained("array_split", expected, sections, "leave empty sections away"))
    short, longer = divmod(extent, sections)
    return split(t, [i * short + min(i, longer) for i in range(1, sections)], axis=axis)


@blaming
def vsplit(x: ArrayLike, /, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    """`split` along the first axis. Raises ShapeError for less than two axes, and as `split` does.

    >>> lg.vsplit(lg.asarray([[1, 2], [3, 4]]), 2)
    [Tensor([[1, 2]], dtype=int64), Tensor([[3, 4]], dtype=int64)]
    """
    return split(_of_rank("vsplit", x, 2), indices_or_sections, axis=0)


@blaming
def hsplit(x: ArrayLike, /, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    """`split` along the second axis, of a vector along its only one. Raises ShapeError for a scalar, and as `split`
    does.

    >>> lg.hsplit(lg.arange(4), 2)
    [Tensor([0, 1], dtype=int64), Tensor([2, 3], dtype=int64)]
    """
    t = _of_rank("hsplit", x, 1)
    return split(t, indices_or_sections, axis=0 if len(t._value.shape) == 1 else 1)


@blaming
def dsplit(x: ArrayLike, /, indices_or_sections: int | Sequence[int]) -> list[Tensor]:
    """`split` along the third axis. Raises ShapeError for less than three axes, and as `split` does.

    >>> [x.shape for x in lg.dsplit(lg.ones((2, 3, 4)), 2)]
    [(2, 3, 2), (2, 3, 2)]
    """
    return split(_of_rank("dsplit", x, 3), indices_or_sections, axis=2)


def _of_rank(op: str, x: ArrayLike, rank: int) -> Tensor:
    t = as_tensor(x)
    if len(t._value.shape) < rank:
        raise ShapeError(explained(op, f"at least {rank} dimensions", t._value.type, "use lg.split with an axis"))
    return t


# ---- turning


def fliplr(x: ArrayLike, /) -> Tensor:
    """The second axis reversed: a view. Raises ShapeError where there is none.

    >>> lg.fliplr(lg.asarray([[1, 2], [3, 4]]))
    Tensor([[2, 1],
            [4, 3]], dtype=int64)
    """
    return flip(_of_rank("fliplr", x, 2), axis=1)


def flipud(x: ArrayLike, /) -> Tensor:
    """The first axis reversed: a view. Raises ShapeError where there is none.

    >>> lg.flipud(lg.asarray([[1, 2], [3, 4]]))
    Tensor([[3, 4],
            [1, 2]], dtype=int64)
    """
    return flip(_of_rank("flipud", x, 1), axis=0)


@repeated_view
def rot90(x: ArrayLike, /, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """x turned by 90 degrees `k` times, from the first of the axes towards the second: a view.

    Raises ShapeError unless there are two different axes.

    >>> lg.rot90(lg.asarray([[1, 2], [3, 4]]))
    Tensor([[2, 4],
            [1, 3]], dtype=int64)
    """
    t = as_tensor(x)
    first, second = (normal_axis("rot90", a, len(t._value.shape)) for a in axes)
    normal_axes("rot90", tuple(axes), len(t._value.shape))  # refuses one axis twice
    turns = whole_number("rot90", "a number of turns", k) % 4
    if not turns:
        return whole(t)
    if turns == 2:
        return flip(t, axis=(first, second))
    if turns == 1:
        t = flip(t, axis=second)
    t = swapaxes(t, first, second)
    return flip(t, axis=second) if turns == 3 else t


@repeated
def kron(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The Kronecker product: y times each element of x, as blocks; each extent is the product of both.

    Operands are promoted to one dtype.

    >>> lg.kron(lg.asarray([1, 10]), lg.asarray([1, 2]))
    Tensor([ 1,  2, 10, 20], dtype=int64)
    """
    a, b = meet_arrays(x, y)
    rank = max(len(a._value.shape), len(b._value.shape))
    p, q = ((1,) * (rank - len(t._value.shape)) + t._value.shape for t in (a, b))
    blocks = expand_dims(reshape(a, p), tuple(range(1, 2 * rank, 2)))
    inside = expand_dims(reshape(b, q), tuple(range(0, 2 * rank, 2)))
    return reshape(multiply(blocks, inside), tuple([m * n for m, n in zip(p, q, strict=True)]))
