"""Local algebra: one table of rules, each exact unless said otherwise.

Enters: a Graph. Leaves: a Graph with cheaper operations in place of what the rules recognise.
`alias` and `stop_gradient` disappear, so this runs after differentiation.

    %1 = neg(%x); %2 = neg(%1)               ->  %x
    %1 = pow(%x, const 3) : int32            ->  %1 = mul(%x, %x); %2 = mul(%1, %x)
    %1 = div(%x, const 4)                    ->  %1 = mul(%x, const 0.25)
    %1 = broadcast(%a); %2 = broadcast(%b); %3 = add(%1, %2)   ->   %1 = add(%a, %b); %2 = broadcast(%1)

What floats forbid isn't done: x*0 keeps NaN, x+0.0 turns -0.0 into 0.0, sums aren't reassociated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import copysign, frexp, inf, isfinite
from typing import Any, Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes.fold import known_scalar
from loopgrad.graph.passes.simplify_movement import MOVEMENT_RULES
from loopgrad.graph.passes.simplify_positions import POSITION_RULES
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import DType, TensorType, power_of_two

Rule = Callable[[Node, GraphBuilder], Value | None]

LARGEST_UNROLLED_POWER: Final = 8


def run(graph: Graph) -> Graph:
    """`graph` with every rule applied where it fits, in regions too."""
    return rebuild(graph, _simplify)


def _simplify(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    """The value that stands for the node's only result, itself simplified as long as rules apply."""
    found: Value | None = None
    current: Node | None = node
    while current is not None:
        value = _first_match(current, builder)
        if value is None:
            break
        found = value
        # only a node just made can match anew: operands were simplified when they were met
        current = value.node if builder.nodes and value.node is builder.nodes[-1] else None
    return None if found is None else [found]


def _first_match(node: Node, builder: GraphBuilder) -> Value | None:
    for rule in RULES.get(node.op, ()):
        value = rule(node, builder)
        if value is not None:
            return value
    return None


def _made_by(value: Value, op: str) -> Node | None:
    """The node behind `value` where it is an `op`."""
    return value.node if value.node is not None and value.node.op == op else None


def _is_float(value: Value) -> bool:
    return value.dtype.is_float


def _constant_of(value: Value, builder: GraphBuilder, number: Any) -> Value:
    assert isinstance(value.type, TensorType)
    return builder.const(number, value.type)


def _is_positive_zero(number: Any) -> bool:
    return number == 0 and copysign(1.0, number) > 0


# ---- identities


def _operand(node: Node, builder: GraphBuilder) -> Value | None:
    return None if node.attrs.get("kept") else node.operands[0]


def _add_zero(node: Node, builder: GraphBuilder) -> Value | None:
    """x + 0 for integers, x + -0.0 for floats."""
    for x, other in (node.operands, node.operands[::-1]):
        c = known_scalar(other)
        if c is not None and c == 0 and not (_is_float(x) and _is_positive_zero(c)):
            return x
    return None


def _add_negative(node: Node, builder: GraphBuilder) -> Value | None:
    a, b = node.operands
    if (negated := _made_by(b, "neg")) is not None:
        return builder.value("sub", a, negated.operands[0], **node.attrs)
    if (negated := _made_by(a, "neg")) is not None:
        return builder.value("sub", b, negated.operands[0], **node.attrs)
    return None


def _add_complement(node: Node, builder: GraphBuilder) -> Value | None:
    """~x + 1 of integers: no compiler need find out that it is -x."""
    for a, other in (node.operands, node.operands[::-1]):
        inverted = _made_by(a, "invert")
        if inverted is not None and a.dtype.kind in "iu" and known_scalar(other) == 1:
            return builder.value("neg", inverted.operands[0])
    return None


def _sub_from_zero(node: Node, builder: GraphBuilder) -> Value | None:
    a, b = node.operands
    return builder.value("neg", b) if a.dtype.kind in "iu" and known_scalar(a) == 0 else None


def _sub_zero(node: Node, builder: GraphBuilder) -> Value | None:
    """x - 0 for integers, x - 0.0 for floats."""
    x, other = node.operands
    c = known_scalar(other)
    if c is not None and c == 0 and (not _is_float(x) or _is_positive_zero(c)):
        return x
    return None


def _sub_negative(node: Node, builder: GraphBuilder) -> Value | None:
    a, b = node.operands
    negated = _made_by(b, "neg")
    return None if negated is None else builder.value("add", a, negated.operands[0], **node.attrs)


def _sub_itself(node: Node, builder: GraphBuilder) -> Value | None:
    a, b = node.operands
    return _constant_of(a, builder, 0) if a is b and not _is_float(a) else None


def _mul_constant(node: Node, builder: GraphBuilder) -> Value | None:
    """By 1, by -1, and by 0 for integers."""
    for x, other in (node.operands, node.operands[::-1]):
        c = known_scalar(other)
        if c is None:
            continue
        if c == 1:
            return x
        if c == -1:
            return builder.value("neg", x)
        if c == 0 and not _is_float(x):
            return other
    return None


def _div_constant(node: Node, builder: GraphBuilder) -> Value | None:
    """By 1; by a power of two, whose reciprocal is exact, as a product."""
    x, other = node.operands
    c = known_scalar(other)
    if c is None:
        return None
    if c == 1:
        return x
    if not _is_float(x) or c == 0 or not power_of_two(c):
        return None
    normal = {"float64": 1000, "float32": 100, "bfloat16": 100}.get(x.dtype.name, 10)
    if abs(frexp(c)[1]) > normal:
        return None  # the reciprocal could be subnormal or infinite
    return builder.value("mul", x, _constant_of(x, builder, 1.0 / c))


def _cancel(*pairs: str) -> Rule:
    """op(inner(x)) is x, where `inner` is one of `pairs`."""

    def rule(node: Node, builder: GraphBuilder) -> Value | None:
        inner = node.operands[0].node
        return inner.operands[0] if inner is not None and inner.op in pairs else None

    return rule


def _abs_of(node: Node, builder: GraphBuilder) -> Value | None:
    inner = node.operands[0].node
    if inner is None or inner.op not in ("abs", "neg"):
        return None
    return node.operands[0] if inner.op == "abs" else builder.value("abs", inner.operands[0])


def _same_operands(node: Node, builder: GraphBuilder) -> Value | None:
    """min(x, x), and(x, x) and the like."""
    return node.operands[0] if node.operands[0] is node.operands[1] else None


def _compare_itself(result: bool) -> Rule:
    def rule(node: Node, builder: GraphBuilder) -> Value | None:
        a, b = node.operands
        if a is not b or _is_float(a) or a.dtype.kind == "c":
            return None
        return _constant_of(node.results[0], builder, result)

    return rule


def _negated_compare(node: Node, builder: GraphBuilder) -> Value | None:
    """not (a < b) is a >= b, except for floats (NaN); not (a == b) is a != b always."""
    inner = node.operands[0].node
    if inner is None or not PRIMITIVES[inner.op].negated:
        return None
    if inner.op not in ("eq", "ne") and _is_float(inner.operands[0]):
        return None
    return builder.value(PRIMITIVES[inner.op].negated, *inner.operands)


def _logic_constant(absorbing: bool) -> Rule:
    """`and` (absorbing False) and `or` (absorbing True) of bools with a constant."""

    def rule(node: Node, builder: GraphBuilder) -> Value | None:
        if node.results[0].dtype.kind != "b":
            return None
        for x, other in (node.operands, node.operands[::-1]):
            c = known_scalar(other)
            if c is not None:
                return other if bool(c) is absorbing else x
        return None

    return rule


# ---- select, cast, pow


def _select(node: Node, builder: GraphBuilder) -> Value | None:
    pred, a, b = node.operands
    if a is b:
        return a
    c = known_scalar(pred)
    if c is not None:
        return a if c else b
    if (inverted := _made_by(pred, "invert")) is not None:
        return builder.value("select", inverted.operands[0], b, a)
    if a.dtype.kind == "b" and known_scalar(a) is True and known_scalar(b) is False:
        return pred
    if (inner := _made_by(a, "select")) is not None and inner.operands[0] is pred:
        return builder.value("select", pred, inner.operands[1], b)
    if (inner := _made_by(b, "select")) is not None and inner.operands[0] is pred:
        return builder.value("select", pred, a, inner.operands[2])
    return None


def _cast(node: Node, builder: GraphBuilder) -> Value | None:
    (x,) = node.operands
    dtype: DType = node.attrs["dtype"]
    if x.dtype is dtype:
        return x
    inner = _made_by(x, "cast")
    if inner is None or not _holds(x.dtype, inner.operands[0].dtype):
        return None
    source = inner.operands[0]
    if x.dtype.is_float and source.dtype.is_integer and dtype.is_integer and not _holds_all(dtype, source.dtype):
        return None  # an integer wraps, a float saturates
    return builder.cast(source, dtype)


def _holds_all(wide: DType, narrow: DType) -> bool:
    """As `_holds`, or the same dtype."""
    return wide is narrow or _holds(wide, narrow)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is exactly one of `wide` (then a cast through `wide` is redundant)."""
    if narrow.kind == "b":
        return True
    if wide.kind == narrow.kind and wide.kind in "iufc":
        return wide.bits > narrow.bits
    if wide.kind == "i" and narrow.kind == "u":
        return wide.bits > narrow.bits
    if wide.kind == "f" and narrow.kind in "iu":
        return {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[wide.name] >= narrow.bits
    return False


def _pow(node: Node, builder: GraphBuilder) -> Value | None:
    x, exponent = node.operands
    n = known_scalar(exponent)
    if n is None:
        return None
    if n == 0.5 and _is_float(x):
        return _square_root(x, builder)
    if not isfinite(n) or n != int(n):
        return None
    n = int(n)
    if n == 0:
        return _constant_of(x, builder, 1)
    if n == -1 and _is_float(x):
        return builder.value("div", _constant_of(x, builder, 1.0), x)
    # a product of three floats is rounded twice, a power once
    return _unrolled(x, n, builder) if 0 < n <= (2 if _is_float(x) else LARGEST_UNROLLED_POWER) else None


def _square_root(x: Value, builder: GraphBuilder) -> Value:
    """pow(x, 1/2): 0 for -0.0 and inf for -inf, where sqrt has -0.0 and NaN."""
    root = builder.value("sqrt", builder.value("add", x, _constant_of(x, builder, 0.0)))
    is_lowest = builder.value("eq", x, _constant_of(x, builder, -inf))
    return builder.value("select", is_lowest, _constant_of(x, builder, inf), root)


def _unrolled(x: Value, n: int, builder: GraphBuilder) -> Value:
    """x ** n by repeated squaring."""
    if n == 1:
        return x
    half = _unrolled(x, n // 2, builder)
    square = builder.value("mul", half, half)
    return builder.value("mul", square, x) if n % 2 else square


ALGEBRA: Final[dict[str, tuple[Rule, ...]]] = {
    "alias": (_operand,),
    "stop_gradient": (_operand,),
    "add": (_add_zero, _add_negative, _add_complement),
    "sub": (_sub_zero, _sub_negative, _sub_itself, _sub_from_zero),
    "mul": (_mul_constant,),
    "div": (_div_constant,),
    "neg": (_cancel("neg"),),
    "invert": (_cancel("invert"), _negated_compare),
    "abs": (_abs_of,),
    "min": (_same_operands,),
    "max": (_same_operands,),
    "and": (_same_operands, _logic_constant(False)),
    "or": (_same_operands, _logic_constant(True)),
    "eq": (_compare_itself(True),),
    "le": (_compare_itself(True),),
    "ge": (_compare_itself(True),),
    "ne": (_compare_itself(False),),
    "lt": (_compare_itself(False),),
    "gt": (_compare_itself(False),),
    "select": (_select,),
    "cast": (_cast,),
    "pow": (_pow,),
}

_TABLES: Final[tuple[dict[str, tuple[Rule, ...]], ...]] = (ALGEBRA, MOVEMENT_RULES, POSITION_RULES)
RULES: Final[dict[str, tuple[Rule, ...]]] = {
    op: tuple([rule for table in _TABLES for rule in table.get(op, ())]) for op in set().union(*_TABLES)
}
