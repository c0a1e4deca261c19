"""Long calls as one operation: what a function noted is noted again as a call of a graph.

    lg.special.j0(x)        178 operations the first time, then one:  call(%x) of a graph of 178

To note each operation again takes a third of a microsecond, and to recognise a line of hundreds three times as long.
A call is one word of it. Passes, derivatives and programs that run directly put what is called in its place, so that
what is computed stays the same, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from loopgrad.graph.nodes import CallAttributes, Graph, Value
from loopgrad.graph.passes import dce, fold
from loopgrad.graph.passes.calls import without_plain
from loopgrad.graph.structure import Numbers, structure
from loopgrad.lazy.tensor.walk import walked

SHORTEST: Final = 8  # operations that are worth a graph
MOST_GRAPHS: Final = 1024  # of a function, before all are forgotten
CLOSED_CALL: Final = {
    "kind": "plain",
    "arguments": 0,
    "name": None,
    "save": (),
    "lanes": 0,
    "shared": (),
    "closed": True,
}


class CalledGraphs:
    """Graphs of one function's calls. `_numbers`: theirs, by hashes of what they compute of any numbers."""

    def __init__(self) -> None:
        self._numbers: dict[int, Numbers] = {}

    def graph(self, types: Sequence[Any], note: Callable[[Sequence[Value]], Sequence[Value]]) -> Graph | None:
        """That of what `note` notes of values of these types, whose numbers stay: what is computed of numbers alone, as
        places and limits are, is computed now. None for a call that differs from such a one in numbers: operations'
        are inputs of one program, where those of graphs would be in the code of one each."""
        inputs = [Value(type) for type in types]
        results = note(inputs)
        graph = Graph(tuple(inputs), walked(results).cut(results)[0].nodes, tuple(results))
        if (found := structure(graph)) is not None:
            if len(self._numbers) >= MOST_GRAPHS:
                self._numbers.clear()
            if self._numbers.setdefault(hash(found[0]), found[1]) != found[1]:
                return None
        return dce.run(fold.run(without_plain(graph)))


def call_attributes(function: Graph) -> CallAttributes:
    """Those of a call of a graph."""
    return CallAttributes(CLOSED_CALL, function)
