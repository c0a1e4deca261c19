"""Einstein summation: sums of products over letters, by one matmul for each pair of operands, or by one product of
elements where nothing is summed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from operator import index
from string import ascii_letters
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import bool_
from loopgrad.lazy.numpy.contraction_order import contraction_order, from_left_to_right
from loopgrad.lazy.numpy.creation import Order
from loopgrad.lazy.numpy.matrix_products import diagonal_view, in_one_dtype
from loopgrad.lazy.numpy.movement import permute_dims
from loopgrad.lazy.numpy.preferred_types import with_preferred
from loopgrad.lazy.numpy.views_and_assignment import WritableDiagonal
from loopgrad.lazy.tensor.core import (
    as_tensor,
    cast,
    wrap,
)
from loopgrad.lazy.tensor.operands import Shape, joined_shape
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "einsum"
ELLIPSIS: Final = "..."
FIRST_OWN_LABEL: Final = 0xE000  # private use in Unicode: no letter that a user could write


@repeated
def einsum(
    subscripts: Any, /, *operands: Any, out: Out = None, optimize: Any = True, dtype: Any = None,
    casting: str = "same_kind", order: Order = "K", precision: Any = None, preferred_element_type: Any = None,
) -> Tensor:  # fmt: skip
    """Einstein summation over letters ("ij,jk->ik"); of three operands to eight the order of contractions is
    the one with the fewest multiplications, of more what a greedy search finds (`numpy.einsum_path`).

    A letter repeated within one operand takes its diagonal. An ellipsis ("...ij,...jk->...ik") stands for the axes
    without letters, which are broadcast against each other. Of one operand of which nothing is summed ("ij->ji",
    "ii->i") the result is a view.

    NumPy's other form has lists of numbers behind the operands, and last those of the result: `einsum(x, [0, 1], y,
    [1], [0])`. Dtypes are promoted to one, or converted to `dtype`. With `out` the result is written to that, and it is
    returned; `optimize`, which tells NumPy to look for an order, and `order`, in which NumPy's result would lie, change
    nothing; `precision` and `preferred_element_type` are those of `matmul`. Raises ShapeError for letters that don't
    fit the shapes, DTypeError where `casting` (`lg.can_cast`) forbids the conversion.

    >>> lg.einsum("ij,j->i", lg.asarray([[1, 2], [3, 4]]), lg.asarray([1, 10]))
    Tensor([21, 43], dtype=int64)
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _lettered((subscripts, *operands))
    if not operands:
        raise ShapeError(explained("einsum", "operands behind the letters", "none", "pass one per group of letters"))
    if precision is not None or preferred_element_type is not None:
        summed = partial(einsum, subscripts, optimize=optimize)
        result = with_preferred("einsum", summed, operands, precision, preferred_element_type)
        return delivered("einsum", result, out)
    values, were_bool = in_one_dtype("einsum", operands, dtype, casting)
    inputs, output, values = _parse(subscripts, values)
    if len(operands) == 1 and set(inputs[0]) == set(output) and dtype is None:
        return delivered("einsum", _turned(as_tensor(operands[0]), inputs[0], output), out)
    left = [_diagonals(labels, value) for labels, value in zip(inputs, values, strict=True)]
    for i, j in _path(left, output):
        other, one = left.pop(j), left.pop(i)
        later = set(output).union(*[labels for labels, _ in left])
        left.append(_contract(one, other, later, output))
    result = wrap(_arranged(*left[0], output))
    return delivered("einsum", cast(result, bool_) if were_bool else result, out)


def _lettered(parts: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """`x, [0, 1], y, [1], [0]` as "ab,b->a" and (x, y)."""
    lists = [*parts[1::2], *([parts[-1]] if len(parts) % 2 else [])]
    for numbers in lists:
        wrong = not isinstance(numbers, list | tuple)
        if wrong or any(n is not Ellipsis and not 0 <= index(n) < len(ascii_letters) for n in numbers):
            fix = f"use numbers from 0 to {len(ascii_letters) - 1}, and ... once"
            raise ShapeError(explained("einsum", "a string, or a list of numbers behind each operand", numbers, fix))
    words = ["".join([ELLIPSIS if n is Ellipsis else ascii_letters[index(n)] for n in numbers]) for numbers in lists]
    count = len(parts) // 2
    return ",".join(words[:count]) + "".join([f"->{word}" for word in words[count:]]), tuple(parts[: 2 * count : 2])


def _path(operands: Sequence[tuple[str, Value]], output: str) -> list[tuple[int, int]]:
    """Which two (rising) of what is left are contracted; what they make comes last. From left to right where nothing
    is to be chosen."""
    count, extents = len(operands), dict[str, int]()
    for labels, value in operands:
        for letter, n in zip(labels, value.shape, strict=True):
            if extents.setdefault(letter, n) != n:
                count = 0  # which `_contract` refuses
    if count < 3:
        return from_left_to_right(len(operands))
    return contraction_order([labels for labels, _ in operands], output, extents)


def _parse(subscripts: str, values: Sequence[Value]) -> tuple[list[str], str, list[Value]]:
    """The letters of each operand and of the result, and the operands that they fit."""
    text = subscripts.replace(" ", "")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    letters = "".join(inputs).replace(ELLIPSIS, "")
    named = letters + output.replace(ELLIPSIS, "")
    if len(inputs) != len(values) or (named and not named.isalpha()):
        fix = "write one group of letters per operand, as in 'ij,jk->ik'"
        raise ShapeError(explained("einsum", f"{len(values)} groups of letters", repr(subscripts), fix))
    if not arrow:
        once = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        output = ELLIPSIS * (ELLIPSIS in left) + once
    inputs, output, values = _without_ellipsis(inputs, output, values)
    if any(c not in "".join(inputs) for c in output) or len(set(output)) != len(output):
        fix = "name each result axis once, after an operand's"
        raise ShapeError(explained("einsum", "result letters that occur in the operands", output, fix))
    return inputs, output, values


def _without_ellipsis(
    inputs: Sequence[str], output: str, values: Sequence[Value]
) -> tuple[list[str], str, list[Value]]:
    """Letters in place of each ellipsis; an axis of extent 1 under it that others stretch is dropped."""
    counts = []
    for text, value in zip(inputs, values, strict=True):
        count = len(value.shape) - len(text) + len(ELLIPSIS) if ELLIPSIS in text else 0
        if count < 0 or text.count(ELLIPSIS) > 1:
            raise ShapeError(explained("einsum", f"the dimensions of {text!r}", value.type, "fix the letters"))
        counts.append(count)
    rank = max(counts, default=0)
    if ELLIPSIS not in output and ELLIPSIS in "".join(inputs) and rank:
        fix = "write ... in the result too, or name the axes to sum over"
        raise ShapeError(explained("einsum", "a result with the axes of ...", repr(output), fix))
    own = [chr(FIRST_OWN_LABEL + i) for i in range(rank)]  # no letters of the user's
    shapes = [v.shape[t.index(ELLIPSIS) :][:n] if n else () for t, v, n in zip(inputs, values, counts, strict=True)]
    extents = joined_shape("einsum", shapes)
    texts, kept = [], []
    for text, value, shape in zip(inputs, values, shapes, strict=True):
        first, labels = rank - len(shape), own[rank - len(shape) :]
        stretched = [i for i, n in enumerate(shape) if n == 1 and extents[first + i] != 1]
        gone = [text.find(ELLIPSIS) + i for i in stretched]
        kept.append(ops.reshape(value, tuple([n for a, n in enumerate(value.shape) if a not in gone])))
        texts.append(text.replace(ELLIPSIS, "".join([c for i, c in enumerate(labels) if i not in stretched])))
    return texts, output.replace(ELLIPSIS, "".join(own)), kept


def _diagonals(labels: str, value: Value) -> tuple[str, Value]:
    labels, t = _taken(labels, wrap(value))
    return labels, t._value


def _taken(labels: str, t: Tensor) -> tuple[str, Tensor]:
    """The diagonals over letters that occur more than once."""
    if len(labels) != len(t._value.shape):
        fix = "fix the letters"
        raise ShapeError(explained("einsum", f"{len(labels)} dimensions for {labels!r}", t._value.type, fix))
    for letter in dict.fromkeys(labels):
        while labels.count(letter) > 1:
            first = labels.index(letter)
            second = labels.index(letter, first + 1)
            n, m = t._value.shape[first], t._value.shape[second]
            if n != m:
                fix = "extents are not stretched in einsum"
                raise ShapeError(explained("einsum", f"one extent for {letter!r}", f"{n} and {m}", fix))
            t = diagonal_view(t, 0, first, second, WritableDiagonal)
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + letter
    return labels, t


def _turned(t: Tensor, labels: str, output: str) -> Tensor:
    """The view of one operand with its axes in the order of `output`."""
    labels, t = _taken(labels, t)
    return permute_dims(t, [labels.index(c) for c in output])


def _contract(one: tuple[str, Value], other: tuple[str, Value], later: set[str], output: str) -> tuple[str, Value]:
    """Multiply two operands, summing the letters that nobody needs any more; where they share none of those, in the
    order of `output`."""
    (a, x), (b, y) = one, other
    x, a = _summed(x, a, later | set(b))
    y, b = _summed(y, b, later | set(a))
    batch = "".join(c for c in a if c in b and c in later)
    depth = "".join(c for c in a if c in b and c not in later)
    rows = "".join(c for c in a if c not in b)
    columns = "".join(c for c in b if c not in a)
    extents: dict[str, int] = {}
    for labels, value in ((a, x), (b, y)):
        for letter, n in zip(labels, value.shape, strict=True):
            if extents.setdefault(letter, n) != n:
                fix = "extents are not stretched in einsum"
                raise ShapeError(explained("einsum", f"one extent for {letter!r}", f"{extents[letter]} and {n}", fix))

    def size(letters: str) -> int:
        return prod(extents[c] for c in letters)

    def shape(letters: str) -> Shape:
        return tuple([extents[c] for c in letters])

    if not depth:
        labels = "".join(sorted(dict.fromkeys(a + b), key=lambda c: (c not in output, output.find(c))))
        left, right = (_spread(own, value, labels, shape(labels)) for own, value in ((a, x), (b, y)))
        product = wrap(left) * wrap(right)
        if product.dtype.differentiable:  # a sum of one term, which begins with 0: no -0
            product = product + (0j if product.dtype.kind == "c" else 0.0)
        return labels, product._value
    left = ops.reshape(_arranged(a, x, batch + rows + depth), (*shape(batch), size(rows), size(depth)))
    right = ops.reshape(_arranged(b, y, batch + depth + columns), (*shape(batch), size(depth), size(columns)))
    labels = batch + rows + columns
    return labels, ops.reshape(ops.matmul(left, right), shape(labels))


def _spread(labels: str, value: Value, wanted: str, shape: Shape) -> Value:
    """An operand by the letters of the result, along which others repeat it."""
    own = [c for c in wanted if c in labels]
    value = ops.transpose(value, [labels.index(c) for c in own])
    return value if len(own) == len(wanted) else ops.broadcast(value, shape, [wanted.index(c) for c in own])


def _summed(value: Value, labels: str, keep: set[str]) -> tuple[Value, str]:
    gone = [i for i, c in enumerate(labels) if c not in keep]
    return ops.reduce_sum(value, gone), "".join(c for c in labels if c in keep)


def _arranged(labels: str, value: Value, output: str) -> Value:
    value, labels = _summed(value, labels, set(output))
    return ops.transpose(value, [labels.index(c) for c in output])
