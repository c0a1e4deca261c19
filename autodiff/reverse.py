"""Reverse mode on the ambient DAG: `vjp_emit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.autodiff.calls import pull_call
from loopgrad.autodiff.loops.adjoint import pull_loop
from loopgrad.autodiff.loops.masked import masked_where_needed
from loopgrad.autodiff.loops.switch import pull_switch
from loopgrad.autodiff.pullback import Context, RegionRule, as_seeds, pull, require_cotangents
from loopgrad.graph.nodes import Value

REGION_VJP: Final[dict[str, RegionRule]] = {
    "for": masked_where_needed(pull_loop),
    "while": masked_where_needed(pull_loop),
    "switch": masked_where_needed(pull_switch),
    "call": pull_call,
}

_CONTEXT: Final = Context(REGION_VJP)


def vjp_emit(outputs: Sequence[Value], cotangents: Sequence[Value | None], wrt: Sequence[Value]) -> list[Value | None]:
    """The cotangents of `wrt` given those of `outputs`; None is zero, on both sides.

    Emits into the ambient scope. The graph between `wrt` and `outputs` is read, never changed: loops that
    must save values are emitted once more, as nodes that `replace` the original when a Graph is cut.
    """
    require_cotangents(outputs, cotangents)
    return pull(outputs, as_seeds(cotangents), wrt, _CONTEXT)
