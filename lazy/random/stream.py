"""`Stream`: random numbers without state, for loops.

A stream is a value, a tree of three tensors of one shape, that of its lanes: a key, the lane's number, and the step,
how much the lane has drawn. Drawing gives the numbers and the stream after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.types import uint32, uint64
from loopgrad.lazy.numpy.movement import reshape, stack
from loopgrad.lazy.random.draws import Draws
from loopgrad.lazy.random.shapes import drawn_shape, shape_of, size_of
from loopgrad.lazy.random.source import WordSource, numbered
from loopgrad.lazy.tensor.core import broadcast_value, cast_value, wrap
from loopgrad.lazy.tensor.operands import joined_shape
from loopgrad.lazy.tensor.trees import register_node

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.operands import Shape
    from loopgrad.lazy.tensor.tensor import Tensor


PUBLIC_RANDOM: Final = "Stream"
WORDS: Final = 4  # of a block
FEW: Final = 16  # numbers of a lane that are made one by one, so that those of one block share it


class Stream(Draws["tuple[Tensor, Stream]"]):
    """One stream of random numbers a lane; `lg.random.Generator.stream` makes them.

    Its methods are the generator's; each gives `(numbers, stream)`: one number a lane, or an array of shape `size` a
    lane, and the stream that goes on after them. The same stream gives the same numbers again.

    >>> def step(state):
    ...     total, count, stream = state
    ...     u, stream = stream.uniform()
    ...     return total + u, count + 1, stream
    >>> stream = lg.random.default_rng(7).stream(4)
    >>> state = (lg.zeros(4), lg.zeros(4, dtype=lg.int64), stream)
    >>> total, count, stream = lg.while_loop(lambda s: s[0] < 1.0, step, state)
    >>> bool((total >= 1.0).all())
    True
    """

    __slots__ = ("key", "lane", "step")

    def __init__(self, key: Tensor, lane: Tensor, step: Tensor) -> None:
        self.key, self.lane, self.step = key, lane, step

    def __repr__(self) -> str:
        return f"Stream(shape={self.shape})"

    @property
    def shape(self) -> Shape:
        """The shape of the lanes."""
        return joined_shape("stream", [x._value.shape for x in (self.key, self.lane, self.step)])

    def _made(
        self,
        what: str,
        shapes: Sequence[Shape],
        size: Any,
        words: int,
        make: Callable[..., Tensor],
        given: Sequence[Any],
        event: Shape = (),
    ) -> tuple[Tensor, Stream]:
        lanes = self.shape
        extra = () if size is None else shape_of(size)
        shape = drawn_shape(what, shapes, size, lanes)
        if size is None and shape != lanes:
            fix = "pass size=, the shape of a lane's numbers"
            raise ShapeError(explained(what, f"parameters that broadcast to the lanes {lanes}", shape, fix))
        after = self._after((*extra, *event), words)
        if extra and not event and 0 < size_of(extra) <= FEW and not any(shapes):
            numbers = [make(self._source_of(n, words), *given) for n in range(size_of(extra))]
            return reshape(stack(numbers, axis=-1), shape), after
        return make(self._source((*shape, *event), (*extra, *event), words), *given), after

    def _after(self, extra: Shape, words: int) -> Stream:
        """The stream after an array of numbers a lane, each of as many words of 32 bits: they take those of successive
        blocks."""
        blocks = -(-size_of(extra) // (WORDS // words))
        return Stream(self.key, self.lane, wrap(ops.add(self.step._value, blocks)))

    def _source_of(self, number: int, words: int) -> WordSource:
        """The words of one of a lane's numbers."""
        block, place = divmod(number, WORDS // words)
        step = ops.add(self.step._value, block) if block else self.step._value
        return WordSource(self.shape, (self.key._value,), self.lane._value, step, words * place)

    def _source(self, shape: Shape, extra: Shape, words: int) -> WordSource:
        """The words of an array of numbers a lane, whose shape ends with `extra`."""
        if not extra:
            return WordSource(shape, (self.key._value,), self.lane._value, self.step._value)
        lanes, each = self.shape, WORDS // words
        wide = (*lanes, *[1] * len(extra))
        key, lane, step = [
            ops.reshape(broadcast_value(x._value, lanes), wide) for x in (self.key, self.lane, self.step)
        ]
        number, offset = numbered(extra, uint32), None
        if each > 1:
            offset = broadcast_value(ops.mul(ops.mod(number, each), words), shape)
            number = ops.floordiv(number, each)
        steps = ops.add(*[broadcast_value(v, (*lanes, *extra)) for v in (step, cast_value(number, uint64))])
        return WordSource(shape, (key,), lane, steps, 0, offset)


def _rebuilt(_: Any, children: Any) -> Stream:
    stream: Stream = object.__new__(Stream)
    stream.key, stream.lane, stream.step = children
    return stream


_FIELDS: Final = ("key", "lane", "step")
register_node(Stream, lambda s: ([s.key, s.lane, s.step], _FIELDS), _rebuilt, tuple, attributes=True)
