"""Factorisations and solutions by a library's LAPACK and BLAS: cuSOLVER and cuBLAS, or hipSOLVER and hipBLAS with the
same functions.

They take matrices by columns, so that ours, by rows, are transposed to them (`graph/primitives/lapack.py`). Most work
in place, on a copy that becomes the result. Many small matrices are one call, which finds them by a table of addresses;
others follow each other. What these functions take for themselves, they take where a call is made, and some look at
the device meanwhile: no graph is made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import POINTER, byref, c_byte, c_double, c_float, c_int, c_void_p
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.types import float32
from loopgrad.runtime.gpu.driver import LibraryCall, RoutineTask, Words
from loopgrad.runtime.gpu.streams.vendor import Functions, Vendor

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.streams.driver import StreamDriver

SIDE_BY_SIDE: Final = 128  # rows of matrices that are one call
ROTATED: Final = 32  # the same for eigenvalues, which rotations find then
P, I = c_void_p, c_int  # noqa: E741  # as arguments


@dataclass(frozen=True, slots=True)
class Matrices:
    """`count` of them, `rows` x `columns` as we see them. `letter`: of their dtype among functions' names."""

    count: int
    rows: int
    columns: int
    letter: str
    itemsize: int
    values: int  # bytes of a real part

    @property
    def bytes(self) -> int:
        """Of one."""
        return self.rows * self.columns * self.itemsize

    @property
    def complex(self) -> bool:
        return self.letter in "CZ"


def matrices(task: RoutineTask, operand: int = 0) -> Matrices:
    type = task.operands[operand]
    pairs = "pairs" in dict(task.attrs)
    *batch, rows, columns = type.shape[:-1] if pairs else type.shape
    narrow = type.dtype is float32
    letter = ("C" if narrow else "Z") if pairs else ("S" if narrow else "D")
    return Matrices(prod(batch), rows, columns, letter, type.dtype.itemsize * (1 + pairs), type.dtype.itemsize)


class Addresses:
    """A table of the addresses of matrices that lie one behind the other, on the device."""

    def __init__(self, driver: StreamDriver, count: int, pitch: int) -> None:
        self._driver, self._first = driver, 0
        self._steps = np.arange(count, dtype=np.uint64) * np.uint64(pitch)
        self._memory = driver.take(8 * count)

    def of(self, first: int) -> int:
        """Where the table is, if the first matrix is there."""
        if first != self._first:
            self._driver.send(self._memory.address, self._steps + np.uint64(first))
            self._first = first
        return self._memory.address


class Dense:
    """The libraries of one device, whose lock is held while they are used."""

    def __init__(self, driver: StreamDriver, vendor: Vendor, solver: Any, blas: Any) -> None:
        self._driver, self._numbers, self._title = driver, vendor.numbers, vendor.solver.title
        self._solver, self._blas = Functions(vendor.solver, solver), Functions(vendor.blas, blas)
        self.version = vendor.blas_version
        self._rotations: dict[str, c_void_p] = {}
        self._of_solver, self._of_blas = c_void_p(), c_void_p()
        self._solver("Create", POINTER(P))(byref(self._of_solver))
        self._solver("SetStream", P, P)(self._of_solver, driver.api.stream)
        self._blas("Create" + self.version, POINTER(P))(byref(self._of_blas))
        self._blas("SetStream" + self.version, P, P)(self._of_blas, driver.api.stream)

    def routine(self, task: RoutineTask) -> LibraryCall:
        return LibraryCall(f"{self._title} for {task.name}", ROUTINES[task.name](self, task), captures=False)

    def size(self, name: str, types: tuple[Any, ...], *arguments: Any, more: tuple[Any, ...] = ()) -> int:
        """Elements that a function of the solver works in; `more`: an address and a count behind the size."""
        size = c_int()
        ask = self._solver(name + "_bufferSize", P, *types, POINTER(c_int), *(P, I)[: len(more)])
        ask(self._of_solver, *arguments, byref(size), *more)
        return max(size.value, 1)

    def rotations(self, values: str) -> c_void_p:
        """Parameters of eigenvalues ("Syevj") or singular values ("Gesvdj") by rotations: as accurate as can be, in
        order."""
        if values not in self._rotations:
            self._rotations[values] = c_void_p()
            self._solver(f"Create{values}Info", POINTER(P))(byref(self._rotations[values]))
        return self._rotations[values]

    def solver(self, name: str, *types: Any) -> Callable[..., None]:
        function, handle = self._solver(name, P, *types), self._of_solver
        return lambda *arguments: function(handle, *arguments)

    def blas(self, name: str, *types: Any) -> Callable[..., None]:
        function, handle = self._blas(name, P, *types), self._of_blas
        return lambda *arguments: function(handle, *arguments)

    def area(self, *sizes: int) -> tuple[Any, list[int]]:
        """Memory to work in, to be held, and the addresses of parts of these sizes."""
        starts = [sum(-(-size // 256) * 256 for size in sizes[:i]) for i in range(len(sizes) + 1)]
        memory = self._driver.areas.take(max(starts[-1], 256))
        return memory, [memory.address + start for start in starts[:-1]]

    def addresses(self, m: Matrices, pitch: int = 0) -> Addresses:
        return Addresses(self._driver, m.count, pitch or m.bytes)

    def copy(self, target: int, source: int, size: int) -> None:
        self._driver.api.copy(target, source, size)

    def number(self, name: str) -> int:
        return self._numbers[name]


Start = Callable[[Words], None]


def potrf(library: Dense, task: RoutineTask) -> Start:
    m, lower = matrices(task), library.number("lower")
    n, pitch = m.rows, m.bytes
    if m.count > 1 and n <= SIDE_BY_SIDE:
        many, table = library.solver(m.letter + "potrfBatched", I, I, P, I, P, I), library.addresses(m)

        def start_many(words: Words) -> None:
            a, factors, failed = map(int, words)
            library.copy(factors, a, m.count * pitch)
            many(lower, n, table.of(factors), n, failed, m.count)

        return start_many
    size = library.size(m.letter + "potrf", (I, I, P, I), lower, n, None, n)
    one = library.solver(m.letter + "potrf", I, I, P, I, P, I, P)
    held, (work,) = library.area(size * m.itemsize)

    def start(words: Words, held: Any = held) -> None:
        a, factors, failed = map(int, words)
        library.copy(factors, a, m.count * pitch)
        for i in range(m.count):
            one(lower, n, factors + i * pitch, n, work, size, failed + 4 * i)

    return start


def getrf(library: Dense, task: RoutineTask) -> Start:
    t = matrices(task)
    m, n, pitch, k = t.columns, t.rows, t.bytes, min(t.rows, t.columns)
    if t.count > 1 and m == n <= SIDE_BY_SIDE:
        many, table = library.blas(t.letter + "getrfBatched", I, P, I, P, P, I), library.addresses(t)
        held, (failed,) = library.area(4 * t.count)

        def start_many(words: Words, held: Any = held) -> None:
            given, packed, pivots = map(int, words)
            library.copy(packed, given, t.count * pitch)
            many(n, table.of(packed), n, pivots, failed, t.count)

        return start_many
    size = library.size(t.letter + "getrf", (I, I, P, I), m, n, None, m)
    one = library.solver(t.letter + "getrf", I, I, P, I, P, P, P)
    memory, (work, info) = library.area(size * t.itemsize, 4)

    def start(words: Words, held: Any = memory) -> None:
        given, packed, pivots = map(int, words)
        library.copy(packed, given, t.count * pitch)
        for i in range(t.count):
            one(m, n, packed + i * pitch, m, work, pivots + 4 * k * i, info)

    return start


def geqrf(library: Dense, task: RoutineTask) -> Start:
    t = matrices(task)
    m, n, pitch, k = t.columns, t.rows, t.bytes, min(t.rows, t.columns)
    columns = task.results[0].shape[-3 if t.complex else -2]
    make = "ungqr" if t.complex else "orgqr"
    sizes = (
        library.size(t.letter + "geqrf", (I, I, P, I), m, n, None, m),
        library.size(t.letter + make, (I, I, I, P, I, P), m, columns, k, None, m, None),
    )
    size = max(sizes)
    reflect = library.solver(t.letter + "geqrf", I, I, P, I, P, P, I, P)
    together = library.solver(t.letter + make, I, I, I, P, I, P, P, I, P)
    memory, (work, factors, info) = library.area(size * t.itemsize, k * t.itemsize, 4)

    def start(words: Words, held: Any = memory) -> None:
        given, q, r = map(int, words)
        library.copy(r, given, t.count * pitch)
        for i in range(t.count):
            at, columns_at = r + i * pitch, q + i * columns * m * t.itemsize
            reflect(m, n, at, m, factors, work, size, info)
            library.copy(columns_at, at, k * m * t.itemsize)
            together(m, columns, k, columns_at, m, factors, work, size, info)

    return start


def syevd(library: Dense, task: RoutineTask) -> Start:
    m, vectors = matrices(task), bool(dict(task.attrs)["vectors"])
    n, pitch, upper = m.rows, m.bytes, library.number("upper")
    job = library.number("vectors" if vectors else "values")
    name = m.letter + ("heev" if m.complex else "syev")
    if m.count > 1 and n <= ROTATED:
        return _rotated(library, task, m, name + "jBatched", (job, upper))
    size = library.size(name + "d", (I, I, I, P, I, P), job, upper, n, None, n, None)
    one = library.solver(name + "d", I, I, I, P, I, P, P, I, P)
    memory, (work, kept) = library.area(size * m.itemsize, 0 if vectors else m.count * pitch)

    def start(words: Words, held: Any = memory) -> None:
        a, values, *rows, failed = map(int, words)
        (place,) = rows or (kept,)
        library.copy(place, a, m.count * pitch)
        for i in range(m.count):
            one(job, upper, n, place + i * pitch, n, values + i * n * m.values, work, size, failed + 4 * i)

    return start


def _rotated(library: Dense, task: RoutineTask, m: Matrices, name: str, how: tuple[int, int]) -> Start:
    """Many small matrices, in one call."""
    n, vectors, parameters = m.rows, bool(dict(task.attrs)["vectors"]), library.rotations("Syevj")
    size = library.size(name, (I, I, I, P, I, P), *how, n, None, n, None, more=(parameters, m.count))
    many = library.solver(name, I, I, I, P, I, P, P, I, P, P, I)
    memory, (work, kept) = library.area(size * m.itemsize, 0 if vectors else m.count * m.bytes)

    def start(words: Words, held: Any = memory) -> None:
        a, values, *rows, failed = map(int, words)
        (place,) = rows or (kept,)
        library.copy(place, a, m.count * m.bytes)
        many(*how, n, place, n, values, work, size, failed, parameters, m.count)

    return start


def gesvd(library: Dense, task: RoutineTask) -> Start:
    m, attrs = matrices(task), dict(task.attrs)
    rows, columns, pitch = m.rows, m.columns, m.bytes
    full, vectors = bool(attrs["full"]), bool(attrs["vectors"])
    right = ord("A" if full else "S") if vectors else ord("N")
    left = ord("S") if vectors else ord("N")
    size = library.size(m.letter + "gesvd", (I, I), columns, rows)
    types = (c_byte, c_byte, I, I, P, I, P, P, I, P, I, P, I, P, P)
    one = library.solver(m.letter + "gesvd", *types)
    memory, (work, kept) = library.area(size * m.itemsize, m.count * pitch)
    apart = rows * rows * m.itemsize, (columns if full else rows) * columns * m.itemsize

    def start(words: Words, held: Any = memory) -> None:
        a, *results, failed = map(int, words)
        u, values, vh = results if vectors else (0, *results, 0)
        library.copy(kept, a, m.count * pitch)
        for i in range(m.count):
            one(
                right, left, columns, rows, kept + i * pitch, columns, values + i * rows * m.values,
                vh + i * apart[1] if vectors else None, columns, u + i * apart[0] if vectors else None, rows,
                work, size, None, failed + 4 * i,
            )  # fmt: skip

    return start


def gesvdj(library: Dense, task: RoutineTask) -> Start:
    t, attrs = matrices(task), dict(task.attrs)
    vectors, full = bool(attrs["vectors"]), bool(attrs["full"])
    m, n, count = t.columns, t.rows, t.count
    job, parameters = library.number("vectors" if vectors else "values"), library.rotations("Gesvdj")
    if count > 1 and m <= ROTATED:
        return _rotated_both(library, t, vectors, (job, parameters))
    name, types = t.letter + "gesvdj", (I, I, I, I, P, I, P, P, I, P, I)
    size = library.size(name, types, job, not full, m, n, None, m, None, None, m, None, n, more=(parameters,))
    one = library.solver(name, *types, P, I, P, P)
    apart = (m if full else n) * m * t.itemsize, n * n * t.itemsize
    unread = (0, 0) if vectors else apart
    memory, (work, given, *unread_at) = library.area(size * t.itemsize, t.bytes, *unread)

    def start(words: Words, held: Any = memory) -> None:
        a, *results, failed = map(int, words)
        right, values, left = results if vectors else (unread_at[1], *results, unread_at[0])
        for i in range(count):
            step = i if vectors else 0
            library.copy(given, a + i * t.bytes, t.bytes)
            one(
                job, not full, m, n, given, m, values + i * n * t.values, left + step * apart[0], m,
                right + step * apart[1], n, work, size, failed + 4 * i, parameters,
            )  # fmt: skip

    return start


def _rotated_both(library: Dense, t: Matrices, vectors: bool, how: tuple[int, c_void_p]) -> Start:
    """Singular values of many small matrices, in one call."""
    m, n, count, (job, parameters) = t.columns, t.rows, t.count, how
    name, types = t.letter + "gesvdjBatched", (I, I, I, P, I, P, P, I, P, I)
    size = library.size(name, types, job, m, n, None, m, None, None, m, None, n, more=(parameters, count))
    many = library.solver(name, *types, P, I, P, P, I)
    one = t.itemsize * count
    unread = (0, 0) if vectors else (m * m * one, n * n * one)
    memory, (work, given, *apart) = library.area(size * t.itemsize, count * t.bytes, *unread)

    def start(words: Words, held: Any = memory) -> None:
        a, *results, failed = map(int, words)
        right, values, left = results if vectors else (apart[1], *results, apart[0])
        library.copy(given, a, count * t.bytes)
        many(job, m, n, given, m, values, left, m, right, n, work, size, failed, parameters, count)

    return start


def trsm(library: Dense, task: RoutineTask) -> Start:
    a, b, attrs = matrices(task), matrices(task, 1), dict(task.attrs)
    n, k = b.rows, b.columns
    triangle, diagonal = [
        library.number(name)
        for name in (
            "upper" if attrs["lower"] else "lower",
            "unit diagonal" if attrs["unit_diagonal"] else "any diagonal",
        )
    ]
    side, *turned = [library.number(name) for name in ("right", "plain", "transposed")]
    how = (side, triangle, turned[bool(attrs["transpose"])], diagonal)
    one = (c_float if b.values == 4 else c_double)(1)
    factor = (type(one) * 2)(1, 0)
    if b.count > 1 and n <= SIDE_BY_SIDE:
        many = library.blas(b.letter + "trsmBatched", I, I, I, I, I, I, P, P, I, P, I, I)
        triangles, right = library.addresses(a), library.addresses(b)

        def start_many(words: Words) -> None:
            given, source, target = map(int, words)
            library.copy(target, source, b.count * b.bytes)
            many(*how, k, n, byref(factor), triangles.of(given), n, right.of(target), k, b.count)

        return start_many
    if k == 1:  # one column lies as the library has columns: a row, which it solves for from the right, takes longer
        vector = library.blas(b.letter + "trsv" + library.version, I, I, I, I, P, I, P, I)

        def solve(triangles: int, vectors: int) -> None:
            vector(triangle, turned[not attrs["transpose"]], diagonal, n, triangles, n, vectors, 1)

    else:
        rows = library.blas(b.letter + "trsm" + library.version, I, I, I, I, I, I, P, P, I, P, I)

        def solve(triangles: int, vectors: int) -> None:
            rows(*how, k, n, byref(factor), triangles, n, vectors, k)

    def start(words: Words) -> None:
        given, source, target = map(int, words)
        library.copy(target, source, b.count * b.bytes)
        for i in range(b.count):
            solve(given + i * a.bytes, target + i * b.bytes)

    return start


ROUTINES: Final[dict[str, Callable[[Dense, RoutineTask], Start]]] = {
    "potrf": potrf,
    "getrf": getrf,
    "geqrf": geqrf,
    "syevd": syevd,
    "gesvd": gesvd,
    "gesvdj": gesvdj,
    "trsm": trsm,
}
