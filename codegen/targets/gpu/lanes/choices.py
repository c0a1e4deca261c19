"""Branches that only choose what a lane reads become choices of values, so that the lane is straight.

    y = if c: load a[i]  else: load b[j]    ->    y = select(c, load a[select(c, i, k)], load b[select(c, k, j)])

A concat or a pad is such a branch. What isn't chosen is read at the first elements by all lanes, which costs an
instruction and no traffic; a straight lane is run together with others, whose loads are then under way at once, or one
vector where neighbours choose alike. Where both ways read one array, as a roll or a pad by its own elements does, what
is chosen is the place:

    y = if c: load a[i]  else: load a[j]    ->    y = load a[select(c, i, j)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.kernel.passes import dce
from loopgrad.codegen.kernel.rebuild import Rebuilder, is_pure
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES
from loopgrad.codegen.targets.gpu.lanes.analysis import weight_of
from loopgrad.codegen.targets.gpu.lanes.side_by_side import lanes_side_by_side
from loopgrad.graph.types import DType, int64

MOST_READ: Final = 6  # loads of what may not be chosen, but of lanes that read vectors and need all they load
SIDE: Final = 4
HEAVIEST: Final = 60  # what all branches may weigh together
HEAVIEST_PLACES: Final = 240  # where they only choose places


def chosen(kernel: Kernel) -> Kernel:
    """The kernel without branches, if they are all of this kind; otherwise as it is."""
    branches = [op for op in kernel.body.ops if op.blocks]
    if kernel.stages or not branches or any(op.opcode != "if" for op in branches):
        return kernel
    inner = list(_inside(branches))
    if not all(_harmless(kernel, op) for op in inner):
        return kernel
    choice = _Chosen(kernel)
    straight = dce.run(choice.run())
    in_vain, work = len(choice.guarded) - sum(map(_needed, branches)), weight_of(op for op in inner if not op.blocks)
    if work > HEAVIEST_PLACES:
        return kernel
    few = not choice.guarded or (len(choice.guarded) <= MOST_READ and work <= HEAVIEST)
    return straight if few or (in_vain <= 0 and lanes_side_by_side(straight, SIDE) > 1) else kernel


def _inside(branches: Iterable[KOp]) -> Iterator[KOp]:
    for op in branches:
        for block in op.blocks:
            yield from block.ops
            yield from _inside(inner for inner in block.ops if inner.blocks)


def _needed(op: KOp) -> int:
    """How many loads a lane makes at most: of one of the branches."""
    return max([sum(map(_needed, block.ops)) for block in op.blocks], default=int(op.opcode == "load"))


def _harmless(kernel: Kernel, op: KOp) -> bool:
    """Whether it may be done by lanes that don't take its branch."""
    if op.opcode == "if":
        return True
    if op.opcode == "load":
        param: BufferParam = kernel.params[op.attrs["param"]]
        return param.access == "read" and param.size > 0
    if not is_pure(op):
        return False
    whole: bool = op.results[0].dtype.is_integer
    return not whole or OPCODES[op.opcode].quick or all(map(_is_number, op.operands[1:]))


def _is_number(v: KValue) -> bool:
    return v.op is not None and v.op.opcode == "const" and bool(v.op.attrs["value"])


class _Chosen(Rebuilder):
    """`way`: the conditions of the branches around an operation, and what they are there. `read`: what was loaded in
    branches -> the load and its place if it is chosen; `guarded`: those loads of which that isn't known."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.way: list[tuple[KValue, bool]] = []
        self.read: dict[KValue, tuple[KOp, KValue]] = {}
        self.guarded: set[KOp] = set()

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        if op.opcode == "if":
            (condition,) = operands
            then, other = (
                self._yielded(b, condition, taken) for b, taken in zip(op.blocks, (True, False), strict=True)
            )
            return tuple([self._joined(condition, x, y) for x, y in zip(then, other, strict=True)])
        if op.opcode == "load" and self.way:
            return (self._load(op.attrs["param"], operands[0], op.results[0].dtype),)
        return self.copy(op, operands)

    def _yielded(self, block: Block, condition: KValue, taken: bool) -> list[KValue]:
        self.way.append((condition, taken))
        self.body(block)
        self.way.pop()
        return [self.env[v] for v in block.yields]

    def _joined(self, condition: KValue, x: KValue, y: KValue) -> KValue:
        found = [self.read[v] for v in (x, y) if v in self.read]
        if len(found) < 2 or found[0][0].attrs["param"] != found[1][0].attrs["param"]:
            return self._select(condition, x, y)
        (first, i), (second, j) = found
        self.guarded -= {first, second}
        return self._load(first.attrs["param"], self._select(condition, i, j), x.dtype)

    def _load(self, param: int, place: KValue, dtype: DType) -> KValue:
        """At the first places for all lanes that don't come this way."""
        index = place
        for condition, taken in self.way:
            first = self._first(param)
            pair = (index, first) if taken else (first, index)
            index = self._select(condition, *pair)
        load = KOp("load", (index,), (dtype,), {"param": param})
        self.out.append(load)
        if self.way:
            self.guarded.add(load)
        self.read[load.results[0]] = (load, place)
        return load.results[0]

    def _first(self, param: int) -> KValue:
        """Of neighbours neighbours, in as many elements as a vector has at most."""
        few = self.kernel.params[param].size < VECTOR_BYTES or not self.kernel.domain
        number = KOp("const", (), (int64,), {"value": 0 if few else VECTOR_BYTES - 1})
        self.out.append(number)
        if few:
            return number.results[0]
        place = KOp("and", (self.env[self.kernel.body.arguments[-1]], *number.results), (int64,))
        self.out.append(place)
        return place.results[0]

    def _select(self, condition: KValue, x: KValue, y: KValue) -> KValue:
        made = KOp("select", (condition, x, y), (x.dtype,))
        self.out.append(made)
        return made.results[0]
