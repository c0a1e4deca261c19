"""Running combinations of values by an associative function, emitted as nodes: log(n) steps, each parallel.

Blocks of neighbours are combined in order, all blocks at once; what whole blocks make is scanned in the same way, and
then every element gets what came before its block (Blelloch, Prefix sums and their applications, 1990; blocks of two
are his, and JAX's):

    x0 x1 x2 x3 | x4 x5 x6 x7 | x8 x9     within blocks     y1 = f(x0, x1), y2 = f(y1, x2), ...
    y3          , y7                      scanned           z0 = y3, z1 = f(y3, y7)
    y0 .. y3    | f(z0, y4) ..| f(z1, y8) f(z1, y9)

`f` is called for about two elements per element, and about twice as often as a block has elements on each of
log(n) levels.

Where `f` works element by element and all values have one shape, the primitive `associative_scan` stands for this until
the program is scheduled, since devices may have a routine for it, and its derivatives are such scans again
(`autodiff/rules/running.py`). `expanded` is what it says elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.scalar_functions import CONST, Row, ScalarFunction, scalar_function
from loopgrad.graph.types import DTYPES, TensorType

BLOCK: Final = 8  # neighbours combined in order
Values = Sequence[Value]


def associative_scan(
    combine: Callable[[Values, Values], Values], xs: Values, axes: Sequence[int], reverse: bool = False
) -> Values:
    """xs[0], combine(xs[0], xs[1]), ... along the axes (one for each value); from the end where `reverse`."""
    function = _element_by_element(combine, xs, axes)
    if function is None:
        return RunningCombination(combine, axes).run(xs, reverse)
    return scanned(function, xs, axes[0], reverse)


def scanned(function: ScalarFunction, xs: Values, axis: int, reverse: bool = False) -> tuple[Value, ...]:
    """The primitive's results."""
    attrs = {
        "along": axis - len(xs[0].shape),
        "reverse": reverse,
        "function": function.data(),
        "taken": tuple(range(len(xs))),
    }
    return emit("associative_scan", xs, attrs)


def emitted_rows(function: ScalarFunction, inputs: Values) -> list[Value]:
    """The inputs, and all rows of the function, for all elements at once."""

    def apply(row: Row, operands: Sequence[Value]) -> Value:
        if row.op == CONST:
            return ops.full(row.attributes()["value"], TensorType(inputs[0].shape, DTYPES[row.dtype]))
        return emit(row.op, operands, row.attributes())[0]

    return function.rows_of(inputs, apply)


def expanded(node: Node) -> Graph:
    """A graph of the operands of an `associative_scan` that computes its results by blocks."""
    function, taken = ScalarFunction.of(node.attrs["function"]), node.attrs["taken"]
    axis = len(node.operands[0].shape) + node.attrs["along"]

    def together(left: Values, right: Values) -> Values:
        rows = emitted_rows(function, (*left, *right))
        return [rows[k] for k in function.outputs]

    def results(*xs: Value) -> list[Value]:
        steps = RunningCombination(together, [axis] * len(xs))
        found = steps.run(xs, node.attrs["reverse"])
        return [found[k] for k in taken]

    return trace(results, [v.type for v in node.operands])[0]


def _element_by_element(
    combine: Callable[[Values, Values], Values], xs: Values, axes: Sequence[int]
) -> ScalarFunction | None:
    """The function as data, if it is one of elements, and there is something to combine."""
    shape, axis = xs[0].shape, axes[0]
    if any(v.shape != shape or d != axis or v.dtype.kind == "c" for v, d in zip(xs, axes, strict=True)):
        return None
    if shape[axis] < 2 or 0 in shape or len({v.dtype for v in xs if v.dtype.is_float}) > 1:
        return None
    two = (*shape[:axis], 2, *shape[axis + 1 :])
    types = [TensorType(two, v.dtype) for v in xs]
    graph, captures = trace(lambda *vs: combine(vs[: len(xs)], vs[len(xs) :]), [*types, *types])
    return None if captures else scalar_function(graph)


@dataclass(frozen=True, slots=True)
class RunningCombination:
    """`combine(left, right)` of some values each, the elements of which stand side by side along `axes` (one axis for
    each value); all have the same extent there, and so have what it returns."""

    combine: Callable[[Values, Values], Values]
    axes: Sequence[int]

    def run(self, xs: Values, reverse: bool = False) -> Values:
        """xs[0], combine(xs[0], xs[1]), ... along the axes; from the end where `reverse`."""
        if not reverse:
            return self._from_start(xs)
        return self._flipped(self._from_start(self._flipped(xs)))

    def _from_start(self, xs: Values) -> Values:
        count = self._extent(xs)
        if count <= 1:
            return xs
        within = [self._cut(xs, 0, None, BLOCK)]
        for k in range(1, min(BLOCK, count)):
            term = self._cut(xs, k, None, BLOCK)
            within.append(self.combine(self._cut(within[-1], 0, self._extent(term)), term))
        if count <= BLOCK:
            return self._interleaved(within, count)
        before = self._from_start(within[-1])
        rest = []
        for ys in within:
            left = self._cut(before, 0, self._extent(ys) - 1)
            if self._extent(left):
                rest.append(self.combine(left, self._cut(ys, 1, None)))
        first = self._interleaved([self._cut(ys, 0, 1) for ys in within], BLOCK)
        others = self._interleaved(rest, count - BLOCK)
        return [ops.concat(parts, d) for *parts, d in zip(first, others, self.axes, strict=True)]

    def _extent(self, xs: Values) -> int:
        return xs[0].shape[self.axes[0]]

    def _cut(self, xs: Values, first: int, end: int | None, step: int = 1) -> Values:
        """xs[first:end:step] along the axes."""
        return [_cut(v, d, first, v.shape[d] if end is None else end, step) for v, d in zip(xs, self.axes, strict=True)]

    def _flipped(self, xs: Values) -> Values:
        return [ops.flip(v, (d,)) for v, d in zip(xs, self.axes, strict=True)]

    def _interleaved(self, parts: Sequence[Values], count: int) -> Values:
        """The first elements of all parts, then the second ones, ..., as many as `count`."""
        leaves = zip(*parts, strict=True)
        return [_interleaved(values, d, count) for values, d in zip(leaves, self.axes, strict=True)]


def _cut(v: Value, axis: int, first: int, end: int, step: int) -> Value:
    if (first, end, step) == (0, v.shape[axis], 1):
        return v
    start, stop, steps = [0] * len(v.shape), list(v.shape), [1] * len(v.shape)
    start[axis], stop[axis], steps[axis] = first, end, step
    return ops.slice(v, start, stop, steps)


def _interleaved(parts: Sequence[Value], axis: int, count: int) -> Value:
    shape = parts[0].shape
    rows = []
    for v in parts:
        high = [0] * len(shape)
        high[axis] = shape[axis] - v.shape[axis]
        row = ops.pad(v, [0] * len(shape), high) if high[axis] else v
        rows.append(ops.reshape(row, (*shape[: axis + 1], 1, *shape[axis + 1 :])))
    stacked = ops.concat(rows, axis + 1)
    flat = ops.reshape(stacked, (*shape[:axis], shape[axis] * len(parts), *shape[axis + 1 :]))
    return _cut(flat, axis, 0, count, 1)
