"""The update kernel: a workgroup that does an update list (update_list.py), so that the host needn't come between
the launches of a recorded program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from loopgrad.codegen.kernel.nodes import Block, Kernel
from loopgrad.codegen.targets.gpu.assembler import Assembler, Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted, emit_loop
from loopgrad.codegen.targets.gpu.support.update_list import (
    BASE,
    CAPACITY,
    CHOOSE,
    CLEAR,
    COUNT,
    DEPTH,
    EMPTY_STACK,
    ENTER,
    LOOP_ERROR,
    LOOP_MADE,
    NEXT,
    OPERATION,
    PAUSED,
    PEAK,
    POP,
    PROGRESS,
    PUSH,
    ROOM,
    STOP,
    STRIDE,
    SWAP,
    TEST,
    TRIPS,
    VOID,
    WATCH,
)

SetCondition = Callable[[Val, Val], None]


def emit_update(b: Assembler, set_condition: SetCondition | None = None) -> None:
    """The kernel's program, into `b`. `set_condition(handle, value)`, both i64, tells the driver; without
    it the value goes to the word at the address `handle`."""
    e = Emitter(Kernel("update", (), (), Block()), b)
    state, record, handle, expected, resume, _ = b.launch_words()
    own = b.local_id()
    operations, copies = b.load(record, "i64"), b.load(e.offset(record, 8), "i64")
    first = e.offset(record, 16)
    leader = b.inst("IEqual", "bool", own, b.const("i32", 0))
    interpreter = _Interpreter(e, state, first, operations, handle, set_condition or _store(b))
    e.when(leader, lambda: interpreter.run(expected, resume))
    b.barrier()
    pairs = e.at(first, operations, 8 * OPERATION)
    _refresh(e, state, pairs, copies, e.resize(own, "i64", signed=False))


def _store(b: Assembler) -> SetCondition:
    return lambda handle, value: b.store(handle, value)


def _refresh(e: Emitter, state: Val, pairs: Val, copies: Val, own: Val) -> None:
    """Every invocation takes each b.group-th pair."""
    b = e.b
    group = b.const("i64", b.group)
    left = b.inst("ISub", "i64", b.inst("IAdd", "i64", copies, b.const("i64", b.group - 1)), own)

    def step(k: Val) -> None:
        number = b.inst("IAdd", "i64", own, b.inst("IMul", "i64", k, group))
        pair = e.at(pairs, number, 16)
        target, source = b.load(pair, "i64"), b.load(e.offset(pair, 8), "i64")
        b.store(e.at(state, target, 8), b.load(e.at(state, source, 8), "i64"))

    counted(e, b.inst("UDiv", "i64", left, group), step)


class _Interpreter:
    """One invocation's way through the operations. `decision` is the condition's value, `done` the
    number of operations that need no more attention."""

    def __init__(
        self, e: Emitter, state: Val, first: Val, count: Val, handle: Val, set_condition: SetCondition
    ) -> None:
        self.e, self.b = e, e.b
        self.state, self.first, self.count, self.handle = state, first, count, handle
        self.set_condition = set_condition
        self.decision: Variable = self.b.local("i64")
        self.void: Variable = self.b.local("i32")
        self.done: Variable = self.b.local("i64")

    def run(self, expected: Val, resume: Val) -> None:
        """Nothing where an unexpected decision has paused everything."""
        b = self.b
        self.where = self.word(self.const(VOID))
        void = b.load(self.where, "i32")
        paused = b.inst("IEqual", "bool", void, b.const("i32", PAUSED))
        resumes = self.e.both(paused, self.unlike(resume, 0))
        self.e.when(resumes, lambda: b.store(self.where, b.const("i32", 0)))
        self.e.when(b.inst("LogicalNot", "bool", paused), partial(self.interpret, void, expected))

    def interpret(self, void: Val, expected: Val) -> None:
        b = self.b
        b.set(self.decision, self.const(0))
        b.set(self.void, void)
        rows: Sequence[tuple[int, Callable[[Val], None]]] = (
            (SWAP, self.swap),
            (ENTER, self.enter),
            (NEXT, self.next),
            (CLEAR, self.clear),
            (TEST, self.test),
            (CHOOSE, self.choose),
            (PUSH, self.push),
            (POP, self.pop),
            (ROOM, self.room),
            (WATCH, self.watch),
        )

        b.set(self.done, self.const(0))

        def step() -> None:
            done = b.get(self.done, "i64")
            b.set(self.done, self.add(done, 1))
            place = self.e.at(self.first, done, 8 * OPERATION)
            code = b.load(place, "i64")
            for number, emit in rows:
                self.e.when(self.equal(code, number), partial(emit, place))

        emit_loop(self.e, lambda: self.less(b.get(self.done, "i64"), self.count), step)
        decision = b.get(self.decision, "i64")
        self.e.when(self.unlike(self.handle, 0), lambda: self.set_condition(self.handle, decision))
        self.e.when(self.unlike(expected, 0), partial(self.compare, self.add(decision, 1), expected))

    def compare(self, answer: Val, expected: Val) -> None:
        """Pause where the decision isn't the expected one."""
        b = self.b
        progress = self.const(PROGRESS)
        self.put(self.add(self.word(progress), 1), progress)
        fine = b.inst("IEqual", "bool", b.get(self.void, "i32"), b.const("i32", 0))
        other = self.e.both(b.inst("INotEqual", "bool", answer, expected), fine)
        self.e.when(other, lambda: b.store(self.where, b.const("i32", PAUSED)))

    # pieces

    def const(self, value: int) -> Val:
        return self.b.const("i64", value)

    def equal(self, x: Val, value: int) -> Val:
        return self.b.inst("IEqual", "bool", x, self.const(value))

    def unlike(self, x: Val, value: int) -> Val:
        return self.b.inst("INotEqual", "bool", x, self.const(value))

    def add(self, x: Val, value: int) -> Val:
        return self.b.inst("IAdd", "i64", x, self.const(value))

    def less(self, x: Val, y: Val) -> Val:
        return self.b.inst("SLessThan", "bool", x, y)

    def largest(self, x: Val, y: Val) -> Val:
        return self.e.select(self.less(x, y), y, x)

    def argument(self, place: Val, number: int) -> Val:
        return self.b.load(self.e.offset(place, 8 * number), "i64")

    def word(self, position: Val, offset: int = 0) -> Val:
        return self.b.load(self.e.offset(self.e.at(self.state, position, 8), 8 * offset), "i64")

    def put(self, value: Val, position: Val, offset: int = 0) -> None:
        self.b.store(self.e.offset(self.e.at(self.state, position, 8), 8 * offset), value)

    def fail(self) -> None:
        """Whatever follows is void."""
        self.b.set(self.void, self.b.const("i32", 1))
        self.b.store(self.where, self.b.const("i32", 1))

    def report(self, code: Val, detail: Val) -> None:
        self.put(code, self.const(LOOP_ERROR))
        self.put(detail, self.const(LOOP_MADE))
        self.fail()

    def going(self) -> Val:
        """Neither void nor stopped."""
        fine = self.b.inst("IEqual", "bool", self.b.get(self.void, "i32"), self.b.const("i32", 0))
        return self.e.both(fine, self.equal(self.word(self.const(STOP)), 0))

    def integer(self, symbol: Val, kind: Val) -> Val:
        """The one integer at the address in `symbol`."""
        address, found = self.word(symbol), self.b.local("i64")
        self.b.set(found, self.const(0))
        for type in ("i8", "i16", "i32", "i64"):
            for sign in (0, 16):
                matches = self.equal(kind, SIZE[type] + sign)
                self.e.when(matches, partial(self._read, found, address, type, sign))
        return self.b.get(found, "i64")

    def _read(self, found: Variable, address: Val, type: str, sign: int) -> None:
        value = self.b.load(address, type)
        if type != "i64":
            value = self.b.inst("SConvert" if sign else "UConvert", "i64", value)
        self.b.set(found, value)

    def write(self, symbol: Val, kind: Val, value: Val) -> None:
        """Store an integer at the address in `symbol`."""
        address = self.word(symbol)
        size = self.b.inst("BitwiseAnd", "i64", kind, self.const(15))
        for type in ("i8", "i16", "i32", "i64"):
            narrow = value if type == "i64" else self.b.inst("UConvert", type, value)
            self.e.when(self.equal(size, SIZE[type]), partial(self.b.store, address, narrow))

    # operations

    def swap(self, place: Val) -> None:
        a, b = self.argument(place, 1), self.argument(place, 2)
        x, y = self.word(a), self.word(b)
        self.put(y, a)
        self.put(x, b)

    def enter(self, place: Val) -> None:
        loop, count, kind = (self.argument(place, i) for i in (1, 2, 3))
        self.put(self.const(-1), loop, TRIPS)
        self.put(self.integer(count, kind), loop, COUNT)

    def next(self, place: Val) -> None:
        loop, index, kind, reverse = (self.argument(place, i) for i in (1, 2, 3, 4))
        trip, count = self.add(self.word(loop, TRIPS), 1), self.word(loop, COUNT)
        self.put(trip, loop, TRIPS)
        go = self.e.both(self.less(trip, count), self.going())
        self.decide(go)
        mirrored = self.b.inst("ISub", "i64", self.add(count, -1), trip)
        value = self.e.select(self.equal(reverse, 0), trip, mirrored)
        self.e.when(go, lambda: self.write(index, kind, value))

    def decide(self, go: Val) -> None:
        """Where a loop ends, what follows is not done."""
        self.b.set(self.decision, self.e.select(go, self.const(1), self.const(0)))
        self.b.set(self.done, self.e.select(go, self.b.get(self.done, "i64"), self.count))

    def clear(self, place: Val) -> None:
        self.put(self.const(0), self.argument(place, 1), TRIPS)

    def test(self, place: Val) -> None:
        loop, pred, limit, number = (self.argument(place, i) for i in (1, 2, 3, 4))
        made = self.word(loop, TRIPS)
        holds = self.b.inst("INotEqual", "bool", self.b.load(self.word(pred), "i8"), self.b.const("i8", 0))
        wanted = self.e.both(holds, self.going())
        within = self.less(made, limit)
        beyond = self.e.both(wanted, self.e.select(within, self.no(), self.yes()))
        self.e.when(beyond, lambda: self.report(self.add(number, 1), made))
        go = self.e.both(wanted, within)
        self.decide(go)
        self.e.when(go, lambda: self.put(self.add(made, 1), loop, TRIPS))

    def yes(self) -> Val:
        return self.b.const("bool", True)

    def no(self) -> Val:
        return self.b.const("bool", False)

    def choose(self, place: Val) -> None:
        index, kind, branches = (self.argument(place, i) for i in (1, 2, 3))
        value, last = self.integer(index, kind), self.add(branches, -1)
        low = self.largest(value, self.const(0))
        clamped = self.e.select(self.less(low, last), low, last)
        fine = self.b.inst("IEqual", "bool", self.b.get(self.void, "i32"), self.b.const("i32", 0))
        self.b.set(self.decision, self.e.select(fine, clamped, branches))

    def row(self, stack: Val, depth: Val) -> Val:
        """The address of a row; all beyond the capacity are one."""
        capacity = self.word(stack, CAPACITY)
        number = self.e.select(self.less(depth, capacity), depth, capacity)
        offset = self.b.inst("IMul", "i64", number, self.word(stack, STRIDE))
        return self.b.inst("IAdd", "i64", self.word(stack, BASE), offset)

    def push(self, place: Val) -> None:
        stack, target = self.argument(place, 1), self.argument(place, 2)
        depth = self.word(stack, DEPTH)
        self.put(self.row(stack, depth), target)
        after = self.add(depth, 1)
        self.put(after, stack, DEPTH)
        self.put(self.largest(self.word(stack, PEAK), after), stack, PEAK)

    def pop(self, place: Val) -> None:
        stack, slot = self.argument(place, 1), self.argument(place, 2)
        depth = self.add(self.word(stack, DEPTH), -1)
        empty = self.e.both(self.less(depth, self.const(0)), self.going())
        self.e.when(empty, lambda: self.report(self.const(EMPTY_STACK), stack))
        left = self.largest(depth, self.const(0))
        self.put(left, stack, DEPTH)
        self.put(self.row(stack, left), slot)
        self.e.when(self.less(self.word(stack, CAPACITY), self.word(stack, PEAK)), self.fail)

    def room(self, place: Val) -> None:
        stack, depth, kind = (self.argument(place, i) for i in (1, 2, 3))
        more = self.largest(self.integer(depth, kind), self.const(0))
        needed = self.b.inst("IAdd", "i64", self.word(stack, DEPTH), more)
        self.put(self.largest(self.word(stack, PEAK), needed), stack, PEAK)
        self.e.when(self.less(self.word(stack, CAPACITY), needed), self.fail)

    def watch(self, place: Val) -> None:
        code = self.b.load(self.word(self.argument(place, 1)), "i32")
        failed = self.b.inst("INotEqual", "bool", code, self.b.const("i32", 0))
        self.e.when(failed, self.fail)
