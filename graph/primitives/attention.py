"""Attention as one routine of devices that have matrix units: calls of kind `routine` become these where they fit
(`codegen/schedule/attention.py`), and are what their region says elsewhere.

    attention           q: (..., t, d), k: (..., s, d), v: (..., s, e), [bias], [mask]
                          ->  result: (..., t, e) of their dtype, normal: float32 (..., t, 1), the logarithm of each
                              query's denominator
    attention_gradient  q, k, v, normal, along: float32 (..., t, 1), ct: (..., t, e), [bias], [mask]
                          ->  the derivatives of q, k and v, of their dtype; along: the sum of ct * result over e

Attributes: `causal`, `scale` (a float), `sides` ("", "b", "m", "bm": of bias and mask those that are there),
`precision` (of the factors of products of float32: `lg.options(matmul_precision=)`), and `heads`, where keys and values
are those of several queries' matrices: the leading axes of queries, in an array of as many, and of those of keys and
values, 1 where they are the same; else (). Derivatives by keys and values are those of each of the queries' matrices.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives.primitive import Array, Attrs, Kind, Primitive, Types, table
from loopgrad.graph.types import TensorType, float32

OF: Final = "{} of {}"  # a routine and a dtype, among the routines of a target whose matrix units multiply these
WHY: Final = "it is what a call with a derivative of its own became"


def _infer_attention(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    q, _, v, *_ = operands
    *batch, t, _ = q.shape
    return (TensorType((*batch, t, v.shape[-1]), q.dtype), TensorType((*batch, t, 1), float32))


def _infer_gradient(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    batch = operands[0].shape[:-2]
    return tuple([TensorType((*batch, *x.shape[-2:]), x.dtype) for x in operands[:3]])


def _scores(attrs: Attrs, q: Array, k: Array, sides: list[Array]) -> Array:
    rest = iter(sides)
    found: Array = attrs["scale"] * (q.astype(np.float32) @ np.swapaxes(k, -1, -2).astype(np.float32))
    if "b" in attrs["sides"]:
        found = found + next(rest)
    if "m" in attrs["sides"]:
        found = np.where(next(rest), found, -np.inf)
    if attrs["causal"]:
        found = np.where(np.tri(*found.shape[-2:], dtype=np.bool_), found, -np.inf)
    return found


def attention(attrs: Attrs, q: Array, k: Array, v: Array, *sides: Array) -> tuple[Array, Array]:
    shape = q.shape[:-1]
    k, v = (_of_each_head(attrs, x, shape) for x in (k, v))
    scores = _scores(attrs, q, k, list(sides))
    most = scores.max(-1, keepdims=True)
    base = np.where(np.isneginf(most), 0, most)
    weights = np.exp(scores - base)
    norm = weights.sum(-1, keepdims=True)
    norm = np.where(norm == 0, np.float32(1), norm)
    result = weights.astype(q.dtype).astype(np.float32) @ v.astype(np.float32) / norm
    normal = (base + np.log(norm)).astype(np.float32)
    return result.astype(q.dtype), normal


def _of_each_head(attrs: Attrs, x: Array, shape: tuple[int, ...]) -> Array:
    """Keys or values of every matrix of queries, where several share some."""
    if not attrs["heads"]:
        return x
    wide, leading = attrs["heads"]
    repeated = np.broadcast_to(x.reshape(*leading, *x.shape[-2:]), (*wide, *x.shape[-2:]))
    return repeated.reshape(*shape[:-1], *x.shape[-2:])


def attention_gradient(
    attrs: Attrs, q: Array, k: Array, v: Array, normal: Array, along: Array, ct: Array, *sides: Array
) -> tuple[Array, ...]:
    def product(x: Array, y: Array) -> Array:
        found: Array = x.astype(q.dtype).astype(np.float32) @ y.astype(np.float32)
        return found

    def turned(x: Array) -> Array:
        return np.swapaxes(x, -1, -2)

    k, v = (_of_each_head(attrs, x, q.shape[:-1]) for x in (k, v))
    weights = np.exp(_scores(attrs, q, k, list(sides)) - normal)
    by_scores = weights * (product(ct, turned(v)) - along)
    by_q, by_k = attrs["scale"] * product(by_scores, k), attrs["scale"] * product(turned(by_scores), q)
    by_v = product(turned(weights), ct)
    return tuple([x.astype(q.dtype) for x in (by_q, by_k, by_v)])


def _same(attrs: Attrs, size: int) -> Attrs:
    return attrs


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="attention", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer_attention, reference=attention,
        batched=_same, heavy=True, not_differentiable=WHY,
    ),
    Primitive(
        name="attention_gradient", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer_gradient,
        reference=attention_gradient, batched=_same, heavy=True, not_differentiable=WHY,
    ),
)  # fmt: skip

OF_ALL: Final = tuple([OF.format(row, name) for row in ROWS for name in ("float16", "bfloat16", "float32")])
