"""What lies beyond the borders of an image, by SciPy's names of modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.elementwise import absolute, remainder
from loopgrad.lazy.numpy.padding import pad
from loopgrad.lazy.numpy.special_values import clip, where
from loopgrad.lazy.tensor.core import ArrayLike
from loopgrad.lazy.tensor.operands import whole_number

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

# SciPy's name -> that of `lg.pad`
PADDED: Final = {
    "reflect": "symmetric", "grid-mirror": "symmetric", "constant": "constant", "grid-constant": "constant",
    "nearest": "edge", "mirror": "reflect", "wrap": "wrap", "grid-wrap": "wrap",
}  # fmt: skip


def check_mode(op: str, mode: str) -> None:
    if mode not in PADDED:
        raise ValueError(explained(op, f"a mode among {', '.join(PADDED)}", repr(mode), "pass one of them"))


def extended(x: Tensor, axis: int, low: int, high: int, mode: str, cval: ArrayLike) -> Tensor:
    """x with so many elements before and behind it along an axis; where they are less than 0, without as many."""
    count = x.shape[axis]
    kept = slice(max(-low, 0), count - max(-high, 0))
    widths = {axis: (max(low, 0), max(high, 0))}
    if mode in ("constant", "grid-constant") or not count:  # there is nothing to repeat
        padded = pad(x, widths, constant_values=cval)
    else:
        padded = pad(x, widths, PADDED[mode])
    return padded[(*(slice(None),) * axis, slice(kept.start, padded.shape[axis] - max(-high, 0)))]


def surrounded(op: str, x: Tensor, axis: int, size: int, origin: int, mode: str, cval: ArrayLike) -> Tensor:
    """x with what windows of `size` elements along an axis read beyond its ends, moved by `origin`."""
    origin = whole_number(op, "an integer origin", origin)  # a small one without a sign has no negative
    before = size // 2 + origin
    if not 0 <= before < size:
        expected = f"an origin from {-(size // 2)} to {(size - 1) // 2} along axis {axis}"
        raise ShapeError(explained(op, expected, origin, f"the window has {size} elements there"))
    return extended(x, axis, before, size - 1 - before, mode, cval)


def place_inside(place: Tensor, count: int, mode: str) -> Tensor:
    """The index from 0 to count - 1 of the element that stands at a place."""
    if mode in ("mirror", "constant", "wrap"):
        period = max(2 * (count - 1), 1)
        folded = remainder(place, period)
        return where(folded >= count, period - folded, folded)
    if mode in ("reflect", "grid-mirror"):
        folded = remainder(place, 2 * count)
        return where(folded >= count, 2 * count - 1 - folded, folded)
    if mode == "grid-wrap":
        return remainder(place, count)
    return clip(place, 0, count - 1)


def coordinate_inside(x: Tensor, count: int, mode: str) -> Tensor:
    """A coordinate beyond the borders, brought to where SciPy interpolates. Most modes need nothing: `place_inside`
    repeats what the spline is made of."""
    if mode == "nearest":
        return clip(x, 0.0, float(count - 1))
    if mode == "wrap" and count > 1:
        return where(absolute(x - 0.5 * (count - 1)) > 0.5 * (count - 1), remainder(x, float(count - 1)), x)
    return x
