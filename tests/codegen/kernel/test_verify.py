"""A kernel that breaks the rules is refused with what is wrong."""

from __future__ import annotations

import pytest

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.graph.errors import VerifyError
from loopgrad.graph.types import float32, int32, int64


def test_verify_names_what_is_wrong():
    lane = KValue(int64)
    load = KOp("load", (lane,), (float32,), {"param": 0})
    number = KOp("const", (), (int32,), {"value": 5})
    bad = KOp("add", (load.results[0], number.results[0]), (float32,))
    store = KOp("store", (lane, bad.results[0]), (), {"param": 1})
    params = (BufferParam(float32, 4, "read"), BufferParam(float32, 4, "write"))
    with pytest.raises(VerifyError, match="operands of different dtypes"):
        verify_kernel(Kernel("k", (4,), params, Block((lane,), [load, number, bad, store])))
