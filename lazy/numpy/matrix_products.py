"""Products of vectors, matrices and higher arrays; every contraction becomes one matmul."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from string import ascii_letters
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import bool_, int64
from loopgrad.lazy.numpy.complex_functions import conjugated
from loopgrad.lazy.numpy.contraction_order import contraction_order, from_left_to_right
from loopgrad.lazy.numpy.elementwise import multiply, subtract
from loopgrad.lazy.numpy.indexing import get_item
from loopgrad.lazy.numpy.movement import expand_dims, moveaxis, permute_dims, ravel, reshape, stack
from loopgrad.lazy.numpy.reduction import sum
from loopgrad.lazy.numpy.views_and_assignment import Diagonal, WritableDiagonal
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, broadcast_value, cast, cast_value, copied, wrap
from loopgrad.lazy.tensor.operands import Shape, joined_shape, meet_arrays, normal_axis, positions
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.storage import viewed

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "cross diag diagflat diagonal dot einsum inner matmul matvec outer tensordot trace vdot vecdot vecmat"
PUBLIC_LINALG: Final = "cross matmul outer tensordot vecdot"
ELLIPSIS: Final = "..."
FIRST_OWN_LABEL: Final = 0xE000  # private use in Unicode: no letter that a user could write


def _one_dtype(xs: Sequence[ArrayLike]) -> tuple[list[Value], bool]:
    """The operands in one dtype (bools as int64), and whether they were bools."""
    values = [t._value for t in meet_arrays(*xs)]
    were_bool = values[0].dtype is bool_
    return [cast_value(v, int64) for v in values] if were_bool else values, were_bool


def matmul(x: ArrayLike, y: ArrayLike, /, out: Out = None) -> Tensor:
    """Matrix product; leading axes broadcast, a vector counts as a row (left) or a column (right). With `out` written
    to that, and returned.

    Shapes (..., m, k) and (..., k, n) give (..., m, n), in the dtype to which both are promoted. Raises ShapeError for
    a scalar and where the inner extents differ.

    >>> lg.matmul(lg.asarray([[1, 2], [3, 4]]), lg.asarray([1, 10]))
    Tensor([21, 43], dtype=int64)
    """
    return delivered("matmul", _matrix_product(x, y), out)


def _matrix_product(x: ArrayLike, y: ArrayLike) -> Tensor:
    (a, b), were_bool = _one_dtype((x, y))
    if not a.shape or not b.shape:
        fix = "multiply by a scalar with *"
        raise ShapeError(explained("matmul", "at least one dimension on each side", f"{a.shape} and {b.shape}", fix))
    row, column = len(a.shape) == 1, len(b.shape) == 1
    if row:
        a = ops.reshape(a, (1, *a.shape))
    if column:
        b = ops.reshape(b, (*b.shape, 1))
    if a.shape[-1] != b.shape[-2]:
        fix = "transpose or reshape one of them"
        raise ShapeError(explained("matmul", f"{a.shape[-1]} rows on the right", f"{a.shape} @ {b.shape}", fix))
    result = _batched_matmul(a, b)
    shape = result.shape
    if row and column:
        result = ops.reshape(result, shape[:-2])
    elif row:
        result = ops.reshape(result, (*shape[:-2], shape[-1]))
    elif column:
        result = ops.reshape(result, shape[:-1])
    return cast(wrap(result), bool_) if were_bool else wrap(result)


def _batched_matmul(a: Value, b: Value) -> Value:
    batch = joined_shape("matmul", (a.shape[:-2], b.shape[:-2]))
    if len(b.shape) == 2 and len(a.shape) > 2:  # one matrix for the whole batch: a single tall product
        tall = ops.reshape(a, (prod(a.shape[:-1]), a.shape[-1]))
        return ops.reshape(ops.matmul(tall, b), (*a.shape[:-1], b.shape[-1]))
    return ops.matmul(broadcast_value(a, (*batch, *a.shape[-2:])), broadcast_value(b, (*batch, *b.shape[-2:])))


def dot(x: ArrayLike, y: ArrayLike, /, out: Out = None) -> Tensor:
    """NumPy's dot: product with a scalar, inner product of vectors, last axis with second to last. With `out` written
    to that, and returned.

    Shapes (..., k) and (..., k, n) give all axes of x but the last, then those of y but the summed one. Dtypes and
    errors are those of `matmul`.

    >>> lg.dot(lg.asarray([1.0, 2.0]), lg.asarray([3.0, 4.0]))
    Tensor(11., dtype=float64)
    """
    a, b = meet_arrays(x, y)
    if not a._value.shape or not b._value.shape:
        return delivered("dot", multiply(a, b), out)
    product = matmul(a, b) if len(b._value.shape) <= 2 else tensordot(a, b, axes=([-1], [-2]))
    return delivered("dot", product, out)


def vecdot(x: ArrayLike, y: ArrayLike, /, axis: int = -1) -> Tensor:
    """The inner product along an axis, of complex numbers with the conjugates of x, in the dtype to which both are
    promoted; other axes broadcast.

    Raises ShapeError where they don't, or where the axis' extents differ.

    >>> lg.vecdot(lg.asarray([[1, 2], [3, 4]]), lg.asarray([1, 10]))
    Tensor([21, 43], dtype=int64)
    """
    (a, b), were_bool = _one_dtype((x, y))
    first, second = [(1,) * (max(len(a.shape), len(b.shape)) - len(v.shape)) + v.shape for v in (a, b)]
    d = normal_axis("vecdot", axis, len(first))
    if first[d] != second[d]:
        got = f"{a.shape} and {b.shape}"
        raise ShapeError(explained("vecdot", f"equal extents along axis {axis}", got, "make them equally long"))
    result = sum(multiply(conjugated(wrap(a)), wrap(b)), axis=axis, dtype=a.dtype)
    return cast(result, bool_) if were_bool else result


def matvec(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """Matrices times vectors: shapes (..., m, n) and (..., n) give (..., m), in one promoted dtype; others broadcast.

    Raises ShapeError where the extents differ.

    >>> lg.matvec(lg.asarray([[1, 2], [3, 4]]), lg.asarray([[1, 0], [0, 1]]))
    Tensor([[1, 3],
            [2, 4]], dtype=int64)
    """
    return matmul(x, expand_dims(y, -1))[..., 0]


def vecmat(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """Vectors (their conjugates) times matrices: shapes (..., m) and (..., m, n) give (..., n), in one promoted dtype.

    Other axes broadcast. Raises ShapeError where the extents differ.

    >>> lg.vecmat(lg.asarray([[1, 0], [0, 1]]), lg.asarray([[1, 2], [3, 4]]))
    Tensor([[1, 2],
            [3, 4]], dtype=int64)
    """
    return matmul(expand_dims(conjugated(x), -2), y)[..., 0, :]


def vdot(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The inner product of all elements, of complex numbers with the conjugates of x, of shape (); raises ShapeError
    where their numbers differ.

    >>> lg.vdot(lg.asarray([[1, 2], [3, 4]]), lg.ones((2, 2)))
    Tensor(10., dtype=float64)
    """
    return matmul(ravel(conjugated(x)), ravel(y))


def inner(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The sum of products over the last axes: shapes (..., k) and (..., k) give all other axes, x's first.

    Dtypes are promoted to one. Raises ShapeError where the last extents differ.

    >>> lg.inner(lg.asarray([[1, 2], [3, 4]]), lg.asarray([1, 10]))
    Tensor([21, 43], dtype=int64)
    """
    a, b = meet_arrays(x, y)
    if not a._value.shape or not b._value.shape:
        return multiply(a, b)
    return tensordot(a, b, axes=([-1], [-1]))


def outer(x: ArrayLike, y: ArrayLike, /, out: Out = None) -> Tensor:
    """All products of two vectors (others are raveled): shapes (m,) and (n,) give (m, n), in one promoted dtype.

    >>> lg.outer(lg.asarray([1, 2]), lg.asarray([3, 4, 5]))
    Tensor([[ 3,  4,  5],
            [ 6,  8, 10]], dtype=int64)
    """
    a, b = map(ravel, meet_arrays(x, y))
    return multiply(reshape(a, (-1 if a._value.shape[0] else 0, 1)), reshape(b, (1, b._value.shape[0])), out=out)


def tensordot(x: ArrayLike, y: ArrayLike, /, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Sum of products over pairs of axes (an int: the last of `x` with the first of `y`).

    The result has x's other axes, then y's, in one promoted dtype. Raises ShapeError where paired extents differ.

    >>> lg.tensordot(lg.ones((2, 3, 4)), lg.ones((3, 4, 5)), axes=2).shape
    (2, 5)
    """
    (a, b), were_bool = _one_dtype((x, y))
    if isinstance(axes, int):
        most = min(len(a.shape), len(b.shape))
        if axes > most:
            fix = "pass fewer, or a pair of lists of axes"
            raise ShapeError(explained("tensordot", f"at most {most} axes of {a.shape} and {b.shape}", axes, fix))
        left = list(range(len(a.shape) - axes, len(a.shape)))
        right = list(range(axes))
    else:
        left = [normal_axis("tensordot", d, len(a.shape)) for d in _listed(axes[0])]
        right = [normal_axis("tensordot", d, len(b.shape)) for d in _listed(axes[1])]
    if [a.shape[d] for d in left] != [b.shape[d] for d in right]:
        got = f"{a.shape} over {left} with {b.shape} over {right}"
        raise ShapeError(explained("tensordot", "equal extents on the summed axes", got, "check the axes"))
    free_left = [d for d in range(len(a.shape)) if d not in left]
    free_right = [d for d in range(len(b.shape)) if d not in right]
    rows, columns = [a.shape[d] for d in free_left], [b.shape[d] for d in free_right]
    depth = prod(a.shape[d] for d in left)
    m = ops.reshape(ops.transpose(a, (*free_left, *left)), (prod(rows), depth))
    n = ops.reshape(ops.transpose(b, (*right, *free_right)), (depth, prod(columns)))
    result = wrap(ops.reshape(ops.matmul(m, n), (*rows, *columns)))
    return cast(result, bool_) if were_bool else result


def _listed(axes: int | Sequence[int]) -> Sequence[int]:
    return [axes] if isinstance(axes, int) else axes


# ---- diagonals


def diagonal(x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonal over two axes, as a new last axis: a read-only view.

    Raises ShapeError for less than two axes.

    >>> lg.diagonal(lg.asarray([[1, 2], [3, 4]]))
    Tensor([1, 4], dtype=int64)
    """
    return _diagonal(x, offset, axis1, axis2, Diagonal)


def _diagonal(x: ArrayLike, offset: int, axis1: int, axis2: int, kind: type[Diagonal]) -> Tensor:
    t = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = t._value.shape[-2:]
    first = min(max(-offset, 0), rows), min(max(offset, 0), columns)
    step = kind(first, max(min(rows - first[0], columns - first[1]), 0))
    return viewed(t, step, step.forward(t._value))


def diag(x: ArrayLike, /, k: int = 0) -> Tensor:
    """A matrix with the vector on diagonal `k`, or the diagonal of a matrix; the dtype stays.

    Raises ShapeError for other numbers of axes.

    >>> lg.diag(lg.asarray([1, 2])), lg.diag(lg.asarray([[1, 2], [3, 4]]))
    (Tensor([[1, 0],
            [0, 2]], dtype=int64), Tensor([1, 4], dtype=int64))
    """
    t = as_tensor(x)
    if len(t._value.shape) == 2:
        return diagonal(t, offset=k)
    if len(t._value.shape) != 1:
        raise ShapeError(explained("diag", "one or two dimensions", t._value.type, "use lg.diagonal"))
    n = t._value.shape[0] + abs(k)
    rows = positions((n, n), 0)
    columns = positions((n, n), 1)
    wide = ops.pad(t._value, (max(k, 0),), (max(-k, 0),))
    placed = broadcast_value(wide, (n, n))  # element j of column j
    on_diagonal = ops.eq(columns, ops.add(rows, k)) if n else emit("eq", (columns, rows))[0]
    return wrap(ops.select(on_diagonal, placed, ops.zeros_like(placed)))


def diagflat(x: ArrayLike, /, k: int = 0) -> Tensor:
    """A matrix with the elements of x (of any shape) on diagonal `k`; the dtype stays.

    >>> lg.diagflat(lg.asarray([[1], [2]]))
    Tensor([[1, 0],
            [0, 2]], dtype=int64)
    """
    return diag(ravel(x), k)


def trace(
    x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Out = None
) -> Tensor:
    """The sum of the diagonal over two axes, which the result hasn't; in `dtype`, or integers in 64 bits.

    Raises ShapeError for less than two axes.

    >>> lg.trace(lg.asarray([[1, 2], [3, 4]]))
    Tensor(5, dtype=int64)
    """
    return sum(diagonal(x, offset=offset, axis1=axis1, axis2=axis2), axis=-1, dtype=dtype, out=out)


def cross(
    x: ArrayLike, y: ArrayLike, /, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """The cross product of vectors of 3 along an axis (the last; or `axisa` of x, `axisb` of y, `axisc` of the result).

    Vectors of 2 have a third component of 0; of two such the result is the third component alone, without the axis.
    Other axes broadcast, dtypes are promoted to one.

    Raises ShapeError for another extent of the axis.

    >>> lg.cross(lg.asarray([1, 0, 0]), lg.asarray([0, 1, 0]))
    Tensor([0, 0, 1], dtype=int64)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    for t, at in ((a, axisa), (b, axisb)):
        if t._value.shape[-1] not in (2, 3):
            raise ShapeError(explained("cross", f"extent 2 or 3 at axis {at}", t._value.type, "pass vectors of space"))
    both_flat = a._value.shape[-1] == b._value.shape[-1] == 2
    a0, a1, a2 = _components(a)
    b0, b1, b2 = _components(b)
    if both_flat:
        return copied(subtract(multiply(a0, b1), multiply(a1, b0)))
    parts = [
        subtract(multiply(a1, b2), multiply(a2, b1)),
        subtract(multiply(a2, b0), multiply(a0, b2)),
        subtract(multiply(a0, b1), multiply(a1, b0)),
    ]
    return copied(moveaxis(stack(parts, axis=-1), -1, axisc))


def _components(vectors: Tensor) -> list[ArrayLike]:
    """Three of each vector along the last axis."""
    found: list[ArrayLike] = [get_item(vectors, (..., i)) for i in range(vectors._value.shape[-1])]
    return [*found, 0] if len(found) == 2 else found


# ---- einsum


def einsum(subscripts: Any, /, *operands: Any, out: Out = None, optimize: Any = True) -> Tensor:
    """Einstein summation over letters ("ij,jk->ik"); of three operands to eight the order of contractions is
    the one with the fewest multiplications, of more what a greedy search finds (`numpy.einsum_path`).

    A letter repeated within one operand takes its diagonal. An ellipsis ("...ij,...jk->...ik") stands for the axes
    without letters, which are broadcast against each other. Of one operand of which nothing is summed ("ij->ji",
    "ii->i") the result is a view.

    NumPy's other form has lists of numbers behind the operands, and last those of the result: `einsum(x, [0, 1], y,
    [1], [0])`. Dtypes are promoted to one. With `out` the result is written to that, and it is returned; `optimize`,
    which tells NumPy to look for an order, changes nothing. Raises ShapeError for letters that don't fit the shapes.

    >>> lg.einsum("ij,j->i", lg.asarray([[1, 2], [3, 4]]), lg.asarray([1, 10]))
    Tensor([21, 43], dtype=int64)
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _lettered((subscripts, *operands))
    values, were_bool = _one_dtype(operands)
    inputs, output, values = _parse(subscripts, values)
    if len(operands) == 1 and set(inputs[0]) == set(output):
        return delivered("einsum", _turned(as_tensor(operands[0]), inputs[0], output), out)
    left = [_diagonals(labels, value) for labels, value in zip(inputs, values, strict=True)]
    for i, j in _path(left, output):
        other, one = left.pop(j), left.pop(i)
        later = set(output).union(*[labels for labels, _ in left])
        left.append(_contract(*one, *other, later))
    result = wrap(_arranged(*left[0], output))
    return delivered("einsum", cast(result, bool_) if were_bool else result, out)


def _lettered(parts: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """`x, [0, 1], y, [1], [0]` as "ab,b->a" and (x, y)."""
    lists = [*parts[1::2], *([parts[-1]] if len(parts) % 2 else [])]
    for numbers in lists:
        wrong = not isinstance(numbers, list | tuple)
        if wrong or any(n is not Ellipsis and not 0 <= index(n) < len(ascii_letters) for n in numbers):
            fix = f"use numbers from 0 to {len(ascii_letters) - 1}, and ... once"
            raise ShapeError(explained("einsum", "a string, or a list of numbers behind each operand", numbers, fix))
    words = ["".join([ELLIPSIS if n is Ellipsis else ascii_letters[index(n)] for n in numbers]) for numbers in lists]
    count = len(parts) // 2
    return ",".join(words[:count]) + "".join([f"->{word}" for word in words[count:]]), tuple(parts[: 2 * count : 2])


def _path(operands: Sequence[tuple[str, Value]], output: str) -> list[tuple[int, int]]:
    """Which two (rising) of what is left are contracted; what they make comes last. From left to right where nothing
    is to be chosen."""
    count, extents = len(operands), dict[str, int]()
    for labels, value in operands:
        for letter, n in zip(labels, value.shape, strict=True):
            if extents.setdefault(letter, n) != n:
                count = 0  # which `_contract` refuses
    if count < 3:
        return from_left_to_right(len(operands))
    return contraction_order([labels for labels, _ in operands], output, extents)


def _parse(subscripts: str, values: Sequence[Value]) -> tuple[list[str], str, list[Value]]:
    """The letters of each operand and of the result, and the operands that they fit."""
    text = subscripts.replace(" ", "")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    letters = "".join(inputs).replace(ELLIPSIS, "")
    named = letters + output.replace(ELLIPSIS, "")
    if len(inputs) != len(values) or (named and not named.isalpha()):
        fix = "write one group of letters per operand, as in 'ij,jk->ik'"
        raise ShapeError(explained("einsum", f"{len(values)} groups of letters", repr(subscripts), fix))
    if not arrow:
        once = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        output = ELLIPSIS * (ELLIPSIS in left) + once
    inputs, output, values = _without_ellipsis(inputs, output, values)
    if any(c not in "".join(inputs) for c in output) or len(set(output)) != len(output):
        fix = "name each result axis once, after an operand's"
        raise ShapeError(explained("einsum", "result letters that occur in the operands", output, fix))
    return inputs, output, values


def _without_ellipsis(
    inputs: Sequence[str], output: str, values: Sequence[Value]
) -> tuple[list[str], str, list[Value]]:
    """Letters in place of each ellipsis; an axis of extent 1 under it that others stretch is dropped."""
    counts = []
    for text, value in zip(inputs, values, strict=True):
        count = len(value.shape) - len(text) + len(ELLIPSIS) if ELLIPSIS in text else 0
        if count < 0 or text.count(ELLIPSIS) > 1:
            raise ShapeError(explained("einsum", f"the dimensions of {text!r}", value.type, "fix the letters"))
        counts.append(count)
    rank = max(counts, default=0)
    if ELLIPSIS not in output and ELLIPSIS in "".join(inputs) and rank:
        fix = "write ... in the result too, or name the axes to sum over"
        raise ShapeError(explained("einsum", "a result with the axes of ...", repr(output), fix))
    own = [chr(FIRST_OWN_LABEL + i) for i in range(rank)]  # no letters of the user's
    shapes = [v.shape[t.index(ELLIPSIS) :][:n] if n else () for t, v, n in zip(inputs, values, counts, strict=True)]
    extents = joined_shape("einsum", shapes)
    texts, kept = [], []
    for text, value, shape in zip(inputs, values, shapes, strict=True):
        first, labels = rank - len(shape), own[rank - len(shape) :]
        stretched = [i for i, n in enumerate(shape) if n == 1 and extents[first + i] != 1]
        gone = [text.find(ELLIPSIS) + i for i in stretched]
        kept.append(ops.reshape(value, tuple([n for a, n in enumerate(value.shape) if a not in gone])))
        texts.append(text.replace(ELLIPSIS, "".join([c for i, c in enumerate(labels) if i not in stretched])))
    return texts, output.replace(ELLIPSIS, "".join(own)), kept


def _diagonals(labels: str, value: Value) -> tuple[str, Value]:
    labels, t = _taken(labels, wrap(value))
    return labels, t._value


def _taken(labels: str, t: Tensor) -> tuple[str, Tensor]:
    """The diagonals over letters that occur more than once."""
    if len(labels) != len(t._value.shape):
        fix = "fix the letters"
        raise ShapeError(explained("einsum", f"{len(labels)} dimensions for {labels!r}", t._value.type, fix))
    for letter in dict.fromkeys(labels):
        while labels.count(letter) > 1:
            first = labels.index(letter)
            second = labels.index(letter, first + 1)
            n, m = t._value.shape[first], t._value.shape[second]
            if n != m:
                fix = "extents are not stretched in einsum"
                raise ShapeError(explained("einsum", f"one extent for {letter!r}", f"{n} and {m}", fix))
            t = _diagonal(t, 0, first, second, WritableDiagonal)
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + letter
    return labels, t


def _turned(t: Tensor, labels: str, output: str) -> Tensor:
    """The view of one operand with its axes in the order of `output`."""
    labels, t = _taken(labels, t)
    return permute_dims(t, [labels.index(c) for c in output])


def _contract(a: str, x: Value, b: str, y: Value, later: set[str]) -> tuple[str, Value]:
    """Multiply two operands, summing the letters that nobody needs any more."""
    x, a = _summed(x, a, later | set(b))
    y, b = _summed(y, b, later | set(a))
    batch = "".join(c for c in a if c in b and c in later)
    depth = "".join(c for c in a if c in b and c not in later)
    rows = "".join(c for c in a if c not in b)
    columns = "".join(c for c in b if c not in a)
    extents: dict[str, int] = {}
    for labels, value in ((a, x), (b, y)):
        for letter, n in zip(labels, value.shape, strict=True):
            if extents.setdefault(letter, n) != n:
                fix = "extents are not stretched in einsum"
                raise ShapeError(explained("einsum", f"one extent for {letter!r}", f"{extents[letter]} and {n}", fix))

    def size(letters: str) -> int:
        return prod(extents[c] for c in letters)

    def shape(letters: str) -> Shape:
        return tuple([extents[c] for c in letters])

    left = ops.reshape(_arranged(a, x, batch + rows + depth), (*shape(batch), size(rows), size(depth)))
    right = ops.reshape(_arranged(b, y, batch + depth + columns), (*shape(batch), size(depth), size(columns)))
    labels = batch + rows + columns
    return labels, ops.reshape(ops.matmul(left, right), shape(labels))


def _summed(value: Value, labels: str, keep: set[str]) -> tuple[Value, str]:
    gone = [i for i, c in enumerate(labels) if c not in keep]
    return ops.reduce_sum(value, gone), "".join(c for c in labels if c in keep)


def _arranged(labels: str, value: Value, output: str) -> Value:
    value, labels = _summed(value, labels, set(output))
    return ops.transpose(value, [labels.index(c) for c in output])
