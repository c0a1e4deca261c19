"""Looking at the graph behind tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from loopgrad.graph.errors import explained
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Leaf
from loopgrad.lazy.tensor.config import current
from loopgrad.lazy.tensor.core import TensorCore, computed_as
from loopgrad.lazy.tensor.errors import traced_value_error
from loopgrad.lazy.tensor.evaluation import device_of
from loopgrad.lazy.tensor.walk import walked

if TYPE_CHECKING:
    import networkx

    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "explain to_dot to_networkx to_text"


def graph_of(*tensors: Tensor) -> Graph:
    """What would be computed to get these tensors (what was, where they are evaluated)."""
    return extract([computed_as(t) for t in _checked(tensors)])


def _checked(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """TypeError for what isn't a tensor."""
    for t in tensors:
        if not isinstance(t, TensorCore):
            fix = "pass each tensor as an argument; of a compiled function, ask .plan(...)"
            raise TypeError(explained("graph of tensors", "tensors", f"{type(t).__name__}", fix))
    return tensors


def to_text(*tensors: Tensor) -> str:
    """The graph of these tensors as text, one node a line, with dtypes and shapes.

    It is what would be computed to get them, or was, where they are evaluated.

    >>> "%1 = exp(%0) : float64[3]" in lg.to_text(lg.exp(lg.ones(3)))
    True
    """
    return str(graph_of(*tensors))


def explain(*tensors: Tensor) -> str:
    """How these tensors will be computed together (or were, where all are evaluated): directly, operation by operation,
    by code that exists already, or by code that is compiled first, and why; a line for each thing to say.

    Computes nothing; compiles where that would be done. Shapes and dtypes stay. Raises TracedValueError while a
    function is traced, and what compiling raises.

    >>> x = lg.asarray([1.0, 2.0])
    >>> print(lg.explain(2.0 * x + 1.0).partition(",")[0])
    cpu: runs directly
    >>> with lg.options(direct=False):
    ...     print("compiled" in lg.explain(2.0 * x + 1.0))
    True
    """
    from loopgrad.runtime.session import explained  # late: building graphs needs no session

    for t in _checked(tensors):
        if t._value.scope is not None:
            raise traced_value_error(t._value, "explain")
    lazy = list(dict.fromkeys([t._value for t in tensors if not isinstance(t._value, Leaf)]))
    graph = walked(lazy).cut(lazy)[0] if lazy else graph_of(*tensors)
    lines = []
    for device in dict.fromkeys([device_of(t) for t in tensors]):
        lines += [f"{device}: {line}" for line in explained(graph, device, current().options)]
    return "\n".join(lines)


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
