"""The module of sorts for this machine, by itself: rows and parts of a vector, for keys of every kind."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.codegen.targets.cpu.sorts.sorts_interface import ALL_KEYS, exports, keys_of
from loopgrad.codegen.targets.cpu.sorts.sorts_module import sorts_ir
from loopgrad.runtime.cpu.loader import Code
from loopgrad.runtime.cpu.native_sorts import NativeSorts

DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]


@pytest.fixture(scope="module")
def sorts() -> NativeSorts:
    return NativeSorts(Code(compile_module(sorts_ir(), host_machine()), exports()))


def in_turn(count, one):
    for number in range(count):
        one(number)


@pytest.mark.parametrize("dtype", [*[np.dtype(name) for name in DTYPES], np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_all_bits_are_keys(sorts: NativeSorts, dtype: np.dtype) -> None:
    """Elements of random bits, with their negatives and zeros, in one order however they are divided."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (3, 200 * dtype.itemsize), np.uint8).view(dtype)
    x[:, ::7], x[:, 1::7] = 0, -x[:, 2::7][:, : x[:, 1::7].shape[1]]
    ordered = x.astype(np.float32) if dtype.kind == "V" else x  # to ml_dtypes NaN has no place in an order
    wanted = np.argsort(ordered, kind="stable")
    values, order = np.empty_like(x), np.empty(x.shape, np.int64)
    sorts.sort(x, values)
    sorts.argsort(x, order)
    np.testing.assert_array_equal(order, wanted)
    assert values.tobytes() == np.take_along_axis(x, wanted, -1).tobytes()
    for parts in (1, 2, 7):
        sorts.sort_long(x[0], values[0], parts, in_turn)
        sorts.argsort_long(x[0], order[0], parts, in_turn)
        np.testing.assert_array_equal(order[0], wanted[0])
        assert values[0].tobytes() == x[0][wanted[0]].tobytes()


def test_every_dtype_has_its_keys() -> None:
    names = [*DTYPES, "bool", ml_dtypes.bfloat16]
    assert {keys_of(np.dtype(name))[0] for name in names} == set(ALL_KEYS)
