"""`Generator`: NumPy's interface, over a bit generator whose counter advances with every draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import explained
from loopgrad.graph.types import uint64
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.random import continuous
from loopgrad.lazy.random.bit_generators import BitGenerator, Philox4x32
from loopgrad.lazy.random.distribution import Distribution
from loopgrad.lazy.random.draws import Draws
from loopgrad.lazy.random.orders import chosen_positions, order, permuted, population
from loopgrad.lazy.random.shapes import drawn_shape, shape_of
from loopgrad.lazy.random.source import numbered
from loopgrad.lazy.random.stream import Stream
from loopgrad.lazy.tensor.core import TensorCore, as_tensor, broadcast_value, cast_operand, is_scalar, wrap
from loopgrad.lazy.tensor.outputs import Out, delivered, given_out
from loopgrad.lazy.tensor.trees import register_node

if TYPE_CHECKING:
    from loopgrad.graph.types import DType
    from loopgrad.lazy.tensor.core import ArrayLike
    from loopgrad.lazy.tensor.operands import Shape
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_RANDOM: Final = "Generator default_rng"


class Generator(Draws["Tensor"]):
    """Random numbers, as NumPy's `Generator` makes them; a tree of the key and the counter.

    `seed`: an int of at least 0 and of any size, a sequence of them, None (entropy from the operating system), or a bit
    generator, `lg.random.Philox4x32(...)` or `lg.random.Philox4x64(...)`, with which it shares its state.

    Each draw advances the counter. So does a draw in a compiled function that takes the generator as an argument, and
    each replay of that: the counter is a tensor that the function writes to. A compiled function, loop or `vmap` that
    reads a generator from around it raises TracedValueError when it draws.

    >>> rng = lg.random.Generator(7)
    >>> rng.normal(size=(2, 3)).shape
    (2, 3)
    >>> noisy = lg.compile(lambda x, rng: x + rng.random(2))
    >>> bool((noisy(lg.zeros(2), rng) == noisy(lg.zeros(2), rng)).any())
    False
    """

    def __init__(self, seed: Any = None) -> None:
        self.bit_generator = seed if isinstance(seed, BitGenerator) else Philox4x32(seed)

    def __repr__(self) -> str:
        return f"Generator({type(self.bit_generator).__name__})"

    def __copy__(self) -> Generator:
        return Generator(self.bit_generator.copy())

    def copy(self) -> Generator:
        """Another generator that goes on from the same state: both draw the same floats and integers.

        >>> rng = lg.random.Generator(7)
        >>> bool(rng.copy().random() == rng.random())
        True
        """
        return self.__copy__()

    def _draw(self, what: Distribution, parameters: tuple[Any, ...], size: Any, dtype: Any = None) -> Tensor:
        what.check(parameters)
        kind = what.float_type(parameters, dtype)
        shape = drawn_shape(what.name, [() if is_scalar(p) else as_tensor(p)._value.shape for p in parameters], size)
        if what in (continuous.RANDOM, continuous.UNIFORM) and self.bit_generator.has_own_uniform(kind):
            return _between(parameters, self.bit_generator.uniform(shape, kind), kind)
        step = wrap(self.bit_generator.taken(1))
        return what.drawn(shape, kind, self.bit_generator.key, step, parameters)

    def _made(
        self,
        what: str,
        shapes: Sequence[Shape],
        size: Any,
        words: int,
        make: Callable[..., Tensor],
        given: Sequence[Any],
        event: Shape = (),
    ) -> Tensor:
        return self.bit_generator.drawn((*drawn_shape(what, shapes, size), *event), make, *given)

    # ---- numbers that are written to an array

    def random(self, size: Any = None, dtype: Any = None, out: Out = None) -> Tensor:
        """Uniform floats in [0, 1), of shape `size`: multiples of 2**-53, of float32 2**-24. With `out` they have its
        shape and dtype, and are written to it.

        >>> lg.random.default_rng(7).random(3)
        Tensor([0.86044399, 0.75734053, 0.86979218], dtype=float64)
        """
        return _filled("random", super().random, size, dtype, out)

    def standard_normal(self, size: Any = None, dtype: Any = None, out: Out = None) -> Tensor:
        """Normal floats with mean 0 and standard deviation 1; `out` as of `random`.

        >>> x = lg.zeros((2, 2), dtype=lg.float32)
        >>> lg.random.default_rng(7).standard_normal(out=x) is x
        True
        """
        return _filled("standard_normal", super().standard_normal, size, dtype, out)

    def standard_exponential(self, size: Any = None, dtype: Any = None, method: str = "zig", out: Out = None) -> Tensor:
        """Exponential floats with mean 1; `out` as of `random`. NumPy's `method`, "zig" or "inv", changes nothing.

        >>> lg.random.default_rng(7).standard_exponential(3).shape
        (3,)
        """
        if method not in ("zig", "inv"):
            raise ValueError(explained("standard_exponential", "method 'zig' or 'inv'", repr(method), "leave it out"))
        return _filled("standard_exponential", super().standard_exponential, size, dtype, out)

    def standard_gamma(self, shape: ArrayLike, size: Any = None, dtype: Any = None, out: Out = None) -> Tensor:
        """Gamma floats of that shape and scale 1. Differentiable by the shape, implicitly (Figurnov et al., 2018).
        `out` as of `random`.

        >>> lg.random.default_rng(7).standard_gamma([0.5, 20.0]).shape
        (2,)
        """
        return _filled("standard_gamma", partial(super().standard_gamma, shape), size, dtype, out)

    # ---- orders

    def permutation(self, x: ArrayLike, axis: int = 0) -> Tensor:
        """The rows of x along an axis in random order; of an int the integers below it. A copy, of x's shape and dtype.
        Raises AxisError for an axis that x hasn't, and for other numbers.

        >>> sorted(lg.random.default_rng(7).permutation(4).tolist())
        [0, 1, 2, 3]
        """
        rows, at = population("permutation", x, axis)
        return take(rows, order(self.bit_generator, (rows._value.shape[at],)), axis=at)

    def permuted(self, x: ArrayLike, *, axis: int | None = None, out: Out = None) -> Tensor:
        """Each row along an axis in a random order of its own; without an axis all elements. A copy, of x's shape, or
        written to `out`.

        >>> lg.random.default_rng(7).permuted(lg.ones((2, 3)), axis=1).shape
        (2, 3)
        """
        return delivered("permuted", permuted(self.bit_generator, as_tensor(x), axis), out)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Put the rows of a tensor or NumPy array along an axis in random order, in place; TypeError for anything else.

        >>> x = lg.arange(4)
        >>> lg.random.default_rng(7).shuffle(x)
        >>> sorted(x.tolist())
        [0, 1, 2, 3]
        """
        if not isinstance(x, TensorCore | np.ndarray):
            fix = "use permutation, which returns a copy"
            raise TypeError(explained("shuffle", "a tensor or a NumPy array", type(x).__name__, fix))
        target: Any = x
        target[...] = self.permutation(target, axis)

    def choice(
        self, a: ArrayLike, size: Any = None, replace: bool = True, p: ArrayLike | None = None, axis: int = 0,
        shuffle: bool = True,
    ) -> Tensor:  # fmt: skip
        """Elements of `a` along an axis (of an int: integers below it), of shape `size`: with replacement, or all of
        different positions; with probabilities `p`, or all alike. The order is random whatever `shuffle` says.

        Raises ValueError for more elements than there are without replacement, and for probabilities that are negative
        or don't sum to 1.

        >>> lg.random.default_rng(7).choice([10, 20, 30], size=2, p=[0.0, 1.0, 0.0])
        Tensor([20, 20], dtype=int64)
        """
        rows, at = population("choice", a, axis)
        places = chosen_positions(self.bit_generator, rows._value.shape[at], size, replace, p)
        return take(rows, places, axis=at)

    def bytes(self, length: int) -> bytes:
        """As many random bytes; an int. (Evaluates, so not in a function that is traced.)

        >>> len(lg.random.default_rng(7).bytes(5))
        5
        """
        words = np.asarray(self.bit_generator.random_raw(-(-index(length) // 8)))
        return words.astype("<u8").tobytes()[:length]

    # ---- others

    def stream(self, shape: Any = ()) -> Stream:
        """Streams of random numbers, one for each element (*lane*) of `shape`: values that loops carry.

        >>> stream = lg.random.default_rng(7).stream(3)
        >>> u, stream = stream.uniform()
        >>> u.shape
        (3,)
        """
        lanes = shape_of(shape)
        key = self.bit_generator.source(()).long_words(1)[0]._value
        step = ops.full(0, numbered(lanes, uint64).type)  # type: ignore[arg-type]
        return Stream(wrap(broadcast_value(key, lanes)), wrap(numbered(lanes, uint64)), wrap(step))

    def spawn(self, n_children: int) -> list[Generator]:
        """That many generators (an int) with keys of their own, whose numbers have nothing to do with each other.

        >>> [child.random().shape for child in lg.random.default_rng(7).spawn(2)]
        [(), ()]
        """
        return [Generator(child) for child in self.bit_generator.spawn(index(n_children))]


def _between(ends: tuple[Any, ...], unit: Tensor, dtype: DType) -> Tensor:
    """Numbers in [0, 1) as such between the ends, where there are some."""
    if not ends:
        return unit
    low, high = [broadcast_value(cast_operand(as_tensor(p), dtype), unit._value.shape) for p in ends]
    return wrap(ops.add(low, ops.mul(ops.sub(high, low), unit._value)))


def default_rng(seed: Any = None) -> Generator:
    """A `Generator` of that seed: an int of any size, a sequence of ints, None, a bit generator; a generator as it is.

    >>> lg.random.default_rng(7).integers(10, size=4).shape
    (4,)
    """
    return seed if isinstance(seed, Generator) else Generator(seed)


def _filled(what: str, draw: Callable[[Any, Any], Tensor], size: Any, dtype: Any, out: Any) -> Tensor:
    """`draw(size, dtype)`, or where an array is given such numbers for all of it, written to it."""
    if out is None:
        return draw(size, dtype)
    target = given_out(what, out)._value
    return delivered(what, draw(target.shape if size is None else size, dtype or target.dtype.np), out)


def _rebuilt(_: None, children: Any) -> Generator:
    generator: Generator = object.__new__(Generator)
    (generator.bit_generator,) = children
    return generator


register_node(Generator, lambda g: ([g.bit_generator], None), _rebuilt, lambda _: None, attributes=False)
