"""The device that the processes of a mesh make up: a device of this process, and lanes that all share.

Arrays on it are replicated, or each process has lanes of them. A program is made for each combination of places of its
inputs (`graph.placement`), and runs on this process' device.

Circle: `runtime/devices.py` makes it when it is asked for, and says here what a device is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from loopgrad.codegen.options import Options
from loopgrad.codegen.program import RoutineRow
from loopgrad.graph.errors import LoopgradError, explained
from loopgrad.graph.key import key
from loopgrad.graph.nodes import Graph, Noted
from loopgrad.graph.placement.layout import ProcessPart
from loopgrad.graph.placement.partition import MeshPartition
from loopgrad.graph.placement.places import Place, Places
from loopgrad.graph.placement.program import new_partition, partitioned
from loopgrad.graph.placement.sums import resized
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.primitives.collectives import ENGINE
from loopgrad.graph.structure import LeafOf
from loopgrad.graph.types import DType, TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.executable import DirectProgram, Executable, Outgrown
from loopgrad.runtime.gpu.device import GpuDevice
from loopgrad.runtime.mesh.buffers import MeshBuffer, NumberBuffer, local_array
from loopgrad.runtime.mesh.collective_call import PURPOSE, CollectiveCall
from loopgrad.runtime.mesh.communicator import Communicator, Memory
from loopgrad.runtime.plan import MemoryStats, Plan
from loopgrad.runtime.processes import child_safe_lock
from loopgrad.runtime.replay import Recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopgrad.runtime.devices import Device

KIND: Final = "mesh"
PREFIX: Final = f"{KIND}:"
PLACEMENT: Final = "placement"
UNPLACED: Final = "not called yet: which process has which lanes isn't known"
MOST_LINES: Final = 3  # of the user's, in a program's title
MOST_NUMBERS: Final = 8
PLACING: Final = 30_000  # nanoseconds for which a node's part is worked out
Axes = tuple[int | None, ...]
T = TypeVar("T")


class MeshDevice:
    """`inner` is this process' own device."""

    kind = KIND
    reduces_shards = False  # a mesh of meshes there isn't

    def __init__(self, inner: Device, communicator: Communicator) -> None:
        self.name = PREFIX + inner.name
        self.inner = inner
        self._inner_name = inner.name
        self._meets = communicator.meets
        self.communicator = communicator
        self.part = ProcessPart(communicator.rank, communicator.size)
        host = "collectives go through the host's memory"
        self.memory: Memory | None = None
        self.way = ""  # how collectives go, where that isn't evident
        if isinstance(inner, GpuDevice) and communicator.meets:
            found = inner.collectives(communicator)
            self.memory = None if isinstance(found, str) else found
            self.way = f"{host}: {found}" if isinstance(found, str) else f"collectives by {found.name}, on the device"

    @property
    def overlaps(self) -> bool:
        """Whether collectives may be under way while this process computes."""
        return self.memory is not None or self.communicator.background is not None

    def put(self, array: np.ndarray[Any, Any], copy: bool = True) -> Buffer:
        local = self.inner.put(array, copy)
        if array.ndim:
            return MeshBuffer(local, self.name, local.type, None)
        return NumberBuffer(local, self.name, local.type, array.copy())

    def put_lanes(self, own: np.ndarray[Any, Any], n: int, axis: int = 0) -> MeshBuffer:
        """This process' lanes of an array of n along an axis."""
        local = self.inner.put(own, True)
        return MeshBuffer(local, self.name, TensorType(resized(local.type.shape, axis, n), local.type.dtype), axis)

    def taken(self, buffer: Buffer) -> Buffer | None:
        """What this process' device has, as an array that all processes have."""
        if buffer.device != self._inner_name:
            return None
        return MeshBuffer(buffer, self.name, buffer._type or buffer.type, None)

    @property
    def lent(self) -> Callable[[np.ndarray[Any, Any], TensorType], Buffer] | None:
        return None if self.inner.lent is None else self._lent

    def _lent(self, array: np.ndarray[Any, Any], type: TensorType) -> Buffer:
        """What all processes have, of memory that their devices read."""
        local = Buffer(array, self._inner_name, type)
        if type.shape or not self._meets:
            return MeshBuffer(local, self.name, type, None)
        return NumberBuffer(local, self.name, type, array)

    def get(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = local_array(buffer, self.inner.get)
        return found

    @contextmanager
    def together(self, purpose: bytes) -> Iterator[CollectiveCall]:
        """What all processes do at the same time: they wait for each other, and raise an error of one of them."""
        call = CollectiveCall(self.communicator, purpose.ljust(PURPOSE, b"\0"), lambda: f"lg.{purpose.decode()}")
        try:
            yield call
            call.wait(final=True)
        except Exception as error:
            call.failed(error)
            raise

    def tell(self, error: Exception, purpose: bytes, describe: Callable[[], str]) -> None:
        """The other processes, of what this one has failed with before it could meet them: they wait for it, or will,
        and raise that there. Where all know it already, or have failed themselves, nobody waits."""
        if self.communicator.meets and self.communicator.history.known is not error:
            CollectiveCall(self.communicator, purpose.ljust(PURPOSE, b"\0"), describe).failed(error)

    def adds_rows_alike(self, rows: int, terms: int, columns: int, dtype: DType) -> bool:
        return self.inner.adds_rows_alike(rows, terms, columns, dtype)

    def partition(self, options: Options) -> MeshPartition:
        """What places programs: new for each."""
        made = new_partition(self.part, options.fast_collectives, self.communicator.meets)
        swift = self.memory is not None
        return replace(
            made, rows_alike=self.inner.adds_rows_alike, overlaps=self.overlaps, swift=swift,
            reduces_shards=self.inner.reduces_shards,
        )  # fmt: skip

    def placed(self, graph: Graph, places: Places, partition: MeshPartition) -> tuple[Graph, Places, bool]:
        """As `partitioned`; what fails on this process alone raises on all."""
        try:
            return partitioned(graph, places, partition)
        except LoopgradError:
            raise  # on all processes
        except Exception as error:
            self.tell(error, b"placed", lambda: title_of(graph))
            raise

    def compile(self, graph: Graph, options: Options) -> Executable:
        return MeshExecutable(self, graph, options)

    def direct(self, graph: Graph, options: Options) -> DirectProgram:
        return MeshDirectProgram(self, graph, options)

    def noted(self, output: Noted, leaf_of: LeafOf, options: Options, together: bool) -> None:
        return None  # processes decide by the graph

    def is_fallible(self, graph: Graph, options: Options) -> bool:
        """Whether values may make a call raise on one process alone."""
        return self.communicator.meets and (options.check_indices or has_limits(graph))

    def memory_stats(self) -> MemoryStats:
        return self.inner.memory_stats()

    def finish(self) -> None:
        self.inner.finish()


@dataclass(frozen=True, slots=True)
class LocalProgram:
    """What this process runs for inputs at some places. `met`: it has collectives. `fallible`: values may make it
    raise, on one process alone, so all wait for each other when it is done. `given`: the axes of inputs' lanes;
    `axes`: of outputs'. `title`: what it is, for people."""

    executable: Executable
    inputs: Places
    outputs: Places
    types: tuple[TensorType, ...]
    digest: bytes
    met: bool
    fallible: bool
    given: list[int | None]
    axes: Axes
    notes: tuple[str, ...]
    title: str


class MeshDirectProgram(DirectProgram):
    """A graph over whole arrays that this process' device may run without compiling its part: where nobody meets."""

    def __init__(self, device: MeshDevice, graph: Graph, options: Options) -> None:
        self._mesh = device
        self._graph = graph
        self._options = options
        self._programs: dict[Axes, tuple[DirectProgram, Places]] = {}
        self.work = PLACING * len(graph.nodes)

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        axes = tuple([b.axis for b in buffers])  # type: ignore[attr-defined]
        known = self._programs.get(axes)
        if known is None:
            known = self._programs[axes] = self._made(axes)
        program, places = known
        own = program.run([b.local for b in buffers])  # type: ignore[attr-defined]
        self.work, self.shared = program.work, program.shared
        types = [t for t in self._graph.output_types if isinstance(t, TensorType)]
        name = self._mesh.name
        return [MeshBuffer(b, name, type, p.axis) for b, type, p in zip(own, types, places, strict=True)]

    def explain(self) -> tuple[str, ...]:
        found = [program.explain() for program, _ in list(self._programs.values())]
        return found[-1] if found else (UNPLACED,)

    def _made(self, axes: Axes) -> tuple[DirectProgram, Places]:
        """The own part. Outgrown where it has to be compiled."""
        mesh, places = self._mesh, tuple([Place(axis) for axis in axes])
        graph, found, met = mesh.placed(self._graph, places, mesh.partition(self._options))
        waits = met or mesh.is_fallible(self._graph, self._options)
        program = None if waits else mesh.inner.direct(graph, self._options)
        if program is None:
            raise Outgrown
        return program, found


class MeshExecutable(Executable):
    """A graph over whole arrays: a program of this process for each combination of places of its inputs."""

    def __init__(self, device: MeshDevice, graph: Graph, options: Options) -> None:
        self.device = device.name
        self._mesh = device
        self._graph = graph
        self._options = options
        self.input_types = tuple([t for t in graph.input_types if isinstance(t, TensorType)])
        self.output_types = tuple([t for t in graph.output_types if isinstance(t, TensorType)])
        self._programs: dict[Axes, LocalProgram] = {}
        self._latest: LocalProgram | None = None
        self._lock = child_safe_lock()

    # ---- running

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        program = self._latest
        if program is None or program.given != [b.axis for b in buffers]:  # type: ignore[attr-defined]
            program = self.program(buffers, called=True)
        own = [b.local for b in buffers]  # type: ignore[attr-defined]
        if program.met or program.fallible:
            call = self.begun(program, numbers_of(buffers))
            results = self.within(call, program.executable.run, own)
            if program.fallible:
                call.wait(final=True)
        else:
            results = program.executable.run(own)
        return self.shared(program, results)

    def begun(self, program: LocalProgram, numbers: Sequence[Any]) -> CollectiveCall:
        """A call of all processes, which must have given the same numbers."""
        mesh, title, asked = self._mesh, program.title, program.digest
        if numbers:
            asked = blake2b(b"".join([asked, *[n.tobytes() for n in numbers]]), digest_size=PURPOSE).digest()
        describe = lambda: with_numbers(title, numbers)  # noqa: E731
        return CollectiveCall(mesh.communicator, asked, describe, mesh.memory, program.fallible)

    def within(self, call: CollectiveCall, do: Callable[..., T], *given: Any) -> T:
        """What `do` gives. Inside, collectives reach the other processes; they are told of an error."""
        before = ENGINE.set(call)
        try:
            return do(*given)
        except Exception as error:
            call.failed(error)
            raise
        finally:
            ENGINE.reset(before)

    def shared(self, program: LocalProgram, own: Sequence[Buffer]) -> list[Buffer]:
        """The results of this process as arrays of the mesh."""
        return list(map(MeshBuffer, own, repeat(self.device), program.types, program.axes))  # a token is left out

    def expect(self, buffers: Sequence[Buffer]) -> None:
        self.program(buffers)

    def program(self, buffers: Sequence[Buffer], called: bool = False) -> LocalProgram:
        """The program for inputs where these are; it is the latest then. `called`: it is made for a call of all
        processes, who are told where this one can't make it."""
        axes = tuple([b.axis for b in buffers])  # type: ignore[attr-defined]
        program = self._programs.get(axes)
        if program is None:
            with self._lock:
                program = self._programs.get(axes) or self._made(axes, called)
                self._programs[axes] = program
        self._latest = program
        return program

    def _made(self, axes: Axes, called: bool) -> LocalProgram:
        mesh, places = self._mesh, tuple([Place(axis) for axis in axes])
        partition = mesh.partition(self._options)
        graph, found, met = mesh.placed(self._graph, places, partition)
        fallible = mesh.is_fallible(self._graph, self._options)
        parts = (key(self._graph, with_locations=False), repr(axes).encode(), self._options.key().encode())
        digest = blake2b(b"\0".join(parts), digest_size=8).digest()
        title = title_of(self._graph)
        try:
            executable = mesh.inner.compile(graph, self._options)
        except Exception as error:
            if called and (met or fallible):
                mesh.tell(error, digest, lambda: title)
            raise
        notes = tuple(partition.notes)
        types, lanes = self.output_types, tuple([p.axis for p in found])
        return LocalProgram(executable, places, found, types, digest, met, fallible, list(axes), lanes, notes, title)

    def record(self, buffers: Sequence[Buffer]) -> Recording:
        return MeshRecording(self, buffers)

    # ---- looking inside

    def plan(self) -> Plan:
        plan = self._called().executable.plan()
        routines = tuple([self._told(row) for row in plan.routines])
        return replace(plan, device=self.device, notes=(*self.notes(), *plan.notes), routines=routines)

    def _told(self, row: RoutineRow) -> RoutineRow:
        """Collectives are the engine's, whoever does what else a device hasn't kernels for."""
        if row.name not in PRIMITIVES or not PRIMITIVES[row.name].collective:
            return row
        memory, engine = self._mesh.memory, self._mesh.communicator.name
        provider = f"{engine}, in the host's memory" if memory is None else f"{memory.name}, in the device's memory"
        return replace(row, provider=provider, reason="")

    def text(self, stage: str) -> str:
        if stage == PLACEMENT:
            return self._placement()
        return self._called().executable.text(stage)

    def explain(self) -> tuple[str, ...]:
        if self._latest is None:
            return (UNPLACED,)
        return (*self.notes(), *self._latest.executable.explain())

    def notes(self) -> tuple[str, ...]:
        """Where inputs and results are, and how processes meet."""
        program, mesh = self._called(), self._mesh
        part, size = mesh.part, mesh.part.size
        notes = [f"process {part.rank} of {size}, by {mesh.communicator.name}"]
        for what, types, places in (
            ("input", self.input_types, program.inputs),
            ("result", self.output_types, program.outputs),
        ):
            for i, (type, place) in enumerate(zip(types, places, strict=True)):
                if place.axis is not None:
                    own = part.lanes(type.shape[place.axis])
                    notes.append(f"{what} {i}: {place} {own.start}:{own.stop} of {type}")
        if program.met and mesh.way:
            notes.append(mesh.way)
        return (*notes, *program.notes)

    def memory_stats(self) -> MemoryStats:
        return self._called().executable.memory_stats()

    @property
    def host_bytes(self) -> int:
        return sum([program.executable.host_bytes for program in list(self._programs.values())])

    def _called(self) -> LocalProgram:
        if self._latest is None:
            fix = "call it, or pass arguments"
            raise ValueError(explained("mesh", "a program whose arguments were seen", "no call yet", fix))
        return self._latest

    def _placement(self) -> str:
        """The graph over whole arrays, with the place of each input and result of a node."""
        program = self._called()
        found = self._mesh.partition(self._options).analysis.of(self._graph, program.inputs)
        lines = [f"%{i}: {v.type}  {found[v]}" for i, v in enumerate(self._graph.inputs)]
        for node in self._graph.nodes:
            results = ", ".join(f"{r.type} {found[r]}" for r in node.results)
            lines.append(f"{node.op}: {results}  # {node.loc}")
        return "\n".join(lines)


def title_of(graph: Graph) -> str:
    """A program, for people who look for the one that they called."""
    lines = dict.fromkeys(str(v.node.loc) for v in graph.outputs if v.node is not None and v.node.loc)
    types = ", ".join(str(t) for t in graph.output_types)
    made = f", which {', '.join(list(lines)[:MOST_LINES])} made" if lines else ""
    return f"a program of {len(graph.nodes)} operations that gives {types}{made}"


def numbers_of(buffers: Sequence[Buffer]) -> list[Any]:
    """Those that the script gave."""
    return [b.number for b in buffers if b.number is not None]  # type: ignore[attr-defined]


def with_numbers(title: str, numbers: Sequence[Any]) -> str:
    return f"{title}, for the numbers {', '.join(map(str, numbers[:MOST_NUMBERS]))}" if numbers else title


def has_limits(graph: Graph) -> bool:
    """Whether a loop may raise that it took too many steps."""
    return any(
        node.attrs.get("max_steps") is not None or any(has_limits(region) for region in node.regions)
        for node in graph.nodes
    )


class MeshRecording(Recording):
    """A recorded call of this process' program; other processes submit theirs at the same time."""

    def __init__(self, executable: MeshExecutable, buffers: Sequence[Buffer]) -> None:
        self._executable = executable
        self._program = executable.program(buffers, called=True)
        self._places = [p.axis for p in self._program.inputs]
        self._numbers = numbers_of(buffers)
        self._call = executable.begun(self._program, self._numbers)
        self._inner: Recording = self._within(lambda: self._program.executable.record(self._own(buffers)))
        self._close()

    def _own(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        axes = [b.axis for b in buffers]  # type: ignore[attr-defined]
        if axes != self._places:
            fix = "capture again for these"
            raise ValueError(explained("replay", f"lanes along the axes {self._places}", axes, fix))
        return [b.local for b in buffers]  # type: ignore[attr-defined]

    def _within(self, do: Callable[[], T]) -> T:
        if not (self._program.met or self._program.fallible):
            return do()
        return self._executable.within(self._call, do)

    def _close(self) -> None:
        if self._program.fallible:
            self._call.wait(final=True)

    def bind(self, buffers: Sequence[Buffer]) -> None:
        self._inner.bind(self._own(buffers))
        self._numbers = numbers_of(buffers)

    def submit(self) -> None:
        self._call = self._executable.begun(self._program, self._numbers)
        self._within(self._inner.submit)

    def settle(self) -> bool:
        done = self._within(self._inner.settle)
        if done:
            self._close()
        return done

    def outputs(self) -> list[Buffer]:
        return self._executable.shared(self._program, self._inner.outputs())

    def growths(self) -> int:
        return self._inner.growths()
