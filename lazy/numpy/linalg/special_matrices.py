"""Matrices with a pattern, by SciPy's names (`scipy.linalg`).

Of vectors: every axis but the last is a batch, where SciPy has one or ravels, and elements are read at constant places,
so derivatives are sums over these. Of a size alone: tables that are computed on the host.
"""

from __future__ import annotations

from math import comb, prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import LinAlgError, ShapeError, explained
from loopgrad.lazy.numpy.complex_functions import conj
from loopgrad.lazy.numpy.creation import asarray, zeros_like
from loopgrad.lazy.numpy.elementwise import absolute, divide, multiply, negative, subtract
from loopgrad.lazy.numpy.movement import broadcast_to, concat, expand_dims, reshape
from loopgrad.lazy.numpy.padding import pad
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.tensor.config import default_dtype
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor
from loopgrad.lazy.tensor.operands import joined_shape, whole_number
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = (
    "block_diag circulant companion convolution_matrix dft fiedler hadamard hankel helmert hilbert invhilbert "
    "invpascal khatri_rao leslie pascal toeplitz"
)
LARGEST_EXACT: Final = 34  # binomials of larger matrices leave 64 bits
LARGEST_PASCAL: Final = 515  # and of these floats
LARGEST_INT64: Final = 14  # inverses of larger Hilbert matrices leave 64 bits
LARGEST_INVHILBERT: Final = 203  # whose elements are floats


def _size(op: str, given: Any, largest: int) -> int:
    """How many rows a table has."""
    n = whole_number(op, "a number of rows", given)
    if not 0 <= n <= largest:
        fix = "elements of larger ones are no floats" if n > 0 else "pass a larger one"
        raise ValueError(explained(op, f"0 to {largest} rows", n, fix))
    return n


def _vector(op: str, x: ArrayLike, least: int = 0) -> Tensor:
    """x, a number as a vector of one, as SciPy takes it."""
    t = as_tensor(x)
    t = t if t.shape else expand_dims(t, 0)
    if t.shape[-1] < least:
        fix = "reshape or extend it"
        raise ShapeError(explained(op, f"a vector of at least {least} elements", t._value.type, fix))
    return t


def _places(rows: int, columns: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The row and the column of each element."""
    i, j = np.indices((rows, columns))
    return i, j


@repeated
def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Tensor:
    """The matrix with the same number along each diagonal: first column c, first row r (without its first element).

    Shapes (..., m) and (..., n) give (..., m, n), in the dtype that they are promoted to; r is conj(c) where it isn't
    given. A number counts as a vector of one.

    >>> lg.linalg.toeplitz([1, 2, 3], [1, 8, 9])
    Tensor([[1, 8, 9],
            [2, 1, 8],
            [3, 2, 1]], dtype=int64)
    """
    column = _vector("toeplitz", c)
    row = conj(column) if r is None else _vector("toeplitz", r)
    m, n = column.shape[-1], row.shape[-1]
    i, j = _places(m, n)
    return _read(_joined("toeplitz", column, row[..., 1:]), np.where(i >= j, i - j, m + j - i - 1))


def _read(table: Tensor, places: np.ndarray[Any, Any]) -> Tensor:
    """The elements of the last axis at these places."""
    result: Tensor = take(table, places, axis=-1)
    return result


def _joined(op: str, first: Tensor, second: Tensor) -> Tensor:
    batch = joined_shape(op, (first.shape[:-1], second.shape[:-1]))
    return concat([broadcast_to(t, (*batch, t.shape[-1])) for t in (first, second)], axis=-1)


@repeated
def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Tensor:
    """The matrix with the same number along each antidiagonal: first column c, last row r (without its first element,
    zeros where it isn't given). Shapes, dtypes and errors are those of `toeplitz`.

    >>> lg.linalg.hankel([1, 2, 3], [3, 8])
    Tensor([[1, 2],
            [2, 3],
            [3, 8]], dtype=int64)
    """
    column = _vector("hankel", c)
    row = zeros_like(column) if r is None else _vector("hankel", r)
    i, j = _places(column.shape[-1], row.shape[-1])
    return _read(_joined("hankel", column, row[..., 1:]), i + j)


@repeated
def circulant(c: ArrayLike) -> Tensor:
    """The matrix whose columns are c rolled: shape (..., n) gives (..., n, n), the dtype stays.

    >>> lg.linalg.circulant([1, 2, 3])
    Tensor([[1, 3, 2],
            [2, 1, 3],
            [3, 2, 1]], dtype=int64)
    """
    t = _vector("circulant", c)
    n = t.shape[-1]
    i, j = _places(n, n)
    return _read(t, (i - j) % max(n, 1))


@repeated
def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Tensor:
    """The matrix C with C @ v = convolve(a, v, mode) for vectors v of n elements; a has shape (..., m), the dtype
    stays.

    Raises ShapeError for an empty a, ValueError for n below 1 and for another mode than "full", "same", "valid".

    >>> lg.linalg.convolution_matrix([1, 2], 2)
    Tensor([[1, 0],
            [2, 1],
            [0, 2]], dtype=int64)
    """
    t = _vector("convolution_matrix", a, 1)
    if n < 1 or mode not in ("full", "same", "valid"):
        expected = "n of at least 1, and a mode 'full', 'same' or 'valid'"
        raise ValueError(explained("convolution_matrix", expected, f"n={n}, mode={mode!r}", "use one of these"))
    m = t.shape[-1]
    spare = 0 if mode == "full" else min(n, m) - 1
    before = spare // 2 if mode == "same" else spare
    i, j = _places(m + n - 1, n)
    wide = pad(t, [(0, 0)] * (t.ndim - 1) + [(n - 1, n - 1)])
    after = 0 if mode == "full" else spare - before if mode == "same" else spare
    return _read(wide, (i - j + n - 1)[before : m + n - 1 - after])


@repeated
def fiedler(a: ArrayLike) -> Tensor:
    """The distances abs(a[i] - a[j]) of all pairs: shape (..., n) gives (..., n, n), the dtype stays. Raises ShapeError
    for a number.

    >>> lg.linalg.fiedler([1, 4, 6])
    Tensor([[0, 3, 5],
            [3, 0, 2],
            [5, 2, 0]], dtype=int64)
    """
    t = _vector("fiedler", a)
    return absolute(subtract(expand_dims(t, -1), expand_dims(t, -2)))


@repeated
def companion(a: ArrayLike) -> Tensor:
    """The matrix whose eigenvalues are the roots of the polynomial with coefficients a, highest power first.

    Shape (..., n) gives (..., n-1, n-1), integers the default float. Raises ShapeError for fewer than two coefficients;
    a first one of 0 gives infinities.

    >>> lg.linalg.companion([2.0, -6.0, 4.0])
    Tensor([[ 3., -2.],
            [ 1.,  0.]], dtype=float64)
    """
    t = _vector("companion", a, 2)
    row = negative(divide(t[..., 1:], t[..., :1]))
    return _below(row, as_tensor(np.ones(row.shape[-1] - 1)))


@repeated
def leslie(f: ArrayLike, s: ArrayLike) -> Tensor:
    """The matrix of a population's growth: fecundities f (..., n) in the first row, survivals s (..., n-1) below the
    diagonal. The dtype is what they are promoted to. Raises ShapeError for other lengths.

    >>> lg.linalg.leslie([0.1, 2.0], [0.5])
    Tensor([[0.1, 2. ],
            [0.5, 0. ]], dtype=float64)
    """
    row, survivals = _vector("leslie", f, 1), _vector("leslie", s)
    if survivals.shape[-1] != row.shape[-1] - 1:
        fix = "give one survival fewer than fecundities"
        raise ShapeError(explained("leslie", f"{row.shape[-1] - 1} survivals", survivals.shape[-1], fix))
    return _below(row, survivals)


def _below(row: Tensor, diagonal: Tensor) -> Tensor:
    """A first row, a diagonal below the main one, zeros elsewhere."""
    n = row.shape[-1]
    i, j = _places(n, n)
    table = _joined("matrix", row, diagonal if n > 1 else diagonal[..., :0])
    table = pad(table, [(0, 0)] * (table.ndim - 1) + [(0, 1)])
    return _read(table, np.where(i == 0, j, np.where(i == j + 1, n + j, 2 * n - 1)))


@repeated
def block_diag(*arrays: ArrayLike) -> Tensor:
    """The matrix with these as blocks along the diagonal, and zeros elsewhere; batches are broadcast.

    Shapes (..., m, n) add up to (..., sum of m, sum of n); vectors and numbers are rows. The dtype is what all are
    promoted to; without arguments the shape is (1, 0). Raises ShapeError where batches don't broadcast.

    >>> lg.linalg.block_diag([[1, 2]], 3)
    Tensor([[1, 2, 0],
            [0, 0, 3]], dtype=int64)
    """
    blocks = [as_tensor(a) for a in arrays] or [asarray(np.zeros((1, 0)), default_dtype())]
    blocks = [t if t.ndim > 1 else reshape(t, (1, t.size)) for t in blocks]
    batch = joined_shape("block_diag", tuple(t.shape[:-2] for t in blocks))
    width, left, rows = sum(t.shape[-1] for t in blocks), 0, []
    for t in blocks:
        margins = [(0, 0)] * (len(batch) + 1) + [(left, width - left - t.shape[-1])]
        rows.append(pad(broadcast_to(t, (*batch, *t.shape[-2:])), margins))
        left += t.shape[-1]
    return concat(rows, axis=-2)


@repeated
def khatri_rao(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The Kronecker products of columns: shapes (..., m, n) and (..., k, n) give (..., m * k, n), in the dtype that
    they are promoted to. Raises LinAlgError for what isn't a matrix, ShapeError for different numbers of columns.

    >>> lg.linalg.khatri_rao([[1, 2]], [[3, 4], [5, 6]])
    Tensor([[ 3,  8],
            [ 5, 12]], dtype=int64)
    """
    x, y = as_tensor(a), as_tensor(b)
    for t in (x, y):
        if t.ndim < 2:
            fix = "a matrix has two axes"
            raise LinAlgError(explained("khatri_rao", "at least 2 dimensions", t._value.type, fix))
    if x.shape[-1] != y.shape[-1]:
        fix = "give both as many columns"
        raise ShapeError(explained("khatri_rao", f"{x.shape[-1]} columns", y.shape[-1], fix))
    pairs = multiply(expand_dims(x, -2), expand_dims(y, -3))
    return reshape(pairs, (*pairs.shape[:-3], prod(pairs.shape[-3:-1]), pairs.shape[-1]))


# ---- of a size alone


@repeated
def hilbert(n: int) -> Tensor:
    """The n by n matrix 1 / (i + j + 1), of the default float: the example of a matrix that is nearly singular.

    >>> lg.linalg.hilbert(2)
    Tensor([[1.        , 0.5       ],
            [0.5       , 0.33333333]], dtype=float64)
    """
    i, j = _places(n, n)
    return asarray(1.0 / (i + j + 1.0), default_dtype())


@repeated
def invhilbert(n: int, exact: bool = False) -> Tensor:
    """The inverse of `hilbert(n)`, whole numbers: of the default float, or with `exact` of int64, which hold them up to
    n = 14; OverflowError beyond. ValueError for n above 203, whose elements are no floats.

    >>> lg.linalg.invhilbert(2, exact=True)
    Tensor([[ 4, -6],
            [-6, 12]], dtype=int64)
    """

    n = _size("invhilbert", n, LARGEST_INVHILBERT)
    if exact and n > LARGEST_INT64:
        fix = "leave exact out for floats"
        raise OverflowError(explained("invhilbert", f"at most {LARGEST_INT64} rows of int64", n, fix))

    def element(i: int, j: int) -> int:
        size = (i + j + 1) * comb(n + i, n - j - 1) * comb(n + j, n - i - 1) * comb(i + j, i) ** 2
        return -size if (i + j) % 2 else size

    rows = [[element(i, j) for j in range(n)] for i in range(n)]
    return asarray(np.array(rows, np.int64).reshape(n, n)) if exact else _floats(rows, n)


def _floats(rows: list[list[int]], n: int) -> Tensor:
    return asarray(np.array([[float(v) for v in row] for row in rows]).reshape(n, n), default_dtype())


@repeated
def hadamard(n: int, dtype: Any = int) -> Tensor:
    """The n by n matrix of 1 and -1 with orthogonal rows (Sylvester's), an int64 unless told. ValueError where n is no
    power of 2.

    >>> lg.linalg.hadamard(2)
    Tensor([[ 1,  1],
            [ 1, -1]], dtype=int64)
    """
    n = whole_number("hadamard", "a power of 2", n)
    if n < 1 or n & (n - 1):
        raise ValueError(explained("hadamard", "a power of 2", n, "use the next one"))
    i, j = _places(n, n)
    return asarray(1 - 2 * (np.bitwise_count(i & j).astype(np.int64) % 2), dtype)


@repeated
def pascal(n: int, kind: str = "symmetric", exact: bool = True) -> Tensor:
    """Pascal's triangle as an n by n matrix: "symmetric" comb(i + j, i), "lower" comb(i, j), or "upper".

    uint64, which hold it up to n = 34, or without `exact` the default float. ValueError for another kind, or a larger
    n.

    >>> lg.linalg.pascal(3)
    Tensor([[1, 1, 1],
            [1, 2, 3],
            [1, 3, 6]], dtype=uint64)
    """
    choose = {"symmetric": lambda i, j: comb(i + j, i), "lower": comb, "upper": lambda i, j: comb(j, i)}
    rows = _pascal("pascal", choose, n, kind, exact)
    return asarray(np.array(rows, np.uint64).reshape(n, n)) if exact else _floats(rows, n)


@repeated
def invpascal(n: int, kind: str = "symmetric", exact: bool = True) -> Tensor:
    """The inverse of `pascal(n, kind)`, int64 or the default float; ValueError for another kind, or n above 34.

    >>> lg.linalg.invpascal(2)
    Tensor([[ 2, -1],
            [-1,  1]], dtype=int64)
    """

    def symmetric(i: int, j: int) -> int:
        return sign(i, j) * sum(comb(k, i) * comb(k, j) for k in range(n))

    def sign(i: int, j: int) -> int:
        return -1 if (i + j) % 2 else 1

    kinds = {
        "symmetric": symmetric,
        "lower": lambda i, j: sign(i, j) * comb(i, j),
        "upper": lambda i, j: sign(i, j) * comb(j, i),
    }
    rows = _pascal("invpascal", kinds, n, kind, exact)
    return asarray(np.array(rows, np.int64).reshape(n, n)) if exact else _floats(rows, n)


def _pascal(op: str, kinds: Any, n: int, kind: str, exact: bool) -> list[list[int]]:
    n = _size(op, n, LARGEST_PASCAL)
    if kind not in kinds or (exact and n > LARGEST_EXACT):
        expected = f"kind {' or '.join(map(repr, kinds))}, and at most {LARGEST_EXACT} rows where exact"
        raise ValueError(explained(op, expected, f"{kind!r}, {n} rows", "pass exact=False for floats"))
    return [[kinds[kind](i, j) for j in range(n)] for i in range(n)]


@repeated
def dft(n: int, scale: str | None = None) -> Tensor:
    """The matrix of the Fourier transform, complex128: dft(n) @ x is fft.fft(x). "sqrtn" divides it by the root of n,
    which makes it unitary, "n" by n; ValueError for another scale.

    >>> lg.linalg.dft(2).real
    Tensor([[ 1.,  1.],
            [ 1., -1.]], dtype=float64)
    """
    scales = {None: 1.0, "sqrtn": float(n) ** 0.5, "n": float(n)}
    if scale not in scales:
        raise ValueError(explained("dft", "scale None, 'sqrtn' or 'n'", repr(scale), "use one of these"))
    i, j = _places(n, n)
    return asarray(np.exp(-2j * np.pi * ((i * j) % max(n, 1)) / max(n, 1)) / scales[scale])


@repeated
def helmert(n: int, full: bool = False) -> Tensor:
    """The orthonormal rows that are 0 after the diagonal and add up to 0, of the default float: shape (n - 1, n), with
    `full` and a constant row before them (n, n).

    >>> lg.linalg.helmert(2)
    Tensor([[ 0.70710678, -0.70710678]], dtype=float64)
    """
    i, j = _places(n, n)
    rows = np.where(j < i, 1.0, np.where(j == i, -1.0 * i, 0.0)) / np.sqrt(np.maximum(i * (i + 1.0), 1.0))
    rows[:1] = 1.0 / np.sqrt(max(n, 1))
    return asarray(rows if full else rows[1:], default_dtype())
