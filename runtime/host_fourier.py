"""Fourier transforms by pocketfft, on the host: NumPy's, which writes where it is told to; of float32 SciPy's where
that is installed, whose code for several rows at once is vector code.

Both take numbers where they lie, however far apart: nothing is transposed. Transforms along several axes go from the
source to the target along one of them, and stay there along the others.

Transforms are done in parts, by some threads at once. The shape alone says what the parts are, so no bit depends on how
many threads there are.
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
Along = Callable[[Array, Array, int], None]

SCIPY: Final = "pocketfft of SciPy, on the host"
NUMPY: Final = "pocketfft of NumPy, on the host"
WORTH_A_THREAD: Final = 1 << 18  # numbers: a millisecond
MOST_PARTS: Final = 64


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
    """The transforms of `source` in `target`, which is dense; along the last axis where `attrs` name no axes."""
    kind = name.removesuffix("_along")
    axes = attrs.get("axes", (source.ndim - (1 if kind == "real_dft" else 2),))
    scipy = scipys() if source.dtype == np.float32 else None

    def along(kind: str, given: Array, result: Array, axis: int, **more: Any) -> None:
        one = FUNCTIONS[kind]({**attrs, **more}, scipy)
        _by_parts(lambda given, result: one(given, result, axis), given, result, axis, threads)

    if kind == "hermitian_dft":
        given = as_complex(source)
        for axis in axes[:-1]:
            result = np.empty_like(given) if axis == axes[0] else given
            along("dft", given, result, axis, inverse=True)
            given = result
        along(kind, given, target, axes[-1])
        return
    result = _numbers(target)
    given = source if kind == "real_dft" else as_complex(source)
    for axis in reversed(axes):
        along(kind, given, result, axis, **({} if kind == "real_dft" else {"inverse": attrs.get("inverse", False)}))
        given, kind = result, "dft"


def _numbers(pairs: Array) -> Array:
    """As complex numbers, in the same memory."""
    assert pairs.flags.c_contiguous
    return as_complex(pairs)


def _by_parts(one: Callable[[Array, Array], None], given: Array, result: Array, axis: int, threads: int) -> None:
    """One transform of parts along another axis: the first one that is long enough, or the longest."""
    wanted = max(min(given.size // WORTH_A_THREAD, MOST_PARTS), 1)
    others = [d for d in range(given.ndim) if d != axis]
    if wanted == 1 or not others:
        one(given, result)
        return
    across = next((d for d in others if given.shape[d] >= wanted), max(others, key=lambda d: given.shape[d]))
    extent = given.shape[across]
    bounds = [extent * k // wanted for k in range(wanted + 1)]
    before = (slice(None),) * across
    parts = [(given[*before, a:b], result[*before, a:b]) for a, b in pairwise(bounds) if a < b]
    if threads == 1:
        for part in parts:
            one(*part)
        return
    with ThreadPoolExecutor(min(threads, len(parts))) as pool:
        for done in [pool.submit(one, *part) for part in parts]:
            done.result()


def _dft(attrs: Attrs, scipy: Any) -> Along:
    name, norm = ("ifft" if attrs["inverse"] else "fft"), norm_of(attrs["norm"], attrs["inverse"])
    if scipy is None:
        return lambda z, result, axis: _ignore(getattr(np.fft, name)(z, axis=axis, norm=norm, out=result))

    def along(z: Array, result: Array, axis: int) -> None:
        if z is not result:
            result[...] = z
        found = getattr(scipy, name)(result, axis=axis, norm=norm, overwrite_x=True)
        if not np.may_share_memory(found, result):  # it may take the memory that it is given, or not
            result[...] = found

    return along


def _real_dft(attrs: Attrs, scipy: Any) -> Along:
    norm = norm_of(attrs["norm"], inverse=False)
    if scipy is None:
        return lambda x, result, axis: _ignore(np.fft.rfft(x, axis=axis, norm=norm, out=result))

    def along(x: Array, result: Array, axis: int) -> None:
        result[...] = scipy.rfft(x, axis=axis, norm=norm)

    return along


def _hermitian_dft(attrs: Attrs, scipy: Any) -> Along:
    norm, n = norm_of(attrs["norm"], inverse=True), attrs["length"]
    if scipy is None:
        return lambda z, result, axis: _ignore(np.fft.irfft(z, n, axis=axis, norm=norm, out=result))

    def along(z: Array, result: Array, axis: int) -> None:
        result[...] = scipy.irfft(z, n, axis=axis, norm=norm)

    return along


def _ignore(result: object) -> None:
    """It lies where it should."""


FUNCTIONS: Final[dict[str, Callable[[Attrs, Any], Along]]] = {
    "dft": _dft, "real_dft": _real_dft, "hermitian_dft": _hermitian_dft,
}  # fmt: skip
