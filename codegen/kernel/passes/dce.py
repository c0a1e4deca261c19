"""Dead code goes: unused results, loop carries that only feed themselves, stacks and arrays of lanes never read.

    for %n (%v, %w) do (%k, %a, %b)          for %n (%v) do (%k, %a)
      yield %a2, %b2                   ->      yield %a2
    ... only the first result is used

Liveness is found once, over the whole kernel, from the operations with an effect.
"""

from __future__ import annotations

from dataclasses import replace

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.kernel.rebuild import Rebuilder


class _Liveness:
    def __init__(self, kernel: Kernel) -> None:
        self.live: set[KValue] = set()
        self.live_ops: set[KOp] = set()
        self.live_stacks: set[int] = set()
        self.live_arrays: set[int] = set()
        self.owner: dict[KValue, tuple[KOp, int]] = {}  # loop block argument -> loop, carry (-1: index)
        self.parents: dict[KOp, KOp | None] = {}
        self.stack_ops: dict[int, list[KOp]] = {}
        self.array_stores: dict[int, list[KOp]] = {}
        self.pending: list[KValue] = []
        roots: list[KOp] = []
        self.scan(kernel.body, None, roots)
        for op in roots:
            self.keep(op)
        while self.pending:
            self.visit(self.pending.pop())

    def scan(self, block: Block, parent: KOp | None, roots: list[KOp]) -> None:
        for op in block.ops:
            self.parents[op] = parent
            if OPCODES[op.opcode].needed or (op.opcode == "while" and op.attrs.get("max_steps") is not None):
                roots.append(op)
            if op.opcode in ("push", "pop"):
                self.stack_ops.setdefault(op.attrs["stack"], []).append(op)
            if op.opcode == "array_store":
                self.array_stores.setdefault(op.attrs["array"], []).append(op)
            for inner in op.blocks:
                shift = 1 if op.opcode == "for" else 0
                for i, argument in enumerate(inner.arguments):
                    self.owner[argument] = (op, i - shift)
                self.scan(inner, op, roots)

    def need(self, value: KValue) -> None:
        if value not in self.live:
            self.live.add(value)
            self.pending.append(value)

    def keep(self, op: KOp) -> None:
        """The operation happens; so must whatever decides whether it is reached."""
        if op in self.live_ops:
            return
        self.live_ops.add(op)
        if op.opcode in ("for", "if"):
            self.need(op.operands[0])
        elif op.opcode == "while":
            self.need(op.blocks[0].yields[0])
        else:
            for v in op.operands:
                self.need(v)
        if op.opcode == "pop":
            self.keep_stack(op.attrs["stack"])
        if op.opcode == "array_load":
            self.keep_array(op.attrs["array"])
        parent = self.parents.get(op)
        if parent is not None:
            self.keep(parent)

    def keep_stack(self, stack: int) -> None:
        if stack not in self.live_stacks:
            self.live_stacks.add(stack)
            for op in self.stack_ops[stack]:
                self.keep(op)

    def keep_array(self, array: int) -> None:
        if array not in self.live_arrays:
            self.live_arrays.add(array)
            for op in self.array_stores.get(array, ()):
                self.keep(op)

    def visit(self, value: KValue) -> None:
        if value in self.owner:
            op, position = self.owner[value]
            self.keep(op)
            if position >= 0:
                self.carry(op, position)
        elif value.op is not None:
            self.keep(value.op)
            if value.op.blocks:
                self.carry(value.op, value.index)

    def carry(self, op: KOp, position: int) -> None:
        """Result or carry `position` of a `for`, `while` or `if` is needed."""
        self.need(op.results[position])
        if op.opcode == "if":
            for block in op.blocks:
                self.need(block.yields[position])
            return
        self.need(op.operands[position + 1 if op.opcode == "for" else position])
        self.need(op.blocks[-1].yields[position])


class _Sweep(Rebuilder):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.liveness = _Liveness(kernel)
        self.stack_number = {s: i for i, s in enumerate(sorted(self.liveness.live_stacks))}
        self.array_number = {a: i for i, a in enumerate(sorted(self.liveness.live_arrays))}

    def run(self) -> Kernel:
        swept = replace(self.kernel, body=self.block(self.kernel.body))
        stacks = tuple([self.kernel.stacks[s] for s in self.stack_number])
        return replace(swept, stacks=stacks, arrays=tuple([self.kernel.arrays[a] for a in self.array_number]))

    def body(self, block: Block) -> None:
        for op in block.ops:
            if op in self.liveness.live_ops:
                self.rewrite(op)

    def rewrite(self, op: KOp) -> None:
        kept = [i for i, r in enumerate(op.results) if not op.blocks or r in self.liveness.live]
        operands, attrs = op.operands, op.attrs
        if op.opcode in ("for", "while"):
            shift = 1 if op.opcode == "for" else 0
            operands = operands[:shift] + tuple([operands[i + shift] for i in kept])
        if op.opcode in ("push", "pop"):
            attrs = {**attrs, "stack": self.stack_number[attrs["stack"]]}
        blocks = tuple([self.narrowed(op, b, kept) for b in op.blocks])
        if op.opcode in ("array_load", "array_store"):
            attrs = {**attrs, "array": self.array_number[attrs["array"]]}
        copy = KOp(
            op.opcode,
            tuple([self.env[v] for v in operands]),
            tuple([op.results[i].dtype for i in kept]),
            attrs,
            blocks,
        )
        self.out.append(copy)
        self.env.update(zip([op.results[i] for i in kept], copy.results, strict=True))

    def narrowed(self, op: KOp, block: Block, kept: list[int]) -> Block:
        arguments, yields = block.arguments, block.yields
        if op.opcode == "for":
            arguments = arguments[:1] + tuple([arguments[i + 1] for i in kept])
        elif op.opcode == "while":
            arguments = tuple([arguments[i] for i in kept])
        if not (op.opcode == "while" and block is op.blocks[0]):
            yields = tuple([yields[i] for i in kept])
        return self.block(Block(arguments, block.ops, yields))


def run(kernel: Kernel) -> Kernel:
    """See the module's text. `order_key` is left as it is."""
    return _Sweep(kernel).run()
