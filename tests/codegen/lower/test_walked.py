"""A kernel with a running total and the one that walks do the same: what the interpreter makes of both."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, RunningTotal
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.lower.walked import walked
from loopgrad.graph.errors import VerifyError
from loopgrad.graph.types import float64, int64


def kernel(domain: tuple[int, ...], shape: tuple[int, int, int], kind: str, reverse: bool) -> Kernel:
    """Of twice the elements; the domain may have more dims than the shape."""
    arguments, ops, size = tuple([KValue(int64) for _ in domain]), [], int(np.prod(shape))

    def one(opcode: str, dtype, *operands: KValue, **attrs) -> KValue:
        ops.append(KOp(opcode, operands, (dtype,), attrs))
        return ops[-1].results[0]

    place = one("const", int64, value=0)
    for extent, argument in zip(domain, arguments, strict=True):
        place = one("add", int64, one("mul", int64, place, one("const", int64, value=extent)), argument)
    x = one("load", float64, place, param=0)
    ops.append(KOp("scan", (one("add", float64, x, x),), (), {}))
    params = (BufferParam(float64, size, "read"), BufferParam(float64, size, "write"))
    running = RunningTotal(kind, float64, 1, shape, reverse)
    return Kernel("total", domain, params, Block(arguments, ops), running=running)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["add", "mul", "max", "min"])
@pytest.mark.parametrize(
    ("domain", "shape"),
    [((7,), (1, 7, 1)), ((3, 7), (3, 7, 1)), ((7, 3), (1, 7, 3)), ((2, 7, 3), (2, 7, 3)), ((2, 2, 6, 5), (4, 6, 5)),
     ((2, 3, 4, 5), (2, 12, 5)), ((6,), (6, 1, 1)), ((2, 3), (2, 1, 3)), ((), (1, 1, 1))],
)  # fmt: skip
def test_walking_makes_the_same(domain, shape, kind, reverse) -> None:
    made = kernel(domain, shape, kind, reverse)
    other = walked(made)
    verify_kernel(made)
    verify_kernel(other)
    assert other.running is None
    assert int(np.prod(other.domain)) == shape[0] * shape[2]
    x = np.sin(np.arange(1.0, np.prod(shape) + 1))
    results = [np.zeros_like(x), np.zeros_like(x)]
    for k, result in zip((made, other), results, strict=True):
        interpret_kernel(k, [x, result])
    ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
    rows = 2 * x.reshape(shape)
    rows = np.flip(rows, 1) if reverse else rows
    want = ufunc.accumulate(rows, axis=1)
    want = np.flip(want, 1) if reverse else want
    np.testing.assert_allclose(results[0], want.reshape(-1), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(results[1], want.reshape(-1), rtol=1e-13, atol=1e-14)


def test_a_kernel_has_the_scan_that_it_announces() -> None:
    made = kernel((7,), (1, 7, 1), "add", False)
    made.body.ops.pop()
    with pytest.raises(VerifyError, match="expected one scan, got 0"):
        verify_kernel(made)
