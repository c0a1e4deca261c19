"""Transforms on the host: with and without SciPy, and with any number of threads the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopgrad.graph.primitives import REFERENCE
from loopgrad.runtime import host_fourier

RNG = np.random.default_rng(3)


def done(name: str, attrs: dict[str, Any], x: Any, threads: int) -> Any:
    (like,) = REFERENCE[name](attrs, x)
    target = np.full_like(like, np.nan)
    host_fourier.transform(name, attrs, x, target, threads)
    return like, target


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("with_scipy", [True, False])
def test_rows_on_threads(monkeypatch: pytest.MonkeyPatch, with_scipy: bool, dtype: str) -> None:
    if not with_scipy:
        monkeypatch.setattr(host_fourier, "scipys", lambda: None)
    monkeypatch.setattr(host_fourier, "WORTH_A_THREAD", 1000)
    pairs, reals = RNG.standard_normal((211, 3, 126, 2)).astype(dtype), RNG.standard_normal((633, 251)).astype(dtype)
    before = pairs.copy()
    for name, attrs, x in [
        ("dft", {"inverse": True, "norm": "full"}, pairs),
        ("dft", {"inverse": False, "norm": "ortho"}, pairs[:2]),
        ("real_dft", {"norm": "none"}, reals),
        ("hermitian_dft", {"length": 250, "norm": "full"}, pairs),
        ("hermitian_dft", {"length": 251, "norm": "none"}, pairs),
    ]:
        like, alone = done(name, attrs, x, 1)
        np.testing.assert_allclose(alone, like, rtol=1e-5, atol=1e-4 if dtype == "float32" else 1e-12)
        for threads in (2, 3, 8):
            np.testing.assert_array_equal(done(name, attrs, x, threads)[1], alone)
    np.testing.assert_array_equal(pairs, before)
