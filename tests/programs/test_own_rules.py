"""Functions that bring their derivative, wherever a program may call them.

The oracle is a function without rules whose derivative is the stated one: 3 s - 2 stop_gradient(s) is s, and its slope
is 3. So a rule that isn't asked shows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

X = np.array([0.3, -0.7, 1.1, 0.4])
Y = np.array([0.9, 0.5, -0.3, 1.2])


def plain(x: Any, y: Any, slope: float = 3.0) -> Any:
    s = lg.sin(x) * y
    return slope * s - (slope - 1) * lg.stop_gradient(s)


def with_slope_1(x: Any, y: Any) -> Any:
    return plain(x, y, 1.0)


def without_rules(x: Any, y: Any) -> Any:
    return lg.sin(x) * y


def _like(ct: Any, x: Any) -> Any:
    """The cotangent of an argument that was stretched."""
    return ct if ct.shape == x.shape else lg.sum(ct)


def _backward(slope: float, saved: Any, ct: Any) -> Any:
    x, y = saved["x"], saved["y"]
    return _like(slope * ct * lg.cos(x) * y, x), _like(slope * ct * saved["sin"], y)


def by_vjp(slope: float) -> Callable[..., Any]:
    rule = lg.custom_vjp(without_rules)
    rule.defvjp(
        lambda x, y: (lg.sin(x) * y, {"x": x, "y": y, "sin": lg.sin(x)}),
        lambda saved, ct: _backward(slope, saved, ct),
    )
    return rule


def by_vjp_with_itself(slope: float) -> Callable[..., Any]:
    rule = lg.custom_vjp(without_rules)
    rule.defvjp(
        lambda x, y: (rule(x, y), (x, y)),
        lambda saved, ct: _backward(slope, {"x": saved[0], "y": saved[1], "sin": lg.sin(saved[0])}, ct),
    )
    return rule


def by_jvp(slope: float) -> Callable[..., Any]:
    rule = lg.custom_jvp(without_rules)

    @rule.defjvp
    def tangent(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        return rule(x, y), slope * (lg.cos(x) * y * dx + lg.sin(x) * dy)

    return rule


def looping(x: Any, y: Any) -> Any:
    """Lanes, a table, a branch: what rules may hold in themselves."""
    n = lg.asarray(np.arange(x.size).reshape(x.shape) % 3)
    v = lg.fori_loop(0, n, lambda k, v: lg.cond(v > 0.5, lg.sin, lambda u: u + 0.3, v) * y, x)
    table = lg.scan(lambda c, _: (c * 0.9, c), lg.sum(v), None, length=3)[1]
    return lg.while_loop(lambda u: u < 0.9, lambda u: 0.5 * u + 0.6, v) * table[n]


def looping_by_vjp() -> Callable[..., Any]:
    rule = lg.custom_vjp(looping)
    rule.defvjp(lambda x, y: (looping(x, y), (x, y)), lambda saved, ct: lg.vjp(looping, *saved)[1](ct))
    return rule


def looping_by_jvp() -> Callable[..., Any]:
    rule = lg.custom_jvp(looping)
    rule.defjvp(lambda primals, tangents: lg.jvp(looping, primals, tangents))
    return rule


RULES: dict[str, Callable[[float], Callable[..., Any]]] = {"vjp": by_vjp, "itself": by_vjp_with_itself, "jvp": by_jvp}
Step = Callable[..., Any]


def straight(f: Step, x: Any, y: Any) -> Any:
    return lg.sum(f(f(x, y), y) ** 2)


def counted(f: Step, x: Any, y: Any) -> Any:
    return lg.sum(lg.fori_loop(0, 4, lambda k, v: f(v, y) + 0.1 * k, x))


def within_a_budget(f: Step, x: Any, y: Any) -> Any:
    return lg.sum(lg.fori_loop(0, 7, lambda k, v: f(v, y) + 0.1 * k, x, memory_budget=70))


def while_whole(f: Step, x: Any, y: Any) -> Any:
    return lg.sum(lg.while_loop(lambda v: lg.sum(v) < 6, lambda v: v + lg.exp(f(v, y)), x))


def lanes(f: Step, x: Any, y: Any) -> Any:
    return lg.sum(lg.fori_loop(0, lg.asarray([3, 0, 1, 4]), lambda k, v: f(v, y) + 0.1 * k, x))


def while_lanes(f: Step, x: Any, y: Any) -> Any:
    return lg.sum(lg.while_loop(lambda v: v < 3, lambda v: v + lg.exp(f(v, y)), x))


def scalar_in_lanes(f: Step, x: Any, y: Any) -> Any:
    """What the lanes share gets a cotangent from each."""
    return lg.sum(lg.fori_loop(0, lg.asarray([3, 0, 1, 4]), lambda k, v: f(v, y[0]) + y[1], x))


def lanes_that_mix(f: Step, x: Any, y: Any) -> Any:
    return lg.sum(lg.fori_loop(0, lg.asarray([3, 0, 1, 4]), lambda k, v: f(v, lg.sum(v) * y), x))


def scanned(f: Step, x: Any, y: Any) -> Any:
    last, rows = lg.scan(lambda c, r: (f(c, r), f(r, c) * y[0]), x[0], y)
    return last + lg.sum(rows)


def nested(f: Step, x: Any, y: Any) -> Any:
    def outer(k: Any, v: Any) -> Any:
        return lg.fori_loop(0, k + 1, lambda _, u: f(u, y) + 0.1, v)

    return lg.sum(lg.fori_loop(0, 3, outer, x))


def nested_lanes(f: Step, x: Any, y: Any) -> Any:
    def outer(k: Any, v: Any) -> Any:
        return lg.while_loop(lambda u: u < k + 1.5, lambda u: u + lg.exp(f(u, y)), v)

    return lg.sum(lg.fori_loop(0, lg.asarray([3, 0, 1, 4]), outer, x))


def chosen(f: Step, x: Any, y: Any) -> Any:
    return lg.sum(lg.cond(x[0] > 0, lambda v: f(v, y), lambda v: f(y, v) ** 2, x))


def chosen_by_lane(f: Step, x: Any, y: Any) -> Any:
    return lg.sum(lg.cond(x > 0.35, lambda v: f(v, y), lambda v: f(y, v) ** 2, x))


def chosen_in_a_loop(f: Step, x: Any, y: Any) -> Any:
    def step(k: Any, v: Any) -> Any:
        return lg.cond(v > 0.2, lambda u: f(u, y), lambda u: u + f(y, u), v)

    return lg.sum(lg.fori_loop(0, lg.asarray([3, 0, 1, 4]), step, x))


def batched(f: Step, x: Any, y: Any) -> Any:
    """y[0] is shared by the batch: its cotangent is a sum."""
    return lg.sum(lg.vmap(lambda v: f(v, y[0]) * f(y[1], v))(x))


def batched_loops(f: Step, x: Any, y: Any) -> Any:
    def one(v: Any, n: Any) -> Any:
        return lg.fori_loop(0, n, lambda k, u: f(u, y[2]) + 0.1 * k, v)

    return lg.sum(lg.vmap(one)(x, lg.asarray([3, 0, 1, 4])))


def recomputed(f: Step, x: Any, y: Any) -> Any:
    step = lg.checkpoint(lambda v: f(f(v, y), y))
    return lg.sum(lg.fori_loop(0, 3, lambda _, v: step(v), x))


def tables(f: Step, x: Any, y: Any) -> Any:
    places = lg.asarray([0, 2, 1, 0])
    return lg.sum(lg.fori_loop(0, lg.asarray([3, 0, 1, 4]), lambda k, v: f(v, y[(places + k) % 4]), x))


PROGRAMS = [
    straight, counted, within_a_budget, while_whole, lanes, while_lanes, scalar_in_lanes, lanes_that_mix, scanned,
    nested, nested_lanes, chosen, chosen_by_lane, chosen_in_a_loop, batched, batched_loops, recomputed, tables,
]  # fmt: skip


def point() -> tuple[Any, Any]:
    return lg.asarray(X), lg.asarray(Y)


def agree(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def value_and_slopes(program: Any, f: Step) -> list[Any]:
    value, slopes = lg.value_and_grad(lambda x, y: program(f, x, y), argnums=(0, 1))(*point())
    return [value, *slopes]


def tangent(program: Any, f: Step) -> Any:
    return lg.jvp(lambda x, y: program(f, x, y), point(), (lg.ones(4), lg.asarray(X)))


def forward_over_reverse(program: Any, f: Step) -> Any:
    return lg.hvp(lambda x, y: program(f, x, y), point(), (lg.ones(4), lg.asarray(X)))


def reverse_over_reverse(program: Any, f: Step) -> Any:
    def slopes(x: Any, y: Any) -> Any:
        value, found = lg.value_and_grad(lambda x, y: program(f, x, y), argnums=(0, 1))(x, y)
        return value + lg.sum(found[0] * X) + lg.sum(found[1] ** 2)

    return lg.grad(slopes, argnums=(0, 1))(*point())


def slopes_of_a_batch(program: Any, f: Step) -> Any:
    slopes = lg.grad(lambda x, y: program(f, x, y), argnums=(0, 1))
    return lg.vmap(slopes, in_axes=(0, None))(lg.asarray(np.stack([X, -X])), lg.asarray(Y))


@functools.cache
def without_a_rule(result: Any, program: Any, f: Step = plain) -> list[np.ndarray]:
    """The oracle's, which all rules and devices share."""
    with lg.default_device("interpreter"):
        return [np.asarray(found) for found in result(program, f)]


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_slopes(device: str, program: Any, rule: str) -> None:
    agree(value_and_slopes(program, RULES[rule](3.0)), without_a_rule(value_and_slopes, program))


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_forward_mode_asks_the_tangent_rule(device: str, program: Any) -> None:
    agree(tangent(program, by_jvp(3.0)), without_a_rule(tangent, program))


@pytest.mark.in_turns
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize(("rule", "oracle", "slope"), [("vjp", with_slope_1, 1.0), ("jvp", plain, 3.0)])
def test_forward_over_reverse(program: Any, rule: str, oracle: Step, slope: float) -> None:
    """What a forward rule returns has a derivative of its own, so this one must be the true one."""
    with lg.default_device("interpreter"):
        found = forward_over_reverse(program, RULES[rule](slope))
        agree(found, without_a_rule(forward_over_reverse, program, oracle))


@pytest.mark.in_turns
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize(
    ("rule", "oracle", "slope"), [("vjp", with_slope_1, 1.0), ("itself", plain, 3.0), ("jvp", plain, 3.0)]
)
def test_reverse_over_reverse(program: Any, rule: str, oracle: Step, slope: float) -> None:
    with lg.default_device("interpreter"):
        found = reverse_over_reverse(program, RULES[rule](slope))
        agree(found, without_a_rule(reverse_over_reverse, program, oracle))


@pytest.mark.in_turns
@pytest.mark.parametrize("rule", [looping_by_vjp, looping_by_jvp])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_rules_with_loops(program: Any, rule: Any) -> None:
    with lg.default_device("interpreter"):
        agree(value_and_slopes(program, rule()), without_a_rule(value_and_slopes, program, looping))


@pytest.mark.in_turns
@pytest.mark.parametrize("rule", ["vjp", "jvp"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_slopes_of_a_batch(program: Any, rule: str) -> None:
    with lg.default_device("interpreter"):
        agree(slopes_of_a_batch(program, RULES[rule](3.0)), without_a_rule(slopes_of_a_batch, program))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_slopes_with_named_values_saved(program: Any) -> None:
    rule = by_vjp(3.0)

    def named(x: Any, y: Any) -> Any:
        s = lg.name(rule(x, y), "s")
        return lg.cos(s) * s

    def unnamed(x: Any, y: Any) -> Any:
        s = plain(x, y)
        return lg.cos(s) * s

    def result(f: Step) -> Any:
        return lg.grad(lambda x, y: program(f, x, y), argnums=(0, 1))(*point())

    with lg.default_device("interpreter"):
        saving = lg.checkpoint(named, policy=lg.checkpoint_policies.save_only_these_names("s"))
        agree(result(saving), result(unnamed))
