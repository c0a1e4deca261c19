"""What each reduction starts from, against NumPy's ufuncs."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph.identities import identity, of_nothing
from loopgrad.graph.types import bool_, float32, float64, int8, int64, uint16

UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@pytest.mark.parametrize("dtype", [float32, float64, int8, int64, uint16], ids=str)
@pytest.mark.parametrize("kind", [*UFUNCS, *BITWISE])
def test_an_identity_changes_nothing(kind, dtype):
    if kind in BITWISE and dtype.is_float:
        pytest.skip("bits of floats don't combine")
    numbers = [0, 1, 100] if dtype.kind == "u" else [-7, -0.0, 0, 1, 100]
    values, start = np.array(numbers).astype(dtype.dtype), np.array(identity(kind, dtype)).astype(dtype.dtype)
    found = {**UFUNCS, **BITWISE}[kind](values, start)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(values))


@pytest.mark.parametrize("kind", ["add", "mul"])
def test_a_reduction_of_nothing(kind):
    want = {"add": np.sum, "mul": np.prod}[kind](np.zeros(0))
    assert of_nothing(kind, float64) == want
    assert not np.signbit(of_nothing(kind, float64))


@pytest.mark.parametrize(("kind", "want"), [("and", True), ("or", False)])
def test_bools(kind, want):
    assert identity(kind, bool_) is want
