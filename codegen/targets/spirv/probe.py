"""Modules that find out what a driver does: the trips of a long loop, fused fma, comparisons,
exchanged registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter
from loopgrad.codegen.targets.gpu.emit.kernel import emit_body, emit_kernel
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.spirv.assembler import SpirvAssembler
from loopgrad.codegen.targets.spirv.cooperative_matrices import LEFT, RIGHT, SUMS, WORDS, CooperativeMatrices
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.fragments import unit_shape
from loopgrad.graph.types import int64

MATRIX_WORDS: Final = 256  # of the largest of them
PARTS: Final = 24  # components of all three


def loop_probe(features: Features, most: int) -> bytes:
    """Element 0 becomes the number of trips that a loop of `most` made."""
    lane, k, made = KValue(int64), KValue(int64), KValue(int64)
    count = KOp("load", (lane,), (int64,), {"param": 0})
    trips = KOp("const", (), (int64,), {"value": most})
    wanted = KOp("add", (count.results[0], trips.results[0]), (int64,))
    one = KOp("const", (), (int64,), {"value": 1})
    body = KOp("add", (made, one.results[0]), (int64,))
    # each trip adds what only memory knows, so that the sum isn't computed without a loop
    square = KOp("xor", (body.results[0], count.results[0]), (int64,))
    block = Block((k, made), [body, square], (square.results[0],))
    loop = KOp("for", (wanted.results[0], count.results[0]), (int64,), {"reverse": False}, (block,))
    store = KOp("store", (lane, loop.results[0]), (), {"param": 0})
    ops = [count, trips, wanted, one, loop, store]
    kernel = Kernel("loop_probe", (1,), (BufferParam(int64, 1, "write"),), Block((lane,), ops))
    b = SpirvAssembler(replace(features, endless_loops=True), kernel.name)
    emit_kernel(kernel, b)
    return b.finish()


def fused_probe(features: Features, type: str) -> bytes:
    """Element 1 becomes fma(x, x, -(x*x)) of element 0."""

    def body(e: Emitter) -> None:
        x = e.b.load(e.table.params[0], type)
        square = e.b.exact("FMul", type, x, x)
        rest = e.b.extended("Fma", type, x, x, e.b.exact("FNegate", type, square))
        e.b.store(e.offset(e.table.params[0], SIZE[type]), rest)

    kernel = Kernel("fused_probe", (1,), (BufferParam(int64, 1, "write"),), Block((KValue(int64),)))
    return module(kernel, features, body)


def widening_probe(features: Features) -> bytes:
    """Element 0 becomes 2 where the 32-bit element 0, widened, is less than 4, and 1 elsewhere."""

    def body(e: Emitter) -> None:
        wide = e.b.inst("SConvert", "i64", e.b.load(e.table.params[0], "i32"))
        less = e.b.inst("SLessThan", "bool", wide, e.b.const("i64", 4))
        e.b.store(e.table.params[0], e.select(less, e.b.const("i32", 2), e.b.const("i32", 1)))

    kernel = Kernel("widening_probe", (1,), (BufferParam(int64, 1, "write"),), Block((KValue(int64),)))
    return module(kernel, features, body)


def function_probe(features: Features, function: str, count: int) -> bytes:
    """Of `count` elements for each invocation x becomes an extended function of it."""

    def body(e: Emitter) -> None:
        own = e.resize(e.b.local_id(), "i64", signed=False)

        def replaced(number: Val) -> None:
            further = e.b.inst("IMul", "i64", number, e.b.const("i64", features.group))
            place = e.at(e.table.params[0], e.b.inst("IAdd", "i64", own, further), SIZE["f32"])
            e.b.store(place, e.b.extended(function, "f32", e.b.load(place, "f32")))

        counted(e, e.b.const("i64", count), replaced)

    kernel = Kernel("function_probe", (1,), (BufferParam(int64, 1, "write"),), Block((KValue(int64),)))
    return module(kernel, features, body)


def exchange_probe(features: Features) -> bytes:
    """Element n becomes the number of distances over which invocation n got what its neighbour gave."""

    def body(e: Emitter) -> None:
        own, right = e.b.local_id(), e.b.const("i32", 0)
        for distance in [1 << k for k in range(features.neighbours.bit_length() - 1)]:
            wanted = e.b.inst("BitwiseXor", "i32", own, e.b.const("i32", distance))
            same = e.b.inst("IEqual", "bool", e.b.across(own, distance), wanted)
            right = e.b.inst("IAdd", "i32", right, e.select(same, e.b.const("i32", 1), e.b.const("i32", 0)))
        place = e.at(e.table.params[0], e.resize(own, "i64", signed=False), SIZE["i32"])
        e.b.store(place, right)

    kernel = Kernel("exchange_probe", (1,), (BufferParam(int64, 1, "write"),), Block((KValue(int64),)))
    return module(kernel, features, body)


def fragment_probe(features: Features, type: str) -> bytes:
    """Of the matrices of matrix units, of which three lie in front of it in memory: element 3 * MATRIX_WORDS + 24 l + n
    becomes component n of what invocation l has of the left factor; those from 8 on of the right one, from 16 on of the
    sums."""

    def body(e: Emitter) -> None:
        b, own = e.b, e.b.local_id()
        assert isinstance(b, SpirvAssembler)
        matrices, shape = CooperativeMatrices(b), unit_shape(type)
        memory = matrices.memory(3 * MATRIX_WORDS // WORDS)
        first, there = e.table.params[0], b.const("i32", MATRIX_WORDS // WORDS)
        place = e.at(first, e.resize(own, "i64", signed=False), WORDS * SIZE["i32"])

        def copy() -> None:
            for n in range(3):
                words = b.load_vector(e.offset(place, n * MATRIX_WORDS * SIZE["i32"]), "i32", WORDS)
                matrices.put(memory, b.inst("IAdd", "i32", own, b.const("i32", n * MATRIX_WORDS // WORDS)), words)

        e.when(b.inst("ULessThan", "bool", own, there), copy)
        b.barrier()
        start = e.offset(e.at(first, e.resize(own, "i64", signed=False), PARTS * SIZE["i32"]), 3 * MATRIX_WORDS * 4)
        for n, (use, pitch) in enumerate(((LEFT, 2), (RIGHT, 2), (SUMS, 4))):
            at = b.const("i32", n * MATRIX_WORDS // WORDS)
            found = matrices.loaded(memory, at, pitch, shape, use)
            for k in range(PARTS // 3):
                e.b.store(e.offset(start, (PARTS // 3 * n + k) * SIZE["i32"]), matrices.bits(found, k, shape, use))

    kernel = Kernel("fragment_probe", (1,), (BufferParam(int64, 1, "write"),), Block((KValue(int64),)))
    b = SpirvAssembler(features, kernel.name, matrices=True)
    emit_body(kernel, b, body)
    return b.finish()


def module(kernel: Kernel, features: Features, body: Callable[[Emitter], None]) -> bytes:
    b = SpirvAssembler(features, kernel.name)
    emit_body(kernel, b, body)
    return b.finish()
