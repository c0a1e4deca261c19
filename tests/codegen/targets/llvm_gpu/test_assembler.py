"""The LLVM assembler on this computer: constants, memory of a workgroup, barriers, atomics, tables."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.targets.amdgpu.assembler import AmdgpuAssembler
from tests.simulator.code import GROUP, HostAssembler, flavour, generate
from tests.simulator.driver import Image

GROUPS = 3


def run(write, *arrays):
    """Dispatch GROUPS workgroups of a function; `write(b, *addresses)` is its body."""
    f = flavour()
    b = HostAssembler(f, "k0", GROUP)
    table, *_ = b.launch_words()
    addresses = []
    for i in range(len(arrays)):
        place = b.inst("IAdd", "i64", table, b.const("i64", 8 * i))
        addresses.append(b.load(place, "i64", invariant=True))
    write(b, *addresses)
    text = "\n".join(
        [
            f'target triple = "{f.triple}"',
            b.finish(0),
            f.declarations,
            *b.declarations,
            f"attributes #0 = {{ {f.attributes} }}",
            "!0 = !{}",
        ]
    )
    table = np.array([a.ctypes.data for a in arrays], np.uint64)
    Image(generate(text)[0]).pipeline("k0", "k0", GROUP).dispatch(GROUPS, (table.ctypes.data, 0, 0, 0, 0, 0))


def element(b, base, index, size):
    wide = b.inst("UConvert", "i64", index)
    return b.inst("IAdd", "i64", base, b.inst("IMul", "i64", wide, b.const("i64", size)))


def test_a_workgroup_exchanges_values_at_a_barrier():
    out = np.zeros(GROUPS * GROUP, np.int32)

    def write(b, result):
        spare, shared = b.shared("f64", 3), b.shared("i32", GROUP)
        assert spare != shared
        assert b.shared_bytes == 32 + 4 * GROUP
        mine = b.local_id()
        b.shared_set(shared, mine, b.invocation())
        b.barrier()
        other = b.inst("ISub", "i32", b.const("i32", GROUP - 1), mine)
        b.store(element(b, result, b.invocation(), 4), b.shared_get(shared, other, "i32"))
        b.barrier()

    run(write, out)
    np.testing.assert_array_equal(out, np.arange(GROUPS * GROUP).reshape(GROUPS, GROUP)[:, ::-1].reshape(-1))


def test_atomics_of_the_device_and_of_the_workgroup():
    sums, first = np.zeros(4, np.int32), np.full(1, -1, np.int32)
    most = np.zeros(GROUPS, np.int32)

    def write(b, total, winner, largest):
        shared = b.shared("i32", 1)
        zero, me = b.const("i32", 0), b.invocation()
        b.shared_set(shared, zero, zero)
        b.barrier()
        b.shared_atomic("AtomicUMax", shared, zero, me)
        b.atomic("AtomicIAdd", total, me)
        b.compare_exchange(winner, b.const("i32", -1), b.const("i32", 7))
        b.barrier()
        b.store(element(b, largest, b.group_id(), 4), b.shared_get(shared, zero, "i32"))

    run(write, sums, first, most)
    count = GROUPS * GROUP
    assert sums.tolist() == [count * (count - 1) // 2, 0, 0, 0]
    assert first.tolist() == [7]
    assert most.tolist() == [GROUP * (g + 1) - 1 for g in range(GROUPS)]


def test_float_atomics():
    sums = np.zeros(1, np.float32)

    def write(b, total):
        b.atomic("AtomicFAddEXT", total, b.const("f32", 0.5))

    run(write, sums)
    assert sums.tolist() == [0.5 * GROUPS * GROUP]


def test_tables_of_constants():
    out = np.zeros(GROUPS * GROUP, np.int32)
    values = tuple([n * n for n in range(GROUPS * GROUP)])

    def write(b, result):
        twice = [b.lookup("i32", values, b.invocation(), 1) for _ in range(2)]
        b.store(element(b, result, b.invocation(), 4), b.inst("ISub", "i32", *twice[0], b.const("i32", 1)))

    run(write, out)
    assert out.tolist() == [v - 1 for v in values]


def test_tables_of_selects(monkeypatch):
    """As on AMD, where the elements of a stretch share them: a tree of its own for each would be 7 * 43."""
    monkeypatch.setattr(HostAssembler, "lookup", AmdgpuAssembler.lookup, raising=False)
    values = tuple([n * n * n for n in range(44)])
    first = np.minimum(np.arange(GROUPS * GROUP), 44 - 7).astype(np.int32)
    selects = []
    for n in range(7):
        out = first.copy()

        def write(b, result, n=n):
            before = len(b._lines)
            place = element(b, result, b.invocation(), 4)
            found = b.lookup("i32", values, b.load(place, "i32"), 7)
            selects.append(sum(" select " in line for line in b._lines[before:]))
            b.store(place, found[n])

        run(write, out)
        assert out.tolist() == [values[i + n] for i in first]
    assert max(selects) < 100


def test_an_unknown_opcode_is_refused():
    b = HostAssembler(flavour(), "k0", GROUP)
    with pytest.raises(ValueError, match="got 'FDot'"):
        b.inst("FDot", "f32", b.const("f32", 1.0))
