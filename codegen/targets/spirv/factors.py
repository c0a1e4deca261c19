"""Which float values are products, and of what, so that no sum of two products of the same number is factored.

A driver may make x * (y + w) of fma(x, y, x * w), and so lose what Fma keeps; no decoration forbids that (NVIDIA's 580
did so on an H200: powers were up to 7 units off). Whoever emits Fma can hide from it what is added.
"""

from __future__ import annotations

from collections.abc import Sequence

NOTED = frozenset({"FMul", "FNegate", "FAdd", "Fma"})


class Factors:
    """Of values by their ids. One factor of a product is enough to know it by."""

    def __init__(self) -> None:
        self._of: dict[int, frozenset[int]] = {}
        self._same: dict[int, int] = {}  # values that another one stands for, but for a sign and a factor of two

    def note(self, name: str, made: int, operands: Sequence[int]) -> None:
        roots = [self._root(x) for x in operands]
        if name == "FNegate" or (name == "FAdd" and roots[0] == roots[1]):
            self._same[made] = roots[0]
        elif name != "FAdd":
            self._of[made] = frozenset(roots[:2])

    def shared(self, x: int, y: int, added: int) -> bool:
        """Whether x * y and what is added have a factor in common."""
        root, product = self._root(added), {self._root(x), self._root(y)}
        return root in product or not product.isdisjoint(self._of.get(root, ()))

    def _root(self, x: int) -> int:
        return self._same.get(x, x)
