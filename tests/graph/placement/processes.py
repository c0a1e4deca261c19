"""Programs of several processes, run by threads of this one: what each gives, collectives through shared memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from loopgrad.codegen.options import Options
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Graph
from loopgrad.graph.placement.layout import ProcessPart
from loopgrad.graph.placement.places import Place
from loopgrad.graph.placement.program import new_partition, partitioned
from loopgrad.graph.primitives.collectives import ENGINE, columns
from loopgrad.runtime.devices import get_device

Arrays = list[np.ndarray[Any, Any]]


class Meeting:
    """A room for `size` threads."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=120)  # others may compile on a busy machine
        self.parts: list[Any] = [None] * size
        self.count = 0


class ThreadEngine:
    """The engine of one of these threads."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank = meeting, rank
        self.sent = 0  # bytes, each once
        self.started: dict[int, list[Arrays]] = {}

    def _exchanged(self, parts: Sequence[Any]) -> list[Any]:
        m = self.meeting
        m.parts[self.rank] = [np.array(part) for part in parts]  # the memory is written again in the next trip
        m.barrier.wait()
        found = list(m.parts)
        if m.barrier.wait() == 0:
            m.count += 1
        return found

    def start(self, attrs: Any, parts: Sequence[Any]) -> None:
        self.started.setdefault(attrs["number"], []).append(getattr(self, attrs["op"])(attrs, parts))

    def finish(self, attrs: Any) -> Arrays:
        return self.started[attrs["number"]].pop(0)

    def all_gather(self, attrs: Any, parts: Sequence[Any]) -> Arrays:
        self.sent += sum(part.nbytes for part in parts)
        each = self._exchanged(parts)
        return [np.concatenate(column) for column in zip(*each, strict=True)]

    def all_to_all(self, attrs: Any, parts: Sequence[Any]) -> Arrays:
        self.sent += sum(part.nbytes for part in parts)
        each = self._exchanged(parts)
        own = [columns(x.shape[1], self.rank, len(each)) for x in parts]
        given = [[x[:0] if rank == self.rank else x for x in parts] for rank, parts in enumerate(each)]
        columns_of = zip(zip(*given, strict=True), own, strict=True)
        return [np.concatenate([x[:, mine.start : mine.stop] for x in column]) for column, mine in columns_of]

    def all_sum(self, attrs: Any, parts: Sequence[Any]) -> Arrays:
        each = self._exchanged(parts)
        return [np.asarray(reduce(np.add, column)) for column in zip(*each, strict=True)]


def run_parts(
    graph: Graph, places: tuple[Place, ...], arrays: Arrays, size: int, fast: bool = False,
    run: Callable[[Graph, Arrays], Sequence[Any]] = lambda graph, arrays: interpret(graph, arrays, False),
    seen: list[int] | None = None, alike: Callable[..., bool] = lambda *_: False, swift: bool = False,
    shards: bool = True,
) -> tuple[list[list[Any]], tuple[Place, ...], int]:  # fmt: skip
    """What each of `size` processes gives for whole arrays as inputs, where its results are, how often they met.
    `seen` gets how many bytes each has given; `alike`, `swift`, `shards`: what their devices do (`rows_alike`, `swift`
    and `reduces_shards` of `MeshPartition`)."""
    meeting, results, failed = Meeting(size), [None] * size, []

    def process(rank: int) -> None:
        try:
            part = ProcessPart(rank, size)
            made = replace(new_partition(part, fast), rows_alike=alike, swift=swift, reduces_shards=shards)
            local, found, _ = partitioned(graph, places, made)
            given = [own(a, p, part) for a, p in zip(arrays, places, strict=True)]
            engine = ThreadEngine(meeting, rank)
            ENGINE.set(engine)
            outputs = run(local, given)
            if seen is not None:
                seen.append(engine.sent)
            results[rank] = (list(outputs)[: len(found)], found)
        except BaseException as error:
            failed.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=process, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise next((e for e in failed if not isinstance(e, threading.BrokenBarrierError)), failed[0])
    return [r[0] for r in results], results[0][1], meeting.count


def own(array: Any, place: Place, part: ProcessPart) -> Any:
    if place.axis is None:
        return array
    lanes = part.lanes(array.shape[place.axis])
    return np.ascontiguousarray(np.take(array, np.arange(lanes.start, lanes.stop), axis=place.axis))


def together(outputs: list[list[Any]], places: Sequence[Place]) -> Arrays:
    """Whole arrays of what the processes gave; those that all have must be the same."""
    found = []
    for i, place in enumerate(places):
        each = [o[i] for o in outputs]
        if place.axis is None:
            for other in each[1:]:
                assert np.asarray(other).tobytes() == np.asarray(each[0]).tobytes(), f"result {i} differs"
            found.append(np.asarray(each[0]))
        else:
            found.append(np.concatenate(each, axis=place.axis))
    return found


def compiled(graph: Graph, arrays: Arrays) -> Arrays:
    """As `interpret`, by the CPU."""
    device = get_device("cpu")
    return [device.get(b) for b in device.compile(graph, Options()).run([device.put(a) for a in arrays])]
