"""Values that are made once, and never behind a lock that a forked process would inherit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loopgrad.graph.cached_property import cached_property

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Square:
    side: int

    @cached_property
    def area(self) -> list[int]:
        """Its area."""
        return [self.side**2]


def test_it_is_made_once():
    square = Square(3)
    assert square.area == [9]
    assert square.area is square.area
    assert Square(4).area == [16]
    assert Square.area.__doc__ == "Its area."


def test_nobody_uses_the_standard_one():
    folders = ("lazy", "graph", "autodiff", "codegen", "runtime")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert [str(p) for p in files if "functools import cached_property" in p.read_text()] == []
