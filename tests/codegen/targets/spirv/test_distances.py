"""Addresses that are others and a constant."""

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.spirv.assembler import SpirvAssembler
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.runtime.vulkan.api import device_count


@pytest.fixture
def b():
    return SpirvAssembler(Features(), "distances")


def made(b, name, x, y):
    return b.inst(name, "i64", x, b.const("i64", y) if isinstance(y, int) else y)


def test_constants_are_taken_out_of_sums_and_products(b):
    i, j = (b.inst("UConvert", "i64", b.inst("IAdd", "i32", b.local_id(), b.group_id())) for _ in range(2))
    index = made(b, "IAdd", made(b, "IMul", made(b, "IAdd", i, 1), 2048), made(b, "IAdd", j, 3))
    near, distance = b.apart(index)
    assert distance == 2051
    other, further = b.apart(made(b, "IAdd", index, -2051 + 7))
    assert (other, further) == (near, 7)
    assert b.apart(near) == (near, 0)
    assert b.apart(made(b, "IAdd", i, j))[1] == 0
    assert b.apart(b.const("i64", 5)) == (b.const("i64", 5), 0)


def test_powers_are_no_addresses(b):
    """Of a constant: each square has twice the digits, and the last of a few dozen would never be made."""
    power = made(b, "IAdd", b.const("i64", 3), 4)
    for _ in range(60):
        power = made(b, "IMul", power, power)
    assert b.apart(power) == (power, 0)


def test_what_blocks_made_is_made_again_in_others(b):
    i, j = (b.inst("UConvert", "i64", b.inst("IAdd", "i32", b.local_id(), b.group_id())) for _ in range(2))
    index = made(b, "IAdd", made(b, "IAdd", i, 1), j)
    near, _ = b.apart(index)
    b.start(b.block())
    assert b.apart(index)[0] != near


@pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")
def test_numbers_below_zero_and_a_distance():
    """What is read backwards, or around a place: the sum is inside, the first term isn't."""
    x = np.arange(1, 241, dtype=np.float32).reshape(12, 20)

    def around(m, x):
        return x[::-1, ::-1] + 10 * x + sum(m.roll(x, (i, j), (0, 1)) for i in (-2, 1) for j in (-3, 2))

    def windows(x):
        return sum(x[i : 9 + i, j : 17 + j] * (i + j) for i in range(4) for j in range(4))

    with lg.default_device("vulkan:0"):
        np.testing.assert_array_equal(np.asarray(around(lg, lg.asarray(x))), around(np, x))
        np.testing.assert_array_equal(np.asarray(windows(lg.asarray(x))), windows(x))
