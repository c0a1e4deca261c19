"""Lanes side by side, of one invocation, read and write elements that lie side by side as vectors.

    lanes 4i .. 4i + 3 load x[4i .. 4i + 3]      one access of 16 bytes, in place of four

A vector is as wide as the widest access of a GPU. Arrays begin at multiples of more bytes than it has; where the index
of an access grows with the lane's last index, and all else in it is a multiple of the number of lanes, vectors are
aligned. On an H200 logarithms of an array take 1.09 times as long without.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory, of_words, to_memory, words_of
from loopgrad.codegen.targets.gpu.lanes.interleaved import interleaved
from loopgrad.codegen.targets.gpu.lanes.windows import overlapping
from loopgrad.graph.types import DType

WORD: Final = 4  # bytes: narrower accesses aren't faster together
ACCESSES: Final = ("load", "store")
NEAR: Final = 2  # elements from lane to lane
NEAR_COST: Final = 0.5  # of a scattered access
APART_COST: Final = (
    2.0  # where one of neighbours reads elsewhere: heat flow takes 1.2 times as long by vectors beside two
)


class _Form(NamedTuple):
    """A value that is slope * (the last index) + what doesn't depend on that and is a multiple of `factor`, a power of
    two. So it is in arithmetic that wraps around, too. Of a condition: it is alike in so many lanes that begin at a
    multiple of `factor`, up to those of a vector."""

    slope: int
    factor: int
    apart: bool = False  # a choice that neighbours make each for itself


def lanes_side_by_side(kernel: Kernel, most: int) -> int:
    """So many lanes of `most`, a power of two, that the widest elements that they touch side by side fill a vector; 1
    where rows of the domain can't be divided by so many, or where as many accesses would be scattered by it. Lanes that
    meet in elements add to neighbours at once as they are: on an H200 sums of rows of 8 take 2.5 times as long else.
    Lanes whose rows are vectors already stay apart, so that those of a warp lie side by side: else the four polynomials
    of a spline take 1.9 times as long."""
    if any(op.opcode == "accumulate" for op in kernel.body.ops):
        return 1
    forms, side = _forms(kernel), most
    while side > 1:
        turns = interleaved(kernel, side)
        together = _together(kernel, side, forms) + [op for group in turns for op in group.ops]
        whole = [group.row_bytes for group in turns] if all(group.fills for group in turns) else []
        widest = max([element_size(kernel, op) for op in together] + whole, default=0)
        if widest and side * widest <= VECTOR_BYTES:
            worth = overlapping(kernel, side) or len(together) > _scattered(kernel, forms, together)
            return side if worth else 1
        side //= 2
    return 1


def side_by_side(kernel: Kernel, side: int) -> list[KOp]:
    """Loads and stores of which `side` lanes that begin at a multiple of it touch neighbours, at least a word of
    them."""
    return _together(kernel, side, _forms(kernel)) if side > 1 else []


def _together(kernel: Kernel, side: int, forms: dict[KValue, _Form]) -> list[KOp]:
    extents = [n for n in kernel.domain if n > 1]
    if not extents or kernel.domain[-1] == 1 or (len(extents) > 1 and extents[-1] % side):
        return []
    found = [op for op in kernel.body.ops if op.opcode in ACCESSES and op.operands[0] in forms]
    aligned = [op for op in found if forms[op.operands[0]].slope == 1 and not forms[op.operands[0]].factor % side]
    return [op for op in aligned if side * element_size(kernel, op) >= WORD]


def _scattered(kernel: Kernel, forms: dict[KValue, _Form], together: Sequence[KOp]) -> float:
    """Accesses that lanes side by side make each for itself, at different places; loads near each other, as of
    shifted rows, meet in a cache, and count less."""
    chosen = set(together)
    unknown = _Form(NEAR + 1, 1)
    others = [op for op in kernel.body.ops if op.opcode in ACCESSES and op not in chosen]
    costs = [_cost(op, forms.get(op.operands[0], unknown)) for op in others]
    return sum(costs)


def _cost(op: KOp, form: _Form) -> float:
    if form.apart or not form.slope:
        return APART_COST if form.apart else 0.0
    return NEAR_COST if op.opcode == "load" and abs(form.slope) <= NEAR else 1.0


def _forms(kernel: Kernel) -> dict[KValue, _Form]:
    """Of the values of the top block that have one."""
    if not kernel.domain:
        return {}
    *outer, last = kernel.body.arguments
    forms = {**dict.fromkeys(outer, _Form(0, 1)), last: _Form(1, VECTOR_BYTES)}
    for op in kernel.body.ops:
        plain = len(op.results) == 1 and not op.blocks and not OPCODES[op.opcode].effect
        found = _of(op, [forms.get(v) for v in op.operands]) if plain else None
        if found is not None:
            forms[op.results[0]] = found
    return forms


def _of(op: KOp, operands: Sequence[_Form | None]) -> _Form | None:
    known = [form for form in operands if form is not None]
    if len(known) < len(operands) or any(form.apart for form in known):
        return None
    if op.opcode == "const":
        value = op.attrs["value"]
        return _Form(0, _power(value) if op.results[0].dtype.is_integer else 1)
    if op.opcode in ("add", "sub") and op.results[0].dtype.is_integer:
        x, y = known
        return _Form(x.slope + y.slope if op.opcode == "add" else x.slope - y.slope, min(x.factor, y.factor))
    if op.opcode == "mul" and op.results[0].dtype.is_integer:
        return _product(op, *known)
    if op.opcode == "and" and op.results[0].dtype.is_integer:
        return _low_bits(op, *known)
    if op.opcode == "select" and op.results[0].dtype.is_integer:
        (_, x, y), factor = known, min([form.factor for form in known])
        if x.slope != y.slope or (x.slope and factor == 1):
            return _Form(NEAR + 1, 1, apart=True)
        return _Form(x.slope, factor)
    if op.results[0].dtype.kind == "b":
        return _condition(op, known)
    return None if any(form.slope for form in known) else _Form(0, 1)


def _condition(op: KOp, operands: Sequence[_Form]) -> _Form | None:
    """Of a comparison, or of what is made of conditions."""
    slopes, factor = [form.slope for form in operands], min([form.factor for form in operands])
    if any(v.dtype.kind == "b" for v in op.operands):
        return _Form(0, factor)
    if not any(slopes):
        return _Form(0, VECTOR_BYTES)
    # base + 0, 1, ... reach a bound between two multiples of `factor` all or none
    reached = op.opcode in ("ge", "lt") and slopes == [1, 0] and op.operands[0].dtype.is_integer
    return _Form(0, factor) if reached else None


def _product(op: KOp, x: _Form, y: _Form) -> _Form | None:
    factor = min(x.factor * y.factor, VECTOR_BYTES)
    if not x.slope and not y.slope:
        return _Form(0, factor)
    for value, other in zip(op.operands, (y, x), strict=True):
        if value.op is not None and value.op.opcode == "const":
            return _Form(other.slope * value.op.attrs["value"], factor)
    return None


def _low_bits(op: KOp, x: _Form, y: _Form) -> _Form | None:
    """Those that neighbours differ in count as these do."""
    mask = op.operands[1].op
    low = mask is not None and mask.opcode == "const" and mask.attrs["value"] == VECTOR_BYTES - 1
    if low and x.slope == 1 and x.factor >= VECTOR_BYTES:
        return _Form(1, VECTOR_BYTES)
    return None if x.slope or y.slope else _Form(0, 1)


def _power(value: int) -> int:
    """The largest power of two that divides it, up to the bytes of a vector."""
    return min(value & -value, VECTOR_BYTES) if value else VECTOR_BYTES


def element_size(kernel: Kernel, op: KOp) -> int:
    """Bytes in memory of what a load or store touches."""
    return SIZE[memory_type(kernel.params[op.attrs["param"]].dtype)]


def emit_access(
    e: Emitter, op: KOp, operands: Sequence[Sequence[Val]], side: int, inside: Sequence[Val] = ()
) -> list[Val]:
    """A load or store of these lanes, of which `side` at a time lie side by side: what a load gives each of them.
    `inside`: whether lanes store at all, if some may not; those side by side all do or don't."""
    param, dtype, found = op.attrs["param"], e.kernel.params[op.attrs["param"]].dtype, list[Val]()
    pairs = dtype.name == "bfloat16"
    for first in range(0, len(operands), side):
        rows = operands[first : first + side]
        place = e.element(param, rows[0][0])
        if op.opcode == "store":
            store = partial(store_side, e, place, [x for _, x in rows], dtype)
            if inside:
                e.when(inside[first], store)
            else:
                store()
            continue
        constant, count, type = e.kernel.params[param].access == "read", side, memory_type(dtype)
        if pairs:
            count, type = side // 2, "i32"
        loaded = e.b.load_vector(place, type, count, invariant=constant)
        found += of_words(e, loaded) if pairs else [from_memory(e, x, dtype) for x in loaded]
    return found


def store_side(e: Emitter, place: Val, values: Sequence[Val], dtype: DType) -> None:
    """Elements side by side from an address on, of a word at least together."""
    stored = words_of(e, values) if dtype.name == "bfloat16" else [to_memory(e, x, dtype) for x in values]
    e.b.store_vector(place, stored)
