"""The largest elements of rows, without sorting all of a row: those of each chunk, then the largest of these.

A workgroup looks for a few in its chunk (largest_of_chunk), or, for more, sorts it. That leaves candidates, whose
chunks are gone through in turn, until one is left. Candidates keep the order of their chunks, and sorts are stable, so
of equal elements the first come first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.targets.gpu.routines import radix_sort
from loopgrad.codegen.targets.gpu.routines.elements import held_type
from loopgrad.codegen.targets.gpu.routines.largest_of_chunk import LargestOfChunk, memory
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine
from loopgrad.codegen.targets.gpu.routines.sort_rows import FEW_TILES, FEWEST_HELD, SortRows, fitting, most_held
from loopgrad.graph.types import int32, int64, uint32, uint64

MOST_EACH: Final = 32  # elements of an invocation that looks for a few, of 4 bytes; half as many of 8
FEWEST_EACH: Final = 4
SHORTEST: Final = 4  # elements of a row for each invocation
MORE: Final = 4  # invocations than elements that are looked for


def _count(routine: Routine) -> int:
    return routine.outputs[0].type.shape[-1]


def _chunk(routine: Routine) -> int:
    """Elements of an invocation: as many as it can hold, or fewer where that makes enough chunks."""
    source, group = routine.inputs[0].type, routine.group
    each = most_held(source.dtype, group, routine.memory)
    while each > FEWEST_HELD and source.size < FEW_TILES * group * each and 8 * _count(routine) <= group * each:
        each //= 2
    return each


def _refuses(routine: Routine) -> str:
    source = routine.inputs[0].type
    if routine.attrs["axis"] != len(source.shape) - 1:
        return "the axis isn't the last"
    if not routine.outputs[0].type.size or fitting(routine) is not None:
        return ""
    if 2 * _count(routine) > routine.group * _chunk(routine):
        return "more than half of what a workgroup holds"
    return f"a row has more than {radix_sort.LONGEST:,} elements" if source.shape[-1] > radix_sort.LONGEST else ""


def _make(routine: Routine) -> None:
    if not routine.outputs[0].type.size:
        return
    source, count, each = routine.inputs[0].type, _count(routine), _chunk(routine)
    size, elements = routine.group * each, list(routine.inputs)
    rows, length = source.size // source.shape[-1], source.shape[-1]
    program = SortRows(
        source.dtype.name, rows, length, routine.group, each, values=True, positions=True, chunk=size, count=count,
        descending=True, narrow=True,
    )  # fmt: skip
    while program.length > size:
        left = rows * program.chunks * count
        found = [routine.scratch(left, source.dtype), routine.scratch(left, int32)]
        routine.by_groups("largest_of_chunks", program, program.tiles(routine.group), *elements, *found)
        program = replace(program, length=program.chunks * count, given=True)
        elements = found
    last = fitting(routine, program.length)
    assert last is not None
    last = replace(last, values=False, positions=True, count=count, descending=True, given=program.given)
    routine.by_groups("largest", last, last.tiles(routine.group), *elements, *routine.outputs)


PROVIDER: Final = Provider("chunks in registers of workgroups", _refuses, _make)


# ---- a few of them


def _refuses_many(routine: Routine) -> str:
    source = routine.inputs[0].type
    if routine.attrs["axis"] != len(source.shape) - 1:
        return "the axis isn't the last"
    if not routine.outputs[0].type.size:
        return ""
    if MORE * _count(routine) > routine.group or memory(routine.group, held_type(source.dtype)) > routine.memory:
        return "too many for a workgroup's candidates"
    if source.shape[-1] < SHORTEST * routine.group:
        return "rows are short"
    return f"a row has more than {radix_sort.LONGEST:,} elements" if source.shape[-1] > radix_sort.LONGEST else ""


def _make_few(routine: Routine) -> None:
    if not routine.outputs[0].type.size:
        return
    source, count, elements = routine.inputs[0].type, _count(routine), list(routine.inputs)
    rows, length, given = source.size // source.shape[-1], source.shape[-1], False
    while True:
        each = _each(routine, rows, length)
        program = LargestOfChunk(elements[0].type.dtype.name, rows, length, each, count, given)
        chunks = program.chunks(routine.group)
        if chunks == 1:
            routine.by_groups("largest", replace(program, last=True), rows, *elements, *routine.outputs)
            return
        left, order = rows * chunks * count, uint64 if held_type(source.dtype) == "i64" else uint32
        found = [routine.scratch(left, order), routine.scratch(left, int32)]
        routine.by_groups("largest_of_chunks", program, rows * chunks, *elements, *found)
        elements, length, given = found, chunks * count, True


def _each(routine: Routine, rows: int, length: int) -> int:
    """Elements of an invocation: fewer where rows are short, or where that makes enough chunks."""
    each = MOST_EACH if held_type(routine.inputs[0].type.dtype) == "i32" else MOST_EACH // 2
    group = routine.group
    while each > FEWEST_EACH and (2 * length <= group * each or rows * length < FEW_TILES * group * each):
        each //= 2
    return each


FEW: Final = Provider("candidates of chunks", _refuses_many, _make_few)


def _make_of_all(routine: Routine) -> None:
    """The first positions of a whole row's."""
    if not routine.outputs[0].type.size:
        return
    count, length = _count(routine), routine.inputs[0].type.shape[-1]
    order = routine.scratch(routine.inputs[0].type.size)
    radix_sort.make_launches(routine, None, order, descending=True)
    lanes = routine.outputs[0].type.size
    routine.by_lanes(_first_columns(lanes, count, length), lanes, order, *routine.outputs)


def _first_columns(lanes: int, count: int, length: int) -> Kernel:
    """param 1 [row, j] = param 0 [row, j], for the first `count` of `length` columns."""
    lane, ops = KValue(int64), []

    def one(opcode: str, *operands: KValue, **attrs: object) -> KValue:
        ops.append(KOp(opcode, operands, (int64,), attrs))
        return ops[-1].results[0]

    pitch, width = one("const", value=length), one("const", value=count)
    place = one("add", one("mul", one("div", lane, width), pitch), one("rem", lane, width))
    ops.append(KOp("store", (lane, one("load", place, param=0)), (), {"param": 1}))
    params = (BufferParam(int64, lanes // count * length, "read"), BufferParam(int64, lanes, "write"))
    return Kernel("first_columns", (lanes,), params, Block((lane,), ops))


OF_ALL: Final = Provider(radix_sort.PROVIDER.name, radix_sort.PROVIDER.refuses, _make_of_all)
