"""A stream-ordered driver in this process: calls as CUDA and HIP have them, graphs with conditional nodes.

The stream is empty whenever a call returns. What is put on another one is done when the stream waits for it, as late as
a device may. Conditions are words of a table; the update kernel stores there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopgrad.runtime.gpu.driver import Shared, Work
from loopgrad.runtime.gpu.streams.driver import StreamDriver
from loopgrad.runtime.gpu.streams.graph import StreamGraph
from tests.simulator.code import GROUP, UPDATE_GROUP, update_code
from tests.simulator.driver import CAPACITY, GROUPS, PATTERN, REFILLED, Image, Pipeline


@dataclass
class Graph:
    """Work in order; `conditions` are addresses of words."""

    nodes: list[Callable[[], None]] = field(default_factory=list)
    conditions: list[Any] = field(default_factory=list)

    def run(self) -> None:
        for node in self.nodes:
            node()


class HostApi:
    """Implements ConditionalApi. `launches`: graphs that were started; `graphs`: those that were made ready."""

    name = "simulator"
    stream = 0
    multiprocessors = 4
    cache_bytes = 1 << 16
    group_limit = GROUPS
    graph_size = 1

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.launches = self.graphs = 0
        self.held = 0
        self.others: dict[int, list[Callable[[], None]]] = {}  # what is on other streams
        self.events: dict[int, tuple[int, int]] = {}  # how much of which stream an event waits for
        self.done: dict[int, int] = {}  # of the work of other streams

    # context and memory

    def enter(self) -> None:
        """There is one."""

    def leave(self, before: Any) -> None:
        """As above."""

    def allocate(self, size: int) -> int:
        if size > CAPACITY - self.held:
            raise MemoryError("the simulator has no more memory")
        memory = np.empty(size + 256, np.uint8)
        address = memory.ctypes.data + -memory.ctypes.data % 256
        self.memory[address] = memory
        self.held += size
        ctypes.memset(address, PATTERN, min(size, REFILLED))
        return address

    def free(self, address: int) -> None:
        self.held -= len(self.memory.pop(address)) - 256

    def available(self) -> int:
        return CAPACITY - self.held

    pin, unpin = allocate, free

    # the stream

    def upload(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    download = copy = upload

    def fill(self, target: int, value: int, count: int) -> None:
        np.frombuffer((ctypes.c_uint32 * count).from_address(target), np.uint32)[:] = value

    def launch(self, function: Pipeline, groups: int, group: int, params: int) -> None:
        assert group == function.group
        words = (ctypes.POINTER(ctypes.c_int64) * 6).from_address(params)
        w = [word[0] for word in words]
        function.dispatch(groups, (w[0], w[1], w[2], w[3], w[4], w[5]))

    def idle(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Nothing is under way."""

    def make_event(self) -> int:
        self.events[len(self.events)] = (self.stream, 0)
        return len(self.events) - 1

    def record(self, event: int, stream: int | None = None) -> None:
        self.events[event] = (stream or self.stream, len(self.others.get(stream or self.stream, ())))

    def wait(self, event: Any) -> None:
        """The stream has nothing under way."""

    def follow(self, event: int) -> None:
        stream, count = self.events[event]
        for work in self.others.get(stream, [])[self.done.get(stream, 0) : count]:
            work()
            self.done[stream] += 1

    def make_stream(self) -> int:
        made = len(self.others) + 1
        self.others[made], self.done[made] = [], 0
        return made

    def order(self, before: int, after: int) -> None:
        assert before == self.stream, "another stream's work is followed by events"

    def put(self, stream: int, work: Callable[[], None]) -> None:
        """Work of a library."""
        if stream == self.stream:
            work()
        else:
            self.others[stream].append(work)

    def poke(self, target: int, value: int) -> None:
        ctypes.c_uint64.from_address(target).value = value

    # code

    def load(self, image: bytes) -> Image:
        return Image(image)

    def unload(self, module: Any) -> None:
        """It goes with its last reference."""

    def function(self, module: Image, entry: str, asked: int) -> Pipeline:
        return module.pipeline("", entry, UPDATE_GROUP if module.object is update_code() else GROUP)

    def occupancy(self, function: Pipeline, group: int) -> int:
        """Asked once, before the first launch: only here a stream's driver says how large workgroups are."""
        function.group = group
        return 2

    # graphs

    def make_graph(self) -> Graph:
        return Graph()

    def _add(self, graph: Graph, after: Sequence[Any], node: Callable[[], None]) -> int:
        assert list(after) == ([len(graph.nodes) - 1] if graph.nodes else [])
        graph.nodes.append(node)
        return len(graph.nodes) - 1

    def add_launch(
        self, graph: Graph, after: Sequence[Any], function: Any, groups: int, group: int, params: int
    ) -> int:
        words = (ctypes.POINTER(ctypes.c_int64) * 6).from_address(params)
        values = (ctypes.c_int64 * 6)(*[word[0] for word in words])  # taken when the node is added, as CUDA does
        base = ctypes.addressof(values)
        places = (ctypes.c_uint64 * 6)(*[base + 8 * i for i in range(6)])

        def node(keep: Any = values) -> None:
            self.launch(function, groups, group, ctypes.addressof(places))

        return self._add(graph, after, node)

    def add_copy(self, graph: Graph, after: Sequence[Any], target: int, source: int, size: int) -> int:
        return self._add(graph, after, lambda: self.copy(target, source, size))

    add_download = add_copy

    def add_fill(self, graph: Graph, after: Sequence[Any], target: int, value: int, count: int) -> int:
        return self._add(graph, after, lambda: self.fill(target, value, count))

    def add_empty(self, graph: Graph) -> int:
        return self._add(graph, [], lambda: None)

    def make_condition(self, graph: Graph) -> int:
        word = ctypes.c_uint64(77)  # nothing may rely on what it is before it is set
        graph.conditions.append(word)
        return ctypes.addressof(word)

    def add_loop(self, graph: Graph, after: Sequence[Any], condition: int) -> tuple[int, Graph]:
        body = Graph()

        def node() -> None:
            while ctypes.c_uint64.from_address(condition).value:
                body.run()

        self._own(graph, condition)
        return self._add(graph, after, node), body

    def add_branches(self, graph: Graph, after: Sequence[Any], condition: int, count: int) -> tuple[int, list[Graph]]:
        branches = [Graph() for _ in range(count)]

        def node() -> None:
            chosen = ctypes.c_uint64.from_address(condition).value
            if chosen < count:
                branches[chosen].run()

        self._own(graph, condition)
        return self._add(graph, after, node), branches

    def _own(self, graph: Graph, condition: int) -> None:
        assert condition in [ctypes.addressof(word) for word in graph.conditions]

    def instantiate(self, graph: Graph) -> Graph:
        self.graphs += 1
        return graph

    def launch_graph(self, executable: Graph) -> None:
        self.launches += 1
        executable.run()

    def destroy_graph(self, graph: Graph) -> None:
        """It goes with its last reference."""

    destroy_executable = destroy_graph


class GraphDriver(StreamDriver):
    """A StreamDriver whose graphs have loops."""

    host_decides = ""

    def __init__(self) -> None:
        self.host = HostApi()
        super().__init__(self.host, lambda: (update_code(), "k0", UPDATE_GROUP))

    def graph(self, items: Sequence[Any], report: Shared, stop: int) -> Work:
        return StreamGraph(self, self.host, items, report, stop)
