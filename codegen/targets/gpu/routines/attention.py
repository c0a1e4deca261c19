"""Attention as one launch of workgroups with matrix units (`attention_rows`), its derivatives as two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple, TypeVar

from loopgrad.codegen.options import FULL_PRECISION
from loopgrad.codegen.schedule.attention import MOST
from loopgrad.codegen.targets.gpu.assembler import WARP, WARPGROUP
from loopgrad.codegen.targets.gpu.routines.attention_gradients import AttentionGradients
from loopgrad.codegen.targets.gpu.routines.attention_parts import AttentionParts
from loopgrad.codegen.targets.gpu.routines.attention_rows import AttentionRows
from loopgrad.codegen.targets.gpu.routines.attention_scores import DEPTHS, WORD, Shapes, SharedMatrices, SideLayout
from loopgrad.codegen.targets.gpu.routines.attention_turns import AttentionTurns
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import SIDE
from loopgrad.codegen.targets.gpu.routines.routine import Array, Provider, Routine, Workgroups
from loopgrad.graph.types import bfloat16, float16, float32

Kind = TypeVar("Kind", AttentionRows, AttentionGradients)
TYPES: Final = {bfloat16: "b16", float16: "f16", float32: "f32"}
WARPS: Final = 4
NARROW: Final = 64  # columns of which registers hold derivatives by 64 others
WIDE: Final = 128  # of which they hold scores by 64 keys besides
TALL: Final = {2: 80, 4: 64}  # columns of elements of so many bytes of which a warp has twice 16 queries by 64 keys
FEW_TURNS: Final = 66  # workgroups whose warpgroups take turns: one for half of a large device's multiprocessors
ENOUGH: Final = 396  # workgroups, three for each multiprocessor of a large device
SHORTEST: Final = 4  # blocks of keys of a workgroup: what it has found must be worth adding up
FEW: Final = 256  # workgroups, so many that fewer rows each are better


class AttentionTiling(NamedTuple):
    """How much a workgroup takes at once: `warps` times `tiles` times 16 rows, by `block` others; `held`: its rows are
    in memory that it shares, which leaves more registers. So many are `resident` on a multiprocessor: one computes
    while others wait for their exponentials, or for products. Blocks come `ahead`, beside the one that is worked on.
    Two warpgroups take `turns`."""

    warps: int
    tiles: int
    block: int
    held: bool
    resident: int = 2
    ahead: bool = False
    turns: bool = False


def shapes_of(routine: Routine) -> Shapes:
    q, k, v = [a.type.shape for a in routine.inputs[:3]]
    sides = str(routine.attrs["sides"])
    arrays = dict(zip(sides, routine.inputs[len(routine.inputs) - len(sides) :], strict=True))
    type = TYPES[routine.inputs[0].type.dtype]
    if type == "f32" and routine.attrs["precision"] != FULL_PRECISION:
        type = "tf32"
    mask, bias = (_side(arrays[letter], q[:-2]) if letter in arrays else None for letter in "mb")
    scale, causal = routine.attrs["scale"], bool(routine.attrs["causal"])
    assert isinstance(scale, float)
    panels = routine.geometry.warpgroups and DEPTHS[type].bytes < WORD
    whole = Shapes(type, prod(q[:-2]), q[-2], k[-2], q[-1], v[-1], causal, scale, mask, bias, panels)
    return with_shared(whole, routine.attrs["heads"], joined=routine.name == "attention")


def with_shared(shapes: Shapes, shared: object, joined: bool = True) -> Shapes:
    """With keys and values of several queries' matrices; those that nothing tells apart are one matrix where they may
    be `joined`, and its elements can be counted in 32 bits."""
    if not shared:
        return shapes
    assert isinstance(shared, tuple)
    wide, leading = shared
    found = replace(shapes, shared=SharedMatrices(wide, _strides(leading)))
    if not joined or leading[-1] > 1 or shapes.causal or shapes.mask is not None or shapes.bias is not None:
        return found
    together = wide[-1]
    if together * shapes.queries * max(shapes.width, shapes.value_width) >= MOST:
        return found
    matrices = SharedMatrices(wide[:-1], _strides(leading[:-1]))
    return replace(found, count=shapes.count // together, queries=shapes.queries * together, shared=matrices)


def _side(array: Array, batch: tuple[int, ...]) -> SideLayout:
    *leading, rows, keys = array.type.shape
    strides = tuple([rows * keys * n for n in _strides(leading)])
    return SideLayout(tuple(batch), strides, keys if rows > 1 else 0, 1 if keys > 1 else 0)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of matrices one behind the other; 0 along axes of 1."""
    return tuple([prod(shape[axis + 1 :]) if n > 1 else 0 for axis, n in enumerate(shape)])


def tiling(shapes: Shapes, warps: int) -> AttentionTiling:
    """As was fastest on an H100."""
    width = max(shapes.width, shapes.value_width)
    if shapes.panels:
        return _of_panels(shapes, width)
    tall = -(-shapes.queries // (warps * 2 * SIDE)) * shapes.count
    if shapes.depth.bytes == WORD:
        return _of_floats(width, tall, warps)
    if width > WIDE:
        return AttentionTiling(warps, 1, 32, True)
    if tall < (FEW if width <= TALL[2] else 2 * FEW):
        return AttentionTiling(warps, 1, 64, False)
    return AttentionTiling(warps, 2, 64, False) if width <= TALL[2] else AttentionTiling(warps, 2, 32, True)


def _of_panels(shapes: Shapes, width: int) -> AttentionTiling:
    """As was fastest on an H200. Few tiles of two warpgroups would leave most of a device idle."""
    few = -(-shapes.queries // (2 * WARPGROUP * SIDE)) * shapes.count <= FEW_TURNS
    if width <= NARROW:
        return AttentionTiling(WARPGROUP, 1, 64, True, 4, True)
    if few or shapes.queries <= WARPGROUP * SIDE:
        return AttentionTiling(WARPGROUP, 1, 64, True, 1 if width > WIDE else 2, width <= WIDE)
    block = (64 if shapes.causal else 80) if width > WIDE else 128
    return AttentionTiling(2 * WARPGROUP, 1, block, True, 1, True, True)


def _of_floats(width: int, tall: int, warps: int) -> AttentionTiling:
    if width > WIDE:
        return AttentionTiling(max(warps // 2, 1), 1, 16, True)
    if width > TALL[4]:
        return AttentionTiling(warps, 1, 32, True)
    if tall < FEW:
        return AttentionTiling(warps, 1, 64, True)
    return AttentionTiling(warps, 2, 64 if width <= TALL[4] // 2 else 32, True)


def gradient_tiling(shapes: Shapes, warps: int) -> AttentionTiling:
    width = max(shapes.width, shapes.value_width)
    narrow = width <= NARROW
    if shapes.panels:
        return AttentionTiling(WARPGROUP, 1, 64, True, 3 if narrow else 2)
    if shapes.depth.bytes == WORD:
        return AttentionTiling(warps if width < WIDE else max(warps // 2, 1), 1, 32 if narrow else 16, True)
    return AttentionTiling(warps, 1, 64 if narrow else 32, False)


def _rows(routine: Routine) -> tuple[AttentionRows, int]:
    """The program, and how many workgroups a multiprocessor should have."""
    shapes = shapes_of(routine)
    warps, tiles, block, held, resident, ahead, turns = tiling(shapes, _warps(routine))
    if turns:
        return AttentionTurns(shapes, warps, tiles, block, held, ahead), resident
    whole = smaller(AttentionRows(shapes, warps, tiles, block, held, ahead), routine.asked_memory)
    return replace(whole, parts=parts_of(whole)), resident


def smaller(program: Kind, memory: int) -> Kind:
    """With rows in registers, or smaller blocks, where a workgroup has no more memory than so many bytes."""
    if program.memory > memory and program.held and not program.shapes.panels:
        program = replace(program, held=False)
    while program.memory > memory and program.block > SIDE:
        program = replace(program, block=program.block // 2)
    return program


def parts_of(program: AttentionRows) -> int:
    """How many workgroups share out the keys of some queries."""
    if program.shapes.causal:
        return 1
    most = min(ENOUGH // program.count, program.blocks // SHORTEST)
    return -(-program.blocks // -(-program.blocks // most)) if most > 1 else 1


def _refuses(routine: Routine) -> str:
    needed = _rows(routine)[0].memory
    return "" if needed <= routine.asked_memory else f"a block of keys takes {needed} bytes of a workgroup"


def _warps(routine: Routine) -> int:
    return max(min(WARPS, routine.geometry.group // WARP), 1)


def _make(routine: Routine) -> None:
    program, resident = _rows(routine)
    sides = len(str(routine.attrs["sides"]))
    results = routine.outputs
    if program.parts > 1:
        results = tuple([routine.scratch(program.parts * x.type.size, float32) for x in routine.outputs])
    arrays = (*routine.inputs[:3], *results, *routine.inputs[3 : 3 + sides])
    routine.by_groups("attention", program, program.count, *arrays, needs=_needs(program, resident))
    if program.parts > 1:
        s = program.shapes
        parts = AttentionParts(s.type, s.count * s.queries, s.value_width, program.parts, routine.group)
        needs = Workgroups(matrix_units=True)
        routine.by_groups("attention_parts", parts, parts.count, *results, *routine.outputs, needs=needs)


def _needs(program: AttentionRows | AttentionGradients, resident: int) -> Workgroups:
    return Workgroups(program.warps * WARP, resident, program.memory, matrix_units=True, unlike=True)


def _gradients(routine: Routine, of_keys: bool) -> tuple[AttentionGradients, int]:
    shapes = shapes_of(routine)
    warps, _, block, held, resident, *_ = gradient_tiling(shapes, _warps(routine))
    return smaller(AttentionGradients(shapes, warps, block, of_keys, held), routine.asked_memory), resident


def _refuses_gradient(routine: Routine) -> str:
    needed = _gradients(routine, True)[0].memory
    return "" if needed <= routine.asked_memory else f"two blocks of keys take {needed} bytes of a workgroup"


def _make_gradient(routine: Routine) -> None:
    q, k, v, normal, along, ct, *sides = routine.inputs
    by_q, by_k, by_v = routine.outputs
    for of_keys, results in ((False, (by_q,)), (True, (by_k, by_v))):
        program, resident = _gradients(routine, of_keys)
        arrays = (q, k, v, normal, along, ct, *results, *sides)
        name = f"attention_by_{'keys' if of_keys else 'queries'}"
        routine.by_groups(name, program, program.count, *arrays, needs=_needs(program, resident))


PROVIDER: Final = Provider("rows by matrix units", _refuses, _make)
GRADIENT: Final = Provider(
    "rows by matrix units, once for queries and once for keys", _refuses_gradient, _make_gradient
)
