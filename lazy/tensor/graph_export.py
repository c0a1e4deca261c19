"""Looking at the graph behind tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph
from loopgrad.lazy.tensor.core import computed_as

if TYPE_CHECKING:
    import networkx

    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "to_dot to_networkx to_text"


def graph_of(*tensors: Tensor) -> Graph:
    """What would be computed to get these tensors (what was, where they are evaluated)."""
    return extract([computed_as(t) for t in tensors])


def to_text(*tensors: Tensor) -> str:
    """The graph of these tensors as text, one node a line, with dtypes and shapes.

    It is what would be computed to get them, or was, where they are evaluated.

    >>> "%1 = exp(%0) : float64[3]" in lg.to_text(lg.exp(lg.ones(3)))
    True
    """
    return str(graph_of(*tensors))


def to_dot(*tensors: Tensor) -> str:
    """The graph of these tensors (see `to_text`) in Graphviz' language, with the dtypes and shapes of values.

    >>> lg.to_dot(lg.exp(lg.ones(3))).startswith("digraph")
    True
    """
    from loopgrad.graph import export  # late: only who looks at graphs needs it

    return export.to_dot(graph_of(*tensors))


def to_networkx(*tensors: Tensor) -> networkx.MultiDiGraph:
    """The graph of these tensors (see `to_text`) for networkx: operands point at their users, with dtypes and shapes.

    >>> lg.to_networkx(lg.exp(lg.ones(3))).number_of_nodes() > 1
    True
    """
    from loopgrad.graph import export  # late: networkx takes as long to import as everything else together

    return export.to_networkx(graph_of(*tensors))
