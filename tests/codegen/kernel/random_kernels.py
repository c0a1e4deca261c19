"""Random structured kernels: nests of for, while and if over int32 and float32 carries, with stacks and
arrays of lanes."""

from __future__ import annotations

import random
from contextlib import contextmanager

import numpy as np

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, OwnArray, Reduction, StackSlot
from loopgrad.graph.types import bool_, float32, int32, int64

LANES = 37


class Builder:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.block: list[KOp] = []
        self.stacks: list[StackSlot] = []
        self.arrays: list[OwnArray] = []
        self.budget = 40

    def op(self, opcode, operands, dtypes, attrs=None, blocks=()):
        made = KOp(opcode, tuple(operands), tuple(dtypes), attrs or {}, tuple(blocks))
        self.block.append(made)
        return made.results

    def one(self, opcode, operands, dtype, **attrs):
        return self.op(opcode, operands, (dtype,), attrs)[0]

    def const(self, value, dtype):
        return self.one("const", (), dtype, value=value)

    @contextmanager
    def inside(self):
        outer, self.block = self.block, []
        yield self.block
        self.block = outer

    def expression(self, pool: list[KValue], dtype, depth=2) -> KValue:
        r = self.random
        known = [v for v in pool if v.dtype is dtype]
        if depth == 0 or r.random() < 0.25:
            return r.choice(known) if known and r.random() < 0.8 else self.const(r.choice([0, 1, 2, 3]), dtype)
        if dtype is bool_:
            a, b = (self.expression(pool, int32, depth - 1) for _ in range(2))
            return self.one(r.choice(["lt", "ge", "eq"]), (a, b), bool_)
        if r.random() < 0.15:
            p = self.expression(pool, bool_, 1)
            a, b = (self.expression(pool, dtype, depth - 1) for _ in range(2))
            return self.one("select", (p, a, b), dtype)
        if dtype is float32 and r.random() < 0.2:
            return self.one(r.choice(["sin", "cos"]), (self.expression(pool, dtype, depth - 1),), dtype)
        names = ["add", "sub", "min", "max", "mul"] if dtype is float32 else ["add", "sub", "min", "max", "and", "xor"]
        a, b = (self.expression(pool, dtype, depth - 1) for _ in range(2))
        return self.one(r.choice(names), (a, b), dtype)

    def bounded(self, pool: list[KValue]) -> KValue:
        count = self.one("and", (self.expression(pool, int32), self.const(3, int32)), int32)
        return self.one("sub", (count, self.const(self.random.choice([0, 1]), int32)), int32)

    def statements(self, pool: list[KValue], depth: int) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.budget -= 1
            if self.budget < 0:
                return
            choice = self.random.random()
            if depth and choice < 0.25:
                self.loop(pool, depth)
            elif depth and choice < 0.4:
                self.while_loop(pool, depth)
            elif depth and choice < 0.55:
                self.branch(pool, depth)
            elif choice < 0.65:
                self.stack_pair(pool)
            elif choice < 0.7:
                self.array(pool)
            else:
                pool.append(self.expression(pool, self.random.choice([float32, int32])))

    def carries(self, pool: list[KValue]) -> list[KValue]:
        return [self.expression(pool, d, 1) for d in (float32, int32, float32)]

    def loop(self, pool, depth):
        count, inits = self.bounded(pool), self.carries(pool)
        index, args = KValue(int32), [KValue(v.dtype) for v in inits]
        with self.inside() as ops:
            inner = [*pool, index, *args]
            self.statements(inner, depth - 1)
            yields = tuple(self.expression(inner, v.dtype) for v in inits)
        body = Block((index, *args), ops, yields)
        attrs = {"reverse": self.random.random() < 0.4}
        pool += self.op("for", (count, *inits), [v.dtype for v in inits], attrs, (body,))

    def while_loop(self, pool, depth):
        inits = [self.const(0, int32), *self.carries(pool)]
        cond_args, args = ([KValue(v.dtype) for v in inits] for _ in range(2))
        with self.inside() as cond_ops:
            within = self.one("lt", (cond_args[0], self.const(4, int32)), bool_)
            wanted = self.expression([*pool, *cond_args], bool_)
            pred = self.one("and", (within, wanted), bool_)
        with self.inside() as ops:
            inner = [*pool, *args]
            self.statements(inner, depth - 1)
            counter = self.one("add", (args[0], self.const(1, int32)), int32)
            yields = (counter, *(self.expression(inner, v.dtype) for v in inits[1:]))
        blocks = (Block(tuple(cond_args), cond_ops, (pred,)), Block(tuple(args), ops, yields))
        pool += self.op("while", inits, [v.dtype for v in inits], {"max_steps": None}, blocks)

    def branch(self, pool, depth):
        pred = self.expression(pool, bool_)
        blocks = []
        for _ in range(2):
            with self.inside() as ops:
                inner = list(pool)
                self.statements(inner, depth - 1)
                yields = (self.expression(inner, float32), self.expression(inner, int32))
            blocks.append(Block((), ops, yields))
        pool += self.op("if", (pred,), (float32, int32), {}, blocks)

    def stack_pair(self, pool):
        """A loop that pushes, then the same number of pops."""
        stack = len(self.stacks)
        self.stacks.append(StackSlot(float32, None, f"s{stack}", None))
        count, start = self.bounded(pool), self.expression(pool, float32, 1)
        i, v, j, w = KValue(int32), KValue(float32), KValue(int32), KValue(float32)
        with self.inside() as ops:
            self.op("push", (v,), (), {"stack": stack})
            after = self.expression([*pool, i, v], float32)
        forward = self.op("for", (count, start), (float32,), {"reverse": False}, (Block((i, v), ops, (after,)),))
        with self.inside() as ops:
            top = self.one("pop", (), float32, stack=stack)
            after = self.one("add", (w, top), float32)
        block = Block((j, w), ops, (after,))
        pool += self.op("for", (count, forward[0]), (float32,), {"reverse": True}, (block,))

    def place(self, pool):
        """An index below 4, of all lanes or of each."""
        if self.random.random() < 0.4:
            return self.const(self.random.randrange(4), int64)
        return self.one("cast", (self.one("and", (self.expression(pool, int32), self.const(3, int32)), int32),), int64)

    def array(self, pool):
        """All elements are stored, some again where a lane goes there, and some are looked up."""
        self.budget -= 8
        array, dtype = len(self.arrays), self.random.choice([float32, int32])
        self.arrays.append(OwnArray(dtype, 4))
        k = KValue(int64)
        with self.inside() as ops:
            number = self.one("cast", (k,), int32)
            self.op("array_store", (k, self.expression([*pool, number], dtype)), (), {"array": array})
        self.op("for", (self.const(4, int64),), (), {"reverse": False}, (Block((k,), ops),))
        count, i = self.bounded(pool), KValue(int32)
        with self.inside() as ops:
            inner = [*pool, i, self.one("array_load", (self.place([*pool, i]),), dtype, array=array)]
            self.op("array_store", (self.place(inner), self.expression(inner, dtype)), (), {"array": array})
        self.op("for", (count,), (), {"reverse": False}, (Block((i,), ops),))
        pred = self.expression(pool, bool_)
        with self.inside() as ops:
            self.op("array_store", (self.place(pool), self.expression(pool, dtype)), (), {"array": array})
        self.op("if", (pred,), (), {}, (Block((), ops), Block()))
        pool += [self.one("array_load", (self.place(pool),), dtype, array=array) for _ in range(2)]


def random_kernel(seed: int, budget: int = 40) -> tuple[Kernel, list[np.ndarray]]:
    """A kernel over LANES lanes and fresh arrays for its parameters. `budget`: about how many statements."""
    builder = Builder(seed)
    builder.budget = budget
    lane = KValue(int64)
    pool = [
        builder.one("load", (lane,), float32, param=0),
        builder.one("load", (lane,), int32, param=1),
        builder.one("cast", (lane,), int32),
    ]
    builder.statements(pool, 3)
    f, i = builder.expression(pool, float32), builder.expression(pool, int32)
    squashed = builder.one("sin", (f,), float32)
    builder.op("store", (lane, f), (), {"param": 2})
    builder.op("store", (lane, i), (), {"param": 3})
    target = builder.one("and", (builder.one("cast", (i,), int64), builder.const(7, int64)), int64)
    builder.op(
        "accumulate", (target, i, builder.expression(pool, bool_)), (), {"param": 4, "kind": "add", "exclusive": False}
    )
    builder.op("reduce", (squashed,), (), {"slot": 0})
    params = (
        BufferParam(float32, LANES, "read"), BufferParam(int32, LANES, "read"), BufferParam(float32, LANES, "write"),
        BufferParam(int32, LANES, "write"), BufferParam(int32, 8, "accumulate"), BufferParam(float32, 1, "write"),
    )  # fmt: skip
    kernel = Kernel(
        f"k{seed}",
        (LANES,),
        params,
        Block((lane,), builder.block),
        tuple(builder.stacks),
        (Reduction("add", float32, 5, 1),),
        arrays=tuple(builder.arrays),
    )
    rng = np.random.default_rng(seed)
    arrays = [
        rng.uniform(-2, 2, LANES).astype(np.float32), rng.integers(0, 5, LANES, dtype=np.int32),
        np.zeros(LANES, np.float32), np.zeros(LANES, np.int32), np.zeros(8, np.int32), np.zeros(1, np.float32),
    ]  # fmt: skip
    return kernel, arrays
