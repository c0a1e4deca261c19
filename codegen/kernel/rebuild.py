"""Copying a Kernel through a rule: the frame that every kernel pass shares."""

from __future__ import annotations

from dataclasses import replace

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES


class Rebuilder:
    """Copies blocks; a pass overrides `op` (one operation with its new operands).

    `op` appends to `self.out` and returns the new results.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.env: dict[KValue, KValue] = {}
        self.out: list[KOp] = []

    def run(self) -> Kernel:
        key = self.kernel.order_key
        return replace(
            self.kernel, body=self.block(self.kernel.body), order_key=None if key is None else self.block(key)
        )

    def block(self, block: Block) -> Block:
        arguments = tuple([KValue(v.dtype) for v in block.arguments])
        self.env.update(zip(block.arguments, arguments, strict=True))
        outer, self.out = self.out, []
        self.body(block)
        result = Block(arguments, self.out, tuple([self.env[v] for v in block.yields]))
        self.out = outer
        return result

    def body(self, block: Block) -> None:
        for op in block.ops:
            operands = tuple([self.env[v] for v in op.operands])
            self.env.update(zip(op.results, self.op(op, operands), strict=True))

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        return self.copy(op, operands)

    def copy(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        blocks = tuple([self.block(b) for b in op.blocks]) if op.blocks else ()
        copy = KOp(op.opcode, operands, tuple([r.dtype for r in op.results]), op.attrs, blocks)
        self.out.append(copy)
        return copy.results


def is_pure(op: KOp) -> bool:
    """Whether the operation may be moved, merged or dropped freely (it has no blocks or effects)."""
    return not op.blocks and not OPCODES[op.opcode].effect
