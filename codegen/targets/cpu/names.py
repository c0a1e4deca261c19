"""Arithmetic of codegen.math.compensated on names of LLVM values: vectors of any width, and scalars."""

from __future__ import annotations

import re

from loopgrad.codegen.targets.cpu.vector import Builder


class Names:
    """Of one LLVM type."""

    def __init__(self, b: Builder, type: str) -> None:
        self.b, self.type = b, type
        self.mask = re.sub(r"\w+(?=>?$)", "i1", type)

    def _made(self, text: str) -> str:
        name = self.b.fresh()
        self.b.line(f"{name} = {text}")
        return name

    def add(self, x: str, y: str, /) -> str:
        return self._made(f"fadd {self.type} {x}, {y}")

    def sub(self, x: str, y: str, /) -> str:
        return self._made(f"fsub {self.type} {x}, {y}")

    def lt(self, x: str, y: str, /) -> str:
        return self._made(f"fcmp olt {self.type} {x}, {y}")

    def either(self, m: str, n: str, /) -> str:
        return self._made(f"or {self.mask} {m}, {n}")

    def select(self, m: str, x: str, y: str, /) -> str:
        return self._made(f"select {self.mask} {m}, {self.type} {x}, {self.type} {y}")
