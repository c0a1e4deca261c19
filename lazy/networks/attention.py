"""Attention without a matrix of scores: softmax(q k^T * scale + bias) v by blocks of keys.

A row's softmax is known once all keys were seen, but its numerator and denominator can be carried along with the
largest score so far, by which both are scaled (Milakov and Gimelshein, "Online normalizer calculation for softmax",
2018; Rabe and Staats, "Self-attention does not need O(n^2) memory", 2021). The reverse pass computes the scores of a
block again from what was saved of a row, one number (Dao et al., "FlashAttention", 2022). Beside the arguments and the
results, memory is needed for the scores of BLOCK keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.region_ops import routine
from loopgrad.graph.types import DType, bool_, int64, sum_dtype
from loopgrad.lazy.loops.scan import scan
from loopgrad.lazy.numpy.creation import arange, full, zeros, zeros_like
from loopgrad.lazy.numpy.elementwise import exp, log, maximum
from loopgrad.lazy.numpy.matrix_products import matmul
from loopgrad.lazy.numpy.movement import broadcast_to, matrix_transpose, moveaxis, reshape
from loopgrad.lazy.numpy.padding import pad
from loopgrad.lazy.numpy.reduction import max, sum
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.tensor.core import as_tensor, wrap
from loopgrad.lazy.tensor.operands import Shape, joined_shape
from loopgrad.lazy.tensor.promotion import promote_arrays
from loopgrad.lazy.tensor.repeated_calls import repeated
from loopgrad.lazy.transforms.own_rules import custom_vjp

if TYPE_CHECKING:
    from loopgrad.graph.nodes import Value
    from loopgrad.lazy.tensor.core import ArrayLike
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "attention"
BLOCK: Final = 256  # keys whose scores exist at a time
ONE_BLOCK: Final = 512  # so many keys are one block
TENSORS: Final = {"attention": 3, "attention_gradient": 6}  # that it always has


@repeated
def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, bias: ArrayLike | None = None, mask: ArrayLike | None = None,
    *, scale: ArrayLike | None = None, is_causal: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(query @ key^T * scale + bias) @ value along the keys, of shapes (..., t, d), (..., s, d) and (..., s, e):
    (..., t, e), in the floating dtype to which the three are promoted; factors of products are rounded to it, and
    16-bit floats are added up in float32.

    Leading axes, heads among them, broadcast; `bias` (floats) and `mask` (bools) broadcast to (..., t, s). A query sees
    the keys where `mask` is true and, with `is_causal`, those that aren't after it: s_index <= t_index. The result of a
    query that sees none is 0, and so are its derivatives. `scale` is 1 / sqrt(d) where it isn't given. Names are those
    of `jax.nn.dot_product_attention`, whose arrays have their heads behind t: exchange these axes.

    But for float64 it is one launch on GPUs with matrix units (CUDA), which skips blocks of keys that nobody sees, two
    where few queries have many keys, and its derivatives are two, where d and e are at most 256 (for derivatives 128,
    and without that of `bias`). Keys and values that heads share, by leading axes of 1 or after `lg.repeat`, are read
    as they are. A product of float32 is three of 11 bits there, about as good as one; one such product is enough for
    `lg.options(matmul_precision="tf32")`.
    No matrix of all scores is made, neither here nor by reverse mode, which computes scores again (so do higher
    derivatives, but for what they save of their own); forward mode by itself raises GradientError. Milakov and
    Gimelshein, 2018; Dao et al., "FlashAttention", 2022.

    Raises ShapeError where shapes don't fit and DTypeError for integers, complex numbers, or a mask that isn't bool.

    >>> q = k = lg.asarray([[0.0, 1.0], [1.0, 0.0]])
    >>> lg.attention(q, k, lg.asarray([[1.0], [3.0]]), is_causal=True)
    Tensor([[1.       ],
            [2.3395231]], dtype=float64)
    """
    tensors = [as_tensor(x) for x in (query, key, value)]
    dtype = promote_arrays(*[(t._value.dtype, t._weak) for t in tensors])
    if not dtype.is_float:
        raise DTypeError(explained("attention", "floats", dtype.name, "convert the arguments with .astype"))
    batch, rows, keys = _fitting(*[t._value.shape for t in tensors])
    width = tensors[0]._value.shape[-1]
    wide = sum_dtype(dtype)
    scores = (*batch, rows, keys)
    seen = None if mask is None else _checked("mask", mask, scores, bool_)
    block = keys if keys <= ONE_BLOCK else BLOCK
    factor = 1.0 / sqrt(width or 1) if scale is None else scale
    if not isinstance(factor, int | float):  # it has a derivative of its own
        tensors[0], factor = tensors[0].astype(wide) * as_tensor(factor).astype(wide), 1.0
    plan = _BlockedAttention(batch, rows, keys, bool(is_causal), block, wide, dtype, seen, float(factor))
    given = [broadcast_to(t.astype(dtype), (*batch, *t._value.shape[-2:])) for t in tensors]
    if bias is not None:
        given.append(_checked("bias", bias, scores, wide))
    result: Tensor = plan.attention()(*given)
    return result


def _fitting(q: Shape, k: Shape, v: Shape) -> tuple[tuple[int, ...], int, int]:
    """The leading axes, and how many queries and keys there are."""
    if min(len(q), len(k), len(v)) < 2 or q[-1] != k[-1] or k[-2] != v[-2]:
        got = f"{q}, {k}, {v}"
        fix = "bring the heads to the front, and tokens and features to the end"
        raise ShapeError(explained("attention", "shapes (..., t, d), (..., s, d), (..., s, e)", got, fix))
    return joined_shape("attention", (q[:-2], k[:-2], v[:-2])), q[-2], k[-2]


def _checked(name: str, x: ArrayLike, scores: tuple[int, ...], dtype: DType) -> Tensor:
    """A mask or a bias in the dtype, with as many axes as the scores."""
    t = as_tensor(x)
    shape, found = t._value.shape, t._value.dtype
    if found is not bool_ if dtype is bool_ else not found.is_float:
        wanted = "bools" if dtype is bool_ else "floats"
        raise DTypeError(explained(f"attention {name}", wanted, found.name, "use mask= for bools and bias= for floats"))
    full_shape = (1,) * (len(scores) - len(shape)) + tuple(shape)
    if len(full_shape) != len(scores) or any(n not in (1, m) for n, m in zip(full_shape, scores, strict=True)):
        fix = "give it axes of 1 where it is the same for all"
        raise ShapeError(explained(f"attention {name}", f"a shape that broadcasts to {scores}", tuple(shape), fix))
    return reshape(t.astype(dtype), full_shape)


@dataclass(frozen=True, eq=False)
class _BlockedAttention:
    """What a call depends on beside the arrays that have derivatives. `dtype`: in which it computes; `factors`: of the
    arrays, and of what is multiplied with them. `scale`: of the scores, by which queries are multiplied."""

    batch: tuple[int, ...]
    rows: int
    keys: int
    causal: bool
    block: int
    dtype: DType
    factors: DType
    mask: Tensor | None
    scale: float

    @property
    def blocks(self) -> int:
        return -(-self.keys // self.block) if self.keys else 0

    def attention(self) -> custom_vjp:
        """The function of query, key, value and, where there is one, bias."""
        own = custom_vjp(lambda *given: self.as_routine("attention", _BlockedAttention.forward, given)[0])

        def forward(*given: Tensor) -> tuple[Tensor, Any]:
            result, normal = self.as_routine("attention", _BlockedAttention.forward, given)
            return result, (given, result, normal)

        def backward(saved: Any, ct: Tensor) -> tuple[Tensor, ...]:
            given, result, normal = saved
            along = sum(ct.astype(self.dtype) * result.astype(self.dtype), axis=-1, keepdims=True)
            q, k, v, *bias = given
            operands = (q, k, v, normal, along, ct, *bias)
            return self.as_routine("attention_gradient", _BlockedAttention.reverse, operands)

        own.defvjp(forward, backward)
        return own

    def as_routine(self, name: str, function: Callable[..., Any], given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """function(self, *given), for which a device may have a routine; the mask is an operand as well."""
        more = () if self.mask is None else (self.mask,)

        def traced(*values: Value) -> list[Value]:
            handles = [wrap(v) for v in values]
            inside = replace(self, mask=handles[len(given)] if more else None)
            return [x._value for x in function(inside, *handles[: len(given)])]

        bias = "b" * (len(given) - TENSORS[name])
        rank = len(self.batch)
        how = {"causal": self.causal, "scale": self.scale, "sides": bias + "m" * len(more), "rank": rank}
        found = routine(name, how, [x._value for x in (*given, *more)], traced)
        return tuple([wrap(v) for v in found])

    # ---- blocks

    def blocked(self, x: Tensor) -> Tensor:
        """(..., s, n) as (blocks, ..., block, n)."""
        shape = x._value.shape
        missing = self.blocks * self.block - shape[-2]
        if missing:
            x = pad(x, [(0, 0)] * (len(shape) - 2) + [(0, missing), (0, 0)])
        return moveaxis(reshape(x, (*shape[:-2], self.blocks, self.block, shape[-1])), -3, 0)

    def along_keys(self, x: Tensor | None) -> Tensor | None:
        """A mask or bias (..., s) as (blocks, ..., block); as it is where it is the same for all keys."""
        if x is None or x._value.shape[-1] != self.keys or self.keys == 1:
            return None
        return matrix_transpose(self.blocked(matrix_transpose(x)))

    def joined(self, x: Tensor) -> Tensor:
        """The inverse of `blocked`."""
        shape = x._value.shape
        whole = reshape(moveaxis(x, 0, -3), (*shape[1:-2], self.blocks * self.block, shape[-1]))
        return whole[..., : self.keys, :]

    def each(self, init: Any, step: Any, *arrays: Any) -> tuple[Any, Any]:
        """`step` over blocks of the arrays and their numbers."""
        if self.blocks == 1:
            carry, y = step(init, (0, *[None if x is None else x[0] for x in arrays]))
            return carry, tuple([v[None] for v in y])
        return scan(step, init, (arange(self.blocks, dtype=int64), *arrays))

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        if self.factors is self.dtype:
            return matmul(left, right)
        left, right = left.astype(self.factors), right.astype(self.factors)
        return wrap(computed("matmul", left._value, right._value, dtype=self.dtype))

    def scores(self, q: Tensor, number: Any, k: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        """Of all queries by a block of keys; -inf where a query doesn't see a key."""
        found = self.product(q, matrix_transpose(k))
        if bias is not None:
            found = found + bias
        hidden = None if mask is None else ~mask
        at = arange(self.block, dtype=int64) + number * self.block
        if self.causal:
            later = at > arange(self.rows, dtype=int64)[:, None]
            hidden = later if hidden is None else hidden | later
        if self.blocks * self.block != self.keys:
            beyond = at >= self.keys
            hidden = beyond if hidden is None else hidden | beyond
        return found if hidden is None else where(hidden, -inf, found)

    def sides(self, bias: Tensor | None) -> tuple[tuple[Tensor | None, ...], Any]:
        """Mask and bias by blocks, and what gives both to a block."""
        by_blocks = (self.along_keys(self.mask), self.along_keys(bias))

        def of_block(mask: Tensor | None, bias_block: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
            return (self.mask if mask is None else mask, bias if bias_block is None else bias_block)

        return by_blocks, of_block

    # ---- value and derivative

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The result, and of every query the logarithm of its denominator."""
        ends = (*self.batch, self.rows)
        totals = zeros((*ends, v._value.shape[-1]), dtype=self.dtype)
        if not self.blocks:
            return totals.astype(self.factors), zeros((*ends, 1), dtype=self.dtype)
        q = self.scaled(q)
        sides, of_block = self.sides(bias)

        def step(carry: Any, block: Any) -> Any:
            total, norm, most = carry
            number, keys, values, *side = block
            found = self.scores(q, number, keys, *of_block(*side))
            largest = maximum(most, max(found, axis=-1, keepdims=True))
            base = where(largest == -inf, 0.0, largest)  # of queries that have seen no key
            weights, before = exp(found - base), exp(most - base)
            norm = norm * before + sum(weights, axis=-1, keepdims=True)
            return (total * before + self.product(weights, values), norm, largest), ()

        start = (totals, zeros((*ends, 1), dtype=self.dtype), full((*ends, 1), -inf, dtype=self.dtype))
        (total, norm, most), _ = self.each(start, step, self.blocked(k), self.blocked(v), *sides)
        norm = where(norm == 0.0, 1.0, norm)
        return (total / norm).astype(self.factors), where(most == -inf, 0.0, most) + log(norm)

    def scaled(self, q: Tensor) -> Tensor:
        """Times the scale, as a factor of products."""
        return (q.astype(self.dtype) * self.scale).astype(self.factors)

    def reverse(
        self, q: Tensor, k: Tensor, v: Tensor, normal: Tensor, along: Tensor, ct: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The derivatives of query, key, value and bias; `along`: the sum of ct times the result."""
        if not self.blocks:
            return tuple([zeros_like(x) for x in (q, k, v, bias) if x is not None])
        q = self.scaled(q)
        sides, of_block = self.sides(bias)

        def step(by_q: Any, block: Any) -> Any:
            number, keys, values, *side = block
            weights = exp(self.scores(q, number, keys, *of_block(*side)) - normal)
            by_scores = weights * (self.product(ct, matrix_transpose(values)) - along)
            by_k = self.product(matrix_transpose(by_scores), q)
            by_v = self.product(matrix_transpose(weights), ct)
            by_bias = () if bias is None else (self.by_bias(by_scores, bias),)
            return by_q + self.product(by_scores, keys), (by_k, by_v, *by_bias)

        start = zeros_like(q, dtype=self.dtype)
        by_q, (by_k, by_v, *by_bias) = self.each(start, step, self.blocked(k), self.blocked(v), *sides)
        found = [x.astype(self.factors) for x in (by_q * self.scale, self.joined(by_k), self.joined(by_v))]
        if bias is not None:
            (part,) = by_bias
            apart = bias._value.shape[-1] == self.keys
            found.append(matrix_transpose(self.joined(matrix_transpose(part))) if apart else sum(part, axis=0))
        return tuple(found)

    def by_bias(self, by_scores: Tensor, bias: Tensor) -> Tensor:
        """A block's part, summed over what the bias is the same for."""
        shape = bias._value.shape
        last = len(shape) - 1
        same = [d for d, n in enumerate(shape) if n == 1 and (d != last or self.keys != 1)]
        return sum(by_scores, axis=tuple(same), keepdims=True) if same else by_scores
