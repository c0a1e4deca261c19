"""What a noted value is computed as, without its leaves and numbers: equal expressions are one object (hash consing).

    a * 2.5 + b        add(mul(float64[4], number), float64[4])        whatever a, b and the number are

Operators find the expression of what they note among those that were made of their operand's before (`further`), so
that a line that comes again is recognised by one look at the value that it ends in. Two values have one expression only
where `structure` gives their graphs the same words once it is known which leaves are the same, and that no value on the
way is read twice: an expression is a tree. The numbers are those that `lift` opens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from sys import getrefcount
from types import CodeType
from typing import Any, Final
from weakref import WeakValueDictionary

from loopgrad.graph.key import RAISING
from loopgrad.graph.lift import BAKED, POSITIONS, open_axes, open_number
from loopgrad.graph.nodes import NO_ATTRS, NODE, CallAttributes, Leaf, Location, Noted, Value
from loopgrad.graph.structure import noted_attr_words
from loopgrad.graph.types import TensorType, float64, scalar_text

LARGEST: Final = 200  # operations of an expression, each counted as often as it is read
MOST: Final = 1 << 16  # expressions, before all are forgotten

NumberWord = float | str | None
Taken = Callable[[Sequence[Any]], tuple[Any, ...]]


Site = tuple[CodeType | None, int, Location | None]
NOWHERE: Final[Site] = (None, 0, None)


class Expression:
    """`operands`: expressions, and words of numbers. `open`: how many numbers the
    attributes have. `size`: its operations. `further`: what was computed of it, and what upper layers note of that.
    `known`: of upper layers, unread here. `site`: the instruction of the user's that noted it last, and its location. A
    leaf has a type only."""

    __slots__ = ("__weakref__", "_places", "further", "known", "op", "open", "operands", "site", "size", "type")

    def __init__(self, type: Any, op: str = "", operands: tuple[Any, ...] = (), open: int = 0) -> None:
        self.type = type
        self.op = op
        self.operands = operands
        self.open = open
        self.size: int = bool(op) + sum([x.size for x in operands if isinstance(x, Expression)])
        self.further: dict[Any, Any] = {}
        self.known: Any = None
        self.site = NOWHERE
        self._places: Places | None = None

    @property
    def places(self) -> Places:
        """Where its parts are."""
        if self._places is None:
            self._places = Places(self)
        return self._places


OPAQUE: Final = Expression(None)  # of what is too large, or no value of notes and leaves


class _Made:
    """The expressions of leaves by the identity of their types, which are looked up in a fourth of the time that their
    hash takes, and by the types; those of operations without operands; and how many there are of all kinds."""

    def __init__(self) -> None:
        self.by_identity: dict[int, tuple[TensorType, Expression]] = {}
        self.by_type: WeakValueDictionary[TensorType, Expression] = WeakValueDictionary()
        self.nullary: dict[Any, Expression] = {}
        self.count = 0

    def of_type(self, type: TensorType) -> Expression:
        found = self.by_identity.get(id(type))
        if found is None:
            if len(self.by_identity) >= MOST:
                self.by_identity.clear()
            expression = self.by_type.get(type)
            if expression is None:
                expression = self.by_type.setdefault(type, Expression(type))
                self.counted()
            found = self.by_identity[id(type)] = type, expression
        return found[1]

    def counted(self) -> None:
        """One more; all are forgotten where that are too many, but those that values refer to."""
        self.count += 1
        if self.count > MOST:
            self.count = 0
            self.by_identity.clear()
            self.nullary.clear()
            for leaf in [*self.by_type.values()]:
                leaf.further.clear()


_MADE: Final = _Made()


def places_of(expression: Expression) -> int:
    """Along how many of the first axes an expression takes one place each of a value, and all of the others, as far as
    types say (`graph.build.emit_element`, `places_again`); 0 where it is another."""
    inner = expression.operands[0] if expression.op == "reshape" else None
    if not isinstance(inner, Expression) or inner.op != "slice":
        return 0
    given, taken, kept = inner.operands[0].type.shape, inner.type.shape, expression.type.shape
    count = len(given) - len(kept)
    return count if count > 0 and taken == (1,) * count + kept and given[count:] == kept else 0


def leaf_expression(type: TensorType) -> Expression:
    """That of leaves of a type."""
    return _MADE.of_type(type)


def expression_of(value: Value) -> Expression:
    """The expression of a value of the top level; OPAQUE where it has none."""
    known: Expression | None = value.expression
    if known is not None:
        return known
    pending = [value]
    while pending:
        v = pending[-1]
        if type(v) is Noted and v.expression is None:
            missing = [x for x in v.note[1] if type(x) is not float and x.expression is None]
            if missing:
                pending += missing
                continue
            v.expression = _noted_expression(v)
        elif v.expression is None:
            plain = isinstance(v, Leaf) and type(v.type) is TensorType
            v.expression = _MADE.of_type(v.type) if plain else OPAQUE  # type: ignore[arg-type]
        pending.pop()
    found: Expression = value.expression
    return found


def _noted_expression(value: Noted) -> Expression:
    op, operands, attrs, loc = value.note[:NODE]
    parts = [number_word(x) if type(x) is float else x.expression for x in operands]
    if OPAQUE in parts or type(value.type) is not TensorType:
        return OPAQUE
    base = next((x for x in parts if isinstance(x, Expression)), None)
    key: tuple[Any, ...] = (op, *parts[1:]) if parts and parts[0] is base else (*parts[:1], op)
    left_open: list[float | int] = []
    if attrs is not NO_ATTRS:
        key += (noted_attr_words(value, left_open),)
    if op in RAISING and type(attrs) is not CallAttributes:
        key += (loc,)
    return made_of(_MADE.nullary if base is None else base.further, key, value.type, op, tuple(parts), len(left_open))


def of_two(a: Expression, op: str, b: Expression, type: TensorType) -> Expression:
    """The expression of an operation without attributes on two values."""
    return OPAQUE if a is OPAQUE or b is OPAQUE else made_of(a.further, (op, b), type, op, (a, b))


def beside(a: Expression, op: str, word: NumberWord, first: bool, type: TensorType) -> Expression:
    """The expression of an operation without attributes on a value and a number, which may come first."""
    if a is OPAQUE:
        return OPAQUE
    key, operands = ((word, op), (word, a)) if first else ((op, word), (a, word))
    return made_of(a.further, key, type, op, operands)


def number_word(number: float) -> NumberWord:
    """What an expression says of a number: None where that is left open."""
    if number in BAKED:
        return number or scalar_text(number)  # a zero has a sign
    return None if number - number == 0.0 else scalar_text(number)


def made_of(
    further: dict[Any, Expression], key: Any, type: TensorType, op: str, operands: tuple[Any, ...], open: int = 0
) -> Expression:
    """The expression with that key; a new one where there is none."""
    found = further.get(key)
    if found is None:
        found = Expression(type, op, operands, open)
        if found.size > LARGEST:
            return OPAQUE
        found = further.setdefault(key, found)
        _MADE.counted()
    return found


class Places:
    """Where an expression has its parts, once `gathered` has listed them: first the value, then for one value after
    the other its operands and the numbers that its attributes leave open. `inner` takes the values on the way and
    `leaves` the leaves, both as often as the expression has them; `inner_places` and `leaf_places` are where."""

    __slots__ = ("_attributes", "_children", "_open", "_order", "inner", "inner_places", "leaf_places", "leaves")

    def __init__(self, expression: Expression) -> None:
        parts: list[Any] = [expression]
        self._order: list[int] = []
        self._attributes = False
        self._children: dict[int, tuple[range, int]] = {}  # and how many numbers follow them
        for i, part in enumerate(parts):  # which grows
            if isinstance(part, Expression) and part.op:
                self._order.append(i)
                self._attributes = self._attributes or part.open > 0
                self._children[i] = range(len(parts), len(parts) + len(part.operands)), part.open
                parts += (*part.operands, *[None] * part.open)
        self._open = frozenset([i for i, part in enumerate(parts) if part is None])
        self.inner_places = self._order[1:]
        self.leaf_places = [i for i, part in enumerate(parts) if isinstance(part, Expression) and not part.op]
        self.inner, self.leaves = taker(self.inner_places), taker(self.leaf_places)

    @property
    def steps(self) -> list[tuple[int, range, int]]:
        """The place of each value, those of its operands, and how many numbers follow these, in order."""
        return [(i, *self._children[i]) for i in self._order]

    def gathered(self, value: Noted) -> list[Any] | None:
        """The parts of a value with this expression; None where the elements of one on the way are known."""
        parts: list[Any] = [value]
        for i in self._order:
            v = parts[i]
            if v.known is not None:
                return None
            note = v.note
            parts += note[1]
            if self._attributes and note[2] is not NO_ATTRS:
                parts += open_numbers(v)
        return parts if len(value.note) == NODE else None

    def met(self, parts: Sequence[Any]) -> tuple[list[int], list[int], list[int]]:
        """The places of the leaves, of the values on the way and of the numbers, in the order in which
        `structure.noted_structure` meets them: what is read twice once."""
        leaves: list[int] = []
        inner: list[int] = []
        numbers: list[int] = []
        seen: set[Value] = set()
        pending = [0]
        while pending:
            i = pending.pop()
            if i in self._open:
                numbers.append(i)
            elif isinstance(parts[i], Value) and parts[i] not in seen:
                seen.add(parts[i])
                if i in self._children:
                    children, open = self._children[i]
                    inner.append(i)
                    numbers += range(children.stop, children.stop + open)
                    pending += children
                else:
                    leaves.append(i)
        return leaves, inner[1:], numbers

    def counts(self, parts: Sequence[Any]) -> list[int]:
        """What `getrefcount` gives for each of the values that `inner` takes, in `gathered` parts, where only these
        values refer to each other."""
        inner = self.inner(parts)
        readers = {parts[i]: i for i in self._order}.values()
        reads = [parts[child] for i in readers for child in self._children[i][0]]
        return [ONCE + 2 * (inner.count(v) - 1) + reads.count(v) - 1 for v in inner]


def open_numbers(value: Noted) -> list[float | int]:
    """The numbers that an expression leaves open in the attributes of a value."""
    op, operands, attrs = value.note[:3]
    if op == "const":
        number = open_number(attrs)
        return [] if number is None else [number]
    if op not in POSITIONS:
        return []
    first = attrs[POSITIONS[op][0]]
    return [first[a] for a in open_axes(op, attrs, operands[0].shape, value.shape)]


def taker(places: Sequence[int]) -> Taken:
    """What takes the parts at these places, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return (lambda parts: (parts[places[0]],)) if places else _nothing


def _nothing(_: Sequence[Any]) -> tuple[Any, ...]:
    return ()


def _once() -> int:
    """What `getrefcount` gives for a value that one note reads and whose place is taken once."""
    inner = [Noted(TensorType((), float64), "alias", (), NO_ATTRS, None) for _ in range(2)]
    parts: list[Any] = [Noted(TensorType((), float64), "add", tuple(inner), NO_ATTRS, None)]
    del inner
    parts += parts[0].note[1]
    taken = taker((1, 2))(parts)
    return next(map(getrefcount, taken))


ONCE: Final = _once()
