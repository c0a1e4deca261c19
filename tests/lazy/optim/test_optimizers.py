"""Optimisers and their parts against the formulas of torch.optim and of the papers, written in NumPy."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

optim = lg.optim
SHAPES = {"w": (3, 2), "b": ()}


def gradients(steps: int) -> list[dict[str, np.ndarray[Any, Any]]]:
    random = np.random.default_rng(0)
    return [{k: np.asarray(random.standard_normal(s)) for k, s in SHAPES.items()} for _ in range(steps)]


def start() -> dict[str, np.ndarray[Any, Any]]:
    return {k: np.asarray(1.0 + np.arange(np.prod(s, dtype=int)).reshape(s)) for k, s in SHAPES.items()}


def torch_sgd(p, g, m, _, momentum=0.0, nesterov=False):
    m["buffer"] = momentum * m.get("buffer", 0.0) + g
    return p - 0.1 * (g + momentum * m["buffer"] if nesterov else m["buffer"])


def torch_adam(p, g, m, t, decay=0.0):
    m["m"] = 0.9 * m.get("m", 0.0) + 0.1 * g
    m["v"] = 0.99 * m.get("v", 0.0) + 0.01 * g * g
    p = p * (1 - 0.1 * decay)
    return p - 0.1 / (1 - 0.9**t) * m["m"] / (np.sqrt(m["v"]) / np.sqrt(1 - 0.99**t) + 1e-6)


def torch_rmsprop(p, g, m, _, centered=False, momentum=0.0):
    m["v"] = 0.9 * m.get("v", 0.0) + 0.1 * g * g
    m["m"] = 0.9 * m.get("m", 0.0) + 0.1 * g
    root = np.sqrt(m["v"] - m["m"] ** 2 if centered else m["v"])
    m["buffer"] = momentum * m.get("buffer", 0.0) + g / (root + 1e-6)
    return p - 0.1 * m["buffer"]


def rate(count):
    return 0.1 + 0.0 * count


RULES = {
    "sgd": (optim.sgd(0.1), torch_sgd, {}),
    "momentum": (optim.momentum(rate, 0.8), torch_sgd, {"momentum": 0.8}),
    "nesterov": (optim.sgd(lg.asarray(0.1), 0.8, nesterov=True), torch_sgd, {"momentum": 0.8, "nesterov": True}),
    "adam": (optim.adam(rate, b2=0.99, eps=1e-6), torch_adam, {}),
    "adamw": (optim.adamw(0.1, b2=0.99, eps=1e-6, weight_decay=0.3), torch_adam, {"decay": 0.3}),
    "rmsprop": (optim.rmsprop(0.1, eps=1e-6, eps_in_sqrt=False), torch_rmsprop, {}),
    "centered": (
        optim.rmsprop(rate, eps=1e-6, eps_in_sqrt=False, centered=True, momentum=0.5),
        torch_rmsprop,
        {"centered": True, "momentum": 0.5},
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_steps_are_those_of_the_formulas(name: str, device: str) -> None:
    """Compiled once, with the state as an argument; nothing else changes from step to step."""
    optimizer, formula, options = RULES[name]

    def step(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    compiled = lg.compile(step)
    params = lg.tree.map(lambda x: lg.asarray(x) + 0.0, start())
    state, expected, memory = optimizer.init(params), start(), {k: {} for k in SHAPES}
    for t, grads in enumerate(gradients(6), 1):
        params, state = compiled(params, state, grads)
        expected = {k: formula(expected[k], grads[k], memory[k], t, **options) for k in SHAPES}
    for k in SHAPES:
        check(params[k], expected[k], 1e-10)
    assert compiled.versions == 1, compiled.explain()


def test_a_captured_step_replays(device: str) -> None:
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(optim.cosine_decay_schedule(0.3, 60)))
    target = lg.asarray([3.0, -1.0, 0.5])

    def step(params, state):
        value, grads = lg.value_and_grad(lambda p: lg.sum((p["x"] - target) ** 2) + p["y"] ** 2)(params)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    params = {"x": lg.zeros(3), "y": lg.sum(lg.ones(2))}
    state = optimizer.init(params)
    replay = lg.compile(step).capture(params, state)
    eager = params, state
    for _ in range(3):
        params, state, _ = replay.replay(params, state)
        *eager, _ = step(*eager)
    assert lg.tree.allclose(params, eager[0], rtol=1e-9, atol=1e-9)
    for _ in range(57):
        params, state, value = replay.replay(params, state)
    assert replay.stats().captures == 1
    assert value < 1e-2


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "complex64", "complex128"], ids=str)
def test_dtypes_are_kept(dtype: Any, device: str) -> None:
    """Of parameters and state, with schedules and norms in float64; complex parameters are pairs of reals."""
    parts = (
        optim.clip_by_global_norm(lg.asarray(3.0)), optim.add_decayed_weights(0.1), optim.scale_by_adam(eps=1e-3),
        optim.trace(0.5, nesterov=True), optim.scale_by_rms(eps=1e-3, centered=True),
        optim.scale_by_learning_rate(rate),
    )  # fmt: skip
    optimizer = optim.chain(*parts)
    params = (lg.asarray(np.array([1.0, -2.0], dtype)), lg.asarray(np.zeros((0, 3), dtype)))
    state = optimizer.init(params)
    kinds = lg.tree.map(lambda x: (x.dtype, x.shape), state)
    for _ in range(2):
        updates, state = optimizer.update(params, state, params)
        params = optim.apply_updates(params, updates)
    assert lg.tree.map(lambda x: (x.dtype, x.shape), state) == kinds
    assert [x.dtype for x in params] == [np.dtype(dtype)] * 2
    assert np.isfinite(np.asarray(params[0]).astype(complex)).all()


def test_complex_parameters_descend(device: str) -> None:
    z, optimizer = lg.asarray([3.0 - 4.0j, 1.0j]), optim.adam(0.3)
    state = optimizer.init(z)

    @lg.compile
    def step(z, state):
        grads = lg.grad(lambda z: lg.sum(lg.real((z - (1.0 + 2.0j)) * lg.conj(z - (1.0 + 2.0j)))))(z)
        updates, state = optimizer.update(grads, state)
        return optim.apply_updates(z, updates), state

    for _ in range(150):
        z, state = step(z, state)
    assert np.abs(np.asarray(z) - (1.0 + 2.0j)).max() < 0.05


def test_norms_and_clipping(device: str) -> None:
    tree = {"a": lg.asarray([3.0, 0.0]), "b": (lg.asarray(4.0 + 12.0j), None), "c": lg.zeros((0, 2))}
    check(optim.global_norm(tree), 13.0)
    check(optim.global_norm([]), 0.0)
    check(optim.global_norm(lg.zeros(2)), 0.0)
    check(optim.global_norm(lg.asarray([3e200, 4e200])), 5e200)
    check(optim.global_norm(lg.full((2,), 60000.0, dtype=lg.float16)), np.float32(60000 * np.sqrt(2)), 1e-6)
    clipped, _ = optim.clip_by_global_norm(1.3).update(tree, ())
    check(optim.global_norm(clipped), 1.3)
    check(clipped["b"][0], 0.4 + 1.2j)
    same, _ = optim.clip_by_global_norm(100.0).update(tree, ())
    check(same["a"], [3.0, 0.0])
    assert np.isnan(np.asarray(optim.clip_by_global_norm(1.0).update(lg.asarray([lg.nan, 1.0]), ())[0])).all()
    check(optim.clip(lg.asarray(2.0)).update(lg.asarray([-5.0, 1.0]), ())[0], [-2.0, 1.0])
    decayed = optim.add_decayed_weights(0.5, mask=lambda _: {"a": True, "b": False, "c": False})
    updates, _ = decayed.update(tree, (), tree)
    check(updates["a"], [4.5, 0.0])
    check(updates["b"][0], 4.0 + 12.0j)
    assert np.asarray(optim.apply_updates({"n": 3}, {"n": lg.zeros(())})["n"]).dtype == np.int64


SCHEDULES = [
    (optim.constant_schedule(0.5), lambda _: 0.5),
    (optim.linear_schedule(2.0, 0.5, 4, 2), lambda k: 2.0 - 1.5 * min(max(k - 2, 0), 4) / 4),
    (optim.exponential_decay(2.0, 3, 0.5, 1), lambda k: 2.0 * 0.5 ** (max(k - 1, 0) / 3)),
    (optim.exponential_decay(2.0, 3, 0.5, staircase=True, end_value=0.9), lambda k: max(2.0 * 0.5 ** (k // 3), 0.9)),
    (
        optim.cosine_decay_schedule(2.0, 5, 0.1, 2.0),
        lambda k: 2.0 * (0.9 * (0.5 * (1 + np.cos(np.pi * min(k, 5) / 5))) ** 2 + 0.1),
    ),
    (
        optim.warmup_cosine_decay_schedule(0.1, 1.0, 3, 9, 0.2),
        lambda k: 0.1 + 0.3 * k if k < 3 else 0.8 * 0.5 * (1 + np.cos(np.pi * min(k - 3, 6) / 6)) + 0.2,
    ),
    (optim.piecewise_constant_schedule(2.0, {2: 0.5, 5: 0.1}), lambda k: 2.0 if k <= 2 else 1.0 if k <= 5 else 0.1),
]  # fmt: skip


def test_schedules_are_functions_of_the_count(device: str) -> None:
    for schedule, expected in SCHEDULES:
        compiled = lg.compile(schedule)
        for k in range(11):
            check(schedule(k), expected(k), 1e-12)
            check(compiled(k), expected(k), 1e-12)
        assert compiled.versions == 1


def test_what_is_refused() -> None:
    for error, call in (
        (ValueError, lambda: optim.cosine_decay_schedule(1.0, 0)),
        (ValueError, lambda: optim.linear_schedule(1.0, 0.0, 0)),
        (ValueError, lambda: optim.exponential_decay(1.0, 0, 0.5)),
        (ValueError, lambda: optim.warmup_cosine_decay_schedule(0.0, 1.0, 5, 5)),
        (ValueError, lambda: optim.join_schedules([abs], [1])),
        (lg.GradientError, lambda: optim.adamw(0.1).update(1.0, optim.adamw(0.1).init(1.0))),
        (lg.StructureError, lambda: optim.apply_updates([1.0], (1.0,))),
        (lg.StructureError, lambda: optim.adam(0.1).update([1.0], optim.adam(0.1).init((1.0,)))),
    ):
        with pytest.raises(error, match="expected"):
            call()


def test_pickled_optimisers_go_on() -> None:
    schedule = lg.optim.warmup_cosine_decay_schedule(0.0, 1.0, 2, 6)
    chain = lg.optim.chain(lg.optim.clip_by_global_norm(1.0), lg.optim.adamw(schedule))
    params = {"w": lg.asarray([1.0, -2.0])}
    updates, state = chain.update(params, chain.init(params), params)
    again, later = pickle.loads(pickle.dumps((chain, state)))
    expected, got = (c.update(updates, s, params)[0]["w"] for c, s in ((chain, state), (again, later)))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))
    step = lg.compile(lambda p, c: c.update(p, c.init(p), p)[0], static_argnums=1)
    np.testing.assert_array_equal(np.asarray(step(params, again)["w"]), np.asarray(updates["w"]))
