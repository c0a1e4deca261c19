"""Arrays of a lane that are never needed at the same time become one.

    for 9 do (%i): array[0][%i] = ...            for 9 do (%i): array[0][%i] = ...
    ... array[0][...] is read                    ... array[0][...] is read
    for 9 do (%i): array[1][%i] = ...      ->    for 9 do (%i): array[0][%i] = ...

An array is needed from its first use to its last, in the innermost block that has all of them: within an operation of
that block, a loop say, uses come again. What a loop's body alone uses was stored in the same trip. Those that are
needed at different times share memory if their elements are of one dtype, which has room for the largest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, OwnArray
from loopgrad.codegen.kernel.rebuild import Rebuilder

USES: Final = ("array_load", "array_store")
Path = tuple[tuple[Block, int], ...]  # blocks from the outermost one, the place in each


class Span(NamedTuple):
    """From which operation to which, counted in the order of the text."""

    first: int
    last: int


class _Spans:
    """When each array is needed."""

    def __init__(self, kernel: Kernel) -> None:
        self.places: dict[tuple[Block, int], Span] = {}  # of an operation with all that is inside
        self.common: dict[int, list[Path]] = {}  # of an array: the first use's and the last one's
        self.count = 0
        self._scan(kernel.body, ())
        self.found = {array: self._span(first, last) for array, (first, last) in self.common.items()}

    def _scan(self, block: Block, outer: Path) -> None:
        for place, op in enumerate(block.ops):
            path, start = (*outer, (block, place)), self.count
            self.count += 1
            if op.opcode in USES:
                self._use(op.attrs["array"], path)
            for inner in op.blocks:
                self._scan(inner, path)
            self.places[block, place] = Span(start, self.count - 1)

    def _use(self, array: int, path: Path) -> None:
        known = self.common.setdefault(array, [path, path])
        depth = 0
        for (block, _), (other, _) in zip(known[0], path, strict=False):
            if block is not other:
                break
            depth += 1
        self.common[array] = [known[0][:depth], path[:depth]]

    def _span(self, first: Path, last: Path) -> Span:
        return Span(self.places[first[-1]].first, self.places[last[-1]].last)


class _Renumbered(Rebuilder):
    def __init__(self, kernel: Kernel, numbers: dict[int, int]) -> None:
        super().__init__(kernel)
        self.numbers = numbers

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        if op.opcode not in USES:
            return self.copy(op, operands)
        attrs = {**op.attrs, "array": self.numbers[op.attrs["array"]]}
        moved = KOp(op.opcode, operands, tuple([r.dtype for r in op.results]), attrs)
        self.out.append(moved)
        return moved.results


def run(kernel: Kernel) -> Kernel:
    """See the module's text."""
    if not kernel.arrays:
        return kernel
    spans = _Spans(kernel).found
    shared: list[OwnArray] = []
    ends: list[int] = []
    numbers: dict[int, int] = {}
    for array, span in sorted(spans.items(), key=lambda item: item[1]):
        own = kernel.arrays[array]
        free = [i for i, slot in enumerate(shared) if slot.dtype is own.dtype and ends[i] < span.first]
        if free:
            number = min(free, key=lambda i: abs(shared[i].size - own.size))
            shared[number] = OwnArray(own.dtype, max(shared[number].size, own.size))
            ends[number] = span.last
        else:
            number = len(shared)
            shared.append(own)
            ends.append(span.last)
        numbers[array] = number
    return replace(_Renumbered(kernel, numbers).run(), arrays=tuple(shared))
