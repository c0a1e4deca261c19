"""What a distribution is: parameters, the words of a block that a number takes, and how it is made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.ambient import AMBIENT
from loopgrad.graph.errors import DTypeError, explained
from loopgrad.graph.types import DType, float32, float64, int64
from loopgrad.lazy.random.source import WordSource
from loopgrad.lazy.tensor.config import current
from loopgrad.lazy.tensor.core import TensorCore, as_tensor, cast_operand, is_scalar, requested_dtype, wrap
from loopgrad.lazy.tensor.operands import joined_shape
from loopgrad.lazy.tensor.promotion import float_dtype, promote_all, scalar_dtype
from loopgrad.lazy.tensor.repeated_calls import Calls

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.core import ArrayLike
    from loopgrad.lazy.tensor.operands import Shape
    from loopgrad.lazy.tensor.tensor import Tensor

WHOLE_BLOCK: Final = (4, 4)


# numbers of up to ten standard deviations above a larger mean needn't be int64: NumPy's limit
LARGEST_MEAN: Final = 2.0**63 - 10 * 2.0**31.5


class Range(Enum):
    """Where a parameter must lie: what the error says, and which numbers are refused."""

    ANY = "a number"
    FINITE = "a finite number"
    POSITIVE = "a number above 0"
    NOT_NEGATIVE = "a number of at least 0"
    MEAN = f"a number from 0 to {LARGEST_MEAN:.4g}"
    COUNT = "a whole number of at least 0"
    PROBABILITY = "a number from 0 to 1"
    CHANCE = "a number above 0, up to 1"
    ABOVE_1 = "a number above 1"
    BELOW_1 = "a number from 0 to below 1"

    def refuses(self, x: np.ndarray[Any, Any]) -> bool:
        """Whether an element is none of them; NaN is refused where a bound is."""
        match self:
            case Range.ANY:
                return False
            case Range.FINITE:
                return not bool(np.isfinite(x).all())
            case Range.POSITIVE:
                return not bool((x > 0).all())
            case Range.NOT_NEGATIVE:
                return not bool((x >= 0).all())
            case Range.MEAN:
                return not bool(((x >= 0) & (x <= LARGEST_MEAN)).all())
            case Range.COUNT:
                return not bool(((x >= 0) & (x == np.floor(x))).all())
            case Range.ABOVE_1:
                return not bool((x > 1).all())
            case Range.BELOW_1:
                return not bool(((x >= 0) & (x < 1)).all())
            case Range.CHANCE:
                return not bool(((x > 0) & (x <= 1)).all())
        return not bool(((x >= 0) & (x <= 1)).all())


@dataclass(frozen=True, slots=True)
class Distribution:
    """`make(source, dtype, *parameters)` gives the numbers: floats of `dtype`, which is float32 or float64 and the
    parameters' too, or whatever `result` is. `words`: of 32 bits, that a float32 and a float64 take of a block.
    `relation`: what parameters must be to each other, and whether arrays of them are."""

    name: str
    parameters: tuple[tuple[str, Range], ...]
    words: tuple[int, int]
    make: Callable[..., Tensor]
    result: DType | None = None
    relation: tuple[str, Callable[..., Any]] | None = None
    calls: Calls = field(default_factory=Calls, init=False, repr=False, compare=False)

    def check(self, values: Sequence[Any]) -> None:
        """ValueError for parameters of Python's or NumPy's that are out of range, by themselves or beside each other,
        DTypeError for what is no number; tensors aren't looked at."""
        looked_at = not any(isinstance(v, TensorCore) or _holds_tensors(v) for v in values)
        for (name, range_), value in zip(self.parameters, values, strict=True):
            if isinstance(value, TensorCore) or range_ is Range.ANY or _holds_tensors(value):
                continue
            error: type[Exception] | None
            try:
                error = ValueError if range_.refuses(np.asarray(value)) else None
            except TypeError:  # None, texts: nothing that can be compared
                error = DTypeError
            if error is not None:
                raise error(explained(self.name, f"{name} to be {range_.value}", repr(value), "check the parameters"))
        if self.relation is not None and looked_at:
            expected, fits = self.relation
            joined_shape(self.name, map(np.shape, values))  # says which shapes don't fit
            with np.errstate(all="ignore"):
                good = np.all(fits(*[np.asarray(v, np.float64) for v in values]))
            if not good:
                got = ", ".join(map(repr, values))
                raise ValueError(explained(self.name, expected, got, "check the parameters"))

    def float_type(self, values: Sequence[Any], dtype: Any) -> DType:
        """The dtype of the floats: as asked for, else what the parameters promote to."""
        wanted = requested_dtype(dtype)
        if wanted is not None and not wanted.is_float:
            fix = "draw floats and convert them with .astype"
            raise DTypeError(explained(self.name, "a float dtype", wanted, fix))
        return wanted or promoted(values)

    def words_of(self, dtype: DType) -> int:
        return self.words[dtype.bits == 64]

    def drawn(
        self, shape: Shape, dtype: DType, key: Sequence[Tensor], step: Tensor, values: Sequence[ArrayLike]
    ) -> Tensor:
        """The numbers of a draw of that shape; at the top level a draw that comes again notes what it noted before."""
        if AMBIENT.plain is None:
            return self._drawn(shape, dtype, key, step, *values)
        return self.calls.result(self._drawn, (shape, dtype, tuple(key), step, *values), {})  # type: ignore[no-any-return]

    def _drawn(self, shape: Shape, dtype: DType, key: Sequence[Tensor], step: Tensor, *values: ArrayLike) -> Tensor:
        source = WordSource.of(shape, tuple([word._value for word in key]), step._value)
        return self.numbers(source, dtype, [as_tensor(v) for v in values])

    def numbers(self, source: WordSource, dtype: DType, values: Sequence[Tensor]) -> Tensor:
        """The numbers, of the source's shape."""
        wide = float64 if dtype.bits == 64 or self.result is int64 else float32
        made = self.make(source, wide, *[wrap(cast_operand(v, wide)) for v in values])
        return made if self.result is not None else wrap(cast_operand(made, dtype))


def promoted(values: Sequence[Any]) -> DType:
    """The float dtype of a function of these parameters."""
    if not values:
        return current().dtype
    dtype, _ = promote_all(*[_dtype_of(v) for v in values])
    return float_dtype(dtype)


def _dtype_of(x: Any) -> tuple[DType, bool]:
    if is_scalar(x):
        return scalar_dtype(x), True
    t = as_tensor(x)
    return t._value.dtype, t._weak


def _holds_tensors(x: Any) -> bool:
    return isinstance(x, list | tuple) and any(isinstance(i, TensorCore) or _holds_tensors(i) for i in x)
