"""`lg.linear_transpose`: a linear function turned around.

The reverse pass of a linear function reads nothing of the point where it is taken, so it is taken at zero; where what
remains of it after the passes over graphs still reads the point, the function isn't linear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.errors import GradientError, explained
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Value
from loopgrad.graph.passes import optimise
from loopgrad.lazy.tensor.core import as_tensor, wrap
from loopgrad.lazy.tensor.ongoing_derivations import derivation
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, unflatten
from loopgrad.lazy.transforms.derivatives import matched
from loopgrad.lazy.transforms.shape_evaluation import described

PUBLIC: Final = "linear_transpose"


def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Callable[[Tree], tuple[Tree, ...]]:
    """The transpose of a linear function: `transposed(cotangent)` gives a tuple with one cotangent for each primal.

    `primals` are trees of arrays, or of what has a shape and a dtype (`lg.ShapeDtypeStruct`), whose elements aren't
    read. The cotangent has the structure, shapes and dtypes of the result of `fun`.

    Raises GradientError for a function that isn't linear (its transpose would read the primals) and for primals that
    aren't float, ShapeError, DTypeError or StructureError for a cotangent that isn't like the result.

    >>> a = lg.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> lg.linear_transpose(lambda x: a @ x, lg.ShapeDtypeStruct((3,), lg.float64))(lg.asarray([1.0, 10.0]))
    (Tensor([41., 52., 63.], dtype=float64),)
    """
    check_function("linear_transpose", fun)
    leaves, structure = flatten(primals)
    types = [described(x) for x in leaves]
    for t in types:
        if not t.dtype.differentiable:
            fix = "close over integers instead of passing them"
            raise GradientError(explained("linear_transpose", "primals of float dtypes", t, fix))
    points = [emit("alias", (ops.full(0, t),))[0] for t in types]
    with derivation(points):
        result = fun(*unflatten(structure, [wrap(p) for p in points]))
    results, result_structure = flatten(result)
    outputs = [as_tensor(x)._value for x in results]

    def transposed(cotangent: Tree) -> tuple[Tree, ...]:
        seeds = matched("linear_transpose cotangent", result_structure, outputs, cotangent)
        found = vjp_emit(outputs, seeds, points)
        values = [ops.zeros_like(p) if v is None else v for p, v in zip(points, found, strict=True)]
        _check_linear(values, points)
        turned: tuple[Tree, ...] = unflatten(structure, [wrap(v) for v in values])
        return turned

    return transposed


def _check_linear(values: list[Value], points: list[Value]) -> None:
    graph = optimise(extract(values, points))
    read = {v for node in graph.nodes for v in node.operands} | set(graph.outputs)
    if any(v in read for v in graph.inputs[: len(points)]):
        fix = "for the derivative at a point use lg.vjp"
        got = "one whose derivative depends on where it is taken"
        raise GradientError(explained("linear_transpose", "a linear function", got, fix))
