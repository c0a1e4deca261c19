"""Which kernels with stages keep their rows in registers, and how a row then lies over neighbouring invocations.

    32 elements, members=4, turns=2, side=4      invocation m of four has the elements 4m .. 4m + 3 and 16 + 4m .. + 3

So elements come as vectors, neighbours read neighbours, and what a stage makes of an element needs no memory until the
last one. Where a row isn't a multiple of what its members have, the last vector is had by several, which make the same
of it; it counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from loopgrad.codegen.kernel.linear_index import linear
from loopgrad.codegen.kernel.nodes import BufferParam, Kernel, walk
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, WARP
from loopgrad.codegen.targets.gpu.lanes.analysis import weight
from loopgrad.codegen.targets.gpu.lanes.plan import FEW_ROWS, LONG_ROW, Geometry, RowMembers, reduced_rows
from loopgrad.codegen.targets.gpu.lanes.row_layouts import RowLayout, row_dims

REGISTERS: Final = 1 << 16  # of a multiprocessor
FEWEST_BESIDE: Final = 28  # of an invocation beside the elements that it holds
MUCH: Final = 1 << 15  # bytes of a row, for whose loads a multiprocessor may wait with one workgroup alone
MOST_HELD: Final = 64  # words of a row's arrays that an invocation has
USUAL, MOST = 8, 16  # elements that it has, where fewer members or more can't have all
MOST_OF_LONG: Final = 32  # elements of a row that a workgroup has
EASILY_HELD: Final = 32  # words of a member of a long row: with more of them fewer workgroups run side by side
ENOUGH_GROUPS: Final = 1024  # workgroups that fill a device, so that rows may have fewer members
MOST_HELD_OF_LONG: Final = 80  # together with BESIDE elements that are computed
BESIDE: Final = 16
MOST_TURNS: Final = 8  # of a long row: more are narrow accesses
MOST_WEIGHT: Final = 8000  # of an invocation's code
MOST_AT_ONCE: Final = 900  # of lanes that no later stage reads again: they can as well come after one another
SECTOR: Final = 32  # bytes that memory gives at least
NARROWEST: Final = 2  # bytes of an element of a vector: of narrower ones a vector were too many elements


def row_members(kernel: Kernel, geometry: Geometry) -> tuple[RowMembers, int] | None:
    """How the rows of a kernel with stages lie, and the invocations of a workgroup: more than usual where so many can't
    hold a row that is much to load: on an H100 a layer norm of rows of 8,192 bfloat16 with its gradients takes 1.05 to
    1.09 times as long so, of float32 0.98. None where rows had better be in memory of the workgroup."""
    group, much = geometry.group, kernel.domain[1] * widest(kernel) >= MUCH
    while group <= (largest_group(geometry) if much else geometry.group):
        shape = _members(kernel, replace(geometry, group=group))
        if shape is not None and held_words(kernel, shape) + FEWEST_BESIDE <= REGISTERS // group:
            return shape, group
        group *= 2
    return None


def may_be_held(layout: RowLayout, geometry: Geometry) -> bool:
    """Whether invocations of a workgroup have registers for a row, by its length alone; columns may always be so."""
    longest = largest_group(geometry) * MOST_OF_LONG if geometry.exchanges else LONG_ROW
    return layout.beside > 1 or (layout.rows > FEW_ROWS and layout.length <= longest)


def largest_group(geometry: Geometry) -> int:
    """Invocations of a workgroup that has rows or columns in registers, at most."""
    return max(geometry.columns_group, geometry.group)


def _members(kernel: Kernel, geometry: Geometry) -> RowMembers | None:
    rows, length = kernel.domain
    most = geometry.group if geometry.exchanges else WARP
    longest = most * MOST_OF_LONG if geometry.exchanges else LONG_ROW
    if rows <= FEW_ROWS or not 1 < length <= longest or not apart(kernel):
        return None
    lanes = [stage for stage in kernel.stages if prod(stage.domain) != rows]
    if not reduce_alike(kernel):
        return None
    side = _side(kernel, lanes)
    shape = _shape(kernel, geometry, side, WARP if length <= LONG_ROW else most)
    if shape is None or (shape.members > WARP and shape.turns > MOST_TURNS):
        return None
    itemsize = widest(kernel)
    heavy = shape.turns * side * sum(map(weight, lanes)) > (MOST_WEIGHT if len(lanes) > 1 else MOST_AT_ONCE)
    held, most = held_words(kernel, shape), MOST_HELD
    if shape.members > WARP:  # what is computed on the way is as wide
        held, most = held + BESIDE * -(-itemsize // 4), MOST_HELD_OF_LONG
    return None if heavy or held > most else shape


def widest(kernel: Kernel) -> int:
    """Bytes of an element of which lanes touch another one each; what rows are reduced to may be wider."""
    rows, most = kernel.domain[0], 0
    for stage in kernel.stages:
        if prod(stage.domain) == rows:
            continue
        forms, cut = linear(stage), row_dims(stage.domain, rows)
        for op in walk(stage.body):
            form = forms.get(op.operands[0]) if "param" in op.attrs else None
            if "param" in op.attrs and (form is None or any(form.factors[cut:])):
                most = max(most, stage.params[op.attrs["param"]].dtype.itemsize)
    return most or 4


def _shape(kernel: Kernel, geometry: Geometry, side: int, many: int) -> RowMembers | None:
    """With at most so many members: few, who meet less often, where each can hold its elements and rows are enough."""
    rows, length = kernel.domain
    vectors, itemsize = -(-length // side), widest(kernel)
    if many > WARP:
        for each in (MOST_OF_LONG, MOST):
            found = _shared_out(vectors, side, itemsize, many, each)
            light = found is not None and held_words(kernel, found) <= EASILY_HELD
            if found is not None and light and rows * found.members >= ENOUGH_GROUPS * geometry.group:
                return found
    for each in (USUAL, MOST) if many <= WARP else (USUAL, MOST, MOST_OF_LONG):
        if (found := _shared_out(vectors, side, itemsize, many, each)) is not None:
            return found if found.members <= geometry.group else None
    return None


def held_words(kernel: Kernel, shape: RowMembers) -> int:
    """Of a row's elements, in registers of an invocation. Of long rows what is read again stays there, too: they are
    too many for the caches."""
    rows, length = kernel.domain
    kept = [param for param in kernel.stages[0].params[len(kernel.params) :] if param.size != rows]
    if length > LONG_ROW:
        kept += _read(kernel, rows * length)
    return sum([-(-param.dtype.itemsize // 4) for param in kept]) * shape.turns * shape.side


def reduce_alike(kernel: Kernel) -> bool:
    """Whether stages reduce each row, or all elements of all of them."""
    rows, length = kernel.domain
    return all(reduced_rows(s) in ((rows, length), (1, rows * length)) for s in kernel.stages if s.reductions)


def apart(kernel: Kernel) -> bool:
    """Whether stages hand nothing on but in arrays of their own: members of a row don't wait for each other."""
    written, read = set[int](), set[int]()
    for stage in kernel.stages:
        written.update(r.param for r in stage.reductions)
        written.update(op.attrs["param"] for op in walk(stage.body) if op.opcode == "store")
        read.update(op.attrs["param"] for op in walk(stage.body) if op.opcode == "load")
    return not any(param < len(kernel.params) for param in written & read)


def _read(kernel: Kernel, size: int) -> list[BufferParam]:
    """The arrays of so many elements that stages read from memory of the device."""
    loads = [op for stage in kernel.stages for op in walk(stage.body) if op.opcode == "load"]
    read = {op.attrs["param"] for op in loads}
    return [param for number, param in enumerate(kernel.params) if number in read and param.size == size]


def _side(kernel: Kernel, lanes: Sequence[Kernel]) -> int:
    """Elements side by side: those of a vector, of which rows of all stages are multiples."""
    side = VECTOR_BYTES // max(NARROWEST, widest(kernel))
    while side > 1 and any(stage.domain[-1] % side for stage in lanes):
        side //= 2
    return side


def _shared_out(vectors: int, side: int, itemsize: int, many: int, most: int) -> RowMembers | None:
    """Members (at most `many`) with at most so many elements each: those that leave the fewest places empty, few
    members where that makes no difference."""
    found = []
    for members in [1 << k for k in range(many.bit_length())]:
        turns = -(-vectors // members)
        if turns * side <= max(most, side) and (members * side * itemsize >= SECTOR or members >= vectors):
            found.append((members * turns, members, turns))
    return RowMembers(*min(found)[1:], side) if found else None
