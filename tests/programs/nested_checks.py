"""How random_mutations and random_mixtures check a program (see nested_programs): its values and derivatives in several
ways, against what each of them knows from outside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar

import numpy as np
from nested_programs import Nested, statements

import loopgrad as lg

State = dict[str, Any]
Pairs = Iterator[tuple[str, Any, Any, float]]  # what, found, expected, tolerance
VALUE_TOLERANCE = 1e-10


class Unsuitable(Exception):
    """What is known from outside says nothing here: numbers too large, or a decision too close."""


class NestedCheck:
    """A program at two points, `point` and `other`, and two directions of its floats there.

    Those who derive say which of a state's names are floats (REAL), along which axis these are batched, what `loss` is,
    which tensors a state gives it (`tensors`: floats by name, and the rest), and what is `expected`: of each point the
    final state, the loss and its slope in the first direction, and as "bend" the second derivative by both."""

    REAL: ClassVar[tuple[str, ...]]
    AXIS: ClassVar[int]
    program: Nested
    point: State
    other: State
    directions: list[State]
    expected: dict[str, Any]
    loss: Callable[[State, Any], Any]
    tensors: Callable[[State], tuple[State, Any]]
    tolerance: tuple[float, float]
    """Of slopes, and of bends."""

    def names(self) -> set[str]:
        return {s[0] for s in statements(self.program.block)}

    def ways(self) -> list[Callable[[], Pairs]]:
        """Forward mode goes only through what has no rule for the reverse alone."""
        found = [self.values, self.gradient, self.compiled, self.replayed, self.batched, self.twice]
        return found if "rule" in self.names() else [*found, self.pushed, self.pushed_twice]

    def values(self) -> Pairs:
        raise NotImplementedError

    def size(self, tolerance: float) -> float:
        """What an error of so much is of."""
        raise NotImplementedError

    def compared(self, name: str, value: Any, slopes: State) -> Pairs:
        _, expected, slope = self.expected[name]
        yield "value", value, expected, VALUE_TOLERANCE
        yield "slope", self.along(slopes, self.directions[0]), slope, self.tolerance[0]

    def along(self, slopes: State, direction: State) -> Any:
        """The derivative that a gradient has in a direction: complex ones are pairs of reals."""
        return sum(lg.sum(lg.real(lg.conj(slopes[n]) * direction[n])) for n in self.REAL)

    def along_which(self) -> list[State]:
        return [{n: lg.asarray(d[n]) for n in self.REAL} for d in self.directions]

    def gradient(self) -> Pairs:
        yield from self.compared("point", *lg.value_and_grad(self.loss)(*self.tensors(self.point)))

    def compiled(self) -> Pairs:
        with lg.options(direct=False):
            step = lg.compile(lg.value_and_grad(self.loss))
            for name, s in (("point", self.point), ("other", self.other), ("point", self.point)):
                yield from self.compared(name, *step(*self.tensors(s)))

    def replayed(self) -> Pairs:
        """What a replay gave stays what it is."""
        replay = lg.compile(lg.value_and_grad(self.loss)).capture(*self.tensors(self.point))
        results = [(name, replay.replay(*self.tensors(getattr(self, name)))) for name in ("other", "point")]
        for name, found in results:
            yield from self.compared(name, *found)

    def batched(self) -> Pairs:
        (real, rest), (others, other_rest) = self.tensors(self.point), self.tensors(self.other)
        both = {n: lg.stack([real[n], others[n]], axis=self.AXIS) for n in self.REAL}
        function = lg.vmap(lg.value_and_grad(self.loss), in_axes=(self.AXIS, -1), out_axes=(0, -1))
        values, slopes = function(both, lg.tree.map(lambda x, y: lg.stack([x, y], axis=-1), rest, other_rest))
        for i, name in enumerate(("point", "other")):
            yield from self.compared(name, values[i], {n: slopes[n][..., i] for n in self.REAL})

    def pushed(self) -> Pairs:
        real, rest = self.tensors(self.point)
        value, slope = lg.jvp(lambda r: self.loss(r, rest), (real,), (self.along_which()[0],))
        yield "value", value, self.expected["point"][1], VALUE_TOLERANCE
        yield "tangent", slope, self.expected["point"][2], self.tolerance[0]

    def twice(self) -> Pairs:
        """Reverse over reverse."""
        real, rest = self.tensors(self.point)
        first = lambda r: self.along(lg.grad(self.loss)(r, rest), self.directions[0])
        yield "bend", self.along(lg.grad(first)(real), self.directions[1]), self.expected["bend"], self.tolerance[1]

    def pushed_twice(self) -> Pairs:
        """Forward over reverse, and forward over forward."""
        real, rest = self.tensors(self.point)
        one, two = self.along_which()
        slopes = lg.jvp(lambda r: lg.grad(self.loss)(r, rest), (real,), (two,))[1]
        yield "bend", self.along(slopes, self.directions[0]), self.expected["bend"], self.tolerance[1]
        pushed = lambda r: lg.jvp(lambda q: self.loss(q, rest), (r,), (one,))[1]
        yield "forward twice", lg.jvp(pushed, (real,), (two,))[1], self.expected["bend"], self.tolerance[1]


def check_ways(check: NestedCheck, device: str, names: Collection[str] | None = None) -> int:
    """AssertionError where one of the ways (those of the names; None: all) differs from what is expected; how many ways
    there were, 0 for an unsuitable program."""
    try:
        _ = check.expected
    except (Unsuitable, np.linalg.LinAlgError):
        return 0
    ways = [way for way in check.ways() if names is None or way.__name__ in names]
    for way in ways:
        with lg.default_device(device):
            for what, found, wanted, tolerance in way():
                message = f"{way.__name__}: {what} on {device}\n    {check.program}"
                bounds = {"rtol": tolerance, "atol": tolerance * check.size(tolerance)}
                np.testing.assert_allclose(np.asarray(found), wanted, **bounds, err_msg=message)
    return len(ways)
