"""Reverse of a for loop: its trip count is an operand, so only what the body must save is added to it."""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.autodiff.loops.adjoint import pull_loop
from loopgrad.autodiff.loops.normal import normal_loop
from loopgrad.autodiff.pullback import Adjoints, Context
from loopgrad.graph.nodes import Node, Value


def pull_for(node: Node, received: Sequence[Value | None], adjoints: Adjoints, context: Context) -> None:
    pull_loop(normal_loop(node, context.lanes), received, adjoints, context)
