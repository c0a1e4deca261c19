"""Where the examples of a batch meet: `vmap` with a named axis. Gone once the batch is made (`graph.batching`).

axis_gather   (x) -> what every example has as x, along a new axis in front: one array, the same for all examples
axis_split    (x) -> the example's own row of x, of which all examples have one and the same
axis_share    (x) -> x, which all examples have one and the same of, as each example's own

attrs level: how many named axes are around this one; size: how many examples there are; name: for messages.

Results of `axis_gather`, and what is computed of nothing else, exist once; everything that a user sees in the function
of one example is that example's own. So cotangents need no bookkeeping: `axis_gather` and `axis_split` are each other's
transposes (one cotangent of what exists once, one for each example of what doesn't), and the transpose of `axis_share`
adds up what all examples gather. With x: f[] in each example,

    psum(x)        = axis_share(sum(axis_gather(x)))           its transpose is itself
    all_gather(x)  = axis_share(axis_gather(x))                its transpose is psum_scatter
    axis_index()   = axis_split(iota)

The pair that JAX's JEP 17111 (https://docs.jax.dev/en/latest/jep/17111-shmap-transpose.html) has for shards of devices.
"""

from __future__ import annotations

from typing import Any, Final

from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    Infer,
    Kind,
    Primitive,
    Types,
    shape_error,
    sized,
    table,
    tensor_type,
)
from loopgrad.graph.types import TensorType

Operands = tuple[Value, ...]
Regions = tuple[Graph, ...]


def _infer_gather(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    t = tensor_type("axis_gather", operands[0])
    return (sized("axis_gather", (attrs["size"], *t.shape), t.dtype),)


def _infer_split(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    t = tensor_type("axis_split", operands[0])
    if t.shape[:1] != (attrs["size"],):
        raise shape_error("axis_split", f"a row for each of {attrs['size']} examples", t, "gather them first")
    return (TensorType(t.shape[1:], t.dtype),)


def _infer_share(operands: Operands, attrs: Attrs, regions: Regions) -> Types:
    return (tensor_type("axis_share", operands[0]),)


def _one_example(attrs: Attrs, *arrays: Array) -> tuple[Array, ...]:
    raise LoopgradError(f"expected the batch of axis {attrs['name']}, got one example of it: a bug of the library")


def _apart(node: Node, operand: int, axes: Axes) -> Axes | None:
    return None if axes else axes


def _row(name: str, infer: Infer, **traits: Any) -> Primitive:
    return Primitive(
        name=name, public=None, kind=Kind.NAMED_AXIS, infer=infer, reference=_one_example, axes=_apart, linear=True,
        **traits,
    )  # fmt: skip


ROWS: Final[dict[str, Primitive]] = table(
    _row("axis_gather", _infer_gather), _row("axis_split", _infer_split), _row("axis_share", _infer_share)
)
