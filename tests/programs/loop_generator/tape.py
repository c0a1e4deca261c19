"""A reverse tape over Python floats that carries a tangent: value, gradient, derivative along a direction and
Hessian times that direction from one run. An oracle, so nothing here knows the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Slopes = Callable[[float, float], tuple[float, float]]  # (argument, value) -> first and second derivative

UNARY: dict[str, tuple[Callable[[float], float], Slopes]] = {
    "sin": (math.sin, lambda x, y: (math.cos(x), -y)),
    "cos": (math.cos, lambda x, y: (-math.sin(x), -y)),
    "tanh": (math.tanh, lambda x, y: (1 - y * y, -2 * y * (1 - y * y))),
    "sigmoid": (lambda x: 1 / (1 + math.exp(-x)), lambda x, y: (y * (1 - y), y * (1 - y) * (1 - 2 * y))),
    "square": (lambda x: x * x, lambda x, y: (2 * x, 2.0)),
    "half": (lambda x: 0.5 * x, lambda x, y: (0.5, 0.0)),
    "bell": (lambda x: math.exp(-x * x), lambda x, y: (-2 * x * y, (4 * x * x - 2) * y)),
    "root": (lambda x: math.sqrt(1 + x * x), lambda x, y: (x / y, 1 / y**3)),
    "log": (
        lambda x: math.log(1.5 + x * x),
        lambda x, y: (2 * x / (1.5 + x * x), (3 - 2 * x * x) / (1.5 + x * x) ** 2),
    ),
    "atan": (math.atan, lambda x, y: (1 / (1 + x * x), -2 * x / (1 + x * x) ** 2)),
    "inverse": (lambda x: 1 / x, lambda x, y: (-y * y, 2 * y**3)),
    "abs": (abs, lambda x, y: (math.copysign(1.0, x), 0.0)),
}


class Node:
    """A number with a tangent; `sources` are (node, partial derivative, its tangent)."""

    __slots__ = ("adjoint", "adjoint_tangent", "sources", "tangent", "value")

    def __init__(self, value: float, tangent: float, sources: tuple[tuple[Node, float, float], ...] = ()) -> None:
        self.value, self.tangent, self.sources = value, tangent, sources
        self.adjoint = self.adjoint_tangent = 0.0


class Tape:
    """The operations the oracle needs. Python floats are constants."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def keep(self, value: float, tangent: float, *sources: tuple[Node, float, float]) -> Node:
        node = Node(value, tangent, sources)
        self.nodes.append(node)
        return node

    variable = keep

    @staticmethod
    def value(x: Any) -> float:
        return x.value if isinstance(x, Node) else float(x)

    @staticmethod
    def same(a: Any, b: Any) -> bool:
        """Whether two numbers have equal values and tangents: which of them wins makes no difference."""
        parts = [(v.value, v.tangent) if isinstance(v, Node) else (float(v), 0.0) for v in (a, b)]
        return parts[0] == parts[1]

    @staticmethod
    def stop(x: Any) -> float:
        return Tape.value(x)

    def unary(self, name: str, x: Any) -> Any:
        function, slopes = UNARY[name]
        if not isinstance(x, Node):
            return function(x)
        value = function(x.value)
        first, second = slopes(x.value, value)
        return self.keep(value, first * x.tangent, (x, first, second * x.tangent))

    def add(self, a: Any, b: Any) -> Any:
        sources = [(v, 1.0, 0.0) for v in (a, b) if isinstance(v, Node)]
        if not sources:
            return a + b
        return self.keep(self.value(a) + self.value(b), sum(v.tangent for v, _, _ in sources), *sources)

    def mul(self, a: Any, b: Any) -> Any:
        left, right = isinstance(a, Node), isinstance(b, Node)
        if left and right:
            tangent = a.tangent * b.value + a.value * b.tangent
            return self.keep(a.value * b.value, tangent, (a, b.value, b.tangent), (b, a.value, a.tangent))
        if not left and not right:
            return a * b
        node, factor = (a, b) if left else (b, a)
        return self.keep(node.value * factor, node.tangent * factor, (node, factor, 0.0))

    def extremum(self, name: str, a: Any, b: Any) -> Any:
        """At a tie half to each, as the library documents."""
        first, second = self.value(a), self.value(b)
        if first == second:
            return self.mul(0.5, self.add(a, b))
        return a if (first < second) == (name == "min") else b

    def derivatives(self, result: Any, leaves: Sequence[Node]) -> tuple[float, list[float], list[float]]:
        """The tangent of the result, its gradient and the gradient's tangent."""
        if not isinstance(result, Node):
            return 0.0, [0.0] * len(leaves), [0.0] * len(leaves)
        result.adjoint = 1.0
        for node in reversed(self.nodes):
            g, d = node.adjoint, node.adjoint_tangent
            if g or d:
                for source, slope, change in node.sources:
                    source.adjoint += g * slope
                    source.adjoint_tangent += d * slope + g * change
        return result.tangent, [v.adjoint for v in leaves], [v.adjoint_tangent for v in leaves]
