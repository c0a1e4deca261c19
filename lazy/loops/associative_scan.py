"""`associative_scan`: running combinations by any associative function, in parallel.

Blocks of neighbours are combined in order, all blocks at once; what whole blocks make is scanned in the same way, and
then every element gets what came before its block (Blelloch, Prefix sums and their applications, 1990; blocks of two
are his, and JAX's):

    x0 x1 x2 x3 | x4 x5 x6 x7 | x8 x9     within blocks     y1 = f(x0, x1), y2 = f(y1, x2), ...
    y3          , y7                      scanned           z0 = y3, z1 = f(y3, y7)
    y0 .. y3    | f(z0, y4) ..| f(z1, y8) f(z1, y9)

`f` is called for about two elements per element, and about twice as often as a block has elements on each of
log(n) levels. It is emitted like any other expression, so derivatives and batches go through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.loops.traced_functions import as_result, tensor_type
from loopgrad.lazy.tensor.core import as_tensor, broadcast_value, wrap
from loopgrad.lazy.tensor.operands import normal_axis
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, matching, unflatten

PUBLIC: Final = "associative_scan"

BLOCK: Final = 8  # neighbours combined in order
Leaves = list[Value]


def associative_scan(fn: Callable[[Any, Any], Any], elems: Tree, reverse: bool = False, axis: int = 0) -> Tree:
    """The running combinations of `elems` along an axis: elems[0], fn(elems[0], elems[1]), fn(that, elems[2]), ...

    `fn(a, b)` must be associative; it needn't commute. `elems` is a tree of arrays that share the extent of `axis`, and
    so are the arguments of `fn`: many elements at once, side by side along `axis`, of which it combines those that
    stand at the same place. It returns the same structure, shapes and dtypes. `reverse` begins at the end, and `fn`
    still has what it combined so far on the left. The result has the structure and shapes of `elems`.

    The order in which pairs are combined depends on the extent alone, so that floats give the same bits every time, yet
    not those of a loop from left to right. It takes log(n) steps, each parallel (Blelloch 1990), and derivatives of any
    order that `fn` has.

    Raises ShapeError for arrays without that axis or of different extents and for a `fn` that changes shapes,
    DTypeError where it changes dtypes, StructureError where it returns another structure.

    >>> lg.associative_scan(lg.maximum, lg.asarray([1.0, 3.0, 2.0]))
    Tensor([1., 3., 3.], dtype=float64)

    A linear recurrence x[k] = a[k] * x[k - 1] + b[k]:

    >>> step = lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1])
    >>> lg.associative_scan(step, (lg.asarray([0.5, 0.5, 2.0]), lg.asarray([1.0, 1.0, 1.0])))[1]
    Tensor([1. , 1.5, 4. ], dtype=float64)
    """
    check_function("associative_scan", fn)
    leaves, structure = flatten(elems)
    values = [as_tensor(x)._value for x in leaves]
    axes = [normal_axis("associative_scan", axis, len(v.shape)) for v in values]
    extents = {v.shape[d] for v, d in zip(values, axes, strict=True)}
    if len(extents) != 1:
        got = sorted(extents) or "no arrays"
        raise ShapeError(explained("associative_scan", "arrays of one extent along the axis", got, "slice or pad them"))
    scan = _Scan(fn, structure, axes)
    if reverse:
        values = scan.flipped(values)
    results = scan.run(values, extents.pop())
    return unflatten(structure, [wrap(v) for v in (scan.flipped(results) if reverse else results)])


class _Scan:
    """One call: its function of trees as one of leaves, and the axis of each leaf."""

    def __init__(self, fn: Callable[[Any, Any], Any], structure: Any, axes: Sequence[int]) -> None:
        self.fn, self.structure, self.axes = fn, structure, axes

    def run(self, xs: Leaves, count: int) -> Leaves:
        if count <= 1:
            return xs
        within = [self.cut(xs, 0, None, BLOCK)]
        for k in range(1, min(BLOCK, count)):
            term = self.cut(xs, k, None, BLOCK)
            within.append(self.combine(self.cut(within[-1], 0, self.extent(term)), term))
        if count <= BLOCK:
            return self.interleaved(within, count)
        before = self.run(within[-1], count // BLOCK)
        rest = []
        for ys in within:
            left = self.cut(before, 0, self.extent(ys) - 1)
            if self.extent(left):
                rest.append(self.combine(left, self.cut(ys, 1, None)))
        first = self.interleaved([self.cut(ys, 0, 1) for ys in within], BLOCK)
        others = self.interleaved(rest, count - BLOCK)
        return [ops.concat(parts, d) for *parts, d in zip(first, others, self.axes, strict=True)]

    def combine(self, left: Leaves, right: Leaves) -> Leaves:
        trees = [unflatten(self.structure, [wrap(v) for v in values]) for values in (left, right)]
        made = matching("the function of associative_scan", self.structure, self.fn(*trees))
        return [self.checked(as_result("associative_scan", x)._value, v) for x, v in zip(made, right, strict=True)]

    def checked(self, made: Value, like: Value) -> Value:
        """A result of the function, which must be of its argument's type; a number stands for equal elements."""
        made = made if made.shape else broadcast_value(made, like.shape)
        if made.shape != like.shape:
            fix = "combine elements that stand at the same place along the axis"
            raise ShapeError(explained("associative_scan", f"a result of shape {like.shape}", made.shape, fix))
        if made.dtype is not like.dtype:
            fix = f"convert elems to {made.dtype.name} first"
            raise DTypeError(explained("associative_scan", tensor_type(like), tensor_type(made), fix))
        return made

    def extent(self, xs: Leaves) -> int:
        return xs[0].shape[self.axes[0]]

    def cut(self, xs: Leaves, first: int, end: int | None, step: int = 1) -> Leaves:
        """xs[first:end:step] along the axis."""
        return [_cut(v, d, first, v.shape[d] if end is None else end, step) for v, d in zip(xs, self.axes, strict=True)]

    def flipped(self, xs: Leaves) -> Leaves:
        return [ops.flip(v, (d,)) for v, d in zip(xs, self.axes, strict=True)]

    def interleaved(self, parts: list[Leaves], count: int) -> Leaves:
        """The first elements of all parts, then the second ones, ..., as many as `count`."""
        leaves = zip(*parts, strict=True)
        return [_interleaved(list(values), d, count) for values, d in zip(leaves, self.axes, strict=True)]


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
