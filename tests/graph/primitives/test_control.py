from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.errors import DTypeError, ShapeError
from loopgrad.graph.region_ops import traced_for, traced_switch, traced_while
from loopgrad.graph.types import StackType


def test_for_results_have_the_carries_types(leaf):
    stack = ops.stack_new(leaf("float32", 4).type)
    results = traced_for(
        leaf("int32", 4),
        [leaf("float32", 4, 2), leaf("float32", 9), stack],
        lambda _, x, acc, s: (x, acc, s),
        shared=(1,),
    )
    assert [str(r.type) for r in results] == ["float32[4,2]", "float32[9]", "stack<float32[4]>"]
    assert isinstance(results[2].type, StackType)


def test_for_refusals(leaf):
    x = leaf("float32", 3)
    with pytest.raises(DTypeError, match="an int32 or int64 trip count"):
        traced_for(leaf("float32"), [x], lambda _, c: (c,))
    with pytest.raises(DTypeError, match=r"for: expected carries\[0\] of type float32\[3\], got int32\[3\]"):
        traced_for(leaf("int32"), [x], lambda *_: (leaf("int32", 3),))
    with pytest.raises(ShapeError, match=r"carries\[0\] of type float32\[3\], got float32\[\]"):
        traced_for(leaf("int32"), [x], lambda _, c: (ops.reduce_sum(c, (0,)),))
    with pytest.raises(ShapeError, match="expected 1 carries, got 2"):
        traced_for(leaf("int32"), [x], lambda _, c: (c, c))
    with pytest.raises(ShapeError, match=r"starts with the lanes \(4,\)"):
        traced_for(leaf("int32", 4), [x], lambda _, c: (c,))
    body, _ = trace(lambda _, c: (c,), [leaf("int64").type, x.type])
    with pytest.raises(DTypeError, match=r"body inputs\[0\] of type int32\[\], got int64\[\]"):
        ops.for_loop(leaf("int32"), [x], body)


def test_while_refusals(leaf):
    x = leaf("float32", 3)
    with pytest.raises(DTypeError, match="while: expected bool elements"):
        traced_while([x], lambda c: c, lambda c: (c,))
    with pytest.raises(ShapeError, match=r"starts with the lanes \(3,\)"):
        traced_while([leaf("float32")], lambda _: ops.lt(x, 1), lambda c: (c,))
    with pytest.raises(ShapeError, match="carries"):
        traced_while([x], lambda c: ops.lt(ops.reduce_sum(c, (0,)), 1), lambda c: (ops.reduce_sum(c, (0,)),))


def test_switch_refusals(leaf):
    x = leaf("float32", 3)
    with pytest.raises(DTypeError, match=r"branch results\[0\] of type float32\[3\], got int32\[3\]"):
        traced_switch(leaf("bool"), [lambda c: (c,), lambda _: (leaf("int32", 3),)], [x])
    with pytest.raises(ShapeError, match="at least one branch"):
        traced_switch(leaf("bool"), [], [x])
    with pytest.raises(DTypeError, match="switch: expected bool or signed"):
        traced_switch(leaf("float32"), [lambda c: (c,)], [x])
    with pytest.raises(ShapeError, match=r"starts with the lanes \(2,\)"):
        traced_switch(leaf("bool", 2), [lambda c: (c,)], [x])
