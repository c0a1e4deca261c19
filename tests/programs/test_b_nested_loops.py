"""Group B: nested loops."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check, check_gradient, tolerance

import loopgrad as lg


def zero():
    return lg.zeros((), dtype=lg.float64)


def lanes_sum(lane, count):
    """`P i<count: y += lane(i)`."""
    return lg.sum(lg.vmap(lane)(lg.arange(count)))


def test_b1_loaded_value_added_in_a_loop(device, mode):
    def loss(x):
        return lanes_sum(lambda i: lg.fori_loop(0, 3, lambda _, y: y + x[i], zero()), 4)

    check_gradient(loss, (lg.asarray([0.1, 0.3, 0.5, 0.8]),), np.full(4, 3.0), mode=mode, rtol=1e-14)


def test_b2_mixed_statement_and_loop(device, mode):
    def loss(x):
        def lane(i):
            return lg.fori_loop(0, 2, lambda _, y: y + lg.sin(x) + 1.0, lg.sin(x) + 0.0 * lg.astype(i, x.dtype))

        return lanes_sum(lane, 5)

    x = lg.asarray(0.0)
    check(loss(x), 10.0, 1e-14)
    check_gradient(loss, (x,), 15.0, mode=mode, rtol=1e-14)


def test_b3_locals_of_a_middle_loop(device, mode):
    def loss(x):
        def middle(_, y):
            def inner(_, c):
                return c[0] + lg.sin(x) + 1.0, c[1] + lg.sin(x)

            s, t = lg.fori_loop(0, 3, inner, (zero(), zero()))
            return y + s + t

        return lanes_sum(lambda _: lg.fori_loop(0, 3, middle, zero()), 2)

    x = lg.asarray(0.0)
    check(loss(x), 18.0, 1e-14)
    check_gradient(loss, (x,), 36.0, mode=mode, rtol=1e-14)


def test_b4_three_levels(device, mode):
    def loss(x):
        def outer(_, y):
            def middle(_, c):
                y, s = c
                u = lg.fori_loop(0, 2, lambda _, u: u + lg.sin(x), zero())
                return y + u, s + lg.sin(x) + 1.0

            y, s = lg.fori_loop(0, 3, middle, (y, zero()))
            return y + s

        return lanes_sum(lambda _: lg.fori_loop(0, 2, outer, zero()), 2)

    x = lg.asarray(0.0)
    check(loss(x), 12.0, 1e-14)
    check_gradient(loss, (x,), 36.0, mode=mode, rtol=1e-14)


def product_then_sum(a, b, count):
    w = lg.fori_loop(0, count, lambda _, w: w * a, lg.ones_like(a))
    return lg.fori_loop(0, 2 * count, lambda _, s: s + w + b, lg.zeros_like(a))


@pytest.mark.parametrize("wrt", [0, 1])
def test_b5_product_then_sum(device, dtype, mode, wrt):
    i = np.arange(10)
    count = lg.asarray(i.astype(np.int32))
    a, b = lg.full((10,), 2.0, dtype=dtype), lg.ones((10,), dtype=dtype)

    check(product_then_sum(a, b, count), 2 * i * (1 + 2.0**i), 0.0)
    want = 2 * i * i * 2.0 ** (i - 1) if wrt == 0 else 2.0 * i
    rtol = 0.0 if mode == "reverse" else tolerance(dtype, 1e-6, 1e-14)
    check_gradient(lambda a, b: lg.sum(product_then_sum(a, b, count)), (a, b), want, wrt=wrt, mode=mode, rtol=rtol)


@pytest.mark.parametrize("wrt", [0, 1])
def test_b6_product_then_sum_one_level_deeper(device, mode, wrt):
    def loss(a, b):
        def lane(i, a, b):
            return lg.fori_loop(0, 3, lambda k, y: y + product_then_sum(a, b, i + k), zero())

        return lg.sum(lg.vmap(lane)(lg.arange(6), a, b))

    trips = np.arange(6)[:, None] + np.arange(3)
    want = (2 * trips**2 * 2.0 ** (trips - 1)).sum(axis=1) if wrt == 0 else (2.0 * trips).sum(axis=1)
    arguments = (lg.full((6,), 2.0), lg.ones((6,)))
    check_gradient(loss, arguments, want, wrt=wrt, mode=mode, rtol=1e-13)


@pytest.mark.parametrize("wrt", [0, 1])
def test_b7_windows(device, mode, wrt):
    def loss(a, b):
        def window(i):
            w = lg.fori_loop(0, 3, lambda j, w: w * a[i + j], lg.ones((), dtype=lg.float64))
            return lg.fori_loop(0, 6, lambda j, s: s + w + b[2 * i + j], zero())

        def row(i):
            return lg.fori_loop(0, 8, lambda _, f: f + window(i), zero())

        return lanes_sum(row, 5)

    i = np.arange(7)
    overlap = np.minimum(np.minimum(7 - i, i + 1), 3)
    want = 2 * 3 * overlap * 4.0 * 8 if wrt == 0 else np.repeat(overlap * 8.0, 2)
    arguments = (lg.full((7,), 2.0), lg.full((14,), 0.5))
    check_gradient(loss, arguments, want, wrt=wrt, mode=mode, rtol=1e-13)


def test_b8_five_statements_with_casts(device, mode):
    count = np.arange(6)
    a = lg.full((6,), 1.5, dtype=lg.float32)

    def totals(a):
        def body(_, c):
            weight, total_weight, total = c
            total_weight = total_weight + weight + 1.0
            total = total + (weight + 1.0) * a
            weight = (weight + 1.0) * 4.0
            return lg.astype(lg.astype(weight, lg.float64), lg.float32), total_weight, total

        start = (lg.full((6,), 2.0, dtype=lg.float32), lg.zeros_like(a), lg.zeros_like(a))
        return lg.fori_loop(0, lg.asarray(count), body, start)

    want = np.zeros(6)
    for lane in range(6):
        weight = 2.0
        for _ in range(count[lane]):
            want[lane] += weight + 1
            weight = (weight + 1) * 4
    check(totals(a)[1], want, 1e-6)
    check_gradient(lambda a: lg.sum(totals(a)[2]), (a,), want, mode=mode, rtol=1e-6)


def test_b9_triangular_product_of_loops(device, mode):
    def loss(x):
        def lane(j):
            def add(_, y):
                return y + x[j]

            def repeat(times, body):
                return lambda _, y: lg.fori_loop(0, times, body, y)

            y = lg.fori_loop(0, j, add, zero())
            y = lg.fori_loop(0, 3, repeat(j, add), y)
            return lg.fori_loop(0, 3, repeat(2, repeat(j, add)), y)

        return lanes_sum(lane, 10)

    x = lg.ones((10,))
    check(loss(x), 10.0 * 45, 1e-14)
    check_gradient(loss, (x,), 10.0 * np.arange(10), mode=mode, rtol=1e-14)


def parse_nest(text):
    """`2{3{+} +}` as nested lists of (trips, children); None stands for the statement."""
    stack, number = [[]], ""
    for mark in text.replace(" ", ""):
        if mark == "+":
            stack[-1].append(None)
        elif mark == "{":
            children = []
            stack[-1].append((int(number), children))
            stack.append(children)
            number = ""
        elif mark == "}":
            stack.pop()
        else:
            number += mark
    return stack[0]


def run_nest(nest, y, x):
    for entry in nest:
        if entry is None:
            y = y + x
        else:
            trips, children = entry
            y = lg.fori_loop(0, trips, lambda _, y, children=children: run_nest(children, y, x), y)
    return y


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("nest", "executions"),
    [
        ("2{3{+} 3{+}}", 12),
        ("2{3{+} 3{+}} 2{3{+} 3{+}}", 24),
        ("2{3{+} 3{+}} 2{3{+} 3{+ 3{+}}}", 42),
        ("2{3{+} 3{+ 2{+}} 3{+}}", 30),
        ("2{3{+} 3{2{+}} 3{2{2{+}}}}", 42),
        ("2{3{+} 3{2{+} 2{+ 2{+}}} 3{2{2{+}}}}", 78),
    ],
)
def test_b10_mixed_depth_nests(device, mode, nest, executions):
    def loss(x):
        return lg.sum(run_nest(parse_nest(nest), lg.zeros_like(x), x))

    x = lg.asarray([1.0, 1.0, 1.0])
    check(loss(x), 3.0 * executions, 0.0)
    check_gradient(loss, (x,), np.full(3, float(executions)), mode=mode, rtol=1e-14)


@pytest.mark.parametrize("nest", ["2{3{+} 3{+ 2{+}} 3{+}}", "2{3{+} 3{2{+} 2{+ 2{+}}} 3{2{2{+}}}}"])
def test_b10_mixed_depth_nests_nonlinear(device, nest):
    """The same nests with a statement whose adjoint reads the carried value."""

    def interpret(nest, y, slope):
        for entry in nest:
            if entry is None:
                slope, y = slope * np.cos(y), np.sin(y) + 0.1
            else:
                for _ in range(entry[0]):
                    y, slope = interpret(entry[1], y, slope)
        return y, slope

    def run(nest, y):
        for entry in nest:
            if entry is None:
                y = lg.sin(y) + 0.1
            else:
                y = lg.fori_loop(0, entry[0], lambda _, y, inner=entry[1]: run(inner, y), y)
        return y

    tree = parse_nest(nest)
    x = np.array([0.2, 0.7, 1.1])
    want = [interpret(tree, one, 1.0)[1] for one in x]
    check_gradient(lambda x: lg.sum(run(tree, x)), (lg.asarray(x),), want, rtol=1e-12)


@pytest.mark.parametrize("bound", ["element", "shape"])
def test_b12_trip_counts_from_an_array(device, mode, bound):
    n = np.array([2, 3, 4, 1], dtype=np.int32)
    table = lg.asarray(n)

    def loss(x):
        def lane(i):
            def middle(level, acc):
                inner = table[level] if bound == "element" else n.shape[0]
                return lg.fori_loop(0, inner, lambda j, acc: acc + x[j] * x[j], acc)

            return lg.fori_loop(0, table[i], middle, zero())

        return lanes_sum(lane, 4)

    visits = np.zeros(4)
    for i in range(4):
        for level in range(n[i]):
            visits[: n[level] if bound == "element" else 4] += 1
    check_gradient(loss, (lg.full((4,), 0.1),), 2 * 0.1 * visits, mode=mode, rtol=1e-13)
