"""LAPACK and BLAS of the OpenBLAS that NumPy's wheels bring, called by address: no other package is needed, and Python
runs on meanwhile. Where NumPy was built otherwise, routines are their NumPy references.

Fortran sees a matrix transposed, since its arrays lie by columns: what is lower triangular is upper triangular there,
and `a @ x = b` reads `x.T @ a.T = b.T`. So nothing is transposed but for LU, whose rows and columns aren't alike.

One matrix by itself takes calls of its own: what many take, lists of places and parts of threads, would be most of the
time of a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char_p, c_int64
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, Final

import numpy as np

from loopgrad.codegen.program import HOST
from loopgrad.graph.primitives import REFERENCE, factorisations
from loopgrad.graph.primitives.factorisations import whole_or_nan
from loopgrad.runtime.buffers import address_of
from loopgrad.runtime.openblas import NUMBERS, ONE_THREAD, integer, library, one_of, places_of, subroutine

Array = np.ndarray[Any, Any]
Routine = Callable[[Mapping[str, Any], Sequence[Array], int], tuple[Array, ...]]

OPENBLAS: Final = "LAPACK of NumPy's OpenBLAS, on the host"
SIDE_BY_SIDE: Final = 128  # rows up to which OpenBLAS works on one matrix with one thread
WORTH_A_THREAD: Final = 1 << 22  # multiplications: Python hands out a share of them in milliseconds
UPPER, LOWER, RIGHT, UNIT, AS_IT_IS, TURNED = [c_char_p(letter) for letter in (b"U", b"L", b"R", b"U", b"N", b"T")]
NEAR: Final = 1 << 18  # bytes of matrices that stand by columns at a time
FEW: Final = 64  # shapes of small matrices for which memory is kept
LONG_CALL: Final = 64  # rows from which on calls of several threads hold each other up little


def by_numpy(name: str, attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    """The reference of a factorisation, for some matrices on each thread: NumPy itself calls LAPACK."""
    reference, (a, *_) = REFERENCE[name], operands
    count, size = prod(a.shape[:-2]), max(a.shape[-2:])
    parts = min(threads, count, count * size**3 // WORTH_A_THREAD)
    if size > SIDE_BY_SIDE:
        return reference(attrs, *operands)
    if parts < 2:
        with ONE_THREAD:
            return reference(attrs, *operands)
    flat = [x.reshape(count, *x.shape[a.ndim - 2 :]) for x in operands]
    bounds = [slice(count * k // parts, count * (k + 1) // parts) for k in range(parts)]
    with ONE_THREAD, ThreadPoolExecutor(parts) as pool:
        pieces = list(pool.map(lambda part: reference(attrs, *[x[part] for x in flat]), bounds))
    joined = [np.concatenate(results) for results in zip(*pieces, strict=True)]
    return tuple([x.reshape(*a.shape[:-2], *x.shape[1:]) for x in joined])


def provider(name: str) -> tuple[str, str]:
    """Who does a routine, and why nobody better."""
    if name not in ROUTINES:
        return HOST, ""  # a sort, or a factorisation that NumPy has from its LAPACK
    return (OPENBLAS, "") if library() is not None else (HOST, "NumPy brings no OpenBLAS of its own here")


@cache
def routine(name: str) -> Routine | None:
    """How a factorisation is done; None for any other routine."""
    if name not in factorisations.ROWS:
        return None
    if library() is None:
        return lambda attrs, operands, _: REFERENCE[name](attrs, *operands)

    how = ROUTINES.get(name) or partial(by_numpy, name)

    def done(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
        """On complex arrays, where pairs are given."""
        if "pairs" not in attrs:
            return how(attrs, operands, threads)
        return factorisations.on_pairs(lambda attrs, *arrays: how(attrs, arrays, threads))(attrs, *operands)

    return done


def _each(count: int, size: int, work: int, threads: int, one: Callable[[int], None]) -> None:
    """`one(i)` for all matrices, some of them at once where they are small: OpenBLAS has threads of its own for large
    ones."""
    if size > SIDE_BY_SIDE:
        _some(one, range(count))
        return
    parts = max(min(threads, count, count * work // WORTH_A_THREAD), 1) if size >= LONG_CALL else 1
    bounds = [range(count * k // parts, count * (k + 1) // parts) for k in range(parts)]
    with ONE_THREAD:
        if parts == 1:
            _some(one, bounds[0])
            return
        with ThreadPoolExecutor(parts) as pool:
            for done in [pool.submit(_some, one, part) for part in bounds]:
                done.result()


def _some(one: Callable[[int], None], numbers: range) -> None:
    for i in numbers:
        one(i)


# ---- routines


def cholesky(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    (a,) = operands
    n = a.shape[-1]
    if a.ndim == 2 and 0 < n <= SIDE_BY_SIDE:
        return (_cholesky_of_one(a),)
    result = np.tril(a).reshape(-1, n, n)
    potrf, at, size = subroutine("potrf", a.dtype, 5), places_of(result), integer(n)

    def one(i: int) -> None:
        failed = c_int64(0)
        potrf(UPPER, size, at[i], size, byref(failed))
        if failed.value:
            result[i] = np.nan

    _each(len(result), n, n**3 // 3, threads, one)
    return (whole_or_nan(result).reshape(a.shape),)


def _cholesky_of_one(a: Array) -> Array:
    """`cholesky` of one small matrix without axes before."""
    n, failed = len(a), c_int64(0)
    result = np.where(_is_lower(n), a, a.dtype.type(0))
    size = integer(n)
    with ONE_THREAD:
        subroutine("potrf", a.dtype, 5)(UPPER, size, address_of(result), size, byref(failed))
    if failed.value or np.isnan(result[-1, -1]):
        result[...] = np.nan
    return result


@lru_cache(maxsize=FEW)
def _is_lower(n: int) -> Array:
    return np.tri(n, dtype=bool)


def lu(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    (a,) = operands
    *batch, m, n = a.shape
    if not batch and m and 0 < n <= SIDE_BY_SIDE >= m:
        return _lu_of_one(a)
    k, count = min(m, n), prod(batch)
    given, packed, swaps = a.reshape(count, m, n), np.empty((count, m, n), a.dtype), np.empty((count, k), np.int64)
    rows = np.empty((count, m), np.int64)  # which row came to each place; laswp moves doubles, as large as they
    rows[:] = np.arange(m)
    getrf, laswp = subroutine("getrf", a.dtype, 6), subroutine("laswp", np.dtype(np.float64), 7)
    swaps_at, rows_at = places_of(swaps), places_of(rows)
    height, width, one, exchanges = integer(m), integer(n), integer(1), integer(k)
    near = max(NEAR // max(m * n * a.itemsize, 1), 1)

    def some(number: int) -> None:
        """Matrices that a core has near stand by columns there."""
        part = slice(number * near, (number + 1) * near)
        columns = given[part].swapaxes(1, 2).copy()  # always: a column lies by columns as it is
        for at, partners, places in zip(places_of(columns), swaps_at[part], rows_at[part], strict=True):
            getrf(height, width, at, height, partners, byref(c_int64(0)))
            laswp(one, places, height, one, exchanges, partners, one)
        packed[part] = columns.swapaxes(1, 2)

    _each(-(-count // near), max(m, n), near * m * n * k, threads, some)
    swaps -= 1
    return packed.reshape(a.shape), swaps.reshape(*batch, k), rows.reshape(*batch, m)


class _Columns:
    """Where one small matrix is factorised, by columns, and LAPACK's calls that do it."""

    def __init__(self, dtype: np.dtype[Any], m: int, n: int) -> None:
        columns = np.empty((n, m), dtype)
        self.matrix = columns.T
        self.swaps, self.rows = np.empty(min(m, n), np.int64), np.empty(m, np.int64)
        self.order = np.arange(m)
        height, one, at, swaps = integer(m), integer(1), address_of(columns), address_of(self.swaps)
        getrf, laswp = subroutine("getrf", dtype, 6), subroutine("laswp", np.dtype(np.float64), 7)
        self.factorise = partial(getrf, height, integer(n), at, height, swaps, byref(c_int64(0)))
        self.exchange = partial(laswp, one, address_of(self.rows), height, one, integer(len(self.swaps)), swaps, one)


@lru_cache(maxsize=FEW)
def _idle(dtype: np.dtype[Any], m: int, n: int) -> list[_Columns]:
    """Those that no thread uses now."""
    return []


def _lu_of_one(a: Array) -> tuple[Array, Array, Array]:
    """`lu` of one small matrix without axes before."""
    idle = _idle(a.dtype, *a.shape)
    try:
        columns = idle.pop()
    except IndexError:
        columns = _Columns(a.dtype, *a.shape)
    columns.matrix[...] = a
    columns.rows[...] = columns.order
    with ONE_THREAD:
        columns.factorise()
        columns.exchange()
    results = columns.matrix.copy(), columns.swaps - 1, columns.rows.copy()
    idle.append(columns)
    return results


@lru_cache(maxsize=NUMBERS)
def _solves(
    dtype: np.dtype[Any], n: int, k: int, triangles: tuple[tuple[bool, bool, bool], ...]
) -> Sequence[tuple[Any, Sequence[Any]]]:
    """Who solves with (lower, unit diagonal, transposed) triangles one after the other, and the first arguments."""
    alpha, height, width = one_of(dtype)[0], integer(n), integer(k)
    found: list[tuple[Any, Sequence[Any]]] = []
    for lower, unit_diagonal, transpose in triangles:
        triangle, unit = UPPER if lower else LOWER, UNIT if unit_diagonal else AS_IT_IS
        if k == 1:  # a vector before the matrix, as Fortran sees both, is one behind the other
            turned = AS_IT_IS if transpose else TURNED
            found.append((subroutine("trsv", dtype, 8), (triangle, turned, unit, height)))
        else:
            turned = TURNED if transpose else AS_IT_IS
            found.append((subroutine("trsm", dtype, 11), (RIGHT, triangle, turned, unit, width, height, alpha)))
    return found


def _solve_one_in_place(steps: tuple[tuple[bool, bool, bool], ...], a: Array, x: Array, n: int, k: int) -> None:
    """As below, of one small matrix."""
    matrix, right, height, width = address_of(a), address_of(x), integer(n), integer(k)
    with ONE_THREAD:
        for solve, arguments in _solves(x.dtype, n, k, steps):
            solve(*arguments, matrix, height, right, width)


def _solve_in_place(steps: tuple[tuple[bool, bool, bool], ...], a: Array, x: Array, threads: int) -> None:
    """`x` becomes inv(op(a)) @ x, for one triangle (see above) after the other; (count, n, n) and (count, n, k), both
    dense."""
    count, n, k = x.shape
    if count == 1 and max(n, k) <= SIDE_BY_SIDE:
        _solve_one_in_place(steps, a, x, n, k)
        return
    solves, height, width = _solves(x.dtype, n, k, steps), integer(n), integer(k)
    triangles, at = places_of(a), places_of(x)

    def one(i: int) -> None:
        for solve, arguments in solves:
            solve(*arguments, triangles[i], height, at[i], width)

    _each(count, max(n, k), n * n * k, threads, one)


def triangular_solve(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    a, b = operands
    x = b.reshape(-1, *b.shape[-2:]).copy()
    steps = ((attrs["lower"], attrs["unit_diagonal"], attrs["transpose"]),)
    _solve_in_place(steps, np.ascontiguousarray(a).reshape(-1, *a.shape[-2:]), x, threads)
    return (x.reshape(b.shape),)


def solve_factored(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    _, packed, rows, b = operands
    n, k = b.shape[-2:]
    turned = attrs["transpose"]
    steps = ((not turned, not turned, turned), (turned, turned, turned))
    if b.ndim == 2 and not turned and max(n, k) <= SIDE_BY_SIDE:
        alone = b.take(rows, axis=0)
        _solve_one_in_place(steps, np.ascontiguousarray(packed), alone, n, k)
        return (alone,)
    factors = np.ascontiguousarray(packed).reshape(-1, n, n)
    places, right = rows.reshape(-1, n), b.reshape(-1, n, k)
    if turned:
        x = right.copy()
    elif len(right) == 1:
        x = right.take(places[0], axis=1)
    else:
        x = right[np.arange(len(right))[:, None], places]
    _solve_in_place(steps, factors, x, threads)
    if turned:
        ordered = np.empty_like(x)
        ordered[np.arange(len(right))[:, None], places] = x
        x = ordered
    return (x.reshape(b.shape),)


ROUTINES: Final[dict[str, Routine]] = {
    "cholesky": cholesky,
    "lu": lu,
    "triangular_solve": triangular_solve,
    "solve_factored": solve_factored,
}
