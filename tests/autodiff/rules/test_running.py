"""Scans by associative functions of elements against central differences."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph.associative import associative_scan

RNG = np.random.default_rng(3)


def moebius(left, right):
    """Matrices [[a, b], [c, d]], element by element: four leaves, none of whose derivatives are zero."""
    (a, b, c, d), (e, f, g, h) = left, right
    return [
        ops.add(ops.mul(e, a), ops.mul(f, c)),
        ops.add(ops.mul(e, b), ops.mul(f, d)),
        ops.add(ops.mul(g, a), ops.mul(h, c)),
        ops.add(ops.mul(g, b), ops.mul(h, d)),
    ]


def speeds(left, right):
    """Of velocities, as relativity adds them up."""
    (u,), (v,) = left, right
    return [ops.div(ops.add(u, v), ops.add(1.0, ops.mul(u, v)))]


def recurrence(left, right):
    (a, x), (b, y) = left, right
    return [ops.mul(a, b), ops.add(ops.mul(x, b), y)]


@pytest.mark.parametrize(("function", "leaves"), [(moebius, 4), (speeds, 1), (recurrence, 2)])
@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((2, 4), 1), ((4, 2), 0)])
@pytest.mark.parametrize("reverse", [False, True])
def test_functions_of_elements(derivatives, function, leaves, shape, axis, reverse):
    xs = [RNG.uniform(-0.9, 0.9, shape) for _ in range(leaves)]

    def scan(*values):
        found = associative_scan(function, values, [axis] * leaves, reverse)
        assert found[0].node.op == "associative_scan"
        return [ops.sin(v) for v in found]

    derivatives.check(scan, xs, order=2 if leaves < 4 else 1)


def test_one_array_as_both_leaves(derivatives):
    x = RNG.uniform(-0.9, 0.9, 5)
    derivatives.check(lambda v: [associative_scan(recurrence, [v, v], [0, 0])[1]], [x], order=2)


def test_what_one_leaf_alone_has_a_cotangent(derivatives):
    a, x = RNG.uniform(-0.9, 0.9, (2, 5))
    for k in (0, 1):
        derivatives.check(lambda *v, k=k: [associative_scan(recurrence, v, [0, 0])[k]], [a, x], order=2)
