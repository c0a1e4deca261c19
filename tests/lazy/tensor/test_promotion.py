"""Dtypes of mixed operands follow NumPy 2."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.tensor.promotion import as_dtype, promote

NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]


@pytest.mark.parametrize(("a", "b"), list(itertools.product(NAMES, NAMES)))
def test_arrays_promote_as_in_numpy(a: str, b: str) -> None:
    assert promote(as_dtype(a), as_dtype(b)).np == np.promote_types(a, b)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scalar", [True, 3, 2.5])
def test_python_scalars_are_weak(name: str, scalar: float) -> None:
    x = np.ones(2, name)
    assert np.asarray((lg.asarray(x) * scalar).shape).tolist() == [2]
    assert (lg.asarray(x) * scalar).dtype.np == (x * scalar).dtype


def test_bfloat16_takes_the_place_of_float16() -> None:
    assert promote(lg.bfloat16, lg.float16) is lg.float32
    assert promote(lg.bfloat16, lg.float32) is lg.float32
    assert promote(lg.int8, lg.bfloat16) is lg.bfloat16
    assert promote(lg.bfloat16, lg.int32) is lg.float64


def test_default_dtype_applies_to_python_floats_and_division() -> None:
    assert lg.asarray(1.5).dtype is lg.float64
    lg.set_default_dtype(lg.float32)
    try:
        assert lg.asarray([1.5, 2]).dtype is lg.float32
        assert lg.zeros(2).dtype is lg.float32
        assert (lg.asarray([1, 2]) / 2).dtype is lg.float32
        assert lg.asarray(np.ones(2)).dtype is lg.float64
    finally:
        lg.set_default_dtype(lg.float64)
    with pytest.raises(lg.DTypeError, match="float dtype"):
        lg.set_default_dtype(lg.int32)
    with pytest.raises(lg.DTypeError, match="got 'float32'"):
        lg.set_default_dtype("float32")  # type: ignore[arg-type]


def test_int_out_of_the_dtype_s_range() -> None:
    with pytest.raises(OverflowError, match="uint8"):
        lg.asarray(np.ones(2, np.uint8)) + 300
    with lg.default_device("interpreter"):
        assert (lg.asarray(np.ones(2, np.uint8)) < 300).tolist() == [True, True]
        assert (lg.asarray(np.ones(2, np.uint8)) == -1).tolist() == [False, False]
        assert (lg.asarray(np.ones(2, np.uint8)) > 300).tolist() == [False, False]


def test_signed_meets_unsigned_exactly() -> None:
    big = np.array([2**63, 2**64 - 1, 5], np.uint64)
    small = np.array([-1, -1, 5], np.int64)
    with lg.default_device("interpreter"):
        a, b = lg.asarray(small), lg.asarray(big)
        assert (a < b).tolist() == [True, True, False]
        assert (a == b).tolist() == [False, False, True]
        assert (b >= a).tolist() == [True, True, True]


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(lg.DTypeError, match="one of"):
        lg.zeros(3, dtype="float80")
    with pytest.raises(lg.DTypeError):
        lg.asarray(["a", "b"])


def test_result_type_and_can_cast() -> None:
    assert lg.result_type(lg.int32, lg.float32) is lg.float64
    assert lg.result_type(lg.ones(1, dtype=lg.float32), 2.0) is lg.float32
    assert lg.can_cast(lg.int32, lg.float64)
    assert not lg.can_cast(lg.int64, lg.float32)
