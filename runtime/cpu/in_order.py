"""Reductions, small products and running totals of floats in NumPy, in the order in which generated code combines
elements: to the same bits.

Enter: nodes of a graph in the form that is scheduled (`codegen.schedule.canonical`), without regions. Short reductions
are then made inside one lane, and short rows of a running total are walked by one: `codegen.lower.reduction` and
`codegen.lower.walked` have the order, which depends on shapes alone. Longer ones are
programs themselves (`expanded`), or left to compiled code, which spreads them over vectors and threads.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

from loopgrad.codegen.lower.movement import dim_runs
from loopgrad.codegen.lower.reduction import UNROLL_PLAIN, UNROLLED_TERMS
from loopgrad.codegen.math.compensated import added, balanced, rounded
from loopgrad.codegen.schedule.products import multiplied_in_lanes
from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.vector.lanes import FEW_VECTORS
from loopgrad.graph.identities import identity, of_nothing
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives import COMBINES, PRIMITIVES, REDUCTIONS, RUNNING_TOTALS, Kind
from loopgrad.graph.primitives.primitive import Array
from loopgrad.graph.types import DType

MOST_TERMS: Final = 512
"""Of a sum inside a lane: more take longer here than compiling does."""

MOST_PRODUCTS: Final = 1 << 16
"""Elements of a product before its terms are added up."""

Carried = tuple[Array, ...]


class Arrays:
    """Arithmetic of arrays, for codegen.math.compensated."""

    add = staticmethod(np.add)
    sub = staticmethod(np.subtract)
    lt = staticmethod(np.less)
    either = staticmethod(np.logical_or)
    select = staticmethod(np.where)


ARRAYS: Final[Any] = Arrays()


def in_order(node: Node, machine: Machine) -> Callable[..., Array] | None:
    """What gives the node's result from its operands' arrays; None where compiled code must."""
    if node.results[0].dtype.kind != "f":
        return None
    if node.op in REDUCTIONS:
        return _reduction(node)
    if node.op in RUNNING_TOTALS:
        return _running_total(node, machine)
    if PRIMITIVES[node.op].kind is Kind.CONTRACTION:
        return _product(node)
    return None


class InOrder:
    """How terms are combined: see codegen.lower.reduction.Fold."""

    def __init__(self, kind: str, dtype: DType) -> None:
        function = PRIMITIVES[kind].function
        assert function is not None
        self.combine, self.kind, self.dtype = function, kind, dtype
        self.compensated = kind == "add"

    def start(self) -> Carried:
        nothing = (identity if self.compensated else of_nothing)(self.kind, self.dtype)
        return (np.asarray(nothing, self.dtype.np),) * (2 if self.compensated else 1)

    def add(self, carried: Carried, x: Array) -> Carried:
        if self.compensated:
            total, rest = carried
            return added(ARRAYS, total, rest, x)
        return (self.combine(*carried, x),)

    def result(self, carried: Carried) -> Array:
        return rounded(ARRAYS, *carried) if self.compensated else carried[0]

    def tree(self, terms: Array) -> Array:
        """Those along the first axis in a balanced tree."""
        return balanced(self.combine, [*terms])

    def groups(self, terms: Array, carried: Carried, together: int) -> Carried:
        """The terms, along the first axis, some at a time."""
        whole = len(terms) // together * together
        if whole:
            each = terms[:whole].reshape(-1, together, *terms.shape[1:])
            for x in balanced(self.combine, [each[:, i] for i in range(together)]):  # the trees of all groups at once
                carried = self.add(carried, x)
        return self.add(carried, self.tree(terms[whole:])) if whole < len(terms) else carried

    def loops(self, terms: Array, rank: int, carried: Carried) -> Carried:
        """The terms along the first `rank` axes, in loops inside each other."""
        if rank == 1:
            return self.groups(terms, carried, UNROLLED_TERMS if self.compensated else 1)
        for inner in terms:
            carried = self.loops(inner, rank - 1, carried)
        return carried

    def all(self, terms: Array, rank: int) -> Array:
        """What the terms along the first `rank` axes give."""
        count = prod(terms.shape[:rank])
        if count > UNROLL_PLAIN:
            return self.result(self.loops(terms, rank, self.start()))
        flat = terms.reshape(count, *terms.shape[rank:])
        return self.tree(flat) if count <= UNROLLED_TERMS else self.result(self.groups(flat, self.start(), 2))


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
        result = np.empty_like(rows)
        carried = how.start()
        for k in range(extent)[:: -1 if reverse else 1]:
            carried = how.add(carried, rows[k])
            result[k] = how.result(carried)
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
        return np.asarray(how.result(how.groups(terms, how.start(), UNROLLED_TERMS)))

    return compute
