"""Derivatives of QR factorisations, eigenvalues and singular values, in operations of the graph.

S. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions with application in optimum
experimental design" (2010), arXiv:1001.1654, for QR; M. Giles (2008, see `factorisations`) for symmetric eigenvalues;
J. Townsend, "Differentiating the singular value decomposition" (2016), for singular values.

Vectors turn freely where values are equal: their derivatives are infinite or NaN there. Those of the values alone don't
read differences of values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.errors import GradientError, explained
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import TensorType, int64


def _plus(a: Value | None, b: Value) -> Value:
    return b if a is None else ops.add(a, b)


# ---- QR: with X = dA inv(R) and Y = Q.T X, dQ = Q (W - Y) + X and dR = (Y - W) R, where W is antisymmetric


def _refuse_complete(node: Node, wanted: Sequence[bool]) -> None:
    m, n = node.operands[0].shape[-2:]
    if wanted[0] and node.attrs["complete"] and m > n:
        fix = "columns beyond the rank turn freely: use mode='reduced'"
        raise GradientError(explained("qr", "a derivative of the reduced factors", f"a complete q of {m} rows", fix))


def _reduced(node: Node) -> tuple[tuple[Value, Value], int]:
    """The reduced q and r, and how many rows of zeros the node's own r has below."""
    m, n = node.operands[0].shape[-2:]
    if node.attrs["complete"] and m > n:
        return mx.qr(node.operands[0]), m - n
    q, r = node.results
    return (q, r), 0


def _right_inverse(v: Value, r: Value, adjoint: bool = False) -> Value:
    """v inv(R), or v inv(R).H"""
    if adjoint:
        return mx.adjoint(mx.solve_triangular(r, mx.adjoint(v), lower=False))
    return mx.transposed(mx.solve_triangular(r, mx.transposed(v), lower=False, transpose=True))


def _with_imaginary_diagonal(v: Value, of: Value) -> Value:
    """R has a real diagonal: what `of` has beside that turns q."""
    return ops.add(v, mx.imaginary_diagonal(of)) if of.dtype.kind == "c" else v


def _qr_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (t,), (a,), ((q, r), zeros) = tangents, node.operands, _reduced(node)
    assert t is not None
    m, n = a.shape[-2:]
    k = min(m, n)
    square = mx.part(r, (0, k), (0, k))
    x = _right_inverse(mx.part(t, (0, m), (0, k)), square)
    y = ops.matmul(mx.adjoint(q), x)
    below = mx.lower(y, -1)
    rest = ops.sub(y, _with_imaginary_diagonal(ops.sub(below, mx.adjoint(below)), y))
    dq = ops.sub(x, ops.matmul(q, rest))
    dr = mx.upper(ops.matmul(rest, square))
    if n > k:
        others, moved = (mx.part(v, (0, m), (k, n)) for v in (a, t))
        right = ops.add(ops.matmul(mx.adjoint(dq), others), ops.matmul(mx.adjoint(q), moved))
        dr = ops.concat([dr, right], len(r.shape) - 1)
    if zeros:
        rank = len(dr.shape)
        return None, ops.pad(dr, [0] * rank, [0] * (rank - 2) + [zeros, 0], 0)
    return dq, dr


def _qr_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (cq, cr), (a,), ((q, r), _) = cotangents, node.operands, _reduced(node)
    m, n = a.shape[-2:]
    k = min(m, n)
    cq = ops.zeros_like(q) if cq is None else cq
    cr = ops.zeros_like(r) if cr is None else mx.part(cr, (0, k), (0, n))
    square = mx.part(r, (0, k), (0, k))
    right = None
    if n > k:
        c_right = mx.part(cr, (0, k), (k, n))
        cq = ops.add(cq, ops.matmul(mx.part(a, (0, m), (k, n)), mx.adjoint(c_right)))
        right = ops.matmul(q, c_right)
        cr = mx.part(cr, (0, k), (0, k))
    both = ops.sub(ops.matmul(mx.adjoint(q), cq), ops.matmul(mx.upper(cr), mx.adjoint(square)))
    turned = _with_imaginary_diagonal(mx.lower(ops.sub(both, mx.adjoint(both)), -1), both)
    left = _right_inverse(ops.add(cq, ops.matmul(q, ops.sub(turned, both))), square, adjoint=True)
    return (left if right is None else ops.concat([left, right], len(a.shape) - 1),)


# ---- symmetric eigenvalues: with M = V.T dA V, dw is its diagonal and dV = V (F * M)


def _inverse_differences(w: Value) -> Value:
    """F: 1 / (w[j] - w[i]) beside the diagonal, 0 on it."""
    *batch, n = w.shape
    shape, rank = (*batch, n, n), len(w.shape)
    columns = ops.broadcast(w, shape, (*range(rank - 1), rank))
    differences = ops.sub(columns, ops.broadcast_leading(w, shape))
    eye = mx.identity(tuple(batch), n, w.dtype)
    return ops.sub(ops.div(1, ops.add(differences, eye)), eye)


def _eigen(node: Node) -> tuple[Value, Value]:
    """Values and vectors, computed together where the node hasn't the vectors."""
    w, v = node.results if node.attrs["vectors"] else mx.eigh(node.operands[0])
    return w, v


def _eigh_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (t,), (w, v) = tangents, _eigen(node)
    assert t is not None
    inner = ops.matmul(mx.adjoint(v), ops.matmul(mx.hermitian_of_lower(t), v))
    values = mx.real(mx.diagonal(inner))
    if not node.attrs["vectors"]:
        return (values,)
    return values, ops.matmul(v, mx.mul(inner, _inverse_differences(w)))


def _eigh_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    w, v = _eigen(node)
    inner = None if cotangents[0] is None else mx.on_diagonal(ops.cast(cotangents[0], v.dtype))
    if node.attrs["vectors"] and cotangents[1] is not None:
        turned = ops.matmul(mx.adjoint(v), cotangents[1])
        inner = _plus(inner, mx.mul(turned, _inverse_differences(w)))
    assert inner is not None
    return (mx.to_lower(ops.matmul(v, ops.matmul(inner, mx.adjoint(v)))),)


# ---- singular values: with P = U.T dA V, ds is its diagonal,
# dU = U (F * (P S + S P.T)) + (1 - U U.T) dA V inv(S), and dV likewise of the transpose


def _inverse_square_differences(s: Value) -> Value:
    return _inverse_differences(mx.mul(s, s))


def _refuse_full(node: Node, wanted: Sequence[bool]) -> None:
    """Of a wide matrix all left vectors belong to singular values, of a tall one all right ones."""
    m, n = node.operands[0].shape[-2:]
    if node.attrs["full"] and ((wanted[0] and m > n) or (wanted[2] and n > m)):
        fix = "vectors of no singular value turn freely: use full_matrices=False"
        raise GradientError(explained("svd", "a derivative of the thin factors", f"full ones of {m} x {n}", fix))


def _singular(node: Node) -> tuple[Value, Value, Value]:
    """u, s and v, thin."""
    thin = node.attrs["vectors"] and not node.attrs["full"]
    u, s, vh = node.results if thin else mx.svd(node.operands[0])
    return u, s, mx.adjoint(vh)


def _outside(u: Value, v: Value) -> Value:
    """(1 - U U.T) v"""
    return ops.sub(v, ops.matmul(u, ops.matmul(mx.adjoint(u), v)))


def _svd_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (t,), (u, s, v) = tangents, _singular(node)
    assert t is not None
    m, n = t.shape[-2:]
    along = ops.matmul(t, v)
    inner = ops.matmul(mx.adjoint(u), along)
    values = mx.real(mx.diagonal(inner))
    if not node.attrs["vectors"]:
        return (values,)
    turns = _inverse_square_differences(s)
    scaled = mx.scaled_columns(inner, s)
    du = mx.mul(ops.add(scaled, mx.adjoint(scaled)), turns)
    if u.dtype.kind == "c":  # a common phase of both vectors of a value is free: it is given to u
        du = ops.add(du, mx.scaled_columns(mx.imaginary_diagonal(inner), ops.div(1, s)))
    du = ops.matmul(u, du)
    scaled = mx.scaled_rows(inner, s)
    dv = ops.matmul(v, mx.mul(ops.add(scaled, mx.adjoint(scaled)), turns))
    if m > n:
        du = ops.add(du, mx.scaled_columns(_outside(u, along), ops.div(1, s)))
    if n > m:
        across = ops.matmul(mx.adjoint(t), u)
        dv = ops.add(dv, mx.scaled_columns(_outside(v, across), ops.div(1, s)))
    full = node.attrs["full"]
    return None if full and m > n else du, values, None if full and n > m else mx.adjoint(dv)


def _svd_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    u, s, v = _singular(node)
    m, n = node.operands[0].shape[-2:]
    cu, cs, cvh = cotangents if node.attrs["vectors"] else (None, cotangents[0], None)
    inner = None if cs is None else mx.on_diagonal(ops.cast(cs, u.dtype))
    outer = None
    if cu is not None:
        along = ops.matmul(mx.adjoint(u), cu)
        turned = mx.mul(along, _inverse_square_differences(s))
        inner = _plus(inner, mx.scaled_columns(ops.add(turned, mx.adjoint(turned)), s))
        if u.dtype.kind == "c":
            inner = ops.add(inner, mx.scaled_columns(mx.imaginary_diagonal(along), ops.div(1, s)))
        if m > n:
            outside = mx.scaled_columns(_outside(u, cu), ops.div(1, s))
            outer = ops.matmul(outside, mx.adjoint(v))
    if cvh is not None:
        cv = mx.adjoint(cvh)
        turned = mx.mul(ops.matmul(mx.adjoint(v), cv), _inverse_square_differences(s))
        inner = _plus(inner, mx.scaled_rows(ops.add(turned, mx.adjoint(turned)), s))
        if n > m:
            outside = mx.scaled_columns(_outside(v, cv), ops.div(1, s))
            outer = _plus(outer, ops.matmul(u, mx.adjoint(outside)))
    assert inner is not None
    return (_plus(outer, ops.matmul(u, ops.matmul(inner, mx.adjoint(v)))),)


# ---- eigenvalues of any matrices: with M = inv(V) dA V, dw is its diagonal, dV = V (F * M) - V c, where the complex
# numbers c, one a column, let the columns keep length 1, and the phase in which LAPACK's largest entry is real


def _spectrum(node: Node) -> tuple[Value, Value]:
    """Values and vectors, computed together where the node hasn't the vectors."""
    w, v = node.results if node.attrs["vectors"] else mx.eig(node.operands[0])
    return w, v


def _complex_differences(w: Value) -> Value:
    """F: 1 / (w[j] - w[i]) beside the diagonal, 0 on it."""
    *batch, n = w.shape
    shape, rank = (*batch, n, n), len(w.shape)
    columns = ops.broadcast(w, shape, (*range(rank - 1), rank))
    eye = mx.identity(tuple(batch), n, w.dtype)
    differences = ops.add(ops.sub(columns, ops.broadcast_leading(w, shape)), eye)
    return ops.sub(mx.div(ops.ones_like(eye), differences), eye)


def _real_entries(v: Value) -> tuple[Value, Value]:
    """Which entry of each column LAPACK has turned to be real, and its value."""
    rank, (re, im) = len(v.shape), (ops.real(v), ops.imag(v))
    place = ops.argmax(ops.select(ops.eq(im, 0), ops.abs(re), -1), rank - 2)
    columns = ops.broadcast(place, v.shape, (*range(rank - 2), rank - 1))
    chosen = ops.eq(ops.iota(TensorType(v.shape, int64), rank - 2), columns)
    return chosen, ops.reduce_sum(ops.select(chosen, re, 0), (rank - 2,))


def _eig_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (t,), (w, v) = tangents, _spectrum(node)
    assert t is not None
    inner = mx.solve(v, ops.matmul(ops.cast(t, v.dtype), v))
    values = mx.diagonal(inner)
    if not node.attrs["vectors"]:
        return (values,)
    dv = ops.matmul(v, mx.mul(inner, _complex_differences(w)))
    rows, (chosen, entries) = (len(v.shape) - 2,), _real_entries(v)
    along = ops.real(ops.reduce_sum(mx.mul(mx.conj(v), dv), rows))
    turned = ops.div(ops.reduce_sum(ops.select(chosen, ops.imag(dv), 0), rows), entries)
    return values, ops.sub(dv, mx.scaled_columns(v, ops.join(along, turned)))


def _eig_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    w, v = _spectrum(node)
    inner = None if cotangents[0] is None else mx.on_diagonal(cotangents[0])
    if node.attrs["vectors"] and cotangents[1] is not None:
        ct, (chosen, entries) = cotangents[1], _real_entries(v)
        along = ops.reduce_sum(mx.mul(mx.conj(v), ct), (len(v.shape) - 2,))  # what c takes from both, see the tangents
        ct = ops.sub(ct, mx.scaled_columns(v, ops.real(along)))
        turned = ops.broadcast(ops.div(ops.imag(along), entries), v.shape, (*range(len(v.shape) - 2), len(v.shape) - 1))
        ct = ops.join(ops.real(ct), ops.sub(ops.imag(ct), ops.select(chosen, turned, 0)))
        inner = _plus(inner, mx.mul(ops.matmul(mx.adjoint(v), ct), mx.conj(_complex_differences(w))))
    assert inner is not None
    packed, _, rows = mx.lu(v)
    right = ops.matmul(inner, mx.adjoint(v))
    to_a = mx.conj(mx.solve_factored(v, packed, rows, mx.conj(right), transpose=True))
    return (to_a if node.operands[0].dtype.kind == "c" else mx.real(to_a),)


# ---- pseudo-inverses, as long as the rank stays: G. Golub and V. Pereyra, "The differentiation of pseudo-inverses and
# nonlinear least squares problems whose variables separate" (1973). No difference of singular values is read.


def _residue(p: Value, a: Value) -> Value:
    """1 - p a"""
    both = ops.matmul(p, a)
    return ops.sub(mx.identity(both.shape[:-2], both.shape[-1], a.dtype), both)


def _pinv_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (a, _), p, t = node.operands, node.results[0], tangents[0]
    if t is None:
        return (None,)
    turned = mx.adjoint(t)
    first = ops.matmul(ops.matmul(p, t), p)
    second = ops.matmul(ops.matmul(p, mx.adjoint(p)), ops.matmul(turned, _residue(a, p)))
    third = ops.matmul(_residue(p, a), ops.matmul(turned, ops.matmul(mx.adjoint(p), p)))
    return (ops.sub(ops.add(second, third), first),)


def _pinv_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,), (a, _), p = cotangents, node.operands, node.results[0]
    assert ct is not None
    across = mx.adjoint(p)
    first = ops.matmul(ops.matmul(across, ct), across)
    second = ops.matmul(ops.matmul(p, across), ops.matmul(ct, _residue(a, p)))
    third = ops.matmul(_residue(p, a), ops.matmul(ct, ops.matmul(across, p)))
    return (ops.sub(mx.adjoint(ops.add(second, third)), first), None)


VJP: Final[dict[str, Rule]] = {"qr": _qr_vjp, "eigh": _eigh_vjp, "eig": _eig_vjp, "svd": _svd_vjp, "pinv": _pinv_vjp}

JVP: Final[dict[str, Rule]] = {"qr": _qr_jvp, "eigh": _eigh_jvp, "eig": _eig_jvp, "svd": _svd_jvp, "pinv": _pinv_jvp}

# What refuses derivatives of the results that are flagged True: their vectors turn freely.
REFUSED: Final[dict[str, Callable[[Node, Sequence[bool]], None]]] = {"qr": _refuse_complete, "svd": _refuse_full}
