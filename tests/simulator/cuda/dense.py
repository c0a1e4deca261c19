"""cuSOLVER and cuBLAS's part of it without a GPU, or ROCm's twins, as far as loopgrad calls them: NumPy on matrices
that lie by columns.

What a function needs not keep, it spoils: triangles that it doesn't return, and what it works in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_byte, c_double, c_float, c_int, c_void_p
from typing import Any

import numpy as np

from loopgrad.graph.primitives import factorisations
from loopgrad.runtime.gpu.streams.vendor import Vendor
from tests.simulator.cuda.libraries import INVALID, OK, Stream, array

DTYPES = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
LWORK = 64
P, I = c_void_p, c_int  # noqa: E741


def columns(address: int, dtype: Any, rows: int, count: int) -> Any:
    """The matrix whose columns lie there."""
    return array(address, dtype, count, rows).T


class FakeLibrary:
    """`done`: names of the functions that ran."""

    def __init__(self, stream: Stream, vendor: Vendor) -> None:
        self._stream, self._on, self._numbers = stream, 0, vendor.numbers
        self.done: list[str] = []

    def put(self, name: str, work: Callable[[], None]) -> int:
        def noted() -> None:
            with np.errstate(all="ignore"):
                work()
            self.done.append(name)

        return self._stream.put(self._on, noted)


class FakeSolver(FakeLibrary):
    """Factorisations."""

    def __init__(self, stream: Stream, vendor: Vendor) -> None:
        super().__init__(stream, vendor)
        out = POINTER(c_void_p)
        rows: dict[str, tuple[Callable[..., int], tuple[Any, ...]]] = {
            "Create": (self._create, (out,)),
            "SetStream": (self._set_stream, (P, P)),
            "CreateSyevjInfo": (self._create, (out,)),
            "CreateGesvdjInfo": (self._create_singular, (out,)),
        }
        for letter in DTYPES:
            rows.update(self._of(letter))
        for name, (function, types) in rows.items():
            setattr(self, vendor.solver.prefix + name, CFUNCTYPE(c_int, *types)(function))

    def _create(self, out: Any) -> int:
        out[0] = 77
        return OK

    def _create_singular(self, out: Any) -> int:
        out[0] = 78
        return OK

    def _set_stream(self, handle: int, stream: int) -> int:
        self._on = stream
        return OK

    def _of(self, x: str) -> dict[str, tuple[Callable[..., int], tuple[Any, ...]]]:
        dtype, size, numbers = DTYPES[x], POINTER(c_int), self._numbers
        lower, upper, wanted = numbers["lower"], numbers["upper"], numbers["vectors"]
        complex_ = x in "CZ"
        values = np.zeros(0, dtype).real.dtype
        q, ev = x + ("ungqr" if complex_ else "orgqr"), x + ("heev" if complex_ else "syev")

        def sized(*arguments: Any) -> int:
            next(a for a in arguments if isinstance(a, size))[0] = LWORK
            return OK

        def work_in(address: int) -> None:
            array(address, dtype, LWORK)[:] = np.nan

        def cholesky(address: int, n: int, info: int) -> None:
            a = columns(address, dtype, n, n)
            failed = array(info, np.int32, 1)
            try:
                factor = np.linalg.cholesky(np.tril(a))
                failed[0] = 0
                a[np.tril_indices(n)] = factor[np.tril_indices(n)]
            except np.linalg.LinAlgError:
                failed[0] = n

        def potrf(handle: int, uplo: int, n: int, a: int, lda: int, work: int, lwork: int, info: int) -> int:
            if uplo != lower or lda != n or lwork != LWORK or not handle:
                return INVALID
            return self.put("potrf", lambda: (work_in(work), cholesky(a, n, info)))

        def potrf_batched(handle: int, uplo: int, n: int, table: int, lda: int, info: int, count: int) -> int:
            if uplo != lower or lda != n:
                return INVALID

            def run() -> None:
                for i, address in enumerate(array(table, np.uint64, count)):
                    cholesky(int(address), n, info + 4 * i)

            return self.put("potrfBatched", run)

        def getrf(handle: int, m: int, n: int, a: int, lda: int, work: int, pivots: int, info: int) -> int:
            if lda != m:
                return INVALID

            def run() -> None:
                work_in(work)
                lu(a, dtype, m, n, pivots)
                array(info, np.int32, 1)[0] = 0

            return self.put("getrf", run)

        def geqrf(handle: int, m: int, n: int, a: int, lda: int, tau: int, work: int, lwork: int, info: int) -> int:
            if lda != m or lwork != LWORK:
                return INVALID

            def run() -> None:
                work_in(work)
                matrix = columns(a, dtype, m, n)
                h, factors = np.linalg.qr(matrix.copy(), mode="raw")
                matrix[:] = h.T
                array(tau, dtype, min(m, n))[:] = factors

            return self.put("geqrf", run)

        def orgqr(
            handle: int, m: int, n: int, k: int, a: int, lda: int, tau: int, work: int, lwork: int, info: int
        ) -> int:
            if not m >= n >= k or lda != m or lwork != LWORK:
                return INVALID

            def run() -> None:
                work_in(work)
                matrix, factors = columns(a, dtype, m, n), array(tau, dtype, k)
                together = np.eye(m, n, dtype=dtype)
                for j in reversed(range(k)):
                    v = np.zeros(m, dtype)
                    v[j], v[j + 1 :] = 1, matrix[j + 1 :, j]
                    together -= factors[j] * np.outer(v, v.conj() @ together)
                matrix[:] = together

            return self.put("orgqr", run)

        def eigen(job: int, n: int, a: int, w: int, info: int) -> None:
            matrix = columns(a, dtype, n, n)
            assert np.isfinite(np.triu(matrix)).all()
            found, vectors = np.linalg.eigh(np.triu(matrix).conj().T)
            array(w, values, n)[:] = found
            matrix[:] = vectors if job == wanted else np.nan
            array(info, np.int32, 1)[0] = 0

        def syevd(
            handle: int, job: int, uplo: int, n: int, a: int, lda: int, w: int, work: int, lwork: int, info: int
        ) -> int:
            if uplo != upper or lda != n or lwork != LWORK:
                return INVALID
            return self.put("syevd", lambda: (work_in(work), eigen(job, n, a, w, info)))

        def syevj_batched(
            handle: int, job: int, uplo: int, n: int, a: int, lda: int, w: int, work: int, lwork: int, info: int,
            parameters: int, count: int,
        ) -> int:  # fmt: skip
            if uplo != upper or lda != n or parameters != 77:
                return INVALID
            size, step = n * n * np.dtype(dtype).itemsize, n * values.itemsize

            def run() -> None:
                work_in(work)
                for i in range(count):
                    eigen(job, n, a + i * size, w + i * step, info + 4 * i)

            return self.put("syevjBatched", run)

        def gesvd(
            handle: int, job_u: int, job_vt: int, m: int, n: int, a: int, lda: int, s: int, u: int, ldu: int, vt: int,
            ldvt: int, work: int, lwork: int, rwork: int, info: int,
        ) -> int:  # fmt: skip
            vectors, full = job_u != ord("N"), job_u == ord("A")
            if m < n or lda != m or ldu != m or ldvt != n or rwork or vectors != (job_vt != ord("N")):
                return INVALID

            def run() -> None:
                work_in(work)
                matrix = columns(a, dtype, m, n)
                assert np.isfinite(matrix).all()
                found = np.linalg.svd(matrix, full_matrices=full)
                array(s, values, n)[:] = found[1]
                if vectors:
                    columns(u, dtype, m, m if full else n)[:] = found[0]
                    columns(vt, dtype, n, n)[:] = found[2]
                matrix[:] = np.nan
                array(info, np.int32, 1)[0] = 0

            return self.put("gesvd", run)

        def gesvdj(
            handle: int, job: int, econ: int, m: int, n: int, a: int, lda: int, s: int, u: int, ldu: int, v: int,
            ldv: int, work: int, lwork: int, info: int, parameters: int,
        ) -> int:  # fmt: skip
            if m < n or lda != m or ldu != m or ldv != n or parameters != 78 or lwork != LWORK or not u or not v:
                return INVALID

            def run() -> None:
                work_in(work)
                matrix = columns(a, dtype, m, n)
                assert np.isfinite(matrix).all()
                found = np.linalg.svd(matrix, full_matrices=not econ)
                array(s, values, n)[:] = found[1]
                columns(u, dtype, m, n if econ else m)[:] = found[0] if job == wanted else np.nan
                columns(v, dtype, n, n)[:] = found[2].conj().T if job == wanted else np.nan
                matrix[:] = np.nan
                array(info, np.int32, 1)[0] = 0

            return self.put("gesvdj", run)

        def gesvdj_batched(
            handle: int, job: int, m: int, n: int, a: int, lda: int, s: int, u: int, ldu: int, v: int, ldv: int,
            work: int, lwork: int, info: int, parameters: int, count: int,
        ) -> int:  # fmt: skip
            if max(m, n) > 32 or lda != m or ldu != m or ldv != n or parameters != 78 or lwork != LWORK:
                return INVALID
            size, step = np.dtype(dtype).itemsize, min(m, n) * values.itemsize

            def run() -> None:
                work_in(work)
                for i in range(count):
                    matrix = columns(a + i * m * n * size, dtype, m, n)
                    assert np.isfinite(matrix).all()
                    found = np.linalg.svd(matrix)
                    array(s + i * step, values, min(m, n))[:] = found[1]
                    if job == wanted:
                        columns(u + i * m * m * size, dtype, m, m)[:] = found[0]
                        columns(v + i * n * n * size, dtype, n, n)[:] = found[2].conj().T
                    matrix[:] = np.nan
                array(info, np.int32, count)[:] = 0

            return self.put("gesvdjBatched", run)

        return {
            x + "potrf_bufferSize": (sized, (P, I, I, P, I, size)),
            x + "potrf": (potrf, (P, I, I, P, I, P, I, P)),
            x + "potrfBatched": (potrf_batched, (P, I, I, P, I, P, I)),
            x + "getrf_bufferSize": (sized, (P, I, I, P, I, size)),
            x + "getrf": (getrf, (P, I, I, P, I, P, P, P)),
            x + "geqrf_bufferSize": (sized, (P, I, I, P, I, size)),
            x + "geqrf": (geqrf, (P, I, I, P, I, P, P, I, P)),
            q + "_bufferSize": (sized, (P, I, I, I, P, I, P, size)),
            q: (orgqr, (P, I, I, I, P, I, P, P, I, P)),
            ev + "d_bufferSize": (sized, (P, I, I, I, P, I, P, size)),
            ev + "d": (syevd, (P, I, I, I, P, I, P, P, I, P)),
            ev + "jBatched_bufferSize": (sized, (P, I, I, I, P, I, P, size, P, I)),
            ev + "jBatched": (syevj_batched, (P, I, I, I, P, I, P, P, I, P, P, I)),
            x + "gesvdjBatched_bufferSize": (sized, (P, I, I, I, P, I, P, P, I, P, I, size, P, I)),
            x + "gesvdjBatched": (gesvdj_batched, (P, I, I, I, P, I, P, P, I, P, I, P, I, P, P, I)),
            x + "gesvdj_bufferSize": (sized, (P, I, I, I, I, P, I, P, P, I, P, I, size, P)),
            x + "gesvdj": (gesvdj, (P, I, I, I, I, P, I, P, P, I, P, I, P, I, P, P)),
            x + "gesvd_bufferSize": (sized, (P, I, I, size)),
            x + "gesvd": (gesvd, (P, c_byte, c_byte, I, I, P, I, P, P, I, P, I, P, I, P, P)),
        }


def lu(address: int, dtype: Any, m: int, n: int, pivots: int) -> None:
    matrix = columns(address, dtype, m, n)
    packed, swaps, _ = factorisations.lu({}, matrix.copy())
    matrix[:] = packed
    array(pivots, np.int32, min(m, n))[:] = swaps + 1


class FakeBlas(FakeLibrary):
    """The simulated cuBLAS of products, and what NumPy has besides."""

    def __init__(self, library: ctypes.CDLL, stream: Stream, vendor: Vendor) -> None:
        super().__init__(stream, vendor)
        self._library, self._version = library, vendor.blas_version
        for letter, dtype in DTYPES.items():
            for name, (function, types) in self._of(dtype).items():
                setattr(self, f"{vendor.blas.prefix}{letter}{name}", CFUNCTYPE(c_int, *types)(function))
        setattr(self, f"{vendor.blas.prefix}SetStream{self._version}", CFUNCTYPE(c_int, P, P)(self._set_stream))
        create = CFUNCTYPE(c_int, POINTER(P))(lambda out: int(library.cublasCreate_v2(out)))
        setattr(self, f"{vendor.blas.prefix}Create{self._version}", create)

    def _set_stream(self, handle: int, stream: int) -> int:
        self._on = stream
        return int(self._library.cublasSetStream_v2(c_void_p(handle), c_void_p(stream)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def _of(self, dtype: Any) -> dict[str, tuple[Callable[..., int], tuple[Any, ...]]]:
        numbers, turns = self._numbers, [self._numbers["plain"], self._numbers["transposed"]]
        factor = POINTER(c_float if np.dtype(dtype).itemsize in (4,) or dtype is np.complex64 else c_double)

        def solve(upper: int, transpose: int, unit: int, m: int, n: int, a: int, b: int) -> None:
            """X op(A) = B, m x n."""
            x, triangle = columns(b, dtype, m, n), columns(a, dtype, n, n)
            how = {
                "lower": upper != numbers["upper"],
                "transpose": transpose == numbers["plain"],
                "unit_diagonal": unit == numbers["unit diagonal"],
            }
            x[:] = factorisations.triangular_solve(how, triangle, np.ascontiguousarray(x.T))[0].T

        def trsm(
            handle: int, side: int, uplo: int, trans: int, unit: int, m: int, n: int, alpha: Any, a: int, lda: int,
            b: int, ldb: int,
        ) -> int:  # fmt: skip
            if side != numbers["right"] or lda != n or ldb != m or alpha[0] != 1 or trans not in turns:
                return INVALID
            return self.put("trsm", lambda: solve(uplo, trans, unit, m, n, a, b))

        def trsv(
            handle: int, uplo: int, trans: int, unit: int, n: int, a: int, lda: int, x: int, step: int
        ) -> int:  # fmt: skip
            if lda != n or step != 1 or trans not in turns:
                return INVALID
            other = turns[1 - turns.index(trans)]  # op(A) x = b is x op(A) transposed = b
            return self.put("trsv", lambda: solve(uplo, other, unit, 1, n, a, x))

        def trsm_batched(
            handle: int, side: int, uplo: int, trans: int, unit: int, m: int, n: int, alpha: Any, a: int, lda: int,
            b: int, ldb: int, count: int,
        ) -> int:  # fmt: skip
            if side != numbers["right"] or lda != n or ldb != m or alpha[0] != 1:
                return INVALID

            def run() -> None:
                for left, right in zip(array(a, np.uint64, count), array(b, np.uint64, count), strict=True):
                    solve(uplo, trans, unit, m, n, int(left), int(right))

            return self.put("trsmBatched", run)

        def getrf_batched(handle: int, n: int, table: int, lda: int, pivots: int, info: int, count: int) -> int:
            if lda != n:
                return INVALID

            def run() -> None:
                for i, address in enumerate(array(table, np.uint64, count)):
                    lu(int(address), dtype, n, n, pivots + 4 * n * i)
                array(info, np.int32, count)[:] = 0

            return self.put("getrfBatched", run)

        common = (P, I, I, I, I, I, I, factor, P, I, P, I)
        return {
            "trsm" + self._version: (trsm, common),
            "trsv" + self._version: (trsv, (P, I, I, I, I, P, I, P, I)),
            "trsmBatched": (trsm_batched, (*common, I)),
            "getrfBatched": (getrf_batched, (P, I, P, I, P, P, I)),
        }
