"""The metadata of a compiled Program as this runtime reads it (see codegen.targets.gpu.metadata)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loopgrad.codegen.targets.gpu.interface import FORMAT
from loopgrad.graph.nodes import Location
from loopgrad.runtime.records import (
    ErrorRecord,
    ResidualRecord,
    SlotRecord,
    StackRecord,
    check_format,
    read_errors,
    read_location,
    read_residuals,
    read_slots,
    read_type,
)

STRAIGHT: Final = ("launch", "copy", "matmul")
Step = Sequence[Any]


@dataclass(frozen=True, slots=True)
class KernelStackRecord:
    name: str
    itemsize: int
    depth_param: int | None
    loc: Location | None
    residual: int


@dataclass(frozen=True, slots=True)
class DispatchRecord:
    module: int
    lanes: int
    arrays: tuple[tuple[str, int], ...]
    tiles: int


@dataclass(frozen=True, slots=True)
class KernelRecord:
    name: str
    domain: tuple[int, ...]
    module: int
    lanes: int
    tiles: int
    copies: int
    rows: int
    loops: bool
    params: int
    scratch: tuple[int, ...]
    own_scratch: int
    before: tuple[DispatchRecord, ...]
    after: tuple[DispatchRecord, ...]
    stacks: tuple[KernelStackRecord, ...]
    errors: tuple[ErrorRecord, ...]
    launches: int


@dataclass(frozen=True, slots=True)
class ModuleRecord:
    """Function `entry` of the image `code[offset : offset + size]`, made for workgroups of `group`."""

    name: str
    offset: int
    size: int
    entry: str
    group: int
    shared: int


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """`straight`: launches one after the other, so that one list of commands holds the program; `recordable`: no
    step needs the host, but for loops and branches; `moving`: slots that steps make point elsewhere. `arena`:
    (slot, offset) of the temporaries without memory of their own; `scratch[kernel]`: the offsets of its blocks.
    `shadowed`: inputs and constants that are written, and so copied first; `kept`: slots whose memory becomes
    another slot's, or that anything but a loop's counting writes; `kernel_stacks`: some kernel has stacks."""

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
    recordable: bool
    moving: frozenset[int]
    arena_size: int
    arena: tuple[tuple[int, int], ...]
    scratch: tuple[tuple[int, ...], ...]
    shadowed: tuple[int, ...]
    kept: frozenset[int]
    kernel_stacks: bool


def read_program(data: Mapping[str, Any]) -> ProgramRecord:
    """The record; ValueError or KeyError where the data was written by another version."""
    check_format(data, FORMAT)
    slots = read_slots(data["slots"])
    steps = tuple(data["steps"])
    every = list(walk(steps))
    moved = {slot for step in every for slot in _moved(step)}
    outputs = tuple(data["outputs"])
    kernels = tuple(_kernel(k) for k in data["kernels"])
    shadowed = tuple(sorted(slot for slot in moved if slots[slot].kind in ("input", "constant")))
    continued = any(kernel.rows for kernel in kernels)
    return ProgramRecord(
        slots=slots,
        inputs=tuple(data["inputs"]),
        outputs=outputs,
        kernels=kernels,
        modules=tuple(ModuleRecord(**m) for m in data["modules"]),
        steps=steps,
        stacks=tuple(
            StackRecord(s["name"], read_type(s["type"]), read_location(s["loc"]), s["residual"]) for s in data["stacks"]
        ),
        residuals=read_residuals(data["residuals"]),
        notes=tuple(data["notes"]),
        recordable=not continued and _recordable(steps, outputs),
        moving=frozenset(moved),
        straight=not continued and not shadowed and all(step[0] in STRAIGHT for step in steps),
        arena_size=data["arena"]["size"],
        arena=tuple((slot, offset) for slot, offset in data["arena"]["slots"]),
        scratch=tuple(tuple(offsets) for offsets in data["arena"]["scratch"]),
        shadowed=shadowed,
        kept=frozenset([slot for step in every for slot in (_rotated(step) if step[0] == "for" else _moved(step))]),
        kernel_stacks=any(kernel.stacks for kernel in kernels),
    )


def _recordable(steps: Sequence[Step], outputs: Sequence[int]) -> bool:
    """No step needs the host, and no result lies in a stack."""
    every = list(walk(steps))
    popped = {step[2] for step in every if step[0] == "pop"}
    return not popped.intersection(outputs) and all(step[0] != "host" for step in every)


def walk(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps and those inside of them."""
    for step in steps:
        yield step
        for block in blocks(step):
            yield from walk(block)


def blocks(step: Step) -> tuple[Sequence[Step], ...]:
    """The steps inside a loop or a branch."""
    match step[0]:
        case "for":
            return (step[3],)
        case "while":
            return (step[1], step[3])
        case "switch":
            return tuple(step[2])
        case _:
            return ()


def _rotated(step: Step) -> tuple[int, ...]:
    """Slots that swap their memory after each pass of a loop."""
    return tuple([slot for pair in step[4] for slot in pair])


def _moved(step: Step) -> tuple[int, ...]:
    """Slots that the step makes point elsewhere, or that the host writes."""
    match step[0]:
        case "for":
            return (step[2], *_rotated(step))
        case "while":
            return _rotated(step)
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


def _kernel(data: Mapping[str, Any]) -> KernelRecord:
    return KernelRecord(
        name=data["name"],
        domain=tuple(data["domain"]),
        module=data["module"],
        lanes=data["lanes"],
        tiles=data["tiles"],
        copies=data["copies"],
        rows=data["rows"],
        loops=data["loops"],
        params=data["params"],
        scratch=tuple(data["scratch"]),
        own_scratch=data["own_scratch"],
        before=tuple(_dispatch(d) for d in data["before"]),
        after=tuple(_dispatch(d) for d in data["after"]),
        stacks=tuple(
            KernelStackRecord(s["name"], s["itemsize"], s["depth_param"], read_location(s["loc"]), s["residual"])
            for s in data["stacks"]
        ),
        errors=read_errors(data["errors"]),
        launches=data["launches"],
    )


def _dispatch(data: Sequence[Any]) -> DispatchRecord:
    module, lanes, arrays, tiles = data
    return DispatchRecord(module, lanes, tuple((kind, position) for kind, position in arrays), tiles)
