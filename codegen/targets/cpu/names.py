"""Arithmetic of codegen.math.compensated on names of LLVM values: vectors of any width, and scalars."""

from __future__ import annotations

import re

from loopgrad.codegen.targets.cpu.vector import Builder


class Names:
    """Of one LLVM type."""

    def __init__(self, b: Builder, type: str) -> None:
        self.b, self.type = b, type

    def _made(self, text: str) -> str:
        name = self.b.fresh()
        self.b.line(f"{name} = {text}")
        return name

    def add(self, x: str, y: str, /) -> str:
        return self._made(f"fadd {self.type} {x}, {y}")

    def sub(self, x: str, y: str, /) -> str:
        return self._made(f"fsub {self.type} {x}, {y}")

    def is_nan(self, x: str, /) -> str:
        return self._made(f"fcmp uno {self.type} {x}, {x}")

    def select(self, m: str, x: str, y: str, /) -> str:
        mask = re.sub(r"\w+(?=>?$)", "i1", self.type)
        return self._made(f"select {mask} {m}, {self.type} {x}, {self.type} {y}")
