"""`lg.linalg`: norms and products of matrices, by the names of NumPy and the array API standard.

Factorisations (solve, inv, cholesky, eigh, svd, ...) aren't offered; asking for one says what to do instead.
"""

from __future__ import annotations

from typing import Any

from loopgrad.lazy.numpy.matrix_products import cross, matmul, outer, tensordot, vecdot
from loopgrad.lazy.numpy.movement import matrix_transpose
from loopgrad.lazy.numpy.norms import diagonal, matrix_norm, matrix_power, multi_dot, norm, trace, vector_norm
from loopgrad.lazy.numpy.not_offered import LINALG_ABSENT, absent_name

__all__ = [
    "cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "multi_dot", "norm", "outer",
    "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    instead = absent_name("loopgrad.linalg", name, LINALG_ABSENT)
    raise AttributeError(instead or f"module 'loopgrad.linalg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
