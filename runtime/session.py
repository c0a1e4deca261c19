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
from typing import Final

import numpy as np

from loopgrad.graph.extract import extract
from loopgrad.graph.key import abstract_key, lift_constants
from loopgrad.graph.nodes import Graph, Leaf, Value
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import Device, get_device
from loopgrad.runtime.executable import Executable
from loopgrad.runtime.options import DEFAULT_OPTIONS, Options

CACHE_ENTRIES: Final = 1024

Key = tuple[str, Options, bytes]


@dataclass(slots=True, eq=False)
class Versions:
    """What is compiled for one structure: `first` has `constants` in its code, `general` takes any."""

    constants: tuple[float, ...]
    first: Executable
    general: Executable | None = None


class Session:
    """The in-memory cache. The least recently made entries leave first."""

    def __init__(self) -> None:
        self._versions: OrderedDict[Key, Versions] = OrderedDict()
        self._exact: OrderedDict[tuple[Key, tuple[float, ...]], Executable] = OrderedDict()
        self._lock = threading.RLock()
        self.compiled = 0

    def lookup(self, graph: Graph, device: Device, options: Options) -> tuple[Executable, tuple[Buffer, ...]]:
        """The executable for this graph, compiled at most once, and the inputs it takes at the end."""
        digest, constants, _ = abstract_key(graph)
        key = (device.name, options, digest)
        versions = self._versions.get(key)
        if versions is not None and versions.constants == constants:
            return versions.first, ()
        with self._lock:
            versions = self._versions.get(key)
            if versions is None:
                versions = Versions(constants, self._compile(graph, device, options))
                self._remember(key, versions)
            if versions.constants == constants:
                return versions.first, ()
            if versions.general is None:
                versions.general = self._compile(lift_constants(graph)[0], device, options)
        return versions.general, _constant_buffers(versions.general, constants, device)

    def compile(self, graph: Graph, device: Device, options: Options) -> Executable:
        """The executable with the graph's constants in its code, for a graph that is kept."""
        digest, constants, _ = abstract_key(graph)
        key = (device.name, options, digest)
        with self._lock:
            versions = self._versions.get(key)
            if versions is not None and versions.constants == constants:
                return versions.first
            executable = self._exact.get((key, constants))
            if executable is None:
                executable = self._exact[key, constants] = self._compile(graph, device, options)
                while len(self._exact) > CACHE_ENTRIES:
                    self._exact.popitem(last=False)
            return executable

    def _compile(self, graph: Graph, device: Device, options: Options) -> Executable:
        self.compiled += 1
        return device.compile(graph, options)

    def _remember(self, key: Key, versions: Versions) -> None:
        self._versions[key] = versions
        while len(self._versions) > CACHE_ENTRIES:
            self._versions.popitem(last=False)

    def clear(self) -> None:
        """Forget every compiled graph."""
        with self._lock:
            self._versions.clear()
            self._exact.clear()


SESSION = Session()


def evaluate(values: Sequence[Value], device: str, options: Options = DEFAULT_OPTIONS) -> list[Buffer]:
    """The elements of top-level values on the named device. Raises what running them raises."""
    target = get_device(device)
    graph = extract(values)
    inputs = [_placed(leaf, target) for leaf in graph.inputs]
    if not graph.nodes:
        position = {v: i for i, v in enumerate(graph.inputs)}
        return [inputs[position[v]] for v in graph.outputs]
    executable, constants = SESSION.lookup(graph, target, options)
    return executable.run([*inputs, *constants])


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


def _constant_buffers(executable: Executable, constants: tuple[float, ...], device: Device) -> tuple[Buffer, ...]:
    types: Sequence[TensorType] = executable.input_types[len(executable.input_types) - len(constants) :]
    return tuple(
        [device.put(np.asarray(c, dtype=t.dtype.np), copy=False) for c, t in zip(constants, types, strict=True)]
    )
