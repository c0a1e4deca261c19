"""Derivatives of complex functions: the complex derivative of holomorphic ones against differences of NumPy's values,
forward, reverse and of second order; gradients of real losses against differences along both parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

import loopgrad as lg

# ordinary points on both sides of branch cuts, on the axes, inside and outside of the unit circle
POINTS: Final = np.array([
    0.4 + 0.3j, -0.6 + 0.2j, 0.5 + 0j, -0.3 + 0j, 1.7 - 0.4j, -2.1 - 1.3j, 0.2j, -1.6j, 3.0 + 2.0j, 0.9 + 1e-3j,
    25.0 - 3.0j,
])  # fmt: skip
HOLOMORPHIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    **{
        name: lambda xp, z, name=name: getattr(xp, name)(z)
        for name in (
            "sqrt", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh",
            "tanh", "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "square", "reciprocal",
        )
    },
    "z**3": lambda _xp, z: z**3,
    "z**-2": lambda _xp, z: z**-2,
    "z**(1.5-1j)": lambda _xp, z: z ** (1.5 - 1j),
    "2j**z": lambda _xp, z: 2j**z,
    "z**z": lambda _xp, z: z**z,
    "quotient": lambda _xp, z: (z * z - 1) / (z + 2j),
    "cumprod": lambda xp, z: xp.cumprod(xp.stack([z, z + 1, z * 2j]), axis=0)[2],
    "prod": lambda xp, z: xp.prod(xp.stack([z, z + 1, z * 2j]), axis=0),
    "matmul": lambda xp, z: (z[:, None] * xp.asarray([[1j, 2.0], [0.5, 1 - 1j]])[:1]) @ xp.asarray([1.0 + 1j, -2j]) * z,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    """Derivatives are the same graphs on every device; the device that compiles nothing is the quickest for many."""
    with lg.default_device("interpreter"):
        yield


def _difference(f: Callable[[Any], Any], z: Any, step: complex) -> Any:
    """Of fourth order, along one direction."""
    at = lambda k: f(z + k * step)
    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_the_complex_derivative(name: str) -> None:
    f = HOLOMORPHIC[name]
    points = POINTS[POINTS.real < 3] if name == "z**z" else POINTS
    points = points[~_on_a_cut(name, points)]
    step = 2e-4 * np.minimum(1, abs(points))
    first = _difference(lambda z: f(np, z), points, step)
    z = lg.asarray(points)
    reverse = lg.grad(lambda z: lg.sum(f(lg, z)), holomorphic=True)
    np.testing.assert_allclose(reverse(z), first, 1e-7, 1e-9)
    t = lg.asarray(np.linspace(1, 2, len(points)) * (1 - 0.5j))
    np.testing.assert_allclose(lg.jvp(lambda z: f(lg, z), (z,), (t,))[1], first * t.numpy(), 1e-7, 1e-9)
    second = _difference(lambda z: np.asarray(reverse(lg.asarray(z))), points, step)
    np.testing.assert_allclose(lg.grad(lambda z: lg.sum(reverse(z)), holomorphic=True)(z), second, 1e-6, 1e-8)
    np.testing.assert_allclose(lg.jvp(reverse, (z,), (lg.ones_like(z),))[1], second, 1e-6, 1e-8)


def _on_a_cut(name: str, z: Any) -> Any:
    """Where a difference would step across a branch cut, or from a point where the function has no derivative."""
    x, y = z.real, z.imag
    if name in ("arctanh", "arcsin", "arccos"):
        return (y == 0) & (abs(x) >= 1)
    if name in ("arctan", "arcsinh"):
        return (x == 0) & (abs(y) >= 1)
    return (y == 0) & (x < (1 if name == "arccosh" else 0))


LOSSES: Final[list[Callable[[Any], Any]]] = [
    lambda z: lg.sum(lg.abs(z) ** 3),
    lambda z: lg.sum(lg.angle(z) * z.real),
    lambda z: lg.sum((lg.conj(z) * z).real + lg.sign(z).imag),
    lambda z: lg.vector_norm(z) + lg.sum(lg.vector_norm(lg.stack([z, 2j * z]), ord=3, axis=0)),
    lambda z: lg.var(z) + lg.std(z) + lg.abs(lg.mean(z)),
    lambda z: lg.vdot(z, z[::-1] * 1j).real + lg.abs(lg.vecdot(z, z * z)),
    lambda z: lg.sum(lg.abs(lg.sqrt(z) * lg.log(lg.conj(z))) * lg.isfinite(z)),
    lambda z: lg.sum(lg.where(z.imag > 0, lg.abs(z), (z * z).imag)),
    lambda z: lg.sum(lg.abs(lg.outer(z, lg.conj(z)) @ z)),
    lambda z: lg.sum(lg.fori_loop(0, 3, lambda k, v: lg.sin(v) * z + lg.exp(-v * k), z).real),
]


@pytest.mark.in_turns
@pytest.mark.parametrize("number", range(len(LOSSES)))
def test_gradients_of_real_losses(number: int) -> None:
    """dL/d(re z) + i dL/d(im z), by differences along both parts of each element; and the Hessian times a vector."""
    loss, start = LOSSES[number], np.array([0.4 + 0.3j, -0.6 + 0.2j, 1.2 - 0.7j])
    slope = lg.grad(loss)

    def along(f: Callable[[Any], Any], direction: Any) -> Any:
        at = lambda k: np.asarray(f(lg.asarray(start + k * 1e-3 * direction)))
        return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / 12e-3

    units = np.eye(len(start))
    expected = [along(loss, u) + 1j * along(loss, 1j * u) for u in units]
    np.testing.assert_allclose(slope(lg.asarray(start)), expected, 1e-8, 1e-9)
    t = np.array([1 - 1j, 0.5j, -2.0])
    np.testing.assert_allclose(lg.hvp(loss, lg.asarray(start), lg.asarray(t)), along(slope, t), 1e-7, 1e-8)
    tangent = lg.jvp(loss, (lg.asarray(start),), (lg.asarray(t),))[1]
    np.testing.assert_allclose(tangent, np.sum(np.real(np.conj(expected) * t)), 1e-8, 1e-9)


def test_where_derivatives_are_a_convention() -> None:
    zero = lg.asarray([0j, 1 + 1j])
    for loss in (lambda z: lg.sum(lg.abs(z)), lambda z: lg.vector_norm(z), lambda z: lg.sum(lg.sign(z).real)):
        assert lg.grad(loss)(zero)[0] == 0
    assert lg.grad(lambda z: lg.sum(lg.real(z**2)))(zero)[0] == 0
    unchosen = lg.grad(lambda z: lg.sum(lg.where(z == 0, 1.0, lg.abs(lg.log(lg.where(z == 0, 1, z))))))
    assert np.isfinite(np.asarray(unchosen(zero))).all()


def test_jacobians() -> None:
    """Of holomorphic functions the matrix of complex derivatives; otherwise complex ones are refused by name."""
    z = lg.asarray([0.3 + 1j, -1.0 + 0.5j])
    f = lambda z: lg.stack([z[0] * z[1], lg.exp(z[1]), z[0] ** 2 + 1j])
    a, b = z.numpy()
    expected = [[b, a], [0, np.exp(b)], [2 * a, 0]]
    np.testing.assert_allclose(lg.jacrev(f, holomorphic=True)(z), expected)
    np.testing.assert_allclose(lg.jacfwd(f, holomorphic=True)(z), expected)
    curved = lg.hessian(lambda z: z[0] ** 2 * z[1], holomorphic=True)(z)
    np.testing.assert_allclose(curved, [[2 * b, 2 * a], [2 * a, 0]])
    np.testing.assert_allclose(lg.jacrev(lambda z: lg.abs(z))(z), np.diag(z.numpy() / abs(z.numpy())))
    np.testing.assert_allclose(lg.jacfwd(lambda x: x * 1j)(lg.asarray([1.0, 2.0])), np.eye(2) * 1j)
    for transform in (lg.jacrev, lg.jacfwd):
        with pytest.raises(lg.GradientError, match="holomorphic=True"):
            transform(f)(z)
        with pytest.raises(lg.GradientError, match="complex dtype"):
            transform(lambda x: x * 2, holomorphic=True)(lg.ones(2))
    with pytest.raises(lg.GradientError, match="complex dtype"):
        lg.grad(lambda z: lg.sum(z.real), holomorphic=True)(z)
