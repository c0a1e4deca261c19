"""cuFFT without a GPU, or hipFFT, as far as loopgrad calls them: NumPy computes when the stream gets there.

Arguments are converted as C's would be, and what the library's manual forbids is answered by a status.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_int, c_longlong, c_size_t, c_uint64, c_void_p
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from loopgrad.runtime.gpu.streams.vendor import Vendor

OK, INVALID = 0, 4
WORK_BYTES = 4096
KINDS = {0x29: "C2C", 0x69: "Z2Z", 0x2A: "R2C", 0x6A: "D2Z", 0x2C: "C2R", 0x6C: "Z2D"}
TYPES = {"C": np.complex64, "Z": np.complex128, "R": np.float32, "D": np.float64}


class Stream:
    """What puts Python functions on the simulated stream."""

    def __init__(self, simulated: ctypes.CDLL) -> None:
        self._enqueue = simulated.sim_enqueue
        self._work: list[Callable[[], None]] = []
        self._run = CFUNCTYPE(None, POINTER(c_uint64))(lambda number: self._work[number[0]]())
        self._enqueue.argtypes = [c_void_p, c_void_p, c_void_p, c_size_t]

    def put(self, stream: int | None, work: Callable[[], None]) -> int:
        self._work.append(work)
        number = c_uint64(len(self._work) - 1)
        return int(self._enqueue(stream, ctypes.cast(self._run, c_void_p), ctypes.addressof(number), 8))


def array(address: int, dtype: Any, *shape: int) -> Any:
    """The memory there."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


class FakeFourier:
    """`done`: the transforms that ran, by kind, lengths and number of arrays."""

    def __init__(self, stream: Stream, vendor: Vendor) -> None:
        self._stream, plan = stream, vendor.plan
        self._plans: dict[int, dict[str, Any]] = {}
        self._handles = count(100)
        self.done: list[tuple[str, tuple[int, ...], int]] = []
        many = (POINTER(c_longlong), c_longlong, c_longlong)
        rows: dict[str, tuple[Callable[..., int], tuple[Any, ...]]] = {
            "Create": (self._create, (POINTER(plan),)),
            "SetAutoAllocation": (lambda plan, own: self._set(plan, "own", bool(own)), (plan, c_int)),
            "MakePlanMany64": (
                self._make,
                (plan, c_int, POINTER(c_longlong), *many, *many, c_int, c_longlong, POINTER(c_size_t)),
            ),
            "SetStream": (lambda plan, stream: self._set(plan, "stream", stream), (plan, c_void_p)),
            "SetWorkArea": (lambda plan, area: self._set(plan, "area", area), (plan, c_void_p)),
            "Destroy": (lambda plan: OK if self._plans.pop(plan, None) else INVALID, (plan,)),
        }
        for kind in KINDS.values():
            more = (c_int,) if kind in ("C2C", "Z2Z") else ()
            rows["Exec" + kind] = (partial(self._execute, kind), (plan, c_void_p, c_void_p, *more))
        for name, (function, types) in rows.items():
            setattr(self, vendor.fourier.prefix + name, CFUNCTYPE(c_int, *types)(function))

    def _create(self, out: Any) -> int:
        out[0] = next(self._handles)
        self._plans[out[0]] = {"own": True}
        return OK

    def _set(self, plan: int, what: str, value: Any) -> int:
        if plan not in self._plans:
            return INVALID
        self._plans[plan][what] = value
        return OK

    def _make(self, plan: int, rank: int, lengths: Any, *more: Any) -> int:
        *nested, number, count, size = more
        known, kind = self._plans.get(plan), KINDS[number]
        if known is None or not 1 <= rank <= 3 or known["own"] or count < 1 or min(lengths[:rank]) < 1:
            return INVALID
        n, layouts = tuple(lengths[:rank]), []
        for letter, (around, apart, pitch) in zip((kind[0], kind[2]), (nested[:3], nested[3:]), strict=True):
            half = kind[0] != kind[2] and letter in "CZ"
            extents = (*n[:-1], n[-1] // 2 + 1 if half else n[-1])
            if tuple(around[1:rank]) != extents[1:]:
                return INVALID
            if (apart, pitch) not in ((1, int(np.prod(extents))), (count, 1)):
                return INVALID
            layouts.append((extents, apart == 1))
        known.update(kind=kind, lengths=n, count=count, layouts=layouts)
        size[0] = WORK_BYTES
        return OK

    def _execute(self, kind: str, plan: int, source: int, target: int, direction: int = 0) -> int:
        known = self._plans.get(plan, {})
        if known.get("kind") != kind or not known.get("area") or not known.get("stream"):
            return INVALID
        if kind[0] == kind[2] and direction not in (-1, 1):
            return INVALID
        n, count, area = known["lengths"], known["count"], known["area"]

        def side(address: int, letter: str, layout: tuple[tuple[int, ...], bool]) -> Any:
            """The numbers, arrays first."""
            extents, behind = layout
            if behind:
                return array(address, TYPES[letter], count, *extents)
            return np.moveaxis(array(address, TYPES[letter], *extents, count), -1, 0)

        def work() -> None:
            given = side(source, kind[0], known["layouts"][0])
            made = side(target, kind[2], known["layouts"][1])
            assert not np.shares_memory(given, made)
            ctypes.memset(area, 0xA5, WORK_BYTES)
            axes = tuple(range(1, len(n) + 1))
            if kind[0] in "RD":
                made[:] = np.fft.rfftn(given, axes=axes)
            elif kind[2] in "RD":
                for k in {0} if n[-1] % 2 else {0, n[-1] // 2}:  # what the library makes of other numbers isn't said
                    plane = given[..., k]
                    opposite = plane[(slice(None), *np.ix_(*[-np.arange(extent) % extent for extent in n[:-1]]))]
                    np.testing.assert_allclose(plane, opposite.conj(), rtol=1e-6, atol=0)
                made[:] = np.fft.irfftn(given, n, axes, norm="forward")
                given[:] = np.nan  # it may be written to
            else:
                forward = direction < 0
                made[:] = (np.fft.fftn if forward else np.fft.ifftn)(
                    given, axes=axes, norm="backward" if forward else "forward"
                )
            self.done.append((kind, n, count))

        return self._stream.put(known["stream"], work)
