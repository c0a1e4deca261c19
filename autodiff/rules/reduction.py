"""Derivatives of reductions, scans and sorting.

Choices where there is no derivative: reduce_min and reduce_max share among equal winners; cummin and cummax
give all to the latest winner; a sort moves derivatives as it moves elements. Products never divide, so zeros
among the factors are right: the product of the others comes from exclusive products on both sides, and
cumprod's derivative is a linear recurrence, solved in log(n) steps of n, n / 8, n / 64, ... elements. So is that of
logcumsumexp, whose factors, one total's share of the next, are never above 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from loopgrad.autodiff.rules.movement import Rule, Values, linear
from loopgrad.graph import ops
from loopgrad.graph.associative import RunningCombination, scanned
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.scalar_functions import Row, ScalarFunction
from loopgrad.graph.types import TensorType, int64


def _only(values: Values) -> Value:
    (v,) = values
    assert v is not None
    return v


def _restore(v: Value, node: Node) -> Value:
    """A reduced value repeated along the axes that the reduction removed."""
    shape, axes = node.operands[0].shape, node.attrs["axes"]
    return ops.broadcast(v, shape, [d for d in range(len(shape)) if d not in axes])


def _sum_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    return (_restore(_only(cotangents), node),)


def _winners(node: Node) -> tuple[Value, Value]:
    """Which elements equal the extremum, and how many do (in the result's shape and dtype)."""
    x = node.operands[0]
    wins = ops.eq(x, _restore(node.results[0], node))
    return wins, ops.reduce_sum(ops.cast(wins, x.dtype), node.attrs["axes"])


def _extremum_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    wins, count = _winners(node)
    return (ops.select(wins, _restore(ops.div(_only(cotangents), count), node), 0),)


def _extremum_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    wins, count = _winners(node)
    return (ops.div(ops.reduce_sum(ops.select(wins, _only(tangents), 0), node.attrs["axes"]), count),)


# ---- products


def exclusive_product(x: Value, axis: int, reverse: bool) -> Value:
    """The product of all earlier (later, where reverse) elements along `axis`."""
    one_before, start, stop = [0] * len(x.shape), [0] * len(x.shape), list(x.shape)
    one_before[axis] = 1
    none = [0] * len(x.shape)
    if reverse:
        start[axis] = 1
        shifted = ops.pad(ops.slice(x, start, stop), none, one_before, 1)
    else:
        stop[axis] -= 1
        shifted = ops.pad(ops.slice(x, start, stop), one_before, none, 1)
    return ops.cumprod(shifted, axis, reverse)


def _product_of_others(x: Value, axes: Sequence[int]) -> Value:
    """For each element, the product of those it is multiplied with by reduce_prod over `axes`."""
    shape = x.shape
    kept = [d for d in range(len(shape)) if d not in axes]
    perm = (*kept, *axes)
    if prod(shape) == 0 or not axes:
        return ops.ones_like(x)
    x = ops.gathered(x, axes)
    folded = ops.reshape(ops.transpose(x, perm), (*(shape[d] for d in kept), prod(shape[a] for a in axes)))
    last = len(kept)
    others = ops.mul(exclusive_product(folded, last, False), exclusive_product(folded, last, True))
    unfolded = ops.reshape(others, [shape[d] for d in perm])
    return ops.transpose(unfolded, [perm.index(d) for d in range(len(shape))])


def _product_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    others = _product_of_others(node.operands[0], node.attrs["axes"])
    return (ops.mul(_restore(_only(cotangents), node), others),)


def _product_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    others = _product_of_others(node.operands[0], node.attrs["axes"])
    return (ops.reduce_sum(ops.mul(_only(tangents), others), node.attrs["axes"]),)


def shifted(v: Value, axis: int, by: int, fill: int) -> Value:
    """Element i becomes what stood at i - by along `axis`; `fill` where that is outside."""
    extent = v.shape[axis]
    none, low, high = [0] * len(v.shape), [0] * len(v.shape), [0] * len(v.shape)
    start, stop = none.copy(), list(v.shape)
    if by > 0:
        stop[axis], low[axis] = max(extent - by, 0), min(by, extent)
    else:
        start[axis], high[axis] = min(-by, extent), min(-by, extent)
    return ops.pad(ops.slice(v, start, stop), low, high, fill)


def linear_recurrence(factor: Value, term: Value, axis: int, reverse: bool) -> Value:
    """s[i] = factor[i] * s[i - 1] + term[i] along `axis` (i + 1 where reverse)."""
    if not term.dtype.is_float:
        return RunningCombination(_then, (axis, axis)).run((factor, term), reverse)[1]
    name = term.dtype.name
    product, moved, sum = Row("mul", name, (2, 0)), Row("mul", name, (2, 1)), Row("add", name, (5, 3))
    return scanned(ScalarFunction((product, moved, sum), (4, 6)), (factor, term), axis, reverse)[1]


def _then(first: Sequence[Value], second: Sequence[Value]) -> list[Value]:
    """The same of complex numbers, which running combinations as data don't have."""
    return [ops.mul(second[0], first[0]), ops.add(ops.mul(second[0], first[1]), second[1])]


def _cumprod_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    """x_adj[k] = prod(x[:k]) * s[k] with s[k] = ct[k] + x[k + 1] * s[k + 1]."""
    x, axis, reverse = node.operands[0], node.attrs["axis"], node.attrs["reverse"]
    if 0 in x.shape:
        return (ops.zeros_like(x),)
    following = shifted(x, axis, 1 if reverse else -1, 0)
    tail = linear_recurrence(following, _only(cotangents), axis, not reverse)
    return (ops.mul(exclusive_product(x, axis, reverse), tail),)


def _cumprod_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    """t_y[i] = x[i] * t_y[i - 1] + t_x[i] * prod(x[:i])."""
    x, axis, reverse = node.operands[0], node.attrs["axis"], node.attrs["reverse"]
    if 0 in x.shape:
        return (ops.zeros_like(x),)
    term = ops.mul(_only(tangents), exclusive_product(x, axis, reverse))
    return (linear_recurrence(x, term, axis, reverse),)


def _share(part: Value, total: Value) -> Value:
    """exp(part - total); of what is as infinite as the total, all."""
    apart = ops.select(ops.eq(part, total), ops.zeros_like(part), ops.sub(part, total))
    return ops.exp(apart)


def _shares_of_next(y: Value, axis: int, reverse: bool, before: bool) -> Value:
    """Each running total's share of the next one, a 0 `before` all of them or behind: what pads totals instead would be
    subtracted from one, and an infinite share that nothing is made of still makes NaN of its derivative."""
    none, extent = [0] * len(y.shape), list(y.shape)
    second, shorter, one = none.copy(), extent.copy(), none.copy()
    second[axis], shorter[axis], one[axis] = 1, extent[axis] - 1, 1
    front, back = ops.slice(y, none, shorter), ops.slice(y, second, extent)
    shares = _share(back, front) if reverse else _share(front, back)
    return ops.pad(shares, one, none, 0) if before else ops.pad(shares, none, one, 0)


def _logcumsumexp_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    """x_adj[k] = share(x[k], y[k]) * s[k] with s[k] = ct[k] + share(y[k], y[k + 1]) * s[k + 1]."""
    (x,), (y,), axis, reverse = node.operands, node.results, node.attrs["axis"], node.attrs["reverse"]
    if 0 in x.shape:
        return (ops.zeros_like(x),)
    factor = _shares_of_next(y, axis, reverse, before=reverse)
    return (ops.mul(_share(x, y), linear_recurrence(factor, _only(cotangents), axis, not reverse)),)


def _logcumsumexp_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    """t_y[i] = share(y[i - 1], y[i]) * t_y[i - 1] + share(x[i], y[i]) * t_x[i]."""
    (x,), (y,), axis, reverse = node.operands, node.results, node.attrs["axis"], node.attrs["reverse"]
    if 0 in x.shape:
        return (ops.zeros_like(x),)
    factor = _shares_of_next(y, axis, reverse, before=not reverse)
    return (linear_recurrence(factor, ops.mul(_share(x, y), _only(tangents)), axis, reverse),)


# ---- moves along an axis by computed positions


def along(position: Value, axis: int) -> tuple[Value, ...]:
    """Index operands that address `position` along `axis` and the own place along all other axes."""
    type = TensorType(position.shape, position.dtype)
    return tuple([position if d == axis else ops.iota(type, d) for d in range(len(position.shape))])


def _moved_back(position: Value, axis: int, ct: Value, like: Value) -> Value:
    return ops.scatter("add", ops.zeros_like(like), along(position, axis), ct)


def _running_winner(node: Node) -> Value:
    """Where the running extremum of cummin or cummax stands."""
    x, axis, reverse = node.operands[0], node.attrs["axis"], node.attrs["reverse"]
    here = ops.iota(TensorType(x.shape, int64), axis)
    leads = ops.eq(x, node.results[0])
    if reverse:
        return ops.cummin(ops.select(leads, here, x.shape[axis] - 1), axis, True)
    return ops.cummax(ops.select(leads, here, 0), axis)


def _running_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    return (_moved_back(_running_winner(node), node.attrs["axis"], _only(cotangents), node.operands[0]),)


def _running_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    return (ops.gather(_only(tangents), *along(_running_winner(node), node.attrs["axis"])),)


def _cumsum_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    return (ops.cumsum(_only(cotangents), node.attrs["axis"], not node.attrs["reverse"]),)


def _sort_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    x, axis = node.operands[0], node.attrs["axis"]
    return (_moved_back(ops.argsort(x, axis), axis, _only(cotangents), x),)


def _sort_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    axis = node.attrs["axis"]
    return (ops.gather(_only(tangents), *along(ops.argsort(node.operands[0], axis), axis)),)


VJP: Final[dict[str, Rule]] = {
    "reduce_sum": _sum_vjp,
    "reduce_prod": _product_vjp,
    "reduce_min": _extremum_vjp,
    "reduce_max": _extremum_vjp,
    "cumsum": _cumsum_vjp,
    "cumprod": _cumprod_vjp,
    "logcumsumexp": _logcumsumexp_vjp,
    "cummin": _running_vjp,
    "cummax": _running_vjp,
    "sort": _sort_vjp,
}

JVP: Final[dict[str, Rule]] = {
    "reduce_sum": linear,
    "reduce_prod": _product_jvp,
    "reduce_min": _extremum_jvp,
    "reduce_max": _extremum_jvp,
    "cumsum": linear,
    "cumprod": _cumprod_jvp,
    "logcumsumexp": _logcumsumexp_jvp,
    "cummin": _running_jvp,
    "cummax": _running_jvp,
    "sort": _sort_jvp,
}
