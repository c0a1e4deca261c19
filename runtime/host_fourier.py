"""Fourier transforms by pocketfft, on the host: NumPy's, which writes where it is told to; of float32 SciPy's where
that is installed, whose code for several rows at once is vector code.

Rows are done by some threads at once. What a thread gets is a multiple of BLOCK rows, so no bit depends on how many
there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np

from loopgrad.graph.primitives.fourier import as_complex, norm_of

Array = np.ndarray[Any, Any]
Attrs = Mapping[str, Any]
Rows = Callable[[Array, Array], None]

SCIPY: Final = "pocketfft of SciPy, on the host"
NUMPY: Final = "pocketfft of NumPy, on the host"
BLOCK: Final = 16  # rows
WORTH_A_THREAD: Final = 1 << 19  # numbers: some milliseconds


@cache
def scipys() -> Any:
    """scipy.fft, or None."""
    try:
        import scipy.fft as found  # type: ignore[import-untyped]  # late: optional, and takes time
    except ImportError:
        return None
    return found


def provider(dtype: np.dtype[Any]) -> tuple[str, str]:
    """Who does transforms of numbers whose parts have this dtype, and why nobody better."""
    if dtype != np.float32:
        return NUMPY, ""
    return (SCIPY, "") if scipys() is not None else (NUMPY, "SciPy isn't installed")


def transform(name: str, attrs: Attrs, source: Array, target: Array, threads: int) -> None:
    """The transforms of all rows of `source` in `target`, which is dense."""
    rows, function = ROUTINES[name]
    given, result = rows(source, target)
    _each(given, result, threads, function(attrs, scipys() if source.dtype == np.float32 else None))


def _complex_rows(source: Array, target: Array) -> tuple[Array, Array]:
    return _of_rows(as_complex(source)), _of_rows(_numbers(target))


def _real_rows(source: Array, target: Array) -> tuple[Array, Array]:
    return _of_rows(source), _of_rows(_numbers(target))


def _hermitian_rows(source: Array, target: Array) -> tuple[Array, Array]:
    return _of_rows(as_complex(source)), _of_rows(target)


def _numbers(pairs: Array) -> Array:
    """As complex numbers, in the same memory."""
    assert pairs.flags.c_contiguous
    return as_complex(pairs)


def _of_rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _each(source: Array, target: Array, threads: int, rows: Rows) -> None:
    blocks = -(-len(source) // BLOCK)
    parts = max(min(threads, blocks, source.size // WORTH_A_THREAD), 1)
    bounds = [min(blocks * k // parts * BLOCK, len(source)) for k in range(parts + 1)]
    if parts == 1:
        rows(source, target)
        return
    with ThreadPoolExecutor(parts) as pool:
        for done in [pool.submit(rows, source[a:b], target[a:b]) for a, b in pairwise(bounds)]:
            done.result()


def _dft(attrs: Attrs, scipy: Any) -> Rows:
    name, norm = ("ifft" if attrs["inverse"] else "fft"), norm_of(attrs["norm"], attrs["inverse"])
    if scipy is None:
        return lambda z, result: _ignore(getattr(np.fft, name)(z, norm=norm, out=result))

    def rows(z: Array, result: Array) -> None:
        result[...] = z
        found = getattr(scipy, name)(result, norm=norm, overwrite_x=True)
        if not np.may_share_memory(found, result):  # it may take the memory that it is given, or not
            result[...] = found

    return rows


def _real_dft(attrs: Attrs, scipy: Any) -> Rows:
    norm = norm_of(attrs["norm"], inverse=False)
    if scipy is None:
        return lambda x, result: _ignore(np.fft.rfft(x, norm=norm, out=result))

    def rows(x: Array, result: Array) -> None:
        result[...] = scipy.rfft(x, norm=norm)

    return rows


def _hermitian_dft(attrs: Attrs, scipy: Any) -> Rows:
    norm, n = norm_of(attrs["norm"], inverse=True), attrs["length"]
    if scipy is None:
        return lambda z, result: _ignore(np.fft.irfft(z, n, norm=norm, out=result))

    def rows(z: Array, result: Array) -> None:
        result[...] = scipy.irfft(z, n, norm=norm)

    return rows


def _ignore(result: object) -> None:
    """It lies where it should."""


Arrange = Callable[[Array, Array], tuple[Array, Array]]
ROUTINES: Final[dict[str, tuple[Arrange, Callable[[Attrs, Any], Rows]]]] = {
    "dft": (_complex_rows, _dft),
    "real_dft": (_real_rows, _real_dft),
    "hermitian_dft": (_hermitian_rows, _hermitian_dft),
}
