"""Whether two arrays have the same bits; what NaN is made of doesn't count."""

from __future__ import annotations

import numpy as np


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if a.dtype.kind not in "fV":  # bfloat16 is V
        return a.tobytes() == b.tobytes()
    unsigned = f"u{a.itemsize}"
    return bool(((a.view(unsigned) == b.view(unsigned)) | (np.isnan(a) & np.isnan(b))).all())
