"""LAPACK and BLAS of the OpenBLAS that NumPy's wheels bring, called by address: no other package is needed, and Python
runs on meanwhile. Where NumPy was built otherwise, routines are their NumPy references.

Fortran sees a matrix transposed, since its arrays lie by columns: what is lower triangular is upper triangular there,
and `a @ x = b` reads `x.T @ a.T = b.T`. So nothing is transposed but for LU, whose rows and columns aren't alike.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char_p, c_int64, c_void_p
from functools import cache, lru_cache, partial
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from loopgrad.codegen.program import HOST
from loopgrad.graph.primitives import REFERENCE, factorisations
from loopgrad.graph.primitives.factorisations import whole_or_nan
from loopgrad.runtime.buffers import address_of
from loopgrad.runtime.processes import child_safe_lock

Array = np.ndarray[Any, Any]
Routine = Callable[[Mapping[str, Any], Sequence[Array], int], tuple[Array, ...]]

OPENBLAS: Final = "LAPACK of NumPy's OpenBLAS, on the host"
LETTERS: Final = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
SIDE_BY_SIDE: Final = 128  # rows up to which OpenBLAS works on one matrix with one thread
WORTH_A_THREAD: Final = 1 << 22  # multiplications: Python hands out a share of them in milliseconds
UPPER, LOWER, RIGHT, UNIT, AS_IT_IS, TURNED = [c_char_p(letter) for letter in (b"U", b"L", b"R", b"U", b"N", b"T")]
NEAR: Final = 1 << 18  # bytes of matrices that stand by columns at a time
NUMBERS: Final = 1024  # that are remembered
LONG_CALL: Final = 64  # rows from which on calls of several threads hold each other up little


@cache
def library() -> ctypes.CDLL | None:
    """NumPy's own OpenBLAS with integers of 64 bits, if that is what it was built with."""
    package = Path(np.__file__).parent
    found = [*package.parent.glob("numpy.libs/libscipy_openblas64_*"), *package.glob(".dylibs/libscipy_openblas64_*")]
    for path in found:
        try:
            opened = ctypes.CDLL(str(path))
        except OSError:
            continue
        if all(hasattr(opened, f"scipy_{name}_64_") for name in ("dpotrf", "dgetrf", "dtrsm")):
            return opened
    return None


def by_numpy(name: str, attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    """The reference of a factorisation, for some matrices on each thread: NumPy itself calls LAPACK."""
    reference, (a, *_) = REFERENCE[name], operands
    count, size = prod(a.shape[:-2]), max(a.shape[-2:])
    parts = min(threads, count, count * size**3 // WORTH_A_THREAD)
    if size > SIDE_BY_SIDE:
        return reference(attrs, *operands)
    if parts < 2:
        with _one_thread:
            return reference(attrs, *operands)
    flat = [x.reshape(count, *x.shape[a.ndim - 2 :]) for x in operands]
    bounds = [slice(count * k // parts, count * (k + 1) // parts) for k in range(parts)]
    with _one_thread, ThreadPoolExecutor(parts) as pool:
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


# ---- calling


@cache
def _function(name: str, dtype: np.dtype[Any], arguments: int) -> Any:
    """A subroutine of Fortran's, with so many arguments, which are addresses."""
    function = getattr(library(), f"scipy_{LETTERS[dtype.name]}{name}_64_")
    function.argtypes, function.restype = [c_void_p] * arguments, None
    return function


@lru_cache(maxsize=NUMBERS)
def _int(value: int) -> Any:
    """The address of a number, which no routine changes."""
    return byref(c_int64(value))


@cache
def _one(dtype: np.dtype[Any]) -> tuple[int, Array]:
    """The address of a 1, and what holds it."""
    one = np.ones(1, dtype)
    return address_of(one), one


def _at(array: Array) -> Sequence[int]:
    """Where each of its first axis lies; it is dense."""
    first, step = address_of(array), array.nbytes // max(len(array), 1)
    return range(first, first + len(array) * step, step) if step else [first] * len(array)


class _OneThread:
    """While somebody is inside, OpenBLAS starts no threads: they would be more than there are cores."""

    def __init__(self) -> None:
        self._lock = child_safe_lock()
        self._inside = 0
        self._usual = 1

    def __enter__(self) -> None:
        get_threads, set_threads = _threads()
        with self._lock:
            if not self._inside:
                self._usual = get_threads()
                set_threads(1)
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        _, set_threads = _threads()
        with self._lock:
            self._inside -= 1
            if not self._inside:
                set_threads(self._usual)


_one_thread: Final = _OneThread()


@cache
def _threads() -> tuple[Any, Any]:
    """What tells and sets how many threads OpenBLAS uses."""
    opened = library()
    return tuple([getattr(opened, f"scipy_openblas_{verb}_num_threads64_") for verb in ("get", "set")])


def _each(count: int, size: int, work: int, threads: int, one: Callable[[int], None]) -> None:
    """`one(i)` for all matrices, some of them at once where they are small: OpenBLAS has threads of its own for large
    ones."""
    if size > SIDE_BY_SIDE:
        _some(one, range(count))
        return
    parts = max(min(threads, count, count * work // WORTH_A_THREAD), 1) if size >= LONG_CALL else 1
    bounds = [range(count * k // parts, count * (k + 1) // parts) for k in range(parts)]
    with _one_thread:
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
    result = np.tril(a).reshape(-1, n, n)
    potrf, at, size = _function("potrf", a.dtype, 5), _at(result), _int(n)

    def one(i: int) -> None:
        failed = c_int64(0)
        potrf(UPPER, size, at[i], size, byref(failed))
        if failed.value:
            result[i] = np.nan

    _each(len(result), n, n**3 // 3, threads, one)
    return (whole_or_nan(result).reshape(a.shape),)


def lu(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    (a,) = operands
    *batch, m, n = a.shape
    k, count = min(m, n), prod(batch)
    given, packed, swaps = a.reshape(count, m, n), np.empty((count, m, n), a.dtype), np.empty((count, k), np.int64)
    rows = np.empty((count, m), np.int64)  # which row came to each place; laswp moves doubles, as large as they
    rows[:] = np.arange(m)
    getrf, laswp = _function("getrf", a.dtype, 6), _function("laswp", np.dtype(np.float64), 7)
    swaps_at, rows_at, height, width, one, exchanges = _at(swaps), _at(rows), _int(m), _int(n), _int(1), _int(k)
    near = max(NEAR // max(m * n * a.itemsize, 1), 1)

    def some(number: int) -> None:
        """Matrices that a core has near stand by columns there."""
        part = slice(number * near, (number + 1) * near)
        columns = given[part].swapaxes(1, 2).copy()  # always: a column lies by columns as it is
        for at, partners, places in zip(_at(columns), swaps_at[part], rows_at[part], strict=True):
            getrf(height, width, at, height, partners, byref(c_int64(0)))
            laswp(one, places, height, one, exchanges, partners, one)
        packed[part] = columns.swapaxes(1, 2)

    _each(-(-count // near), max(m, n), near * m * n * k, threads, some)
    swaps -= 1
    return packed.reshape(a.shape), swaps.reshape(*batch, k), rows.reshape(*batch, m)


def _solve_in_place(steps: Sequence[Mapping[str, Any]], a: Array, x: Array, threads: int) -> None:
    """`x` becomes inv(op(a)) @ x, for one triangle after the other; (count, n, n) and (count, n, k), both dense."""
    count, n, k = x.shape
    alpha, triangles, at, height, width = _one(x.dtype)[0], _at(a), _at(x), _int(n), _int(k)
    solves: list[tuple[Any, Sequence[Any]]] = []
    for attrs in steps:
        triangle, unit = UPPER if attrs["lower"] else LOWER, UNIT if attrs["unit_diagonal"] else AS_IT_IS
        if k == 1:  # a vector before the matrix, as Fortran sees both, is one behind the other
            turned = AS_IT_IS if attrs["transpose"] else TURNED
            solves.append((_function("trsv", x.dtype, 8), (triangle, turned, unit, height)))
        else:
            turned = TURNED if attrs["transpose"] else AS_IT_IS
            solves.append((_function("trsm", x.dtype, 11), (RIGHT, triangle, turned, unit, width, height, alpha)))

    def one(i: int) -> None:
        for solve, arguments in solves:
            solve(*arguments, triangles[i], height, at[i], width)

    _each(count, max(n, k), n * n * k, threads, one)


def triangular_solve(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    a, b = operands
    x = b.reshape(-1, *b.shape[-2:]).copy()
    _solve_in_place([attrs], np.ascontiguousarray(a).reshape(-1, *a.shape[-2:]), x, threads)
    return (x.reshape(b.shape),)


def solve_factored(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    _, packed, rows, b = operands
    n, k = b.shape[-2:]
    factors = np.ascontiguousarray(packed).reshape(-1, n, n)
    places, right = rows.reshape(-1, n, 1), b.reshape(-1, n, k)
    turned = attrs["transpose"]
    steps = [{"lower": lower, "unit_diagonal": lower, "transpose": turned} for lower in (not turned, turned)]
    if turned:
        x = right.copy()
    elif len(right) == 1:
        x = right[0].take(places[0, :, 0], axis=0)[None]
    else:
        x = right[np.arange(len(right))[:, None], places[..., 0]]
    _solve_in_place(steps, factors, x, threads)
    if turned:
        ordered = np.empty_like(x)
        ordered[np.arange(len(right))[:, None], places[..., 0]] = x
        x = ordered
    return (x.reshape(b.shape),)


ROUTINES: Final[dict[str, Routine]] = {
    "cholesky": cholesky,
    "lu": lu,
    "triangular_solve": triangular_solve,
    "solve_factored": solve_factored,
}
