"""What decides which operations a call notes, as words: of tensors what they are computed as, plain arguments, and what
users' functions read (`lazy.tensor.function_words`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Final

import numpy as np

from loopgrad.graph.expressions import OPAQUE, Expression, expression_of
from loopgrad.graph.nodes import Leaf, Value
from loopgrad.graph.types import DType, int64
from loopgrad.lazy.tensor.core import TensorCore
from loopgrad.lazy.tensor.function_words import Reached, function_parts

MOST_OPERANDS: Final = 24
MOST_WORDS: Final = 512  # a list may hold itself
MOST_BYTES: Final = 1 << 10  # of an array that a function reads
NUMBERS: Final = frozenset({bool, int, float, complex})  # classes that stand for dtypes
PLAIN: Final = frozenset({int, bool, str, NoneType, DType})


def call_words(
    args: Sequence[Any], options: Mapping[str, Any], tensors: list[TensorCore], operands: list[Value]
) -> tuple[Any, ...] | None:
    """What decides which operations a call notes; None where more does. Its tensors are listed, and their values, each
    once; also those that its functions read. The first word says whether it has functions of the user's."""
    found = _CallWords(tensors, operands)
    if not found.add(args):
        return None
    for name, x in options.items():
        found.words.append(name)
        if not found.add((x,)):
            return None
    if found.reached is not None and not found.reached.sure:
        return None
    return (found.reached is not None, *found.words) if len(operands) <= MOST_OPERANDS else None


class _CallWords:
    """`reached`: what the call's functions lead to, where it has any; `within`: whether words are of what such a
    function reads, which it might change."""

    __slots__ = ("operands", "reached", "tensors", "within", "words")

    def __init__(self, tensors: list[TensorCore], operands: list[Value]) -> None:
        self.words: list[Any] = []
        self.tensors = tensors
        self.operands = operands
        self.reached: Reached | None = None
        self.within = False

    def add(self, args: Sequence[Any]) -> bool:
        """Add the words of arguments; False where something isn't known by words."""
        words, operands = self.words, self.operands
        for x in args:
            cls = type(x)
            if isinstance(x, TensorCore):
                self.tensors.append(x)
                value = x._value
                expression: Expression = value.expression or expression_of(value)
                if expression is OPAQUE or _is_open_constant(expression):  # which may be looked at
                    return False
                if (
                    x._weak and value.dtype is int64 and isinstance(value, Leaf)
                ):  # what it meets must be able to hold it
                    return False
                if value in operands:
                    words += ("again", operands.index(value), x._weak)
                else:
                    operands.append(value)
                    words += (expression, x._weak)
                if not expression.type.shape:
                    words.append(x._view is None)  # a number, which shares no memory
            elif cls in PLAIN:
                words += (cls, x)
            elif cls is float:
                words += (cls, x or str(x))  # a zero has a sign
            elif cls is complex:
                words += (cls, str(x))  # as above
            elif cls is tuple or cls is list:
                words += (cls, len(x))
                if cls is list and self.within:
                    self.reached.held = True  # type: ignore[union-attr]
                if len(x) > MOST_OPERANDS or len(words) > MOST_WORDS or not self.add(x):
                    return False
            elif cls is slice:
                words.append(cls)
                if not self.add((x.start, x.stop, x.step)):
                    return False
            elif x is Ellipsis or x is slice:
                words.append(x)
            elif not self._add_further(x, cls):
                return False
        return True

    def _add_further(self, x: Any, cls: type) -> bool:
        """The words of a dict, a number of NumPy's, a dtype, a function, and of arrays that a function reads."""
        words = self.words
        if cls is dict:
            words += (cls, len(x), *x)
            if self.within:
                self.reached.held = True  # type: ignore[union-attr]
            few = len(x) <= MOST_OPERANDS and len(words) <= MOST_WORDS
            return few and all(type(k) is str for k in x) and self.add([*x.values()])
        if isinstance(x, np.generic) or (self.within and cls is np.ndarray):
            words += (cls, x.dtype, x.shape, x.tobytes() if x.nbytes <= MOST_BYTES else None)
            if self.within:
                self.reached.held = True  # type: ignore[union-attr]
            return x.nbytes <= MOST_BYTES and x.dtype.kind in "biufc"
        if isinstance(x, np.dtype) or (cls is type and (x in NUMBERS or issubclass(x, np.generic))):
            words.append(x)
            return True
        if not callable(x):
            return False
        if self.reached is None:
            self.reached = Reached()
        parts = function_parts(x, words, self.reached)
        if parts is None:
            return False
        outer, self.within = self.within, True
        try:
            return self.add(parts)
        finally:
            self.within = outer


def _is_open_constant(expression: Expression) -> bool:
    """Whether an expression is a constant that it leaves open, or an operation on such: a complex number has two."""
    operands = expression.operands
    if not expression.op or any(isinstance(x, Expression) and (not x.op or x.operands) for x in operands):
        return False
    return expression.open > 0 or any(x.open > 0 if isinstance(x, Expression) else x is None for x in operands)
