"""Functions of elements as data: what a traced function computes element by element, as rows that an attribute holds.

    graph (%0: float32[4], %1: float32[4]) {
      %2 = const() {value=2.0}                        (("const", "float32", (), (("value", 2.0),)),
      %3 = mul(%0, %2)                      ->         ("mul", "float32", (0, 2), ()),
      %4 = add(%3, %1)                                 ("add", "float32", (3, 1), ()))
      return %4                                       (4,)
    }

A row has the number that comes after those before it; inputs come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.elementwise import ROWS
from loopgrad.graph.types import DTYPES, DType, TensorType

V = TypeVar("V")
Attributes = tuple[tuple[str, Any], ...]
CONST: Final = "const"
KEPT: Final = frozenset({"dtype", "contract"})  # attributes of elementwise nodes that mean the same for one element
MOST_ROWS: Final = 200


class Row(NamedTuple):
    """An elementwise primitive, or a constant of that dtype."""

    op: str
    dtype: str
    operands: tuple[int, ...]
    attrs: Attributes = ()

    def attributes(self) -> dict[str, Any]:
        """As a node has them."""
        return {name: DTYPES[v] if name == "dtype" else v for name, v in self.attrs}


class ScalarFunction(NamedTuple):
    """`rows` in order, and the numbers of what is returned."""

    rows: tuple[Row, ...]
    outputs: tuple[int, ...]

    @classmethod
    def of(cls, attribute: Any) -> ScalarFunction:
        """What an attribute holds, which may have been through a file."""
        rows, outputs = attribute
        read = [
            Row(op, dtype, tuple(given), tuple([(name, v) for name, v in attrs])) for op, dtype, given, attrs in rows
        ]
        return cls(tuple(read), tuple(outputs))

    def data(self) -> tuple[Any, ...]:
        """As attributes hold it: tuples, numbers and text."""
        return tuple([tuple(row) for row in self.rows]), self.outputs

    def rows_of(self, inputs: Sequence[V], apply: Callable[[Row, Sequence[V]], V]) -> list[V]:
        """The inputs, then all rows; `apply` computes one from its operands."""
        values = list(inputs)
        for row in self.rows:
            values.append(apply(row, [values[k] for k in row.operands]))
        return values

    def evaluate(self, inputs: Sequence[V], apply: Callable[[Row, Sequence[V]], V]) -> list[V]:
        """What is returned."""
        values = self.rows_of(inputs, apply)
        return [values[k] for k in self.outputs]


def scalar_function(graph: Graph) -> ScalarFunction | None:
    """What `graph` computes for each element, if all of its values have one shape, and it reads nothing but elements at
    the same place."""
    shapes = {v.shape for v in graph.inputs if isinstance(v.type, TensorType)}
    if len(shapes) != 1 or len(graph.nodes) > MOST_ROWS:
        return None
    (shape,) = shapes
    numbers = {v: k for k, v in enumerate(graph.inputs)}
    rows: list[Row] = []
    for node in graph.nodes:
        row = _row(node, numbers)
        if row is None or node.results[0].shape != shape:
            return None
        numbers[node.results[0]] = len(graph.inputs) + len(rows)
        rows.append(row)
    return ScalarFunction(tuple(rows), tuple([numbers[v] for v in graph.outputs]))


def _row(node: Node, numbers: dict[Value, int]) -> Row | None:
    dtype = node.results[0].dtype.name
    if node.op == CONST:
        value = node.attrs["value"]
        return Row(CONST, dtype, (), (("value", value),)) if isinstance(value, bool | int | float) else None
    if node.op not in ROWS or not KEPT.issuperset(node.attrs) or any(v.dtype.kind == "c" for v in node.results):
        return None
    attrs = [(name, v.name if isinstance(v, DType) else v) for name, v in sorted(node.attrs.items())]
    return Row(node.op, dtype, tuple([numbers[v] for v in node.operands]), tuple(attrs))
