"""From lazy values to elements: extract, recognise, compile once, run.

Programs are recognised by structure. A small one that is new runs directly, without being compiled, where the device
can do that; so do its repetitions until they took about as long as compiling takes. A script with a thousand shapes
compiles none of them, and one with a long loop what the loop repeats.

The first time a structure is seen its numbers are compiled in; when
the same structure comes back with others (a learning rate that decays, a step number, a row x[i]), a version
is compiled that takes them as inputs, and serves every later one. Integers, which index arithmetic lives on,
become inputs only where they were seen to differ, and not the first time: a script may have two cases.

Which numbers are inputs can show in the last bit of a result (x**3.0 is a product where 3.0 is in the code). So what
was decided for a structure outlives its programs: one that had to leave memory is compiled again as it was. What a
process computes, and which programs the processes of a mesh have in common, doesn't depend on memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from loopgrad.codegen.options import DEFAULT_OPTIONS, Options
from loopgrad.graph.build import unbound
from loopgrad.graph.closed_calls import operations
from loopgrad.graph.extract import extract
from loopgrad.graph.key import abstract_key
from loopgrad.graph.lift import lift
from loopgrad.graph.nodes import Graph, Leaf, Value
from loopgrad.graph.structure import MOST_NODES, Numbers, Words, digest, outline, structure
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.complex_arrays import compiled, direct
from loopgrad.runtime.devices import Device, get_device
from loopgrad.runtime.executable import DirectProgram, Executable, Outgrown
from loopgrad.runtime.processes import child_safe_lock
from loopgrad.runtime.program_memory import PROGRAMS, graph_bytes
from loopgrad.runtime.rare_collection import RARE_COLLECTION

LONG_ENTRIES: Final = 1024

DECIDED: Final = 1 << 16  # structures whose programs have left memory, of which is known what was decided

ENTRY_BYTES: Final = 1 << 12  # of a structure that runs directly, beside its graph

EXACT_VERSIONS: Final = 2

NEVER_DIRECT: Final = 1 << 62  # nanoseconds
COMPILING: Final = 20_000_000, 300_000
"""Nanoseconds that compiling takes, about: a program, and a node of it."""
PLANNING: Final = 20_000
"""The same of planning a node of a program, which is done for each run of a long one as long as that isn't compiled,
and for other numbers where plans depend on these."""

Key = tuple[str, Options, Words | bytes]
"""Device, options, and the structure: words, or the digest of a graph that has none."""


@dataclass(slots=True)
class Decisions:
    """How the calls of one structure so far run their later ones. `constants`: the first numbers; `exact`: those that
    have a program with their numbers in the code; `lifted`: the slots that are inputs of the general one, the others
    being as in `constants`, where there is one. `spent`: nanoseconds that programs ran directly; `varied`: with several
    numbers."""

    constants: Numbers
    exact: set[Numbers] = field(default_factory=set)
    lifted: frozenset[int] | None = None
    spent: int = 0
    varied: bool = False

    def differing(self, constants: Numbers) -> frozenset[int]:
        """The slots that aren't as in the first program."""
        return frozenset([i for i, (a, b) in enumerate(zip(self.constants, constants, strict=True)) if a != b])

    def compiles(self, constants: Numbers) -> bool:
        """Whether these numbers have a program of their own, or are to have one: the first, and another one where
        integers differ."""
        if constants in self.exact:
            return True
        if not self.exact and not self.varied:
            return True
        integers = any(isinstance(constants[i], int) for i in self.differing(constants))
        return self.lifted is None and integers and len(self.exact) < EXACT_VERSIONS


@dataclass(slots=True, eq=False, weakref_slot=True)
class Versions:
    """What is compiled for one structure, as was `decided`: `exact` programs by their numbers, and a `general` one.
    Before anything is compiled, `direct` ran last, with the numbers beside it. `forget` takes the structure out of the
    session, `used` as of runtime.program_memory."""

    decided: Decisions
    forget: Callable[[], None]
    used: bool = False
    exact: dict[Numbers, Executable] = field(default_factory=dict)
    general: Executable | None = None
    direct: tuple[Numbers, DirectProgram] | None = None
    lock: Any = field(default_factory=child_safe_lock)  # held while this structure is compiled

    def with_numbers(self, constants: Numbers) -> DirectProgram | None:
        """The program that ran directly, with these numbers, where it can take others."""
        if self.direct is None or self.direct[0] == constants:
            return None if self.direct is None else self.direct[1]
        program = self.direct[1].with_numbers(constants)
        if program is not None:
            self.decided.varied = True
        return program

    def known(self, constants: Numbers, nodes: int) -> Executable | DirectProgram | None:
        """The program of so many nodes that is compiled for these numbers, or ran directly with them the last time and
        does once more; None where more is to be looked at. (Threads that count at once may lose one of their runs.)"""
        executable = self.exact.get(constants)
        if executable is not None:
            self.used = True
            return executable
        decided, direct = self.decided, self.direct
        if direct is None or direct[0] != constants or decided.exact or decided.lifted is not None:
            return None
        if _worth_compiling(decided.spent, nodes):
            return None
        self.used = True
        decided.spent += direct[1].lost
        return direct[1]


class Session:
    """The in-memory cache; what has to leave, `PROGRAMS` says. Threads that need different programs compile side by
    side: what they share is locked for moments only, inside the lock of a structure or without one."""

    def __init__(self) -> None:
        self._versions: dict[Key, Versions] = {}
        self._left: OrderedDict[tuple[str, Options, bytes], Decisions] = OrderedDict()  # of what has left memory
        self._long: dict[int, int] = {}  # nanoseconds that long programs have run directly, by a hash
        self._lock = child_safe_lock()
        self.compiled = 0

    def lookup(
        self, graph: Graph, device: Device, options: Options, outgrown: bool = False
    ) -> tuple[Executable | DirectProgram, tuple[Buffer, ...]]:
        """What runs this graph, compiled at most once (at once if it is `outgrown`), and the inputs it takes at the
        end."""
        if len(graph.nodes) > MOST_NODES and options.direct:
            long = self._long_direct(graph, device, options, outgrown)
            if long is not None:
                return long, ()
        versions, constants = self.found(graph, device, options)
        executable = versions.exact.get(constants)
        if executable is not None:
            versions.used = True
            return executable, ()
        if outgrown:
            self.outgrew(versions)
        with versions.lock:
            decided = versions.decided
            program = _direct(versions, graph, constants, device, options)
            if program is not None:
                versions.used = decided.spent > program.lost
                return program, ()
            if constants not in versions.exact and decided.compiles(constants):
                versions.exact[constants] = self._compile(versions, graph, device, options)
                decided.exact.add(constants)
            if constants in versions.exact:
                return versions.exact[constants], ()
            versions.used = True
            executable, lifted = self._general(versions, graph, constants, device, options)
            inputs = [constants[i] for i in sorted(lifted)]
        return executable, _constant_buffers(executable, inputs, device)

    def ready(
        self, versions: Versions, constants: Numbers, nodes: int, device: Device, options: Options
    ) -> tuple[Executable | DirectProgram, tuple[Buffer, ...]] | None:
        """As `lookup`, of a structure with so many nodes that was found before; None where its graph is needed."""
        program = versions.known(constants, nodes)
        if program is not None:
            return program, ()
        with versions.lock:
            decided = versions.decided
            if options.direct and versions.direct is not None and not decided.exact and decided.lifted is None:
                program = None if _worth_compiling(decided.spent, nodes) else versions.with_numbers(constants)
                if program is None:
                    return None
                versions.used = True
                decided.spent += program.lost
                return program, ()
            general, lifted = versions.general, decided.lifted
            if general is None or lifted is None or constants in decided.exact:
                return None
            if not decided.differing(constants) <= lifted:
                return None
            versions.used = True
            executable, inputs = general, [constants[i] for i in sorted(lifted)]
        return executable, _constant_buffers(executable, inputs, device)

    def outgrew(self, versions: Versions) -> None:
        """What is compiled for one structure no longer runs directly."""
        versions.decided.spent = NEVER_DIRECT

    def _long_direct(
        self, graph: Graph, device: Device, options: Options, outgrown: bool
    ) -> DirectProgram | None:  # fmt: skip
        """As `_direct`, for graphs whose words would take much memory, and whose digest much time. Two that share a
        hash are compiled sooner."""
        shape = outline(graph)
        if shape is None:
            return None
        place = hash((device.name, options, shape))
        if outgrown:
            self._long[place] = NEVER_DIRECT
        spent = self._long.get(place, 0)
        nodes = operations(graph)
        program = None if _worth_compiling(spent, nodes) else direct(device, graph, options)
        work = 0 if program is None else program.lost + PLANNING * nodes
        if program is not None and self.runs_once_more(place, work, nodes):
            return program
        return None

    def runs_once_more(self, place: int | None, work: int, nodes: int) -> bool:
        """Whether a program runs directly, which is counted where it is known by a hash."""
        spent = 0 if place is None else self._long.get(place, 0)
        if place is None or _worth_compiling(max(spent, work), nodes):
            return not _worth_compiling(max(spent, work), nodes)
        with self._lock:
            if len(self._long) >= LONG_ENTRIES:
                self._long.clear()
            self._long[place] = spent + work
        return True

    def found(self, graph: Graph, device: Device, options: Options) -> tuple[Versions, Numbers]:
        """What is known of a graph's structure, and its own numbers."""
        place: Words | bytes
        found = structure(graph)
        if found is not None:
            place, constants = found if len(graph.nodes) <= MOST_NODES else (digest(found[0]), found[1])
        else:
            place, constants, _ = abstract_key(graph)
        key = (device.name, options, place)
        versions = self._versions.get(key)
        return (self._entry(key, constants, graph) if versions is None else versions), constants

    def _general(
        self, versions: Versions, graph: Graph, constants: Numbers, device: Device, options: Options
    ) -> tuple[Executable, frozenset[int]]:
        """The version that takes what differs as inputs, and which slots these are; another one where more differs than
        so far."""
        decided = versions.decided
        differing, lifted = decided.differing(constants), decided.lifted
        if versions.general is None or lifted is None or not differing <= lifted:
            if lifted is None or not differing <= lifted:
                floats = [i for i, number in enumerate(constants) if isinstance(number, float)]
                lifted = differing.union(lifted or (), floats)
            versions.general = self._compile(versions, lift(graph, lifted)[0], device, options)
            decided.lifted = lifted
        return versions.general, lifted

    @RARE_COLLECTION
    def _compile(self, versions: Versions, graph: Graph, device: Device, options: Options) -> Executable:
        with self._lock:
            self.compiled += 1
        executable = compiled(device, unbound(graph), options)
        PROGRAMS.add(versions, executable.host_bytes + graph_bytes(graph))
        return executable

    def _entry(self, key: Key, constants: Numbers, graph: Graph) -> Versions:
        """What is known of a structure; the first to ask makes the entry."""
        with self._lock:
            versions = self._versions.get(key)
            if versions is not None:
                return versions
            decided = self._left.pop(_left_key(key), None) if self._left else None
            made = Versions(decided or Decisions(constants), lambda: self._forget(key))
            versions = self._versions[key] = made
        PROGRAMS.add(versions, ENTRY_BYTES + graph_bytes(graph))
        return versions

    def _forget(self, key: Key) -> None:
        """Its programs. Of a structure without numbers nothing was decided that shows."""
        with self._lock:
            versions = self._versions.pop(key, None)
            if versions is not None and versions.decided.constants:
                self._left[_left_key(key)] = versions.decided
                if len(self._left) > DECIDED:
                    self._left.popitem(last=False)

    def clear(self) -> None:
        """Forget every compiled graph."""
        with self._lock:
            self._versions.clear()
            self._left.clear()
            self._long.clear()


SESSION = Session()


def _left_key(key: Key) -> tuple[str, Options, bytes]:
    """The key, in few bytes."""
    device, options, place = key
    return device, options, place if isinstance(place, bytes) else digest(place)


def _direct(
    versions: Versions, graph: Graph, constants: Numbers, device: Device, options: Options
) -> DirectProgram | None:
    """The program that runs without being compiled, as long as that pays."""
    decided = versions.decided
    if not options.direct or decided.exact or decided.lifted is not None or len(graph.nodes) > MOST_NODES:
        return None
    nodes = operations(graph)
    if _worth_compiling(decided.spent, nodes):
        return None
    program = versions.with_numbers(constants)
    if program is None:
        program = direct(device, graph, options)
        if program is None or _worth_compiling(program.lost, nodes):
            return None
        decided.varied = decided.varied or constants != decided.constants
        if versions.direct is not None:
            decided.spent += PLANNING * nodes  # which each run with other numbers takes
        versions.direct = constants, program
    decided.spent += program.lost
    return program


def _worth_compiling(spent: int, nodes: int) -> bool:
    """Whether a program has run directly for as long as compiling it takes."""
    each, per_node = COMPILING
    return spent > each + per_node * nodes


def explained(graph: Graph, device: str, options: Options = DEFAULT_OPTIONS) -> tuple[str, ...]:
    """How an evaluation would run this graph, and why; compiles where that would be done."""
    if not graph.nodes:
        return ("has its elements: there is nothing to compute",)
    target = get_device(device)
    program = SESSION.lookup(graph, target, options)[0]
    if isinstance(program, Executable):
        return program.explain()
    if not program.lost:
        return *program.explain(), "isn't compiled however often it comes: code would save none of that"
    each, per_node = COMPILING
    compiling = (each + per_node * operations(graph)) / 1e6
    return *program.explain(), f"is compiled once it has run for about {compiling:.0f} ms"


def evaluate(values: Sequence[Value], device: str, options: Options = DEFAULT_OPTIONS) -> list[Buffer]:
    """The elements of top-level values on the named device. Raises what running them raises."""
    graph = extract(values)
    return evaluate_graph(graph, graph.inputs, device, options)


def evaluate_graph(
    graph: Graph, leaves: Sequence[Value], device: str, options: Options = DEFAULT_OPTIONS
) -> list[Buffer]:
    """The elements of the outputs of a graph whose inputs are those leaves, as above."""
    target = get_device(device)
    name = target.name
    inputs = [b if isinstance(v, Leaf) and (b := v.buffer).device == name else placed(v, target) for v in leaves]
    if not graph.nodes:
        position = {v: i for i, v in enumerate(graph.inputs)}
        return [inputs[position[v]] for v in graph.outputs]
    executable, constants = SESSION.lookup(graph, target, options)
    try:
        return executable.run([*inputs, *constants] if constants else inputs)
    except Outgrown:
        executable, constants = SESSION.lookup(graph, target, options, outgrown=True)
        return executable.run([*inputs, *constants])


def placed(leaf: Value, device: Device) -> Buffer:
    """The leaf's buffer, copied to `device` where it lives elsewhere."""
    if not isinstance(leaf, Leaf):
        raise TypeError(
            f"expected values that depend on arrays only, got one that depends on an argument ({leaf.type}) of a "
            "function being traced; return it from that function instead of evaluating it there"
        )
    buffer: Buffer = leaf.buffer
    return buffer if buffer.device == device.name else move(buffer, device)


def move(buffer: Buffer, device: Device) -> Buffer:
    """The buffer on another device: a copy, where that needs one."""
    if buffer.device == device.name:
        return buffer
    taken = device.taken(buffer)
    return device.put(get_device(buffer.device).get(buffer), copy=False) if taken is None else taken


def _constant_buffers(executable: Executable, constants: Sequence[float | int], device: Device) -> tuple[Buffer, ...]:
    types: Sequence[TensorType] = executable.input_types[len(executable.input_types) - len(constants) :]
    if all(t.dtype.kind in "iu" for t in types):
        arrays = [np.array(c, t.dtype.np) for c, t in zip(constants, types, strict=True)]
    else:
        with np.errstate(over="ignore"):  # a number beyond the type's range is infinity, as in kernels
            arrays = [np.array(c, t.dtype.np) for c, t in zip(constants, types, strict=True)]
    return tuple([device.put(a, copy=False) for a in arrays])
