"""What a `Generator` takes its words from: a key, and a counter of what has been drawn.

Both are tensors, so a bit generator that is handed to a compiled function, carried by a loop or recorded in a replay is
state as any other: drawing writes the counter, and that write reaches the caller's bit generator wherever a write to
any tensor does (docs/compile.md). Where it wouldn't, in a loop's body or a compiled function that reads a bit generator
from around it, drawing raises.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.build import current_scope
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType, TensorType, bool_, float32, uint32, uint64
from loopgrad.lazy.numpy.movement import reshape
from loopgrad.lazy.random.number_formats import unit_interval
from loopgrad.lazy.random.shapes import shape_of, size_of
from loopgrad.lazy.random.source import WordSource, numbered, philox
from loopgrad.lazy.tensor.core import TensorCore, array_leaf, broadcast_value, cast_value, wrap
from loopgrad.lazy.tensor.errors import TracedValueError
from loopgrad.lazy.tensor.ongoing_derivations import note_reads
from loopgrad.lazy.tensor.repeated_calls import repeated
from loopgrad.lazy.tensor.storage import as_array, write
from loopgrad.lazy.tensor.trees import register_node
from loopgrad.runtime.processes import child_safe_lock

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.operands import Shape
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_RANDOM: Final = "BitGenerator Philox4x32 Philox4x64"
WRAPS: Final = 1 << 64
WORD: Final = TensorType((), uint64)
_drawing: Final = child_safe_lock()  # two threads that draw from one generator get different numbers
_written: Final[WeakKeyDictionary[BitGenerator, tuple[Value, int]]] = WeakKeyDictionary()
"""What a draw wrote to a counter last, and which number that is: who asked the device would wait for it."""


def seed_words(seed: Any, count: int) -> list[int]:
    """Words of 64 bits for a key: NumPy's SeedSequence hashes the seed (ints of any size, sequences of them; None takes
    entropy from the operating system)."""
    if isinstance(seed, TensorCore):
        got = f"a tensor, {seed._value.type}"
        raise TypeError(explained("seed", "an int, a sequence of ints or None", got, "pass key=tensor of uint64"))
    sequence = seed if isinstance(seed, np.random.SeedSequence) else None
    try:
        sequence = sequence or np.random.SeedSequence(seed)
    except ValueError:
        raise ValueError(explained("seed", "ints of at least 0", repr(seed), "pass its absolute value")) from None
    except TypeError:
        fix = "pass an int, a sequence of ints or None"
        raise TypeError(explained("seed", "an int, a sequence of ints or None", repr(seed), fix)) from None
    return [int(word) for word in sequence.generate_state(count, np.uint64)]


def state_tensor(number: int) -> Tensor:
    """A word of state that can be written to, made where the function being traced may write to it."""
    if current_scope() is None:
        return as_array(wrap(array_leaf(np.array(number, np.uint64))))
    return as_array(wrap(ops.full(number, WORD)))


def _note(before: Value, after: Value) -> None:
    """That a generator has advanced which a function being traced was given; those that it made are its own."""
    scope = current_scope()
    if scope is not None and (before.node is None or before in scope.drawn):
        scope.drawn.discard(before)
        scope.drawn.add(after)


class BitGenerator(ABC):
    """`key`: words of 64 bits. `counter`: how much has been drawn. Instances are trees, of these and other state."""

    key: tuple[Tensor, ...]
    counter: Tensor
    key_words: ClassVar[int]

    def __init__(self, seed: Any = None, *, key: Any = None, counter: int = 0) -> None:
        if key is not None and seed is not None:
            raise ValueError(explained(type(self).__name__, "a seed or a key", "both", "pass one of them"))
        self.key = self._key_of(seed_words(seed, self.key_words) if key is None else key)
        self.counter = state_tensor(_within("counter", counter, WRAPS))

    def _key_of(self, key: Any) -> tuple[Tensor, ...]:
        """As NumPy takes it: an int, or words. Words may be tensors."""
        words = list(key) if isinstance(key, np.ndarray | Sequence) else [key]
        if len(words) == 1 and not isinstance(words[0], TensorCore):
            number = _within("key", words[0], 1 << (64 * self.key_words))
            words = [number >> (64 * i) & (WRAPS - 1) for i in range(self.key_words)]
        if len(words) != self.key_words:
            fix = "pass an int, or as many words of 64 bits"
            raise ValueError(explained("key", f"{self.key_words} words of 64 bits", f"{len(words)}", fix))
        return tuple([self._key_word(word) for word in words])

    def _key_word(self, word: Any) -> Tensor:
        if not isinstance(word, TensorCore):
            return state_tensor(_within("key", word, WRAPS))
        if word._value.type != WORD:
            raise DTypeError(explained("key", str(WORD), word._value.type, "convert it with .astype(lg.uint64)"))
        return wrap(word._value)

    # ---- state

    @property
    def state(self) -> dict[str, Any]:
        """Name, key and counter, as Python numbers; assign it to go back there."""
        numbers = {name: int(x) for name, x in vars(self).items() if name != "key"}
        return {"bit_generator": type(self).__name__, "state": {"key": [int(word) for word in self.key], **numbers}}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        if state.get("bit_generator") != type(self).__name__:
            got = state.get("bit_generator")
            raise ValueError(explained("state", f"the state of a {type(self).__name__}", got, "make one of those"))
        numbers = dict(state["state"])
        self.key = self._key_of(numbers.pop("key"))
        vars(self).update({name: state_tensor(_within(name, number, WRAPS)) for name, number in numbers.items()})

    def copy(self) -> BitGenerator:
        """Another bit generator that goes on from the same state, by itself."""
        other: BitGenerator = object.__new__(type(self))
        vars(other).update({name: x if name == "key" else as_array(x.copy()) for name, x in vars(self).items()})
        return other

    __copy__ = copy

    def advance(self, delta: int | Tensor) -> BitGenerator:
        """Skip as many steps (words, of Philox4x64); negative numbers go back. Gives the bit generator itself."""
        self.taken(delta)
        return self

    def jumped(self, jumps: int = 1) -> BitGenerator:
        """A copy that is `jumps` times 2**48 steps further on."""
        return self.copy().advance(index(jumps) << 48)

    def taken(self, count: int | Tensor) -> Value:
        """The counter; from now on it is by `count` larger."""
        counter = self.counter
        scope = current_scope()
        if counter._value.scope is not scope:
            raise TracedValueError(
                explained(
                    "random", "a generator that belongs to the function being traced",
                    "one from outside it, whose counter couldn't advance: every call or trip would draw the same",
                    "pass the generator as an argument of the compiled function; in loops, branches and vmap carry "
                    "or pass streams of it, rng.stream(shape)",
                )
            )  # fmt: skip
        if counter._value.shape:
            got = f"counters of shape {counter._value.shape}"
            fix = "carry a stream, rng.stream(shape), which has one counter a lane"
            raise ShapeError(explained("random", "a generator with one counter", got, fix))
        with _drawing:
            value = counter._value
            if scope is None and not isinstance(count, TensorCore):
                last, known = _written.get(self, (None, 0))
                if last is value:
                    note_reads((value,))
                number = ((known if last is value else int(counter)) + count) % WRAPS
                after: Value = array_leaf(np.array(number, np.uint64))
                _written[self] = after, number
            else:
                by = count._value if isinstance(count, TensorCore) else ops.full(count % WRAPS, value.type)  # type: ignore[arg-type]
                after = ops.add(value, cast_value(by, uint64))
                _note(value, after)
            write(counter, after)
        return value

    # ---- words

    def _words(self) -> tuple[Value, ...]:
        return tuple([word._value for word in self.key])

    def source(self, shape: Shape) -> WordSource:
        """A block for each element of the shape, for one draw."""
        return WordSource.of(shape, self._words(), self.taken(1))

    def drawn(self, shape: Shape, make: Callable[..., Tensor], *given: Any) -> Tensor:
        """What a function of a module makes of such a block for each element and of what is given: a draw that comes
        again at the top level notes what it noted before."""
        return _remembered(make)(shape, self.key, wrap(self.taken(1)), *given)

    def has_own_uniform(self, dtype: DType) -> bool:
        """Whether `uniform` makes these otherwise than draws are made: of other words, or not by rounding float32."""
        return dtype.bits < 32

    def uniform(self, shape: Shape, dtype: DType) -> Tensor:
        """Floats in [0, 1)."""
        return unit_interval(self.source(shape), dtype)

    def random_raw(self, size: Any = None) -> Tensor:
        """Words of 64 bits, uint64, of that shape.

        >>> lg.random.Philox4x32(7).random_raw(2).dtype
        uint64
        """
        return self.source(shape_of(size)).long_words(1)[0]

    def spawn(self, n_children: int) -> list[BitGenerator]:
        """Bit generators with keys of their own, made of the words of this one's next step.

        >>> first, second = lg.random.Philox4x32(7).spawn(2)
        >>> first.state["state"]["key"] == second.state["state"]["key"]
        False
        """
        source = self.source((index(n_children),))
        words = source.long_words(self.key_words)
        return [type(self)(key=[reshape(word[i], ()) for word in words]) for i in range(n_children)]


class Philox4x32(BitGenerator):
    """Philox-4x32-10 with a key of 64 bits; element i of draw number n takes block (i, n).

    Shapes and dtypes are those of the draws; `seed` is hashed to the key, an int of any size, a sequence of ints, or
    None for entropy. ValueError for negative seeds and keys of more bits.

    >>> rng = lg.random.Generator(lg.random.Philox4x32(key=7))
    >>> rng.bit_generator.state["state"]
    {'key': [7], 'counter': 0}
    """

    key_words = 1


class Philox4x64(BitGenerator):
    """Philox-4x64-10, with the words that NumPy's `Philox` gives for the same key or seed.

    `random_raw`, and `random` and `uniform` of float64 and float32, give NumPy's bits. Everything else takes blocks
    that NumPy's generator never comes to, and counts one word for each draw.

    >>> ours, numpys = lg.random.Philox4x64(key=7), np.random.Philox(key=7)
    >>> ours.random_raw(3).tolist() == numpys.random_raw(3).tolist()
    True
    """

    key_words = 2
    saved: Tensor  # 0, or 2**32 and the upper half of a word whose lower half a float32 took

    def __init__(self, seed: Any = None, *, key: Any = None, counter: int = 0) -> None:
        super().__init__(seed, key=key, counter=4 * _within("counter", counter, WRAPS >> 2))
        self.saved = state_tensor(0)

    def advance(self, delta: int | Tensor) -> Philox4x64:
        """As NumPy's: go on with a whole block of four words, `delta` blocks after the last one that was begun."""
        begun = wrap(ops.and_(ops.sub(ops.zeros_like(self.counter._value), self.counter._value), 3))
        left = int(begun) if current_scope() is None else begun  # words of the block
        blocks: Any = wrap(cast_value(delta._value, uint64)) if isinstance(delta, TensorCore) else delta
        self.taken(left + 4 * blocks)
        write(self.saved, state_tensor(0)._value)
        return self

    def words_from(self, position: Value, shape: Shape) -> Value:
        """NumPy's words from that position on: of the block with the counter 1 the words 0 to 3, and so on."""
        at = ops.add(broadcast_value(position, shape), numbered(shape, uint64))
        nothing = ops.full(0, WORD)
        return philox([ops.add(ops.shr(at, 2), 1), nothing, nothing, nothing, *self._words()], ops.and_(at, 3), shape)

    def random_raw(self, size: Any = None) -> Tensor:
        """NumPy's next words."""
        shape = shape_of(size)
        return wrap(self.words_from(self.taken(size_of(shape)), shape))

    def has_own_uniform(self, dtype: DType) -> bool:
        return True

    def uniform(self, shape: Shape, dtype: DType) -> Tensor:
        if dtype.bits == 64:
            word = ops.shr(self.random_raw(shape)._value, 11)
            return wrap(ops.mul(cast_value(word, dtype), 2.0**-53))
        if dtype is not float32:
            return super().uniform(shape, dtype)
        halves = self._halves(shape)
        return wrap(ops.mul(cast_value(ops.shr(halves, 8), dtype), 2.0**-24))

    def _halves(self, shape: Shape) -> Value:
        """Halves of words, the lower one first; the half that the last draw left comes before them."""
        size, saved = size_of(shape), self.saved._value
        if not size:
            return ops.full(0, TensorType(shape, uint32))
        left = ops.shr(saved, 32)  # 1 where there is one
        rest = ops.sub(ops.full(size, WORD), left)
        fresh = ops.shr(ops.add(rest, 1), 1)
        position = self.taken(wrap(fresh))
        number = ops.sub(numbered((size,), uint64), broadcast_value(left, (size,)))
        first = ops.eq(number, ops.full(WRAPS - 1, number.type))  # type: ignore[arg-type]
        at = ops.add(broadcast_value(position, (size,)), ops.shr(number, 1))
        nothing = ops.full(0, WORD)
        word = philox([ops.add(ops.shr(at, 2), 1), nothing, nothing, nothing, *self._words()], ops.and_(at, 3), (size,))
        lower = ops.eq(ops.and_(number, 1), 0)
        half = ops.select(lower, cast_value(word, uint32), cast_value(ops.shr(word, 32), uint32))
        half = ops.select(first, broadcast_value(cast_value(saved, uint32), (size,)), half)
        last = self.words_from(ops.sub(ops.add(position, fresh), 1), ())
        kept = ops.or_(ops.shr(last, 32), ops.full(1 << 32, WORD))
        odd = ops.cast(ops.and_(rest, 1), bool_)
        write(self.saved, ops.select(odd, kept, ops.full(0, WORD)))
        return ops.reshape(half, shape)


@cache
def _remembered(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @repeated
    def drawn(shape: Shape, key: Sequence[Tensor], step: Tensor, *given: Any) -> Tensor:
        return make(WordSource.of(shape, tuple([word._value for word in key]), step._value), *given)

    return drawn


def long_word(source: WordSource) -> Tensor:
    """A word of 64 bits for each element."""
    return source.long_words(1)[0]


def _within(what: str, number: Any, end: int) -> int:
    """An int of at least 0 below the end."""
    found: int = index(number)
    if not 0 <= found < end:
        bits = end.bit_length() - 1
        raise ValueError(explained(what, f"an int of {bits} bits", found, "a seed may be larger"))
    return found


def _children(generator: BitGenerator) -> tuple[Sequence[Any], tuple[str, ...]]:
    return list(vars(generator).values()), tuple(vars(generator))


def _register(cls: type[BitGenerator]) -> None:
    def rebuilt(names: Sequence[str], children: Sequence[Any]) -> BitGenerator:
        generator: BitGenerator = object.__new__(cls)
        vars(generator).update(zip(names, children, strict=True))
        return generator

    register_node(cls, _children, rebuilt, tuple, attributes=True)


_register(Philox4x32)
_register(Philox4x64)
