"""Programs that are one text for NumPy, loopgrad and JAX: NumPy runs it in float64, which makes it the oracle.

Where a text is a loss that is differentiated, nobody writes its derivatives down: they are compared along a few fixed
random directions of each argument, and NumPy has these by central differences of the same text. The contenders compute
the value and whole derivatives; what these are along the directions is computed where results are fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.contender import Arrays, Contender
from benchmarks.workload import Builder, Workload
from benchmarks.workloads.arrays.program import Program

Script = Callable[..., Any]  # of a system's functions and its arrays
DIRECTIONS: Final = 2
STEP: Final = 1e-7  # of central differences: few elements meet a kink on so short a way


class Functions:
    """What a text finds by name: in the first of some modules that has it."""

    def __init__(self, *modules: Any) -> None:
        self._modules = modules

    def __getattr__(self, name: str) -> Any:
        for module in self._modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"expected a function of NumPy's or a loop, got {name!r}")


class Loops:
    """The loops of loopgrad and JAX, in Python, and what else NumPy lacks: a name, or the length of counts."""

    @staticmethod
    def fori_loop(start: int, stop: int, body: Any, carry: Any) -> Any:
        for k in range(start, stop):
            carry = body(k, carry)
        return carry

    @staticmethod
    def while_loop(going: Any, body: Any, carry: Any) -> Any:
        while going(carry):
            carry = body(carry)
        return carry

    @staticmethod
    def scan(body: Any, carry: Any, rows: Any) -> tuple[Any, Any]:
        """`rows` is an array or a tuple of them, what the body gives for each is None or an array."""
        made = []
        for row in zip(*rows, strict=True) if isinstance(rows, tuple) else rows:
            carry, out = body(carry, row)
            made.append(out)
        return carry, None if made[0] is None else np.stack(made)

    @staticmethod
    def bincount(x: Any, weights: Any = None, *, length: int) -> Any:
        return np.bincount(x, weights, minlength=length)[:length]

    @staticmethod
    def logsumexp(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        most = np.max(x, axis, keepdims=True)
        total = most + np.log(np.sum(np.exp(x - most), axis, keepdims=True))
        return total if keepdims else np.squeeze(total, axis)


NUMPY: Final = Functions(Loops, np)


class _Places:
    """Elements of an array of NumPy's, by the names of JAX's `x.at[index]`."""

    def __init__(self, x: np.ndarray, index: Any) -> None:
        self._x, self._index = x, index

    def __getattr__(self, name: str) -> Callable[[Any], np.ndarray]:
        def updated(values: Any) -> np.ndarray:
            out = self._x.copy()
            if name == "set":
                out[self._index] = values
            else:
                {"add": np.add, "max": np.maximum, "min": np.minimum}[name].at(out, self._index, values)
            return out

        return updated


def at(x: Any, index: Any) -> Any:
    """`at(x, index).add(values)` is x with values added there, of any system's array; so are `set`, `max` and `min`."""
    return _Places(x, index) if isinstance(x, np.ndarray) else x.at[index]


def script(title: str, sizes: dict[str, int], inputs: Callable[[int], Arrays], run: Script, **more: Any) -> Program:
    """A program of functions that NumPy, loopgrad and JAX have by the same names; of loops, too."""
    own, theirs = lambda lg: partial(run, lg), lambda jax: partial(run, Functions(jax.numpy, jax.lax, jax.nn))
    return Program(title, sizes, inputs, partial(run, NUMPY), loopgrad=own, jax=theirs, **more)


@dataclass(frozen=True)
class Loss:
    """A script whose value and derivatives by the arguments `program.wrt` are asked for."""

    program: Program

    def workload(self, family: str, name: str) -> Workload:
        whole, wrt = self.program.workload(family, name), self.program.wrt
        along = lambda builders: {
            name: partial(_built, build, wrt) for name, build in builders.items() if name != "numpy"
        }
        return replace(
            whole, oracle=partial(_differences, self.program.by_hand, wrt),
            contenders=along(whole.contenders), gpu_contenders=along(whole.gpu_contenders),
        )  # fmt: skip


def loss(
    title: str, sizes: dict[str, int], inputs: Callable[[int], Arrays], run: Script, wrt: tuple[int, ...], **more: Any
) -> Loss:
    """A script that is differentiated; `tolerance` is that of the derivatives along directions, too."""
    return Loss(script(title, sizes, inputs, run, wrt=wrt, **{"tolerance": 1e-3, **more}))


def _directions(k: int, x: np.ndarray) -> list[np.ndarray]:
    """Of argument k."""
    generator = np.random.default_rng(100 + k)
    return [generator.standard_normal(x.shape) for _ in range(DIRECTIONS)]


def _compared(value: Any, slopes: list[Any]) -> Arrays:
    return {"output 0": np.asarray(value), **{f"output {k}": np.asarray(s) for k, s in enumerate(slopes, 1)}}


def _differences(run: Callable[..., Any], wrt: tuple[int, ...], arrays: Arrays) -> Arrays:
    """The loss and its derivatives along directions, in float64."""
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays.values()]

    def slope(k: int, direction: np.ndarray) -> float:
        low, high = (run(*wide[:k], wide[k] + by * direction, *wide[k + 1 :]) for by in (-STEP, STEP))
        return float(high - low) / (2 * STEP)

    return _compared(run(*wide), [[slope(k, d) for d in _directions(k, wide[k])] for k in wrt])


def _built(build: Builder, wrt: tuple[int, ...], arrays: Arrays) -> Contender:
    """A contender whose derivatives are fetched along directions."""
    made, given = build(arrays), list(arrays.values())

    def fetch(result: Any) -> Arrays:
        value, *slopes = made.fetch(result).values()
        assert len(slopes) == len(wrt)
        return _compared(
            value,
            [
                [float(np.sum(slope * d, dtype=np.float64)) for d in _directions(k, given[k])]
                for k, slope in zip(wrt, slopes, strict=True)
            ],
        )

    return replace(made, fetch=fetch)
