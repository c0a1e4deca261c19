"""Loop-invariant code moves in front of the loop.

    for %n (%v) do (%k, %c)              %1 = sin %x
      %1 = sin %x                  ->    for %n (%v) do (%k, %c)
      ...                                  ...

Only pure operations move, so a loop that makes no trip is unharmed; a load moves where its buffer
isn't empty (indices are clamped by whoever lowered them). A kernel of which nothing moves is left as it is.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.rebuild import Rebuilder, is_pure


class _Hoist(Rebuilder):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.level: dict[KValue, int] = {}  # how many loops surround the value's definition
        self.lists: list[list[KOp]] = []  # for each level, the operations in front of the next loop
        self.moved = False

    def copy(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        depth = len(self.lists)
        if op.opcode in ("for", "while"):
            self.lists.append(self.out)
            results = super().copy(op, operands)
            self.lists.pop()
        elif depth and self.movable(op) and (level := self.wanted(operands)) < depth:
            moved = KOp(op.opcode, operands, tuple([r.dtype for r in op.results]), op.attrs)
            self.lists[level].append(moved)
            self.moved = True
            self.level.update((r, level) for r in moved.results)
            return moved.results
        else:
            results = super().copy(op, operands)
        self.level.update((r, depth) for r in results)
        return results

    def body(self, block: Block) -> None:
        self.level.update((self.env[v], len(self.lists)) for v in block.arguments)
        super().body(block)

    def wanted(self, operands: tuple[KValue, ...]) -> int:
        return max((self.level.get(v, 0) for v in operands), default=0)

    def movable(self, op: KOp) -> bool:
        if op.opcode == "load":
            return bool(self.kernel.params[op.attrs["param"]].size)
        return is_pure(op)


def run(kernel: Kernel) -> Kernel:
    """See the module's text."""
    if not any(op.opcode in ("for", "while") for op in walk(kernel.body)) and kernel.order_key is None:
        return kernel
    hoist = _Hoist(kernel)
    after = hoist.run()
    return after if hoist.moved else kernel
