"""What NumPy, JAX and loopgrad spell differently, one class each; all else has the same name in the three of them.

NumPy and JAX run programs one operation at a time with Python's `if` and `for`: they know nothing of loops as nodes.
They note what decisions depended on (`note`), so that differences are taken only where no decision changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import loopgrad as lg

Array = Any


class Eager:
    """NumPy, or a namespace like it, with Python's control flow."""

    xp: Any = np

    def __init__(self) -> None:
        self.decisions: list[Any] = []

    def note(self, what: Array) -> None:
        self.decisions.append(np.asarray(what).tolist())

    def at(self, x: Array, where: Any, how: str, values: Array) -> Array:
        found = np.array(x)
        if how == "set":
            found[where] = values
        else:
            ufunc = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}[how]
            ufunc.at(found, where, values)
        return found

    def order(self, x: Array) -> Array:
        found = np.argsort(np.asarray(x), kind="stable")
        self.note(found)
        return found

    def choose(self, mask: Array, yes: Array, no: Array) -> Array:
        self.note(mask)
        return self.xp.where(mask, yes, no)

    def running(self, name: str, x: Array) -> Array:
        """cummax, cummin and logcumsumexp, from left to right."""
        step = {"cummax": self.xp.maximum, "cummin": self.xp.minimum, "logcumsumexp": self.xp.logaddexp}[name]
        found = [x[0]]
        for part in x[1:]:
            if name != "logcumsumexp":
                self.note(part > found[-1])
            found.append(step(found[-1], part))
        return self.xp.stack(found)

    def lines(self, a: Array, b: Array) -> Array:
        """x = a x + b from 0, all x."""
        found, x = [], 0.0 * b[0]
        for slope, shift in zip(a, b, strict=True):
            x = slope * x + shift
            found.append(x)
        return self.xp.stack(found)

    def expm(self, a: Array) -> Array:
        found = term = self.xp.eye(len(a))
        for k in range(1, 25):
            term = term @ a / k
            found = found + term
        return found

    def conv(self, x: Array, weights: Array, stride: int, reach: int) -> Array:
        """A correlation of one channel, padded by zeros on both sides."""
        size = len(weights)
        wide = self.xp.concatenate([self.xp.zeros_like(x[:1])] * reach + [x] + [self.xp.zeros_like(x[:1])] * reach)
        starts = range(0, len(x) + 2 * reach - size + 1, stride)
        return self.xp.stack([self.xp.sum(wide[i : i + size] * weights) for i in starts])

    def lower_solve(self, a: Array, b: Array) -> Array:
        return self.xp.linalg.solve(self.xp.tril(a), b)

    def largest(self, x: Array, count: int) -> tuple[Array, Array]:
        order = np.argsort(-np.asarray(x), kind="stable")[:count]
        self.note(order)
        return x[order], order

    def bins(self, places: Array, weights: Array, size: int) -> Array:
        return np.bincount(places, weights, minlength=size)


class Jax(Eager):
    """jax.numpy, one operation at a time, so that its derivatives see numbers wherever a program decides."""

    def __init__(self) -> None:
        import jax  # late: an option of the command line, no part of the suite

        super().__init__()
        jax.config.update("jax_enable_x64", True)
        self.jax, self.xp = jax, jax.numpy

    def note(self, what: Array) -> None:
        pass

    def at(self, x: Array, where: Any, how: str, values: Array) -> Array:
        return getattr(x.at[where], how)(values)

    def order(self, x: Array) -> Array:
        return self.xp.argsort(x, stable=True)

    def largest(self, x: Array, count: int) -> tuple[Array, Array]:
        return self.jax.lax.top_k(x, count)

    def bins(self, places: Array, weights: Array, size: int) -> Array:
        return self.xp.bincount(places, weights, length=size)


class Loopgrad:
    """loopgrad's own functions for each of them."""

    xp = lg

    def note(self, what: Array) -> None:
        pass

    def at(self, x: Array, where: Any, how: str, values: Array) -> Array:
        return getattr(x.at[where], how)(values)

    def order(self, x: Array) -> Array:
        return lg.argsort(x)

    def choose(self, mask: Array, yes: Array, no: Array) -> Array:
        return lg.where(mask, yes, no)

    def running(self, name: str, x: Array) -> Array:
        return getattr(lg, name)(x)

    def lines(self, a: Array, b: Array) -> Array:
        join = lambda first, second: (first[0] * second[0], first[1] * second[0] + second[1])
        return lg.associative_scan(join, (a, b))[1]

    def expm(self, a: Array) -> Array:
        return lg.linalg.expm(a)

    def conv(self, x: Array, weights: Array, stride: int, reach: int) -> Array:
        found = lg.conv(x[None, None], weights[None, None], stride=stride, padding=reach)
        return found[0, 0]

    def lower_solve(self, a: Array, b: Array) -> Array:
        return lg.linalg.solve_triangular(a, b, lower=True)

    def largest(self, x: Array, count: int) -> tuple[Array, Array]:
        found = lg.top_k(x, count)
        return found[0], found[1]

    def bins(self, places: Array, weights: Array, size: int) -> Array:
        return lg.bincount(places, weights, length=size)
