"""Derivatives of factorisations, in operations of the graph: they have derivatives again.

M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008), for
triangular systems; I. Murray, "Differentiation of the Cholesky decomposition" (2016), arXiv:1602.07527; the LU
factorisation as in JAX: with inv(L) P dA inv(U) = M, dL = L tril(M, -1) and dU = triu(M) U.

What a routine doesn't read has derivative 0: the upper triangle of what `cholesky` is given.
"""

from __future__ import annotations

from typing import Final

from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.nodes import Node, Value


def _halved(v: Value) -> Value:
    """The lower triangle, half of the diagonal: what, with its transpose, makes a symmetric matrix."""
    both = ops.add(mx.lower(v), mx.lower(v, -1))
    return mx.mul(both, 0.5)


def _cholesky_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (t,), factor = tangents, node.results[0]
    assert t is not None
    inner = mx.solve_triangular(factor, mx.hermitian_of_lower(t), lower=True)
    inner = mx.adjoint(mx.solve_triangular(factor, mx.adjoint(inner), lower=True))
    return (ops.matmul(factor, _halved(inner)),)


def _cholesky_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,), factor = cotangents, node.results[0]
    assert ct is not None
    inner = _halved(ops.matmul(mx.adjoint(factor), ct))
    inner = mx.mul(ops.add(inner, mx.adjoint(inner)), 0.5)
    right = mx.solve_adjoint(factor, inner, lower=True)
    return (mx.to_lower(mx.solve_adjoint(factor, mx.adjoint(right), lower=True)),)


# ---- triangular systems: x = inv(op(a)) b, so dx = inv(op(a)) (db - op(da) x)


def _read_part(node: Node, v: Value) -> Value:
    """What the routine reads of a matrix."""
    offset = 1 if node.attrs["unit_diagonal"] else 0
    return mx.lower(v, -offset) if node.attrs["lower"] else mx.upper(v, offset)


def _triangular_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (ta, tb), a, x = tangents, node.operands[0], node.results[0]
    right = tb
    if ta is not None:
        moved = _read_part(node, ta)
        product = ops.matmul(mx.transposed(moved) if node.attrs["transpose"] else moved, x)
        right = ops.neg(product) if right is None else ops.sub(right, product)
    assert right is not None
    return (mx.solve_triangular(a, right, **node.attrs),)


def _triangular_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,), a, x = cotangents, node.operands[0], node.results[0]
    assert ct is not None
    to_b = mx.solve_adjoint(a, ct, **node.attrs)
    return (ops.neg(_read_part(node, _outer(to_b, x, node.attrs["transpose"]))), to_b)


def _outer(to_b: Value, x: Value, transpose: bool) -> Value:
    """The cotangent of `a` in a @ x = b, or in a.T @ x = b, by that of b; but for its sign."""
    product = ops.matmul(to_b, mx.adjoint(x))
    return mx.transposed(product) if transpose else product


# ---- solutions by factors: as if there were none, which stay those of the same matrix


def _factored_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (a, packed, rows, _), x, transpose = node.operands, node.results[0], node.attrs["transpose"]
    ta, right = tangents[0], tangents[3]
    if ta is not None:
        product = ops.matmul(mx.transposed(ta) if transpose else ta, x)
        right = ops.neg(product) if right is None else ops.sub(right, product)
    return (None if right is None else mx.solve_factored(a, packed, rows, right, transpose),)


def _factored_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,), (a, packed, rows, _), x = cotangents, node.operands, node.results[0]
    assert ct is not None
    transpose: bool = node.attrs["transpose"]
    to_b = mx.conj(mx.solve_factored(a, packed, rows, mx.conj(ct), not transpose))
    return (ops.neg(_outer(to_b, x, transpose)), None, None, to_b)


# ---- LU: both factors made square, so that inv(L) and inv(U) are


def _square_factors(packed: Value) -> tuple[Value, Value]:
    """L of (m, m) and U of (n, n), ones on the diagonal of what was added."""
    *batch, m, n = packed.shape
    left = mx.unit_lower(packed)
    k = min(m, n)
    right = mx.upper(mx.part(packed, (0, k), (0, n)))
    if n > k:
        more = mx.identity(tuple(batch), n - k, packed.dtype)
        right = ops.concat([right, mx.padded(more, (0, 0), (k, 0))], len(batch))
    return left, right


def _between(left: Value, right: Value, v: Value) -> Value:
    """inv(L) v inv(U)"""
    rows = mx.solve_triangular(left, v, lower=True, unit_diagonal=True)
    columns = mx.solve_triangular(right, mx.transposed(rows), lower=False, transpose=True)
    return mx.transposed(columns)


def _lu_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (t,), (packed, _, rows) = tangents, node.results
    assert t is not None
    left, right = _square_factors(packed)
    m, n = packed.shape[-2:]
    k = min(m, n)
    moved = _between(left, right, mx.rows_at(t, rows))
    below = ops.matmul(left, _fitted(mx.lower(moved, -1), m, m))
    above = ops.matmul(_fitted(mx.upper(moved), n, n), right)
    return (ops.add(_fitted(mx.lower(below, -1), m, n, k), _fitted(mx.upper(above), m, n)), None, None)


def _fitted(v: Value, m: int, n: int, columns: int | None = None) -> Value:
    """The first rows and columns, or zeros after them, for (..., m, n); only so many columns of it stay."""
    keep = min(v.shape[-1], n if columns is None else columns)
    v = mx.part(v, (0, min(v.shape[-2], m)), (0, keep))
    return mx.padded(v, (0, m - v.shape[-2]), (0, n - v.shape[-1]))


def _lu_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    ct, (packed, _, rows) = cotangents[0], node.results
    if ct is None:
        return (None,)
    left, right = _square_factors(packed)
    m, n = packed.shape[-2:]
    k = min(m, n)
    below = ops.matmul(mx.adjoint(left), mx.lower(_fitted(ct, m, m, k), -1))
    above = ops.matmul(mx.upper(_fitted(ct, n, n)), mx.adjoint(right))
    inner = ops.add(_fitted(mx.lower(below, -1), m, n), _fitted(mx.upper(above), m, n))
    outer = mx.solve_adjoint(left, inner, lower=True, unit_diagonal=True)
    outer = mx.adjoint(mx.solve_triangular(right, mx.adjoint(outer), lower=False))
    return (mx.rows_back(outer, rows),)


VJP: Final[dict[str, Rule]] = {
    "cholesky": _cholesky_vjp,
    "lu": _lu_vjp,
    "triangular_solve": _triangular_vjp,
    "solve_factored": _factored_vjp,
}

JVP: Final[dict[str, Rule]] = {
    "cholesky": _cholesky_jvp,
    "lu": _lu_jvp,
    "triangular_solve": _triangular_jvp,
    "solve_factored": _factored_jvp,
}
