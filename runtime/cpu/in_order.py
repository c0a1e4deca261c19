"""Reductions, small products and running totals of floats in NumPy, in the order in which generated code combines
elements: to the same bits.

Enter: nodes of a graph in the form that is scheduled (`codegen.schedule.canonical`), without regions. Short reductions
are then made inside one lane, and short rows of a running total are walked by one: `codegen.lower.reduction` and
`codegen.lower.walked` have the order, which depends on shapes alone. Longer ones are
programs themselves (`expanded`), or left to compiled code, which spreads them over vectors and threads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import accumulate
from math import isinf, prod
from typing import Any, Final

import numpy as np

from loopgrad.codegen.lower.movement import dim_runs
from loopgrad.codegen.lower.reduction import UNROLL_PLAIN, UNROLLED_TERMS
from loopgrad.codegen.math.compensated import rounded
from loopgrad.codegen.schedule.products import multiplied_in_lanes
from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.vector.lanes import FEW_VECTORS
from loopgrad.graph.identities import identity, of_nothing
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives import BARE, COMBINES, PRIMITIVES, REDUCTIONS, RUNNING_TOTALS, Kind
from loopgrad.graph.primitives.primitive import Array
from loopgrad.graph.types import DType

MOST_TERMS: Final = 512
"""Of a sum inside a lane: more take longer here than compiling does."""

MOST_PRODUCTS: Final = 1 << 16
"""Elements of a product before its terms are added up."""

Carried = tuple[Array, ...]


class Arrays:
    """Arithmetic of arrays and of NumPy's scalars, for codegen.math.compensated."""

    add = staticmethod(operator.add)
    sub = staticmethod(operator.sub)
    lt = staticmethod(operator.lt)
    either = staticmethod(operator.or_)

    @staticmethod
    def select(m: Any, x: Any, y: Any) -> Any:
        return np.where(m, x, y) if isinstance(m, np.ndarray) else (x if m else y)


ARRAYS: Final[Any] = Arrays()


def in_order(node: Node, machine: Machine) -> Callable[..., Array] | None:
    """What gives the node's result from its operands' arrays; None where compiled code must."""
    if node.results[0].dtype.kind != "f":
        return None
    if node.op in REDUCTIONS:
        function = _reduction(node)
        return None if function is None else extremes_first(node, function)
    if node.op in RUNNING_TOTALS:
        return _running_total(node, machine)
    if PRIMITIVES[node.op].kind is Kind.CONTRACTION:
        return _product(node)
    return None


class InOrder:
    """How terms along the first axis are combined: see codegen.lower.reduction.Fold. One after the other is what
    `accumulate` of NumPy's functions does; what each addition lost is found for all of them at once."""

    def __init__(self, kind: str, dtype: DType) -> None:
        function = PRIMITIVES[kind].function
        assert function is not None
        self.combine, self.compensated = function, kind == "add"
        self.start = np.asarray((identity if self.compensated else of_nothing)(kind, dtype), dtype.np)

    def carried(self, terms: Array) -> Carried:
        """What is carried after each term."""
        given = np.empty((len(terms) + 1, *terms.shape[1:]), terms.dtype)
        given[0], given[1:] = self.start, terms
        totals = self._accumulated(given)
        if not self.compensated:
            return (totals[1:],)
        return totals[1:], self._accumulated(terms - (totals[1:] - totals[:-1]))  # as compensated.added

    def _accumulated(self, terms: Array) -> Array:
        if isinstance(self.combine, np.ufunc):
            return self.combine.accumulate(terms)
        return np.stack([*accumulate(terms, self.combine)])

    def one_by_one(self, terms: Array) -> Any:
        carried = [each[-1] for each in self.carried(terms)]
        return rounded(ARRAYS, *carried) if self.compensated else carried[0]

    def each(self, terms: Array) -> Array:
        """The results after each of the terms."""
        carried = self.carried(terms)
        return np.asarray(rounded(ARRAYS, *carried)) if self.compensated else carried[0]

    def tree(self, terms: Array) -> Any:
        """Those in a balanced tree, as compensated.balanced has it, all pairs of a level at once."""
        while (count := len(terms)) > 1:
            pairs = self.combine(terms[: count // 2 * 2 : 2], terms[1::2])
            terms = pairs if count % 2 == 0 else np.concatenate((pairs, terms[-1:]))
        return terms[0]

    def groups(self, terms: Array, together: int) -> Array:
        """Some neighbours along the first axis at a time in a tree, what is left in a smaller one."""
        whole = len(terms) // together * together
        each = terms[:whole].reshape(-1, together, *terms.shape[1:])
        trees = self.tree(each.swapaxes(0, 1)) if together > 1 else terms
        return trees if whole == len(terms) else np.concatenate((trees, self.tree(terms[whole:])[None]))

    def loops(self, terms: Array, rank: int) -> Any:
        """The terms along the first `rank` axes, in loops inside each other."""
        together = UNROLLED_TERMS if self.compensated else 1
        if rank == 1:
            return self.one_by_one(self.groups(terms, together))
        grouped = np.moveaxis(self.groups(np.moveaxis(terms, rank - 1, 0), together), 0, rank - 1)
        return self.one_by_one(grouped.reshape(-1, *terms.shape[rank:]))

    def all(self, terms: Array, rank: int) -> Any:
        """What the terms along the first `rank` axes give."""
        count = prod(terms.shape[:rank])
        if count > UNROLL_PLAIN:
            return self.loops(terms, rank)
        flat = terms.reshape(count, *terms.shape[rank:])
        return self.tree(flat) if count <= UNROLLED_TERMS else self.one_by_one(self.groups(flat, 2))


def extremes_first(node: Node, in_turn: Callable[[Any], Array]) -> Callable[[Any], Array]:
    """What reduces as `in_turn` does. The largest and smallest elements NumPy finds at once; which of equal ones that
    is shows only in the sign of a zero, and which NaN in its bits: there they are taken in turn."""
    if not isinf(identity(COMBINES[node.op], node.operands[0].dtype)):
        return in_turn  # sums and products
    reduced, attrs = BARE[node.op], node.attrs

    def compute(x: Any) -> Array:
        (found,) = reduced(attrs, x)
        return found if ((found < 0) | (found > 0)).all() else in_turn(x)

    return compute


def takes_loops(node: Node) -> bool:
    """Whether one lane makes an element of the result by a loop."""
    return terms_in_order(node) > UNROLL_PLAIN


def terms_in_order(node: Node) -> int:
    """How many terms are combined for one element of the result, or of a running total for the last one."""
    shape = node.operands[0].shape
    match PRIMITIVES[node.op].kind:
        case Kind.CONTRACTION:
            return shape[-1]
        case Kind.RUNNING_TOTAL:
            axis: int = node.attrs["axis"]
            return shape[axis]
        case _:
            return prod(shape[a] for a in node.attrs["axes"])


def _reduction(node: Node) -> Callable[..., Array] | None:
    shape, axes, result = node.operands[0].shape, set(node.attrs["axes"]), node.results[0].shape
    if not prod(shape) or prod(shape[a] for a in axes) > MOST_TERMS:
        return None
    runs = dim_runs(shape, [d in axes for d in range(len(shape))])
    sizes = [prod(shape[a:b]) for a, b in runs]
    reduced = [i for i, (a, b) in enumerate(runs) if any(d in axes and shape[d] != 1 for d in range(a, b))]
    perm = (*reduced, *[i for i in range(len(runs)) if i not in reduced])
    how = InOrder(COMBINES[node.op], node.results[0].dtype)

    def compute(x: Any) -> Array:
        terms = np.asarray(x).reshape(sizes).transpose(perm)
        return np.asarray(how.all(terms, len(reduced))).reshape(result)

    return compute


def _running_total(node: Node, machine: Machine) -> Callable[..., Array] | None:
    shape, axis, reverse = node.operands[0].shape, node.attrs["axis"], node.attrs["reverse"]
    extent, inner = shape[axis], prod(shape[axis + 1 :])
    widths = (machine.vector_bits // 64, machine.vector_bits // 32)  # of all kernels that may compute it
    if COMBINES[node.op] not in PRIMITIVES:  # exponentials of generated code
        return None
    if not prod(shape) or any(2 * inner <= w and extent * inner >= FEW_VECTORS * w for w in widths):
        return None
    how = InOrder(COMBINES[node.op], node.results[0].dtype)

    def compute(x: Any) -> Array:
        rows = np.moveaxis(np.asarray(x), axis, 0)
        result = how.each(rows[::-1])[::-1] if reverse else how.each(rows)
        return np.moveaxis(result, 0, axis)

    return compute


def _product(node: Node) -> Callable[..., Array] | None:
    left, right = node.operands
    *batch, m, depth = left.shape
    n = right.shape[-1]
    work = m * depth * n
    if not multiplied_in_lanes(node, True) or not 0 < work * prod(batch) <= MOST_PRODUCTS:
        return None
    how = InOrder("add", left.dtype)

    def compute(a: Any, b: Any) -> Array:
        terms = np.moveaxis(np.multiply(np.asarray(a)[..., None], np.asarray(b)[..., None, :, :]), -2, 0)
        if depth <= UNROLL_PLAIN:
            return np.asarray(how.tree(terms))
        return np.asarray(how.loops(terms, 1))

    return compute
