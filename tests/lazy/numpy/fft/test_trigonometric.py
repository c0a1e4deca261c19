"""Cosine and sine transforms against SciPy's: types, lengths, norms, axes, dtypes, bad input; fast lengths."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.fft  # type: ignore[import-untyped]

import loopgrad as lg

RNG = np.random.default_rng(7)
NAMES, KINDS = ("dct", "idct", "dst", "idst"), (1, 2, 3, 4)
SETTINGS: list[dict[str, Any]] = [
    {}, {"norm": "ortho"}, {"norm": "forward", "orthogonalize": True}, {"norm": "ortho", "orthogonalize": False},
]  # fmt: skip


def near(made: list[Any], expected: list[Any], tolerance: float = 1e-14) -> None:
    for got, wanted in zip(made, expected, strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        size = max(float(np.abs(wanted).max(initial=0.0)), 1e-30)
        assert np.abs(np.asarray(got) - wanted).max(initial=0.0) <= tolerance * size, (got.shape, got.dtype)


def test_every_type_length_and_norm() -> None:
    with lg.default_device("interpreter"):
        for n in (1, 2, 3, 4, 5, 8, 9, 17, 30):
            x = RNG.standard_normal((2, n))
            cases = [case for case in product(NAMES, KINDS, SETTINGS) if n > 1 or "c" not in case[0] or case[1] > 1]
            made = [getattr(lg.fft, name)(lg.asarray(x), kind, **more) for name, kind, more in cases]
            near(made, [getattr(scipy.fft, name)(x, kind, **more) for name, kind, more in cases])


PROGRAMS = [
    lambda m, x: m.dct(x, 1),
    lambda m, x: m.dct(x, axis=1, n=5),
    lambda m, x: m.idct(x, 2, axis=0, norm="ortho"),
    lambda m, x: m.dct(x[0], 4),
    lambda m, x: m.idst(x, 4, n=7, axis=-2),
    lambda m, x: m.dst(x, 3),
    lambda m, x: m.dctn(x, axes=(0, 2), norm="forward"),
    lambda m, x: m.dstn(x[0], 1, s=(3, 8)),
]


def test_as_scipy_takes_them(device: str) -> None:
    """In one program. They are made of what runs everywhere; lavapipe compiles it for too long to take all."""
    x = RNG.standard_normal((3, 4, 6))
    y = x.astype(np.float32)
    wide = [] if device.startswith("vulkan") else PROGRAMS
    made = lg.compile(lambda x, y: [[p(lg.fft, x) for p in wide], lg.fft.dct(y)])(lg.asarray(x), lg.asarray(y))
    near(made[0], [p(scipy.fft, x) for p in wide])
    near(made[1:], [scipy.fft.dct(y)], 1e-6)


def test_several_axes_and_other_numbers() -> None:
    x = RNG.standard_normal((3, 4, 5))
    with lg.default_device("interpreter"):
        for name in ("dctn", "idctn", "dstn", "idstn"):
            ours, theirs = getattr(lg.fft, name), getattr(scipy.fft, name)
            for more in ({}, {"type": 4, "s": (2, 6)}, {"axes": (2, 0), "norm": "ortho", "type": 3}, {"axes": ()}):
                near([ours(lg.asarray(x), **more)], [theirs(x, **more)])
        z = x + 1j * x[::-1]
        near([lg.fft.dct(z, 3), lg.fft.idst(z)], [scipy.fft.dct(z, 3), scipy.fft.idst(z)])
        near([lg.fft.dct(np.arange(5)), lg.fft.dct(lg.ones(4, dtype=lg.float16))],
             [scipy.fft.dct(np.arange(5)), scipy.fft.dct(np.ones(4, np.float16))])  # fmt: skip
        near([lg.fft.dct(x[:0])], [np.zeros((0, 4, 5))])
        near([f(lg.fft, z) for f in OF_HERMITIAN], [f(scipy.fft, z) for f in OF_HERMITIAN])


OF_HERMITIAN = [
    lambda m, z: m.hfftn(z),
    lambda m, z: m.hfft2(z, s=(3, 7), norm="ortho"),
    lambda m, z: m.ihfftn(z.real, axes=(2, 0)),
    lambda m, z: m.ihfft2(z.imag, norm="forward"),
]


def test_long_numbers_are_as_exact() -> None:
    """Also float32, whose angles are of an eighth of a turn at most."""
    x = RNG.standard_normal(30011).astype(np.float32)
    with lg.default_device("interpreter"):
        for name, kind in (("dct", 2), ("dct", 3), ("dst", 2)):
            expected = getattr(scipy.fft, name)(x.astype(np.float64), kind).astype(np.float32)
            near([getattr(lg.fft, name)(lg.asarray(x), kind)], [expected], 1e-6)


def test_errors() -> None:
    ones = np.ones((2, 3))
    for bad in (lambda m: m.dct(ones, 5), lambda m: m.dct(ones, norm="x"), lambda m: m.idst(ones, n=0)):
        for m in (scipy.fft, lg.fft):
            with pytest.raises(ValueError, match=r"[Ii]nvalid|expected"):
                bad(m)
    with pytest.raises(lg.ShapeError, match=r"dct: expected a transform of type 1 of at least 2(.|\n)*trigonometric"):
        lg.fft.dct(ones[:, :1], 1)
    with pytest.raises(lg.ShapeError):
        lg.fft.dctn(ones, s=(2,), axes=(0, 1))


def test_fast_lengths() -> None:
    for n, real in product([*range(400), 10**6 + 3, 10**9 + 7], (False, True)):
        assert lg.fft.next_fast_len(n, real) == scipy.fft.next_fast_len(n, real)
        assert lg.fft.prev_fast_len(n, real) == scipy.fft.prev_fast_len(n, real)
    assert lg.fft.next_fast_len(10**18 - 1) == 10**18
    with pytest.raises(ValueError, match="at least 0"):
        lg.fft.next_fast_len(-1)
    with pytest.raises(TypeError):
        lg.fft.prev_fast_len(2.5)
