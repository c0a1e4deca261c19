"""From lazy values to elements: extract, recognise, compile once, run.

Programs are recognised by structure. The first time a structure is seen its constants are compiled
in; when the same structure comes back with other constants (a learning rate that decays, a step
number), a version is compiled that takes them as inputs, and serves every later one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from loopgrad.graph.extract import extract
from loopgrad.graph.key import abstract_key, graph_key, lift_constants
from loopgrad.graph.nodes import Graph, Leaf, Value
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import Device, get_device
from loopgrad.runtime.executable import Executable
from loopgrad.runtime.options import DEFAULT_OPTIONS, Options

CACHE_ENTRIES: Final = 1024

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Entry:
    """A compiled graph; where `constants` is set the executable takes them after the inputs."""

    executable: Executable
    constants: tuple[Buffer, ...] = ()


class Session:
    """The in-memory caches. Least recently used entries leave first."""

    def __init__(self) -> None:
        self._exact: OrderedDict[tuple[object, ...], Entry] = OrderedDict()
        self._abstract: OrderedDict[tuple[object, ...], Executable | None] = OrderedDict()
        self._lock = threading.RLock()
        self.compiled = 0

    def lookup(self, graph: Graph, device: Device, options: Options) -> Entry:
        """The executable for this graph, compiled at most once."""
        key = (device.name, options, graph_key(graph))
        entry = self._exact.get(key)
        if entry is not None:
            return entry
        with self._lock:
            entry = self._exact.get(key)
            if entry is None:
                entry = self._compile(graph, device, options)
                _remember(self._exact, key, entry)
            return entry

    def _compile(self, graph: Graph, device: Device, options: Options) -> Entry:
        key = (device.name, options, abstract_key(graph))
        if key not in self._abstract:
            _remember(self._abstract, key, None)
            self.compiled += 1
            return Entry(device.compile(graph, options))
        lifted, arrays = lift_constants(graph)
        executable = self._abstract[key]
        if executable is None:
            self.compiled += 1
            executable = device.compile(lifted, options)
            _remember(self._abstract, key, executable)
        return Entry(executable, tuple([device.put(a) for a in arrays]))

    def clear(self) -> None:
        """Forget every compiled graph."""
        with self._lock:
            self._exact.clear()
            self._abstract.clear()


SESSION = Session()


def evaluate(values: Sequence[Value], device: str, options: Options = DEFAULT_OPTIONS) -> list[Buffer]:
    """The elements of top-level values on the named device. Raises what running them raises."""
    target = get_device(device)
    graph = extract(values)
    inputs = [_placed(leaf, target) for leaf in graph.inputs]
    if not graph.nodes:
        position = {v: i for i, v in enumerate(graph.inputs)}
        return [inputs[position[v]] for v in graph.outputs]
    entry = SESSION.lookup(graph, target, options)
    return entry.executable.run([*inputs, *entry.constants] if entry.constants else inputs)


def _placed(leaf: Value, device: Device) -> Buffer:
    """The leaf's buffer, copied to `device` where it lives elsewhere."""
    if not isinstance(leaf, Leaf):
        raise TypeError(
            f"expected values that depend on arrays only, got one that depends on an argument ({leaf.type}) of a "
            "function being traced; return it from that function instead of evaluating it there"
        )
    buffer: Buffer = leaf.buffer
    return buffer if buffer.device == device.name else move(buffer, device)


def move(buffer: Buffer, device: Device) -> Buffer:
    """A copy of the buffer on another device."""
    if buffer.device == device.name:
        return buffer
    return device.put(get_device(buffer.device).get(buffer), copy=False)


def _remember(cache: OrderedDict[tuple[object, ...], T], key: tuple[object, ...], value: T) -> None:
    cache[key] = value
    while len(cache) > CACHE_ENTRIES:
        cache.popitem(last=False)
