"""Commands for a stream: a list of calls with their arguments packed once, or a graph of them.

A list that is run again becomes a graph, launched by one call. What the tables say may change between runs of the same
graph, but for the addresses that a library was given: a list with its calls becomes a graph when it is run a second
time with the same ones, and has some graphs at a time, because results that are replaced call by call lie in two places
in turn. On an H200 the launch of a graph costs the host 1.6 us for one kernel as for six, which by
themselves cost it 4.2 and 22; and kernels follow each other after 0.3 us there, in a stream after 1.1.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from loopgrad.runtime.gpu.driver import LibraryCall, Push, Shared, Words
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.gpu.streams.shared_words import StreamSharedWords

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.streams.driver import StreamDriver

PACKED: Final = struct.Struct("<Qqqqqq6Q")
WORDS: Final = 6
BLOCK: Final = 128  # launches whose arguments lie together
MOST_PLACES: Final = 4  # addresses of libraries' arrays that are remembered, with their graphs


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel of a loaded module. `label` names it in messages; `fit`: its workgroups on one multiprocessor."""

    handle: Any
    label: str
    group: int
    fit: int
    image: object  # keeps the module loaded


class Arguments:
    """The six words of some launches, each followed by pointers to them."""

    def __init__(self) -> None:
        self.memory = (ctypes.c_uint64 * (2 * WORDS * BLOCK))()
        self._base = ctypes.addressof(self.memory)

    def pack(self, position: int, push: Push) -> int:
        """The address of the pointers of that launch."""
        place = 16 * WORDS * position
        first = self._base + place
        PACKED.pack_into(self.memory, place, *push, *range(first, first + 8 * WORDS, 8))
        return first + 8 * WORDS


@dataclass(frozen=True, slots=True)
class StreamCall:
    """One command: the call that issues it, the call that adds it to a graph (a library has none), and the arguments
    of both."""

    issue: Callable[..., None]
    add: Callable[..., Any] | None
    arguments: tuple[Any, ...]


class StreamCommands:
    """`nodes` are what was recorded, in order; each comes after the one before."""

    def __init__(self, driver: StreamDriver) -> None:
        self._driver = driver
        self._api = driver.api
        self._blocks = [Arguments()]
        self.nodes: list[StreamCall] = []
        self.labels: dict[str, None] = {}
        self.launches = 0
        self.count = 0
        self._again = False
        self._capturable = True
        self._long = False
        self._ran = False
        self._executable: Any = None
        self._reports: StreamSharedWords | None = None
        self._given: list[Words] = []  # to libraries
        self._graphs: dict[bytes, Any] = {}  # by what these words were in the last runs, the latest last; or None

    def begin(self) -> None:
        self.nodes.clear()
        self.labels = {}
        self.launches = 0
        self.count = 0
        self._capturable = True
        self._long = self._ran = False
        self._given.clear()
        self._drop()

    def dispatch(self, pipeline: Function, groups: int, push: Push) -> None:
        block, position = divmod(self.launches, BLOCK)
        if block == len(self._blocks):
            self._blocks.append(Arguments())
        params = self._blocks[block].pack(position, push)
        api = self._api
        self.nodes.append(StreamCall(api.launch, api.add_launch, (pipeline.handle, groups, pipeline.group, params)))
        self.labels[pipeline.label] = None
        self.launches += 1
        self.count += 1

    def barrier(self) -> None:
        """Commands of a stream follow each other."""

    def copy(self, source: Allocation, target: Allocation, size: int) -> None:
        api = self._api
        self.nodes.append(StreamCall(api.copy, api.add_copy, (target.address, source.address, size)))
        self.count += 1

    def write(self, target: Allocation, data: bytes) -> None:
        api = self._api
        for i in range(0, len(data), 4):
            word = int.from_bytes(data[i : i + 4], "little")
            self.nodes.append(StreamCall(api.fill, api.add_fill, (target.address + i, word, 1)))
        self.count += 1

    def call(self, call: LibraryCall, words: Words) -> None:
        self._given.append(words)
        self.nodes.append(StreamCall(call.start, None, (words,)))
        self.labels[call.label] = None
        self._capturable &= call.captures
        self._long |= call.long
        self.count += 1

    def end(self, again: bool) -> None:
        self._again = again and self._capturable

    def _prepare(self, report: StreamSharedWords | None) -> None:
        """A graph of everything, the way of the report to the host included."""
        api = self._api
        graph = api.make_graph()
        try:
            last = self.build(graph, ())
            if report is not None:
                api.add_download(graph, last, report.landing, report.address, report.words.nbytes)
            self._executable = self._driver.with_room(lambda: api.instantiate(graph))
            self._reports = report
        finally:
            api.destroy_graph(graph)

    def build(self, graph: Any, after: Sequence[Any]) -> Sequence[Any]:
        """Add everything to a graph, after these nodes; the nodes that what follows must wait for."""
        for node in self.nodes:
            assert node.add is not None
            after = (node.add(graph, after, *node.arguments),)
        return after

    def run(self, uploads: Sequence[tuple[Shared, int]], report: Shared | None) -> None:
        driver = self._driver
        if report is not None:
            driver.start([self], uploads, report)
            return
        with driver.lock:
            driver.begin(self.labels)
            try:
                for shared, count in uploads:
                    driver.send(shared.address, shared.words[:count])
                self.issue(None)
            except StreamFailure as failure:
                raise driver.failed(failure) from None

    def repeat(self) -> None:
        driver = self._driver
        driver.begin(self.labels)
        try:
            self.issue(None)
        except StreamFailure as failure:
            raise driver.failed(failure) from None

    def issue(self, report: StreamSharedWords | None) -> None:
        """Put everything on the stream, the way of the report to the host included."""
        count = len(self.nodes) + (report is not None)
        executable = None
        if self._again and (self._long or count >= self._api.graph_size):
            executable = self._ready(report)
        if executable is None:
            self._each()
        else:
            self._api.launch_graph(executable)
            if self._reports is report:
                return
        if report is not None:
            report.depart()

    def _each(self) -> None:
        for node in self.nodes:
            node.issue(*node.arguments)

    def _ready(self, report: StreamSharedWords | None) -> Any | None:
        """The graph of this run, if there is one; it is made where it should be, not for what runs only once."""
        if self._given:
            return self._ready_here(b"".join([words.tobytes() for words in self._given]))
        if self._executable is None and self._ran:
            self._prepare(report)
        self._ran = True
        return self._executable

    def _ready_here(self, words: bytes) -> Any | None:
        """That with the addresses that libraries are given now, `words`."""
        known = words in self._graphs  # not the first time: what a library loads then shouldn't be captured
        executable = self._graphs.pop(words, None)
        if known and executable is None:
            executable = self._captured()
        self._graphs[words] = executable
        if len(self._graphs) > MOST_PLACES:
            self._discard(self._graphs.pop(next(iter(self._graphs))))
        return executable

    def _captured(self) -> Any | None:
        graph = self._driver.captured(self._each)
        if graph is None:
            self._again = False
            return None
        try:
            return self._driver.with_room(lambda: self._api.instantiate(graph))
        except StreamFailure:
            self._again = False
            return None
        finally:
            self._api.destroy_graph(graph)

    def _drop(self) -> None:
        for executable in (self._executable, *self._graphs.values()):
            self._discard(executable)
        self._executable = self._reports = None
        self._graphs.clear()

    def _discard(self, executable: Any | None) -> None:
        if executable is not None:
            self._driver.discard(self._api.destroy_executable, executable)

    def __del__(self) -> None:
        if getattr(self, "_graphs", None) is not None:
            self._drop()
