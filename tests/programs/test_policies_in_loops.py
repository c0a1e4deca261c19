"""Policies of `lg.checkpoint` that keep values of loops and branches in the checkpointed function.

Values and derivatives are those of the function without a checkpoint, of all orders, in all programs of own rules; the
plan says what is kept, on which stack, how deep; a hand-written reverse pass and `jax.checkpoint` give the same slopes.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.programs.test_own_rules import PROGRAMS, X, agree, point

P = lg.checkpoint_policies
POLICIES: dict[str, Any] = {
    "first": P.save_only_these_names("s"),
    "second": P.save_only_these_names("e"),
    "both": P.save_any_names_but_these(),
    "but": P.save_any_names_but_these("e"),
    "none of these": P.save_only_these_names("another"),
    "dots": P.dots_saveable,
}
RATES = P.save_only_these_names("rate")


def named(x: Any, y: Any) -> Any:
    s = lg.name(lg.sin(x) * y, "s")
    e = lg.name(lg.exp(s), "e")
    return lg.cos(e) * s + 0.1 * e


def slopes(f: Any) -> list[Any]:
    value, found = lg.value_and_grad(f, argnums=(0, 1))(*point())
    return [value, *found]


def second_slopes(f: Any) -> list[Any]:
    def again(x: Any, y: Any) -> Any:
        value, found = lg.value_and_grad(f, argnums=(0, 1))(x, y)
        return value + lg.sum(found[0] * X) + lg.sum(found[1] ** 2)

    x, y = point()
    rows = lg.vmap(lg.grad(f, argnums=(0, 1)), in_axes=(0, None))(lg.stack([x, -x]), y)
    return [*lg.hvp(f, (x, y), (lg.ones(4), x)), *lg.grad(again, argnums=(0, 1))(x, y), *rows]


@functools.cache
def without_a_checkpoint(result: Any, program: Any) -> list[np.ndarray]:
    with lg.default_device("interpreter"):
        return [np.asarray(found) for found in result(lambda x, y: program(named, x, y))]


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("policy", ["first", "both"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_slopes(device: str, program: Any, policy: str) -> None:
    f = lg.checkpoint(lambda x, y: program(named, x, y), policy=POLICIES[policy])
    agree(slopes(f), without_a_checkpoint(slopes, program))


@pytest.mark.in_turns
@pytest.mark.parametrize("policy", ["first", "second", "both", "none of these"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_second_derivatives_and_batches(program: Any, policy: str) -> None:
    with lg.default_device("interpreter"):
        f = lg.checkpoint(lambda x, y: program(named, x, y), policy=POLICIES[policy])
        agree(second_slopes(f), without_a_checkpoint(second_slopes, program))


@pytest.mark.parametrize(("policy", "same"), [("but", "first"), ("dots", "none of these")])
def test_policies_that_save_the_same_make_the_same_graph(policy: str, same: str) -> None:
    """But for what the call says of the policy."""

    def texts(policy: str) -> list[str]:
        wrapped = [lg.checkpoint(lambda x, y, p=p: p(named, x, y), policy=POLICIES[policy]) for p in PROGRAMS]
        return [re.sub(r"save=\([^)]*\)", "save=...", lg.to_text(*slopes(f))) for f in wrapped]

    assert texts(policy) == texts(same)


# ---- what is kept


def saved_values(f: Any, *arguments: Any) -> dict[str, Any]:
    """The rows of the plan of value and slope after a run, by name."""
    compiled = lg.compile(lg.value_and_grad(f), device="cpu")
    lg.eval(*compiled(*arguments))
    plan = compiled.plan(*arguments)
    rows = {r.name: r for r in plan.residuals}
    assert len(rows) == len(plan.residuals)
    return rows


def decay(k: Any, v: Any) -> Any:
    """What is named isn't part of what the next trip starts from, but of what the slope reads."""
    rate = lg.name(lg.exp(lg.sin(v)), "rate")
    return 0.9 * v + 0.1 * lg.cos(rate) * rate


def test_a_counted_loop_keeps_one_value_a_trip() -> None:
    f = lg.checkpoint(lambda x: lg.fori_loop(0, 6, decay, x), policy=RATES)
    rows = saved_values(lambda x: lg.sum(f(x)), lg.asarray(X))
    kept = rows["fori_loop/rate"]
    assert (str(kept.type), kept.formula, kept.depth) == ("float64[4]", "6", 6)


TRIPS = np.array([3, 0, 1, 4])


def for_in_while(step: Any, x: Any) -> Any:
    """Trips that are computed from what is carried."""
    inner = lambda v: lg.fori_loop(0, lg.floor(abs(v)).astype(lg.int64) + 1, lambda _, u: step(u), v)
    return lg.while_loop(lambda v: v < 9, inner, x)


def three_deep(step: Any, x: Any) -> Any:
    until = lambda v: lg.while_loop(lambda u: u < 2.5, step, 0.3 * v)
    middle = lambda w: lg.fori_loop(0, lg.asarray(TRIPS), lambda _, v: until(v), w)
    return lg.fori_loop(0, 2, lambda _, w: middle(w), x)


def beside_another(step: Any, x: Any) -> Any:
    """The inner loop has no names."""
    inner = lambda v: lg.fori_loop(0, lg.asarray(TRIPS), lambda _, u: 0.5 * u + 0.1 * lg.sin(u * u), v)
    return lg.fori_loop(0, 3, lambda _, v: step(inner(v)), x)


LOOPS: dict[str, Any] = {
    "for": lambda step, x: lg.fori_loop(0, 5, lambda _, v: step(v), x),
    "count": lambda step, x: lg.fori_loop(0, lg.asarray(4), lambda _, v: step(v), x),
    "no trip": lambda step, x: lg.fori_loop(0, lg.asarray(0), lambda _, v: step(v), x),
    "lanes": lambda step, x: lg.fori_loop(0, lg.asarray([3, 0, 1, 4]), lambda _, v: step(v), x),
    "scan": lambda step, x: lg.scan(lambda v, r: (step(v + r), v), x, lg.ones((3, 4)))[0],
    "in a batch": lambda step, x: lg.vmap(lambda v, n: lg.fori_loop(0, n, lambda _, u: step(u), v))(
        x, lg.asarray([3, 0, 1, 4])
    ),
    "backwards": lambda step, x: lg.scan(lambda v, r: (step(v + r), v), x, lg.ones((3, 4)), reverse=True)[0],
    "backwards in lanes": lambda step, x: lg.fori_loop(
        0, lg.asarray(TRIPS), lambda _, v: lg.scan(lambda u, r: (step(0.3 * u + r), u), v, X[:3], reverse=True)[0], x
    ),
    "while": lambda step, x: lg.while_loop(lambda v: lg.sum(v) < 20, step, x),
    "while of lanes": lambda step, x: lg.while_loop(lambda v: v < 6, step, x),
    "nest": lambda step, x: lg.fori_loop(0, 3, lambda _, v: lg.fori_loop(0, 2, lambda _, u: step(0.1 * u), v), x),
    "lanes in a nest": lambda step, x: lg.fori_loop(
        0, 3, lambda _, v: lg.fori_loop(0, lg.asarray(TRIPS), lambda _, u: step(0.1 * u), v), x
    ),
    "lanes in lanes": lambda step, x: lg.fori_loop(
        0, lg.asarray(TRIPS), lambda k, v: lg.fori_loop(0, k + 1, lambda _, u: step(0.1 * u), v), x
    ),
    "triangle": lambda step, x: lg.fori_loop(0, 4, lambda k, v: lg.fori_loop(0, k, lambda _, u: step(0.1 * u), v), x),
    "while in for": lambda step, x: lg.fori_loop(
        0, 3, lambda k, v: lg.while_loop(lambda u: u < 2.0 + k, step, 0.3 * v), x
    ),
    "for in while": for_in_while,
    "three deep": three_deep,
    "beside another": beside_another,
}


def in_whiles(step: Any, x: Any) -> Any:
    return lg.while_loop(lambda v: lg.sum(v) < 20, step, x) + lg.while_loop(lambda v: v < 3, step, x)


def in_a_while_that_follows(step: Any, x: Any) -> Any:
    return lg.while_loop(lambda v: v < 9, step, lg.fori_loop(0, lg.asarray(40), lambda _, v: step(0.1 * v), x))


def in_a_nest(step: Any, x: Any) -> Any:
    inner = lambda _, v: lg.fori_loop(0, lg.asarray([3, 0, 1, 4]), lambda _, u: step(0.1 * u), v)
    return lg.fori_loop(0, 40, inner, x)


def step(v: Any) -> Any:
    return v + 0.1 * lg.sin(v) + lg.name(lg.exp(lg.tanh(v)), "rate")


@pytest.mark.costly
@pytest.mark.parametrize("loops", [in_whiles, in_a_while_that_follows, in_a_nest], ids=lambda f: f.__name__)
def test_stacks_that_grow_under_a_second_run(device: str, loops: Any) -> None:
    """What a stack that is too small gives decides about no trips."""

    def f(x: Any) -> Any:
        return loops(step, x)

    def result(f: Any) -> Any:
        return lg.value_and_grad(lambda x: lg.sum(f(x) ** 2))(lg.asarray(X))

    for found, expected in zip(result(lg.checkpoint(f, policy=RATES)), result(f), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("loop", list(LOOPS))
def test_what_is_named_is_computed_once(device: str, loop: str) -> None:
    """The next trip starts from it, and the second run of the loop, for what has no name, reads it."""

    def f(x: Any) -> Any:
        return LOOPS[loop](step, x)

    def result(f: Any) -> Any:
        return lg.value_and_grad(lambda x: lg.sum(f(x) ** 2))(lg.asarray(X))

    named, unnamed = result(lg.checkpoint(f, policy=RATES)), result(lg.checkpoint(f))
    assert lg.to_text(*named).count("= exp(") == 1
    assert lg.to_text(*unnamed).count("= exp(") > 1
    with lg.default_device("interpreter"):
        wanted = result(f)
    for found, expected in zip(named, wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_the_trips_of_inner_loops_are_kept_as_well() -> None:
    """So the second run knows them, and the plan has three stacks that hold values between the two runs."""
    f = lg.checkpoint(lambda x: three_deep(step, x), policy=RATES)
    value, slope = lg.value_and_grad(lambda x: lg.sum(f(x)))(lg.asarray(X))
    assert lg.to_text(value, slope).count("= while(") == 1
    rows = saved_values(lambda x: lg.sum(f(x)), lg.asarray(X))
    kept = {name: str(r.type) for name, r in rows.items() if name.endswith(("/rate", "/trips"))}
    assert kept == {"while_loop/rate": "float64[4]", "fori_loop/trips": "int32[4]"}


@pytest.mark.costly
def test_trips_that_nobody_keeps_are_not_computed_from_what_is_read(device: str) -> None:
    """The loop behind has no names: the second run computes again what decides how often it runs, as that must end
    while the stack is too small."""

    def f(x: Any) -> Any:
        v = lg.fori_loop(0, lg.asarray(40), lambda _, v: step(0.1 * v), x)
        return lg.while_loop(lambda u: u < 9, lambda u: u + v * lg.sin(u) ** 2 + 0.1, v)

    again = lg.checkpoint(f, policy=RATES)
    value, slope = lg.value_and_grad(lambda x: lg.sum(again(x)))(lg.asarray(X))
    assert lg.to_text(value, slope).count("= exp(") == 2
    np.testing.assert_allclose(slope, lg.grad(lambda x: lg.sum(f(x)))(lg.asarray(X)), rtol=1e-11)


BUDGETED: dict[str, Any] = {
    "for": lambda step, x, b: lg.fori_loop(0, 12, lambda _, v: step(v), x, memory_budget=b),
    "lanes": lambda step, x, b: lg.fori_loop(0, lg.asarray(3 * TRIPS), lambda _, v: step(v), x, memory_budget=b),
    "while": lambda step, x, b: lg.while_loop(lambda v: v < 12, lambda v: step(v) + 0.5, x, memory_budget=b),
    "around a loop": lambda step, x, b: lg.fori_loop(
        0, 9, lambda _, v: lg.fori_loop(0, lg.asarray(TRIPS), lambda _, u: step(0.5 * u), v), x, memory_budget=b
    ),
    "inside a loop": lambda step, x, b: lg.fori_loop(
        0, 3, lambda _, v: lg.fori_loop(0, 9, lambda _, u: step(0.5 * u), v, memory_budget=b), x
    ),
    "products": lambda step, x, b: lg.fori_loop(
        0, 9, lambda _, v: step(lg.matmul(0.1 * lg.ones((4, 4)), v)), x, memory_budget=b
    ),
}  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("loop", list(BUDGETED))
def test_a_loop_with_a_budget_saves_what_is_named_besides(device: str, loop: str) -> None:
    """Each trip is pulled back with what was saved; only going on from a state that was kept computes it again."""

    def result(wrap: Any, budget: int | None) -> Any:
        f = wrap(lambda x: BUDGETED[loop](step, x, budget))
        return lg.value_and_grad(lambda x: lg.sum(f(x) ** 2))(lg.asarray(X))

    named, unnamed = (result(lambda f, p=p: lg.checkpoint(f, policy=p), 64) for p in (RATES, None))
    assert lg.to_text(*named).count("= exp(") < lg.to_text(*unnamed).count("= exp(")
    with lg.default_device("interpreter"):
        wanted = result(lambda f: f, None)
    for found, expected in zip(named, wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_the_plan_of_a_loop_with_a_budget() -> None:
    f = lg.checkpoint(lambda x: BUDGETED["for"](step, x, 64), policy=RATES)
    rows = lg.compile(lg.value_and_grad(lambda x: lg.sum(f(x)))).plan(lg.asarray(X)).residuals
    assert [(r.name, str(r.type), r.formula) for r in rows] == [
        ("fori_loop/rate", "float64[4]", "12"), ("snapshot", "int64[]", "2"), ("snapshot", "float64[4]", "2")
    ]  # fmt: skip


def twice(step: Any) -> Any:
    return lambda v: lg.fori_loop(0, 2, lambda _, u: step(u), v)


def and_then_another(step: Any) -> Any:
    """A loop whose trips come from what was read, and aren't saved."""
    grow = lambda w: lambda u: u + w * lg.sin(u) ** 2 + 1.1
    return lambda v: (lambda w: lg.while_loop(lambda u: lg.sum(u) < 9, grow(w), w))(twice(step)(v))


SAVING: dict[str, Any] = {
    "for": twice,
    "while": lambda step: lambda v: lg.while_loop(lambda u: lg.sum(u) < 9, lambda u: u + 0.3 * step(u) + 0.8, v),
    "branch": lambda step: lambda v: lg.cond(lg.sum(v) < 100, twice(step), lambda v: v, v),
    "branch of lanes": lambda step: lambda v: lg.cond(v < 0.5, twice(step), lambda v: v * v, v),
    "branch in a loop": lambda step: (
        lambda v: lg.fori_loop(0, 2, lambda _, v: lg.cond(lg.sum(v) < 100, twice(step), lambda v: v, v), v)
    ),
    "then another": and_then_another,
}
AROUND: dict[str, Any] = {
    "loop": lambda f, x: lg.fori_loop(0, 3, lambda _, v: f(v), x),
    "budget": lambda f, x: lg.fori_loop(0, 3, lambda _, v: f(v), x, memory_budget=40),
    "lanes": lambda f, x: lg.fori_loop(0, lg.asarray(TRIPS), lambda _, v: f(v), x),
}


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("around", list(AROUND))
@pytest.mark.parametrize("saving", list(SAVING))
def test_second_derivatives_of_what_is_computed_again_in_a_loop(saving: str, around: str) -> None:
    """The second run pops stacks that the loop around hands to it; its own reverse can't pop them once more."""
    steps = {
        "named": lambda u: lg.exp(-(lg.name(lg.sin(u), "c") ** 2)),
        "read by itself": lambda u: lg.name(lg.exp(-u * u), "c") * lg.cos(u),
        "product": lambda u: lg.sin(lg.matmul(lg.linspace(-0.5, 0.5, 16).reshape(4, 4), u)) + u,
    }
    policy = P.save_from_both_policies(P.save_only_these_names("c"), P.dots_saveable)

    def result(f: Any) -> Any:
        slope = lg.grad(lambda x: lg.sum(AROUND[around](f, x)))
        return lg.grad(lambda x: lg.sum(slope(x) ** 2))(lg.asarray(X))

    with lg.default_device("interpreter"):
        for name, made in steps.items():
            if (name, around) != ("product", "lanes"):  # whole rows
                f = SAVING[saving](made)
                np.testing.assert_allclose(result(lg.checkpoint(f, policy=policy)), result(f), rtol=1e-9)


def test_a_value_that_only_the_second_run_reads() -> None:
    """The derivative of a sum reads neither term; the carry can't be had without them."""
    f = lg.checkpoint(lambda x: lg.fori_loop(0, 6, lambda _, v: v + lg.name(lg.sin(v), "rate"), x), policy=RATES)
    value, slope = lg.value_and_grad(lambda x: lg.sum(f(x)))(lg.asarray(X))
    assert lg.to_text(value, slope).count("= sin(") == 1
    assert saved_values(lambda x: lg.sum(f(x)), lg.asarray(X))["fori_loop/rate"].depth == 6
    unread = lg.checkpoint(lambda x: lg.fori_loop(0, 6, lambda _, v: lg.name(2 * v, "rate"), x), policy=RATES)
    assert not saved_values(lambda x: lg.sum(unread(x)), lg.asarray(X))  # a derivative that reads no value


@pytest.mark.costly
def test_a_while_keeps_one_value_a_trip_and_its_count(device: str) -> None:
    @lg.checkpoint(policy=P.save_only_these_names("start"))
    def f(x: Any) -> Any:
        def step(v: Any) -> Any:
            v = lg.name(v, "start")
            return v + lg.exp(-lg.sin(v))

        return lg.while_loop(lambda v: lg.sum(v) < 20, step, x)

    loss = lambda x: lg.sum(f(x) ** 2)
    rows = saved_values(loss, lg.asarray(X))
    assert list(rows) == ["while_loop/start"]  # so the reverse pass doesn't run the loop again
    value, slope = lg.value_and_grad(loss)(lg.asarray(X))
    assert lg.to_text(value, slope).count("= while(") == 1
    plain = lg.grad(lambda x: lg.sum(f.__wrapped__(x) ** 2))
    np.testing.assert_allclose(slope, plain(lg.asarray(X)), rtol=1e-12)


def test_a_carry_that_is_named_needs_no_second_run(device: str) -> None:
    def f(x: Any) -> Any:
        return lg.fori_loop(0, 5, lambda k, v: lg.sin(lg.exp(lg.name(v, "state"))) + 0.2, x)

    def loops(policy: Any) -> int:
        again = lg.checkpoint(f, policy=policy)
        value, slope = lg.value_and_grad(lambda x: lg.sum(again(x)))(lg.asarray(X))
        np.testing.assert_allclose(slope, lg.grad(lambda x: lg.sum(f(x)))(lg.asarray(X)), rtol=1e-12)
        return lg.to_text(value, slope).count("= for(")

    assert loops(None) == 3
    assert loops(P.save_only_these_names("state")) == 2


def test_lanes_branches_and_nests_keep_what_is_named() -> None:
    trips = lg.asarray([3, 0, 1, 4])

    def nested(x: Any) -> Any:
        def outer(k: Any, v: Any) -> Any:
            return lg.fori_loop(0, 3, lambda j, u: lg.cond(u > 0.5, decay_of, lambda w: w * 1.1, u), v)

        return lg.fori_loop(0, trips, outer, x)

    def decay_of(v: Any) -> Any:
        return decay(0, v)

    f = lg.checkpoint(nested, policy=RATES)
    rows = saved_values(lambda x: lg.sum(f(x)), lg.asarray(X))
    (kept,) = [r for name, r in rows.items() if name.endswith("/rate")]
    assert (str(kept.type), kept.depth) == ("float64[4]", 12)


def test_products_in_loops() -> None:
    w = lg.asarray(np.linspace(-0.5, 0.5, 16).reshape(4, 4))
    layer = lambda _, v: lg.tanh(lg.matmul(w, v))

    def kept(policy: Any, x: Any) -> list[str]:
        f = lg.checkpoint(lambda x: lg.fori_loop(0, 3, layer, x), policy=policy)
        return [name for name in saved_values(lambda x: lg.sum(f(x)), x) if "matmul" in name]

    vector, matrices = lg.asarray(X), lg.ones((2, 4, 4))
    assert kept(P.dots_saveable, vector)
    assert kept(P.dots_with_no_batch_dims_saveable, vector)
    assert not kept(P.nothing_saveable, vector)
    stacked = lg.checkpoint(
        lambda x: lg.fori_loop(0, 3, lambda _, v: lg.tanh(lg.matmul(v, v)), x),
        policy=P.dots_with_no_batch_dims_saveable,
    )
    assert not [n for n in saved_values(lambda x: lg.sum(stacked(x)), matrices) if "matmul" in n]
    assert P.checkpoint_dots is P.dots_saveable


def test_a_checkpoint_inside_has_its_own_policy() -> None:
    inner = lg.checkpoint(lambda v: lg.fori_loop(0, 3, decay, v), policy=RATES)
    outer = lg.checkpoint(lambda x: inner(lg.sin(x)), policy=P.nothing_saveable)
    rows = saved_values(lambda x: lg.sum(outer(x)), lg.asarray(X))
    assert all(r.depth != 3 for name, r in rows.items() if not name.endswith("rate"))
    value, slope = lg.value_and_grad(lambda x: lg.sum(outer(x)))(lg.asarray(X))
    first = lg.to_text(value)
    assert "stack_new" not in first
    plain = lg.grad(lambda x: lg.sum(lg.fori_loop(0, 3, decay, lg.sin(x))))
    np.testing.assert_allclose(slope, plain(lg.asarray(X)), rtol=1e-12)


# ---- against others


def test_a_reverse_pass_by_hand(device: str) -> None:
    f = lg.checkpoint(lambda x: lg.fori_loop(0, 6, decay, x), policy=RATES)
    slope = lg.grad(lambda x: lg.sum(f(x) ** 2))(lg.asarray(X))
    states = [X]
    for _ in range(6):
        rate = np.exp(np.sin(states[-1]))
        states.append(0.9 * states[-1] + 0.1 * np.cos(rate) * rate)
    ct = 2 * states.pop()
    for v in reversed(states):
        rate = np.exp(np.sin(v))
        ct = ct * (0.9 + 0.1 * (np.cos(rate) - rate * np.sin(rate)) * rate * np.cos(v))
    np.testing.assert_allclose(slope, ct, rtol=1e-12)


@pytest.mark.in_turns
@pytest.mark.parametrize("policy", ["only", "but", "dots", "nothing", "everything", "both"])
def test_jax_has_the_same_slopes(policy: str) -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy

    def chosen(policies: Any) -> Any:
        only = policies.save_only_these_names("rate")
        both = policies.save_from_both_policies(only, policies.dots_saveable)
        but = policies.save_any_names_but_these("rate")
        return {
            "only": only, "both": both, "but": but, "dots": policies.dots_saveable,
            "nothing": policies.nothing_saveable, "everything": policies.everything_saveable,
        }[policy]  # fmt: skip

    def program(np_: Any, name: Any, fori_loop: Any, cond: Any, w: Any) -> Any:
        def step(k: Any, v: Any) -> Any:
            rate = name(np_.exp(np_.sin(v)), "rate")
            u = name(np_.tanh(np_.matmul(w, rate)), "product")
            return cond(u[0] > 0, lambda z: z * np_.cos(rate), lambda z: name(np_.sin(z), "branch") * rate, u + v)

        return lambda x: fori_loop(0, 5, step, x)

    w = np.linspace(-1, 1, 16).reshape(4, 4)
    ours = lg.checkpoint(program(lg, lg.name, lg.fori_loop, lg.cond, lg.asarray(w)), policy=chosen(P))
    name = pytest.importorskip("jax.ad_checkpoint").checkpoint_name
    theirs = program(jnp, name, jax.lax.fori_loop, jax.lax.cond, w)
    theirs = jax.checkpoint(theirs, policy=chosen(jax.checkpoint_policies))
    expected = jax.grad(lambda x: (theirs(x) ** 2).sum())(X)
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(ours(x) ** 2))(lg.asarray(X)), expected, rtol=1e-10)
