"""Scans by functions of elements: a routine of what is read, where the target has one; blocks elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.options import SCANS
from loopgrad.codegen.schedule.associative_scans import NAME, rewrite_scans
from loopgrad.graph import ops
from loopgrad.graph.associative import BLOCK, associative_scan
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.types import TensorType, float64

LENGTH = BLOCK**2 + 3
TYPE = TensorType((LENGTH,), float64)


def recurrence(left, right):
    (a, x), (b, y) = left, right
    return [ops.mul(a, b), ops.add(ops.mul(x, b), y)]


def graph(*wanted):
    def function(a, x):
        made = associative_scan(recurrence, (a, x), (0, 0))
        return [made[k] for k in wanted]

    return trace(function, [TYPE, TYPE])[0]


def names(found):
    return [node.op for node in found.nodes]


@pytest.mark.parametrize("wanted", [(0, 1), (1,), (0,)])
def test_a_routine_makes_what_is_read(wanted):
    given = graph(*wanted)
    made = rewrite_scans(given, frozenset((SCANS,)))
    (node,) = [node for node in made.nodes if node.op == NAME]
    assert node.attrs["taken"] == wanted
    arrays = np.random.default_rng(0).uniform(-1, 1, (2, LENGTH))
    for got, want in zip(interpret(made, arrays), interpret(given, arrays), strict=True):
        np.testing.assert_array_equal(got, want)


def test_elsewhere_blocks_are_combined():
    given = graph(0, 1)
    made = rewrite_scans(given, frozenset((NAME,)))  # the host could, but compiled code does
    assert NAME not in names(made)
    arrays = np.random.default_rng(0).uniform(-1, 1, (2, LENGTH))
    for got, want in zip(interpret(made, arrays), interpret(given, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-15)


def test_other_graphs_stay():
    plain = trace(lambda x: [ops.sin(x)], [TYPE])[0]
    assert rewrite_scans(plain, frozenset((SCANS,))) is plain
