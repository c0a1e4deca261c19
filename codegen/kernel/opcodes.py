"""What passes and targets may know of an opcode: one record for each, which they ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.primitives.intervals import Interval
from loopgrad.graph.primitives.primitive import Kind, Primitive

QUICK_COST: Final = 4.0
DEAR_COST: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opcode:
    """`effect`: it has one beyond its results, or they depend on one. `needed`: it happens though nobody uses its
    results. `leaves`: memory that others read keeps something of it. `test`: its result is a bool, whatever its
    operands. `quick`: an instruction or two without a division or a root, which may be computed where nobody needs
    it. `cost`: of a lane, roughly; `weight`: about the number of instructions that it is in code, of floats."""

    own: bool = True
    blocks: tuple[str, ...] = ()
    effect: bool = False
    needed: bool = False
    leaves: bool = False
    commutes: str = ""
    test: bool = False
    quick: bool = False
    cost: int = 4
    weight: int = 1
    interval: Callable[[Any, Any], Interval | None] | None = None


def _elementwise(row: Primitive) -> Opcode:
    return Opcode(
        own=False,
        commutes=row.commutes,
        test=row.gives_bool,
        quick=row.cost <= QUICK_COST and not row.singular,
        cost=20 if row.cost >= DEAR_COST else 1 if row.keeps_splats else 4,
        weight=row.weight,
        interval=row.interval,
    )


_ELEMENTWISE: Final = {name: _elementwise(row) for name, row in PRIMITIVES.items() if row.kind is Kind.ELEMENTWISE}

OPCODES: Final[dict[str, Opcode]] = {
    **_ELEMENTWISE,
    "const": Opcode(quick=True, cost=1, interval=PRIMITIVES["const"].interval),
    "cast": replace(_ELEMENTWISE["cast"], own=True, cost=1),
    "bitcast": replace(_ELEMENTWISE["bitcast"], own=True, cost=1),
    "select": replace(_ELEMENTWISE["select"], own=True, cost=1),
    "fma": Opcode(quick=True),
    "whole_power": Opcode(),
    "load": Opcode(cost=1),
    "store": Opcode(effect=True, needed=True, leaves=True, cost=1),
    "accumulate": Opcode(effect=True, needed=True, leaves=True),
    "for": Opcode(blocks=("do",)),
    "while": Opcode(blocks=("cond", "do")),
    "if": Opcode(blocks=("then", "else")),
    "push": Opcode(effect=True, leaves=True),
    "pop": Opcode(effect=True),
    "array_load": Opcode(effect=True, cost=1),
    "array_store": Opcode(effect=True, cost=1),
    "reduce": Opcode(effect=True, needed=True, leaves=True, cost=1),
    "scan": Opcode(effect=True, needed=True, leaves=True, cost=1),
    "check": Opcode(effect=True, needed=True),
}
"""Those that aren't primitives, or that have operands of several dtypes, are `own`."""
