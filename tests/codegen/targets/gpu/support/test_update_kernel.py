"""The update kernel against what its operations mean, on random states and lists."""

from __future__ import annotations

import random

import numpy as np
import pytest

from loopgrad.codegen.targets.gpu.support import update_list as u
from loopgrad.graph.types import DTYPES, bool_
from tests.codegen.targets.gpu.support.update_reference import Memory, run_update
from tests.simulator.code import UPDATE_GROUP, update_code
from tests.simulator.driver import Image

LOOPS, STACKS, SLOTS, TABLE, ROWS = 3, 2, 8, 16, 6
STACK_AT = u.HEADER + u.LOOP * LOOPS
SYMBOLS = STACK_AT + u.STACK * STACKS
TABLES = SYMBOLS + SLOTS
SIZE = TABLES + TABLE
KINDS = [u.integer_kind(DTYPES[f"{sign}int{bits}"]) for sign in ("", "u") for bits in (8, 16, 32, 64)]


class World:
    """A state and the memory that its addresses lie in: the void word, slots, rows of stacks."""

    def __init__(self, rng: random.Random) -> None:
        self.memory = np.array([rng.choice([0, 0, 1, 2, 3, -1, 255, 2**40]) for _ in range(1 + SLOTS + ROWS * STACKS)])
        self.memory[0] = rng.random() < 0.15
        self.words = words = np.zeros(SIZE, np.int64)
        words[u.VOID], words[u.STOP] = self.address(0), rng.random() < 0.1
        for i in range(LOOPS):
            words[u.HEADER + u.LOOP * i :][:2] = rng.randint(-1, 4), rng.randint(-2, 4)
        for i in range(STACKS):
            depth, capacity = rng.randint(0, 4), rng.randint(0, ROWS - 1)
            rows = self.address(1 + SLOTS + ROWS * i)
            words[STACK_AT + u.STACK * i :][: u.STACK] = depth, depth + rng.randint(0, 2), capacity, rows, 8
        words[SYMBOLS:TABLES] = [self.address(1 + i) for i in range(SLOTS)]
        words[TABLES:] = [rng.randint(0, 1 << 30) for _ in range(TABLE)]
        self.answer = np.full(1, 77, np.int64)

    def address(self, element: int) -> int:
        return int(self.memory.ctypes.data) + 8 * element

    def described(self) -> list[int]:
        """Everything, with addresses counted from the memory's."""
        size, base = self.memory.nbytes, int(self.memory.ctypes.data)
        words = [word - base if base <= word < base + size else word for word in self.words.tolist()]
        return [*words, *self.memory.tolist(), *self.answer.tolist()]


def random_list(rng: random.Random) -> u.UpdateList:
    made = u.UpdateList()
    for _ in range(rng.randint(0, 7)):
        add_operation(rng, made)
    return made


def add_operation(rng: random.Random, made: u.UpdateList) -> None:
    a, b = SYMBOLS + rng.randrange(SLOTS), SYMBOLS + rng.randrange(SLOTS)
    loop, stack = u.HEADER + u.LOOP * rng.randrange(LOOPS), STACK_AT + u.STACK * rng.randrange(STACKS)
    kind = rng.choice(KINDS)
    rows = [
        (made.swap, a, b),
        (made.enter, loop, a, kind),
        (made.next, loop, a, kind, rng.random() < 0.5),
        (made.clear, loop),
        (made.test, loop, a, rng.choice([None, 0, 1, 3]), rng.randrange(5)),
        (made.choose, a, rng.choice([*KINDS, u.integer_kind(bool_)]), rng.randint(1, 4)),
        (made.push, stack, a),
        (made.pop, stack, a),
        (made.room, stack, a, kind),
        (made.watch, a),
    ]
    add, *arguments = rng.choice(rows)
    add(*arguments)


@pytest.fixture(scope="module")
def kernel():
    return Image(update_code()).pipeline("update", "k0", UPDATE_GROUP)


@pytest.mark.parametrize("seed", range(200))
def test_lists_do_what_they_mean(kernel, seed):
    wanted, got = (World(random.Random(seed)) for _ in range(2))
    rng = random.Random(seed + 1)
    made = random_list(rng)
    targets = rng.sample(range(TABLES, SIZE), rng.randint(0, 9))
    words = np.array(made.encode([(target, SYMBOLS + rng.randrange(SLOTS)) for target in targets]), np.uint64)
    push = [(world.words.ctypes.data, words.ctypes.data, world.answer.ctypes.data) for world in (wanted, got)]
    run_update(*push[0], Memory().put)
    kernel.dispatch(1, (*push[1], 0, 0, 0))
    assert got.described() == wanted.described()


def test_a_list_without_a_condition_tells_nothing(kernel):
    world, made = World(random.Random(1)), u.UpdateList()
    made.swap(SYMBOLS, SYMBOLS + 1)
    x, y = world.words[SYMBOLS : SYMBOLS + 2].tolist()
    record = np.array(made.encode([(TABLES, SYMBOLS)]), np.uint64)
    kernel.dispatch(1, (world.words.ctypes.data, record.ctypes.data, 0, 0, 0, 0))
    assert world.words[SYMBOLS : SYMBOLS + 2].tolist() == [y, x]
    assert world.words[TABLES] == y
    assert world.answer[0] == 77


@pytest.mark.parametrize("name", ["int8", "uint16", "int32", "uint32", "int64", "bool"])
def test_integers_of_every_width(kernel, name):
    """A count is read, and an index written, with the slot's own width and sign."""
    dtype = DTYPES[name]
    for count in (3, 1) if name == "bool" else (5, 1, 0, -3):
        world, made = World(random.Random(3)), u.UpdateList()
        world.memory[0] = world.words[u.STOP] = 0
        slots = world.memory[1:3].view(dtype.np)
        slots[0] = count if dtype.kind == "i" else abs(count)
        size = world.memory[1:].view(dtype.np)[8 // dtype.itemsize :]
        size[:2] = 9, 7
        made.enter(u.HEADER, SYMBOLS, u.integer_kind(dtype))
        made.next(u.HEADER, SYMBOLS + 1, u.integer_kind(dtype), True)
        record = np.array(made.encode([]), np.uint64)
        kernel.dispatch(1, (world.words.ctypes.data, record.ctypes.data, world.answer.ctypes.data, 0, 0, 0))
        trips = int(slots[0])
        assert world.answer[0] == (trips > 0)
        assert size[:2].tolist() == ([trips - 1, 7] if trips > 0 else [9, 7]) or name == "bool"
