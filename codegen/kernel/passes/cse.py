"""Common subexpressions: equal pure operations visible at one point are computed once.

    %1 = sin %0          %1 = sin %0
    %2 = sin %0    ->    %3 = mul %1 %1
    %3 = mul %1 %2

A load from a read parameter is pure. Commutative operands are ordered first.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.kernel.rebuild import Rebuilder, is_pure
from loopgrad.graph.types import scalar_text

Key = tuple[object, ...]


class _Merge(Rebuilder):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.seen: list[dict[Key, tuple[KValue, ...]]] = []
        self.order: dict[KValue, int] = {}

    def body(self, block: Block) -> None:
        self.seen.append({})
        super().body(block)
        self.seen.pop()

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        if not is_pure(op):
            return self.copy(op, operands)
        key = self.key(op, operands)
        for table in reversed(self.seen):
            known = table.get(key)
            if known is not None:
                return known
        results = self.copy(op, operands)
        self.seen[-1][key] = results
        return results

    def key(self, op: KOp, operands: tuple[KValue, ...]) -> Key:
        numbers = [self.order.setdefault(v, len(self.order)) for v in operands]
        if operands and operands[0].dtype.kind in OPCODES[op.opcode].commutes:
            numbers.sort()
        attrs = tuple(sorted((k, type(v), scalar_text(v)) for k, v in op.attrs.items())) if op.attrs else ()
        return (op.opcode, tuple(numbers), op.results[0].dtype, attrs)


def run(kernel: Kernel) -> Kernel:
    """See the module's text."""
    return _Merge(kernel).run()
