"""Products of matrices by cuBLAS, called through its C interface: the package nvidia-cublas, or the toolkit.

Matrices here are row-major and cuBLAS's are column-major, so it is given the transposed product: the operands
change places. One workspace for all calls, since they follow each other on the device's one stream.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_double, c_float, c_int, c_longlong, c_size_t, c_void_p
from typing import Any, Final

from loopgrad.codegen.product_shapes import deep_product, short_product, thin_product
from loopgrad.codegen.targets.gpu.interface import tiny_products
from loopgrad.graph.types import DType, bfloat16, float16, float32, float64
from loopgrad.runtime.gpu.driver import LibraryCall, ProductTask, Words
from loopgrad.runtime.gpu.streams.api import StreamFailure

WORKSPACE_BYTES: Final = 32 << 20  # what NVIDIA advises for Hopper
SMALLEST_WORK: Final = 1 << 20  # multiplications; below that our own kernels, which graphs can hold
LARGEST_SIDE: Final = (1 << 31) - 1
NEIGHBOURS: Final = 32
MANY_LANES: Final = 1 << 17
DEFAULT_ALGORITHM: Final = -1
PLAIN, TRANSPOSED = 0, 1

# element type -> (cudaDataType, cublasComputeType, the type of the factors): sums in float32 at least
TYPES: Final[dict[DType, tuple[int, int, Any]]] = {
    float32: (0, 68, c_float),
    float64: (1, 70, c_double),
    float16: (2, 68, c_float),
    bfloat16: (14, 68, c_float),
}

# precision of the factors -> cublasComputeType, for products of float32
FASTER: Final = {"tf32": 77, "bfloat16": 75}

SIDES: Final = (c_int, c_int, c_int)
OPERAND: Final = (c_void_p, c_int, c_int, c_longlong)
GEMM: Final = (c_void_p, c_int, c_int, *SIDES, c_void_p, *OPERAND, *OPERAND, c_void_p, *OPERAND, c_int, c_int, c_int)


class Blas:
    """One handle. Needs the device's context while it is made and used."""

    def __init__(self, library: ctypes.CDLL, stream: int, workspace: int) -> None:
        self._handle = c_void_p()
        self._check(library.cublasCreate_v2(byref(self._handle)))
        self._check(library.cublasSetStream_v2(self._handle, c_void_p(stream)))
        self._check(library.cublasSetWorkspace_v2(self._handle, c_void_p(workspace), c_size_t(WORKSPACE_BYTES)))
        self._gemm = library.cublasGemmStridedBatchedEx
        self._gemm.argtypes = GEMM

    def _check(self, status: int) -> None:
        if status:
            raise StreamFailure(f"cuBLAS answered status {status}")

    def product(self, task: ProductTask) -> LibraryCall:
        """That product of left and right, row-major."""
        (kind, compute, factor), (result, *_) = TYPES[task.factors], TYPES[task.result]
        batch, m, k, n, transpose_left, transpose_right, *_ = task
        if task.factors is float32:
            compute = FASTER.get(task.precision, compute)
        one, zero = factor(1), factor(0)
        left = (kind, m if transpose_left else k, m * k)
        right = (kind, k if transpose_right else n, k * n)
        operations = (
            TRANSPOSED if transpose_right else PLAIN,
            TRANSPOSED if transpose_left else PLAIN,
        )
        handle, gemm, check = self._handle, self._gemm, self._check

        def start(words: Words) -> None:
            a, b, c = (int(word) for word in words)
            check(
                gemm(
                    handle, *operations, n, m, k, byref(one), b, *right, a, *left, byref(zero), c, result, n, m * n,
                    batch, compute, DEFAULT_ALGORITHM,
                )
            )  # fmt: skip

        return LibraryCall("matmul", start)


def worthwhile(task: ProductTask) -> bool:
    """Whether the library would be of use."""
    batch, m, k, n = task[:4]
    fits = task.factors in TYPES and max(batch, m, k, n) <= LARGEST_SIDE
    own = thin_product(m, k, n) or short_product(m, k, n) or deep_product(batch, m, k, n)
    if task.factors is float32 and own:
        return False
    return fits and batch * m * k * n >= SMALLEST_WORK and not (reads_suffice(task) or tiny_products(batch, m, k, n))


def reads_suffice(task: ProductTask) -> bool:
    """Of many products of a vector and a matrix, whose every element is read for one term: a lane for each element of
    the results has the device busy reading, where neighbours read what lies side by side."""
    batch, m, _, n, transpose_left, transpose_right, *_ = task
    row = m == 1 and n >= NEIGHBOURS and not transpose_right
    column = n == 1 and m >= NEIGHBOURS and transpose_left
    return (row or column) and batch * m * n >= MANY_LANES
