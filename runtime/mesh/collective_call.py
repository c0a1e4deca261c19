"""The collectives of one call of a program: an engine (`graph.primitives.collectives`) over a communicator.

Every collective starts with one short message from each process: whether it failed, and how; which program it runs and
where in it; and what it has to give, where that is short. So

- an error of one process is raised by all of them, in the same call, within the time of one collective;
- processes that run different programs are told so, instead of waiting for each other or mixing up numbers;
- a value and its gradient by a few parameters take one message.

What is longer follows in a second one; memory for it is there before the first is sent, so that nothing fails between.
What was started goes on in another thread (`background`), as a whole; whoever meets the others next waits for it. On
the memory of devices it goes on beside their work, and what comes there waits where it is joined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.graph.primitives.collectives import columns
from loopgrad.graph.types import TensorType
from loopgrad.runtime.mesh.communicator import Array, Bytes, Communicator, Exchanged, Gathered, Memory, Said
from loopgrad.runtime.mesh.messages import HEADER, INLINE, Messages, data_of

PURPOSE: Final = 8  # bytes


class GivenRows(NamedTuple):
    """An array whose rows processes bring, `counts` of them."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    counts: Sequence[int]

    def bytes_of(self, rank: int) -> int:
        return self.counts[rank] * self.dtype.itemsize * prod(self.shape[1:])


def packed_bytes(parts: Sequence[Array]) -> Bytes:
    data = [part.view(np.uint8) for part in parts if part.size]
    return np.concatenate(data) if data else np.empty(0, np.uint8)


def unpack(given: Bytes, rank: int, blocks: Sequence[GivenRows], found: Sequence[Array]) -> None:
    """Put what process `rank` gives where its rows are."""
    at = 0
    for block, target in zip(blocks, found, strict=True):
        taken = block.bytes_of(rank)
        if taken:
            first = sum(block.counts[:rank])
            own = target[first : first + block.counts[rank]]
            own.reshape(-1).view(np.uint8)[:] = given[at : at + taken]
        at += taken


class CollectiveCall:
    """One call of the program with this `digest`. `describe`: what it is, for people. `closed`: its last message is not
    that of its last collective but one after all work, `wait(final=True)`, since that may fail too."""

    _steps = 0
    _over = False  # the last collective of the call is behind us, or somebody failed
    _error: Exception | None = None  # of something that was started

    def __init__(
        self,
        communicator: Communicator,
        digest: bytes,
        describe: Callable[[], str],
        memory: Memory | None = None,
        closed: bool = False,
    ) -> None:
        self._closed = closed
        self._communicator = communicator
        self._memory = memory
        self._messages = Messages(communicator, digest, describe)
        self._started: dict[int, deque[Future[list[Array]]]] = {}  # by their numbers
        self._beside: dict[int, deque[int]] = {}  # likewise, on the memory of devices

    # ---- the engine

    def all_gather(self, attrs: Any, parts: Sequence[Array]) -> list[Array]:
        self._settled()
        return self._gathered(attrs, parts)

    def all_to_all(self, attrs: Any, parts: Sequence[Array]) -> list[Array]:
        self._settled()
        return self._exchanged(attrs, parts)

    def all_sum(self, attrs: Any, parts: Sequence[Array]) -> list[Array]:
        self._settled()
        return self._summed(attrs, parts)

    def start(self, attrs: Any, parts: Sequence[Array]) -> None:
        background = self._communicator.background
        assert background is not None  # programs for such engines start nothing early
        self._messages.locate()
        do = {"all_gather": self._gathered, "all_to_all": self._exchanged, "all_sum": self._summed}[attrs["op"]]
        begun = background.do(lambda: self._alone_with(do, attrs, parts))
        self._started.setdefault(attrs["number"], deque()).append(begun)

    def _alone_with(
        self, do: Callable[[Any, Sequence[Array]], list[Array]], attrs: Any, parts: Sequence[Array]
    ) -> list[Array]:
        """What was started, in its turn: not where something before it has failed."""
        if self._error is not None:
            raise self._error
        try:
            return do(attrs, parts)
        except Exception as error:
            self._error = error
            self._tell(error)
            raise

    def finish(self, attrs: Any) -> list[Array]:
        return self._started[attrs["number"]].popleft().result()

    def _settled(self) -> None:
        """All that was started is done; raises what of it failed."""
        if self._started:
            wait([begun for number in self._started.values() for begun in number])
            if self._error is not None:
                raise self._error

    def _gathered(self, attrs: Any, parts: Sequence[Array]) -> list[Array]:
        counts: Sequence[Sequence[int]] = attrs["counts"]
        blocks = [GivenRows((sum(c), *part.shape[1:]), part.dtype, c) for part, c in zip(parts, counts, strict=True)]
        own = [part.reshape(-1) for part in map(np.ascontiguousarray, parts)]
        size = self._communicator.size
        lengths = [sum(block.bytes_of(rank) for block in blocks) for rank in range(size)]
        found = [np.empty(block.shape, block.dtype) for block in blocks]
        data = packed_bytes(own)  # all memory is there before others are told that nothing is wrong
        short = max(lengths) <= INLINE
        received = np.empty(0 if short else sum(lengths), np.uint8)
        messages = self._met(data.tobytes() if short else b"", attrs)
        if short:
            given = [np.frombuffer(said, np.uint8, n, HEADER.size) for said, n in zip(messages, lengths, strict=True)]
        else:
            self._communicator.gather_ragged(data, lengths, received)
            given = np.split(received, np.cumsum(lengths)[:-1])
        for rank, part in enumerate(given):
            unpack(part, rank, blocks, found)
        self._done(attrs)
        return found

    def _exchanged(self, attrs: Any, parts: Sequence[Array]) -> list[Array]:
        counts: Sequence[Sequence[int]] = attrs["counts"]
        size, part = self._communicator.size, attrs["part"]
        spans = [[columns(x.shape[1], rank, size) for rank in range(size)] for x in parts]
        others = [[0 if rank == part else n for rank, n in enumerate(c)] for c in counts]
        blocks = [
            GivenRows((sum(c), len(span[part]), *x.shape[2:]), x.dtype, c)
            for x, span, c in zip(parts, spans, others, strict=True)
        ]
        each = [packed_bytes(())] * size
        for rank in [rank for rank in range(size) if rank != part]:
            cut = [x[:, s[rank].start : s[rank].stop] for x, s in zip(parts, spans, strict=True)]
            each[rank] = packed_bytes([np.ascontiguousarray(x).reshape(-1) for x in cut])
        data = np.concatenate(each)
        taken = [sum(block.bytes_of(rank) for block in blocks) for rank in range(size)]
        received = np.empty(sum(taken), np.uint8)
        found = [np.empty(block.shape, block.dtype) for block in blocks]
        self._met(attrs=attrs)
        self._communicator.exchange(data, [len(x) for x in each], received, taken)
        stops = np.cumsum(taken)
        for rank, (stop, n) in enumerate(zip(stops, taken, strict=True)):
            unpack(received[stop - n : stop], rank, blocks, found)
        self._done(attrs)
        return found

    def _summed(self, attrs: Any, parts: Sequence[Array]) -> list[Array]:
        dtypes = list(dict.fromkeys(part.dtype for part in parts))
        given = [np.concatenate([part.reshape(-1) for part in parts if part.dtype == dtype]) for dtype in dtypes]
        self._met(attrs=attrs)
        found = dict(zip(dtypes, [self._communicator.total(mine) for mine in given], strict=True))
        starts = dict.fromkeys(dtypes, 0)
        results = []
        for part in parts:
            start = starts[part.dtype]
            starts[part.dtype] = start + part.size
            results.append(found[part.dtype][start : start + part.size].reshape(part.shape))
        self._done(attrs)
        return results

    def wait(self, final: bool) -> None:
        """Until all processes are here; raises what one of them has failed with."""
        self._settled()
        self._met()
        self._over = final

    def rows(self, own: bytes) -> list[bytes]:
        """A few bytes of each process, of which all have as many."""
        assert len(own) <= INLINE, own
        return list(map(data_of, self._met(own)))

    # ---- on the memory of devices

    @property
    def in_memory(self) -> bool:
        return self._memory is not None

    def meet(self, attrs: Any) -> None:
        self._met(attrs=attrs)
        self._done(attrs)

    def move(
        self, name: str, attrs: Any, types: Sequence[TensorType], sources: Sequence[int], targets: Sequence[int]
    ) -> None:
        assert self._memory is not None
        if name == "collective_start":
            started = self._memory.beside(lambda: self.move(attrs["op"], attrs, types, sources, targets))
            self._beside.setdefault(attrs["number"], deque()).append(started)
            return
        parts = zip(types, sources, targets, strict=True)
        if name == "all_gather":
            gathered: list[Gathered] = []
            for (t, source, target), counts in zip(parts, attrs["counts"], strict=True):
                row = t.dtype.itemsize * prod(t.shape[1:])
                gathered.append((source, target, [n * row for n in counts]))
            self._memory.gather(gathered)
        elif name == "all_to_all":
            each = zip(parts, attrs["counts"], strict=True)
            self._memory.exchange([self._exchange(attrs["part"], *part, counts) for part, counts in each])
        else:
            self._memory.sum([(source, target, t.size, t.dtype) for t, source, target in parts])

    def join(self, attrs: Any) -> None:
        assert self._memory is not None
        self._memory.join(self._beside[attrs["number"]].popleft())

    def join_all(self) -> None:
        assert self._memory is not None
        self._memory.join_all()

    def _exchange(self, part: int, t: TensorType, source: int, target: int, counts: Sequence[int]) -> Exchanged:
        """What goes to whom and comes from whom, row by row."""
        size, at = self._communicator.size, target
        element = t.dtype.itemsize * prod(t.shape[2:])
        row = t.shape[1] * element
        spans = [columns(t.shape[1], rank, size) for rank in range(size)]
        others = [rank for rank in range(size) if rank != part]
        sent = [
            (rank, source + i * row + spans[rank].start * element, len(spans[rank]) * element)
            for rank in others
            for i in range(t.shape[0])
        ]
        taken = []
        for rank in others:
            for _ in range(counts[rank]):
                taken.append((rank, at, len(spans[part]) * element))
                at += len(spans[part]) * element
        return sent, taken

    # ---- messages

    def failed(self, error: Exception) -> None:
        """Tell the others, who wait for the next collective of this call; nothing where there is none."""
        wait([begun for number in self._started.values() for begun in number])
        self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._over:
            self._over = True
            self._messages.failed(self._steps, error)

    def _met(self, data: bytes = b"", attrs: Mapping[str, Any] | None = None) -> Sequence[Said]:
        """Every process is here, in the same collective, without an error; what each says."""
        which = 0 if attrs is None else attrs.get("number", 0)
        try:
            messages = self._messages.met(which << 32 | self._steps, data)
        except Exception:
            self._over = True  # all processes know, one way or another
            raise
        self._steps += 1
        return messages

    def _done(self, attrs: Any) -> None:
        self._over = bool(attrs["final"]) and not self._closed
