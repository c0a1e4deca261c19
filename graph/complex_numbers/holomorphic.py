"""Functions with a complex derivative that is stated: where the parts are computed in pieces, or by what cancels, the
derivatives of the pieces aren't those of the whole.

A function becomes a `call` with a tangent rule, t f'(z), which serves forward and reverse mode alike; f' is written in
other functions, which have their own derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from loopgrad.graph import ops
from loopgrad.graph.build import enter, trace
from loopgrad.graph.complex_numbers.arithmetic import multiply
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType

Function = Callable[..., Value]


def with_slopes(name: str, function: Function, slopes: Sequence[Function]) -> Function:
    """`function` of complex values, whose derivative by argument i is `slopes[i]` of the arguments."""

    def called(*arguments: Value) -> Value:
        types = tuple([v.type for v in arguments])
        return ops.call(arguments, _regions(function, tuple(slopes), types), "jvp", arguments=len(types), name=name)[0]

    return called


@lru_cache(maxsize=512)
def _regions(function: Function, slopes: tuple[Function, ...], types: tuple[TensorType, ...]) -> tuple[Graph, Graph]:
    """The function and the rule, as graphs that no call changes."""

    def rule(*values: Value) -> tuple[Value, Value]:
        arguments, tangents = values[: len(types)], values[len(types) :]
        terms = [multiply(t, slope(*arguments)) for t, slope in zip(tangents, slopes, strict=True)]
        total = terms[0]
        for term in terms[1:]:
            total = ops.add(total, term)
        return function(*arguments), total

    with enter(None):  # what is kept belongs to no function that is being traced
        primal, _ = trace(lambda *arguments: (function(*arguments),), types)
        tangent, _ = trace(rule, (*types, *types))
    return primal, tangent
