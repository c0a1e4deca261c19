"""Reading elements while a derivative is taken: refused where the derivative would be lost, else as always."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

X = np.array([1.5, 2.0, 3.0])

LOSING: dict[str, Callable[[Any], Any]] = {
    "asarray": np.asarray,
    "array": lambda v: np.array([v[0] * 2, v[1]]),
    "numpy": lambda v: v.numpy(),
    "float": lambda v: float(v[0]),
    "int": lambda v: int(v[0]),
    "complex": lambda v: complex(v[0]),
    "item": lambda v: v[0].item(),
    "tolist": lambda v: v.tolist(),
    "iteration": lambda v: [float(element) for element in v],
    "math": lambda v: math.sin(v[0]),
    "percent": lambda v: "%f" % v[0],  # noqa: UP031  # asks for a float
    "roots": np.roots,
    "sort_complex": np.sort_complex,
    "dlpack": lambda v: v.__dlpack__(),
    "pickle": pickle.dumps,
    "to_device": lambda v: v.to_device(v.device),
}

KEEPING: dict[str, Callable[[Any], Any]] = {
    "geomspace": lambda v: lg.geomspace(v[0], v[1], 3),
    "own dlpack": lg.from_dlpack,
    "asarray on its device": lambda v: lg.asarray(v, device=v.device),
    "comparison": lambda v: bool(v[0] > 1),
    "truth": lambda v: bool(v[0]),
    "position": lambda v: int(lg.argmax(v)),
    "slice": lambda v: v[: lg.argmax(v)],
    "mask": lambda v: v[v > 1.7],
    "nonzero": lg.nonzero,
    "unique": np.unique,
    "integers": lambda v: v.astype(lg.int64).tolist(),
    "floor": lambda v: float(lg.floor(v[0])),
    "stop_gradient": lambda v: np.roots(lg.stop_gradient(v)),
    "print": lambda v: (str(v), repr(v), f"{v[0]:.2f}", f"{v}", v._repr_html_(), np.array2string(v)),
    "order": lambda v: (max(v), min(v), sorted(v), 2.0 in v),
    "eval": lg.eval,
    "dtype": lambda v: np.result_type(v, np.float32),
    "copy": lambda v: (copy.copy(v), copy.deepcopy(v)),
    "from ints": lambda v: [0 for _ in range((v > 0).astype(lg.int32).sum())],
    "a mask as numbers": lambda v: (v > 2).astype(lg.float64).tolist(),
}


@pytest.mark.parametrize("name", LOSING)
def test_a_read_that_would_lose_the_derivative(name: str, device: str) -> None:
    def loss(v: Any) -> Any:
        w = v * 2
        LOSING[name](w)
        return (w * w).sum()

    with pytest.raises(lg.TracedValueError, match=r"stop_gradient(.|\n)*test_ongoing_derivations.py"):
        lg.grad(loss)(lg.asarray(X))
    check(lg.grad(lambda v: (v * v).sum())(lg.asarray(X)), 2 * X)  # no variable is left behind
    LOSING[name](lg.asarray(X) * 2)


@pytest.mark.parametrize("name", KEEPING)
def test_a_read_without_derivative(name: str, device: str) -> None:
    def loss(v: Any) -> Any:
        w = v * 2
        KEEPING[name](w)
        return (w * w).sum()

    check(lg.grad(loss)(lg.asarray(X)), 8 * X)


def reads(v: Any) -> Any:
    return (v * float(v[0])).sum()


DERIVATIONS: dict[str, Callable[[Any], Any]] = {
    "grad": lg.grad(reads),
    "value_and_grad": lg.value_and_grad(reads),
    "vjp": lambda x: lg.vjp(reads, x),
    "jvp": lambda x: lg.jvp(reads, (x,), (x,)),
    "linearize": lambda x: lg.linearize(reads, x),
    "jacrev": lg.jacrev(reads),
    "jacfwd": lg.jacfwd(reads),
    "hessian": lg.hessian(reads),
    "hvp": lambda x: lg.hvp(reads, x, x),
    "grad of compiled": lg.grad(lg.compile(reads)),
    "compiled grad": lg.compile(lg.grad(reads)),
    "outer variable": lg.grad(lambda v: lg.grad(lambda w: (w * float(v[0])).sum())(v).sum()),
    "inner gradient": lg.grad(lambda v: v[0] * float(lg.grad(lambda w: w * w)(v[0]))),
    "in a loop": lg.grad(lambda v: lg.fori_loop(0, 2, lambda _, c: c * float(c), v[0])),
    "captured by vmap": lg.grad(lambda v: lg.vmap(lambda e: e * v.tolist()[0])(lg.ones(2)).sum()),
    "replay": lambda x: lg.grad(lg.compile(lambda v: v * v).capture(x))(x),
}


@pytest.mark.parametrize("name", DERIVATIONS)
def test_every_derivation(name: str, device: str) -> None:
    with pytest.raises(lg.TracedValueError):
        DERIVATIONS[name](lg.asarray(X))


def test_what_does_not_depend_on_the_variables(device: str) -> None:
    x, other = lg.asarray(X), lg.asarray(X) * 3
    check(lg.grad(lambda v: (v * float(other[1])).sum())(x), np.full(3, 6.0))
    check(lg.grad(lambda v: v[0] * float(lg.grad(lambda w: w * w)(3.0)))(x), [6.0, 0.0, 0.0])
    check(lg.grad(lambda v, w: (v * float(w[0])).sum())(x, other), np.full(3, 4.5))

    def outer(v: Any) -> Any:  # depends on v, which only the outer derivation follows, and not any more
        value, slope = lg.value_and_grad(lambda w: (w * w).sum())(v)
        return value + slope.sum()

    value, pull = lg.vjp(outer, x)
    assert float(value) == pytest.approx((X * X + 2 * X).sum())
    check(pull(1.0)[0], 2 * X + 2)


def test_integers_of_a_loop_carry_no_derivative(device: str) -> None:
    def loss(v: Any) -> Any:
        total, count, steps = lg.while_loop(
            lambda c: c[0] < 20.0, lambda c: (c[0] * v[0], c[1] + 1, c[2] + 1.0), (v[1], 0, 0.0)
        )
        assert int(count) == float(steps)
        return total

    x = lg.asarray(X)
    n = math.ceil(math.log(10.0) / math.log(1.5))
    check(lg.grad(loss)(x), [n * 2.0 * 1.5 ** (n - 1), 1.5**n, 0.0], rtol=1e-12)


def test_other_threads_see_the_variables(device: str) -> None:
    def loss(v: Any) -> Any:
        w = v * v
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lg.eval, w).result()  # must not cut w off from v
            pool.submit(repr, w).result()
            with pytest.raises(lg.TracedValueError):
                pool.submit(np.asarray, w).result()
            assert pool.submit(np.asarray, lg.asarray(X) + 1).result()[0] == 2.5
        return w.sum()

    check(lg.grad(loss)(lg.asarray(X)), 2 * X)


def test_another_thread_may_branch_on_what_it_builds(device: str) -> None:
    def doubled(v: Any) -> Any:
        w = v * v
        return w * 2 if w[0] > 1 else w  # looking at w[0] computes w, which must stay a function of v

    def loss(v: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(doubled, v).result().sum()

    check(lg.grad(loss)(lg.asarray(X)), 4 * X)


def test_reads_of_a_long_chain(device: str) -> None:
    def loss(v: Any) -> Any:
        c = lg.asarray(X)
        for _ in range(60):
            c = c * 0.5 + 1.0
            assert float(c[0]) < 3.0
        return (v * c).sum()

    check(lg.grad(loss)(lg.asarray(X)), np.full(3, 2.0), rtol=1e-9)
