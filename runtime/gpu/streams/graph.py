"""Recorded programs as one graph of a stream, whose loops and branches the device decides on.

A node comes after the one before; a loop's body and each branch are graphs of their own, in a conditional
node. One launch runs all of it, the way of the report to the host included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from loopgrad.runtime.gpu.control_flow import Condition, DeviceBranches, DeviceLoop, Item, Launch
from loopgrad.runtime.gpu.driver import Shared
from loopgrad.runtime.gpu.streams.api import StreamApi, StreamFailure
from loopgrad.runtime.gpu.streams.commands import BLOCK, Arguments
from loopgrad.runtime.gpu.streams.shared_words import StreamSharedWords

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.streams.driver import StreamDriver


class ConditionalApi(StreamApi, Protocol):
    """A StreamApi whose graphs have conditional nodes."""

    def make_condition(self, graph: Any) -> int:
        """The handle of a condition for a node of this graph."""
        ...

    def add_loop(self, graph: Any, after: Sequence[Any], condition: int) -> tuple[Any, Any]:
        """The node, and the graph that runs while the condition isn't 0."""
        ...

    def add_branches(self, graph: Any, after: Sequence[Any], condition: int, count: int) -> tuple[Any, Sequence[Any]]:
        """The node, and a graph per value of the condition."""
        ...

    def add_empty(self, graph: Any) -> Any: ...

    def poke(self, target: int, value: int) -> None:
        """Write one 64-bit word now, whatever the stream does: it is there on return, so that it can't come in
        between later work."""
        ...


class StreamGraph:
    """Implements `Work` for one report, which each run brings, but only runs that ask for it wait for. `stop`: the
    address of a word that ends the loops, for when the wait for them is broken off."""

    def __init__(
        self, driver: StreamDriver, api: ConditionalApi, items: Sequence[Item], report: Shared, stop: int
    ) -> None:
        assert isinstance(report, StreamSharedWords)
        self._driver, self._api, self._report, self._stop = driver, api, report, stop
        self._labels: dict[str, None] = {}
        self._conditions: dict[Condition, int] = {}
        self._blocks: list[Arguments] = []
        self._launches = 0
        self._executable: Any = None
        with driver.lock:
            self._graph = api.make_graph()
            try:
                last = self._add(self._graph, items)
                api.add_download(self._graph, last, report.landing, report.address, report.words.nbytes)
                self._executable = driver.with_room(lambda: api.instantiate(self._graph))
            except BaseException:
                api.destroy_graph(self._graph)
                raise

    def _add(self, graph: Any, items: Sequence[Item]) -> tuple[Any, ...]:
        """The last node, if there is one."""
        last: tuple[Any, ...] = ()
        for item in items:
            if isinstance(item, Launch):
                last = (self._launch(graph, last, item),)
            elif isinstance(item, DeviceLoop):
                node, body = self._api.add_loop(graph, last, self._conditions[item.condition])
                self._fill(body, item.body)
                last = (node,)
            else:
                last = (self._branches(graph, last, item),)
        return last

    def _branches(self, graph: Any, after: Sequence[Any], item: DeviceBranches) -> Any:
        condition = self._conditions[item.condition]
        node, graphs = self._api.add_branches(graph, after, condition, len(item.branches))
        for inner, branch in zip(graphs, item.branches, strict=True):
            self._fill(inner, branch)
        return node

    def _fill(self, graph: Any, items: Sequence[Item]) -> None:
        if not self._add(graph, items):
            self._api.add_empty(graph)

    def _launch(self, graph: Any, after: Sequence[Any], launch: Launch) -> Any:
        push, pipeline = launch.push, launch.pipeline
        if launch.decides is not None:
            if launch.decides not in self._conditions:  # it comes before the node, in the node's own graph
                self._conditions[launch.decides] = self._api.make_condition(graph)
            push = (push[0], push[1], self._conditions[launch.decides], *push[3:])
        block, position = divmod(self._launches, BLOCK)
        if not position:
            self._blocks.append(Arguments())
        self._launches += 1
        self._labels[pipeline.label] = None
        params = self._blocks[block].pack(position, push)
        return self._api.add_launch(graph, after, pipeline.handle, launch.groups, pipeline.group, params)

    def run(self, uploads: Sequence[tuple[Shared, int]], report: Shared | None) -> None:
        driver = self._driver
        assert report is None or report is self._report
        with driver.lock, driver.watched(self._labels):
            for shared, count in uploads:
                driver.send(shared.address, shared.words[:count])
            try:
                self._api.launch_graph(self._executable)
                if report is None:
                    return
                driver.wait(self._hurry)
            except StreamFailure:
                raise
            except BaseException:  # also between the two calls
                self._hurry()
                self._api.synchronize()
                raise
            self._report.arrived()

    def _hurry(self) -> None:
        self._api.poke(self._stop, 1)

    def __del__(self) -> None:
        if getattr(self, "_executable", None) is not None:
            self._driver.discard(self._api.destroy_executable, self._executable)
            self._driver.discard(self._api.destroy_graph, self._graph)
