"""The collectives of one call of a program: an engine (`graph.primitives.collectives`) over a communicator.

Every collective starts with one message of fixed length from each process: whether it failed, and how; which program it
runs and where in it; and what it has to give, where that is short. So

- an error of one process is raised by all of them, in the same call, within the time of one collective;
- processes that run different programs are told so, instead of waiting for each other or mixing up numbers;
- a value and its gradient by a few parameters take one message.

What is longer follows in a second one.
"""

from __future__ import annotations

import builtins
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from loopgrad.graph import errors
from loopgrad.graph.errors import DeviceError, LoopgradError
from loopgrad.graph.types import TensorType
from loopgrad.runtime import failures
from loopgrad.runtime.mesh.communicator import Array, Bytes, Communicator, Memory

HEADER: Final = struct.Struct("<q8sqq")  # failed, program, how many collectives before, bytes to give
MESSAGE: Final = 1024
INLINE: Final = MESSAGE - HEADER.size


class ProcessError(LoopgradError, RuntimeError):
    """An error of another process of the mesh, of a class that is known there only."""


class CollectiveCall:
    """One call of the program with this `digest`. `closed`: its last message is not that of its last collective but
    one after all work, `wait(final=True)`, since that may fail too."""

    def __init__(
        self, communicator: Communicator, digest: bytes, memory: Memory | None = None, closed: bool = False
    ) -> None:
        self._closed = closed
        self._communicator = communicator
        self._memory = memory
        self._digest = digest
        self._steps = 0
        self._over = False  # the last collective of the call is behind us, or somebody failed

    # ---- the engine

    def all_gather(self, attrs: Any, parts: Sequence[Array]) -> list[Array]:
        dense = [np.ascontiguousarray(part) for part in parts]
        rows = [part.dtype.itemsize * int(np.prod(part.shape[1:])) for part in dense]
        counts: Sequence[Sequence[int]] = attrs["counts"]
        size = self._communicator.size
        lengths = [sum(n * c[rank] for n, c in zip(rows, counts, strict=True)) for rank in range(size)]
        each = self._exchanged(dense, lengths)
        found = [np.empty((sum(c), *part.shape[1:]), part.dtype) for part, c in zip(dense, counts, strict=True)]
        for rank, given in enumerate(each):
            at = 0
            for target, n, c in zip(found, rows, counts, strict=True):
                first, taken = sum(c[:rank]), n * c[rank]
                if taken:
                    own = target[first : first + c[rank]]
                    own.reshape(-1).view(np.uint8)[:] = given[at : at + taken]
                at += taken
        self._over = bool(attrs["final"]) and not self._closed
        return found

    def all_sum(self, attrs: Any, parts: Sequence[Array]) -> list[Array]:
        self._exchanged([], [0] * self._communicator.size)
        found: list[Array] = []
        for dtype in dict.fromkeys(part.dtype for part in parts):
            mine = [part for part in parts if part.dtype == dtype]
            found.append(self._communicator.total(np.concatenate([part.reshape(-1) for part in mine])))
        by_dtype = dict(zip(dict.fromkeys(part.dtype for part in parts), found, strict=True))
        starts = dict.fromkeys(by_dtype, 0)
        results = []
        for part in parts:
            start = starts[part.dtype]
            starts[part.dtype] = start + part.size
            results.append(by_dtype[part.dtype][start : start + part.size].reshape(part.shape))
        self._over = bool(attrs["final"]) and not self._closed
        return results

    def wait(self, final: bool) -> None:
        """Until all processes are here; raises what one of them has failed with."""
        self.all_gather({"counts": (), "final": False}, [])
        self._over = final

    # ---- on the memory of devices

    @property
    def in_memory(self) -> bool:
        return self._memory is not None

    def gather_memory(
        self, attrs: Any, types: Sequence[TensorType], sources: Sequence[int], targets: Sequence[int]
    ) -> None:
        assert self._memory is not None
        self._agreed()
        rows = [t.dtype.itemsize * int(np.prod(t.shape[1:])) for t in types]
        lengths = [[n * each for each in counts] for n, counts in zip(rows, attrs["counts"], strict=True)]
        self._memory.gather(list(zip(sources, targets, lengths, strict=True)))
        self._over = bool(attrs["final"]) and not self._closed

    def sum_memory(
        self, attrs: Any, types: Sequence[TensorType], sources: Sequence[int], targets: Sequence[int]
    ) -> None:
        assert self._memory is not None
        self._agreed()
        parts = zip(sources, targets, types, strict=True)
        self._memory.sum([(source, target, t.size, t.dtype) for source, target, t in parts])
        self._over = bool(attrs["final"]) and not self._closed

    def _agreed(self) -> None:
        """Every process is here, without an error; the bytes take another way."""
        self._exchanged([], [0] * self._communicator.size)

    # ---- messages

    def failed(self, error: Exception) -> None:
        """Tell the others, who wait for the next collective of this call; nothing where there is none."""
        if self._over:
            return
        self._over = True
        notes = [str(note) for note in getattr(error, "__notes__", ())]
        text = "\n".join([type(error).__name__, str(error), *notes]).encode()[:INLINE]
        rows = self._communicator.gather(self._message(1, len(text), text))
        del rows  # several may have failed: each raises its own error

    def _exchanged(self, parts: Sequence[Array], lengths: Sequence[int]) -> list[Bytes]:
        """The bytes that each process gives."""
        data = [part.reshape(-1).view(np.uint8) for part in parts if part.size]
        own = np.concatenate(data) if data else np.empty(0, np.uint8)
        short = max(lengths) <= INLINE
        rows = self._communicator.gather(self._message(0, len(own), own.tobytes() if short else b""))
        self._check(rows)
        self._steps += 1
        if short:
            return [row[HEADER.size : HEADER.size + n] for row, n in zip(rows, lengths, strict=True)]
        found = self._communicator.gather_ragged(own, lengths)
        stops = np.cumsum(lengths)
        return [found[stop - n : stop] for stop, n in zip(stops, lengths, strict=True)]

    def _message(self, failed: int, length: int, data: bytes) -> Bytes:
        head = HEADER.pack(failed, self._digest, self._steps, length)
        return np.frombuffer((head + data).ljust(MESSAGE, b"\0"), np.uint8)

    def _check(self, rows: Bytes) -> None:
        """Raise what a process has failed with, or that processes do different things."""
        for rank, row in enumerate(rows):
            failed, digest, steps, length = HEADER.unpack_from(row)
            if failed:
                self._over = True
                raise error_of(bytes(row[HEADER.size : HEADER.size + length]), rank, self._communicator.size)
            if digest != self._digest or steps != self._steps:
                self._over = True
                raise DeviceError(
                    f"mesh: expected all processes to run the same program, got another one on process {rank} than on "
                    f"process {self._communicator.rank}; a program, its shapes and the numbers written into it can't "
                    "depend on mesh.rank: what differs between processes goes through lg.shard"
                )


def error_of(text: bytes, rank: int, size: int) -> Exception:
    """The error that process `rank` reports, of the same class where this is one of ours or of Python's."""
    name, _, message = text.decode(errors="replace").partition("\n")
    for module in (errors, failures, builtins):
        found = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            error: Exception = found.__new__(found)
            error.args = (message,)
            break
    else:
        error = ProcessError(f"{name}: {message}")
    error.add_note(f"raised on process {rank} of {size}")
    return error
