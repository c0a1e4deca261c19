"""What is computed with extents and what is decided by them, noted while a program is made.

Extents that may change are *symbols*. Whatever integers are computed of them is a polynomial of *atoms*: the symbols,
and results of what isn't adding and multiplying (quotients, remainders, numbers of bits, floats). A decision is a
comparison of a polynomial with 0 (of floats: an atom that is a bool), noted with how it came out.

    n, m are symbols                                    atoms 0, 1
    (8 * n + 63) // 64 * m                              8 n + 63 over 64 is atom 2; the polynomial {(1, 2): 1}
    if n * m < 4096                                     the condition {(0, 1): 1, (): -4096} < 0, and its outcome
"""

from __future__ import annotations

import operator
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, frexp, prod
from typing import Any, Final

from loopgrad.graph.types import rounded

Terms = tuple[tuple[tuple[int, ...], int], ...]
"""A polynomial: atoms that are multiplied (each as often as its power) and how often they are added up, sorted."""

Constant = int | float
Operand = Terms | Constant


def bits_of_double(value: float, bits: int) -> int:
    """Of the double that is equal to a number, rounded to a float of 32 or 64 bits."""
    return int.from_bytes(struct.pack("<d", rounded(value, bits)), "little")


OPERATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "bit_length": lambda value, _: value.bit_length(),
    "float": lambda value, _: float(value),
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "double_bits": bits_of_double,
    "rounded": rounded,
    "floor": lambda value, _: floor(value),
    "power_of_two": lambda value, _: abs(frexp(value)[0]) == 0.5,
    "lt": operator.lt,
    "eq": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Atom:
    """`OPERATIONS[operation]` of two operands; a float is the polynomial of its own atom alone."""

    operation: str
    left: Operand
    right: Operand


@dataclass(slots=True, eq=False)
class ExtentDecisions:
    """What was noted. `named`: polynomials that were looked up in a table, `written` those that are
    pieces of texts, with their values: as such, two may be told apart that are equal for other symbols."""

    symbols: int
    atoms: dict[Atom, int] = field(default_factory=dict)
    conditions: dict[tuple[str, Terms], bool] = field(default_factory=dict)
    named: dict[Terms, int] = field(default_factory=dict)
    pieces: dict[tuple[Terms, str], int] = field(default_factory=dict)
    written: dict[Terms, int] = field(default_factory=dict)

    def atom(self, operation: str, left: Operand, right: Operand = 0) -> int:
        return self.symbols + self.atoms.setdefault(Atom(operation, left, right), len(self.atoms))

    def decide(self, operation: str, terms: Terms, outcome: bool) -> bool:
        self.conditions[operation, terms] = outcome
        return outcome

    def piece(self, terms: Terms, form: str, value: int) -> int:
        """The number of a piece of text: what the polynomial is, in this format."""
        self.written[terms] = value
        return self.pieces.setdefault((terms, form), len(self.pieces))


def constant(terms: Terms) -> int | None:
    """The integer that a polynomial is whatever its atoms are."""
    if not terms:
        return 0
    return terms[0][1] if len(terms) == 1 and not terms[0][0] else None


def combined(a: Terms, b: Terms, factor: int = 1) -> Terms:
    """a + factor * b."""
    found = dict(a)
    for atoms, count in b:
        found[atoms] = found.get(atoms, 0) + factor * count
    return polynomial(found)


def multiplied(a: Terms, b: Terms) -> Terms:
    found: dict[tuple[int, ...], int] = {}
    for left, i in a:
        for right, j in b:
            atoms = tuple(sorted(left + right))
            found[atoms] = found.get(atoms, 0) + i * j
    return polynomial(found)


def polynomial(counts: Mapping[tuple[int, ...], int]) -> Terms:
    return tuple(sorted([(atoms, count) for atoms, count in counts.items() if count]))


def of_integer(value: int) -> Terms:
    return (((), value),) if value else ()


def parted(terms: Terms, divisor: int) -> tuple[Terms, Terms]:
    """Quotient and rest, such that terms = divisor * quotient + rest, of each count by itself."""
    quotient = {atoms: count // divisor for atoms, count in terms}
    rest = {atoms: count % divisor for atoms, count in terms}
    return polynomial(quotient), polynomial(rest)


def quotient_of(terms: Terms, divisor: Terms) -> Terms | None:
    """The polynomial that times a product of atoms, which isn't 0, is this one."""
    if len(divisor) != 1:
        return None
    ((below, count),) = divisor
    found: dict[tuple[int, ...], int] = {}
    for atoms, times in terms:
        left = Counter(atoms)
        left.subtract(below)
        if times % count or min(left.values(), default=0) < 0:
            return None
        found[tuple(sorted(left.elements()))] = times // count
    return polynomial(found)


def evaluated(terms: Terms, values: Sequence[Any]) -> Any:
    """A polynomial of these atoms."""
    total = 0
    for atoms, count in terms:
        if len(atoms) == 1:
            total += count * values[atoms[0]]
        else:
            total += count * prod([values[a] for a in atoms])
    return total
