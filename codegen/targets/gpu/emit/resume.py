"""Kernels that can be left in the middle and continued by another launch, for drivers that stop long loops.

An invocation counts the trips of all its loops, as such drivers do. After TRIPS of them, at the top of a trip,
it stores its variables into its column of the state block, says so in the control block, and ends. The next
launch finds its way back: every loop that the lane comes to takes its variables from the block, so that one
that had ended ends at once and one that was running runs on, down to the loop that was left; what lies
between loops is computed again. On that way nothing is stored, and a value that may have changed in memory
since then (a pop, a load of what the kernel writes) is one that was kept.

State block, words of 8 bytes, [word][invocation]: lanes that are done, where the current lane was left (0:
it has not begun), then the depths of stacks, the elements of arrays, then the variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, KOp, walk
from loopgrad.codegen.targets.gpu.assembler import Assembler, Val, Variable
from loopgrad.codegen.targets.gpu.emit.arrays import restore_arrays, save_arrays
from loopgrad.codegen.targets.gpu.emit.context import Emitter, KernelTable, LaneStacks
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions
from loopgrad.codegen.targets.gpu.emit.stacks import overflow, units
from loopgrad.codegen.targets.gpu.interface import TRUNCATED, UNFINISHED

TRIPS: Final = 4000  # 16 lanes that share an instruction stream and take turns stay below 65,535
DONE, WHERE, DEPTHS = 0, 1, 2
WORD: Final = 8


def state_words(kernel: Kernel) -> int:
    """Words of the state block per invocation."""
    fixed = DEPTHS + len(kernel.stacks) + elements(kernel)
    return fixed + sum(kept_by(kernel, op) for op in walk(kernel.body))


def elements(kernel: Kernel) -> int:
    """Of all arrays of a lane."""
    return sum(a.size for a in kernel.arrays)


def kept_by(kernel: Kernel, op: KOp) -> int:
    if op.opcode == "for":
        return len(op.operands)  # the count's place is the trip's
    if op.opcode == "while":
        return len(op.operands) + 1
    return int(changeable(kernel, op))


def changeable(kernel: Kernel, op: KOp) -> bool:
    """Whether the operation may give something else when it is done again."""
    written = op.opcode == "load" and kernel.params[op.attrs["param"]].access != "read"
    return written or op.opcode in ("pop", "array_load")


class Resume:
    """Implements Continuation: the state of one kernel while it is emitted. The state block is the table's last one,
    `rows` its width."""

    def __init__(self, kernel: Kernel, b: Assembler, table: KernelTable, stacks: LaneStacks, rows: int) -> None:
        self.b = b
        self.column, self.pitch = Instructions(b).at(table.scratch[-1], table.invocation, WORD), WORD * rows
        self.returning, self.spent, self.where = b.local("bool"), b.local("i32"), b.local("i32")
        b.set(self.spent, b.const("i32", 0))
        self.depths = [(stack.depth, "i32", DEPTHS + s) for s, stack in enumerate(stacks.stacks)]
        self.cells: list[tuple[Variable, str, int]] = []
        self.arrays = DEPTHS + len(self.depths)
        self.words = self.arrays + elements(kernel)
        self.sites = 0

    # the state block

    def _place(self, word: int) -> Val:
        return self.b.inst("IAdd", "i64", self.column, self.b.const("i64", word * self.pitch))

    def _put(self, word: int, value: Val) -> None:
        if value.type == "bool":
            value = self.b.inst("Select", "i32", value, self.b.const("i32", 1), self.b.const("i32", 0))
        self.b.store(self._place(word), value)

    def _take(self, word: int, type: str) -> Val:
        if type != "bool":
            return self.b.load(self._place(word), type)
        return self.b.inst("INotEqual", "bool", self.b.load(self._place(word), "i32"), self.b.const("i32", 0))

    # lanes

    def lane(self, e: Emitter, lane: Val, start: Val, along: Val, run: Callable[[Val], None]) -> None:
        """run(lane), if this lane is the next one of the invocation's lanes start, start + along, ..."""
        b = self.b
        done = b.load(self._place(DONE), "i64")
        due = b.inst("IAdd", "i64", start, b.inst("IMul", "i64", along, done))

        def begin() -> None:
            where = b.load(self._place(WHERE), "i32")
            b.set(self.where, where)
            b.set(self.returning, b.inst("INotEqual", "bool", where, b.const("i32", 0)))
            run(lane)
            self._put(DONE, b.inst("IAdd", "i64", done, b.const("i64", 1)))
            self._put(WHERE, b.const("i32", 0))

        e.when(b.inst("IEqual", "bool", lane, due), begin)

    def effect(self, e: Emitter, then: Callable[[], None]) -> None:
        """then(), unless it was done before the lane was left."""
        e.when(self.forward(), then)

    def forward(self) -> Val:
        """Whether the lane isn't on its way back."""
        return self.b.inst("LogicalNot", "bool", self.b.get(self.returning, "bool"))

    def spilled(self, e: Emitter, value: Val) -> Val:
        """The value, or on the way back the one that it was."""
        variable, word = self.b.local(value.type), self.words
        self.words += 1
        known = e.select(self.b.get(self.returning, "bool"), self._take(word, value.type), value)
        self.b.set(variable, known)
        self.cells.append((variable, value.type, word))
        return known

    # loops

    def enter(self, e: Emitter, variables: Sequence[Variable], types: Sequence[str]) -> Callable[[], None]:
        """A loop with these variables, which have their first values, begins. What is returned comes at the top
        of each trip."""
        b = self.b
        self.sites += 1
        site = b.const("i32", self.sites)
        own = [(v, type, self.words + i) for i, (v, type) in enumerate(zip(variables, types, strict=True))]
        self.words += len(own)
        self.cells += own

        def restore() -> None:
            self._restore(own)
            e.when(b.inst("IEqual", "bool", b.get(self.where, "i32"), site), arrive)

        def arrive() -> None:
            restore_arrays(e, self._place(self.arrays), self.pitch)
            b.set(self.spent, b.const("i32", 0))  # so that every launch makes a trip at least
            self._restore(self.depths)
            b.set(self.returning, b.const("bool", False))

        e.when(b.get(self.returning, "bool"), restore)
        return partial(self.pause, e, site)

    def _restore(self, cells: Sequence[tuple[Variable, str, int]]) -> None:
        for variable, type, word in cells:
            self.b.set(variable, self._take(word, type))

    def tick(self, e: Emitter) -> None:
        """A trip of any loop."""
        self.b.set(self.spent, self.b.inst("IAdd", "i32", self.b.get(self.spent, "i32"), self.b.const("i32", 1)))

    def pause(self, e: Emitter, site: Val) -> None:
        """The invocation may end here."""
        b = self.b
        spent = b.inst("SGreaterThan", "bool", b.get(self.spent, "i32"), b.const("i32", TRIPS))
        leaves = e.both(spent, self.forward())
        inside, after = b.block(), b.block()
        b.merge(after)
        b.branch(leaves, inside, after)
        b.start(inside)
        with e.nested():
            self._save(e, site)
        b.leave()
        b.start(after)

    def _save(self, e: Emitter, site: Val) -> None:
        """Stacks that are too small by now say so, since the loop that will look at them may never end."""
        for s, (variable, type, _) in enumerate(self.depths):
            depth = self.b.get(variable, type)
            over = self.b.inst("ULessThan", "bool", e.stacks[s].capacity, depth)
            e.when(over, partial(overflow, e, s, units(e, s, depth)))
        for variable, type, word in [*self.depths, *self.cells]:
            self._put(word, self.b.get(variable, type))
        save_arrays(e, self._place(self.arrays), self.pitch)
        self._put(WHERE, site)
        self.b.atomic("AtomicOr", e.reporting.control(self.b, TRUNCATED), self.b.const("i32", UNFINISHED))
        self.b.store(e.reporting.void(self.b), self.b.const("i32", 1))
