"""Who has which element of a matrix, from what a probe left: devices that don't exist, of which this is made up."""

import numpy as np
import pytest

from loopgrad.codegen.targets.spirv.features import FragmentOrder
from loopgrad.runtime.vulkan.fragments import WORDS, given, order_of

COUNT = 8  # components of each matrix


def invocation(lane):
    """Row and column of what PTX says that it has (mma.m16n8k16, figures of its fragments A, B and C, two beside each
    other of the last two)."""
    group, thread = divmod(lane, 4)
    left = [(group + 8 * (i in (2, 3, 6, 7)), 2 * thread + i % 2 + 8 * (i >= 4)) for i in range(8)]
    right = [(2 * thread + i % 2 + 8 * (i % 4 >= 2), group + 8 * (i >= 4)) for i in range(8)]
    sums = [(group + 8 * (i % 4 >= 2), 2 * thread + i % 2 + 8 * (i >= 4)) for i in range(8)]
    return left, right, sums


def answer(type, orders):
    """What the probe would leave where component orders[m][i] of matrix m is its number i."""
    array = given(type)
    matrices = [array[WORDS * n : WORDS * (n + 1)] for n in range(3)]
    elements = [m.view(np.uint16) for m in matrices[:2]] + [matrices[2].view(np.uint32)]
    room = array[3 * WORDS :].view(np.uint32)
    for lane in range(32):
        for n, places in enumerate(invocation(lane)):
            for i, (row, column) in enumerate(places):
                room[3 * COUNT * lane + COUNT * n + orders[n][i]] = elements[n][16 * row + column]
    return array


@pytest.mark.parametrize("type", ["f16", "b16"])
def test_components_in_any_order_that_all_invocations_share(type):
    orders = ((3, 2, 1, 0, 7, 6, 5, 4), (1, 0, 3, 2, 5, 4, 7, 6), (2, 3, 0, 1, 4, 5, 6, 7))
    assert order_of(type, answer(type, orders)) == FragmentOrder(type, *orders)


def test_matrices_that_lie_otherwise_are_none():
    array = answer("f16", (tuple(range(8)),) * 3)
    assert order_of("f16", array) is not None
    other = array.copy()
    first, second = (slice(3 * WORDS + n * 3 * COUNT, 3 * WORDS + (n + 1) * 3 * COUNT) for n in (0, 1))
    other[first], other[second] = array[second], array[first]
    assert order_of("f16", other) is None  # two invocations have what the other one should
    assert order_of("f16", given("f16")) is None  # nothing was left
