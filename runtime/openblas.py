"""The OpenBLAS that NumPy's wheels bring: its functions, numbers and places as these take them, and its threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int64, c_void_p
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from loopgrad.runtime.buffers import address_of
from loopgrad.runtime.processes import child_safe_lock

Array = np.ndarray[Any, Any]

LETTERS: Final = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
NUMBERS: Final = 1024  # that are remembered


@cache
def library() -> ctypes.CDLL | None:
    """NumPy's own OpenBLAS with integers of 64 bits, if that is what it was built with."""
    package = Path(np.__file__).parent
    found = [*package.parent.glob("numpy.libs/libscipy_openblas64_*"), *package.glob(".dylibs/libscipy_openblas64_*")]
    for path in found:
        try:
            opened = ctypes.CDLL(str(path))
        except OSError:
            continue
        if all(hasattr(opened, f"scipy_{name}_64_") for name in ("dpotrf", "dgetrf", "dtrsm")):
            return opened
    return None


@cache
def subroutine(name: str, dtype: np.dtype[Any], arguments: int) -> Any:
    """A subroutine of Fortran's, with so many arguments, which are addresses."""
    function = getattr(library(), f"scipy_{LETTERS[dtype.name]}{name}_64_")
    function.argtypes, function.restype = [c_void_p] * arguments, None
    return function


@lru_cache(maxsize=NUMBERS)
def integer(value: int) -> Any:
    """The address of a number, which no routine changes."""
    return byref(c_int64(value))


@cache
def one_of(dtype: np.dtype[Any]) -> tuple[int, Array]:
    """The address of a 1, and what holds it."""
    one = np.ones(1, dtype)
    return address_of(one), one


def places_of(array: Array) -> Sequence[int]:
    """Where each of its first axis lies; it is dense."""
    first, step = address_of(array), array.nbytes // max(len(array), 1)
    return range(first, first + len(array) * step, step) if step else [first] * len(array)


class _OneThread:
    """While somebody is inside, OpenBLAS starts no threads: they would be more than there are cores."""

    def __init__(self) -> None:
        self._lock = child_safe_lock()
        self._inside = 0
        self._usual = 1

    def __enter__(self) -> None:
        get_threads, set_threads = _threads()
        with self._lock:
            if not self._inside:
                self._usual = get_threads()
                set_threads(1)
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        _, set_threads = _threads()
        with self._lock:
            self._inside -= 1
            if not self._inside:
                set_threads(self._usual)


ONE_THREAD: Final = _OneThread()


@cache
def _threads() -> tuple[Any, Any]:
    """What tells and sets how many threads OpenBLAS uses."""
    opened = library()
    return tuple([getattr(opened, f"scipy_openblas_{verb}_num_threads64_") for verb in ("get", "set")])
