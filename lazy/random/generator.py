"""`Generator`: NumPy's interface, over a bit generator whose counter advances with every draw."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops
from loopgrad.graph.types import uint64
from loopgrad.lazy.random import continuous
from loopgrad.lazy.random.bit_generators import BitGenerator, Philox4x32
from loopgrad.lazy.random.distribution import Distribution
from loopgrad.lazy.random.draws import Draws
from loopgrad.lazy.random.integers import IntegerRange
from loopgrad.lazy.random.shapes import drawn_shape, shape_of
from loopgrad.lazy.random.source import numbered
from loopgrad.lazy.random.stream import Stream
from loopgrad.lazy.tensor.core import as_tensor, broadcast_value, cast_operand, wrap
from loopgrad.lazy.tensor.trees import register_node

if TYPE_CHECKING:
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

    def _draw(self, what: Distribution, parameters: tuple[Any, ...], size: Any, dtype: Any) -> Tensor:
        what.check(parameters)
        kind = what.float_type(parameters, dtype)
        given = [as_tensor(p) for p in parameters]
        shape = drawn_shape(what.name, [t._value.shape for t in given], size)
        if what is continuous.RANDOM:
            return self.bit_generator.uniform(shape, kind)
        if what is continuous.UNIFORM:
            unit = self.bit_generator.uniform(shape, kind)._value
            low, high = [broadcast_value(cast_operand(t, kind), shape) for t in given]
            return wrap(ops.add(low, ops.mul(ops.sub(high, low), unit)))
        return what.numbers(self.bit_generator.source(shape), kind, given)

    def _draw_integers(self, among: IntegerRange, size: Any) -> Tensor:
        return among.numbers(self.bit_generator.source(drawn_shape("integers", among.shapes, size)))

    def stream(self, shape: Any = ()) -> Stream:
        """Streams of random numbers, one for each element (*lane*) of `shape`: values that loops carry.

        >>> stream = lg.random.default_rng(7).stream(3)
        >>> u, stream = stream.uniform()
        >>> u.shape
        (3,)
        """
        lanes = shape_of(shape)
        key = self.bit_generator.source(()).long_word(0)._value
        step = ops.full(0, numbered(lanes, uint64).type)  # type: ignore[arg-type]
        return Stream(wrap(broadcast_value(key, lanes)), wrap(numbered(lanes, uint64)), wrap(step))

    def spawn(self, n_children: int) -> list[Generator]:
        """That many generators (an int) with keys of their own, whose numbers have nothing to do with each other.

        >>> [child.random().shape for child in lg.random.default_rng(7).spawn(2)]
        [(), ()]
        """
        return [Generator(child) for child in self.bit_generator.spawn(index(n_children))]


def default_rng(seed: Any = None) -> Generator:
    """A `Generator` of that seed: an int of any size, a sequence of ints, None, a bit generator; a generator as it is.

    >>> lg.random.default_rng(7).integers(10, size=4).shape
    (4,)
    """
    return seed if isinstance(seed, Generator) else Generator(seed)


def _rebuilt(_: None, children: Any) -> Generator:
    generator: Generator = object.__new__(Generator)
    (generator.bit_generator,) = children
    return generator


register_node(Generator, lambda g: ([g.bit_generator], None), _rebuilt, lambda _: None, attributes=False)
