"""Functions that transforms return can be sent to another process, copied, and be methods."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.transforms.transformed import TransformedFunction

X = np.array([0.5, 1.5, -2.0])


def loss(x: Any, scale: float = 1.0) -> Any:
    """Its text."""
    return lg.sum(x**3) * scale


@lg.grad
def slope_by_its_own_name(x: Any) -> Any:
    return lg.sum(x**2)


@pytest.mark.parametrize("make", [
    lg.grad, lg.value_and_grad, lg.jacrev, lg.jacfwd, lg.hessian, lg.vmap, lg.vectorize, lg.checkpoint,
    lambda f: lg.compile(lg.value_and_grad(f)), lambda f: lg.grad(lg.compile(f)), lambda f: lg.vmap(lg.grad(f)),
    lambda f: lg.grad(lg.checkpoint(f, policy=lg.checkpoint_policies.dots_saveable)),
    lambda f: lg.vectorize(f, signature="(n)->()"), lambda f: lg.vmap(f, out_axes=0, axis_size=3),
    lambda f: lg.jacrev(f, argnums=(0,), has_aux=False),
])  # fmt: skip
def test_pickled_and_copied(make: Callable[[Any], Any], device: str) -> None:
    made = make(loss)
    wanted = [np.asarray(x) for x in lg.tree.leaves(made(lg.asarray(X)))]
    for other in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        got = [np.asarray(x) for x in lg.tree.leaves(other(lg.asarray(X)))]
        assert len(got) == len(wanted) > 0
        for ours, theirs in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_options_are_kept(device: str) -> None:
    made = pickle.loads(pickle.dumps(lg.grad(loss, argnums=1)))
    assert float(made(lg.asarray(X), 2.0)) == float(np.sum(X**3))


def test_decorated_functions_are_pickled_by_name(device: str) -> None:
    assert pickle.loads(pickle.dumps(slope_by_its_own_name)) is slope_by_its_own_name
    assert slope_by_its_own_name(lg.asarray(X)).tolist() == (2 * X).tolist()


def test_they_look_like_the_function() -> None:
    made = lg.grad(loss)
    assert (made.__name__, made.__doc__, made.__wrapped__) == ("loss", "Its text.", loss)
    assert inspect.signature(made) == inspect.signature(loss)
    assert repr(made) == "<grad of loss>"
    assert vars(lg.compile(made)).keys() & set(TransformedFunction.__slots__) <= {"_fun"}  # Compiled has one of its own


def test_methods(device: str) -> None:
    class Model:
        weight = 3.0

        @lg.grad
        def slope(self, x: Any) -> Any:  # argument 0 is the model, which nothing is differentiated by
            return x

        @lg.vmap
        def doubled(self: Any) -> Any:
            return 2 * self

        energy = lg.jacrev(lambda self, x: self.weight * x**2, argnums=1)

    assert float(Model().energy(2.0)) == 12.0
    assert Model.doubled(lg.asarray(X)).tolist() == (2 * X).tolist()
    with pytest.raises(lg.GradientError, match="argument 0"):
        Model().slope(2.0)


def test_what_cannot_be_pickled_says_so() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(lg.grad(lambda x: x))
