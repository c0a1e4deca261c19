"""Elementwise primitives: every operand at the result's index."""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.lower.context import Frame, Lowering, Pull
from loopgrad.codegen.lower.emitter import Index
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives.elementwise import ROWS as ELEMENTWISE

IDENTITIES: Final = ("alias", "stop_gradient")


def _plain(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    operands = []
    for v in node.operands:
        operands.append((yield frame, v, index))  # noqa: PERF401 - a comprehension can't yield
    return ctx.emitter.op(node.op, tuple(operands), node.results[0].dtype)


def _cast(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    x = yield frame, node.operands[0], index
    return ctx.emitter.cast(x, node.results[0].dtype)


def _identity(ctx: Lowering, frame: Frame, node: Node, index: Index) -> Pull:
    return (yield frame, node.operands[0], index)


RULES: Final = {
    **dict.fromkeys(ELEMENTWISE, _plain),
    "cast": _cast,
    **dict.fromkeys(IDENTITIES, _identity),
}
