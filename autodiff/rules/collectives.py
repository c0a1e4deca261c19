"""Derivatives of collectives, as one process sees them: the pair of JAX's JEP 17111.

Results are the same on all processes, and so are their cotangents. Of an all-sum, each process has what it needs; of
an all-gather, each takes the rows that were its own. Nothing is sent. Of an all-to-all, each process has the cotangents
of its columns, and all gather them.
"""

from __future__ import annotations

from typing import Final

from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives.collectives import columns


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


def _all_to_all_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    """What other processes have of the cotangents of the own rows."""
    part, token = node.attrs["part"], node.results[0]
    own: list[Value | None] = [None]
    for v, ct, rows in zip(node.operands[1:], cotangents[1:], node.attrs["counts"], strict=True):
        if ct is None:
            own.append(None)
            continue
        turned = (1, 0, *range(2, len(ct.shape)))
        counts = tuple([len(columns(v.shape[1], rank, len(rows))) for rank in range(len(rows))])
        attrs = {"counts": (counts,), "part": part, "final": False}
        token, gathered = emit("all_gather", (token, ops.transpose(ct, turned)), attrs)
        start, rest = sum(rows[:part]), ct.shape[2:]
        none = [0] * len(rest)
        mine = ops.slice(gathered, (0, start, *none), (v.shape[1], start + rows[part], *rest))
        own.append(ops.transpose(mine, turned))
    return tuple(own)


def _all_sum_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    return (None, *cotangents[1:])


def _jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    """The same collective of the tangents, after the one of the values."""
    filled = [ops.zeros_like(v) if t is None else t for v, t in zip(node.operands[1:], tangents[1:], strict=True)]
    _, *moved = emit(node.op, (node.results[0], *filled), node.attrs)
    return (None, *moved)


VJP: Final[dict[str, Rule]] = {"all_gather": _all_gather_vjp, "all_to_all": _all_to_all_vjp, "all_sum": _all_sum_vjp}

JVP: Final[dict[str, Rule]] = dict.fromkeys(VJP, _jvp)
