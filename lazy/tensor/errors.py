"""Errors of the lazy layer."""

from __future__ import annotations

from typing import Final

from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.location import located, user_location
from loopgrad.graph.nodes import Value

PUBLIC: Final = "HistoryError StaleCaptureError StaticArgumentError StructureError TracedValueError"
_INSTEAD = {
    "bool": "branch with lg.cond or lg.where, loop with lg.while_loop, or name the argument in static_argnums",
    "int": "pass it as a bound to lg.fori_loop, index with the tensor itself, or name the argument in static_argnums",
    "index": "index with the tensor itself (x[i]), loop with lg.fori_loop, or name the argument in static_argnums",
    "shape": "shapes are fixed while tracing: name the argument in static_argnums (or static_argnames) of lg.compile",
    "item": "keep it a tensor, or return it from the function and convert it there",
    "float": "keep it a tensor, or return it from the function and convert it there",
    "array": "use the functions of loopgrad instead of NumPy's, or return it and convert it there",
}


_UNFOLLOWED = {
    "to_device": "move the arguments before they are differentiated, or move lg.stop_gradient(x)",
    "pickle": "return it and pickle it there, or pickle lg.stop_gradient(x)",
}


class TracedValueError(LoopgradError, TypeError):
    """The elements of a tensor were asked for while the function that computes it is being traced, or while a
    derivative is taken that depends on it."""


class StaleCaptureError(LoopgradError, RuntimeError):
    """A captured call that holds elements of a tensor which was written to since."""


class StaticArgumentError(LoopgradError, TypeError):
    """An argument of a compiled function that can be neither an input nor a part of the program."""


class StructureError(LoopgradError, TypeError):
    """Two trees (carries, branch results, arguments) whose structure differs."""


class HistoryError(LoopgradError, RuntimeError):
    """`lg.gradients` met values whose computation is no longer known."""


def traced_value_error(value: Value, purpose: str, needed_as: str | None = None) -> TracedValueError:
    """The error of asking a traced value for its elements, which are `needed_as` a "shape", say (else: for what
    `purpose` says)."""
    made = value.node.loc if value.node is not None else None
    origin = f", made at {made}" if made else " (an argument of the function)"
    instead = _INSTEAD.get(needed_as or purpose, _INSTEAD["array"])
    text = (
        f"{purpose}: expected a tensor whose elements are known, got {value.type}{origin}, of a function that is being "
        f"traced: its elements don't exist yet; {instead}"
    )
    return TracedValueError(located(text, user_location()))


def derivative_lost_error(value: Value, purpose: str) -> TracedValueError:
    """The error of reading elements of a value on which a derivative depends that is being taken."""
    made = value.node.loc if value.node is not None else None
    origin = f", made at {made}" if made else ""
    fix = "compute with loopgrad's functions, or read lg.stop_gradient(x) where a constant is meant"
    text = (
        f"{purpose}: expected a tensor that doesn't depend on what is being differentiated, got {value.type}{origin}, "
        "which does: its elements would be constants, and their part of the derivative lost; "
        f"{_UNFOLLOWED.get(purpose, fix)}"
    )
    return TracedValueError(located(text, user_location()))
