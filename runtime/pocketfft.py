"""Who computes Fourier transforms on the host: pocketfft, as SciPy has it or as NumPy has it, by the same functions.

It is SciPy's where that is installed, whose code for several rows at once is vector code and which keeps what it
computed of a length; other than NumPy's are only the last bits of `norm` along several axes. SciPy's functions give
results memory of their own; the module below them, which isn't public, takes memory to write to. Where a version of
SciPy has no such module, what the public functions return is copied.

Numbers are taken where they lie, however far apart, and results are left where they should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
Axes = Sequence[int]

SCIPY: Final = "pocketfft of SciPy, on the host"
NUMPY: Final = "pocketfft of NumPy, on the host"
NORMS: Final = ("none", "ortho", "full")  # at their numbers
_FORWARD: Final[tuple[Any, ...]] = ("backward", "ortho", "forward")
_INVERSE: Final = _FORWARD[::-1]


class Pocketfft(Protocol):
    """Transforms along axes of `a`, with results in `out`, which may be `a` itself where both are complex: of complex
    numbers, of reals to half a spectrum along the last of the axes, and of that to `lastsize` reals. `inorm`: one of
    NORMS."""

    def c2c(self, a: Array, axes: Axes, forward: bool, inorm: int, out: Array, /) -> object: ...

    def r2c(self, a: Array, axes: Axes, forward: bool, inorm: int, out: Array, /) -> object: ...

    def c2r(self, a: Array, axes: Axes, lastsize: int, forward: bool, inorm: int, out: Array, /) -> object: ...


class OfNumpy:
    """By NumPy, one axis after the other."""

    def c2c(self, a: Array, axes: Axes, forward: bool, inorm: int, out: Array, /) -> object:
        function, norm = (np.fft.fft, _FORWARD[inorm]) if forward else (np.fft.ifft, _INVERSE[inorm])
        for axis in axes:
            a = function(a, axis=axis, norm=norm, out=out)
        return a

    def r2c(self, a: Array, axes: Axes, forward: bool, inorm: int, out: Array, /) -> object:
        *others, last = axes
        found = np.fft.rfft(a, axis=last, norm=_FORWARD[inorm], out=out)
        return self.c2c(found, others, forward, inorm, out)

    def c2r(self, a: Array, axes: Axes, lastsize: int, forward: bool, inorm: int, out: Array, /) -> object:
        *others, last = axes
        if others:
            between = np.empty_like(a)
            self.c2c(a, others, forward, inorm, between)
            a = between
        return np.fft.irfft(a, lastsize, axis=last, norm=_INVERSE[inorm], out=out)


class OfScipy:
    """By SciPy's public functions; complex numbers stay in memory that they are told to use up."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def c2c(self, a: Array, axes: Axes, forward: bool, inorm: int, out: Array, /) -> object:
        functions, norm = self._functions, _FORWARD[inorm] if forward else _INVERSE[inorm]
        if a is not out:
            out[...] = a
        found = (functions.fftn if forward else functions.ifftn)(out, axes=axes, norm=norm, overwrite_x=True)
        return self._left(found, out)

    def r2c(self, a: Array, axes: Axes, forward: bool, inorm: int, out: Array, /) -> object:
        return self._left(self._functions.rfftn(a, axes=axes, norm=_FORWARD[inorm]), out)

    def c2r(self, a: Array, axes: Axes, lastsize: int, forward: bool, inorm: int, out: Array, /) -> object:
        lengths = [*[a.shape[axis] for axis in axes[:-1]], lastsize]
        return self._left(self._functions.irfftn(a, lengths, axes, _INVERSE[inorm]), out)

    def _left(self, found: Array, out: Array) -> object:
        if not np.may_share_memory(found, out):
            out[...] = found
        return out


@cache
def scipys() -> Pocketfft | None:
    """SciPy's, or None."""
    try:
        import scipy.fft as functions  # type: ignore[import-untyped]  # late: optional, and takes time
    except ImportError:
        return None
    try:
        from scipy.fft._pocketfft import pypocketfft  # type: ignore[import-untyped]
    except ImportError:
        return OfScipy(functions)
    found: Pocketfft = pypocketfft
    return found


NUMPYS: Final = OfNumpy()


def pocketfft() -> Pocketfft:
    """The best that there is."""
    return scipys() or NUMPYS


def provider() -> tuple[str, str]:
    """Who does transforms, and why nobody better."""
    return (SCIPY, "") if scipys() is not None else (NUMPY, "SciPy isn't installed")
