"""Factorisations of matrices: Cholesky, QR, symmetric eigenvalues, singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType, TensorType, complex_dtype_of
from loopgrad.lazy.numpy.linalg.column_pivoting import pivoted_order
from loopgrad.lazy.numpy.linalg.operands import float_values, is_empty, matrices, option, square
from loopgrad.lazy.numpy.movement import broadcast_to, expand_dims
from loopgrad.lazy.numpy.taking import take_along_axis
from loopgrad.lazy.tensor.core import ArrayLike, wrap
from loopgrad.lazy.tensor.refusals import refused
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = "cholesky eig eigh eigvals eigvalsh qr svd svdvals"


class EighResult(NamedTuple):
    """What `eigh` gives."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """What `eig` gives."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """What `qr` gives."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """What `svd` gives."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def zeros(shape: tuple[int, ...], like: Value) -> Value:
    return ops.full(0, TensorType(shape, like.dtype))


@repeated
def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """The lower triangular l with `l @ l.T = x` for symmetric positive definite matrices; l.T with `upper`.

    Shape (..., n, n) stays, integers give the default float. One triangle of x is read, the lower one (with `upper` the
    other), and to it belongs the whole derivative. Raises LinAlgError for matrices that aren't square, and where one
    that isn't positive definite is evaluated; in functions that are traced its factor is NaN.

    >>> lg.linalg.cholesky(lg.asarray([[4.0, 2.0], [2.0, 5.0]]))
    Tensor([[2., 0.],
            [1., 2.]], dtype=float64)
    """
    (a,) = float_values("cholesky", x)
    square("cholesky", a)
    if is_empty(a):
        return wrap(zeros(a.shape, a))
    factor = refused(mx.cholesky(mx.adjoint(a) if upper else a), "indefinite", "cholesky")
    return wrap(mx.adjoint(factor) if upper else factor)


class PivotedQRResult(NamedTuple):
    """What `qr` gives with `pivoting`."""

    Q: Tensor
    R: Tensor
    P: Tensor


@repeated
def qr(
    x: ArrayLike, /, mode: str = "reduced", *, pivoting: bool = False, overwrite_a: bool = False,
    check_finite: bool = True,
) -> Any:  # fmt: skip
    """Q with orthonormal columns and an upper triangular R, `Q @ R = x`, by Householder's reflections.

    With k = min(m, n), shape (..., m, n) gives (..., m, k) and (..., k, n); mode "complete" a square Q; mode "r" R
    alone; SciPy's names are "full" and "economic". With `pivoting` there are int64 positions (..., n), too, with
    `Q @ R = x[:, P]`, and elements on R's diagonal don't grow. Integers give the default float. `overwrite_a` and
    `check_finite` change nothing. Raises LinAlgError for less than two axes, ValueError for another mode. Derivatives
    (S. Walter and L. Lehmann, 2010) are of the reduced factors, where the first k columns are independent, and for
    columns in that order.

    >>> q, r = lg.linalg.qr(lg.asarray([[3.0, 1.0], [4.0, 2.0]]))
    >>> lg.abs(r)
    Tensor([[5. , 2.2],
            [0. , 0.4]], dtype=float64)
    """
    option("qr", "mode", mode, ("reduced", "complete", "r", "economic", "full"))
    (a,) = float_values("qr", x)
    matrices("qr", a)
    *batch, m, n = a.shape
    order = None
    if pivoting:
        order = pivoted_order(wrap(a))
        a = take_along_axis(wrap(a), broadcast_to(expand_dims(order, -2), a.shape), axis=-1)._value
    complete = mode in ("complete", "full")
    if is_empty(a):
        k = m if complete else min(m, n)
        q, r = mx.identity(tuple(batch), m, a.dtype), zeros((*batch, k, n), a)
        q = mx.part(q, (0, m), (0, k))
    else:
        q, r = mx.qr(a, complete and m > n)
    if order is None:
        return wrap(r) if mode == "r" else QRResult(wrap(q), wrap(r))
    return (wrap(r), order) if mode == "r" else PivotedQRResult(wrap(q), wrap(r), order)


@repeated
def eigh(x: ArrayLike, /, UPLO: str = "L") -> EighResult:
    """Eigenvalues, ascending, and orthonormal eigenvectors of symmetric matrices: `x @ v = v * w`.

    Shape (..., n, n) gives (..., n) and (..., n, n), whose columns are the vectors. Integers give the default float.
    The lower triangle is read ("U": the upper one), and to it belongs the whole derivative. Raises LinAlgError for
    matrices that aren't square, ValueError for another `UPLO`. Where values are equal, the derivative of their vectors
    is infinite or NaN. Vectors have signs of their own on each device.

    >>> w, v = lg.linalg.eigh(lg.asarray([[2.0, 1.0], [1.0, 2.0]]))
    >>> w
    Tensor([1., 3.], dtype=float64)
    """
    a = _symmetric("eigh", x, UPLO)
    if is_empty(a):
        return EighResult(wrap(mx.real(zeros(a.shape[:-1], a))), wrap(zeros(a.shape, a)))
    w, v = mx.eigh(a)
    return EighResult(wrap(w), wrap(v))


@repeated
def eigvalsh(x: ArrayLike, /, UPLO: str = "L") -> Tensor:
    """Eigenvalues, ascending, of symmetric matrices: shape (..., n, n) gives (..., n).

    As `eigh` in all else; the derivative is finite where values are equal, too.

    >>> lg.linalg.eigvalsh(lg.asarray([[2.0, 1.0], [1.0, 2.0]]))
    Tensor([1., 3.], dtype=float64)
    """
    a = _symmetric("eigvalsh", x, UPLO)
    return wrap(mx.real(zeros(a.shape[:-1], a)) if is_empty(a) else mx.eigvalsh(a))


def _symmetric(op: str, x: ArrayLike, triangle: str) -> Value:
    option(op, "UPLO", triangle, ("L", "U", "l", "u"))
    (a,) = float_values(op, x)
    square(op, a)
    return a if triangle.upper() == "L" else mx.adjoint(a)


@repeated
def eig(x: ArrayLike, /) -> EigResult:
    """Eigenvalues and eigenvectors of length 1 of square matrices: `x @ v = v * w`. Complex, also of real matrices.

    Shape (..., n, n) gives (..., n), in no order, and (..., n, n), whose columns are the vectors. float32 gives
    complex64, float64 and integers complex128. Raises LinAlgError for matrices that aren't square, and where infinities
    or NaN are evaluated. Where values are equal, derivatives are infinite or NaN; those of vectors are for the phase in
    which LAPACK leaves them, with the largest entry real.

    >>> lg.linalg.eig(lg.asarray([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    Tensor([0.+1.j, 0.-1.j], dtype=complex128)
    """
    (a,) = float_values("eig", x)
    square("eig", a)
    if is_empty(a):
        empty = ops.cast(zeros(a.shape, a), _complex(a))
        return EigResult(wrap(ops.cast(zeros(a.shape[:-1], a), _complex(a))), wrap(empty))
    w, v = mx.eig(refused(a, "not finite", "eig"))
    return EigResult(wrap(w), wrap(v))


@repeated
def eigvals(x: ArrayLike, /) -> Tensor:
    """Eigenvalues of square matrices, complex and in no order: shape (..., n, n) gives (..., n).

    As `eig` in all else.

    >>> lg.linalg.eigvals(lg.asarray([[0.0, 1.0], [-1.0, 0.0]]))
    Tensor([0.+1.j, 0.-1.j], dtype=complex128)
    """
    (a,) = float_values("eigvals", x)
    square("eigvals", a)
    if is_empty(a):
        return wrap(ops.cast(zeros(a.shape[:-1], a), _complex(a)))
    return wrap(mx.eigvals(refused(a, "not finite", "eigvals")))


def _complex(v: Value) -> DType:
    return v.dtype if v.dtype.kind == "c" else complex_dtype_of(v.dtype)


@repeated
def svd(
    x: ArrayLike, /, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False, *,
    overwrite_a: bool = False, check_finite: bool = True, lapack_driver: str = "gesdd",
) -> Any:  # fmt: skip
    """Singular values, descending, and vectors: `U * S @ Vh = x`.

    With k = min(m, n), shape (..., m, n) gives (..., m, m), (..., k) and (..., n, n); (..., m, k) and (..., k, n) for
    the vectors without `full_matrices`; the values alone without `compute_uv`. `hermitian` reads the lower triangle of
    symmetric matrices. Integers give the default float. SciPy's `overwrite_a`, `check_finite` and `lapack_driver`
    change nothing. Raises LinAlgError for less than two axes, and where a NaN is evaluated. Derivatives (J. Townsend,
    2016) are of the thin factors, and of full ones of which no vector turns freely; those of vectors are infinite or
    NaN where values are equal.

    >>> lg.linalg.svd(lg.asarray([[3.0, 0.0], [0.0, -4.0]])).S
    Tensor([4., 3.], dtype=float64)
    """
    (a,) = float_values("svd", x)
    (square if hermitian else matrices)("svd", a)
    *batch, m, n = a.shape
    k = min(m, n)
    if hermitian:
        a = mx.hermitian_of_lower(a)
    a = refused(a, "nan", "svd")
    if not compute_uv:
        return wrap(mx.real(zeros((*batch, k), a)) if is_empty(a) else mx.svdvals(a))
    if is_empty(a):
        sides = [mx.identity(tuple(batch), size, a.dtype) for size in (m, n)]
        u, vh = sides if full_matrices else (mx.part(sides[0], (0, m), (0, k)), mx.part(sides[1], (0, k), (0, n)))
        return SVDResult(wrap(u), wrap(mx.real(zeros((*batch, k), a))), wrap(vh))
    return SVDResult(*map(wrap, mx.svd(a, full_matrices and m != n)))


@repeated
def svdvals(x: ArrayLike, /) -> Tensor:
    """Singular values, descending: shape (..., m, n) gives (..., min(m, n)).

    Integers give the default float. Raises LinAlgError for less than two axes. The derivative is finite where values
    are equal, too.

    >>> lg.linalg.svdvals(lg.asarray([[3.0, 0.0], [0.0, -4.0]]))
    Tensor([4., 3.], dtype=float64)
    """
    found: Tensor = svd(x, full_matrices=False, compute_uv=False)
    return found
