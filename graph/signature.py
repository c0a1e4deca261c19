"""Many values by name: what a traced function takes or gives, in named segments.

A signature is a class whose fields are sequences of values. Their order, which is that of the inputs or the outputs of
a graph, is stated by the class; everybody else says names:

    class Popping(Signature):
        carries: Sequence[Value]
        stacks: Sequence[Value]

    given = Popping(cotangents, stacks)
    body = given.traced(lambda a: [*a.carries, *(ops.pop(s)[0] for s in a.stacks)])
    emit("call", given.values, attrs, (body,))
    given.split(body.inputs).stacks             the body's inputs that are stacks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import ClassVar, Self, dataclass_transform

from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.regions import in_parts


@dataclass_transform(frozen_default=True)
class Signature:
    """Base of classes whose fields are sequences of values. A dataclass would do; to make one takes a process that
    differentiates 80 times as long."""

    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._names = tuple(cls.__annotations__)

    def __init__(self, *segments: Sequence[Value]) -> None:
        self.__dict__.update(zip(self._names, segments, strict=True))

    @property
    def segments(self) -> list[Sequence[Value]]:
        return [self.__dict__[name] for name in self._names]

    @property
    def values(self) -> tuple[Value, ...]:
        """All of them, in order."""
        return tuple(chain.from_iterable(self.segments))

    def replaced(self, **segments: Sequence[Value]) -> Self:
        """With other values in these fields."""
        assert segments.keys() <= {*self._names}, segments.keys()
        return self._made([segments.get(name, self.__dict__[name]) for name in self._names])

    def split(self, values: Sequence[Value]) -> Self:
        """Values that correspond to these one to one, by segment."""
        return self._made(in_parts(values, *map(len, self.segments)))

    def traced(self, function: Callable[[Self], Sequence[Value]]) -> Graph:
        """The closed graph of a function that takes values of these types."""
        graph, captured = trace(lambda *arguments: function(self.split(arguments)), [v.type for v in self.values])
        assert not captured, "a function that takes all it reads"
        return graph

    def _made(self, segments: Sequence[Sequence[Value]]) -> Self:
        make: Callable[..., Self] = type(self)
        return make(*segments)
