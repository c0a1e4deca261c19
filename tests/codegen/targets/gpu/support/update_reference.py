"""What an update list means (codegen.targets.gpu.support.update_list), in Python: the kernel is compared with this."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from loopgrad.codegen.targets.gpu.support import update_list as u

Decide = Callable[[int, int], None]


class Memory:
    """The process's own, in u64 words and in elements."""

    def word(self, address: int) -> int:
        return ctypes.c_uint64.from_address(address).value

    def put(self, address: int, value: int) -> None:
        ctypes.c_uint64.from_address(address).value = value & (1 << 64) - 1

    def integer(self, address: int, kind: int) -> int:
        return int.from_bytes(ctypes.string_at(address, kind & 15), "little", signed=kind >= 16)

    def store(self, address: int, kind: int, value: int) -> None:
        size = kind & 15
        ctypes.memmove(address, (value & (1 << 8 * size) - 1).to_bytes(size, "little"), size)


def signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def run_update(state: int, record: int, handle: int, decide: Decide, memory: Any = None) -> None:
    """One launch of the update kernel."""
    memory = memory or Memory()
    operations, pairs = memory.word(record), memory.word(record + 8)
    first = record + 16
    value = _Run(memory, state).operations(first, operations)
    if handle:
        decide(handle, value)
    first += 8 * u.OPERATION * operations
    copies = [(memory.word(first + 16 * i), memory.word(first + 16 * i + 8)) for i in range(pairs)]
    for target, source in copies:
        memory.put(state + 8 * signed(target), memory.word(state + 8 * signed(source)))


class _Run:
    def __init__(self, memory: Any, state: int) -> None:
        self.memory, self.state = memory, state
        self.decision = 0

    def get(self, position: int) -> int:
        return signed(self.memory.word(self.state + 8 * position))

    def put(self, position: int, value: int) -> None:
        self.memory.put(self.state + 8 * position, value)

    @property
    def void(self) -> bool:
        return self.memory.integer(self.get(u.VOID), 4) != 0

    def fail(self) -> None:
        self.memory.store(self.get(u.VOID), 4, 1)

    def going(self) -> bool:
        return not self.void and not self.get(u.STOP)

    def operations(self, first: int, count: int) -> int:
        for k in range(count):
            code, *arguments = [signed(self.memory.word(first + 8 * (u.OPERATION * k + i))) for i in range(u.OPERATION)]
            if not self.operation(code, arguments):
                break
        return self.decision

    def operation(self, code: int, a: list[int]) -> bool:
        """False where a loop ends."""
        match code:
            case u.SWAP:
                x, y = self.get(a[0]), self.get(a[1])
                self.put(a[0], y)
                self.put(a[1], x)
            case u.ENTER:
                self.put(a[0] + u.TRIPS, -1)
                self.put(a[0] + u.COUNT, self.memory.integer(self.get(a[1]), a[2]))
            case u.NEXT:
                return self.next(*a[:4])
            case u.CLEAR:
                self.put(a[0] + u.TRIPS, 0)
            case u.TEST:
                return self.test(*a[:4])
            case u.CHOOSE:
                index = self.memory.integer(self.get(a[0]), a[1])
                self.decision = a[2] if self.void else min(max(index, 0), a[2] - 1)
            case u.PUSH:
                depth = self.get(a[0] + u.DEPTH)
                self.put(a[1], self.row(a[0], depth))
                self.put(a[0] + u.DEPTH, depth + 1)
                self.put(a[0] + u.PEAK, max(self.get(a[0] + u.PEAK), depth + 1))
            case u.POP:
                self.pop(*a[:2])
            case u.ROOM:
                needed = self.get(a[0] + u.DEPTH) + max(self.memory.integer(self.get(a[1]), a[2]), 0)
                self.put(a[0] + u.PEAK, max(self.get(a[0] + u.PEAK), needed))
                if needed > self.get(a[0] + u.CAPACITY):
                    self.fail()
            case u.WATCH:
                if self.memory.integer(self.get(a[0]), 4):
                    self.fail()
        return True

    def next(self, loop: int, index: int, kind: int, reverse: int) -> bool:
        trip, count = self.get(loop + u.TRIPS) + 1, self.get(loop + u.COUNT)
        self.put(loop + u.TRIPS, trip)
        go = trip < count and self.going()
        if go:
            self.memory.store(self.get(index), kind, count - 1 - trip if reverse else trip)
        self.decision = int(go)
        return go

    def test(self, loop: int, pred: int, limit: int, number: int) -> bool:
        made = self.get(loop + u.TRIPS)
        go = self.memory.integer(self.get(pred), 1) != 0 and self.going()
        if go and made >= limit:
            self.report(number + 1, made)
            go = False
        if go:
            self.put(loop + u.TRIPS, made + 1)
        self.decision = int(go)
        return go

    def report(self, code: int, detail: int) -> None:
        self.put(u.LOOP_ERROR, code)
        self.put(u.LOOP_MADE, detail)
        self.fail()

    def row(self, stack: int, depth: int) -> int:
        return self.get(stack + u.BASE) + min(depth, self.get(stack + u.CAPACITY)) * self.get(stack + u.STRIDE)

    def pop(self, stack: int, slot: int) -> None:
        depth = self.get(stack + u.DEPTH) - 1
        if depth < 0 and self.going():
            self.report(u.EMPTY_STACK, stack)
        self.put(stack + u.DEPTH, max(depth, 0))
        self.put(slot, self.row(stack, max(depth, 0)))
        if self.get(stack + u.PEAK) > self.get(stack + u.CAPACITY):
            self.fail()
