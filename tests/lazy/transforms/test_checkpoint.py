"""`lg.checkpoint`: the function's values and derivatives, and less kept for the reverse pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg

X = np.array([0.3, -0.7, 1.1])


def wave(x: Any, scale: Any = 1.5) -> Any:
    return lg.fori_loop(0, 4, lambda k, v: lg.sin(v * scale) + 0.1 * k, lg.exp(x))


def loss_with(function: Any) -> Any:
    return lambda x, a: lg.sum(lg.cos(function(function(x, scale=a), scale=2.0)))


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_are_those_of_the_function(device: str, order: int) -> None:
    def derivative(function: Any) -> list[Any]:
        f = loss_with(function)
        arguments = (lg.asarray(X), lg.asarray(0.8))
        if order == 2:
            return [lg.hessian(f)(*arguments)]
        tangent = lg.jvp(f, arguments, (lg.ones(3), lg.asarray(0.5)))[1]
        return [f(*arguments), *lg.grad(f, argnums=(0, 1))(*arguments), tangent]

    for found, expected in zip(derivative(lg.checkpoint(wave)), derivative(wave), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_under_vmap_and_over_it(device: str) -> None:
    rows = lg.asarray(np.stack([X, 2 * X]))
    expected = lg.grad(lambda r: lg.sum(wave(r) ** 2))(rows)
    inside = lg.grad(lambda r: lg.sum(lg.vmap(lg.checkpoint(wave))(r) ** 2))(rows)
    outside = lg.vmap(lg.grad(lambda r: lg.sum(lg.checkpoint(wave)(r) ** 2)))(rows)
    around = lg.grad(lambda r: lg.sum(lg.checkpoint(lg.vmap(wave))(r) ** 2))(rows)
    for found in (inside, outside, around):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_trees_captures_and_python_values(device: str) -> None:
    y = lg.asarray(2 * X)

    @lg.checkpoint
    def function(state: dict[str, Any], power: int, name: str | None = None) -> dict[str, Any]:
        assert isinstance(power, int)
        assert name == "n"
        return {"out": state["a"] ** power * y, "pair": (state["b"], 3.0)}

    def loss(a: Any, y_scale: Any) -> Any:
        nonlocal y
        y = y_scale * lg.asarray(X)
        out = function({"a": a, "b": a + 1}, 3, name="n")
        return lg.sum(out["out"]) + lg.sum(out["pair"][0]) * out["pair"][1]

    slopes = lg.grad(loss, argnums=(0, 1))(lg.asarray(X), lg.asarray(2.0))
    np.testing.assert_allclose(slopes[0], 3 * X**2 * 2 * X + 3, rtol=1e-12)
    np.testing.assert_allclose(slopes[1], np.sum(X**4), rtol=1e-12)


def test_in_a_lane_loop(device: str) -> None:
    trips = lg.asarray([3, 0, 5])

    def loss(x: Any, function: Any) -> Any:
        return lg.sum(lg.fori_loop(0, trips, lambda _, v: function(v), x))

    def step(v: Any) -> Any:
        return lg.sin(v) * lg.exp(-v * v) + v

    slopes = [lg.grad(loss)(lg.asarray(X), f) for f in (step, lg.checkpoint(step))]
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=1e-12)


def test_a_deep_chain_needs_less_memory() -> None:
    generator = np.random.default_rng(0)
    w, x = lg.asarray(generator.normal(size=(32, 32)) / 6), lg.asarray(generator.normal(size=(300, 32)))

    def block(w: Any, x: Any) -> Any:
        for _ in range(4):
            x = lg.tanh(lg.matmul(x, w))
        return x

    def compiled(function: Any) -> Any:
        def loss(w: Any, x: Any) -> Any:
            for _ in range(4):
                x = function(w, x)
            return lg.sum(x**2)

        return lg.compile(lg.value_and_grad(loss), device="cpu")

    plain, kept = compiled(block), compiled(lg.checkpoint(block))
    for found, expected in zip(kept(w, x), plain(w, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    layer = 300 * 32 * 8  # bytes: 16 layers are kept, or the 4 between blocks and those of one block
    assert plain.plan(w, x).arena_bytes > 15 * layer
    assert kept.plan(w, x).arena_bytes < 10 * layer


@pytest.mark.in_turns
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("budget", [None, 200])
def test_an_accumulator_of_a_lane_loop_passes_through(device: str, scattered: bool, budget: int | None) -> None:
    """Unchanged or scattered into, it stays shared by the lanes, also where the loop itself is checkpointed."""
    bucket, trips = lg.asarray([0, 1, 2, 1, 0]), lg.asarray([2, 0, 3, 1, 1])

    def loss(x: Any, again: Any, budget: int | None) -> Any:
        step = again(lambda v, c: (1.1 * lg.sin(v), c.at[bucket].add(v * v) if scattered else c))
        v, c = lg.fori_loop(0, trips, lambda _, s: step(*s), (x, lg.zeros((3,))), memory_budget=budget)
        return lg.sum(v) + lg.sum(c * lg.arange(1.0, 4.0))

    x = lg.linspace(0.1, 0.5, 5)
    with lg.default_device(device):
        got = lg.grad(lambda x: loss(x, lg.checkpoint, budget))(x)
        want = lg.grad(lambda x: loss(x, lambda f: f, None))(x)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-14)


def test_loops_that_are_computed_again_scatter_into_an_accumulator(device):
    """Its sum isn't computed again: the reverse loops couldn't hold it, as it isn't an array of lanes."""
    x, places = lg.asarray(np.linspace(0.1, 0.9, 5)), lg.arange(5) % 3

    def step(carry):
        rounds, v, total = carry
        return rounds + 1, lg.sin(v) * 1.1, total.at[places].add(v * v)

    def twice(carry):
        rounds, v, total = carry
        inner = lg.while_loop(lambda c: (c[1] < 0.8) & (c[0] < 2), step, (lg.zeros_like(places), v, total))
        return rounds + 1, inner[1] * 0.9, inner[2]

    def loss(x, wrapped):
        @wrapped
        def again(v, total):
            return lg.while_loop(lambda c: (c[1] > 0.1) & (c[0] < 4), twice, (lg.zeros_like(places), v, total))[1:]

        def body(carry):
            rounds, v, total = carry
            v, total = again(v, total)
            return rounds + 1, v + 0.1, total

        start = (lg.zeros_like(places), x, lg.zeros(3))
        _, v, total = lg.while_loop(lambda c: (c[1] < 1.2) & (c[0] < 6), body, start)
        return lg.sum(v) + lg.sum(total * lg.arange(1.0, 4.0))

    got, expected = (np.asarray(lg.grad(lambda x, w=w: loss(x, w))(x)) for w in (lg.checkpoint, lambda f: f))
    np.testing.assert_allclose(got, expected, rtol=1e-12)


TRIPS, PLACES = np.array([3, 1, 0, 2, 4]), np.array([0, 2, 1, 2, 2])


def sums_in_branches(x: Any, table: Any, depth: int, checkpointed: bool) -> Any:
    """Lanes that add to shared cells, in switches in loops in switches."""
    trips, places = lg.asarray(TRIPS), lg.asarray(PLACES)

    def add(state: Any, k: Any, depth: int) -> Any:
        v, cells = state
        return v * 0.9, cells.at[places].add(k.astype(lg.float64) * table[places] * v)

    def choose(state: Any, k: Any, depth: int) -> Any:
        inside = choose if depth else add

        def twice(state: Any) -> Any:
            start = (lg.zeros_like(places), state)
            return lg.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, inside(c[1], k, depth - 1)), start)[1]

        def chosen(state: Any) -> Any:
            return lg.switch((places + k) % 3, [lambda s: s, twice, twice], state)

        return (lg.checkpoint(chosen) if checkpointed else chosen)(state)

    start = (lg.zeros_like(places), (x, lg.zeros(3)))
    v, cells = lg.while_loop(lambda c: c[0] < trips, lambda c: (c[0] + 1, choose(c[1], c[0], depth)), start)[1]
    return lg.sum(v) + lg.sum(cells * lg.arange(3.0))


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_sum_in_branches_in_loops_is_not_computed_again(device: str, depth: int) -> None:
    x, table = lg.linspace(0.1, 1.0, 5), lg.linspace(0.2, 2.0, 3)
    got, wanted = [
        lg.grad(lambda x, t, c=c: sums_in_branches(x, t, depth, c), argnums=(0, 1))(x, table) for c in (True, False)
    ]
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12)
        assert np.abs(np.asarray(b)).max() > 0.1


@pytest.mark.parametrize("lanes", [True, False])
def test_reverse_over_reverse_of_a_loop_in_a_branch(device: str, lanes: bool) -> None:
    """The loop's stacks pass through the switch, and what is computed again hands on what is left of them."""
    which = lg.asarray([0, 1, 2]) if lanes else 2
    branches = [lambda v: v * v, lg.exp, lambda v: lg.fori_loop(0, 3, lambda _, u: lg.sin(u) * lg.cos(u) + 0.3, v)]

    def gradient(wrap: Any) -> Any:
        function = wrap(lambda v: lg.switch(which, branches, v))
        slope = lg.grad(lambda v: lg.sum(function(v)))
        return lg.grad(lambda v: lg.sum(slope(v) ** 2))(lg.asarray(X))

    below, here, above = (np.stack([v * v, np.exp(v), looped(v)]) for v in (X - 1e-4, X, X + 1e-4))
    rows = (np.arange(3), np.arange(3)) if lanes else (2, np.arange(3))
    expected = 2 * ((above - below) / 2e-4 * (above - 2 * here + below) / 1e-8)[rows]
    np.testing.assert_allclose(gradient(lg.checkpoint), expected, rtol=1e-5)
    np.testing.assert_allclose(gradient(lambda f: f), expected, rtol=1e-5)


def looped(v: Any) -> Any:
    for _ in range(3):
        v = np.sin(v) * np.cos(v) + 0.3
    return v


POLICIES = [None, lg.checkpoint_policies.everything_saveable, lg.checkpoint_policies.dots_saveable]


@pytest.mark.parametrize("policy", POLICIES, ids=["nothing", "everything", "products"])
def test_memory_of_arguments_and_results_belongs_to_the_function(device: str, policy: Any) -> None:
    """Also where everything is saved, so that there is nothing to compute again. The oracle is NumPy on copies."""
    x = lg.asarray([1.0, 2.0, 3.0])
    host = np.ones(2)

    def writes(given: dict[str, Any], other: Any) -> Any:
        v = given["v"]
        v[::-1] += 10.0
        other *= 3.0
        return v * x + other.sum(), v

    def outer(x: Any) -> Any:
        results = lg.checkpoint(writes, policy=policy)({"v": x}, host)
        return results[0].sum() + x.sum()

    product, written = lg.checkpoint(writes, policy=policy)({"v": x}, host)
    np.testing.assert_array_equal(product, (np.arange(1.0, 4) + 10) * np.arange(1.0, 4) + 6)
    np.testing.assert_array_equal(written, np.arange(1.0, 4) + 10)
    assert lg.compile(outer)(x) == (1 + 4 + 9) + 10 * 6 + 3 * 6 + 6
    np.testing.assert_array_equal(lg.grad(outer)(x), [2.0, 3, 4])
    same = lg.checkpoint(lambda v: v, policy=policy)(x)
    same *= 2.0
    np.testing.assert_array_equal(x, [1.0, 2, 3])
    np.testing.assert_array_equal(host, [1.0, 1])


def test_static_arguments_are_handed_on(device: str) -> None:
    """By position and by name; `prevent_cse` is JAX's."""
    power = lg.checkpoint(
        lambda x, n, shift=None: lg.sum(x**n) + shift["by"], static_argnums=(1,), static_argnames="shift",
        prevent_cse=False,
    )  # fmt: skip
    x = lg.asarray([1.0, 2.0])
    value, slope = lg.value_and_grad(lambda x: power(x, 3, shift={"by": 1.0}))(x)
    assert float(value) == 10.0
    np.testing.assert_array_equal(np.asarray(slope), [3.0, 12.0])
