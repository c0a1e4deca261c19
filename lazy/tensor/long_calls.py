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
from loopgrad.lazy.tensor.walk import walked

SHORTEST: Final = 8  # operations that are worth a graph
CLOSED_CALL: Final = {
    "kind": "plain",
    "arguments": 0,
    "name": None,
    "save": (),
    "lanes": 0,
    "shared": (),
    "closed": True,
}


def called_graph(types: Sequence[Any], note: Callable[[Sequence[Value]], Sequence[Value]]) -> Graph:
    """The graph of what `note` notes of values of these types, whose numbers stay: what is computed of numbers alone,
    as places and limits are, is computed now."""
    inputs = [Value(type) for type in types]
    results = note(inputs)
    nodes = walked(results).cut(results)[0].nodes
    return dce.run(fold.run(without_plain(Graph(tuple(inputs), nodes, tuple(results)))))


def call_attributes(function: Graph) -> CallAttributes:
    """Those of a call of a graph."""
    return CallAttributes(CLOSED_CALL, function)
