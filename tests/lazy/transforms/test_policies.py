"""Policies of `lg.checkpoint`, and `lg.name`: what is saved, and that nothing but memory depends on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.nodes import Graph

X = np.array([0.3, -0.7, 1.1])
POLICIES: dict[str, Any] = {
    "none": None,
    "nothing": lg.checkpoint_policies.nothing_saveable,
    "everything": lg.checkpoint_policies.everything_saveable,
    "dots": lg.checkpoint_policies.dots_saveable,
    "only": lg.checkpoint_policies.save_only_these_names("first", "unused"),
    "except": lg.checkpoint_policies.save_any_names_but_these("first"),
    "both": lg.checkpoint_policies.save_from_both_policies(
        lg.checkpoint_policies.save_only_these_names("first"), lg.checkpoint_policies.dots_saveable
    ),
}


def block(x: Any, w: Any) -> Any:
    first = lg.name(lg.sin(x), "first")
    second = lg.name(lg.exp(first), "second")
    return lg.tanh(lg.matmul(w, second)) + lg.cos(second)


W = np.array([[0.1, 0.2, 0.3], [-0.2, 0.5, 0.1], [0.7, -0.1, 0.2]])


def count(graph: Graph, op: str) -> int:
    return sum((n.op == op) + sum(count(r, op) for r in n.regions) for n in graph.nodes)


@pytest.mark.in_turns
@pytest.mark.parametrize("policy", list(POLICIES))
def test_nothing_but_memory_depends_on_a_policy(device: str, policy: str) -> None:
    again = lg.checkpoint(block, policy=POLICIES[policy])

    def results(f: Any) -> list[Any]:
        def loss(x: Any, w: Any) -> Any:
            return lg.sum(lg.fori_loop(0, 3, lambda _, v: f(v, w), x) ** 2)

        x, w = lg.asarray(X), lg.asarray(W)
        value, slopes = lg.value_and_grad(loss, argnums=(0, 1))(x, w)
        return [value, *slopes, lg.hvp(lambda x: lg.sum(f(x, w) ** 2), x, lg.ones(3))]

    for found, expected in zip(results(again), results(block), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize(
    ("policy", "sines", "exponentials", "products"),
    [("none", 2, 2, 3), ("only", 1, 2, 3), ("except", 1, 1, 3), ("dots", 2, 2, 2), ("both", 1, 2, 2)],
)
def test_what_is_computed_again(policy: str, sines: int, exponentials: int, products: int) -> None:
    """Counted in value and slope together; the slope needs one product of its own, and sin(second)."""
    x, w = lg.asarray(X), lg.asarray(W)
    f = lg.checkpoint(block, policy=POLICIES[policy])
    value, slope = lg.value_and_grad(lambda x: lg.sum(f(x, w)))(x)
    text = lg.to_text(value, slope)
    assert text.count("= sin(") == sines + 1
    assert text.count("= exp(") == exponentials
    assert text.count("= matmul(") == products


def test_named_values_of_a_body_go_onto_stacks(device: str) -> None:
    """The loop saves its carry and the named value, and nothing else of the body."""
    named = lg.checkpoint_policies.save_only_these_names("rate")

    @lg.checkpoint(policy=named)
    def step(v: Any) -> Any:
        rate = lg.name(lg.exp(lg.sin(v) * 2), "rate")
        return v + lg.cos(rate) * rate * 0.1

    def loss(x: Any) -> Any:
        return lg.sum(lg.fori_loop(0, lg.asarray([3, 0, 5]), lambda _, v: step(v), x))

    value, slope = lg.value_and_grad(loss)(lg.asarray(X))
    text = lg.to_text(value, slope)
    assert text.count("= stack_new(") == 2
    plain = lg.grad(lambda x: lg.sum(lg.fori_loop(0, lg.asarray([3, 0, 5]), lambda _, v: step.__wrapped__(v), x)))
    np.testing.assert_allclose(slope, plain(lg.asarray(X)), rtol=1e-12)


def test_names_change_nothing(device: str) -> None:
    x = lg.asarray(X)
    tree = lg.name({"a": x, "b": (2.0, x * 2)}, "state")
    np.testing.assert_array_equal(tree["a"], X)
    np.testing.assert_array_equal(tree["b"][1], 2 * X)
    of_arguments = lg.checkpoint(
        lambda v: lg.sin(lg.name(lg.name(v, "v"), "w")), policy=lg.checkpoint_policies.save_only_these_names("v", "w")
    )
    np.testing.assert_allclose(lg.grad(lambda v: lg.sum(of_arguments(v)))(x), np.cos(X), rtol=1e-12)
    square = lambda v: lg.sum(lg.name(v, "v") ** 2)  # noqa: E731
    np.testing.assert_allclose(lg.grad(square)(x), 2 * X)
    np.testing.assert_allclose(lg.jvp(square, (x,), (lg.ones(3),))[1], 2 * X.sum())
    np.testing.assert_allclose(lg.hvp(square, x, lg.ones(3)), [2, 2, 2])
    np.testing.assert_allclose(lg.vmap(lambda v: lg.name(v, "v") * 2)(x), 2 * X)
    np.testing.assert_allclose(lg.vmap(lg.grad(square))(lg.stack([x, x])), np.stack([2 * X, 2 * X]))
    looped = lg.fori_loop(0, lg.asarray([3, 0, 5]), lambda _, v: lg.name(v, "v") + 1, x)
    np.testing.assert_allclose(looped, X + np.array([3, 0, 5]))
    assert lg.name(x.astype(lg.float32) * lg.name(2.0, "two"), "z").dtype == lg.float32


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match=r"one of lg\.checkpoint_policies"):
        lg.checkpoint(block, policy="nothing")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name: expected a string"):
        lg.name(lg.ones(3), 3)  # type: ignore[arg-type]
