"""Creation functions and conversion to and from NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.dlpack import LAYOUTS, _is_named, _pointer, host_array
from tests.lazy.oracle import check


def test_filled(device: str) -> None:
    check(lg.zeros((2, 3)), np.zeros((2, 3)))
    check(lg.ones(3, dtype=lg.int32), np.ones(3, np.int32))
    check(lg.full((2,), 7), np.full((2,), 7))
    check(lg.full((2, 2), lg.asarray([1.0, 2.0])), np.full((2, 2), [1.0, 2.0]))
    check(lg.empty((0, 3)), np.empty((0, 3)))
    x = lg.ones((2, 2), dtype=lg.float32)
    check(lg.zeros_like(x), np.zeros((2, 2), np.float32))
    check(lg.full_like(x, 2, dtype=lg.int8), np.full((2, 2), 2, np.int8))


@pytest.mark.parametrize("arguments", [(5,), (2, 9), (9, 2, -3), (0, 0), (0.5, 3.0, 0.5), (3, 0), (0, 1, 0.25)])
def test_arange(device: str, arguments: tuple[float, ...]) -> None:
    check(lg.arange(*arguments), np.arange(*arguments))


@pytest.mark.parametrize("arguments", [(0.0, 1.0, 5), (2.0, -1.0, 7), (0.0, 1.0, 1), (0.0, 1.0, 0), (0.1, 0.7, 49)])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace(device: str, arguments: tuple[float, float, int], endpoint: bool) -> None:
    check(lg.linspace(*arguments, endpoint=endpoint), np.linspace(*arguments, endpoint=endpoint))


@pytest.mark.parametrize(("rows", "columns", "k"), [(3, None, 0), (2, 4, 1), (4, 2, -1), (0, 0, 0)])
def test_eye(device: str, rows: int, columns: int | None, k: int) -> None:
    check(lg.eye(rows, columns, k=k), np.eye(rows, columns, k=k))


def test_asarray_from_everything(device: str) -> None:
    check(lg.asarray(3), np.asarray(3))
    check(lg.asarray(True), np.asarray(True))
    check(lg.asarray([[1, 2], [3, 4]]), np.asarray([[1, 2], [3, 4]]))
    check(lg.asarray([1, 2.5]), np.asarray([1, 2.5]))
    check(lg.asarray(np.float32(2)), np.asarray(np.float32(2)))
    check(lg.asarray([lg.asarray(1.0), lg.asarray([2.0])[0], 3]), [1.0, 2.0, 3.0])
    check(lg.asarray([[lg.asarray(1.0), 2], [3, 4]]), [[1.0, 2.0], [3.0, 4.0]])
    check(lg.asarray(np.ones((2, 3)).T), np.ones((3, 2)))
    check(lg.asarray(range(4)), np.arange(4))
    check(lg.asarray([], dtype=lg.int32), np.asarray([], np.int32))
    big_endian = np.arange(3, dtype=">f8")
    check(lg.asarray(big_endian), np.arange(3.0))


def test_arrays_are_copied_unless_told_otherwise() -> None:
    source = np.ones(3)
    x = lg.asarray(source)
    source[:] = 5
    assert x.tolist() == [1, 1, 1]
    shared = lg.asarray(source, copy=False)
    assert np.shares_memory(shared.numpy(), source)
    source[0] = 9
    assert source.flags.writeable


def test_dlpack(device: str) -> None:
    x = lg.arange(4.0) * 2
    check(lg.from_dlpack(np.arange(3)), np.arange(3))
    check(lg.from_dlpack(x), [0.0, 2.0, 4.0, 6.0])
    if device.startswith(("cuda", "hip")):  # see tests/runtime/cuda/test_exchange.py
        assert x.__dlpack_device__()[0] != 1
        return
    assert x.__dlpack_device__() == (1, 0)
    check(np.from_dlpack(x), [0.0, 2.0, 4.0, 6.0])
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(BufferError, match="device"):
        x.__dlpack__(dl_device=(2, 0))


class OnHost:
    """Another library's array in the host's memory: no more of a tensor than DLPack says."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__(dl_device=(1, 0))


@pytest.mark.parametrize("shape", [(3, 4), (5,), (), (0, 3)])
def test_dlpack_of_bfloat16(device: str, shape: tuple[int, ...]) -> None:
    """NumPy's DLPack has none."""
    x = lg.reshape(lg.arange(math.prod(shape), dtype=lg.float32) * 1.5 - 3, shape).astype(lg.bfloat16)
    for given in (x, x.T):
        for take in (lg.asarray, lg.from_dlpack):
            got = take(OnHost(given))
            assert got.dtype is lg.bfloat16
            check(got.astype(lg.float32), np.asarray(given.astype(lg.float32)))


class Elsewhere(OnHost):
    """An array in memory of a device that tensors can't be on, Apple's Metal."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (8, 0)

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.x.__dlpack__()
        named = next(name for name in LAYOUTS if _is_named(capsule, name))
        LAYOUTS[named].from_address(_pointer(capsule, named)).tensor.device.type = 8
        return capsule


def test_dlpack_of_memory_that_the_host_cannot_read() -> None:
    """It isn't read: that would be elements of something else, or the process' end."""
    for take in (lg.asarray, lg.from_dlpack, host_array):
        with pytest.raises(BufferError, match="expected memory of the host, got a device of DLPack's type 8"):
            take(Elsewhere(np.arange(3.0)))


def test_dlpack_that_needs_a_copy() -> None:
    x = lg.asarray([1.5, 2.0], dtype=lg.bfloat16, device="cpu")
    for take in (lg.asarray, lg.from_dlpack):
        with pytest.raises(BufferError, match="needn't be copied where copy=False, got bfloat16"):
            take(OnHost(x), copy=False)
        check(take(OnHost(x), copy=True).astype(lg.float32), np.array([1.5, 2.0], np.float32))


def test_dlpack_of_rows_that_lie_apart() -> None:
    """As a column of a larger array does: what lies between isn't read."""
    for array in (np.arange(12.0).reshape(3, 4)[:, 1::2], np.arange(12.0).reshape(3, 4).T, np.zeros((2, 0))):
        check(lg.asarray(host_array(array)), array)
    with pytest.raises(BufferError, match="expected strides of at least 0"):
        host_array(np.arange(3.0)[::-1])


def test_dlpack_copies(device: str) -> None:
    x = lg.asarray([1.0, 2.0]).to_device("cpu")
    array = np.from_dlpack(x, copy=True)
    array[:] = 5.0
    check(x, [1.0, 2.0])
    assert not np.from_dlpack(x).flags.writeable


def test_lengths_must_be_known() -> None:
    with pytest.raises(lg.DTypeError, match="fori_loop"):
        lg.compile(lambda n: lg.arange(n))(3)
    with pytest.raises(lg.ShapeError):
        lg.zeros(-1)
    with pytest.raises(lg.DTypeError):
        lg.zeros((2, lg.asarray(2.0)))


def test_python_numbers_keep_their_digits_in_a_dtype() -> None:
    """Of integers beyond 63 bits beside others, or beside floats, NumPy makes floats first."""
    long = [([2**63 + 1, 2**64 - 1, 1], "uint64"), ([[2**64 - 1], [0]], "uint64"), ([2**53 + 1, 1.0], "int64")]
    for numbers, dtype in long:
        expected = np.array(numbers, dtype=dtype)
        for made in (lg.asarray(numbers, dtype=dtype), lg.array(numbers, dtype=dtype)):
            np.testing.assert_array_equal(np.asarray(made), expected, strict=True)
    assert lg.zeros(3).at[lg.asarray([2**64 - 1, 1], dtype="uint64")].add(1.0).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [([256], "uint8"), ([-1, 2], "uint64"), ([1, -129], "int8"), ([1.5, 1e30], "int64"), ([math.nan], "int32")],
)
def test_python_numbers_that_do_not_fit_a_dtype(numbers: list[float], dtype: str) -> None:
    with pytest.raises(OverflowError, match=f"{dtype}: expected integers from"):
        lg.asarray(numbers, dtype=dtype)


def test_arrays_are_converted_as_devices_cast() -> None:
    array = np.array([1e30, -1e30, np.inf, -np.inf, np.nan, 3.9, -3.9, 70000.0])
    for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "bool", "float16", "float32"):
        expected = np.asarray(lg.asarray(array).astype(dtype))
        np.testing.assert_array_equal(np.asarray(lg.asarray(array, dtype=dtype)), expected, strict=True)
    halfway = np.array([1.0 + 2.0**-8 + 2.0**-40])  # rounded twice, this is 1
    assert float(lg.asarray(halfway, dtype=lg.bfloat16)[0]) == 1.0 + 2.0**-7
    with pytest.raises(lg.DTypeError, match="imaginary part"):
        lg.asarray([1.0 + 2.0j], dtype=lg.float64)
