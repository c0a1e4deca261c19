"""Matrix units by cooperative matrices, without any device: what goes into products, and when copies are stored."""

import struct
from functools import partial

import pytest

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.targets.gpu.emit.kernel import emit_body
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.interface import MatrixShape
from loopgrad.codegen.targets.spirv.assembler import SpirvAssembler
from loopgrad.codegen.targets.spirv.assembly import OP, WORKGROUP
from loopgrad.codegen.targets.spirv.features import Features, FragmentOrder
from loopgrad.graph.types import int64

ORDER = FragmentOrder("f16", (1, 0, 3, 2, 5, 4, 7, 6), (2, 3, 0, 1, 6, 7, 4, 5), (3, 2, 1, 0, 7, 6, 5, 4))
FEATURES = Features(neighbours=32, matrices=(MatrixShape("f16", 16, 16, 16),), fragments=(ORDER,))
NAMES = {number: name for name, number in OP.items()}


def module(body):
    """The instructions of a program of workgroups: names and words; body(emitter, units)."""
    kernel = Kernel("units", (1,), (BufferParam(int64, 1, "write"),), Block((KValue(int64),)))
    b = SpirvAssembler(FEATURES, kernel.name, matrices=True)
    emit_body(kernel, b, lambda e: body(e, b.matrix_units))
    code = b.finish()
    words, at, found = struct.unpack(f"<{len(code) // 4}I", code), 5, []
    while at < len(words):
        count = words[at] >> 16
        found.append((NAMES[words[at] & 0xFFFF], words[at + 1 : at + count]))
        at += count
    return found


def named(found, name):
    return [words for one, words in found if one == name]


def test_what_is_a_matrix_goes_into_products_as_it_is():
    def body(e, units):
        memory, zero = units.memory("i16", 16 * 24), e.b.const("f32", 0.0)
        left = units.blocks(memory, e.b.const("i32", 0), 24, "f16", False, False)
        right = units.blocks(memory, e.b.const("i32", 0), 24, "f16", True, True)(8)
        sums = units.product(left(0), right, [zero] * 8, "f16")
        units.product(left(0), right, sums, "f16")

    found = module(body)
    assert not named(found, "CompositeInsert")
    loaded = {words[1] for words in named(found, "CooperativeMatrixLoadKHR")}
    first, second = named(found, "CooperativeMatrixMulAddKHR")
    assert set(first[2:4]) | set(second[2:4]) <= loaded
    assert second[4] == first[1]


def test_what_is_computed_is_put_where_its_components_are():
    def body(e, units):
        x = e.b.load(e.table.params[0], "f32")
        pair = units.pair(x, x, "f16")
        sums = [e.b.exact("FAdd", "f32", x, e.b.const("f32", float(n))) for n in range(8)]
        for _ in range(2):  # factors once
            units.product([pair] * 4, [pair] * 4, sums, "f16")

    found = module(body)
    places = [words[-1] for words in named(found, "CompositeInsert")]
    assert places == [*ORDER.left, *ORDER.right, *ORDER.sums, *ORDER.sums]
    made = {words[1] for words in named(found, "CooperativeMatrixMulAddKHR")}
    taken = [words[-1] for words in named(found, "CompositeExtract") if words[2] in made]
    assert taken == [*ORDER.sums, *ORDER.sums]


def copy(e, units, memory, number):
    """Chunk `number` (i32) from the first parameter."""
    index = e.b.inst("IMul", "i32", number, e.b.const("i32", 8))
    units.copy(memory, index, "i16", e.table.params[0], e.b.const("bool", True))


def places(found):
    """Of loads of four words and stores of them to memory of the workgroup the places, and those of barriers."""
    pointers = {words[0] for words in named(found, "TypePointer") if words[1] == WORKGROUP}
    cells = {words[1] for words in named(found, "AccessChain") if words[0] in pointers}
    vectors = {words[0] for words in named(found, "TypeVector") if words[2] == 4}
    loads = [n for n, (name, words) in enumerate(found) if name == "Load" and words[0] in vectors]
    stores = [n for n, (name, words) in enumerate(found) if name == "Store" and words[0] in cells]
    return loads, stores, [n for n, (name, _) in enumerate(found) if name == "ControlBarrier"]


@pytest.mark.parametrize("branch", [False, True])
def test_copies_are_stored_when_they_are_waited_for(branch):
    def body(e, units):
        memory, own, b = units.memory("i16", 1024), e.b.local_id(), e.b
        begin = partial(copy, e, units, memory, own)
        if branch:
            units.copies(b.inst("ULessThan", "bool", own, b.const("i32", 7)), begin, e.when)
        else:
            begin()
        b.barrier()  # stands for what is done meanwhile
        units.copied()
        b.barrier()

    found = module(body)
    (load,), (store,), (first, second) = places(found)
    assert load < first < store < second
    between = [n for n, (name, _) in enumerate(found) if name == "BranchConditional" and load < n < store]
    assert len(between) == branch


def test_copies_are_stored_before_the_loop_or_trip_ends_where_they_were_begun():
    def body(e, units):
        memory = units.memory("i16", 1024)
        copy(e, units, memory, e.b.local_id())
        counted(e, e.b.const("i32", 3), partial(copy, e, units, memory))

    found = module(body)
    (before, inside), (first, second), _ = places(found)
    (loop,) = [n for n, (name, _) in enumerate(found) if name == "LoopMerge"]
    assert before < first < loop < inside < second
