"""What functions are compared with: NumPy, SciPy's functions where it has none, and a few lines for what both lack."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import fft, linalg
from special_cases import REFERENCE as special_reference


class Transforms:
    """NumPy's functions, and SciPy's where it has none."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np.fft, name, None) or getattr(fft, name)


class LinearAlgebra:
    """NumPy's functions, and SciPy's where it has none."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np.linalg, name, None) or getattr(linalg, name)


class Reference:
    """NumPy, and what it lacks."""

    linalg, fft, special = LinearAlgebra(), Transforms(), special_reference

    erf, erfc, lgamma, digamma = special.erf, special.erfc, special.gammaln, special.digamma
    sigmoid = special.expit
    cummax, cummin = np.maximum.accumulate, np.minimum.accumulate
    logsumexp = staticmethod(special.logsumexp)
    sliding_window_view = staticmethod(np.lib.stride_tricks.sliding_window_view)
    vector_norm, matrix_norm = staticmethod(np.linalg.vector_norm), staticmethod(np.linalg.matrix_norm)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def rsqrt(self, x: Any) -> Any:
        return 1 / np.sqrt(x)

    def conv(self, x: Any, kernel: Any, *, padding: int) -> Any:
        rows = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
        return np.einsum("nclk,ock->nol", np.lib.stride_tricks.sliding_window_view(rows, kernel.shape[2], 2), kernel)

    def dot_general(self, x: Any, y: Any, axes: Any) -> Any:
        assert axes == (([2], [1]), ([0], [0]))
        return x @ y

    def conv_general_dilated(self, x: Any, kernel: Any, strides: Any, padding: str) -> Any:
        return self.conv(x, kernel, padding=0)[:, :, :: strides[0]]

    def reduce_window(self, x: Any, start: float, combine: Any, size: Any, steps: Any = (1,)) -> Any:
        rows = np.lib.stride_tricks.sliding_window_view(x, size)[:: steps[0]]
        return combine.reduce(rows, axis=-1)

    def dynamic_slice(self, x: Any, starts: Any, sizes: Any) -> Any:
        return x[tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))]

    def dynamic_slice_in_dim(self, x: Any, start: int, size: int, axis: int = 0) -> Any:
        return np.take(x, range(start, start + size), axis)

    def dynamic_index_in_dim(self, x: Any, at: int, axis: int = 0, keepdims: bool = True) -> Any:
        return np.take(x, [at] if keepdims else at, axis)

    def dynamic_update_slice(self, x: Any, values: Any, starts: Any) -> Any:
        new = x.copy()
        new[tuple(slice(s, s + n) for s, n in zip(starts, values.shape, strict=True))] = values
        return new

    def dynamic_update_slice_in_dim(self, x: Any, values: Any, start: int, axis: int) -> Any:
        return self.dynamic_update_slice(x, values, [start if d == axis else 0 for d in range(x.ndim)])

    def dynamic_update_index_in_dim(self, x: Any, values: Any, at: int, axis: int) -> Any:
        return self.dynamic_update_slice_in_dim(x, np.expand_dims(values, axis), at, axis)

    def map(self, f: Any, xs: Any) -> Any:
        return np.stack([f(x) for x in xs])

    def roots(self, p: Any, strip_zeros: bool = True) -> Any:
        return np.roots(p)

    def top_k(self, x: Any, k: int, axis: int = -1) -> Any:
        order = np.flip(np.argsort(x, axis=axis), axis=axis).take(range(k), axis=axis)
        return np.take_along_axis(x, order, axis=axis), order

    def checkpoint(self, f: Any) -> Any:
        return f

    def name(self, x: Any, name: str) -> Any:
        return x

    def vmap(self, f: Any) -> Any:
        return lambda *arrays: np.stack([f(*row) for row in zip(*arrays, strict=True)])

    def fori_loop(self, start: int, stop: int, body: Any, carry: Any) -> Any:
        for k in range(start, stop):
            carry = body(k, carry)
        return carry

    def while_loop(self, condition: Any, body: Any, carry: Any) -> Any:
        while condition(carry):
            carry = body(carry)
        return carry

    def scan(self, body: Any, carry: Any, xs: Any) -> Any:
        rows = []
        for x in xs:
            carry, row = body(carry, x)
            rows.append(row)
        return carry, np.stack(rows)

    def associative_scan(self, f: Any, xs: Any) -> Any:
        rows = [xs[:1]]
        for k in range(1, len(xs)):
            rows.append(f(rows[-1], xs[k : k + 1]))
        return np.concatenate(rows)

    def logcumsumexp(self, x: Any) -> Any:
        return np.logaddexp.accumulate(x)

    def cond(self, which: Any, first: Any, second: Any, *operands: Any) -> Any:
        return (first if which else second)(*operands)

    def switch(self, which: int, branches: Any, *operands: Any) -> Any:
        return branches[which](*operands)
