"""Which frequency each number of a transform belongs to, and the order in which they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import DTypeError, explained
from loopgrad.lazy.numpy.creation import arange
from loopgrad.lazy.numpy.elementwise import multiply
from loopgrad.lazy.numpy.fft.operands import length
from loopgrad.lazy.numpy.movement import roll
from loopgrad.lazy.tensor.config import default_dtype
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, requested_dtype
from loopgrad.lazy.tensor.operands import normal_axis
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_FFT: Final = "fftfreq fftshift ifftshift rfftfreq"


@repeated
def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """The frequencies of the numbers of an `fft` of n samples that are `d` apart: 0, 1, ..., -2, -1, over n d.

    The dtype is the default float unless given. Raises DTypeError for an n that isn't an integer or a dtype that isn't
    a float, ShapeError for n below 1.

    >>> lg.fft.fftfreq(4, 0.25)
    Tensor([ 0.,  1., -2., -1.], dtype=float64)
    """
    count = length("fftfreq", n, None)
    return _numbered(roll(arange(-(count // 2), (count - 1) // 2 + 1), -(count // 2)), count, d, dtype, device)


@repeated
def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """The frequencies of the numbers of an `rfft`: 0, 1, ..., n // 2, over n d. Dtypes and errors are those of
    `fftfreq`.

    >>> lg.fft.rfftfreq(4, 0.25)
    Tensor([0., 1., 2.], dtype=float64)
    """
    count = length("rfftfreq", n, None)
    return _numbered(arange(count // 2 + 1), count, d, dtype, device)


@repeated
def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """With frequency 0 in the middle of the axes (None: all of them) instead of at their beginning.

    Shape and dtype stay. Raises ShapeError for an axis that isn't there.

    >>> lg.fft.fftshift(lg.fft.fftfreq(4, 0.25))
    Tensor([-2., -1.,  0.,  1.], dtype=float64)
    """
    return _shifted("fftshift", x, axes, 1)


@repeated
def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`, which differs from it for odd extents; shape and dtype stay.

    >>> lg.fft.ifftshift(lg.fft.fftshift(lg.arange(5)))
    Tensor([0, 1, 2, 3, 4], dtype=int64)
    """
    return _shifted("ifftshift", x, axes, -1)


def _numbered(numbers: Tensor, n: int, d: float, dtype: Any, device: str | None) -> Tensor:
    wanted = requested_dtype(dtype) or default_dtype()
    if not wanted.is_float:
        raise DTypeError(explained("fftfreq", "a real float dtype", wanted, "frequencies are fractions"))
    found = multiply(numbers.astype(wanted), 1.0 / (n * d))
    return found if device is None else found.to_device(device)


def _shifted(op: str, x: ArrayLike, axes: int | Sequence[int] | None, sign: int) -> Tensor:
    t = as_tensor(x)
    rank = len(t._value.shape)
    wanted = range(rank) if axes is None else axes if isinstance(axes, Sequence) else (axes,)
    found = [normal_axis(op, axis, rank) for axis in wanted]
    return roll(t, [sign * (t._value.shape[axis] // 2) for axis in found], found)
