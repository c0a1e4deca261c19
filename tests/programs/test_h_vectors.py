"""Group H: lanes that carry vectors and matrices; component indexing; storage layouts."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from oracles import central_difference, check, check_gradient

import loopgrad as lg


def zero():
    return lg.zeros((), dtype=lg.float64)


@pytest.mark.parametrize("mapped", [False, True])
def test_h1_vector_rebuilt_from_its_components(device, mode, mapped):
    def last(x):
        step = lambda _, q: lg.stack([q[0] * q[0], q[1] + 0.1 * q[0]])
        return lg.fori_loop(0, 2, step, lg.stack([x, 0.5 * x]))[1]

    x = np.array([0.3, 1.2, -0.4])
    if mapped:
        check_gradient(lambda x: lg.sum(lg.vmap(last)(x)), (lg.asarray(x),), 0.6 + 0.2 * x, mode=mode, rtol=1e-13)
        return
    for one in x:
        check_gradient(last, (lg.asarray(one),), 0.6 + 0.2 * one, mode=mode, rtol=1e-13)


def test_h2_vector_divided_by_a_scalar(device, mode):
    s = lg.asarray(2.0)

    def loss(x):
        def lane(x):
            step = lambda _, q: lg.stack([q[0] + 0.1 * q[1], q[1] + 0.2 * q[0]]) / s
            return lg.sum(lg.fori_loop(0, 3, step, lg.stack([x, 0.5 * x])))

        return lg.sum(lg.vmap(lane)(x))

    matrix = np.linalg.matrix_power(np.array([[1, 0.1], [0.2, 1]]) / 2.0, 3)
    want = np.full(3, (matrix @ np.array([1.0, 0.5])).sum())
    check_gradient(loss, (lg.asarray([0.1, 0.5, 2.0]),), want, mode=mode, rtol=1e-13)


def test_h3_component_store_then_self_operation(device, mode):
    def loss(x):
        q = lg.zeros((4,), dtype=lg.float64).at[1].set(x)
        return lg.sum(q * lg.sum(q * q))

    check(loss(lg.asarray(1.5)), 1.5**3, 1e-14)
    check_gradient(loss, (lg.asarray(1.5),), 3 * 1.5**2, mode=mode, rtol=1e-14)


def test_h4_dynamic_component_index(device, mode):
    def loss(n):
        def lane(n):
            def cell(t, y):
                j, k = t // 2, t % 2
                return y + lg.astype((j + 1) * (k + 1), lg.float64) * n[j, k]

            return lg.fori_loop(0, 4, cell, zero())

        return lg.sum(lg.vmap(lane)(n))

    n = np.random.default_rng(4).normal(size=(5, 2, 2))
    want = np.broadcast_to([[1.0, 2.0], [2.0, 4.0]], n.shape)
    check_gradient(loss, (lg.asarray(n),), want, mode=mode, rtol=1e-14)


def test_h5_one_component_overwritten(device):
    t = 10.0

    def loss(x):
        b = lg.full((4,), t).at[0].set(4 * t)
        return lg.sum(b * x)

    _, pullback = lg.vjp(loss, lg.asarray([1.0, 2.0, 3.0, 4.0]))
    check(pullback(lg.asarray(2.0))[0], [80.0, 20.0, 20.0, 20.0], 1e-14)


def test_h6_vectors_as_elements(device, mode):
    z = np.array([3.0, 5.0])

    def loss(a, z):
        p = lg.vmap(lambda one: 2.0 * one)(a)
        q = lg.vmap(lambda one: one * z[0])(a)
        return lg.sum(p) + lg.sum(q)

    a = np.random.default_rng(6).normal(size=(5, 2))
    arguments = (lg.asarray(a), lg.asarray(z))
    check_gradient(loss, arguments, np.full((5, 2), 5.0), wrt=0, mode=mode, rtol=1e-14)
    check_gradient(loss, arguments, [a.sum(), 0.0], wrt=1, mode=mode, rtol=1e-13)


def test_h7_k6_blocks_then_a_triangular_reduction(device):
    """Two parts of one program with size expressions of their own."""

    def loss(blocks):
        t = lg.fori_loop(0, 7, lambda i, t: t.at[i].set(lg.sum(blocks[i], axis=0)), lg.zeros((7, 3)))

        def lane(i):
            def column(j, acc):
                return lg.fori_loop(0, j, lambda k, acc: acc + t[i, k % 3] * t[j, k % 3], acc)

            return lg.fori_loop(0, i + 1, column, zero())

        return lg.sum(lg.vmap(lane)(lg.arange(7)))

    def value(blocks):
        t = blocks.sum(axis=1)
        total = 0.0
        for i in range(7):
            for j in range(i + 1):
                for k in range(j):
                    total += t[i, k % 3] * t[j, k % 3]
        return total

    blocks = np.random.default_rng(7).normal(size=(7, 3, 3))
    check(loss(lg.asarray(blocks)), value(blocks), 1e-12)
    check(lg.grad(loss)(lg.asarray(blocks)), central_difference(value, blocks), 1e-6, 1e-7)


def test_h8_polar_decomposition(device, mode):
    """Newton's iteration for the orthogonal factor of 2x2 matrices, until it stops changing."""

    def rotation(matrix):
        def adjugate_transposed(m):
            return lg.stack([lg.stack([m[1, 1], -m[1, 0]]), lg.stack([-m[0, 1], m[0, 0]])])

        def step(carry):
            m, _ = carry
            determinant = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
            new = 0.5 * (m + adjugate_transposed(m) / determinant)
            return new, lg.max(lg.abs(new - m))

        return lg.while_loop(lambda c: c[1] > 1e-13, step, (matrix, lg.ones((), dtype=lg.float64)))[0]

    def angle_of(m):
        return np.arctan2(m[1, 0] - m[0, 1], m[0, 0] + m[1, 1])

    def loss(matrices):
        r = lg.vmap(rotation)(matrices)
        return lg.sum(r[:, 1, 0])

    matrices = np.random.default_rng(8).normal(size=(4, 2, 2)) * 0.3 + np.eye(2)
    value = lambda matrices: sum(np.sin(angle_of(m)) for m in matrices)
    check(loss(lg.asarray(matrices)), value(matrices), 1e-11)
    check_gradient(loss, (lg.asarray(matrices),), central_difference(value, matrices), mode=mode, rtol=1e-6, atol=1e-8)


def test_h9_vector_accumulation_is_exact(device):
    """64 static additions of each vec2 row; repeated runs give the same bits."""

    def loss(table):
        total = zero()
        for _ in range(64):
            total = total + lg.sum(table)
        return total

    gradient = lg.compile(lg.grad(loss))
    table = lg.ones((8, 2), dtype=lg.float32)
    for _ in range(20):
        check(gradient(table), np.full((8, 2), 64.0), 0.0)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_h10_storage_layouts(device, order):
    logical = np.random.default_rng(10).normal(size=(2, 3, 4))
    inverse = np.argsort(order)
    stored = np.ascontiguousarray(np.transpose(logical, order)).transpose(inverse)
    assert stored.shape == logical.shape

    def loss(x):
        def plane(i):
            return lg.fori_loop(0, 3, lambda j, y: y + lg.sum(x[i, j] * x[i, j]) * lg.astype(j + 1, x.dtype), zero())

        return lg.sum(lg.vmap(plane)(lg.arange(2)))

    want = 2 * logical * np.arange(1, 4)[None, :, None]
    check(lg.grad(loss)(lg.asarray(stored)), want, 1e-14)
    permuted = lambda x: loss(lg.permute_dims(x, tuple(int(k) for k in inverse)))
    check(lg.grad(permuted)(lg.asarray(np.transpose(logical, order))), np.transpose(want, order), 1e-14)
