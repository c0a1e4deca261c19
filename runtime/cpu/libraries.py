"""Native libraries that compiled code calls: vector math and BLAS.

Vector math (libmvec) and libm are made visible to the linker. BLAS is the OpenBLAS inside NumPy's wheel, reached
through plain function pointers, for products with a narrow matrix; all others, and these where it isn't found (another
build of NumPy), are native_products.py's.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

MATH_LIBRARIES: Final = ("libm.so.6", "libmvec.so.1")
BLAS_SYMBOLS: Final = (
    ("scipy_cblas_sgemm64_", "scipy_cblas_dgemm64_"),
    ("cblas_sgemm64_", "cblas_dgemm64_"),
)


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


@cache
def blas() -> tuple[int, int] | None:
    """The addresses of cblas sgemm and dgemm with 64-bit integers, None where there are none."""
    folder = Path(np.__file__).parent
    candidates = sorted(folder.parent.glob("numpy.libs/*openblas*")) + sorted(folder.glob(".dylibs/*openblas*"))
    for path in candidates:
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for names in BLAS_SYMBOLS:
            if all(hasattr(library, name) for name in names):
                single, double = [_address(getattr(library, name)) for name in names]
                return single, double
    return None


def _address(function: object) -> int:
    value = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]
    assert value is not None
    return value
