"""Arithmetic of complex numbers has NumPy's bits, at special values too. Of products NumPy rounds one term less where
the machine has fused operations, so theirs are those of the formula, each operation rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.graph.complex_numbers.special_values import bits_differ, grid, ordinary, paired


def product(x: Any, y: Any) -> Any:
    return paired(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: product(x, y) if isinstance(x, np.ndarray) else x * y,
    "/": lambda x, y: x / y,
    "==": lambda x, y: (x == y) + 0j,
    "!=": lambda x, y: (x != y) + 0j,
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lambda z: -z,
    "conj": lambda z: z.conj(),
    "real": lambda z: z.real + 0j,
    "imag": lambda z: z.imag + 0j,
}


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_arithmetic_has_the_bits_of_numpy(dtype: str) -> None:
    special = grid(dtype)
    x, y = [a.ravel() for a in np.meshgrid(special, special)]
    some = ordinary(dtype)
    x, y = np.concatenate([x, some]), np.concatenate([y, some[::-1]])
    given = lg.asarray(x), lg.asarray(y)
    with np.errstate(all="ignore"):
        for name, operation in OPERATIONS.items():
            got, expected = operation(*given).numpy(), operation(x, y)
            wrong = np.flatnonzero(bits_differ(got, expected))
            assert not wrong.size, (name, x[wrong[0]], y[wrong[0]], got[wrong[0]], expected[wrong[0]])
        for name, function in UNARY.items():
            got, expected = function(given[0]).numpy(), function(x)
            assert not bits_differ(got, expected).any(), name
        finite = np.isfinite(x * y) & np.isfinite(product(x, y))
        apart = abs((x * y - product(x, y))[finite])
        assert (apart <= np.finfo(dtype).eps * abs(x[finite]) * abs(y[finite]) + np.finfo(dtype).tiny).all()
