"""What every device gives for a compiled graph: the interface, and what all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence

from loopgrad.graph.nodes import Leaf, Noted
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer, check_inputs
from loopgrad.runtime.plan import MemoryStats, Plan
from loopgrad.runtime.replay import DeviceReplay, Recording


class Executable(ABC):
    """A graph made ready for one device. Safe to call from several threads."""

    device: str
    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]

    @abstractmethod
    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The outputs for these inputs. Raises the errors of `graph.errors`, MemoryError, and
        whatever a host call raises; after any of them the next call works."""

    def showing(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Executable | None:
        """This executable, whose callers from now on see its memory as arrays of these types, each of as many bytes as
        before; None where buffers must be those of the program itself."""
        return None

    def expect(self, buffers: Sequence[Buffer]) -> None:
        """What `plan` and `text` are asked about next: a call with these inputs."""
        check_inputs(self.input_types, buffers, self.device)

    @abstractmethod
    def record(self, buffers: Sequence[Buffer]) -> Recording:
        """A device's own form of one call, to be submitted again and again."""

    @abstractmethod
    def plan(self) -> Plan:
        """Kernels, buffers and saved values; depths are those of the last run."""

    @abstractmethod
    def text(self, stage: str) -> str:
        """The program as text: `graph`, or one of the stages the device has."""

    @abstractmethod
    def explain(self) -> tuple[str, ...]:
        """Why it was compiled (or where it came from), and which fallbacks it holds."""

    @abstractmethod
    def memory_stats(self) -> MemoryStats:
        """Bytes held and peaks."""

    @property
    @abstractmethod
    def host_bytes(self) -> int:
        """About how much memory of the host it takes while nothing runs, without the graph."""

    def capture(self, buffers: Sequence[Buffer]) -> DeviceReplay:
        """Run once and keep what is needed to run again at the least cost."""
        check_inputs(self.input_types, buffers, self.device)
        return DeviceReplay(self.input_types, self.device, self.record(buffers))


class Outgrown(Exception):
    """A program that was to run without being compiled takes longer than that: nothing was computed."""


class CalledOften(Exception):
    """Values that are closed calls of one function are better computed together, before what reads them."""

    def __init__(self, values: list[Noted]) -> None:
        self.values = values


class DirectProgram(ABC):
    """A small graph that a device runs without compiling it, operation by operation, with the bits of compiled code.
    Safe to call from several threads."""

    work: int
    """About how many nanoseconds a run takes (where values decide, the last one took)."""
    shared: int = 0
    """How many of them a compiled program would take as well."""

    @property
    def lost(self) -> int:
        """How many nanoseconds of a run compiled code would save."""
        return max(self.work - self.shared, 0)

    @abstractmethod
    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """As `Executable.run`; raises Outgrown, too."""

    def with_numbers(self, numbers: Sequence[float | int]) -> DirectProgram | None:
        """The program of a graph with other numbers where `graph.lift` opens them; None where more depends on these."""
        return None

    @abstractmethod
    def explain(self) -> tuple[str, ...]:
        """As `Executable.explain`."""


class NotedProgram(ABC):
    """What gives the elements of a value that was noted at the top level, without a graph, with the bits of compiled
    code. It runs once.

    `computed`: the values on the way and that one, each with its place. `work`: about how many nanoseconds a run takes.
    `outline`: operations and how they are connected. `leaves`: what it reads; `starts`: those of values that were
    known.
    """

    leaves: Sequence[Leaf]
    starts: Sequence[Leaf]
    computed: Mapping[Noted, int]
    work: int
    outline: Hashable

    @abstractmethod
    def run(self, wanted: Sequence[Noted]) -> list[Buffer]:
        """The elements of some of the values."""
