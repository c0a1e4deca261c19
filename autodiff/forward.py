"""Forward mode on the ambient DAG: `jvp_emit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.autodiff.calls import push_call
from loopgrad.autodiff.loops.masked import pushed_masked_where_needed
from loopgrad.autodiff.loops.tangents import push_loop, push_switch
from loopgrad.autodiff.pullback import as_seeds
from loopgrad.autodiff.pushforward import RegionRule, push_forward
from loopgrad.graph.nodes import Value

_IN_LANES: Final[dict[str, RegionRule]] = {
    "for": push_loop, "while": push_loop, "switch": push_switch, "call": push_call,
}  # fmt: skip

REGION_JVP: Final[dict[str, RegionRule]] = {
    op: pushed_masked_where_needed(rule, _IN_LANES) for op, rule in _IN_LANES.items()
}


def jvp_emit(outputs: Sequence[Value], wrt: Sequence[Value], tangents: Sequence[Value | None]) -> list[Value | None]:
    """The tangents of `outputs` given those of `wrt`; None is zero, on both sides.

    Emits into the ambient scope. Loops are emitted once more, with tangent carries beside the primal ones,
    as nodes that `replace` the original when a Graph is cut.
    """
    return push_forward(outputs, wrt, as_seeds(tangents), REGION_JVP)
