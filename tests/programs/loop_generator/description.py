"""What a random loop program is: data that can be printed, run and made smaller.

A program acts on *lanes* of variables and on *cells*, arrays that lanes update at computed places. Statements,
conditions and expressions are tuples that begin with a word:

    statements  ("set", name, expression)               a variable of any form
                ("put", name, integer, how, float)      one element of a lane's own vector
                ("update", cells, integer, how, value)  at[...].how; "pair" as integer: two places at once
                ("swap", names)                         rotate the values of variables
                ("for", kind, lower, upper, block, how)
                ("while", kind, condition, most or None, block, how)
                ("scan", rows, reverse, name, float, block, how)
                ("if", kind, condition, block, block)   ("switch", kind, integer, blocks)
                ("again", block)                        lg.checkpoint

`kind` is "lane" (each lane decides) or "uniform" (all lanes together). `how` of a loop is (extra carries, memory
budget, form of the carry). Under style "mapped" the program is one lane's, with scalars, and goes through vmap;
"single" is the same without vmap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

Tree = tuple[Any, ...]
Block = tuple[Tree, ...]

FLOATS = ("x", "e", "s", "T", "R", "a")  # the arguments that are differentiated
INTEGERS = ("n", "q", "p", "u", "J")
PER_LANE = ("x", "e", "n", "q", "p")


class Variable(NamedTuple):
    """A variable of each lane. `form`: float, vector, matrix, integer, bool; `dtype` of integers."""

    name: str
    form: str
    dtype: str
    init: Tree


class Cells(NamedTuple):
    """An array that lanes update. `form`: float, row, integer; `how`: add, mul, min, max, or any (mixed)."""

    name: str
    form: str
    how: str
    init: Tree


@dataclass(frozen=True)
class Program:
    """`shape` of the lanes; `table` rows of the outer tables; `cells` elements; `width` of a vector. `dtypes` of
    the integer inputs n, q, p, u; `variants` of the inputs that it runs with."""

    seed: int
    style: str
    shape: tuple[int, ...]
    dtype: str
    table: int
    cells: int
    width: int
    dtypes: tuple[str, str, str, str]
    variables: tuple[Variable, ...]
    accumulators: tuple[Cells, ...]
    body: Block
    loss: tuple[Tree, ...]
    variants: tuple[int, ...] = (0, 1, 2)

    @property
    def lanes(self) -> int:
        return prod(self.shape)

    def variable(self, name: str) -> Variable:
        return next(v for v in self.variables if v.name == name)

    def accumulator(self, name: str) -> Cells:
        return next(c for c in self.accumulators if c.name == name)


def blocks(statement: Tree) -> list[Block]:
    """The blocks directly inside a statement."""
    match statement:
        case ("for", _, _, _, block, _) | ("while", _, _, _, block, _) | ("scan", _, _, _, _, block, _):
            return [block]
        case ("again", block):
            return [block]
        case ("if", _, _, yes, no):
            return [yes, no]
        case ("switch", _, _, branches):
            return list(branches)
    return []


def written(block: Block) -> list[str]:
    """Variables and cells that a block assigns (what a loop only carries as well), in the order of their names."""
    found: set[str] = set()
    for statement in block:
        match statement:
            case ("set" | "put" | "update", name, *_):
                found.add(name)
            case ("swap", names):
                found.update(names)
            case ("scan", _, _, name, _, _, how):
                found.update((name, *how[0]))
            case ("for", _, _, _, _, how) | ("while", _, _, _, _, how):
                found.update(how[0])
        for inner in blocks(statement):
            found.update(written(inner))
    return sorted(found)


def words(tree: Any) -> Iterator[str]:
    """Every string of a description."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree:
            yield from words(part)
