"""Derivatives where the examples of a batch meet (`graph.primitives.named_axes`): all three are linear."""

from __future__ import annotations

from typing import Final

from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value


def _gather_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,) = cotangents
    return (None,) if ct is None else (ops.axis_split(ct, node.attrs),)


def _split_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,) = cotangents
    return (None,) if ct is None else (ops.axis_gather(ct, node.attrs),)


def _share_vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,) = cotangents
    return (None,) if ct is None else (ops.reduce_sum(ops.axis_gather(ct, node.attrs), (0,)),)


def _jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (tangent,) = tangents
    return (None,) if tangent is None else emit(node.op, (tangent,), node.attrs)


VJP: Final[dict[str, Rule]] = {"axis_gather": _gather_vjp, "axis_split": _split_vjp, "axis_share": _share_vjp}

JVP: Final[dict[str, Rule]] = dict.fromkeys(VJP, _jvp)
