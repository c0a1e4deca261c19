"""Native libraries that compiled code calls: vector math (libmvec) and libm, made visible to the linker."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

MATH_LIBRARIES: Final = ("libm.so.6", "libmvec.so.1")


@cache
def load_math() -> tuple[str, ...]:
    """Make the symbols of the math libraries visible; the names of those found."""
    found = []
    for name in MATH_LIBRARIES:
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        found.append(name)
    return tuple(found)
