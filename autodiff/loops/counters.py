"""Carries that count: integers to which every trip adds the same number.

In reverse they are computed from the trip's number and needn't be saved: the counter of a stream of random numbers, an
index that a `while` counts up.

    %k starts at %n;  body: %k + 1, ..., + 2         in trip t:  %k = %n + 3 * t
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from loopgrad.autodiff.loops.normal import NormalLoop
from loopgrad.graph import ops
from loopgrad.graph.nodes import Value
from loopgrad.graph.passes.fold import known_scalar
from loopgrad.graph.types import TensorType


class Counter(NamedTuple):
    """`argument`: of the body. It starts at `init` and grows by `by` in each trip."""

    argument: Value
    init: Value
    by: int

    def in_trip(self, trip: Value, init: Value) -> Value:
        """Its value in a trip, whose number has the shape of the loop's lanes."""
        counted = ops.cast(ops.broadcast_leading(trip, self.argument.shape), self.argument.dtype)
        return ops.add(init, counted if self.by == 1 else ops.mul(counted, self.by))


def counters(loop: NormalLoop, state: Sequence[Value]) -> dict[Value, Counter]:
    """The counters of a loop whose trips are numbered upwards; `state` stands for its carries."""
    if loop.node.attrs.get("reverse"):
        return {}
    _, arguments, _ = loop.split(loop.body.inputs)
    growths = map(_growth, arguments, loop.body.outputs)
    return {v: Counter(v, init, by) for v, init, by in zip(state, loop.inits, growths, strict=True) if by}


def _growth(argument: Value, result: Value) -> int:
    """What is added to an integer, constants alone; 0 where something else is done to it."""
    if not isinstance(argument.type, TensorType) or not argument.dtype.is_integer:
        return 0
    total = 0
    while result is not argument:
        node = result.node
        if node is None or node.op not in ("add", "sub"):
            return 0
        first, second = node.operands
        number = known_scalar(second)
        if number is None and node.op == "add":
            first, number = second, known_scalar(first)
        if number is None:
            return 0
        total, result = total + (number if node.op == "add" else -number), first
    low, modulus = -(argument.dtype.kind == "i") << (argument.dtype.bits - 1), 1 << argument.dtype.bits
    return int((total - low) % modulus + low)
