"""Integers that note what is done with them, in the place of the extents of a program while it is made.

To Python's code an Extent is an int (`isinstance` says so); to everything that is written in C it is none, so whoever
takes it for one there (`range`, NumPy, a list's index) asks for `__index__`: from then on the program holds for this
value alone. Nothing reads an extent unnoticed.
"""

from __future__ import annotations

import re
from typing import Any, Final

from loopgrad.codegen.extents.decisions import (
    OPERATIONS,
    ExtentDecisions,
    Operand,
    Terms,
    bits_of_double,
    combined,
    constant,
    multiplied,
    of_integer,
    parted,
    quotient_of,
)

PIECE: Final = "314159265{:09d}"
"""An integer in texts that stands for a piece: as long as any, and one that programs don't have."""

INTEGER: Final = re.compile(r"-?\d+")
FLOAT: Final = re.compile(r"-?\d+(?:\.\d+(?:e[-+]\d+)?|e[-+]\d+)")
INTEGERS: Final = frozenset({int, bool})


class SymbolicNumber:
    """A number that depends on symbols."""

    __slots__ = ("decisions", "terms", "value")

    decisions: ExtentDecisions
    terms: Terms
    value: Any

    def __init__(self, decisions: ExtentDecisions, terms: Terms, value: Any) -> None:
        self.decisions = decisions
        self.terms = terms
        self.value = value

    def fixed(self) -> Any:
        """The value; the program holds for no other."""
        self._decided("eq", self.value)
        return self.value

    def _decided(self, operation: str, other: Any) -> bool:
        raise NotImplementedError

    def __hash__(self) -> int:
        self.decisions.named[self.terms] = self.value
        return hash(self.value)

    def __index__(self) -> int:
        found: int = self.fixed().__index__()
        return found

    def __int__(self) -> int:
        return int(self.fixed())

    def __trunc__(self) -> int:
        return int(self.fixed())

    def __float__(self) -> float:
        return float(self.fixed())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.fixed(), digits)

    def __ceil__(self) -> int:
        return self.fixed().__ceil__()  # type: ignore[no-any-return]

    def __floor__(self) -> int:
        return self.fixed().__floor__()  # type: ignore[no-any-return]

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        return pow(self.fixed(), plain(other), modulus)

    def __rpow__(self, other: Any) -> Any:
        return plain(other) ** self.fixed()

    def __reduce__(self) -> Any:
        raise TypeError("an extent that notes what is done with it can't leave the process")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.fixed(), name)

    def __eq__(self, other: object) -> bool:
        return self._decided("eq", other)

    def __ne__(self, other: object) -> bool:
        return not self._decided("eq", other)

    def __lt__(self, other: Any) -> bool:
        return self._decided("lt", other)

    def __ge__(self, other: Any) -> bool:
        return not self._decided("lt", other)


def plain(number: Any) -> Any:
    """What a number is, fixed where it depends on symbols."""
    return number.fixed() if type(number) in (Extent, Measure) else number


class Measure(SymbolicNumber):
    """A float."""

    __slots__ = ()
    __hash__ = SymbolicNumber.__hash__

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def _new(self, operation: str, left: Any, right: Any) -> Any:
        return measured(self.decisions, operation, left, right)

    def __add__(self, other: Any) -> Any:
        return self._new("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._new("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._new("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._new("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._new("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._new("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._new("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._new("truediv", other, self)

    def __neg__(self) -> Any:
        return self._new("mul", self, -1.0)

    def __bool__(self) -> bool:
        return not self._decided("eq", 0.0)

    def __gt__(self, other: Any) -> bool:
        return _compared(self.decisions, "lt", other, self)

    def __le__(self, other: Any) -> bool:
        return not _compared(self.decisions, "lt", other, self)

    def _decided(self, operation: str, other: Any) -> bool:
        return _compared(self.decisions, operation, self, other)

    def double_bits(self, bits: int) -> Any:
        """Of the double that is equal to it, rounded to a float of so many bits."""
        value = OPERATIONS["double_bits"](self.value, bits)
        return Extent(self.decisions, (((self.decisions.atom("double_bits", self.terms, bits),), 1),), value)

    def __floor__(self) -> Any:
        atom = self.decisions.atom("floor", self.terms)
        return Extent(self.decisions, (((atom,), 1),), OPERATIONS["floor"](self.value, 0))

    def rounded(self, bits: int) -> Any:
        """As a float of so many bits."""
        return self if bits == 64 else measured(self.decisions, "rounded", self, bits)

    def power_of_two(self) -> bool:
        """Whether its size is one."""
        outcome = OPERATIONS["power_of_two"](self.value, 0)
        atom = self.decisions.atom("power_of_two", self.terms)
        return not self.decisions.decide("eq", (((atom,), 1),), not outcome)

    def __repr__(self) -> str:
        return Piece(self, PIECE.format(self.decisions.piece(self.terms, "", self.value)))

    def __format__(self, form: str) -> str:
        return format(self.fixed(), form)


class Extent(SymbolicNumber):
    """An integer."""

    __slots__ = ()
    __hash__ = SymbolicNumber.__hash__

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def _of(self, terms: Terms, value: int) -> Any:
        known = constant(terms)
        return Extent(self.decisions, terms, value) if known is None else known

    def _atom(self, operation: str, left: Operand, right: Operand, value: int) -> Any:
        return Extent(self.decisions, ((((self.decisions.atom(operation, left, right)),), 1),), value)

    def __add__(self, other: Any) -> Any:
        if (terms := _terms(other)) is None:
            return _floating(self.decisions, "add", self, other)
        return self._of(combined(self.terms, terms), self.value + _value(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if (terms := _terms(other)) is None:
            return _floating(self.decisions, "sub", self, other)
        return self._of(combined(self.terms, terms, -1), self.value - _value(other))

    def __rsub__(self, other: Any) -> Any:
        if (terms := _terms(other)) is None:
            return _floating(self.decisions, "sub", other, self)
        return self._of(combined(terms, self.terms, -1), _value(other) - self.value)

    def __mul__(self, other: Any) -> Any:
        if (terms := _terms(other)) is None:
            return _floating(self.decisions, "mul", self, other)
        return self._of(multiplied(self.terms, terms), self.value * _value(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return _floating(self.decisions, "truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _floating(self.decisions, "truediv", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _divided(self, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        return _divided(other, self)[0]

    def __mod__(self, other: Any) -> Any:
        return _divided(self, other)[1]

    def __rmod__(self, other: Any) -> Any:
        return _divided(other, self)[1] if type(other) in INTEGERS else other % self.fixed()

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return _divided(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return _divided(other, self)

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __invert__(self) -> Any:
        return -self - 1

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << plain(other))

    def __rlshift__(self, other: Any) -> Any:
        return plain(other) << self.fixed()

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << plain(other))

    def __rrshift__(self, other: Any) -> Any:
        return plain(other) >> self.fixed()

    def __and__(self, other: Any) -> Any:
        mask = plain(other)
        if mask > 0 and mask & (mask + 1) == 0:
            return self % (mask + 1)
        return self._atom("and", self.terms, mask, self.value & mask)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        other = plain(other)
        return self._atom("or", self.terms, other, self.value | other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Any:
        other = plain(other)
        return self._atom("xor", self.terms, other, self.value ^ other)

    __rxor__ = __xor__

    def bit_length(self) -> Any:
        return self._atom("bit_length", self.terms, 0, self.value.bit_length())

    def __bool__(self) -> bool:
        return not self._decided("eq", 0)

    def __gt__(self, other: Any) -> bool:
        if (terms := _terms(other)) is None:
            return _compared(self.decisions, "lt", other, self)
        return _decide(self.decisions, "lt", combined(terms, self.terms, -1), _value(other) < self.value)

    def __le__(self, other: Any) -> bool:
        return not self > other

    def _decided(self, operation: str, other: Any) -> bool:
        if (terms := _terms(other)) is None:
            return _compared(self.decisions, operation, self, other)
        outcome = OPERATIONS[operation](self.value, _value(other))
        return _decide(self.decisions, operation, combined(self.terms, terms, -1), outcome)

    def __repr__(self) -> str:
        return self._piece("")

    def __format__(self, form: str) -> str:
        return self._piece(form)

    def _piece(self, form: str) -> str:
        return Piece(self, PIECE.format(self.decisions.piece(self.terms, form, self.value)))


class Piece(str):
    """The text of an extent, or of a float. Compared with the text of another number of its kind it is what the numbers
    are."""

    extent: Extent | Measure

    def __new__(cls, extent: Extent | Measure, text: str) -> Piece:
        piece = super().__new__(cls, text)
        piece.extent = extent
        return piece

    def __hash__(self) -> int:
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        kind = type(self.extent)
        if type(other) is Piece:
            return kind is type(other.extent) and self.extent == other.extent
        form, number = (INTEGER, int) if kind is Extent else (FLOAT, float)
        return isinstance(other, str) and form.fullmatch(other) is not None and self.extent == number(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __int__(self) -> int:
        return int(self.extent)


def representative(number: Any) -> Any:
    """The number itself, for a choice that any program may make, and that size alone decides: the program holds for
    numbers of as many bits."""
    if type(number) is not Extent:
        return number
    number.bit_length().fixed()
    return number.value


def double_bits(value: Any, bits: int) -> int:
    """Of the double that is equal to a number, rounded to a float of 32 or 64 bits."""
    if type(value) is Measure:
        return value.double_bits(bits)  # type: ignore[no-any-return]
    return bits_of_double(value, bits)


def integer_of(text: str) -> int:
    """The integer of a text."""
    return text.extent if type(text) is Piece else int(text)  # type: ignore[return-value]  # to Python an Extent is one


def _terms(number: Any) -> Terms | None:
    """The polynomial of an integer."""
    kind = type(number)
    if kind is Extent:
        found: Terms = number.terms
        return found
    return of_integer(int(number)) if kind in INTEGERS else None


def _value(number: Any) -> Any:
    return number.value if type(number) in (Extent, Measure) else number


def _decide(decisions: ExtentDecisions, operation: str, terms: Terms, outcome: bool) -> bool:
    return outcome if constant(terms) is not None else decisions.decide(operation, terms, outcome)


def _divided(left: Any, right: Any) -> tuple[Any, Any]:
    """Quotient and rest of integers."""
    decisions: ExtentDecisions = (left if type(left) is Extent else right).decisions
    a, b = _terms(left), _terms(right)
    if a is None or b is None:
        found: tuple[Any, Any] = divmod(plain(left), plain(right))
        return found
    divisor = constant(b)
    known = divmod(_value(left), _value(right))
    exact = quotient_of(a, b) if divisor is None else None
    if exact is not None and not _decide(decisions, "eq", b, not _value(right)):
        return (Extent(decisions, exact, known[0]) if constant(exact) is None else known[0]), 0
    if divisor is None or divisor <= 0:
        quotient = Extent(decisions, (((decisions.atom("floordiv", a, b),), 1),), known[0])
        rest = Extent(decisions, (((decisions.atom("mod", a, b),), 1),), known[1])
        return quotient, rest
    whole, over = parted(a, divisor)
    few = constant(over)
    if few is not None:  # 0 <= few < divisor
        return (Extent(decisions, whole, known[0]) if constant(whole) is None else known[0]), few
    atom = (((decisions.atom("floordiv", over, divisor),), 1),)
    quotient = Extent(decisions, combined(whole, atom), known[0])
    return quotient, Extent(decisions, (((decisions.atom("mod", over, divisor),), 1),), known[1])


# ---- floats


def _floating(decisions: ExtentDecisions, operation: str, left: Any, right: Any) -> Any:
    """An operation with a float; what else there is takes the value."""
    allowed = (*INTEGERS, float, Extent, Measure)
    if type(left) in allowed and type(right) in allowed:
        return measured(decisions, operation, left, right)
    return OPERATIONS[operation](plain(left), plain(right))


def measured(decisions: ExtentDecisions, operation: str, left: Any, right: Any) -> Any:
    value = OPERATIONS[operation](_value(left), _value(right))
    return Measure(decisions, (((decisions.atom(operation, _operand(left), _operand(right)),), 1),), value)


def _compared(decisions: ExtentDecisions, operation: str, left: Any, right: Any) -> bool:
    """A comparison with a float, or with what is no number."""
    if type(left) not in (*INTEGERS, float, Extent, Measure) or type(right) not in (*INTEGERS, float, Extent, Measure):
        other = right if type(left) in (Extent, Measure) else left
        if operation == "eq" and not hasattr(other, "__index__") and not hasattr(other, "__float__"):
            return False
        outcome: bool = OPERATIONS[operation](plain(left), plain(right))
        return outcome
    found = bool(OPERATIONS[operation](_value(left), _value(right)))
    atom = decisions.atom(operation, _operand(left), _operand(right))
    return decisions.decide("lt", (((), -1), ((atom,), 1)), not found) is False  # a bool minus 1 is less than 0: False


def _operand(number: Any) -> Operand:
    if type(number) in (Extent, Measure):
        found: Terms = number.terms
        return found
    operand: Operand = number
    return operand
