"""How columns lie over the invocations of a workgroup that takes some neighbouring ones through stages.

    8 columns beside each other, 4 members: invocation 8m + j has the elements m, m + 4, m + 8 ... of column j

So neighbours read neighbours, and each element is read once: it stays in a register until the last stage.
"""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

from loopgrad.codegen.kernel.nodes import BufferParam, Kernel, walk
from loopgrad.codegen.targets.gpu.lanes.analysis import weight
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, RowMembers
from loopgrad.codegen.targets.gpu.lanes.row_members import FEWEST_BESIDE, REGISTERS, apart, largest_group, reduce_alike

SIDES: Final = (32, 16, 8)  # columns of a workgroup
FEWER: Final = (4, 2)  # of little, which caches hold
LITTLE: Final = 1 << 17  # elements
SHORT: Final = 32  # elements of a column that an invocation has alone, where there are many: nobody waits for others
MOST_TURNS: Final = 64  # elements of a column that an invocation has
FEW_TURNS: Final = 8  # where workgroups are so few that a device waits for each
FULL: Final = 256  # workgroups that fill a device
MOST_REGISTERS: Final = 255  # of an invocation
USUAL: Final = 40  # registers of an invocation beside the elements that it holds, mostly
MOST_HELD: Final = 64
MANY, FEW = 8, 4  # elements whose operations are written one beside the other
FOR_MANY: Final = 48  # registers beside those of held elements that many take
MOST_WEIGHT: Final = 8000  # of an invocation's code


class ColumnTiles(NamedTuple):
    """How columns lie over the invocations of a workgroup, of which there are `group`; `resident` workgroups have
    registers side by side."""

    shape: RowMembers
    group: int
    resident: int


def column_members(kernel: Kernel, geometry: Geometry) -> ColumnTiles | None:
    """How the columns of a kernel with stages lie; None where invocations can't hold them."""
    rows, length = kernel.domain
    if not apart(kernel) or not reduce_alike(kernel):
        return None
    words, found = _live_words(kernel), []
    lanes = sum(weight(stage) for stage in kernel.stages if prod(stage.domain) != rows)
    alone = (geometry.group,) if length <= SHORT else ()
    for side in (*alone, *SIDES, *(FEWER if rows * length <= LITTLE else ())):
        group = geometry.group
        while group <= largest_group(geometry):
            members = group // side
            turns, tiles = -(-length // members), -(-rows // side)
            held = turns * words
            fits = members < 2 * length and turns <= MOST_TURNS  # half of the members have something to do
            fits = fits and held <= min(MOST_HELD, REGISTERS // group - FEWEST_BESIDE)
            if fits and turns * lanes <= MOST_WEIGHT:
                idle = max(turns - FEW_TURNS, 0) if tiles < FULL else 0
                free = min(REGISTERS // group, MOST_REGISTERS) - held
                shape = RowMembers(members, turns, 1, columns=True, at_once=MANY if free >= FOR_MANY else FEW)
                resident = REGISTERS // (group * (held + USUAL))
                order = (-min(tiles, FULL), idle, group, -side)
                found.append((order, ColumnTiles(shape, group, max(resident, 1))))
            group *= 2
    return min(found, key=lambda one: one[0])[1] if found else None


def _live_words(kernel: Kernel) -> int:
    """32-bit words of an element's values that are needed behind a stage that made or read them, at most. Where these
    are of several arrays, compilers keep one more, which several stages make of them."""
    touched = [{op.attrs["param"] for op in walk(stage.body) if "param" in op.attrs} for stage in kernel.stages]
    arrays = {n: param for n, param in enumerate(kernel.stages[0].params) if _is_held(kernel, n, param)}
    most = 0
    for cut in range(1, len(touched)):
        before, after = set[int]().union(*touched[:cut]), set[int]().union(*touched[cut:])
        live = [arrays[n] for n in before & after if n in arrays]
        most = max(most, sum(-(-param.dtype.itemsize // 4) for param in live) + (len(live) > 1))
    return most


def _is_held(kernel: Kernel, number: int, param: BufferParam) -> bool:
    """Whether a parameter is an array of lanes that later stages read again."""
    of_lanes = param.size == prod(kernel.domain)
    return of_lanes and (param.access == "read" or number >= len(kernel.params))
