"""Philox by Python's integers, for few elements, and by arrays: the same words, which are NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph.primitives.random import FEW, block

WORD = (1 << 64) - 1


@pytest.mark.parametrize("count", [1, FEW, FEW + 1])
def test_few_and_many_blocks_are_numpys(count: int) -> None:
    drawn = np.random.default_rng(count).integers(0, WORD, (6, count, 1), np.uint64, endpoint=True)
    found = np.stack(block([*drawn[:4]], [*drawn[4:]]), axis=-1)
    assert found.dtype == np.uint64
    assert found.shape == (count, 1, 4)
    for i in range(count):
        theirs = np.random.Philox(key=drawn[4:, i, 0])
        state = theirs.state
        # It goes on to the next counter before it draws.
        counter = sum(int(word) << 64 * j for j, word in enumerate(drawn[:4, i, 0])) - 1
        state["state"]["counter"] = np.array([counter >> 64 * j & WORD for j in range(4)], np.uint64)
        theirs.state = state
        np.testing.assert_array_equal(found[i, 0], theirs.random_raw(4))


@pytest.mark.parametrize("shape", [(0,), (), (2, 3)])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_blocks_have_the_shape_of_what_is_given(shape: tuple[int, ...], dtype: type) -> None:
    ones = np.ones(shape, dtype)
    many = np.ones(FEW + 1, dtype)
    for few, one in zip(block([ones] * 4, [ones] * 2), block([many] * 4, [many] * 2), strict=True):
        assert few.dtype == dtype
        assert few.shape == shape
        assert set(few.ravel().tolist()) <= {int(one[0])}
