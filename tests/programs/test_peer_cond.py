"""Peer cases 4: conditionals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from oracles import check, check_gradient

import loopgrad as lg


def test_p80_untaken_branch_does_not_poison(device):
    eps = 1e-3
    safe = lambda x: lg.cond(x < eps, lambda x: eps + 0.0 * x, lambda x: lg.sqrt(x), x)
    x = np.array([0.0, 4.0])
    check(lg.vmap(lg.grad(safe))(lg.asarray(x)), [0.0, 0.25])
    check(lg.grad(lambda x: lg.sum(lg.vmap(safe)(x)))(lg.asarray(x)), [0.0, 0.25])


def test_p81_switch_clamps(device):
    branches = [lambda x: x, lambda x: x * x, lambda x: x * x * x]
    for index, want in ((-5, 1.0), (0, 1.0), (1, 2 * 1.5), (2, 3 * 1.5**2), (7, 3 * 1.5**2)):
        loss = lambda x, index=index: lg.switch(lg.asarray(index), branches, x)
        check(lg.grad(loss)(lg.asarray(1.5)), want, 1e-14)
        second = 0.0 if want == 1.0 else (2.0 if want == 3.0 else 6 * 1.5)
        check(lg.grad(lg.grad(loss))(lg.asarray(1.5)), second, 1e-14)


def test_p82_constant_and_forwarded_branches(device):
    x, y = lg.asarray(2.0), lg.asarray(3.0)
    pool = [lambda x, y: x, lambda x, y: y, lambda x, y: lg.asarray(7.0), lambda x, y: 5.0]
    values = [2.0, 3.0, 7.0, 5.0]
    for first, second in product(range(4), repeat=2):
        for pick in (0, 1):
            got = lg.switch(lg.asarray(pick), [pool[first], pool[second]], x, y)
            check(got, values[(first, second)[pick]])


def test_p83_vmap_of_a_condition_over_some_arguments(device):
    branch = lambda p, x, y: lg.cond(p, lambda: x * 2.0, lambda: y)
    p, x, y = np.array([True, False, True]), np.array([1.0, 2.0, 3.0]), 9.0
    got = lg.vmap(branch, in_axes=(0, 0, None))(lg.asarray(p), lg.asarray(x), lg.asarray(y))
    check(got, [2.0, 9.0, 6.0])
    scalar = lg.vmap(branch, in_axes=(None, 0, None))(lg.asarray(True), lg.asarray(x), lg.asarray(y))
    check(scalar, 2 * x)


def test_p84_nested_three_deep(device):
    def nested(p, q, r, x):
        third = lambda base: lg.cond(r, lambda: base + x, lambda: base - x)
        second = lambda base: lg.cond(q, lambda: third(base * 2.0), lambda: third(base * 3.0))
        return lg.cond(p, lambda: second(x), lambda: second(x + 1.0))

    compiled = lg.compile(lg.grad(nested, argnums=3))
    for p, q, r in product([True, False], repeat=3):
        slope = (2.0 if q else 3.0) + (1.0 if r else -1.0)
        flags = [lg.asarray(f) for f in (p, q, r)]
        check(nested(*flags, lg.asarray(0.5)), (0.5 if p else 1.5) * (2 if q else 3) + (0.5 if r else -0.5), 1e-14)
        check(compiled(*flags, lg.asarray(0.5)), slope)
    assert compiled.explain().count("compiled") <= 1


def test_p85_python_bool_predicate(device):
    check(lg.cond(True, lambda x: x, lambda x: -x, lg.asarray(2.0)), 2.0)
    check(lg.cond(False, lambda: lg.asarray(1.0), lambda: lg.asarray(4.0)), 4.0)
    with pytest.raises((TypeError, ValueError), match="pred"):
        lg.cond("yes", lambda x: x, lambda x: -x, lg.asarray(2.0))


@pytest.mark.parametrize("other", [lambda x: lg.stack([x, x]), lambda x: (x, x), lambda x: x > 0.0])
def test_p86_branches_that_differ(device, other):
    with pytest.raises((TypeError, ValueError), match=r"branch|true_fun|output") as caught:
        lg.cond(lg.asarray(True), lambda x: x, other, lg.asarray(1.0))
    assert "test_peer_cond.py" in str(caught.value)


def test_p87_some_inputs_unused(device, mode):
    loss = lambda x, unused: lg.cond(x > 0.0, lambda: x * x, lambda: x)
    arguments = (lg.asarray(3.0), lg.asarray(1.0))
    check_gradient(loss, arguments, 6.0, wrt=0, mode=mode)
    check_gradient(loss, arguments, 0.0, wrt=1, mode=mode)


def test_p88_condition_in_an_unrolled_loop(device, mode):
    def loss(x):
        total = lg.zeros((), dtype=lg.float64)
        for k in range(4):
            total = total + lg.cond(x > k - 0.5, lambda k=k: x * float(k), lambda: -x)
        return total

    check_gradient(loss, (lg.asarray(1.7),), 0.0 + 1 + 2 - 1, mode=mode)


@pytest.mark.parametrize("positive", [True, False])
def test_p89_scatter_inside_the_arms(device, mode, positive):
    place = lg.asarray(np.array([0, 2, 2]))

    def loss(x):
        start = lg.ones((4,))
        add = lambda: start.at[place].add(x)
        scale = lambda: start.at[place].add(3.0 * x * x)
        return lg.sum(lg.cond(lg.asarray(positive), add, scale) * lg.asarray([1.0, 2.0, 3.0, 4.0]))

    x = np.array([0.5, 1.0, 2.0])
    weights = np.array([1.0, 3.0, 3.0])
    want = weights if positive else weights * 6 * x
    check_gradient(loss, (lg.asarray(x),), want, mode=mode, rtol=1e-14)
