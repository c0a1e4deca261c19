"""The CPU's artifact of a graph with its extents left open.

Enters: a graph, and the integers of others with the same skeleton (`graph.skeleton`). Leaves: an OpenProgram,
which makes the artifacts of further graphs with that skeleton by filling numbers in, where everything that was decided
for the first one comes out the same for them. These artifacts are equal to those that scheduling gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.extents.conditions import Conditions, conditions
from loopgrad.codegen.extents.decisions import ExtentDecisions, combined, of_integer
from loopgrad.codegen.extents.template import Fill, NotTemplated, Templates
from loopgrad.codegen.extents.variables import Variables
from loopgrad.codegen.targets.cpu.open_numbers import NumberedText, numbered
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord
from loopgrad.graph.nodes import Graph
from loopgrad.graph.skeleton import with_integers

WORD: Final = (1 << 64) - 1

Made = Artifact[CpuProgramRecord]


class OpenCode:
    """Machine code that takes the numbers at these positions of a text from a table; the others are as in `numbers`."""

    __slots__ = ("code", "numbers", "open")

    def __init__(self, code: bytes, open: Sequence[int], numbers: Sequence[str]) -> None:
        self.code = code
        self.open = sorted(open)
        self.numbers = numbers


class OpenProgram:
    """See the module. `text` gives the module's text, and `positions` are those of the table's numbers in it, for
    whoever compares."""

    def __init__(
        self, variables: Variables, holds: Conditions, first: Made, fill: Fill | None, table: Fill, text: Fill,
        positions: Sequence[int],
    ) -> None:  # fmt: skip
        self.variables = variables
        self.positions = positions
        self._holds = holds
        self._first = first
        self._fill = fill
        self._table = table
        self._text = text

    def atoms(self, integers: Sequence[int]) -> list[Any] | None:
        """What the program is filled with for a graph with these integers; None where it is another program."""
        symbols = self.variables.values(integers)
        return None if symbols is None else self._holds.atoms(symbols)

    def artifact(self, atoms: Sequence[Any]) -> Made:
        """The artifact for these atoms."""
        program = self._first.program if self._fill is None else self._fill(atoms)
        return Artifact(replace(program, table=self._table(atoms)), self._first.constants, self._first.code)

    def text(self, atoms: Sequence[Any]) -> str:
        found: str = self._text(atoms)
        return found


def open_program(
    graph: Graph,
    integers: Sequence[int],
    variables: Variables,
    make: Callable[[Graph], Made],
    code: Callable[[NumberedText], OpenCode | None],
) -> OpenProgram | None:
    """The program of `graph`, whose integers these are, open for other symbols; None where it can't be opened. `make`
    gives an artifact without code, and with its text; `code` what there is of machine code for a text."""
    decisions = ExtentDecisions(len(variables.places))
    made = make(with_integers(graph, variables.extents(decisions, integers)))
    templates = Templates(decisions)
    symbols = [integers[place] for place in variables.places]
    try:
        fill = templates.filling(made.program)
    except NotTemplated:
        return None
    same = made.texts["llvm"]
    text = templates.text(same) or (lambda _: same)
    values = Conditions(decisions.symbols, tuple(decisions.atoms), (), (), (), (), (), frozenset()).atoms(symbols)
    assert values is not None
    found = code(numbered(text(values)))
    parts = numbered(made.texts["llvm"])
    if found is None or len(found.numbers) != len(parts.numbers) or any(map(templates.text, parts.between)):
        return None
    table = _table(templates, parts, found, decisions)
    numbers = [value for _, value in variables.constants]
    holds = conditions(decisions, templates.used, numbers)
    first = Artifact(made.program, made.constants, found.code)
    return OpenProgram(variables, holds, first, fill, table, text, found.open)


def _table(templates: Templates, parts: NumberedText, code: OpenCode, decisions: ExtentDecisions) -> Fill:
    """What the code's table is. A number that depends on extents and isn't in it has to be as it is in the code."""
    open, words = set(code.open), dict[int, Fill]()
    for position, number in enumerate(parts.numbers):
        terms = templates.terms(number)
        if terms is None:
            continue
        if position in open:
            words[position] = templates.integer(terms)
        else:
            decisions.decide("eq", combined(terms, of_integer(int(code.numbers[position], 0)), -1), True)
    fixed = [int(parts.numbers[i], 0) & WORD if i not in words else None for i in code.open]
    filled = [(word, words[i]) for word, i in enumerate(code.open) if i in words]

    def table(values: Sequence[Any]) -> tuple[int, ...]:
        found: list[Any] = [*fixed]
        for word, fill in filled:
            found[word] = fill(values) & WORD
        return tuple(found)

    return table
