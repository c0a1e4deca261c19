"""How functions with own rules are declared and called, and what may be where: facts of JAX's tests of custom_jvp,
custom_vjp and checkpoint, in programs of our own. tests/programs/NOT_APPLICABLE.md has the others.
"""
# ruff: noqa: ARG005  # rules are called with arguments that short ones don't read

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

X = np.array([0.3, -0.7, 1.1])


def slope_of(f: Any, x: Any = X) -> Any:
    return lg.grad(lambda v: lg.sum(f(v)))(lg.asarray(x))


def by_jvp(f: Any, rule: Any, **how: Any) -> Any:
    ruled = lg.custom_jvp(f, **how)
    ruled.defjvp(rule)
    return ruled


def by_vjp(f: Any, fwd: Any, bwd: Any, **how: Any) -> Any:
    ruled = lg.custom_vjp(f, **how)
    ruled.defvjp(fwd, bwd)
    return ruled


# ---- what can be wrapped, and how it is called


def test_copies_have_the_rule() -> None:
    f = by_jvp(lg.sin, lambda primals, tangents: (lg.sin(*primals), 5 * tangents[0]))
    g = by_vjp(lg.sin, lambda x: (lg.sin(x), None), lambda _, ct: (5 * ct,))
    for ruled in (f, g):
        np.testing.assert_allclose(slope_of(copy.deepcopy(ruled)), [5, 5, 5])
        np.testing.assert_allclose(slope_of(copy.copy(ruled)), [5, 5, 5])


def test_partial_functions(device: str) -> None:
    def scaled(s: float, x: Any) -> Any:
        return lg.sin(x) * s

    def shifted(x: Any, *, by: float) -> Any:
        return lg.sin(x) + by

    first = by_jvp(partial(scaled, 2.0), lambda primals, tangents: (2 * lg.sin(*primals), 5 * tangents[0]))
    second = by_vjp(partial(shifted, by=2.0), lambda x: (lg.sin(x) + 2, None), lambda _, ct: (7 * ct,))
    np.testing.assert_allclose(first(lg.asarray(X)), 2 * np.sin(X), rtol=1e-12)
    np.testing.assert_allclose(second(lg.asarray(X)), np.sin(X) + 2, rtol=1e-12)
    np.testing.assert_allclose(slope_of(first), [5, 5, 5])
    np.testing.assert_allclose(slope_of(second), [7, 7, 7])


def test_keyword_arguments() -> None:
    @lg.custom_vjp
    def f(x: Any, y: Any = 2.0, *, z: float = 3.0) -> Any:
        return x * y + z

    f.defvjp(lambda x, y: (x * y + 3, y), lambda y, ct: (10 * y * ct, None))
    np.testing.assert_allclose(slope_of(lambda x: f(y=4.0, x=x)), [40, 40, 40])
    np.testing.assert_allclose(slope_of(lambda x: f(x)), [20, 20, 20])
    with pytest.raises(lg.GradientError, match="expected arguments with a position, got z"):
        f(lg.asarray(X), z=1.0)
    with pytest.raises(TypeError, match=r"f: expected arguments for \(x.*missing a required argument: 'x'"):
        f()
    with pytest.raises(TypeError, match=r"got 3 of them, w=\.\.\."):
        f(1.0, 2.0, 3.0, w=4.0)


def test_any_number_of_arguments(device: str) -> None:
    total = lambda xs: sum(x * x for x in xs)  # noqa: E731
    f = by_jvp(lambda *xs: total(xs), lambda primals, tangents: (total(primals), sum(7 * t for t in tangents)))
    found = lg.grad(lambda x, y: lg.sum(f(x, y)), argnums=(0, 1))(lg.asarray(X), lg.asarray(X))
    np.testing.assert_allclose(found, np.full((2, 3), 7.0))


def test_methods_without_a_derivative_by_self() -> None:
    class Model:
        scale = 3.0

        @partial(lg.custom_jvp, nondiff_argnums=(0,))
        def first(self, x: Any) -> Any:
            return x * self.scale

        @first.defjvp
        def _(self, primals: Any, tangents: Any) -> Any:
            return self.first(*primals), 2 * self.scale * tangents[0]

        @partial(lg.custom_vjp, nondiff_argnames="self")
        def second(self, x: Any) -> Any:
            return x * self.scale

        second.defvjp(lambda self, x: (self.second(x), None), lambda self, _, ct: (7 * self.scale * ct,))

    model = Model()
    np.testing.assert_allclose(slope_of(model.first), [6, 6, 6])
    np.testing.assert_allclose(slope_of(model.second), [21, 21, 21])


def test_places_and_names_of_what_has_no_derivative() -> None:
    call = lambda x, g: g(x)  # noqa: E731
    for how in ({"nondiff_argnums": (-1,)}, {"nondiff_argnums": 1}, {"nondiff_argnames": ["g"]}):
        f = by_vjp(call, lambda x, g: (g(x), None), lambda g, _, ct: (6 * ct,), **how)
        np.testing.assert_allclose(slope_of(lambda x, f=f: f(x, lg.sin)), [6, 6, 6])
        np.testing.assert_allclose(slope_of(lambda x, f=f: f(g=lg.sin, x=x)), [6, 6, 6])
    unhashable = by_vjp(lambda x, s: x * s["by"], lambda x, s: (x, None), lambda s, _, ct: (s["by"] * ct,),
                        nondiff_argnums=(1,))  # fmt: skip
    np.testing.assert_allclose(slope_of(lambda x: unhashable(x, {"by": 4})), [4, 4, 4])
    with pytest.raises(lg.GradientError, match="expected nondiff_argnums of its 2 arguments, got 5"):
        by_vjp(call, lambda x, g: (g(x), None), lambda *a: a, nondiff_argnums=(5,))(lg.asarray(X), lg.sin)
    with pytest.raises(TypeError, match="expected nondiff_argnums that are integers"):
        lg.custom_vjp(call, nondiff_argnums=("g",))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected nondiff_argnames among x, g, got 'h'"):
        lg.custom_jvp(call, nondiff_argnames=("h",))


def test_a_tensor_that_has_no_derivative(device: str) -> None:
    """It may be a batch; it may not be differentiated."""
    f = by_vjp(lambda s, x: s * x, lambda s, x: (s * x, x), lambda s, x, ct: (10 * s * ct,), nondiff_argnums=(0,))
    x = lg.asarray(X)
    np.testing.assert_allclose(slope_of(lambda v: f(x, v)), 10 * X)
    np.testing.assert_allclose(lg.vmap(lambda s, v: lg.grad(lambda u: f(s, u))(v))(x, x), 10 * X)
    with pytest.raises(lg.GradientError, match="only arguments to be differentiated"):
        slope_of(lambda s: f(s, x))


def test_options_that_ask_for_what_isnt_done() -> None:
    f, g = lg.custom_vjp(lg.sin), lg.custom_jvp(lg.sin)
    f.defvjp(lambda x: (lg.sin(x), None), lambda _, ct: (3 * ct,), symbolic_zeros=False, optimize_remat=False)
    np.testing.assert_allclose(slope_of(f), [3, 3, 3])
    with pytest.raises(lg.GradientError, match="expected optimize_remat=False, got True"):
        f.defvjp(lambda x: (x, None), lambda _, ct: (ct,), optimize_remat=True)
    with pytest.raises(lg.GradientError, match="expected symbolic_zeros=False, got True"):
        g.defjvp(lambda primals, tangents: (primals[0], tangents[0]), symbolic_zeros=True)


def test_rules_that_take_other_arguments() -> None:
    x = lg.asarray(X)
    with pytest.raises(TypeError, match=r"fwd: expected a rule that takes 1 arguments: those of the function"):
        by_vjp(lg.sin, lambda: None, lambda r, ct: (ct,))(x)
    with pytest.raises(TypeError, match=r"bwd: expected a rule that takes 2 arguments: .* residuals, cot"):
        by_vjp(lg.sin, lambda x: (lg.sin(x), None), lambda ct: (ct,))(x)
    with pytest.raises(TypeError, match=r"jvp: expected a rule that takes 2 arguments: .*primals, tangents"):
        by_jvp(lg.sin, lambda x, t, ans: (x, t))(x)


def test_a_function_that_calls_itself_without_end() -> None:
    f = by_vjp(lambda x: f(x), lambda x: (x, None), lambda _, ct: (ct,))
    with pytest.raises(lg.NestingError):
        f(lg.asarray(X))


def test_recursion_that_ends(device: str) -> None:
    power = by_jvp(
        lambda n, x: x if n == 1 else x * power(n - 1, x), lambda primals, tangents: (power(*primals), 9 * tangents[1])
    )
    np.testing.assert_allclose(power(3, lg.asarray(X)), X**3, rtol=1e-12)
    np.testing.assert_allclose(slope_of(partial(power, 3)), [9, 9, 9])


# ---- what rules take and give


def test_python_values_steer_rules() -> None:
    f = by_vjp(
        lambda x, n: lg.sin(x) if n > 1 else lg.cos(x),
        lambda x, n: (f(x, n), (x, n)),
        lambda saved, ct: ((2 * lg.cos(saved[0]) if saved[1] > 1 else 3 * lg.sin(saved[0])) * ct, None),
    )
    np.testing.assert_allclose(slope_of(lambda x: f(x, 2)), 2 * np.cos(X), rtol=1e-12)
    np.testing.assert_allclose(slope_of(lambda x: f(x, 1)), 3 * np.sin(X), rtol=1e-12)


def test_cotangents_as_lists_numbers_arrays_and_none(device: str) -> None:
    for answer in (lambda ct: [7 * ct], lambda ct: (np.full(3, 7.0),), lambda ct: (np.full(3, 7.0) * ct,)):
        f = by_vjp(lg.sin, lambda x: (lg.sin(x), None), lambda _, ct, answer=answer: answer(ct))
        np.testing.assert_allclose(slope_of(f), [7, 7, 7])
    for number in (7.0, np.float64(7.0), 7):
        f = by_vjp(lg.sin, lambda x: (lg.sin(x), None), lambda _, ct, number=number: (number,))
        np.testing.assert_allclose(slope_of(f, 0.3), 7)
        with pytest.raises(lg.ShapeError, match="give it that shape"):
            slope_of(f)
    g = by_vjp(lambda d, y: (d["a"][0] * d["b"], y), lambda d, y: ((y, y), None),
               lambda _, ct: ({"a": None, "b": 5 * ct[0]}, None))  # fmt: skip
    x = lg.asarray(X)
    found = lg.grad(lambda d, y: lg.sum(g(d, y)[0]) + lg.sum(g(d, y)[1]), argnums=(0, 1))({"a": [x, x], "b": x}, x)
    for leaf, expected in zip((*found[0]["a"], found[0]["b"], found[1]), (0, 0, 5, 0), strict=True):
        np.testing.assert_allclose(leaf, np.full(3, expected))


def test_arguments_and_results_that_are_none(device: str) -> None:
    f = by_vjp(lambda x, y: (x, y), lambda x, y: ((x, y), None), lambda _, ct: (5 * ct[0], None))
    np.testing.assert_allclose(slope_of(lambda x: f(x, None)[0]), [5, 5, 5])
    g = by_jvp(lambda d: d[0], lambda primals, tangents: (primals[0][0], 5 * tangents[0][0]))
    np.testing.assert_allclose(slope_of(lambda x: g((x, None))), [5, 5, 5])


def test_integers_have_no_derivative(device: str) -> None:
    """Whatever a rule gives for them isn't looked at."""
    places = lg.asarray([1, 1])
    for wrong in (None, 0, lg.asarray(1.5), lg.zeros((7,))):
        f = by_vjp(
            lambda x, i: (x[i], i),
            lambda x, i: ((x[i], i), (x, i)),
            lambda saved, ct, wrong=wrong: (lg.zeros_like(saved[0]).at[saved[1]].add(7 * ct[0]), wrong),
        )
        np.testing.assert_allclose(slope_of(lambda x, f=f: f(x, places)[0]), [0, 14, 0])
    g = by_jvp(lambda x: (2 * x, lg.argmax(x)), lambda primals, tangents: (g(*primals), (3 * tangents[0], None)))
    np.testing.assert_allclose(slope_of(lambda x: g(x)[0] * g(x)[1]), [6, 6, 6])
    only = by_vjp(lambda i: i * 2, lambda i: (i * 2, None), lambda _, ct: (None,))
    assert (int(only(lg.asarray(3))), only(3)) == (6, 6)
    carried = lambda x: lg.fori_loop(0, 3, lambda k, v: f(x, v % 3)[1] + 1, places)  # noqa: E731
    np.testing.assert_allclose(slope_of(lambda x: f(x, carried(x))[0]), [0, 14, 0])


def test_residuals_of_any_structure(device: str) -> None:
    class Box:
        """Not a tree."""

        factor = 2.0

    def fwd(x: Any) -> Any:
        nothing = {"none": None, "list": [], "tuple": (), "dict": {}}
        return lg.sin(x), {"box": Box(), "text": "t", "empty": nothing, "x": [(x,), np.ones(3)], "n": 3, "f": lg.cos}

    def bwd(r: Any, ct: Any) -> Any:
        assert (r["text"], r["empty"]["none"], r["empty"]["list"]) == ("t", None, [])
        return (r["f"](r["x"][0][0]) * r["n"] * r["box"].factor * ct * r["x"][1],)

    f = by_vjp(lg.sin, fwd, bwd)
    np.testing.assert_allclose(slope_of(f), 6 * np.cos(X), rtol=1e-12)
    twice = slope_of(lambda x: lg.fori_loop(0, 2, lambda _, v: f(v), x))
    np.testing.assert_allclose(twice, 36 * np.cos(X) * np.cos(np.sin(X)), rtol=1e-12)
    rows = lg.vmap(lg.grad(lambda x: lg.sum(f(x))))(lg.asarray(np.stack([X, 2 * X])))
    np.testing.assert_allclose(rows, 6 * np.cos(np.stack([X, 2 * X])), rtol=1e-12)


def test_rules_write_to_copies() -> None:
    def fwd(x: Any) -> Any:
        result = lg.sin(x)
        result[0] = 5.0
        return result, x

    def bwd(x: Any, ct: Any) -> Any:
        ct[0], x[1] = 9.0, 100.0
        return (ct * x,)

    x = lg.asarray(X)
    value, slope = lg.value_and_grad(lambda v: lg.sum(by_vjp(lg.sin, fwd, bwd)(v)))(x)
    np.testing.assert_allclose(value, 5 + np.sin(X[1:]).sum(), rtol=1e-12)
    np.testing.assert_allclose(slope, [9 * X[0], 100, X[2]], rtol=1e-12)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (2, 5)])
def test_dtypes_and_shapes(device: str, dtype: str, shape: tuple[int, ...]) -> None:
    f = by_vjp(lambda x: x * 2, lambda x: (x * 2, x), lambda x, ct: (3 * ct + 0 * x,))
    x = lg.ones(shape, dtype=getattr(lg, dtype))
    slope = lg.grad(lambda v: lg.sum(lg.fori_loop(0, 2, lambda _, u: f(u), v)))(x)
    assert (slope.dtype, slope.shape) == (getattr(lg, dtype), shape)
    np.testing.assert_array_equal(slope.astype(lg.float64), np.full(shape, 9.0))


# ---- under transforms


def test_results_and_tangents_that_dont_depend_on_the_batch(device: str) -> None:
    constant = by_jvp(lambda x: lg.ones(()), lambda primals, tangents: (lg.ones(()), lg.zeros(())))
    flat = by_jvp(lambda x: x * 1.0, lambda primals, tangents: (primals[0], lg.zeros_like(primals[0])))
    x = lg.asarray(X)
    for f, value in ((constant, np.ones(3)), (flat, X)):
        np.testing.assert_allclose(lg.vmap(f)(x), value)
        np.testing.assert_allclose(lg.vmap(lg.grad(f))(x), np.zeros(3))
        np.testing.assert_allclose(lg.jvp(lg.vmap(f), (x,), (x,))[1], np.zeros(3))
    shared = by_vjp(lambda x: 2 * x, lambda x: (2 * x, None), lambda _, ct: (lg.ones(()),))
    np.testing.assert_allclose(lg.vmap(lg.grad(shared))(x), np.ones(3))
    np.testing.assert_allclose(lg.grad(lambda v: lg.sum(lg.vmap(shared)(v)))(x), np.ones(3))


def test_transforms_inside_rules(device: str) -> None:
    each = lg.vmap(lambda u, t: 2 * u * t)
    square = by_jvp(
        lambda v: lg.sum(v), lambda primals, tangents: (lg.sum(*primals), lg.sum(each(*primals, *tangents)))
    )
    x = lg.asarray(X)
    np.testing.assert_allclose(lg.grad(square)(x), 2 * X)
    np.testing.assert_allclose(lg.vmap(lg.grad(square))(lg.stack([x, 2 * x])), np.stack([2 * X, 4 * X]))
    waves = lambda v: lg.sum(lg.sin(v))  # noqa: E731
    same = by_jvp(waves, lambda primals, tangents: lg.jvp(waves, primals, tangents))
    np.testing.assert_allclose(lg.grad(same)(x), np.cos(X), rtol=1e-12)
    np.testing.assert_allclose(lg.hessian(same)(x), np.diag(-np.sin(X)), rtol=1e-12)


def test_rules_of_rules() -> None:
    """The second derivative is what the rule of the rule says."""
    f = by_vjp(lambda x: x**2, lambda x: (f(x), x), lambda x, ct: (g(x, ct),))
    g = by_vjp(lambda x, ct: 2 * x * ct, lambda x, ct: (g(x, ct), ct), lambda ct, c: (5 * c * ct, 7 * c))
    np.testing.assert_allclose([lg.grad(f)(3.0), lg.grad(lg.grad(f))(3.0)], [6, 5])


def test_a_pullback_is_called_twice(device: str) -> None:
    f = by_vjp(lg.sin, lambda x: (lg.sin(x), lg.cos(x)), lambda c, ct: (2 * c * ct,))
    value, pull = lg.vjp(lg.vmap(f), lg.asarray(X))
    for scale in (1.0, 3.0):
        np.testing.assert_allclose(pull(lg.full(3, scale))[0], 2 * scale * np.cos(X), rtol=1e-12)
    np.testing.assert_allclose(value, np.sin(X), rtol=1e-12)


def test_a_while_loop_without_and_with_its_own_rule(device: str) -> None:
    double = lambda x: lg.while_loop(lambda v: v < 10, lambda v: v * 2, x)  # noqa: E731
    whole = by_jvp(double, lambda primals, tangents: (double(*primals), 100 * tangents[0]))
    step = by_jvp(lambda v: v * 2, lambda primals, tangents: (primals[0] * 2, 3 * tangents[0]))
    steps = lambda x: lg.while_loop(lambda v: v < 10, step, x)  # noqa: E731
    x = lg.asarray([1.5, 3.0])
    for f, slopes in ((whole, [100, 100]), (steps, [27, 9])):
        np.testing.assert_allclose(lg.vmap(f)(x), [12, 12])
        np.testing.assert_allclose(lg.vmap(lg.grad(f))(x), slopes)
        np.testing.assert_allclose(lg.jvp(lg.vmap(f), (x,), (lg.ones(2),))[1], slopes)


@pytest.mark.in_turns
@pytest.mark.parametrize("wraps", [1, 3])
def test_checkpoints_of_ruled_functions(device: str, wraps: int) -> None:
    """Rules are asked inside; where a forward rule names what it saves, a policy finds the name."""
    f = by_vjp(lg.sin, lambda x: (lg.sin(x), lg.name(lg.cos(x), "slope")), lambda c, ct: (2 * c * ct,))
    g = by_jvp(lg.sin, lambda primals, tangents: (lg.sin(*primals), 2 * lg.cos(*primals) * tangents[0]))
    only = lg.checkpoint_policies.save_only_these_names("slope")
    for ruled in (f, g):
        for policy in (None, only, lg.checkpoint_policies.everything_saveable):
            again: Any = lambda x, ruled=ruled: ruled(ruled(x))  # noqa: E731
            for _ in range(wraps):
                again = lg.checkpoint(again, policy=policy)
            np.testing.assert_allclose(slope_of(again), 4 * np.cos(np.sin(X)) * np.cos(X), rtol=1e-12)
            looped = lambda x, again=again: lg.fori_loop(0, 2, lambda _, v: again(v), x)  # noqa: E731
            np.testing.assert_allclose(slope_of(looped), product_of_slopes(4), rtol=1e-12)
    value, slope = lg.value_and_grad(lambda x: lg.sum(lg.checkpoint(f, policy=only)(x)))(lg.asarray(X))
    assert lg.to_text(value, slope).count("= cos(") == 1


def product_of_slopes(times: int) -> Any:
    v, slope = X, np.ones(3)
    for _ in range(times):
        slope, v = slope * 2 * np.cos(v), np.sin(v)
    return slope
