"""Fourier transforms of many rows by vector code of our own: made once per machine, loaded by a process that first
needs it. What has too few rows, too many points or a large prime is left to others.

A part of a transform is prepared once, where its arrays are: what is left for each call is one native call. Nothing
that a row becomes depends on the rows beside it, so rows that don't fill a vector are taken with some before them
again, or with zeros.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.codegen.targets.cpu.fourier.fourier_interface import JOB, RADICES, exports
from loopgrad.runtime.cpu.loader import Code
from loopgrad.runtime.processes import child_safe_lock

Array = np.ndarray[Any, Any]
Calls = Callable[[], object]
RunChunks = Callable[[int, int, int], None]

MOST_POINTS: Final = 1 << 13  # so that both places of a block are in a core's cache
TABLES: Final = 64  # lengths whose factors are kept
ALIGNED: Final = 64  # bytes
ROOMS: Final = 64  # that wait to be used again
MOST_ROOM: Final = 1 << 25  # bytes, for parts that are done at once

_lock = child_safe_lock()
_rooms: list[Array] = []


class LengthSteps(NamedTuple):
    """Of a length: what is called, one after the other, with which numbers, and the tables that it reads."""

    names: tuple[str, ...]
    words: tuple[tuple[int, int], ...]
    tables: tuple[Array, ...]


class NativeFourier:
    """See the module docstring. `object_of(name, text)` gives machine code for a text, from a cache or the compiler;
    `run_chunks(function, parameters, count)` has threads run a function's chunks."""

    def __init__(self, object_of: Callable[[str, Callable[[], str]], bytes], run_chunks: RunChunks) -> None:
        self._object_of, self._run_chunks = object_of, run_chunks
        self._loaded: dict[str, Code] = {}
        self._run, self._lanes = cache(self._function), cache(self._lanes_of)

    def __call__(self, kind: str, axis: int, given: Array, result: Array, forward: bool, scale: float) -> Calls | None:
        """What transforms along one axis whenever it is called, times `scale`; None where others should. `given` may be
        `result`, where both are complex."""
        points = given.shape[axis] if kind == "dft" else max(given.shape[axis], result.shape[axis])
        steps = steps_of(kind, points, forward, given.real.dtype.name)
        found = None if steps is None else _SideBySide.of(axis, given, result, self._lanes(_suffix_of(given)))
        if steps is None or found is None:
            return None
        return self._whole(kind, found, steps, forward, scale)

    def together(self, parts: Sequence[Sequence[Calls]]) -> Calls | None:
        """What does the calls of each part, one after the other, and parts at once; None where that isn't native code
        alone, or takes much room."""
        found = [[call for call in calls if isinstance(call, _NativeJobs)] for calls in parts]
        if [*map(len, found)] != [*map(len, parts)]:
            return None
        suffix = found[0][0].suffix
        together = _TogetherJobs(found, self._code(suffix).address(f"lg_fourier.chunk.{suffix}"), self._run_chunks)
        return together if together.size <= MOST_ROOM else None

    def _whole(self, kind: str, rows: _SideBySide, steps: LengthSteps, forward: bool, scale: float) -> Calls | None:
        lanes, count = rows.lanes, rows.number
        if 2 * count < lanes:
            return None
        jobs = [self._job(kind, part, steps, forward, scale) for part in rows.parts(0, count // lanes)]
        rest = count % lanes
        if not rest:
            return _NativeJobs(jobs, self._run(rows.suffix), rows, steps)
        if count >= lanes and not np.may_share_memory(rows.given, rows.result):
            jobs += [self._job(kind, part, steps, forward, scale) for part in rows.parts(count - lanes, 1)]
            return _NativeJobs(jobs, self._run(rows.suffix), rows, steps)
        first = _NativeJobs(jobs, self._run(rows.suffix), rows, steps)
        padded = rows.padded()
        parts = [self._job(kind, part, steps, forward, scale) for part in padded.parts(0, 1)]
        last = _NativeJobs(parts, self._run(rows.suffix), padded, steps)

        def call() -> None:
            first()
            padded.given[:, :rest] = rows.given[:, count - rest :]
            last()
            rows.result[:, count - rest :] = padded.result[:, :rest]

        return call

    def _job(self, kind: str, part: RowBlocks, steps: LengthSteps, forward: bool, scale: float) -> Array:
        """The words of a call, but for the room that it takes."""
        code = self._code(part.suffix)

        def address(name: str) -> int:
            return code.address(f"lg_fourier.{name}.{part.suffix}")

        turned, exchanged = int(not forward), int(not forward and kind == "dft")
        sides: dict[str, int] = {}
        for side, way, move, ends in (("from", part.source, "load", exchanged), ("to", part.target, "store", turned)):
            points = way.points // 2 if way.real and not part.along_rows else way.points
            style = "rows" if part.along_rows else "reals" if way.real else "columns"
            sides |= {
                side: way.address, f"outer_{side}": way.outer, f"block_{side}": way.lane * part.lanes,
                move: address(f"{move}.{style}"), f"points_{side}": points if not part.along_rows else way.pairs,
                f"lane_{side}": way.lane, f"step_{side}": way.step, f"real_{side}": ends, f"imaginary_{side}": 1 - ends,
            }  # fmt: skip
        sides |= {"outer": part.outer, "blocks": part.blocks, "steps": len(steps.names), "here": 0, "there": 0}
        sides["scale"] = int(np.float64(scale).view(np.int64))
        words = [sides[name] for name in JOB]
        for name, numbers, table in zip(steps.names, steps.words, steps.tables, strict=True):
            words += [address(name), *numbers, table.ctypes.data]
        return np.array(words, np.int64)

    def _code(self, suffix: str) -> Code:
        if suffix not in self._loaded:
            with _lock:
                if suffix not in self._loaded:
                    code = Code(self._object_of(f"fourier_{suffix}", lambda: _text(suffix)), exports(suffix))
                    code.keep()
                    self._loaded[suffix] = code
        return self._loaded[suffix]

    def _lanes_of(self, suffix: str) -> int:
        lanes: int = ctypes.CFUNCTYPE(ctypes.c_int64)(self._code(suffix).address(f"lg_fourier.lanes.{suffix}"))()
        return lanes

    def _function(self, suffix: str) -> Callable[[int], None]:
        found: Callable[[int], None] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
            self._code(suffix).address(f"lg_fourier.run.{suffix}")
        )
        return found


class RowSide(NamedTuple):
    """One side of a part: bytes from a lane to the next, and from an element along the axis to the next."""

    address: int
    outer: int
    lane: int
    step: int
    points: int
    real: bool

    @property
    def pairs(self) -> int:
        """Numbers of two parts along the axis."""
        return self.points // 2 if self.real else self.points


class RowBlocks(NamedTuple):
    source: RowSide
    target: RowSide
    outer: int
    blocks: int
    lanes: int
    along_rows: bool
    suffix: str


class _SideBySide(NamedTuple):
    """Both arrays as [others, rows, axis], of which rows are transformed side by side."""

    given: Array
    result: Array
    lanes: int
    along_rows: bool

    @property
    def number(self) -> int:
        return int(self.given.shape[1])

    @property
    def suffix(self) -> str:
        return _suffix_of(self.given)

    @staticmethod
    def of(axis: int, given: Array, result: Array, lanes: int) -> _SideBySide | None:
        """None where what lies side by side isn't the same in both, or is little."""
        others = [d for d in range(given.ndim) if d != axis]
        both = (given, result)
        if not others or not given.size:
            return None
        beside = [d for d in others if all(a.strides[d] == a.itemsize for a in both) and given.shape[d] > 1]
        along_rows = not beside
        if along_rows and any(a.strides[axis] != a.itemsize for a in both):
            return None
        if along_rows and any(a.shape[axis] * a.itemsize < lanes * a.real.dtype.itemsize for a in both):
            return None
        lane = beside[0] if beside else max(others, key=lambda d: given.shape[d])
        order = [*[d for d in others if d != lane], lane, axis]
        views = [a.transpose(order) for a in both]
        if given.ndim > 3:
            return None
        views = [v if v.ndim == 3 else v[None] for v in views]
        return _SideBySide(views[0], views[1], lanes, along_rows)

    def parts(self, first: int, blocks: int) -> list[RowBlocks]:
        """So many blocks of rows from one on; none where there are none."""
        ways = []
        for a in (self.given, self.result):
            lane, step = a.strides[1:]
            start = a.__array_interface__["data"][0] + first * lane
            ways.append(RowSide(start, a.strides[0], lane, step, a.shape[2], a.dtype.kind == "f"))
        outer = self.given.shape[0]
        return [RowBlocks(ways[0], ways[1], outer, blocks, self.lanes, self.along_rows, self.suffix)] if blocks else []

    def padded(self) -> _SideBySide:
        """As many rows as move together, of zeros, in memory of their own."""
        arrays = []
        for a in (self.given, self.result):
            outer, _, points = a.shape
            if self.along_rows:
                arrays.append(np.zeros((outer, self.lanes, points), a.dtype))
            else:
                arrays.append(np.zeros((outer, points, self.lanes), a.dtype).swapaxes(1, 2))
        return _SideBySide(arrays[0], arrays[1], self.lanes, self.along_rows)


def _suffix_of(a: Array) -> str:
    """Of the functions for its real numbers."""
    return f"f{8 * a.real.dtype.itemsize}"


class _NativeJobs:
    """Native calls, with what they read."""

    def __init__(
        self, jobs: Sequence[Array], run: Callable[[int], None], rows: _SideBySide, steps: LengthSteps
    ) -> None:  # fmt: skip
        self.jobs, self._run, self._held = [(job, job.ctypes.data) for job in jobs], run, (rows, steps)
        self.suffix = rows.suffix
        points = max(rows.given.shape[2], rows.result.shape[2]) + 1
        self.place = round_up(2 * points * rows.lanes * rows.given.real.dtype.itemsize)

    def __call__(self) -> None:
        with _room(2 * self.place) as start:
            self.at(start)
            for _, address in self.jobs:
                self._run(address)

    def at(self, start: int) -> None:
        """Use this room."""
        for job, _ in self.jobs:
            job[HERE], job[THERE] = start, start + self.place


class _TogetherJobs:
    """Chunks of native calls, each with a room of its own."""

    def __init__(self, parts: Sequence[Sequence[_NativeJobs]], function: int, run_chunks: RunChunks) -> None:
        self._parts, self._function, self._run_chunks = parts, function, run_chunks
        self._each = max([2 * calls.place for part in parts for calls in part])
        self.size = self._each * len(parts)
        addresses = [[address for calls in part for _, address in calls.jobs] for part in parts]
        self._lists = [np.array([len(jobs), *jobs], np.int64) for jobs in addresses]
        self._table = np.array([jobs.ctypes.data for jobs in self._lists], np.int64)
        self._address = self._table.ctypes.data

    def __call__(self) -> None:
        with _room(self.size) as start:
            for number, part in enumerate(self._parts):
                for calls in part:
                    calls.at(start + number * self._each)
            self._run_chunks(self._function, self._address, len(self._parts))


HERE: Final = JOB.index("here")
THERE: Final = JOB.index("there")


def round_up(size: int) -> int:
    """Bytes in whole lines."""
    return size + -size % ALIGNED


@contextmanager
def _room(size: int) -> Iterator[int]:
    """The address of memory that nobody else has meanwhile."""
    try:
        room = _rooms.pop()
    except IndexError:
        room = np.empty(0, np.uint8)
    if room.size < size + ALIGNED:
        room = np.empty(size + ALIGNED, np.uint8)
    yield round_up(int(room.__array_interface__["data"][0]))
    if len(_rooms) < ROOMS:
        _rooms.append(room)


# ---- lengths


def radices_of(points: int) -> tuple[int, ...] | None:
    """Whose product it is; None where there are none."""
    found = []
    twos = (points & -points).bit_length() - 1
    left = points >> twos
    while twos >= 3 and twos != 4:
        found.append(8)
        twos -= 3
    found += {0: [], 1: [2], 2: [4], 4: [4, 4]}[twos]
    for radix in (7, 5, 3):
        while left % radix == 0:
            found.append(radix)
            left //= radix
    assert set(found) <= set(RADICES)
    return tuple(found) if left == 1 and found else None


def _roots(numbers: Array, points: int) -> Array:
    """exp(-2 pi i k / points), rounded once or nearly so."""
    angles = (numbers % points).astype(np.longdouble) * (-2 * np.arccos(np.longdouble(-1)) / points)
    found: Array = np.cos(angles).astype(np.float64) + 1j * np.sin(angles).astype(np.float64)
    return found


@lru_cache(maxsize=TABLES)
def steps_of(kind: str, points: int, forward: bool, dtype: str) -> LengthSteps | None:
    """Of a transform of so many numbers, real ones at one end where it isn't a `dft`; None where others do it."""
    real = kind != "dft"
    if real and points % 2:
        return None
    length = points // 2 if real else points
    radices = radices_of(length)
    if radices is None or length > MOST_POINTS:
        return None
    names, words, tables, before = [], [], [], 1
    for radix in radices:
        between = length // (before * radix)
        numbers = np.outer(np.arange(1, radix), before * np.arange(between))
        names.append(f"{'pass' if between > 1 else 'last'}.{radix}")
        words.append((before, between))
        tables.append(_roots(numbers, length))
        before *= radix
    if real:
        half = _roots(np.arange(length // 2 + 1), points)
        place = len(names) if forward else 0
        names.insert(place, "halve" if forward else "join")
        words.insert(place, (length, 0))
        tables.insert(place, half / 2j if forward else 1j * np.conj(half))
    parts = [np.ascontiguousarray(table).view(np.float64).astype(dtype) for table in tables]
    return LengthSteps(tuple(names), tuple(words), tuple(parts))


def _text(suffix: str) -> str:
    from loopgrad.codegen.targets.cpu.features import host_machine  # late: a warm cache needs no text
    from loopgrad.codegen.targets.cpu.fourier.fourier_module import fourier_ir  # late, as above

    return fourier_ir(host_machine(), suffix)
