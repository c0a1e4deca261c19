"""Rules that find out late that a derivative leaves the lanes."""

from __future__ import annotations

import pytest

from loopgrad.autodiff.loops import masked
from loopgrad.autodiff.loops.normal import NotLaneLocalError
from loopgrad.autodiff.pullback import Adjoints
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64

LANES = TensorType((4,), float64)


def test_a_rule_that_gives_up_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Context:
        lanes = None

    def rule(node, received, adjoints, context):
        adjoints.active.add(node.results[0])
        adjoints.put(node.operands[1], received[0])
        raise NotLaneLocalError

    def pull_masked(node, received, adjoints, context):
        seen.append((set(adjoints.active), adjoints.get(node.operands[1])))

    monkeypatch.setattr(masked, "_pull_masked", pull_masked)

    def function(n, x):
        (y,) = traced_for(n, [x], lambda _, c: (ops.sin(c),))
        adjoints = Adjoints({x})
        active = adjoints.active
        masked.masked_where_needed(rule)(y.node, [x], adjoints, Context())
        assert seen == [({x}, None)]
        assert adjoints.active is active
        return (y,)

    trace(function, [TensorType((4,), int64), LANES])
    assert seen
