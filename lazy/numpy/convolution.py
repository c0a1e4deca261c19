"""Convolution along one to three dims and more, of batches and channels, and of vectors as in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.primitives.convolution import spread_extent
from loopgrad.graph.types import bool_, int64
from loopgrad.lazy.numpy.complex_functions import conjugated
from loopgrad.lazy.numpy.movement import flip, reshape
from loopgrad.lazy.numpy.preferred_types import with_preferred
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast, wrap
from loopgrad.lazy.tensor.operands import vector_operand, whole_number
from loopgrad.lazy.tensor.promotion import promote_arrays
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "conv convolve correlate"
_FARTHEST: Final = 2**31 - 1  # so that no position in a window overflows
Padding = int | Literal["same", "valid"] | Sequence[int] | Sequence[tuple[int, int]]


@repeated
def conv(
    x: ArrayLike,
    kernel: ArrayLike,
    /,
    *,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    input_dilation: int | Sequence[int] = 1,
) -> Tensor:
    """The kernel's products with the windows of x, summed, as convolutional layers have it (the kernel isn't flipped).

    x has shape (N, C, *extents), kernel (O, C / groups, *window), with one to any number of window dims; the result
    (N, O, *places) has their promoted dtype. The results of a group see the channels of that group alone.
    `stride` is the distance of places, `dilation` that of a window's elements, `input_dilation` that of x's elements,
    between which lie zeros (with it a convolution is the transpose of one with that stride): a number, or one for each
    dim. `padding` says how many zeros lie around x: a number, one for each dim, a pair (before, behind) for each dim,
    "valid" for none, or "same" for as many as give ceil(extent / stride) places; below 0 it says how many elements (or
    zeros between them) are taken away. Differentiable by both. As
    `jax.lax.conv_general_dilated` and `torch.nn.functional.conv1d` to `conv3d`.

    Where the results of a group are many, it is a product of matrices, which stores the windows; else every result
    reads its window. Raises ShapeError for shapes that don't fit and a padding that takes all elements away, ValueError
    for distances below 1 or another word, DTypeError for bool.

    >>> lg.conv(lg.asarray([[[1.0, 2.0, 4.0, 8.0]]]), lg.asarray([[[1.0, 10.0]]]))
    Tensor([[[21., 42., 84.]]], dtype=float64)
    >>> lg.conv(lg.ones((1, 2, 5, 5)), lg.ones((4, 2, 3, 3)), stride=2, padding="same").shape
    (1, 4, 3, 3)
    """
    a, b = as_tensor(x), as_tensor(kernel)
    dtype = promote_arrays((a._value.dtype, a._weak), (b._value.dtype, b._weak))
    if dtype is bool_:
        raise DTypeError(explained("conv", "numbers", "bool", "cast with .astype(lg.int32)"))
    dims = len(a._value.shape) - 2
    if dims < 1 or len(b._value.shape) != dims + 2 or 0 in b._value.shape[2:]:
        expected = "x of shape (N, C, *extents) and a kernel (O, C / groups, *window) with as many dims, none empty"
        raise ShapeError(explained("conv", expected, f"{a._value.type} and {b._value.type}", "reshape them"))
    strides, spread = _distances("stride", stride, dims), _distances("input_dilation", input_dilation, dims)
    distances = _distances("dilation", dilation, dims)
    groups = whole_number("conv", "a number of groups", groups)
    if groups < 1:
        raise ValueError(explained("conv", "at least one group", str(groups), "pass groups=1"))
    reach = [spread_extent(k, d) for k, d in zip(b._value.shape[2:], distances, strict=True)]
    extents = [spread_extent(n, s) for n, s in zip(a._value.shape[2:], spread, strict=True)]
    a, low, high = _cropped(a, *_borders(padding, extents, reach, strides), spread)
    attrs = {
        "strides": strides, "low": low, "high": high, "spread": spread, "dilation": distances, "groups": groups,
        "absent": False,
    }  # fmt: skip
    return wrap(computed("conv", cast(a, dtype)._value, cast(b, dtype)._value, **attrs))


def _distances(name: str, given: int | Sequence[int], dims: int) -> tuple[int, ...]:
    found = _integers(given) or ()
    found = found * dims if isinstance(given, int | np.integer) else found
    if len(found) != dims or any(n < 1 for n in found):
        expected = f"{name} from 1 to {_FARTHEST}, or {dims} of them"
        raise ValueError(explained("conv", expected, repr(given), "pass one for each dim of the window"))
    return found


def _integers(given: Any) -> tuple[int, ...] | None:
    """A number, or some, as ints, None for what they aren't."""
    try:
        found = tuple([index(n) for n in ([given] if isinstance(given, int | np.integer) else given)])
    except TypeError:
        return None
    return found if all(-_FARTHEST <= n <= _FARTHEST for n in found) else None


def _borders(
    padding: Padding, extents: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many zeros lie before and behind x in each dim."""
    dims = len(extents)
    if padding == "valid":
        padding = 0
    if padding == "same":
        missing = [
            max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in zip(extents, reach, strides, strict=True)
        ]  # more behind than before, as in JAX
        return tuple([n // 2 for n in missing]), tuple([n - n // 2 for n in missing])
    each: Any = (
        [padding] * dims if isinstance(padding, int | np.integer) else [] if isinstance(padding, str) else padding
    )
    pairs = (
        [_integers((p, p) if isinstance(p, int | np.integer) else p) or () for p in each] if np.iterable(each) else []
    )
    if len(pairs) != dims or any(len(pair) != 2 for pair in pairs):
        expected = f"a number up to {_FARTHEST} as padding, {dims} of them or of pairs of them, 'same' or 'valid'"
        raise ValueError(explained("conv", expected, repr(padding), "pass one of these"))
    return tuple([pair[0] for pair in pairs]), tuple([pair[1] for pair in pairs])


def _cropped(
    x: Tensor, low: Sequence[int], high: Sequence[int], spread: Sequence[int]
) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """x without the elements that a padding below 0 takes away, and what is left of the padding: the zeros that lay
    between the last element taken and the first one left."""
    extents = x._value.shape[2:]
    first, last = ([max(-(p // s), 0) for p, s in zip(around, spread, strict=True)] for around in (low, high))
    if not any(first) and not any(last):
        return x, tuple(low), tuple(high)
    if any(a + b >= n for a, b, n in zip(first, last, extents, strict=True)):
        got = f"{tuple(zip(low, high, strict=True))} around {extents}"
        raise ShapeError(explained("conv", "a padding that leaves an element", got, "crop less"))
    stop = [n - b for n, b in zip(extents, last, strict=True)]
    rest = ops.slice(x._value, (0, 0, *first), (*x._value.shape[:2], *stop))
    before, behind = (
        tuple([p + k * s for p, k, s in zip(around, taken, spread, strict=True)])
        for around, taken in ((low, first), (high, last))
    )
    return wrap(rest, x._weak), before, behind


@repeated
def convolve(
    x: ArrayLike, kernel: ArrayLike, /, mode: str = "full", *, precision: Any = None,
    preferred_element_type: Any = None,
) -> Tensor:  # fmt: skip
    """The convolution of two vectors: `full`, of the longer one's length (`same`), or where they overlap (`valid`).

    Costs the product of the lengths (`lg.signal.fftconvolve` less, for long ones).

    Dtypes are promoted to one; `precision` and `preferred_element_type` are those of `matmul`. Raises ShapeError for
    what isn't a vector of at least one element, ValueError for another mode.

    >>> lg.convolve([1.0, 2.0, 3.0], [1.0, 1.0])
    Tensor([1., 3., 5., 3.], dtype=float64)
    """
    if precision is not None or preferred_element_type is not None:
        product = partial(convolve, mode=mode)
        return with_preferred("convolve", product, (x, kernel), precision, preferred_element_type)
    if mode not in ("full", "same", "valid"):
        raise ValueError(explained("convolve", "mode 'full', 'same' or 'valid'", repr(mode), "pass one of them"))
    one_axis = [t if t._value.shape else reshape(t, (1,)) for t in (as_tensor(x), as_tensor(kernel))]
    a, b = [vector_operand("convolve", t) for t in one_axis]  # a number is a vector of one, as in NumPy
    if a._value.shape[0] < b._value.shape[0]:
        a, b = b, a
    dtype = promote_arrays((a._value.dtype, a._weak), (b._value.dtype, b._weak))
    n, m = a._value.shape[0], b._value.shape[0]
    low = {"full": m - 1, "same": m - 1 - (m - 1) // 2, "valid": 0}[mode]
    places = {"full": n + m - 1, "same": n, "valid": n - m + 1}[mode]
    work = int64 if dtype is bool_ else dtype
    attrs = {
        "strides": (1,), "low": (low,), "high": (places + m - 1 - n - low,), "spread": (1,), "dilation": (1,),
        "groups": 1, "absent": True,  # beyond the ends there is nothing: not 0 times an infinity
    }  # fmt: skip
    rows, window = reshape(cast(a, work), (1, 1, n)), reshape(flip(cast(b, work)), (1, 1, m))
    return cast(reshape(wrap(computed("conv", rows._value, window._value, **attrs)), (places,)), dtype)


@repeated
def correlate(
    x: ArrayLike, y: ArrayLike, /, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None
) -> Tensor:
    """The correlation of two vectors: `convolve` of x with y (of complex numbers its conjugates) reversed, with its
    dtypes, keywords and errors.

    >>> lg.correlate([1.0, 2.0, 3.0], [1.0, 0.0])
    Tensor([1., 2.], dtype=float64)
    """
    if precision is not None or preferred_element_type is not None:
        product = partial(correlate, mode=mode)
        return with_preferred("correlate", product, (x, y), precision, preferred_element_type)
    a, b = vector_operand("correlate", x), conjugated(vector_operand("correlate", y))
    if mode == "same" and a._value.shape[0] < b._value.shape[0]:
        full = convolve(a, flip(b))
        first = a._value.shape[0] // 2
        return full[first : first + b._value.shape[0]]
    return convolve(a, flip(b), mode)
