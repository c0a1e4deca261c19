"""Programs of graphs that differ from earlier ones in extents alone.

The second time that a skeleton is scheduled, what differs is known, and it is scheduled once more with that left open
(`codegen.targets.cpu.open_program`): the artifacts of graphs that come after are filled in, for as long as all that was
decided comes out the same for them. Where something doesn't, they are scheduled, and opened, as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord
from loopgrad.graph.nodes import Graph
from loopgrad.graph.skeleton import Skeleton, outlined
from loopgrad.runtime.cpu.shared_code import SharedCode
from loopgrad.runtime.processes import child_safe_lock

if TYPE_CHECKING:
    from loopgrad.codegen.targets.cpu.open_program import OpenProgram

MOST_NODES: Final = 1000
"""Of a graph: what is remembered of long ones would take much memory."""

MOST_SKELETONS: Final = 256
MOST_SAMPLES: Final = 4
MOST_PROGRAMS: Final = 8  # of a skeleton; the one that wasn't used for longest goes
MOST_IN_VAIN: Final = 4
"""Programs of a skeleton that were opened for nothing: none came after that they are for."""

Made = Artifact[CpuProgramRecord]


class Outline(NamedTuple):
    """Of a graph that is to be compiled with these options."""

    key: tuple[Options, Skeleton]
    integers: tuple[int, ...]


class Sample(NamedTuple):
    """What scheduling gave for the integers of a graph: the record without its table, and a digest of the text."""

    integers: tuple[int, ...]
    program: CpuProgramRecord
    text: bytes


@dataclass(slots=True, eq=False)
class _Family:
    """What is known of a skeleton. `in_vain` counts the programs that no graph has used since they were opened."""

    samples: list[Sample] = field(default_factory=list)
    programs: list[OpenProgram] = field(default_factory=list)
    in_vain: int = 0


class OtherExtents:
    """What one device remembers. Safe to use from several threads. `make` gives artifacts without code."""

    def __init__(self, shared: SharedCode, make: Callable[[Graph, Options], Made]) -> None:
        self._shared = shared
        self._make = make
        self._families: OrderedDict[tuple[Options, Skeleton], _Family] = OrderedDict()
        self._lock = child_safe_lock()

    def outline(self, graph: Graph, options: Options) -> Outline | None:
        """What is looked up of a graph; None for a long one."""
        if len(graph.nodes) > MOST_NODES:
            return None
        skeleton, integers = outlined(graph)
        return Outline((options, skeleton), tuple(integers))

    def artifact(self, outline: Outline) -> Made | None:
        """The artifact of a graph, filled in; None where it has to be scheduled."""
        found = self.program(outline)
        return None if found is None else found[0].artifact(found[1])

    def program(self, outline: Outline) -> tuple[OpenProgram, list[Any]] | None:
        """What the artifact is filled in from, and its atoms."""
        with self._lock:
            family = self._families.get(outline.key)
            programs = () if family is None else (*family.programs,)
        for program in programs:
            atoms = program.atoms(outline.integers)
            if atoms is not None:
                assert family is not None
                with self._lock:
                    family.in_vain = 0
                    if program in family.programs and family.programs[0] is not program:
                        family.programs.remove(program)
                        family.programs.insert(0, program)
                return program, atoms
        return None

    def scheduled(self, outline: Outline, graph: Graph, made: Made) -> None:
        """Note what scheduling gave, and leave open what others of its skeleton differ in."""
        with self._lock:
            family = self._families.setdefault(outline.key, _Family())
            self._families.move_to_end(outline.key)
            while len(self._families) > MOST_SKELETONS:
                self._families.popitem(last=False)
            earlier = [sample for sample in family.samples if sample.integers != outline.integers]
            sample = sample_of(outline, made)
            family.samples = [*earlier, sample][-MOST_SAMPLES:]
            if not earlier or family.in_vain >= MOST_IN_VAIN:
                return
            family.in_vain += 1
        program = self._opened(outline, graph, sample, earlier)
        if program is not None:
            with self._lock:
                family.programs = [program, *family.programs][:MOST_PROGRAMS]

    def _opened(self, outline: Outline, graph: Graph, sample: Sample, earlier: list[Sample]) -> OpenProgram | None:
        from loopgrad.codegen.extents.variables import variables  # late: a warm cache needs no scheduler
        from loopgrad.codegen.targets.cpu.open_program import open_program  # late: as above

        found = variables([*[before.integers for before in earlier], outline.integers])
        if found is None:
            return None
        options, _ = outline.key
        try:
            program = open_program(
                graph, outline.integers, found, lambda recorded: self._make(recorded, options), self._shared.open_code
            )
        except Exception:  # somebody takes nothing but an int: that says nothing of the program, which was scheduled
            return None
        if program is None or not agrees(program, sample):
            return None
        others = [before for before in earlier if program.atoms(before.integers) is not None]
        return program if others and all(agrees(program, before) for before in others) else None


def sample_of(outline: Outline, made: Made) -> Sample:
    return Sample(outline.integers, replace(made.program, table=()), _digest(made.texts["llvm"]))


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=32).digest()


def agrees(program: OpenProgram, sample: Sample) -> bool:
    """Whether a program that was opened is for these integers what scheduling gave. Tables are of different codes."""
    atoms = program.atoms(sample.integers)
    if atoms is None:
        return False
    found = replace(program.artifact(atoms).program, table=())
    return found == sample.program and _digest(program.text(atoms)) == sample.text
