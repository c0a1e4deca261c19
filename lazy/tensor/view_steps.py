"""Where the elements of views lie, and the steps that lead from a view to a view of it.

A `Step` reads graph values (`forward`) and says where NumPy would have the elements (`layout`): from that follows
whether `reshape` must copy, and which views have no element in common. A `WritableStep` also writes (`back`); through a
view that another step leads to, NumPy refuses to write.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from loopgrad.graph import ops
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType

Shape = tuple[int, ...]


# ---- where elements lie


class Layout(NamedTuple):
    """Where NumPy would have the elements, counted in elements of the root; `offset` is None where it is data."""

    offset: int | None
    shape: Shape
    strides: tuple[int, ...]

    def by_rows(self) -> bool:
        """Whether the elements lie without gaps, row by row."""
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != expected:
                return 0 in self.shape
            expected *= extent
        return True

    def span(self) -> tuple[int, int]:
        """The lowest and the highest position, offset left out; the highest is lower where there are no elements."""
        if 0 in self.shape:
            return 0, -1
        reaches = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return sum([r for r in reaches if r < 0]), sum([r for r in reaches if r > 0])

    def reshaped(self, shape: Shape) -> Layout | None:
        """The layout in another shape; None where the elements would have to be copied (NumPy's rule)."""
        if 0 in shape or self.by_rows():
            return Layout(self.offset, shape, row_strides(shape))
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        strides: list[int] = []
        start = 0
        for begin, end, upto in _blocks([n for n, _ in old], shape):
            run = old[start:upto]
            if any(run[i][1] != run[i + 1][0] * run[i + 1][1] for i in range(len(run) - 1)):
                return None
            stride, block = run[-1][1], []
            for extent in reversed(shape[begin:end]):
                block.append(stride)
                stride *= extent
            strides.extend(reversed(block))
            start = upto
        strides.extend([1] * (len(shape) - len(strides)))  # extents of 1 at the end
        return Layout(self.offset, shape, tuple(strides))


def _blocks(old: Sequence[int], new: Shape) -> list[tuple[int, int, int]]:
    """Cuts two shapes of as many elements into the shortest blocks with equal products: (begin and end among `new`,
    end among `old`) of each."""
    found = []
    i = j = 0
    while i < len(old) and j < len(new):
        begin, have, want = j, old[i], new[j]
        i, j = i + 1, j + 1
        while have != want:
            if have < want:
                have, i = have * old[i], i + 1
            else:
                want, j = want * new[j], j + 1
        found.append((begin, j, i))
    return found


def row_strides(shape: Shape) -> tuple[int, ...]:
    """Strides of elements that lie row by row."""
    strides, stride = [], 1
    for extent in reversed(shape):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


# ---- steps from a view to a view of it


class Step(ABC):
    """What a view takes of another, to be read."""

    __slots__ = ()

    @abstractmethod
    def forward(self, base: Value) -> Value:
        """The elements of the view."""

    @abstractmethod
    def layout(self, base: Layout) -> Layout:
        """Where the view's elements lie."""

    def apart(self, other: Step) -> bool:
        """Whether the two are known to take no common element of one base."""
        return False


class WritableStep(Step):
    """What a view takes of another, each element once, so that it can be written to."""

    __slots__ = ()

    @abstractmethod
    def back(self, base: Value, new: Value) -> Value:
        """`base` with the view's elements replaced."""


class Transposed(WritableStep):
    """Axis j of the view is axis `perm[j]` of the base."""

    __slots__ = ("perm",)

    def __init__(self, perm: tuple[int, ...]) -> None:
        self.perm = perm

    def forward(self, base: Value) -> Value:
        return ops.transpose(base, self.perm)

    def back(self, base: Value, new: Value) -> Value:
        return ops.transpose(new, tuple([self.perm.index(i) for i in range(len(self.perm))]))

    def layout(self, base: Layout) -> Layout:
        shape, strides = [base.shape[p] for p in self.perm], [base.strides[p] for p in self.perm]
        return Layout(base.offset, tuple(shape), tuple(strides))


class Reshaped(WritableStep):
    """The same elements in another shape, where that needs no copy."""

    __slots__ = ("shape",)

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def forward(self, base: Value) -> Value:
        return ops.reshape(base, self.shape)

    def back(self, base: Value, new: Value) -> Value:
        return ops.reshape(new, base.shape)

    def layout(self, base: Layout) -> Layout:
        found = base.reshaped(self.shape)
        assert found is not None
        return found


class Flipped(WritableStep):
    """The elements in reverse order along some axes."""

    __slots__ = ("axes",)

    def __init__(self, axes: tuple[int, ...]) -> None:
        self.axes = axes

    def forward(self, base: Value) -> Value:
        return ops.flip(base, self.axes)

    def back(self, base: Value, new: Value) -> Value:
        return ops.flip(new, self.axes)

    def layout(self, base: Layout) -> Layout:
        offset, strides = base.offset, list(base.strides)
        for a in self.axes:
            if offset is not None:
                offset += strides[a] * max(base.shape[a] - 1, 0)
            strides[a] = -strides[a]
        return Layout(offset, base.shape, tuple(strides))


class Reinterpreted(WritableStep):
    """The bits of the elements as elements of another dtype, as wide."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    def forward(self, base: Value) -> Value:
        return ops.bitcast(base, self.dtype)

    def back(self, base: Value, new: Value) -> Value:
        return ops.bitcast(new, base.dtype)

    def layout(self, base: Layout) -> Layout:
        return base


class ComplexPart(WritableStep):
    """The real parts of complex elements, or the imaginary ones."""

    __slots__ = ("imaginary",)

    def __init__(self, imaginary: bool) -> None:
        self.imaginary = imaginary

    def forward(self, base: Value) -> Value:
        return ops.imag(base) if self.imaginary else ops.real(base)

    def back(self, base: Value, new: Value) -> Value:
        return ops.join(ops.real(base), new) if self.imaginary else ops.join(new, ops.imag(base))

    def layout(self, base: Layout) -> Layout:
        """In halves of elements, so that nothing follows from where another view begins."""
        return Layout(None, base.shape, tuple([2 * stride for stride in base.strides]))

    def apart(self, other: Step) -> bool:
        return isinstance(other, ComplexPart) and other.imaginary is not self.imaginary


class Zeros(Step):
    """The imaginary parts of real elements."""

    __slots__ = ()

    def forward(self, base: Value) -> Value:
        return ops.zeros_like(base)

    def layout(self, base: Layout) -> Layout:
        return Layout(base.offset, base.shape, row_strides(base.shape))


class Stretched(Step):
    """The elements repeated along new axes and along those of extent 1."""

    __slots__ = ("shape",)

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def forward(self, base: Value) -> Value:
        return ops.broadcast_to(base, self.shape)

    def layout(self, base: Layout) -> Layout:
        new = len(self.shape) - len(base.shape)
        kept = [s if n == m else 0 for n, m, s in zip(base.shape, self.shape[new:], base.strides, strict=True)]
        return Layout(base.offset, self.shape, (*[0] * new, *kept))
