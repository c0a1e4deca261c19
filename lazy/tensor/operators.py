"""Python's operators on tensors.

Tracing speed is decided here: the common cases (two tensors of one type, a float tensor and a Python
number) build their node at once, everything else goes through the array function. Of these, what was computed of such
operands before at the top level has an expression (`graph.expressions`): the operation needs only be noted.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import _getframe
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import ref

import numpy as np

from loopgrad.graph.ambient import AMBIENT, References
from loopgrad.graph.build import emit_alike, emit_beside
from loopgrad.graph.errors import explained
from loopgrad.graph.expressions import OPAQUE, Expression, number_word
from loopgrad.graph.lift import BAKED
from loopgrad.graph.location import LOCATIONS, user_location
from loopgrad.graph.nodes import NO_ATTRS, Location, Noted, Value
from loopgrad.graph.python_numbers import stands_for_number
from loopgrad.graph.types import DType, bfloat16, bool_, float64, int64
from loopgrad.lazy.numpy import elementwise, matrix_products
from loopgrad.lazy.tensor.core import PYTHON_SCALARS, TensorCore, cast_value, forget_dead, note_holder, wrap
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.outputs import assign

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

Function: TypeAlias = "Callable[[Any, Any], Tensor]"
Method: TypeAlias = "Callable[[Any, Any], Tensor]"

_new: Final = object.__new__
_OPERANDS: Final = (TensorCore, np.ndarray, np.generic, bool, int, float, complex, list, tuple)


def _wrapped(like: Any, value: Value, weak: bool) -> Any:
    """`core.wrap` for a value that a node has just given."""
    result = _new(type(like))
    result._value = value
    result._weak = weak
    result._history = None
    result._view = None
    if value.scope is None:
        note_holder(result, value)
    return result


def _again(cls: Any, op: str, operands: tuple[Any, ...], found: Expression, weak: bool, live: References) -> Any:
    """The tensor of an operation at the top level whose expression is known: what `emit_alike` or `emit_beside`,
    `user_location` and `_wrapped` make, in one function, since scripts consist of these. Its caller is a method that
    the user's line calls."""
    value: Noted = _new(Noted)
    value.type = found.type
    value.index = 0
    value.known = value.scope = None
    value.expression = found
    frame = _getframe(2)
    code, instruction, loc = found.site
    if instruction != frame.f_lasti or code is not frame.f_code:
        loc = _location(frame, found)
    value.note = [op, operands, NO_ATTRS, loc]
    result = _new(cls)
    result._value = value
    result._weak = weak
    result._history = result._view = None
    value.holder = reference = ref(result)
    live.append(reference)
    if len(live) > live.limit:
        forget_dead(live)
    return result


def _location(frame: FrameType, found: Expression) -> Location | None:
    """The user's line for what `_again` notes, which looks there first the next time: the same line in most scripts."""
    loc = LOCATIONS[id(frame.f_code)][frame.f_lasti]
    if loc is None:  # it isn't known, or the line of a library's, and the user's is further up
        return user_location(3)
    found.site = frame.f_code, frame.f_lasti, loc
    return loc


def _beside(one: Expression, key: object, op: str, other: float, first: bool = False) -> Any:
    """The number, as a float, and the expression of an operation on a value and it, where that is known; the next look
    at this `key` finds them and needs only see whether it is the same number. (As it is where text has it.)"""
    number = float(other)
    word = None if number not in BAKED and number - number == 0.0 else number_word(number)
    found = one.further.get((word, op) if first else (op, word))
    if found is None:
        return None
    latest = one.further[key] = other, number, found
    return latest


def _binary(op: str, function: Function, kinds: str) -> tuple[Method, Method]:
    """The operator and its reflection; `kinds` are the dtype kinds whose result has the operands' dtype
    (or is a bool, for comparisons). Beside a bfloat16 a number is rounded before it is noted (`core.constant`)."""

    floats = "f" in kinds
    function = _of_numbers(function, kinds)
    # With these an expression knows what this operator gave, and the reflected one: of the same dtypes, or the same
    # number.
    mine, behind = object(), object()

    def method(self: Any, other: Any) -> Any:
        a, cls = self._value, type(other)
        one: Expression | None = a.expression
        if cls is type(self):
            b, weak = other._value, self._weak
            two = b.expression
            if one is not None and weak is other._weak and (live := AMBIENT.plain) is not None:
                found = one.further.get((mine, two))
                if found is not None:
                    return _again(cls, op, (a, b), found, weak, live)
            t, u = a.type, b.type
            if t is not u and (t.dtype is not u.dtype or t.shape != u.shape):
                return function(self, other)
            if weak is not other._weak or t.dtype.kind not in kinds:
                return function(self, other)
            value = emit_alike(op, a, b, t)
            if value.expression is not None and value.expression is not OPAQUE:
                a.expression.further[mine, b.expression] = value.expression
            return _wrapped(self, value, weak)
        latest = None if one is None else one.further.get(mine)
        if latest is not None and latest[0] is other and (live := AMBIENT.plain) is not None:
            return _again(self.__class__, op, (a, latest[1]), latest[2], self._weak, live)
        if floats and _is_beside(cls, dtype := a.type.dtype, self._weak) and dtype is not bfloat16:
            if one is not None and (live := AMBIENT.plain) is not None:
                latest = _beside(one, mine, op, other)
                if latest is not None:
                    return _again(self.__class__, op, (a, latest[1]), latest[2], self._weak, live)
            return _wrapped(self, emit_beside(op, a, other, False, a.type), self._weak)
        return function(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def reflected(self: Any, other: Any) -> Any:
        a, cls = self._value, type(other)
        one: Expression | None = a.expression
        latest = None if one is None else one.further.get(behind)
        if latest is not None and latest[0] is other and (live := AMBIENT.plain) is not None:
            return _again(self.__class__, op, (latest[1], a), latest[2], self._weak, live)
        if floats and _is_beside(cls, dtype := a.type.dtype, self._weak) and dtype is not bfloat16:
            if one is not None and (live := AMBIENT.plain) is not None:
                latest = _beside(one, behind, op, other, True)
                if latest is not None:
                    return _again(self.__class__, op, (latest[1], a), latest[2], self._weak, live)
            return _wrapped(self, emit_beside(op, a, other, True, a.type), self._weak)
        return function(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    return method, reflected


def _is_beside(cls: type, dtype: DType, weak: bool) -> bool:
    """Whether what is computed of elements and a number of this class has their dtype, which is a float: one of
    Python's, or one of NumPy's of the same dtype."""
    if cls is float or cls is int:
        return dtype.kind == "f"
    return cls is np.float64 and dtype is float64 and not weak


def _of_numbers(function: Function, kinds: str = "") -> Function:
    """A function of two operands as an operator: of Python numbers, and tensors that stand for them, Python's operator
    gives such a number, whose dtype is open; of NumPy's function it is settled. `kinds`: see `_binary`; bools are ints
    to other operators than those of bools."""

    def operator(x: Any, y: Any) -> Tensor:
        if not (_is_open(x) and _is_open(y)):
            return function(x, y)
        if "b" not in kinds:
            x, y = _integer(x), _integer(y)
        result = function(x, y)
        return wrap(result._value, True)

    return operator


def _is_open(x: Any) -> bool:
    return x._weak if isinstance(x, TensorCore) else type(x) in PYTHON_SCALARS


def _integer(x: Any) -> Any:
    """A bool that stands for Python's as an int."""
    if isinstance(x, TensorCore) and x._value.dtype is bool_ and stands_for_number(x._value):
        return wrap(cast_value(x._value, int64), True)
    return x


def _comparison(op: str, function: Function) -> Method:
    either = op in ("eq", "ne")  # the others mean something else for complex numbers
    mine = object()  # see _binary
    function = _of_numbers(function)

    def method(self: Any, other: Any) -> Any:
        a, cls = self._value, type(other)
        t, one = a.type, a.expression
        live = None if one is None else AMBIENT.plain
        if cls is type(self):
            b = other._value
            if t is b.type and self._weak is other._weak and (either or t.dtype.kind != "c"):
                if live is not None and (found := one.further.get((op, b.expression))) is not None:
                    return _again(cls, op, (a, b), found, self._weak, live)
                return _wrapped(self, emit_alike(op, a, b, None), self._weak)
        elif _is_beside(cls, t.dtype, self._weak):
            if live is not None:
                latest = one.further.get(mine)
                if latest is None or latest[0] is not other:
                    latest = _beside(one, mine, op, other)
                if latest is not None:
                    return _again(self.__class__, op, (a, latest[1]), latest[2], self._weak, live)
            return _wrapped(self, emit_beside(op, a, other), self._weak)
        return function(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    return method


def unary_operator(function: Callable[..., Tensor], on_bools: bool = False) -> Callable[..., Tensor]:
    """A function of one operand as a method. Where it isn't one `on_bools`, Python's are ints to it."""

    def method(self: Any, *options: Any, **named: Any) -> Tensor:
        if not self._weak:
            return function(self, *options, **named)
        return wrap(function(self if on_bools else _integer(self), *options, **named)._value, True)

    method.__doc__ = function.__doc__
    return method


def _power(x: Any, y: Any, modulus: Any = None) -> Any:
    if modulus is not None:
        raise TypeError(explained("pow", "two arguments where one is a tensor", "three", "write x**y % z"))
    if not isinstance(y, _OPERANDS):
        return NotImplemented
    return _to_the_power(x, y)


def _power_reflected(x: Any, y: Any) -> Any:
    if not isinstance(y, _OPERANDS):
        return NotImplemented
    return _to_the_power(y, x)


_to_the_power: Final = _of_numbers(elementwise.power)
_quotient: Final = _of_numbers(elementwise.floor_divide)
_rest: Final = _of_numbers(elementwise.remainder)


def _in_place(sign: str, method: Method) -> Method:
    """`x += y`: writes to x, whose dtype and shape stay; a number is replaced, as Python's and NumPy's are."""

    def in_place(self: Any, other: Any) -> Any:
        result = method(self, other)
        if result is NotImplemented or (self._view is None and not self._value.shape):
            return result
        return assign(sign, self, result)

    return in_place


def _round(self: Any, decimals: int | None = None) -> Any:
    result = elementwise.round(self, decimals or 0)
    if not self._weak:
        return result
    value = result._value
    if decimals is None and value.dtype.is_float and stands_for_number(self._value):
        value = cast_value(value, int64)  # what Python's `round` makes of a float
    return wrap(_integer(result)._value if value.dtype is bool_ else value, True)


def _whole(function: Callable[[Any], Tensor]) -> Callable[[Any], Any]:
    """What `math.floor` and its like give: an int, as of NumPy's numbers; of a value that is traced a tensor."""

    def method(self: Any) -> Any:
        result = function(self)
        return int(to_numpy(result, "int").item()) if result._value.scope is None and result.size == 1 else result

    return method


class Operators(TensorCore):
    """What Python's operators do."""

    __slots__ = ()

    __add__, __radd__ = _binary("add", elementwise.add, "iufc")
    __sub__, __rsub__ = _binary("sub", elementwise.subtract, "iufc")
    __mul__, __rmul__ = _binary("mul", elementwise.multiply, "iuf")
    __truediv__, __rtruediv__ = _binary("div", elementwise.divide, "f")
    __floordiv__, __rfloordiv__ = _binary("floordiv", elementwise.floor_divide, "iuf")
    __mod__, __rmod__ = _binary("mod", elementwise.remainder, "iuf")
    __and__, __rand__ = _binary("and", elementwise.bitwise_and, "biu")
    __or__, __ror__ = _binary("or", elementwise.bitwise_or, "biu")
    __xor__, __rxor__ = _binary("xor", elementwise.bitwise_xor, "biu")
    __lshift__, __rlshift__ = _binary("shl", elementwise.bitwise_left_shift, "iu")
    __rshift__, __rrshift__ = _binary("shr", elementwise.bitwise_right_shift, "iu")
    __matmul__, __rmatmul__ = _binary("matmul", matrix_products.matmul, "")
    __pow__ = _power
    __rpow__ = _power_reflected

    __iadd__ = _in_place("+=", __add__)
    __isub__ = _in_place("-=", __sub__)
    __imul__ = _in_place("*=", __mul__)
    __itruediv__ = _in_place("/=", __truediv__)
    __ifloordiv__ = _in_place("//=", __floordiv__)
    __imod__ = _in_place("%=", __mod__)
    __iand__ = _in_place("&=", __and__)
    __ior__ = _in_place("|=", __or__)
    __ixor__ = _in_place("^=", __xor__)
    __ilshift__ = _in_place("<<=", __lshift__)
    __irshift__ = _in_place(">>=", __rshift__)
    __imatmul__ = _in_place("@=", __matmul__)
    __ipow__ = _in_place("**=", __pow__)

    __eq__ = _comparison("eq", elementwise.equal)  # type: ignore[assignment]
    __ne__ = _comparison("ne", elementwise.not_equal)  # type: ignore[assignment]
    __lt__ = _comparison("lt", elementwise.less)
    __le__ = _comparison("le", elementwise.less_equal)
    __gt__ = _comparison("gt", elementwise.greater)
    __ge__ = _comparison("ge", elementwise.greater_equal)
    __hash__ = None  # type: ignore[assignment]  # == compares elements

    __neg__ = unary_operator(elementwise.negative)
    __pos__ = unary_operator(elementwise.positive)
    __abs__ = unary_operator(elementwise.absolute)
    __invert__ = unary_operator(elementwise.bitwise_invert, on_bools=True)
    __round__ = _round
    __floor__ = _whole(elementwise.floor)
    __ceil__ = _whole(elementwise.ceil)
    __trunc__ = _whole(elementwise.trunc)

    def __divmod__(self, other: Any) -> Any:
        return _quotient(self, other), _rest(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return _quotient(other, self), _rest(other, self)
