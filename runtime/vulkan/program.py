"""The metadata of a compiled Program as this runtime reads it (see codegen.targets.spirv.metadata)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loopgrad.codegen.targets.spirv.metadata import FORMAT
from loopgrad.graph.nodes import Location
from loopgrad.graph.types import TensorType, dtype_named

STRAIGHT: Final = ("launch", "copy", "matmul")
Step = Sequence[Any]


@dataclass(frozen=True, slots=True)
class SlotRecord:
    type: TensorType
    kind: str
    constant: int | None


@dataclass(frozen=True, slots=True)
class KernelStackRecord:
    name: str
    itemsize: int
    depth_param: int | None
    loc: Location | None


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    kind: str
    message: str
    loc: Location | None


@dataclass(frozen=True, slots=True)
class DispatchRecord:
    module: int
    lanes: int
    arrays: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class KernelRecord:
    name: str
    domain: tuple[int, ...]
    module: int
    lanes: int
    copies: int
    loops: bool
    params: int
    scratch: tuple[int, ...]
    own_scratch: int
    before: tuple[DispatchRecord, ...]
    after: tuple[DispatchRecord, ...]
    stacks: tuple[KernelStackRecord, ...]
    errors: tuple[ErrorRecord, ...]


@dataclass(frozen=True, slots=True)
class StackRecord:
    name: str
    type: TensorType
    loc: Location | None


@dataclass(frozen=True, slots=True)
class ResidualRecord:
    name: str
    type: TensorType
    formula: str
    reason: str
    place: str
    loc: Location | None


@dataclass(frozen=True, slots=True)
class ModuleRecord:
    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """`straight`: no step needs the host, so that one command buffer holds the program. `owned`: slots
    whose memory is their own, since they move, leave or are read by the host; `shadowed`: inputs and
    constants that are written, and so copied first."""

    slots: tuple[SlotRecord, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kernels: tuple[KernelRecord, ...]
    modules: tuple[ModuleRecord, ...]
    steps: tuple[Step, ...]
    stacks: tuple[StackRecord, ...]
    residuals: tuple[ResidualRecord, ...]
    notes: tuple[str, ...]
    straight: bool
    owned: frozenset[int]
    shadowed: tuple[int, ...]


def read_program(data: Mapping[str, Any]) -> ProgramRecord:
    """The record; ValueError or KeyError where the data was written by another version."""
    if data["format"] != FORMAT:
        raise ValueError(f"expected metadata of format {FORMAT}, got {data['format']!r}")
    slots = tuple(SlotRecord(_type(s["type"]), s["kind"], s["constant"]) for s in data["slots"])
    steps = tuple(data["steps"])
    every = list(_walk(steps))
    moved = {slot for step in every for slot in _moved(step)}
    read = {slot for step in every for slot in _read(step)}
    outputs = tuple(data["outputs"])
    kernels = tuple(_kernel(k) for k in data["kernels"])
    depths = {
        step[2][stack.depth_param]
        for step in every
        if step[0] == "launch"
        for stack in kernels[step[1]].stacks
        if stack.depth_param is not None
    }
    shadowed = tuple(sorted(slot for slot in moved if slots[slot].kind in ("input", "constant")))
    return ProgramRecord(
        slots=slots,
        inputs=tuple(data["inputs"]),
        outputs=outputs,
        kernels=kernels,
        modules=tuple(ModuleRecord(m["name"], m["offset"], m["size"]) for m in data["modules"]),
        steps=steps,
        stacks=tuple(StackRecord(s["name"], _type(s["type"]), _location(s["loc"])) for s in data["stacks"]),
        residuals=tuple(
            ResidualRecord(r["name"], _type(r["type"]), r["formula"], r["reason"], r["place"], _location(r["loc"]))
            for r in data["residuals"]
        ),
        notes=tuple(data["notes"]),
        straight=not shadowed and all(step[0] in STRAIGHT for step in steps),
        owned=frozenset({*outputs, *moved, *read, *depths}),
        shadowed=shadowed,
    )


def _walk(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        for block in _blocks(step):
            yield from _walk(block)


def _blocks(step: Step) -> tuple[Sequence[Step], ...]:
    match step[0]:
        case "for":
            return (step[3],)
        case "while":
            return (step[1], step[3])
        case "switch":
            return tuple(step[2])
        case _:
            return ()


def _moved(step: Step) -> tuple[int, ...]:
    """Slots that the step makes point elsewhere, or that the host writes."""
    match step[0]:
        case "for":
            return (step[2], *[slot for pair in step[4] for slot in pair])
        case "while":
            return tuple([slot for pair in step[4] for slot in pair])
        case "pop":
            return (step[2],)
        case "host":
            return tuple(step[3])
        case "copy":
            return (step[2],)
        case "launch":
            return tuple([initial[1] for initial in step[3]])
        case _:
            return ()


def _read(step: Step) -> tuple[int, ...]:
    """Slots that the host reads."""
    match step[0]:
        case "for" | "switch":
            return (step[1],)
        case "while" | "reserve":
            return (step[2],)
        case "host":
            return tuple(step[2])
        case _:
            return ()


def _kernel(data: Mapping[str, Any]) -> KernelRecord:
    return KernelRecord(
        name=data["name"],
        domain=tuple(data["domain"]),
        module=data["module"],
        lanes=data["lanes"],
        copies=data["copies"],
        loops=data["loops"],
        params=data["params"],
        scratch=tuple(data["scratch"]),
        own_scratch=data["own_scratch"],
        before=tuple(_dispatch(d) for d in data["before"]),
        after=tuple(_dispatch(d) for d in data["after"]),
        stacks=tuple(
            KernelStackRecord(s["name"], s["itemsize"], s["depth_param"], _location(s["loc"])) for s in data["stacks"]
        ),
        errors=tuple(ErrorRecord(e["kind"], e["message"], _location(e["loc"])) for e in data["errors"]),
    )


def _dispatch(data: Sequence[Any]) -> DispatchRecord:
    module, lanes, arrays = data
    return DispatchRecord(module, lanes, tuple((kind, position) for kind, position in arrays))


def _type(data: Sequence[Any]) -> TensorType:
    name, shape = data
    return TensorType(tuple(shape), dtype_named(name))


def _location(data: Sequence[Any] | None) -> Location | None:
    return None if data is None else Location(*data)
