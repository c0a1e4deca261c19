"""The methods that generators and streams share: NumPy's names and arguments, and what they draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from loopgrad.lazy.random import continuous
from loopgrad.lazy.random.distribution import Distribution
from loopgrad.lazy.random.integers import IntegerRange

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.core import ArrayLike

Drawn = TypeVar("Drawn")


class Draws(ABC, Generic[Drawn]):
    """Each method draws numbers of `size` (None: the shape that the parameters have). Parameters broadcast to that;
    floats have the dtype of `dtype`, else the one that the parameters promote to.

    Raises ValueError for a parameter of Python's or NumPy's that is out of range (tensors aren't looked at), DTypeError
    for a dtype that isn't one of floats, ShapeError where the parameters don't broadcast to the size.
    """

    @abstractmethod
    def _draw(self, what: Distribution, parameters: tuple[Any, ...], size: Any, dtype: Any) -> Drawn: ...

    @abstractmethod
    def _draw_integers(self, among: IntegerRange, size: Any) -> Drawn: ...

    def random(self, size: Any = None, dtype: Any = None) -> Drawn:
        """Uniform floats in [0, 1), of shape `size`: multiples of 2**-53, of float32 2**-24.

        >>> lg.random.default_rng(7).random(3)
        Tensor([0.86044399, 0.75734053, 0.86979218], dtype=float64)
        """
        return self._draw(continuous.RANDOM, (), size, dtype)

    def uniform(self, low: ArrayLike = 0.0, high: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Uniform floats in [low, high), or (high, low] where that is the order. Differentiable by both.

        >>> lg.random.default_rng(7).uniform(-1.0, 1.0, size=2).shape
        (2,)
        """
        return self._draw(continuous.UNIFORM, (low, high), size, dtype)

    def standard_normal(self, size: Any = None, dtype: Any = None) -> Drawn:
        """Normal floats with mean 0 and standard deviation 1.

        >>> lg.random.default_rng(7).standard_normal((2, 2), dtype=lg.float32).dtype
        float32
        """
        return self._draw(continuous.STANDARD_NORMAL, (), size, dtype)

    def normal(self, loc: ArrayLike = 0.0, scale: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Normal floats with that mean and standard deviation. Differentiable by both.

        >>> lg.random.default_rng(7).normal([0.0, 100.0], 0.1).round()
        Tensor([  0., 100.], dtype=float64)
        """
        return self._draw(continuous.NORMAL, (loc, scale), size, dtype)

    def standard_exponential(self, size: Any = None, dtype: Any = None) -> Drawn:
        """Exponential floats with mean 1.

        >>> lg.random.default_rng(7).standard_exponential(3).shape
        (3,)
        """
        return self._draw(continuous.STANDARD_EXPONENTIAL, (), size, dtype)

    def exponential(self, scale: ArrayLike = 1.0, size: Any = None, dtype: Any = None) -> Drawn:
        """Exponential floats with mean `scale`. Differentiable by it.

        >>> lg.random.default_rng(7).exponential(2.0, size=3).shape
        (3,)
        """
        return self._draw(continuous.EXPONENTIAL, (scale,), size, dtype)

    def integers(
        self, low: ArrayLike, high: ArrayLike | None = None, size: Any = None, dtype: Any = None, endpoint: bool = False
    ) -> Drawn:
        """Integers from `low` to `high - 1` (`endpoint`: to `high`), or from 0 to `low - 1`; int64 unless `dtype` says
        another dtype of integers, or bool. Where `low` and `high` are tensors, an empty range gives `low`.

        >>> lg.random.default_rng(7).integers(1, 7, size=5)
        Tensor([2, 6, 6, 1, 1], dtype=int64)
        """
        return self._draw_integers(IntegerRange(low, high, dtype, endpoint), size)
