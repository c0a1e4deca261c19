"""Between which numbers the elements of an integer value lie, from how it was made.

Integer arithmetic wraps, so two intervals are told apart. `bounds(v)` holds every element. `residues(v)` holds,
for every element, a number that is congruent to it modulo 2**bits: sums, differences and products are computed on
those without regard to the dtype's limits. Residues that leave the dtype may be any number of it once something
other than a ring operation looks at them: a comparison, a division, a shift to the right, a wider dtype.

    %k in [0, 99];  %1 = add(%k, %k) : int8          residues [0, 198],  bounds [-128, 127]
    %2 = and(%1, const 127)                          bounds [0, 127]

A scope notes what is known of its loop's index (`Scope.ranges`). Everything else that isn't understood, data
above all, is anything that its dtype holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from loopgrad.graph.build import Scope
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import DType, TensorType

Interval = tuple[int, int]
Rule = Callable[[Interval, Interval], Interval | None]

DEEPEST: Final = 12
"""Operations that are followed back; an index is made of fewer."""
_WIDEST_POWER: Final = 128  # bits; what is larger has left every dtype


def limits(dtype: DType) -> Interval:
    """The smallest and the largest number of an integer dtype, or of bool."""
    if dtype.kind == "i":
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def bounds(value: Value) -> Interval:
    """The smallest and the largest number that an element of an integer or bool value may be."""
    return _Walk().bounds(value, 0)


def noted(value: Value) -> tuple[int, ...]:
    """The smallest and the largest number of a loop's index, nothing of other values."""
    value = outermost(value)
    return value.scope.ranges.get(value, ()) if isinstance(value.scope, Scope) else ()


def require(value: Value, low: int, high: int) -> None:
    """Note that an input of the function being traced must be one of low, ..., high; whoever calls it checks that."""
    value = outermost(value)
    if isinstance(value.scope, Scope) and value.node is None:
        first, last = value.scope.required.get(value, (low, high))
        value.scope.required[value] = max(first, low), min(last, high)


def outermost(value: Value) -> Value:
    """The value of which this one is the stand-in in loop bodies and branches."""
    while isinstance(value.scope, Scope) and value in value.scope.lifted:
        value = value.scope.lifted[value]
    return value


def may_lie_in(value: Value, low: int, high: int) -> bool:
    """Whether an element of an integer value may be one of low, ..., high (all of them numbers of its dtype)."""
    first, last = _Walk().residues(value, 0)
    modulus = 1 << value.dtype.bits
    turns = -(-(first - high) // modulus)  # the fewest that bring `high` to `first` or beyond
    return low + turns * modulus <= last


# ---- rules: the interval of a result; None where it may be anything


def _hull(numbers: Sequence[int]) -> Interval:
    return min(numbers), max(numbers)


def _join(x: Interval, y: Interval) -> Interval:
    return min(x[0], y[0]), max(x[1], y[1])


def _corners(operation: Callable[[int, int], int], x: Interval, y: Interval) -> Interval:
    """Of an operation that is monotonic in each operand."""
    return _hull([operation(a, b) for a in x for b in y])


def _quotient(operation: Callable[[int, int], int]) -> Rule:
    def rule(x: Interval, y: Interval) -> Interval | None:
        if y[0] < 0:
            largest = max(abs(x[0]), abs(x[1]))
            return -largest, largest
        if y[1] == 0:
            return 0, 0
        found = _corners(operation, x, (max(y[0], 1), y[1]))
        return found if y[0] > 0 else _join(found, (0, 0))  # x / 0 is 0

    return rule


def _truncated(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)


def _mod(x: Interval, y: Interval) -> Interval | None:
    if x[0] >= 0 and x[1] < y[0]:
        return x
    return min(y[0] + 1, 0), max(y[1] - 1, 0)


def _rem(x: Interval, y: Interval) -> Interval | None:
    largest = max(abs(y[0]), abs(y[1]), 1) - 1
    return max(min(x[0], 0), -largest), min(max(x[1], 0), largest)


def _pow(x: Interval, y: Interval) -> Interval | None:
    """A negative exponent gives 0, 1 or -1."""
    top = max(y[1], 0)
    size = max(abs(x[0]), abs(x[1]), 1)
    if top * size.bit_length() > _WIDEST_POWER:
        return None
    low = 0 if x[0] >= 0 or (y[0] == y[1] and y[0] % 2 == 0) else -(size**top)
    return low, size**top


def _and(x: Interval, y: Interval) -> Interval | None:
    tops = [high for low, high in (x, y) if low >= 0]
    return (0, min(tops)) if tops else None


def _or(x: Interval, y: Interval) -> Interval | None:
    if min(x[0], y[0]) < 0:
        return None
    return max(x[0], y[0]), (1 << max(x[1], y[1]).bit_length()) - 1


def _xor(x: Interval, y: Interval) -> Interval | None:
    return None if min(x[0], y[0]) < 0 else (0, (1 << max(x[1], y[1]).bit_length()) - 1)


def _sign(x: Interval) -> Interval:
    return (x[0] > 0) - (x[0] < 0), (x[1] > 0) - (x[1] < 0)


def _abs(x: Interval) -> Interval:
    return max(x[0], -x[1], 0), max(-x[0], x[1])


RING: Final[dict[str, Rule]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "mul": lambda x, y: _corners(lambda a, b: a * b, x, y),
}

BINARY: Final[dict[str, Rule]] = {
    "min": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "max": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "floordiv": _quotient(lambda a, b: a // b),
    "div": _quotient(_truncated),
    "mod": _mod,
    "rem": _rem,
    "pow": _pow,
    "and": _and,
    "or": _or,
    "xor": _xor,
}

UNARY: Final[dict[str, Callable[[Interval], Interval]]] = {
    "abs": _abs,
    "sign": _sign,
    "invert": lambda x: (~x[1], ~x[0]),
}

MOVED: Final = frozenset({"alias", "stop_gradient", "broadcast", "reshape", "transpose", "slice", "flip", "sort",
                          "reduce_min", "reduce_max", "cummin", "cummax"})  # fmt: skip
POSITIONS: Final = frozenset({"argmin", "argmax", "argsort"})


class _Walk:
    """One question: residues that were found on the way, each once."""

    def __init__(self) -> None:
        self._known: dict[Value, Interval] = {}

    def bounds(self, value: Value, depth: int) -> Interval:
        if value.dtype.kind not in "biu":
            return 0, -1  # no number: whoever asks looks at the dtype first
        widest = limits(value.dtype)
        low, high = self.residues(value, depth)
        return (low, high) if widest[0] <= low and high <= widest[1] else widest

    def residues(self, value: Value, depth: int) -> Interval:
        if value not in self._known:
            widest = limits(value.dtype)
            found = self._noted(value, depth) if depth < DEEPEST else None
            whole = found is None or found[1] - found[0] > widest[1] - widest[0]
            self._known[value] = widest if whole or found is None else found
        return self._known[value]

    def _noted(self, value: Value, depth: int) -> Interval | None:
        scope = value.scope
        if isinstance(scope, Scope):
            if value in scope.ranges:
                return scope.ranges[value]
            if value in scope.lifted:
                return self.residues(scope.lifted[value], depth)
        node = value.node
        if node is None or value.dtype.kind == "b":
            return None
        return self._made_by(node, value, depth + 1)

    def _made_by(self, node: Node, value: Value, depth: int) -> Interval | None:
        op, operands = node.op, node.operands
        if op in LEAVES:
            return LEAVES[op](node.attrs)
        if op in POSITIONS:
            return 0, max(operands[0].shape[node.attrs["axis"]] - 1, 0)
        if any(v.dtype.kind not in "biu" for v in operands if isinstance(v.type, TensorType)):
            return None  # of floats: they saturate
        if op in RING:
            return RING[op](self.residues(operands[0], depth), self.residues(operands[1], depth))
        if op in BINARY:
            return BINARY[op](self.bounds(operands[0], depth), self.bounds(operands[1], depth))
        if op in MOVED:
            return self.residues(operands[0], depth)
        return self._special(node, value, depth)

    def _special(self, node: Node, value: Value, depth: int) -> Interval | None:
        operands = node.operands
        match node.op:
            case "neg":
                low, high = self.residues(operands[0], depth)
                return -high, -low
            case "invert" if value.dtype.kind == "u":
                low, high = self.residues(operands[0], depth)
                return ~high, ~low
            case "cast":
                narrower = value.dtype.bits <= operands[0].dtype.bits and operands[0].dtype.kind != "b"
                return self.residues(operands[0], depth) if narrower else self.bounds(operands[0], depth)
            case "shl" | "shr":
                return self._shifted(node, depth)
            case "select":
                return self._either(operands[1:], depth)
            case "concat" | "pad":
                return self._either(operands, depth)
            case "gather":
                table = self.residues(operands[0], depth)
                return _join(table, (0, 0)) if 0 in operands[0].shape else table
            case "scatter" if node.attrs["kind"] in ("set", "min", "max"):
                return self._either((operands[0], operands[-1]), depth)
            case "reduce_sum" | "cumsum":
                return self._sum(node, depth)
        return UNARY[node.op](self.bounds(operands[0], depth)) if node.op in UNARY else None

    def _either(self, values: Sequence[Value], depth: int) -> Interval:
        found = [self.residues(v, depth) for v in values]
        return min(low for low, _ in found), max(high for _, high in found)

    def _shifted(self, node: Node, depth: int) -> Interval:
        """Amounts outside 0..bits-1 shift everything out, as a shift by all bits does."""
        x, bits = self.bounds(node.operands[0], depth), node.results[0].dtype.bits
        low, high = self.bounds(node.operands[1], depth)
        amounts = (max(low, 0), bits) if low < 0 or high >= bits else (low, high)
        if node.op == "shr":
            return _corners(lambda a, n: a >> n, x, amounts)
        found = _corners(lambda a, n: a << n, x, (min(amounts[0], bits - 1), min(amounts[1], bits - 1)))
        return _join(found, (0, 0)) if amounts[1] == bits else found

    def _sum(self, node: Node, depth: int) -> Interval:
        low, high = self.residues(node.operands[0], depth)
        shape = node.operands[0].shape
        if node.op == "cumsum":
            count = shape[node.attrs["axis"]]
            return min(low, low * count), max(high, high * count)
        count = prod([shape[a] for a in node.attrs["axes"]])
        return low * count, high * count


def _iota(attrs: Mapping[str, Any]) -> Interval:
    return 0, max(attrs["type"].shape[attrs["axis"]] - 1, 0)


def _const(attrs: Mapping[str, Any]) -> Interval:
    return int(attrs["value"]), int(attrs["value"])


def _literal(attrs: Mapping[str, Any]) -> Interval | None:
    elements = np.frombuffer(attrs["data"], dtype=attrs["type"].dtype.np)
    return (int(elements.min()), int(elements.max())) if elements.size else None


LEAVES: Final[dict[str, Callable[[Mapping[str, Any]], Interval | None]]] = {
    "iota": _iota,
    "const": _const,
    "literal": _literal,
}
