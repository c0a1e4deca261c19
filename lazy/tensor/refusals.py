"""Matrices that have not what was asked for: evaluation refuses them as NumPy does.

Whether a matrix is singular only its elements say. A function of the top level marks the value that shows it:

    inv(a):   packed, swaps, rows = lu(a);  packed = alias(packed) {refused: "singular", by: "inv"}

and an evaluation that computes what is marked finds, in the same program, the first matrix of the batch of which it is
so (`with_tests`), and raises LinAlgError before any tensor refers to what was computed (`check`). To compilers the mark
is the identity that `alias` is. In functions that are traced (compiled ones, bodies of loops, `vmap`) there are no
marks: matrices go on with NaN and infinities there, each lane by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.build import current_scope, emit
from loopgrad.graph.errors import LinAlgError, explained
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import TensorType, int64
from loopgrad.lazy.tensor.walk import REFUSED

MOST_LOOKED_AT: Final = 1 << 10  # matrices whose answers the host looks at, rather than the program


class Refused(NamedTuple):
    """What is refused: `failed` says of a marked value for which matrices."""

    failed: Callable[[Value], Value]
    expected: str
    got: str
    fix: str


def _over_matrices(v: Value) -> Value:
    """Whether it is so of an element of each matrix."""
    rank = len(v.shape)
    return ops.reduce_or(v, (rank - 2, rank - 1))


def _zero_pivot(triangle: Value) -> Value:
    return _over_matrices(mx.diagonal_alone(ops.eq(triangle, 0)))


def _no_factor(factor: Value) -> Value:
    """NaN that wasn't there before: as NumPy, matrices with NaN have factors with NaN."""
    *batch, n, _ = factor.shape
    failed = ops.reshape(ops.is_nan(mx.part(factor, (n - 1, n), (n - 1, n))), tuple(batch))
    assert factor.node is not None
    read = mx.lower(factor.node.operands[0])
    return ops.and_(failed, ops.invert(_over_matrices(_not_finite(read))))


def _not_finite(a: Value) -> Value:
    return ops.or_(ops.is_nan(a), ops.is_inf(a))


REFUSALS: Final = {
    "singular": Refused(
        _zero_pivot, "matrices that have an inverse", "a singular one",
        "lg.linalg.pinv and lstsq take it; in a function that is compiled or batched the result has infinities or NaN",
    ),
    "indefinite": Refused(
        _no_factor, "positive definite matrices", "one that isn't",
        "lg.linalg.eigvalsh has the signs; in a function that is compiled or batched the result is NaN",
    ),
    "not finite": Refused(
        lambda a: _over_matrices(_not_finite(a)), "finite elements", "one with infinities or NaN",
        "check what the matrix is computed from",
    ),
    "nan": Refused(
        lambda a: _over_matrices(ops.is_nan(a)), "numbers", "one with NaN", "check what the matrix is computed from",
    ),
}  # fmt: skip


def refused(value: Value, kind: str, by: str) -> Value:
    """`value`, marked: evaluating it in a program of the top level raises what `REFUSALS` has under `kind`."""
    if current_scope() is not None or not prod(value.shape):
        return value
    return emit("alias", (value,), {REFUSED: kind, "by": by})[0]


def with_tests(values: Sequence[Value], marks: Sequence[Node]) -> list[Value]:
    """These values, then for each mark which matrices are refused; of many the position of the first one, and their
    number if none is."""
    return [*values, *[_first(REFUSALS[mark.attrs[REFUSED]].failed(mark.operands[0])) for mark in marks]]


def _first(failed: Value) -> Value:
    count = prod(failed.shape)
    if count <= MOST_LOOKED_AT:
        return failed
    flat = ops.reshape(failed, (count,))
    places = ops.iota(TensorType((count,), int64), 0)
    return ops.reduce_min(ops.select(flat, places, count), (0,))


def check(marks: Sequence[Node], found: Sequence[np.ndarray[Any, Any]]) -> None:
    """Raises LinAlgError for the first mark whose test found a matrix."""
    for mark, first in zip(marks, found, strict=True):
        batch = mark.results[0].shape[:-2]
        if first.any() if first.dtype == bool else int(first) < prod(batch):
            refusal = REFUSALS[mark.attrs[REFUSED]]
            position = first.argmax() if first.dtype == bool else first
            place = tuple(map(int, np.unravel_index(int(position), batch)))
            got = f"{refusal.got} at index {place}" if batch else refusal.got
            made = f" (by the call at {mark.loc})" if mark.loc else ""
            raise LinAlgError(explained(mark.attrs["by"], refusal.expected, got + made, refusal.fix))
