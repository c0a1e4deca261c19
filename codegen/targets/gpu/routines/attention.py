"""Attention of 16-bit floats as one launch of workgroups with matrix units (`attention_rows`)."""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import WARP
from loopgrad.codegen.targets.gpu.routines.attention_gradients import AttentionGradients
from loopgrad.codegen.targets.gpu.routines.attention_rows import AttentionRows
from loopgrad.codegen.targets.gpu.routines.attention_scores import Shapes, SideLayout
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import BYTES, SIDE, held_elements
from loopgrad.codegen.targets.gpu.routines.routine import Array, Provider, Routine
from loopgrad.graph.types import bfloat16

TYPES: Final = {True: "b16", False: "f16"}  # whether it is bfloat16
WARPS: Final = 4
NARROW: Final = 64  # columns of which a warp's registers hold twice 16 rows
WIDE: Final = 128  # of which they hold scores by 64 keys besides
FEW: Final = 512  # workgroups, so many that fewer rows each are better: two for each of the multiprocessors, and more
RESIDENT: Final = 2  # workgroups of a multiprocessor: one computes while the other waits for its exponentials


class AttentionTiling(NamedTuple):
    """How much a workgroup takes at once: `warps` times `tiles` times 16 rows, by `block` others."""

    warps: int
    tiles: int
    block: int


def shapes_of(routine: Routine) -> Shapes:
    q, k, v = [a.type.shape for a in routine.inputs[:3]]
    sides = str(routine.attrs["sides"])
    arrays = dict(zip(sides, routine.inputs[len(routine.inputs) - len(sides) :], strict=True))
    type = TYPES[routine.inputs[0].type.dtype is bfloat16]
    mask, bias = (_side(arrays[letter], q[:-2]) if letter in arrays else None for letter in "mb")
    scale, causal = routine.attrs["scale"], bool(routine.attrs["causal"])
    assert isinstance(scale, float)
    return Shapes(type, prod(q[:-2]), q[-2], k[-2], q[-1], v[-1], causal, scale, mask, bias)


def _side(array: Array, batch: tuple[int, ...]) -> SideLayout:
    *leading, rows, keys = array.type.shape
    strides = []
    for axis, n in enumerate(leading):
        strides.append(prod(array.type.shape[axis + 1 :]) if n > 1 else 0)
    return SideLayout(tuple(batch), tuple(strides), keys if rows > 1 else 0, 1 if keys > 1 else 0)


def tiling(shapes: Shapes, warps: int) -> AttentionTiling:
    width = max(shapes.width, shapes.value_width)
    if width > WIDE:
        return AttentionTiling(warps, 1, 32)
    tall = -(-shapes.queries // (warps * 2 * SIDE)) * shapes.count
    if tall < FEW:
        return AttentionTiling(warps, 1, 64)
    return AttentionTiling(warps, 2, 64 if width <= NARROW else 32)


def _refuses(routine: Routine) -> str:
    block = tiling(shapes_of(routine), _warps(routine)).block
    widths = [a.type.shape[-1] for a in routine.inputs[1:3]]
    needed = BYTES * sum(held_elements(block, width) for width in widths)
    return "" if needed <= routine.memory else f"a block of keys takes {needed} bytes of a workgroup"


def _warps(routine: Routine) -> int:
    return max(min(WARPS, routine.geometry.group // WARP), 1)


def _make(routine: Routine) -> None:
    shapes = shapes_of(routine)
    warps, tiles, block = tiling(shapes, _warps(routine))
    program = AttentionRows(shapes, warps, tiles, block)
    sides = len(str(routine.attrs["sides"]))
    arrays = (*routine.inputs[:3], *routine.outputs, *routine.inputs[3 : 3 + sides])
    routine.by_groups("attention", program, program.count, *arrays, group=warps * WARP, resident=RESIDENT)


def _gradient_block(shapes: Shapes) -> int:
    return 64 if max(shapes.width, shapes.value_width) <= NARROW else 32


def _refuses_gradient(routine: Routine) -> str:
    shapes = shapes_of(routine)
    widths = (shapes.width, shapes.value_width)
    needed = BYTES * 2 * sum(held_elements(_gradient_block(shapes), width) for width in widths)
    return "" if needed <= routine.memory else f"two blocks of keys take {needed} bytes of a workgroup"


def _make_gradient(routine: Routine) -> None:
    shapes, warps = shapes_of(routine), _warps(routine)
    q, k, v, normal, along, ct, *mask = routine.inputs
    by_q, by_k, by_v = routine.outputs
    for of_keys, results in ((False, (by_q,)), (True, (by_k, by_v))):
        program = AttentionGradients(shapes, warps, _gradient_block(shapes), of_keys)
        arrays = (q, k, v, normal, along, ct, *results, *mask)
        name = f"attention_by_{'keys' if of_keys else 'queries'}"
        routine.by_groups(name, program, program.count, *arrays, group=warps * WARP, resident=RESIDENT)


PROVIDER: Final = Provider("rows by matrix units", _refuses, _make)
GRADIENT: Final = Provider(
    "rows by matrix units, once for queries and once for keys", _refuses_gradient, _make_gradient
)
