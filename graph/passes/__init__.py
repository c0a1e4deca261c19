"""Passes over graphs: pure functions Graph -> Graph, and the order in which the compiler runs them.

Each keeps the graph's inputs (number, order, identity) and the meaning of its outputs. `licm` also serves
the reverse pass, which wants invariant broadcasts out of loops before it differentiates them; `mask`,
`pads`, `scatters`, `alike` and `distribute` serve scheduling and aren't part of the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loopgrad.graph.nodes import Graph
from loopgrad.graph.passes import calls, carries, cse, dce, fold, forward_stacks, licm, simplify, sink, trip_numbers

Pass = Callable[[Graph], Graph]

PIPELINE: Final[tuple[tuple[str, Pass], ...]] = (
    ("calls", calls.run),
    ("dce", dce.run),
    ("sink", sink.run),
    ("fold", fold.run),
    ("simplify", simplify.run),
    ("cse", cse.run),
    ("forward_stacks", forward_stacks.run),
    ("carries", carries.run),
    ("licm", licm.run),
    ("trip_numbers", trip_numbers.run),
    ("sink", sink.run),
    ("fold", fold.run),
    ("simplify", simplify.run),
    ("cse", cse.run),
    ("carries", carries.run),
    ("dce", dce.run),
)


def optimise(graph: Graph) -> Graph:
    """`graph` after every pass of the pipeline."""
    for _, run in PIPELINE:
        graph = run(graph)
    return graph
