"""Constant folding.

Enters: a Graph. Leaves: a Graph in which operations on constants are constants, computed by the
primitives' references: of at most LIMIT elements, or of any size where every element is the same. A
switch whose index is constant is replaced by its branch; a `for` of constant count by its initial values
(no trip) or its body (one trip).

    %1 = const {value=2.0};  %2 = const {value=3.0};  %3 = mul(%1, %2)     ->     %3 = const {value=6.0}

`iota` isn't folded: lane analysis recognises it, and it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor
from operator import add, eq, ge, gt, le, lt, mul, ne, neg, sub, truediv
from typing import Any, Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, KEEPING_SPLATS, PRIMITIVES, REFERENCE
from loopgrad.graph.primitives.primitive import Array
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.regions import Loop, Switch
from loopgrad.graph.types import DType, TensorType, bool_, float32, float64, int64, rounded

LIMIT: Final = 64
CONSTANTS: Final = ("const", "literal")
PLAIN: Final = frozenset({int, float, bool, complex})
ARITHMETIC: Final[Mapping[str, Callable[..., Any]]] = {"add": add, "sub": sub, "mul": mul, "neg": neg}
DIVISION: Final[Mapping[str, Callable[..., Any]]] = {"div": truediv}  # of floats
COMPARISONS: Final[Mapping[str, Callable[..., Any]]] = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq, "ne": ne}


def run(graph: Graph) -> Graph:
    """`graph` with constants folded, in regions too."""
    return rebuild(graph, _fold)


def _fold(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    match node.op:
        case "switch":
            return _known_branch(node, builder)
        case "for":
            return _known_count(node, builder)
    if node.op not in REFERENCE or not node.operands or not all(_is_constant(v) for v in node.operands):
        return None
    if PRIMITIVES[node.op].collective:
        return None
    types = [v.type for v in node.results if isinstance(v.type, TensorType)]
    if _is_splat(node):
        (type,) = types
        return [builder.const(_splat_of(node, type.dtype), type)]
    if node.op in ("gather", "scatter") and _out_of_range(node):
        return None  # whoever checks indices must see it
    if any(t.size > LIMIT for t in (*types, *[v.type for v in node.operands if isinstance(v.type, TensorType)])):
        return None
    arrays = REFERENCE[node.op](node.attrs, *[constant_array(v) for v in node.operands])
    return [emit_array(builder, array, t) for array, t in zip(arrays, types, strict=True)]


def _out_of_range(node: Node) -> bool:
    """Whether a gather or scatter of constants has an index that isn't in its dim."""
    indices = node.operands[1:] if node.op == "gather" else node.operands[1:-1]
    arrays = [constant_array(_first(v) if _is_splat_constant(v) else v) for v in indices]
    extents = node.operands[0].shape
    return any(((a < 0) | (a >= n)).any() for a, n in zip(arrays, extents, strict=False))


def _is_constant(value: Value) -> bool:
    return value.node is not None and value.node.op in CONSTANTS


def constant_array(value: Value) -> Array:
    """The elements of a constant."""
    assert value.node is not None
    (array,) = REFERENCE[value.node.op](value.node.attrs)
    return array


def emit_array(builder: GraphBuilder, array: Array, type: TensorType) -> Value:
    """A `const` where all elements are the same bits, else a `literal`."""
    array = np.ascontiguousarray(array)
    data = array.tobytes()
    size = type.dtype.itemsize
    if type.size and data == data[:size] * type.size:
        return builder.const(_python_scalar(array.reshape(-1)[0], type.dtype), type)
    return builder.value("literal", data=data, type=type)


def _is_splat(node: Node) -> bool:
    """Whether all elements of the result are the same function of splat operands."""
    if not all(map(_is_splat_constant, node.operands)):
        return False
    return node.op in ELEMENTWISE or node.op in KEEPING_SPLATS


def _splat_of(node: Node, dtype: DType) -> Any:
    if node.op in KEEPING_SPLATS:
        assert node.operands[0].node is not None
        return node.operands[0].node.attrs["value"]
    open_number = _by_arithmetic(node, dtype)
    if open_number is not None:
        return open_number
    scalars = [constant_array(_first(v)).reshape(-1)[:1] for v in node.operands]
    (array,) = REFERENCE[node.op](node.attrs, *scalars)
    return _python_scalar(array[0], dtype)


def _by_arithmetic(node: Node, dtype: DType) -> Any:
    """The result by Python's operators where they give the reference's, for numbers that aren't Python's own: those of
    codegen.extents stay open so, which an array can't. None where that isn't so."""
    numbers, given = [known_scalar(v) for v in node.operands], node.operands[-1].dtype
    if PLAIN.issuperset(map(type, numbers)) or not {dtype, given} <= {bool_, int64, float32, float64}:
        return None
    match node.op:
        case "select":
            return numbers[1] if numbers[0] else numbers[2]
        case "cast" if dtype.is_float:
            return rounded(1.0 * numbers[0], dtype.bits)
        case "floor" | "cast" if given.is_float and dtype is not bool_ and numbers[0] > 0:
            return floor(numbers[0]) * (1.0 if dtype.is_float else 1)
        case "min" | "max":
            return numbers[COMPARISONS["gt" if node.op == "min" else "lt"](*numbers)]
    operator = COMPARISONS.get(node.op) or (DIVISION if given.is_float else {}).get(node.op) or ARITHMETIC.get(node.op)
    if operator is None:
        return None
    found = operator(*[rounded(x, given.bits) if given.is_float else x for x in numbers])
    return rounded(found, dtype.bits) if dtype.is_float else found


def _is_splat_constant(value: Value) -> bool:
    return value.node is not None and value.node.op == "const"


def _first(value: Value) -> Value:
    """The splat as a constant of one element."""
    assert value.node is not None
    one = TensorType((), value.dtype)
    return Node("const", (), (one,), {"value": value.node.attrs["value"], "type": one}).results[0]


def _python_scalar(x: Any, dtype: DType) -> Any:
    match dtype.kind:
        case "b":
            return bool(x)
        case "f":
            return float(x)
        case "c":
            return complex(x)
    return int(x)


def known_scalar(value: Value) -> Any:
    """The Python number behind a constant splat; None where it isn't one."""
    if value.node is None or value.node.op != "const":
        return None
    return value.node.attrs["value"]


def _known_branch(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    switch = Switch.of(node)
    index = known_scalar(switch.index)
    if index is None or switch.shared:
        return None  # being shared is what makes scatters obey the masks of enclosing lanes
    chosen = min(max(int(index), 0), len(switch.branches) - 1)
    return builder.inline(switch.branches[chosen], switch.arguments)


def _known_count(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    loop = Loop.of(node)
    count = known_scalar(loop.decider)
    if count is None:
        return None
    if count <= 0:
        return loop.inits
    if count == 1 and not loop.lanes and not loop.shared:
        type = loop.decider.type
        assert isinstance(type, TensorType)
        return builder.inline(loop.body, (builder.const(0, type), *loop.arguments))
    return None
