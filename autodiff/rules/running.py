"""Derivatives of running combinations by functions of elements.

Of y[k] = f(y[k-1], x[k]) the tangents are a linear recurrence, and the cotangents one that begins at the other end.
With J and K the derivatives of f by its first and its second argument at y[k-1] and x[k], matrices for each k as large
as there are leaves:

    dy[k] = J[k] dy[k-1] + K[k] dx[k]               dy[0] = dx[0]
    ct[k] = J[k+1]' ct[k+1] + (that given of y[k])  (that of x[k]) = K[k]' ct[k], and ct[0] of x[0]

Such recurrences are running combinations themselves, of a matrix and a vector (Blelloch, Prefix sums and their
applications, 1990, 1.4):

    (A, b) then (C, d)  =  (C A, C b + d)

Elements of matrices that are zero whatever the numbers are don't take part, nor does what meets no vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from loopgrad.autodiff.rules.elementwise import PARTIALS, pushed
from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import ops
from loopgrad.graph.associative import emitted_rows, scanned
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.scalar_functions import Row, ScalarFunction

Place = tuple[int, int]
Matrix = Mapping[Place, Value]  # the elements that may differ from 0, each for all k


class Steps(NamedTuple):
    """All but the first position of a scan along an axis: J and K there."""

    axis: int
    reverse: bool
    extent: int
    by_before: Matrix
    by_element: Matrix

    @classmethod
    def of(cls, node: Node) -> Steps:
        leaves, reverse = node.operands, node.attrs["reverse"]
        count, axis = len(leaves), len(leaves[0].shape) + node.attrs["along"]
        steps = cls(axis, reverse, leaves[0].shape[axis], {}, {})
        assert len(node.results) == count, "scheduling alone leaves results out"
        before = [steps.others(y, last=True) for y in node.results]
        element = [steps.others(x, last=False) for x in leaves]
        derivatives = _derivatives(ScalarFunction.of(node.attrs["function"]), [*before, *element])
        by_before = {(i, j): v for (i, j), v in derivatives.items() if j < count}
        by_element = {(i, j - count): v for (i, j), v in derivatives.items() if j >= count}
        return steps._replace(by_before=by_before, by_element=by_element)

    def others(self, v: Value, last: bool) -> Value:
        """Without the last position, or the first one, in the order of the scan."""
        start, stop = [0] * len(v.shape), list(v.shape)
        if last != self.reverse:
            stop[self.axis] -= 1
        else:
            start[self.axis] = 1
        return ops.slice(v, start, stop)

    def first(self, v: Value) -> Value:
        start, stop = [0] * len(v.shape), list(v.shape)
        if self.reverse:
            start[self.axis] = self.extent - 1
        else:
            stop[self.axis] = 1
        return ops.slice(v, start, stop)

    def behind(self, first: Value | None, others: Value | None) -> Value | None:
        """One value of both."""
        if first is None and others is None:
            return None
        if first is None or others is None:
            return self.beside(first if others is None else others, last=others is None)
        return ops.concat([others, first] if self.reverse else [first, others], self.axis)

    def beside(self, v: Value | None, last: bool) -> Value:
        """With zeros for what is missing at the last positions, or at the first ones, in the order of the scan."""
        assert v is not None
        none, missing = [0] * len(v.shape), [0] * len(v.shape)
        missing[self.axis] = self.extent - v.shape[self.axis]
        return ops.pad(v, none, missing) if last != self.reverse else ops.pad(v, missing, none)


def _derivatives(function: ScalarFunction, inputs: Sequence[Value]) -> Matrix:
    """Of each output by each input, where it isn't zero by its form."""
    own = [ops.alias(v) for v in inputs]  # two of them may be one value
    rows = emitted_rows(function, own)
    found = {}
    for j, v in enumerate(own):
        if not v.dtype.differentiable:
            continue
        known: dict[Value, Value] = {v: ops.ones_like(v)}
        for value in rows[len(inputs) :]:
            received = [known.get(x) for x in value.node.operands] if value.node is not None else []
            if value.node is None or value.node.op not in PARTIALS or all(t is None for t in received):
                continue
            tangent = pushed(value.node, received)
            if tangent is not None:
                known[value] = tangent
        found.update({(i, j): known[rows[n]] for i, n in enumerate(function.outputs) if rows[n] in known})
    return found


def _recurrence(matrix: Matrix, given: Mapping[int, Value], axis: int, reverse: bool) -> dict[int, Value]:
    """v[k] = matrix[k] v[k-1] + given[k], without the components that stay zero."""
    moved = set(given)
    while more := {i for (i, j) in matrix if j in moved} - moved:
        moved |= more
    order = sorted(moved)
    places = _closed({(i, j) for (i, j) in matrix if i in moved and j in moved})
    like = next(iter(given.values()))
    zero = ops.zeros_like(like)
    leaves = [matrix.get(p, zero) for p in places] + [given.get(i, zero) for i in order]
    found = scanned(_affine(places, order, like.dtype.name), leaves, axis, reverse)
    return dict(zip(order, found[len(places) :], strict=True))


def _closed(places: set[Place]) -> list[Place]:
    """Where products of matrices with elements at these places have some."""
    while more := {(i, k) for (i, j) in places for (n, k) in places if n == j} - places:
        places = places | more
    return sorted(places)


def _affine(places: Sequence[Place], order: Sequence[int], dtype: str) -> ScalarFunction:
    """(A, b) then (C, d), where A and C have elements at these places."""
    size = len(places) + len(order)
    matrix = {place: n for n, place in enumerate(places)}
    vector = {i: n for n, i in enumerate(order, len(places))}
    rows: list[Row] = []

    def row(op: str, x: int, y: int) -> int:
        attrs = (("contract", True),) if op == "add" else ()
        rows.append(Row(op, dtype, (x, y), attrs))
        return 2 * size + len(rows) - 1

    def total(terms: Sequence[int]) -> int:
        found = terms[0]
        for term in terms[1:]:
            found = row("add", found, term)
        return found

    outputs = [
        total([row("mul", size + matrix[i, j], matrix[j, k]) for j in order if (i, j) in matrix and (j, k) in matrix])
        for i, k in places
    ]
    for i in order:
        products = [row("mul", size + matrix[i, j], vector[j]) for j in order if (i, j) in matrix]
        outputs.append(total([size + vector[i], *products]))
    return ScalarFunction(tuple(rows), tuple(outputs))


def _sum(terms: Sequence[Value]) -> Value | None:
    found: Value | None = None
    for term in terms:
        found = term if found is None else ops.accumulate(found, term)
    return found


def _scan_jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    steps, given = Steps.of(node), {}
    for i, own in enumerate(tangents):
        terms = [
            ops.mul(k, steps.others(t, last=False))
            for (n, j), k in steps.by_element.items()
            if n == i and (t := tangents[j]) is not None
        ]
        found = steps.behind(None if own is None else steps.first(own), _sum(terms))
        if found is not None:
            given[i] = found
    matrix = {place: steps.beside(v, last=False) for place, v in steps.by_before.items()}
    made = _recurrence(matrix, given, steps.axis, steps.reverse)
    return tuple([made.get(i) for i in range(len(node.results))])


def _scan_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    steps = Steps.of(node)
    given = {i: ct for i, ct in enumerate(cotangents) if ct is not None}
    matrix = {(j, i): steps.beside(v, last=True) for (i, j), v in steps.by_before.items()}
    made = _recurrence(matrix, given, steps.axis, not steps.reverse)

    def of_operand(j: int) -> Value | None:
        terms = [
            ops.mul(k, steps.others(made[i], last=False))
            for (i, n), k in steps.by_element.items()
            if n == j and i in made
        ]
        return steps.behind(steps.first(made[j]) if j in made else None, _sum(terms))

    return tuple([of_operand(j) for j in range(len(node.operands))])


VJP: Final[dict[str, Rule]] = {"associative_scan": _scan_vjp}
JVP: Final[dict[str, Rule]] = {"associative_scan": _scan_jvp}
