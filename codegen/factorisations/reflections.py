"""QR factorisations by Householder's reflections, with LAPACK's signs (geqr2, org2r).

A column is reflected onto its first place: with x = (alpha, ...) and beta = -sign(alpha) |x|, H = 1 - tau v v.T for
tau = (beta - alpha) / beta and v = x / (alpha - beta), whose first element counts as 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from loopgrad.codegen.factorisations.in_lanes import Form, across, element
from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.nodes import Value


def qr(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    (a,) = operands
    *batch, m, n = a.shape
    k = min(m, n)
    columns = m if attrs["complete"] else k
    rest, rows = a, []
    reflections: list[tuple[Value, Value]] = []
    for j in range(k):
        below, right = rest.shape[-2], rest.shape[-1]
        if below > 1:
            v, tau = _reflection(mx.part(rest, (0, below), (0, 1)))
            reflections.append((v, tau))
            rest = _reflected(rest, v, tau)
        rows.append(mx.padded(mx.part(rest, (0, 1), (0, right)), (0, 0), (j, 0)))
        if j < k - 1:
            rest = mx.part(rest, (1, below), (1, right))
    r = ops.concat(rows, len(batch))
    if columns > k:
        r = mx.padded(r, (0, columns - k), (0, 0))
    q = mx.part(mx.identity(tuple(batch), m, a.dtype), (0, m), (0, columns))
    for j in reversed(range(len(reflections))):
        v, tau = reflections[j]
        corner = _reflected(mx.part(q, (j, m), (j, columns)), v, tau)
        if j:
            left = ops.concat([mx.part(q, (0, j), (j, columns)), corner], len(batch))
            q = ops.concat([mx.part(q, (0, m), (0, j)), left], len(batch) + 1)
        else:
            q = corner
    return q, r


def _reflection(x: Value) -> tuple[Value, Value]:
    """v of (..., m, 1) and tau of (...,)."""
    *batch, m, _ = x.shape
    rank = len(batch)
    alpha, tail = element(x, 0, 0), mx.part(x, (1, m), (0, 1))
    largest = ops.reduce_max(ops.abs(x), (rank, rank + 1))
    scale = ops.select(ops.gt(largest, 0), largest, 1)
    small = ops.div(x, across(scale, x.shape))
    length = ops.mul(scale, ops.sqrt(ops.reduce_sum(ops.mul(small, small), (rank, rank + 1))))
    beta = ops.select(ops.signbit(alpha), length, ops.neg(length))
    still = ops.eq(ops.reduce_max(ops.abs(tail), (rank, rank + 1)), 0)
    tau = ops.select(still, 0, ops.div(ops.sub(beta, alpha), ops.select(still, 1, beta)))
    below = ops.div(tail, across(ops.select(still, 1, ops.sub(alpha, beta)), tail.shape))
    return ops.concat([ops.ones_like(mx.part(x, (0, 1), (0, 1))), below], rank), tau


def _reflected(rest: Value, v: Value, tau: Value) -> Value:
    """rest - tau v (v.T rest)"""
    along = ops.matmul(mx.transposed(v), rest)
    scaled = ops.mul(v, across(tau, v.shape))
    product = ops.mul(ops.broadcast_to(scaled, rest.shape), ops.broadcast_to(along, rest.shape))
    return ops.sub(rest, product)


FORMS: Final[dict[str, Form]] = {"qr": qr}
