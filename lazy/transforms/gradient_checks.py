"""`lg.testing.check_grads`: derivatives against differences of function values.

Along a random direction the central difference of the function is compared with its forward derivative, and, after a
product with a random cotangent, with the reverse one. Derivatives of higher order are those of these derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.graph.errors import GradientError, explained
from loopgrad.lazy.tensor.core import as_tensor
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, unflatten
from loopgrad.lazy.transforms.derivatives import jvp, vjp

PUBLIC_TESTING: Final = "check_grads"
Leaves = list[np.ndarray[Any, Any]]


class _Digits(NamedTuple):
    """Of a dtype: its distance from 1.0, and what a derivative may differ by where nobody says, absolutely or times
    what it is."""

    eps: float
    tolerance: float


_DIGITS: Final = {
    "float64": _Digits(2.0**-52, 1e-5), "complex128": _Digits(2.0**-52, 1e-5),
    "float32": _Digits(2.0**-23, 1e-2), "complex64": _Digits(2.0**-23, 1e-2),
    "float16": _Digits(2.0**-10, 1e-1), "bfloat16": _Digits(2.0**-7, 3e-1),
}  # fmt: skip


class _Settings(NamedTuple):
    atol: float | None
    rtol: float | None
    eps: float | None
    dtypes: list[str]
    random: np.random.Generator

    def tolerance(self, given: float | None, x: np.ndarray[Any, Any]) -> float:
        """What was given, or what the dtype with the fewest digits allows."""
        return max([_DIGITS[d].tolerance for d in (*self.dtypes, x.dtype.name)]) if given is None else given


def check_grads(
    f: Callable[..., Any], args: Sequence[Any], order: int, modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None, rtol: float | None = None, eps: float | None = None,
) -> None:  # fmt: skip
    """Compare the derivatives of `f(*args)`, up to an order, with differences of its values: AssertionError, with both,
    where they are apart.

    `args` is a tuple of trees of float tensors. `modes`: "fwd" checks `lg.jvp`, "rev" `lg.vjp`, and higher orders
    all sequences of them. Tolerances are, for what nobody gives, 1e-5 in float64 and 1e-2 in float32; `eps`, the step
    of the central difference, is the cube root of the dtype's distance from 1.0. Directions are random, the same
    in each call. Complex arrays are differentiated as pairs of reals.

    Raises GradientError for an order below 1, other modes, and arguments that aren't float.

    >>> lg.testing.check_grads(lambda x: lg.sin(x) * x, (lg.asarray([0.5, 2.0]),), order=2)
    """
    check_function("check_grads", f)
    wanted = [modes] if isinstance(modes, str) else list(modes)
    if order < 1 or not wanted or set(wanted) - {"fwd", "rev"}:
        got = f"order {order}, modes {wanted}"
        fix = 'write modes=("fwd", "rev")'
        raise GradientError(explained("check_grads", 'an order of 1 or more, modes "fwd" and "rev"', got, fix))
    if not isinstance(args, tuple | list):
        raise GradientError(explained("check_grads", "a tuple of arguments", type(args).__name__, "write (x,)"))
    dtypes = [x.dtype.name for x in _arrays(args)]
    if set(dtypes) - set(_DIGITS):
        got, fix = ", ".join(sorted(set(dtypes) - set(_DIGITS))), "close over what isn't differentiated"
        raise GradientError(explained("check_grads", "arguments of float dtypes", got, fix))
    settings = _Settings(atol, rtol, eps, dtypes, np.random.default_rng(0))
    _check(f, tuple(args), order, wanted, settings, "f")


def _check(f: Any, args: tuple[Any, ...], order: int, modes: list[str], settings: _Settings, name: str) -> None:
    leaves, structure = flatten(args)
    primals = [np.asarray(as_tensor(x)) for x in leaves]
    direction = [_random(x, settings.random) for x in primals]
    tangents = unflatten(structure, [as_tensor(t) for t in direction])
    slope = _difference(f, structure, primals, direction, settings.eps)
    if "fwd" in modes:
        value, along = jvp(f, args, tangents)
        _compare(f"{name}, forward", _arrays(along), slope, settings)
        if order > 1:
            _check(lambda *x: jvp(f, x, tangents)[1], args, order - 1, modes, settings, f"derivative of {name}")
    if "rev" in modes:
        value, pull = vjp(f, *args)
        seeds, result = [_random(x, settings.random) for x in _arrays(value)], flatten(value)[1]
        cotangent = unflatten(result, [as_tensor(s) for s in seeds])
        pulled = _product(_arrays(pull(cotangent)), direction)
        _compare(f"{name}, reverse", [pulled], [_product(seeds, slope)], settings)
        if order > 1:
            _check(lambda *x: vjp(f, *x)[1](cotangent), args, order - 1, modes, settings, f"gradient of {name}")


def _random(like: np.ndarray[Any, Any], random: np.random.Generator) -> np.ndarray[Any, Any]:
    numbers = random.standard_normal(like.shape)
    if like.dtype.kind == "c":
        numbers = numbers + 1j * random.standard_normal(like.shape)
    return np.asarray(numbers, like.dtype)


def _arrays(tree: Tree) -> Leaves:
    return [np.asarray(as_tensor(x)) for x in flatten(tree)[0]]


def _product(a: Leaves, b: Leaves) -> np.ndarray[Any, Any]:
    """The sum of products of all real parts, and of all imaginary ones."""
    wide = [(_wide(x), _wide(y)) for x, y in zip(a, b, strict=True)]
    return np.asarray(sum(float(np.sum(x.real * y.real) + np.sum(x.imag * y.imag)) for x, y in wide))


def _wide(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _difference(f: Any, structure: Any, at: Leaves, along: Leaves, eps: float | None) -> Leaves:
    """The central difference of `f`, in the dtypes of its arguments."""
    step = max([_DIGITS[x.dtype.name].eps for x in at], default=1.0) ** (1 / 3) if eps is None else eps

    def moved(change: float) -> Leaves:
        points = [np.asarray(_wide(x) + change * _wide(t), x.dtype) for x, t in zip(at, along, strict=True)]
        return [_wide(y) for y in _arrays(f(*unflatten(structure, [as_tensor(p) for p in points])))]

    return [(after - before) / (2 * step) for after, before in zip(moved(step), moved(-step), strict=True)]


def _compare(what: str, got: Leaves, expected: Leaves, settings: _Settings) -> None:
    for x, y in zip(got, expected, strict=True):
        rtol, atol = settings.tolerance(settings.rtol, x), settings.tolerance(settings.atol, x)
        np.testing.assert_allclose(_wide(x), _wide(y), rtol, atol, err_msg=f"{what}, against differences")
