"""An array program for several systems: written once where they agree on the names, by hand in NumPy as the oracle.

The NumPy version takes part as it is, and computes the oracle's outputs in float64: it shares no code with the others,
derivatives included. All of them get the same arrays; results stay on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender, Unavailable
from benchmarks.workload import Builder, Workload

Function = Callable[..., Any]
Written = Callable[[Any], Function]  # of a system's module
MOST_OUTPUTS: Final = 16


@dataclass(frozen=True)
class Program:
    """`common(xp)` is the function for loopgrad, `jax.numpy` and `torch`, but where `loopgrad(lg)`, `jax(jax)` or
    `torch(torch)` give one. With `wrt` it is a loss, and its outputs are the value and the derivatives by those
    arguments; `by_hand` returns all of them. `needs` is a function of loopgrad's without which there is no program;
    `compiled` is whether torch.compile is asked. `moved` are the bytes that a call has to read and write."""

    title: str
    sizes: Mapping[str, int]
    inputs: Callable[[int], Arrays]
    by_hand: Function
    common: Written | None = None
    loopgrad: Written | None = None
    jax: Written | None = None
    torch: Written | None = None
    wrt: tuple[int, ...] = ()
    needs: str = ""
    compiled: bool = False
    moved: Callable[[Arrays], int] | None = None
    flops: Callable[[int], int] | None = None
    tolerance: float = 1e-4

    def workload(self, family: str, name: str) -> Workload:
        builders: dict[str, Builder] = {"loopgrad": self._own, "numpy": self._numpy}
        if self.jax or self.common:
            builders["jax"] = self._jax
        if self.torch or self.common:
            builders["torch"] = self._torch
        return Workload(
            f"{family}.{name}", self.title, self.sizes, self.inputs, self._oracle,
            {f"output {k}": self.tolerance for k in range(MOST_OUTPUTS)}, builders,
            {name: build for name, build in builders.items() if name != "numpy"}, family=family, flops=self.flops,
        )  # fmt: skip

    def _oracle(self, arrays: Arrays) -> Arrays:
        wide = (a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays.values())
        return _named(self.by_hand(*wide), np.asarray)

    def _moved(self, arrays: Arrays) -> int:
        if self.moved:
            return self.moved(arrays)
        sizes = [a.nbytes for a in arrays.values()]
        return sum(sizes) + (sum(sizes[k] for k in self.wrt) if self.wrt else sizes[0])

    def _own(self, arrays: Arrays) -> Contender:
        lg = peers.loopgrad()
        if self.needs and not hasattr(lg, self.needs):
            raise Unavailable(f"loopgrad has no {self.needs}")
        function = _given(self.loopgrad, self.common)(lg)
        compiled = lg.compile(lg.value_and_grad(function, argnums=self.wrt) if self.wrt else function)
        given = [lg.asarray(a) for a in arrays.values()]
        return peers.own(lambda: compiled(*given), _flat, lambda result: _named(result, np.asarray),
                         moved=self._moved(arrays))  # fmt: skip

    def _jax(self, arrays: Arrays) -> Contender:
        module, jnp = peers.jax()
        function = self.jax(module) if self.jax else _given(None, self.common)(jnp)
        compiled = module.jit(module.value_and_grad(function, argnums=self.wrt) if self.wrt else function)
        given = [jnp.asarray(a) for a in arrays.values()]
        fetch = lambda result: _named(result, np.asarray)
        return peers.jax_contender(module, lambda: compiled(*given), fetch, self._moved(arrays))

    def _torch(self, arrays: Arrays) -> Contender:
        module = peers.torch()
        function = _given(self.torch, self.common)(module)
        if self.compiled:
            module._dynamo.reset()
            function = module.compile(function, dynamic=False)
        given = [peers.torch_tensor(module, a.astype(np.int64) if a.dtype == np.int32 else a) for a in arrays.values()]
        wrt = self.wrt

        def gradients() -> Any:
            leaves = [given[k].detach().requires_grad_() for k in wrt]
            arguments = list(given)
            for k, leaf in zip(wrt, leaves, strict=True):
                arguments[k] = leaf
            value = function(*arguments)
            return value.detach(), module.autograd.grad(value, leaves)

        fetch = lambda result: _named(result, peers.numpy_of)
        return peers.torch_contender(
            module, gradients if wrt else (lambda: function(*given)), fetch, self._moved(arrays),
            lambda: {"torch": "compiled" if self.compiled else "eager"},
        )  # fmt: skip

    def _numpy(self, arrays: Arrays) -> Contender:
        given = list(arrays.values())
        fetch = lambda result: _named(result, np.asarray)
        return Contender(lambda: self.by_hand(*given), fetch, moved=self._moved(arrays))


def _given(own: Written | None, common: Written | None) -> Written:
    chosen = own or common
    assert chosen is not None
    return chosen


def _flat(result: Any) -> list[Any]:
    """The arrays in a result, whose tuples may be nested."""
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in _flat(part)]
    return [result]


def _named(result: Any, elements: Callable[[Any], np.ndarray]) -> Arrays:
    return {f"output {k}": elements(x) for k, x in enumerate(_flat(result))}


def normal(*shapes: Sequence[int], seed: int = 0, dtype: Any = np.float32) -> list[np.ndarray]:
    """Arrays of normally distributed numbers."""
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape, dtype=dtype) for shape in shapes]


def uniform(*shapes: Sequence[int], low: float = 0.0, high: float = 1.0, seed: int = 0) -> list[np.ndarray]:
    """Arrays of float32 between two numbers."""
    generator = np.random.default_rng(seed)
    return [
        generator.random(shape, dtype=np.float32) * np.float32(high - low) + np.float32(low) for shape in shapes
    ]  # fmt: skip


def integers(shape: Sequence[int], high: int, seed: int = 1) -> np.ndarray:
    """int32 from 0 to below `high`."""
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.int32)


def named(**arrays: np.ndarray) -> Arrays:
    """The arguments of a program, in their order."""
    return arrays


def sizes(full: int, quick: int, gpu: int) -> dict[str, int]:
    return {"full": full, "quick": quick, "gpu": gpu}
