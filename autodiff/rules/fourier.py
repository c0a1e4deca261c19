"""Derivatives of Fourier transforms: they are linear, and the transpose of each is another of them.

A cotangent is the pair of those of the parts, so the transpose of F is its conjugate transpose: the transform in the
other direction, with the same factor. Of half a spectrum each number but the first (and the middle one of an even
length) stands for two.
"""

from __future__ import annotations

from typing import Final

from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import TensorType, int64


def _jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (t,) = tangents
    assert t is not None
    return (emit(node.op, (t,), node.attrs)[0],)


def _dft_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,) = cotangents
    assert ct is not None
    return (emit("dft", (ct,), {**node.attrs, "inverse": not node.attrs["inverse"]})[0],)


def _real_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,) = cotangents
    assert ct is not None
    n = node.operands[0].shape[-1]
    return (emit("hermitian_dft", (_weighted(ct, n, 0.5),), {"length": n, "norm": node.attrs["norm"]})[0],)


def _hermitian_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,) = cotangents
    assert ct is not None
    found = emit("real_dft", (ct,), {"norm": node.attrs["norm"]})[0]
    return (_weighted(found, node.attrs["length"], 2.0),)


def _weighted(half: Value, n: int, weight: float) -> Value:
    """The numbers of half a spectrum, (..., n // 2 + 1, 2), times `weight` where one stands for two."""
    k = ops.iota(TensorType(half.shape, int64), len(half.shape) - 2)
    alone = ops.eq(k, 0)
    if n % 2 == 0:
        alone = ops.or_(alone, ops.eq(k, n // 2))
    return ops.select(alone, half, ops.mul(half, weight))


VJP: Final[dict[str, Rule]] = {"dft": _dft_vjp, "real_dft": _real_vjp, "hermitian_dft": _hermitian_vjp}
JVP: Final[dict[str, Rule]] = {"dft": _jvp, "real_dft": _jvp, "hermitian_dft": _jvp}
