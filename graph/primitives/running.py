"""Running combinations by any associative function of elements (`lg.associative_scan`, derivatives of such).

    associative_scan  (*leaves) attrs along, reverse, function, taken -> those results at `taken`, of the leaves' types

All leaves have one shape. Element k of the results along the axis `along`, which is counted from the last (-1), is
function(that before it, element k of the leaves), the first one the element itself; `reverse` begins at the end.
`function` (`graph.scalar_functions`) has what is combined so far as its first inputs. It is associative, so targets may
combine other neighbours first; those without a routine for it combine blocks (`graph/associative.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import elementwise
from loopgrad.graph.primitives.primitive import Array, Attrs, Axes, Kind, Primitive, Types, table
from loopgrad.graph.scalar_functions import CONST, Row, ScalarFunction
from loopgrad.graph.types import DTYPES


def _infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    return tuple([operands[k].type for k in attrs["taken"]])


def _axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    """Rows know nothing of each other."""
    return None if len(node.operands[operand].shape) + node.attrs["along"] in axes else axes


def _same(attrs: Attrs, size: int) -> Attrs:
    return attrs


def _apply(row: Row, operands: Sequence[Array]) -> Array:
    if row.op == CONST:
        return np.asarray(row.attributes()["value"], DTYPES[row.dtype].np)
    reference = elementwise.ROWS[row.op].reference
    assert reference is not None
    return reference(row.attributes(), *operands)[0]


def associative_scan(attrs: Attrs, *leaves: Array) -> tuple[Array, ...]:
    function, step = ScalarFunction.of(attrs["function"]), -1 if attrs["reverse"] else 1
    rows = [np.moveaxis(x, attrs["along"], 0)[::step] for x in leaves]
    found = [np.array(x) for x in rows]
    with np.errstate(all="ignore"):
        for k in range(1, len(rows[0])):
            made = function.evaluate([*[x[k - 1] for x in found], *[x[k] for x in rows]], _apply)
            for x, value in zip(found, made, strict=True):
                x[k] = value
    return tuple([np.ascontiguousarray(np.moveaxis(found[k][::step], 0, attrs["along"])) for k in attrs["taken"]])


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="associative_scan", public=None, kind=Kind.LIBRARY, kinds="biuf", infer=_infer,
        reference=associative_scan, axes=_axes, batched=_same, heavy=True,
    ),
)  # fmt: skip
