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
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from loopgrad.codegen.program import HOST
from loopgrad.graph.primitives import REFERENCE, factorisations
from loopgrad.graph.primitives.factorisations import whole_or_nan
from loopgrad.runtime.processes import child_safe_lock

Array = np.ndarray[Any, Any]
Routine = Callable[[Mapping[str, Any], Sequence[Array], int], tuple[Array, ...]]

OPENBLAS: Final = "LAPACK of NumPy's OpenBLAS, on the host"
LETTERS: Final = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
SIDE_BY_SIDE: Final = 128  # rows up to which OpenBLAS works on one matrix with one thread
WORTH_A_THREAD: Final = 1 << 22  # multiplications: Python hands out a share of them in milliseconds
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


def routine(name: str) -> Routine | None:
    """How a factorisation is done; None for any other routine."""
    if name not in factorisations.ROWS:
        return None
    if library() is None:
        return lambda attrs, operands, _: REFERENCE[name](attrs, *operands)

    def done(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
        """On complex arrays, where pairs are given."""
        how = ROUTINES.get(name) or partial(by_numpy, name)
        return factorisations.on_pairs(lambda attrs, *arrays: how(attrs, arrays, threads))(attrs, *operands)

    return done


# ---- calling


def _function(name: str, dtype: np.dtype[Any]) -> Any:
    return getattr(library(), f"scipy_{LETTERS[dtype.name]}{name}_64_")


def _int(value: int) -> Any:
    return byref(c_int64(value))


def _at(array: Array) -> Any:
    return c_void_p(array.ctypes.data)


class _OneThread:
    """While somebody is inside, OpenBLAS starts no threads: they would be more than there are cores."""

    def __init__(self) -> None:
        self._lock = child_safe_lock()
        self._inside = 0
        self._usual = 1

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._usual = _threads("get")()
                _threads("set")(1)
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                _threads("set")(self._usual)


_one_thread: Final = _OneThread()


def _threads(verb: str) -> Any:
    return getattr(library(), f"scipy_openblas_{verb}_num_threads64_")


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
    potrf = _function("potrf", a.dtype)

    def one(i: int) -> None:
        failed = c_int64(0)
        potrf(c_char_p(b"U"), _int(n), _at(result[i]), _int(n), byref(failed))
        if failed.value:
            result[i] = np.nan

    _each(len(result), n, n**3 // 3, threads, one)
    return (whole_or_nan(result).reshape(a.shape),)


def lu(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    (a,) = operands
    *batch, m, n = a.shape
    k, count = min(m, n), prod(batch)
    columns = a.reshape(count, m, n).swapaxes(1, 2).copy()  # always: a column lies by columns as it is
    swaps = np.empty((count, k), np.int64)
    getrf = _function("getrf", a.dtype)

    def one(i: int) -> None:
        getrf(_int(m), _int(n), _at(columns[i]), _int(m), _at(swaps[i]), byref(c_int64(0)))

    _each(count, max(m, n), m * n * k, threads, one)
    swaps -= 1
    packed = np.ascontiguousarray(columns.swapaxes(1, 2)).reshape(a.shape)
    return packed, swaps.reshape(*batch, k), exchanged(swaps, m).reshape(*batch, m)


def exchanged(swaps: Array, m: int) -> Array:
    """Which row came to each place, by whom it was exchanged with in turn (counted from 0)."""
    rows = np.tile(np.arange(m, dtype=np.float64), (len(swaps), 1))
    laswp, k = _function("laswp", rows.dtype), swaps.shape[1]
    counted = np.ascontiguousarray(swaps + 1)
    for i in range(len(swaps)):
        laswp(_int(1), _at(rows[i]), _int(m), _int(1), _int(k), _at(counted[i]), _int(1))
    return rows.astype(np.int64)


def _solve_in_place(attrs: Mapping[str, Any], a: Array, x: Array, threads: int) -> None:
    """`x` becomes inv(op(a)) @ x; (count, n, n) and (count, n, k), both dense."""
    count, n, k = x.shape
    trsm = _function("trsm", x.dtype)
    factor = np.ones(1, x.dtype)
    triangle = c_char_p(b"U" if attrs["lower"] else b"L")
    turned = c_char_p(b"T" if attrs["transpose"] else b"N")
    unit = c_char_p(b"U" if attrs["unit_diagonal"] else b"N")

    def one(i: int) -> None:
        sizes = _int(k), _int(n)
        trsm(c_char_p(b"R"), triangle, turned, unit, *sizes, _at(factor), _at(a[i]), _int(n), _at(x[i]), _int(k))

    _each(count, max(n, k), n * n * k, threads, one)


def triangular_solve(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    a, b = operands
    x = b.reshape(-1, *b.shape[-2:]).copy()
    _solve_in_place(attrs, np.ascontiguousarray(a).reshape(-1, *a.shape[-2:]), x, threads)
    return (x.reshape(b.shape),)


def solve_factored(attrs: Mapping[str, Any], operands: Sequence[Array], threads: int) -> tuple[Array, ...]:
    _, packed, rows, b = operands
    n, k = b.shape[-2:]
    factors = np.ascontiguousarray(packed).reshape(-1, n, n)
    places, right = rows.reshape(-1, n, 1), b.reshape(-1, n, k)
    steps = [{"lower": True, "unit_diagonal": True}, {"lower": False, "unit_diagonal": False}]
    if not attrs["transpose"]:
        x = right[np.arange(len(right))[:, None], places[..., 0]]
    else:
        x, steps = right.copy(), steps[::-1]
    for step in steps:
        _solve_in_place({**step, "transpose": attrs["transpose"]}, factors, x, threads)
    if attrs["transpose"]:
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
