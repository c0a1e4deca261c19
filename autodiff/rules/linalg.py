"""Derivatives of matmul: bilinear, batch dims in front. Where it doesn't round to its operands' dtype, nor do they."""

from __future__ import annotations

from typing import Final

from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import ops
from loopgrad.graph.nodes import Node, Value


def _transposed(v: Value) -> Value:
    rank = len(v.shape)
    return ops.transpose(v, (*range(rank - 2), rank - 1, rank - 2))


def _matmul_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,) = cotangents
    assert ct is not None
    a, b = node.operands
    p, q = (ops.cast(v, ct.dtype) for v in node.operands)
    return (ops.cast(ops.matmul(ct, _transposed(q)), a.dtype), ops.cast(ops.matmul(_transposed(p), ct), b.dtype))


def _matmul_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (a, b), (ta, tb) = node.operands, tangents
    dtype = node.results[0].dtype
    left = None if ta is None else ops.matmul(ta, b, dtype)
    right = None if tb is None else ops.matmul(a, tb, dtype)
    if left is None or right is None:
        return (left if right is None else right,)
    return (ops.add(left, right),)


VJP: Final[dict[str, Rule]] = {"matmul": _matmul_vjp}
JVP: Final[dict[str, Rule]] = {"matmul": _matmul_jvp}
