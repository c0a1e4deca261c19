"""`custom_vjp` and `custom_jvp`: conventions, what rules may return, and what is refused.

The facts tested are those of JAX's own tests of these functions; tests/programs/NOT_APPLICABLE.md has the others.
"""
# ruff: noqa: ARG005  # rules are called with arguments that short ones don't read

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

X = np.array([0.3, -0.7, 1.1])


def doubled_cos(f: Callable[..., Any]) -> Any:
    """A rule that shows: the slope of sin is 2 cos."""
    rule = lg.custom_vjp(f)
    rule.defvjp(lambda x: (lg.sin(x), lg.cos(x)), lambda c, ct: (2 * c * ct,))
    return rule


@lg.custom_vjp
def clipped(x: Any) -> Any:
    return x


clipped.defvjp(lambda x: (x, None), lambda _, ct: (lg.clip(ct, -1, 1),))


# ---- what is called


def test_the_function_is_what_is_computed(device: str) -> None:
    @lg.custom_vjp
    def f(x: Any) -> Any:
        """Text."""
        return lg.sin(x)

    f.defvjp(lambda x: (lg.sin(x) + 100, ()), lambda _, ct: (ct,))
    np.testing.assert_allclose(f(lg.asarray(X)), np.sin(X), rtol=1e-12)
    assert (f.__name__, f.__doc__) == ("f", "Text.")


def test_a_derivative_has_the_results_of_the_forward_rule(device: str) -> None:
    f = lg.custom_vjp(lambda x: lg.sin(x))
    f.defvjp(lambda x: (lg.sin(x) + 100, ()), lambda _, ct: (ct,))
    value, slope = lg.value_and_grad(lambda x: lg.sum(f(x)))(lg.asarray(X))
    np.testing.assert_allclose([value, slope[0]], [np.sin(X).sum() + 300, 1], rtol=1e-12)


def test_value_first_and_slope_later(device: str) -> None:
    """Whether the value was evaluated before changes nothing of the slope."""
    x = lg.asarray(X)
    y = doubled_cos(lg.sin)(x)
    loss = lg.sum(y * y)
    float(loss), np.asarray(y)
    np.testing.assert_allclose(lg.gradients(loss, [x])[0], 4 * np.sin(X) * np.cos(X), rtol=1e-12)
    value, pull = lg.vjp(doubled_cos(lg.sin), x)
    np.testing.assert_allclose(value, np.sin(X), rtol=1e-12)
    np.testing.assert_allclose(pull(lg.ones(3))[0], 2 * np.cos(X), rtol=1e-12)
    np.testing.assert_allclose(pull(2 * value)[0], 4 * np.sin(X) * np.cos(X), rtol=1e-12)


def test_compiled_and_replayed(device: str) -> None:
    compiled = lg.compile(lg.value_and_grad(lambda x: lg.sum(doubled_cos(lg.sin)(x))))
    for x in (X, 2 * X, X + 1):
        value, slope = compiled(lg.asarray(x))
        np.testing.assert_allclose(value, np.sin(x).sum(), rtol=1e-12)
        np.testing.assert_allclose(slope, 2 * np.cos(x), rtol=1e-12)


def test_constants_that_change_become_inputs(device: str) -> None:
    """A script whose numbers differ from run to run is compiled once, calls or not."""
    f = lg.custom_vjp(lambda x, s: lg.sin(x) * s * 1.25 ** (s - 1))
    f.defvjp(lambda x, s: (f(x, s), (x, s)), lambda saved, ct: (ct * lg.cos(saved[0]) * saved[1] * 7, None))
    for scale in (1.5, 2.5, 3.5):
        value, slope = lg.value_and_grad(lambda x, s=scale: lg.sum(f(x, s)))(lg.asarray(X))
        np.testing.assert_allclose(value, (np.sin(X) * scale * 1.25 ** (scale - 1)).sum(), rtol=1e-12)
        np.testing.assert_allclose(slope, np.cos(X) * scale * 7, rtol=1e-12)


def test_trees_of_arguments_results_and_residuals(device: str) -> None:
    @lg.custom_vjp
    def f(state: dict[str, Any], pair: tuple[Any, Any]) -> dict[str, Any]:
        return {"out": state["a"] * pair[0], "list": [pair[1], 7]}

    def fwd(state: Any, pair: Any) -> Any:
        return f(state, pair), {"a": state["a"], "p": pair, "static": "text", "number": 3}

    def bwd(saved: Any, ct: Any) -> Any:
        assert saved["static"] == "text"
        assert isinstance(saved["number"], int)
        return {"a": ct["out"] * saved["p"][0] * saved["number"], "b": None}, (ct["out"] * saved["a"], ct["list"][0])

    f.defvjp(fwd, bwd)

    def loss(state: Any, pair: Any) -> Any:
        out = f(state, pair)
        return lg.sum(out["out"]) + 5 * out["list"][0]

    x = lg.asarray(X)
    state, pair = lg.grad(loss, argnums=(0, 1))({"a": x, "b": x}, (2 * x, lg.asarray(1.5)))
    np.testing.assert_allclose(state["a"], 6 * X)
    np.testing.assert_allclose(state["b"], 0 * X)
    np.testing.assert_allclose(pair[0], X)
    np.testing.assert_allclose(pair[1], 5)


def test_names_and_defaults_of_arguments(device: str) -> None:
    @lg.custom_vjp
    def f(x: Any, y: Any = 2.0, z: Any = 3.0) -> Any:
        return x * y * z

    f.defvjp(lambda x, y, z: (f(x, y, z), (y, z)), lambda saved, ct: (10 * ct * saved[0] * saved[1], None, None))
    x = lg.asarray(X)
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(f(x)))(x), 60 + 0 * X)
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(f(z=x, x=x, y=lg.asarray(1.0))))(x), 10 * X)


def test_integers_bools_and_python_values(device: str) -> None:
    @lg.custom_vjp
    def f(n: Any, x: Any, flag: Any, power: int, mode: str) -> Any:
        assert isinstance(power, int)
        assert mode == "m"
        return lg.where(flag, x**power, 0.0) * n, n + 1

    def fwd(n: Any, x: Any, flag: Any, power: int, mode: str) -> Any:
        return f(n, x, flag, power, mode), (n, x, flag, power)

    def bwd(saved: Any, ct: Any) -> Any:
        n, x, flag, power = saved
        assert ct[1].dtype == lg.int64
        return None, lg.where(flag, 10 * power * x ** (power - 1), 0.0) * n * ct[0], None, None, None

    f.defvjp(fwd, bwd)
    slope = lg.grad(lambda x: lg.sum(f(lg.asarray(2), x, lg.asarray([True, False, True]), 3, "m")[0]))(lg.asarray(X))
    np.testing.assert_allclose(slope, [60 * X[0] ** 2, 0, 60 * X[2] ** 2])


def test_nondifferentiable_arguments_come_first(device: str) -> None:
    @lg.custom_vjp
    def unused(x: Any) -> Any:
        return x

    def f(function: Any, x: Any, n: int) -> Any:
        return function(x) * n

    rule = lg.custom_vjp(f, nondiff_argnums=(0, 2))
    rule.defvjp(lambda g, x, n: (g(x) * n, x), lambda g, n, x, ct: (100 * n * ct * g(x),))
    slope = lg.grad(lambda x: lg.sum(rule(lg.sin, x, 3)))(lg.asarray(X))
    np.testing.assert_allclose(slope, 300 * np.sin(X), rtol=1e-12)


def test_methods(device: str) -> None:
    class Model:
        scale = 3.0

        @lg.custom_vjp
        def apply(self, x: Any) -> Any:
            return x * self.scale

        apply.defvjp(lambda self, x: (x * self.scale, None), lambda _, ct: (None, 7 * ct))

    model = Model()
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(model.apply(x)))(lg.asarray(X)), [7, 7, 7])


def test_a_slope_by_one_argument_only(device: str) -> None:
    f = lg.custom_vjp(lambda x, y: x * y)
    f.defvjp(lambda x, y: (x * y, (x, y)), lambda saved, ct: (5 * ct * saved[1], 9 * ct * saved[0]))
    x, y = lg.asarray(X), lg.asarray(2 * X)
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(f(x, y)))(x), 10 * X)
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(f(x, x)))(x), 14 * X)


def test_a_gradient_that_is_clipped(device: str) -> None:
    """Nothing is saved, and the value is looked at beside the slope: forward mode goes over it nonetheless."""
    loss = lambda x: lg.sum(clipped(x) ** 2)  # noqa: E731
    np.testing.assert_allclose(lg.grad(loss)(lg.asarray(X)), np.clip(2 * X, -1, 1))
    np.testing.assert_allclose(lg.hvp(loss, lg.asarray(X), lg.ones(3)), [2, 0, 0])
    looped = lambda x: lg.sum(lg.fori_loop(0, 3, lambda _, v: clipped(v), x) ** 2)  # noqa: E731
    np.testing.assert_allclose(lg.hvp(looped, lg.asarray(X), lg.ones(3)), [2, 0, 0])
    picked = lambda x: lg.sum(lg.cond(x[0] > 0, clipped, lambda v: v, x) ** 2)  # noqa: E731
    np.testing.assert_allclose(lg.hvp(picked, lg.asarray(X), lg.ones(3)), [2, 0, 0])
    again = lambda x: lg.sum(lg.checkpoint(lambda v: clipped(v))(x) ** 2)  # noqa: E731
    np.testing.assert_allclose(lg.hvp(again, lg.asarray(X), lg.ones(3)), [2, 0, 0])


def test_a_slope_through_a_step(device: str) -> None:
    """The function's own derivative is zero; the rule's isn't."""
    step = lg.custom_vjp(lambda x: lg.round(x))
    step.defvjp(lambda x: (lg.round(x), None), lambda _, ct: (ct,))
    slope = lg.grad(lambda x: lg.sum(lg.fori_loop(0, 2, lambda _, v: step(2 * v), x)))(lg.asarray(X))
    np.testing.assert_allclose(slope, [4, 4, 4])
    tangent = lg.custom_jvp(lambda x: lg.round(x))
    tangent.defjvps(lambda t, ans, x: t)
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(tangent(2 * x)))(lg.asarray(X)), [2, 2, 2])
    np.testing.assert_allclose(lg.jvp(lambda x: tangent(2 * x), (lg.asarray(X),), (lg.ones(3),))[1], [2, 2, 2])


def test_discarded_results_where_the_slope_is_infinite(device: str) -> None:
    root = lg.custom_vjp(lg.sqrt)
    root.defvjp(lambda x: (lg.sqrt(x), lg.sqrt(x)), lambda r, ct: (ct / (2 * r),))
    x = lg.asarray([0.0, 4.0])
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(lg.where(x > 0, root(x), 0.0)))(x), [0, 0.25])

    def stops_at_zero(x: Any) -> Any:
        return lg.sum(lg.fori_loop(0, lg.asarray([0, 1]), lambda _, v: root(v), x))

    np.testing.assert_allclose(lg.grad(stops_at_zero)(x), [1, 0.25])


def test_one_cotangent_for_the_whole_batch(device: str) -> None:
    f = lg.custom_vjp(lambda x, a: x * a)
    f.defvjp(lambda x, a: (x * a, (x, a)), lambda saved, ct: (10 * ct * saved[1], 100 * ct * saved[0]))
    rows = lg.asarray(np.stack([X, 2 * X]))

    def loss(rows: Any, a: Any) -> Any:
        return lg.sum(lg.vmap(lambda r: f(r, a))(rows))

    by_rows, by_a = lg.grad(loss, argnums=(0, 1))(rows, lg.asarray(X))
    np.testing.assert_allclose(by_rows, np.broadcast_to(10 * X, (2, 3)))
    np.testing.assert_allclose(by_a, 300 * X)
    each = lg.vmap(lg.grad(lambda r, a: lg.sum(f(r, a)), argnums=1), in_axes=(0, None))(rows, lg.asarray(X))
    np.testing.assert_allclose(each, [100 * X, 200 * X])


def test_results_that_a_batch_shares_have_cotangents_of_their_own(device: str) -> None:
    """What doesn't depend on the batch beside what does; one rule isn't linear in its cotangent."""
    f = lg.custom_vjp(lambda x, a: (lg.sin(a), x * a))
    f.defvjp(lambda x, a: (f(x, a), (x, a)), lambda r, ct: (ct[1] * r[1], ct[0] ** 2 * lg.cos(r[1]) + ct[1] * r[0]))
    rows, weights = np.stack([X, 2 * X, X + 1]), np.arange(9.0).reshape(3, 3)

    def loss(a: Any) -> Any:
        shared, own = lg.vmap(f, in_axes=(0, None))(lg.asarray(rows), a)
        return lg.sum(shared * weights) + lg.sum(own)

    expected = (weights**2).sum(axis=0) * np.cos(X) + rows.sum(axis=0)
    np.testing.assert_allclose(lg.grad(loss)(lg.asarray(X)), expected)


def by_its_own_derivative(g: Any) -> Any:
    f = lg.custom_vjp(lambda x: g(x))
    f.defvjp(lambda x: (g(x), x), lambda x, ct: (lg.vjp(g, x)[1](ct)[0],))
    return f


def test_rules_that_differentiate_loops_of_functions_with_rules(device: str) -> None:
    """A derivation in a rule comes to those that are taken of the rule."""

    def three(g: Any) -> Any:
        return lambda x: lg.fori_loop(0, 3, lambda _, c: g(c), x)

    plain = three(lambda x: lg.sin(x) * x)
    ruled = by_its_own_derivative(three(by_its_own_derivative(by_its_own_derivative(lambda x: lg.sin(x) * x))))
    for _ in range(3):
        plain, ruled = lg.grad(plain), lg.grad(ruled)
        np.testing.assert_allclose(ruled(1.3), plain(1.3), rtol=1e-12)


def test_a_rule_that_batches_its_own_function(device: str) -> None:
    f = lg.custom_vjp(lambda x: lg.sin(x))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * lg.sum(lg.vmap(f)(lg.stack([x, 2 * x]))),))
    np.testing.assert_allclose(lg.grad(f)(0.3), np.sin(0.3) + np.sin(0.6))
    np.testing.assert_allclose(lg.grad(lg.grad(f))(0.3), np.sin(0.3) + 3 * np.sin(0.6) + 2 * np.sin(1.2))


def test_jacobians(device: str) -> None:
    f = doubled_cos(lg.sin)
    np.testing.assert_allclose(lg.jacrev(f)(lg.asarray(X)), np.diag(2 * np.cos(X)), rtol=1e-12)
    g = lg.custom_jvp(lg.sin)
    g.defjvps(lambda t, ans, x: 2 * lg.cos(x) * t)
    for jacobian in (lg.jacrev, lg.jacfwd):
        np.testing.assert_allclose(jacobian(g)(lg.asarray(X)), np.diag(2 * np.cos(X)), rtol=1e-12)


def test_higher_orders_of_a_function_that_its_rule_calls(device: str) -> None:
    f = lg.custom_jvp(lg.sin)
    g = lg.custom_jvp(lg.cos)
    f.defjvps(lambda t, ans, x: 2 * g(x) * t)
    g.defjvps(lambda t, ans, x: -3 * f(x) * t)
    x = lg.asarray(0.4)
    slope, expected = f, [2 * np.cos(0.4), -6 * np.sin(0.4), -12 * np.cos(0.4), 36 * np.sin(0.4)]
    for e in expected:
        slope = lg.grad(slope)
        np.testing.assert_allclose(slope(x), e, rtol=1e-12)
    y = f(x)
    for e in expected[:2]:  # nobody had said that so many would be taken
        (y,) = lg.gradients(y, [x])
        np.testing.assert_allclose(y, e, rtol=1e-12)
    with pytest.raises(lg.GradientError, match="no higher derivative than its rules"):
        lg.gradients(y, [x])


def test_rules_of_functions_inside_others(device: str) -> None:
    """What a function calls in itself has no say in its derivative, and what its rule calls has."""
    inner = doubled_cos(lg.sin)
    outer = lg.custom_vjp(lambda x: inner(x) ** 2)
    outer.defvjp(lambda x: (inner(x) ** 2, x), lambda x, ct: (lg.grad(lambda v: lg.sum(inner(v)))(x) * ct,))
    slope = lg.grad(lambda x: lg.sum(outer(x)))(lg.asarray(X))
    np.testing.assert_allclose(slope, 2 * np.cos(X), rtol=1e-12)

    @lg.custom_vjp
    def solved(x: Any) -> Any:
        """A derivative is taken inside the function."""
        return lg.grad(lambda v: lg.sum(inner(v)))(x)

    solved.defvjp(lambda x: (solved(x), None), lambda _, ct: (ct,))
    np.testing.assert_allclose(solved(lg.asarray(X)), 2 * np.cos(X), rtol=1e-12)


def test_what_rules_capture(device: str) -> None:
    scale, shift = lg.asarray([2.0, 3.0, 4.0]), lg.asarray(0.5)
    f = lg.custom_vjp(lambda x: x * scale)
    f.defvjp(lambda x: (x * scale + 0 * shift, x), lambda x, ct: (ct * scale * shift,))
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(f(x)))(lg.asarray(X)), [1, 1.5, 2])
    looped = lg.grad(lambda x: lg.sum(lg.fori_loop(0, lg.asarray([1, 0, 2]), lambda _, v: f(v), x)))(lg.asarray(X))
    np.testing.assert_allclose(looped, [1, 1, 4])


def test_threads_trace_by_themselves() -> None:
    found: list[Any] = []
    f = lg.custom_jvp(lg.sin)
    f.defjvps(lambda t, ans, x: 2 * lg.cos(x) * t)
    threads = [threading.Thread(target=lambda: found.append(float(lg.grad(f)(lg.asarray(0.3))))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_allclose(found, [2 * np.cos(0.3)] * 4)


# ---- tangent rules


def test_a_tangent_rule_serves_both_modes(device: str) -> None:
    @lg.custom_jvp
    def f(x: Any, pair: Any) -> Any:
        return {"a": x * pair[0], "n": lg.asarray(3)}

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, pair), (dx, dpair) = primals, tangents
        assert dpair[1].dtype == lg.int64
        return f(x, pair), {"a": 10 * (dx * pair[0] + x * dpair[0]), "n": None}

    x, pair = lg.asarray(X), (lg.asarray(2 * X), lg.asarray(4))
    by_x, by_first = lg.grad(lambda x, a: lg.sum(f(x, (a, pair[1]))["a"]), argnums=(0, 1))(x, pair[0])
    np.testing.assert_allclose(by_x, 20 * X)
    np.testing.assert_allclose(by_first, 10 * X)
    value, tangent = lg.jvp(lambda x: f(x, pair)["a"], (x,), (lg.ones(3),))
    np.testing.assert_allclose(value, 2 * X * X)
    np.testing.assert_allclose(tangent, 20 * X)


def test_a_tangent_rule_with_a_loop(device: str) -> None:
    @lg.custom_jvp
    def power(x: Any, n: Any) -> Any:
        return lg.fori_loop(0, n, lambda _, v: v * x, lg.ones_like(x))

    @power.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, n), (dx, _) = primals, tangents

        def step(_: Any, state: Any) -> Any:
            v, dv = state
            return v * x, dv * x + 3 * v * dx

        return lg.fori_loop(0, n, step, (lg.ones_like(x), lg.zeros_like(x)))

    x = lg.asarray(X)
    for n in (lg.asarray(4), lg.asarray([4, 4, 4])):
        np.testing.assert_allclose(lg.grad(lambda x, n=n: lg.sum(power(x, n)))(x), 12 * X**3, rtol=1e-12)
        np.testing.assert_allclose(lg.jvp(lambda x, n=n: power(x, n), (x,), (lg.ones(3),))[1], 12 * X**3, rtol=1e-12)


def test_rules_by_argument(device: str) -> None:
    f = lg.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda t, ans, x, y: 5 * t * y, None)
    slopes = lg.grad(lambda x, y: lg.sum(f(x, y)), argnums=(0, 1))(lg.asarray(X), lg.asarray(2 * X))
    np.testing.assert_allclose(slopes[0], 10 * X)
    np.testing.assert_allclose(slopes[1], 0 * X)


def test_tangents_of_nondifferentiable_arguments(device: str) -> None:
    f = lg.custom_jvp(lambda g, x: g(x), nondiff_argnums=(0,))
    f.defjvp(lambda g, primals, tangents: (g(*primals), 7 * tangents[0]))
    np.testing.assert_allclose(lg.grad(lambda x: lg.sum(f(lg.sin, x)))(lg.asarray(X)), [7, 7, 7])


# ---- what is refused


def by_rule(fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
    @lg.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defvjp(fwd, bwd)
    lg.grad(lambda x: lg.sum(f(x, 2 * x)))(lg.asarray(X))


def fine(x: Any, y: Any) -> Any:
    return x * y, (x, y)


@pytest.mark.parametrize(
    ("fwd", "bwd", "error", "text"),
    [
        (lambda x, y: x * y, None, lg.StructureError, "f fwd: expected a pair, got Tensor"),
        (lambda x, y: ((x, y), ()), None, lg.StructureError, r"f fwd: expected the structure \*, got"),
        (lambda x, y: (lg.sum(x), ()), None, lg.ShapeError, r"the result of type float64\[3\], got float64\[\]"),
        (lambda x, y: ((x * y).astype(lg.float32), ()), None, lg.DTypeError, "the result of type float64"),
        (fine, lambda saved, ct: ct, lg.StructureError, "f bwd: expected a tuple of 2 cotangents, got Tensor"),
        (fine, lambda saved, ct: (ct,), lg.StructureError, "expected a tuple of 2 cotangents, got 1 of them"),
        (fine, lambda saved, ct: ((ct, ct), ct), lg.ShapeError, None),
        (fine, lambda saved, ct: (lg.sum(ct), ct), lg.ShapeError, r"cotangent of arguments\[0\] of type float64\[3\]"),
        (fine, lambda saved, ct: (ct.astype(lg.float32), ct), lg.DTypeError, r"cotangent of arguments\[0\]"),
    ],
)
def test_rules_that_return_something_else(fwd: Any, bwd: Any, error: Any, text: str | None) -> None:
    with pytest.raises(error, match=text):
        by_rule(fwd, bwd or (lambda saved, ct: (ct, ct)))


def test_a_rule_must_be_stated() -> None:
    with pytest.raises(lg.GradientError, match=r"expected its rule to be stated.*\.defvjp"):
        lg.custom_vjp(lg.sin)(lg.asarray(X))
    with pytest.raises(lg.GradientError, match=r"expected its rule to be stated.*\.defjvp"):
        lg.custom_jvp(lg.sin)(lg.asarray(X))
    with pytest.raises(TypeError, match="expected a function"):
        lg.custom_vjp(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="defvjp: expected a function"):
        lg.custom_vjp(lg.sin).defvjp(lg.sin, None)  # type: ignore[arg-type]


def test_forward_mode_over_a_vjp_rule() -> None:
    with pytest.raises(lg.GradientError, match="reverse mode: it has a vjp rule only, got forward mode"):
        lg.jvp(doubled_cos(lg.sin), (lg.asarray(X),), (lg.ones(3),))
    with pytest.raises(lg.GradientError, match="forward mode"):
        lg.jacfwd(lambda x: lg.fori_loop(0, 3, lambda _, v: doubled_cos(lg.sin)(v), x))(lg.asarray(X))


@pytest.mark.parametrize("wrap", [lg.custom_vjp, lg.custom_jvp])
def test_what_is_captured_has_no_derivative(wrap: Any) -> None:
    def loss(x: Any) -> Any:
        f = wrap(lambda v: v * x)
        if wrap is lg.custom_vjp:
            f.defvjp(lambda v: (v * x, None), lambda _, ct: (ct,))
        else:
            f.defjvps(lambda t, ans, v: t)
        return lg.sum(f(2 * x))

    with pytest.raises(lg.GradientError, match="only arguments to be differentiated"):
        lg.grad(loss)(lg.asarray(X))


def test_a_tangent_rule_must_be_linear() -> None:
    f = lg.custom_jvp(lg.sin)
    f.defjvps(lambda t, ans, x: t * t)
    with pytest.raises(lg.GradientError, match="linear in the tangents"):
        lg.grad(lambda x: lg.sum(f(x)))(lg.asarray(X))


def test_tangent_rules_that_return_something_else() -> None:
    def slope(rule: Any) -> Any:
        f = lg.custom_jvp(lambda x: (x, 2 * x))
        f.defjvp(rule)
        return lg.grad(lambda x: lg.sum(f(x)[0]))(lg.asarray(X))

    with pytest.raises(lg.StructureError, match="expected a pair"):
        slope(lambda primals, tangents: tangents[0])
    with pytest.raises(lg.StructureError, match="structure"):
        slope(lambda primals, tangents: ((primals[0], primals[0]), tangents[0]))
    with pytest.raises(lg.ShapeError, match="tangent of the result"):
        slope(lambda primals, tangents: ((primals[0], primals[0]), (lg.sum(tangents[0]), None)))


def test_captured_and_replayed(device: str) -> None:
    def loss(x: Any, n: Any) -> Any:
        return lg.sum(lg.fori_loop(0, n, lambda _, v: doubled_cos(lg.sin)(v), x))

    replay = lg.compile(lg.value_and_grad(loss)).capture(lg.asarray(X), lg.asarray(3))
    for n in (3, 1, 4):
        value, slope = replay(lg.asarray(X), lg.asarray(n))
        v, expected = X, np.ones(3)
        for _ in range(n):
            v, expected = np.sin(v), expected * 2 * np.cos(v)
        np.testing.assert_allclose(value, v.sum(), rtol=1e-12)
        np.testing.assert_allclose(slope, expected, rtol=1e-12)
