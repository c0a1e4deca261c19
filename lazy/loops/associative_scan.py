"""`associative_scan`: running combinations by any associative function of trees (see graph.associative)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from loopgrad.graph import associative
from loopgrad.graph.associative import Values
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.loops.traced_functions import as_result, tensor_type
from loopgrad.lazy.tensor.core import as_tensor, broadcast_value, is_scalar, wrap
from loopgrad.lazy.tensor.operands import normal_axis
from loopgrad.lazy.tensor.repeated_calls import traced_once
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, matching, unflatten

PUBLIC: Final = "associative_scan"


@traced_once
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

    def combine(left: Values, right: Values) -> Values:
        made = fn(*[unflatten(structure, [wrap(v) for v in side]) for side in (left, right)])
        found = matching("the function of associative_scan", structure, made)
        return [_like(x, v) for x, v in zip(found, right, strict=True)]

    return unflatten(structure, [wrap(v) for v in associative.associative_scan(combine, values, axes, reverse)])


def _like(result: Any, given: Value) -> Value:
    """A result of the function, which must be of its argument's type; a Python number stands for equal elements. A
    tensor without axes doesn't: a sum, say, of all elements that happen to be combined side by side means nothing."""
    made = as_result("associative_scan", result)._value
    made = broadcast_value(made, given.shape) if is_scalar(result) else made
    if made.shape != given.shape:
        fix = "combine elements that stand at the same place along the axis"
        raise ShapeError(explained("associative_scan", f"a result of shape {given.shape}", made.shape, fix))
    if made.dtype is not given.dtype:
        fix = f"convert elems to {made.dtype.name} first"
        raise DTypeError(explained("associative_scan", tensor_type(given), tensor_type(made), fix))
    return made
