"""Errors of the lazy layer."""

from __future__ import annotations

from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.location import located, user_location
from loopgrad.graph.nodes import Value

_INSTEAD = {
    "bool": "branch with lg.cond or lg.where, loop with lg.while_loop",
    "int": "pass it as a bound to lg.fori_loop, or index with the tensor itself",
    "index": "index with the tensor itself (x[i]), or loop with lg.fori_loop",
    "float": "keep it a tensor, or return it from the function and convert it there",
    "array": "use the functions of loopgrad instead of NumPy's, or return it and convert it there",
}


class TracedValueError(LoopgradError, TypeError):
    """The elements of a tensor were asked for while the function that computes it is being traced."""


class StructureError(LoopgradError, TypeError):
    """Two trees (carries, branch results, arguments) whose structure differs."""


class GradientError(LoopgradError, TypeError):
    """A derivative that isn't defined as asked: a non-scalar loss, an integer argument."""


class HistoryError(LoopgradError, RuntimeError):
    """`lg.gradients` met values whose computation is no longer known."""


def traced_value_error(value: Value, purpose: str) -> TracedValueError:
    """The error of asking a traced value for its elements."""
    made = value.node.loc if value.node is not None else None
    origin = f", made at {made}" if made else " (an argument of the function)"
    text = (
        f"{purpose}: expected a tensor whose elements are known, got {value.type}{origin}, of a function that is being "
        f"traced: its elements don't exist yet; {_INSTEAD.get(purpose, _INSTEAD['array'])}"
    )
    return TracedValueError(located(text, user_location()))
