"""How LLVM writes constants."""

import pytest

from loopgrad.codegen.targets.llvm_gpu.spelling import literal


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        ("bool", True, "true"),
        ("i8", 255, "-1"),
        ("i32", -(1 << 31), "-2147483648"),
        ("i64", (1 << 63) + 5, str(5 - (1 << 63))),
        ("f64", 0.1, "0x3FB999999999999A"),
        ("f32", 0.1, "0x3FB99999A0000000"),
        ("f32", 1e300, "0x7FF0000000000000"),
        ("f32", 1e-45, "0x36A0000000000000"),
        ("f16", 65536.0, "0xH7C00"),
        ("f16", -2.0, "0xHC000"),
        ("f64", float("nan"), "0x7FF8000000000000"),
    ],
)
def test_literals(type, value, text):
    assert literal(type, value) == text
