"""Primitive name -> recipe."""

from __future__ import annotations

from typing import Any, Final

from loopgrad.codegen.math import trigonometric as trig

RECIPES: Final[dict[str, Any]] = {
    "sin": trig.sin,
    "cos": trig.cos,
    "tan": trig.tan,
}
