"""Products and convolutions whose axes are named by numbers: `jax.lax`'s general forms, in terms of ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.convolution import conv
from loopgrad.lazy.numpy.einsum import einsum
from loopgrad.lazy.numpy.movement import moveaxis, permute_dims, reshape
from loopgrad.lazy.numpy.preferred_types import with_preferred
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor
from loopgrad.lazy.tensor.operands import normal_axis
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "conv_general_dilated dot_general"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@repeated
def dot_general(
    lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None
) -> Tensor:
    """Sums of products over axes: `dimension_numbers` is ((lhs axes, rhs axes that are summed), (lhs axes, rhs axes
    that are paired)), as in JAX; the result has the paired axes, then lhs's others, then rhs's.

    Dtypes are promoted to one; `precision` and `preferred_element_type` are those of `lg.matmul`. Raises ShapeError
    where extents differ.

    >>> a, b = lg.ones((5, 2, 3)), lg.ones((5, 3, 4))
    >>> lg.dot_general(a, b, (([2], [1]), ([0], [0]))).shape
    (5, 2, 4)
    """
    a, b = as_tensor(lhs), as_tensor(rhs)
    ranks = len(a._value.shape), len(b._value.shape)
    (summed, paired) = dimension_numbers
    labels: list[dict[int, str]] = [{}, {}]
    letters = iter(_LETTERS)
    groups = []
    for pair in (paired, summed):
        sides = [[normal_axis("dot_general", d, r) for d in side] for side, r in zip(pair, ranks, strict=True)]
        if len(sides[0]) != len(sides[1]):
            got = f"{len(sides[0])} and {len(sides[1])}"
            raise ShapeError(explained("dot_general", "as many axes of both operands", got, "pair them up"))
        named = [next(letters) for _ in sides[0]]
        for axes, table in zip(sides, labels, strict=True):
            table.update(zip(axes, named, strict=True))
        groups.append(named)
    words = []
    for table, rank in zip(labels, ranks, strict=True):
        own = [d for d in range(rank) if d not in table]
        table.update({d: next(letters) for d in own})
        groups.append([table[d] for d in own])
        words.append("".join([table[d] for d in range(rank)]))
    out = "".join([*groups[0], *groups[2], *groups[3]])
    subscripts = f"{words[0]},{words[1]}->{out}"
    return einsum(subscripts, a, b, precision=precision, preferred_element_type=preferred_element_type)


@repeated
def conv_general_dilated(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Any,
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1, precision: Any = None,
    preferred_element_type: Any = None,
) -> Tensor:  # fmt: skip
    """`lg.conv` with JAX's arguments: `dimension_numbers` are three words such as ("NHWC", "HWIO", "NHWC") that say
    where the batch N, channels C (of the kernel I and O) and window dims are; "NCHW", "OIHW", "NCHW" if left out.

    `padding` is "SAME", "VALID" or a pair (before, behind) for each window dim. With `batch_group_count` the batch is
    cut into so many parts, for each of which there are as many of the kernel's outputs. `precision` and
    `preferred_element_type` are those of `lg.matmul`. Shapes, dtypes and errors are those of `lg.conv`; raises
    ShapeError for words that don't name each axis once.

    >>> x, kernel = lg.ones((1, 5, 5, 2)), lg.ones((3, 3, 2, 4))
    >>> lg.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
    (1, 5, 5, 4)
    """
    if precision is not None or preferred_element_type is not None:
        product = partial(
            conv_general_dilated, window_strides=window_strides, padding=padding, lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation, dimension_numbers=dimension_numbers, feature_group_count=feature_group_count,
            batch_group_count=batch_group_count,
        )  # fmt: skip
        return with_preferred("conv_general_dilated", product, (lhs, rhs), precision, preferred_element_type)
    a, b = as_tensor(lhs), as_tensor(rhs)
    dims = len(a._value.shape) - 2
    names = [chr(ord("0") + d) for d in range(dims)]
    if dimension_numbers is None:
        words = ["NC" + "".join(names), "OI" + "".join(names), "NC" + "".join(names)]
    else:
        words = list(dimension_numbers)
    plain = [name for name in words[1] if name not in "OI"] if len(words) == 3 else []  # strides are in this order
    wanted = [["N", "C", *plain], ["O", "I", *plain], ["N", "C", *plain]]
    if len(words) != 3 or any(sorted(w) != sorted(f) or len(w) != dims + 2 for w, f in zip(words, wanted, strict=True)):
        expected = f"three words that name the {dims + 2} axes of x, kernel and result once"
        raise ShapeError(explained("conv_general_dilated", expected, repr(dimension_numbers), "pass 'NCHW' and so on"))
    a = permute_dims(a, [words[0].index(name) for name in wanted[0]])
    b = permute_dims(b, [words[1].index(name) for name in wanted[1]])
    a = _batches_as_channels(a, feature_group_count, batch_group_count)
    around: Any = padding.lower() if isinstance(padding, str) else padding
    result = conv(
        a, b, stride=tuple(window_strides), padding=around,
        dilation=1 if rhs_dilation is None else tuple(rhs_dilation), groups=feature_group_count * batch_group_count,
        input_dilation=1 if lhs_dilation is None else tuple(lhs_dilation),
    )  # fmt: skip
    return permute_dims(result, [wanted[2].index(name) for name in words[2]])


def _batches_as_channels(x: Tensor, feature_groups: int, batch_groups: int) -> Tensor:
    """x of shape (batch, channels, ...) with parts of its batch side by side as channels."""
    if batch_groups == 1:
        return x
    batch, channels, *extents = x._value.shape
    if batch_groups < 1 or batch % batch_groups or feature_groups > 1:
        expected = f"a batch_group_count that divides {batch}, without feature groups"
        fix = "pass one of both counts"
        raise ShapeError(explained("conv_general_dilated", expected, f"{batch_groups} and {feature_groups}", fix))
    parts = reshape(x, (batch_groups, batch // batch_groups, channels, *extents))
    return reshape(moveaxis(parts, 0, 1), (batch // batch_groups, batch_groups * channels, *extents))
