"""Derivatives of collectives, as one process sees them: the pair of JAX's JEP 17111.

Results are the same on all processes, and so are their cotangents. Of an all-sum, each process has what it needs; of
an all-gather, each takes the rows that were its own. Nothing is sent.
"""

from __future__ import annotations

from typing import Final

from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value


def _all_gather_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    part = node.attrs["part"]
    own: list[Value | None] = [None]
    for ct, rows in zip(cotangents[1:], node.attrs["counts"], strict=True):
        if ct is None:
            own.append(None)
            continue
        start, rest = sum(rows[:part]), ct.shape[1:]
        own.append(ops.slice(ct, (start, *[0] * len(rest)), (start + rows[part], *rest)))
    return tuple(own)


def _all_sum_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    return (None, *cotangents[1:])


def _jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    """The same collective of the tangents, after the one of the values."""
    filled = [ops.zeros_like(v) if t is None else t for v, t in zip(node.operands[1:], tangents[1:], strict=True)]
    _, *moved = emit(node.op, (node.results[0], *filled), node.attrs)
    return (None, *moved)


VJP: Final[dict[str, Rule]] = {"all_gather": _all_gather_vjp, "all_sum": _all_sum_vjp}

JVP: Final[dict[str, Rule]] = dict.fromkeys(VJP, _jvp)
