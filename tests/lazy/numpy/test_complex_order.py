"""Comparisons and extrema of complex numbers, against NumPy, and where their derivatives go."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.programs.numpy_scripts.scripts import quiet

NAN, INF = np.nan, np.inf
SKIPPING = ("nansum", "nanmax", "nanmin", "nanargmax", "nanargmin", "nancumsum", "nanmedian")
Z = np.array([
    [1 + 2j, 3 - 1j, 3 + 1j, 0j], [1 + 2j, NAN, 2, 1 + 5j], [complex(2, NAN), 1, 5, 1j],
    [complex(INF, 1), complex(-INF, 2), complex(INF, -1), complex(0.0, -0.0)],
])  # fmt: skip
ARRAYS = {"z": Z, "w": Z[::-1, ::-1].copy(), "s": Z.astype(np.complex64), "e": np.zeros((0, 3), complex), "r": Z.real}
ROWS = """
    xp.max(z[0]); xp.min(z, 1); xp.max(z, 1); xp.max(z, 0); xp.max(z[:1], (0, 1)); xp.max(z); xp.argmax(z, 1)
    xp.argmin(z, 0); xp.argmax(z); xp.maximum(z, w); xp.minimum(z, w); z < w; z <= w; z > w; z >= w; xp.less(z, 2)
    xp.clip(z, 1, 3); xp.ptp(z[0]); xp.max(z, initial=9); xp.max(z, 0, where=xp.isfinite(z), initial=-9 + 1j)
    xp.median(z[0]); xp.median(z[:3], 1); xp.median(z[:3], 0, keepdims=True); xp.median(z[:3, :3], 1)
    xp.amin(z, 0, keepdims=True)
    xp.fmax(z, w); xp.fmin(z, w); xp.max(s, 1); xp.argmin(s, 1); s > 1; xp.maximum(s, r); z > r; xp.max(z, 1) == z[:, 0]
    xp.argmax(e, 1); xp.max(e, 1); xp.min(e, initial=3j); xp.minimum(e, 1j); xp.max(z.T[2:], axis=(1, 0))
"""


@pytest.mark.costly
def test_as_in_numpy(device: str) -> None:
    rows = [row.strip() for line in ROWS.strip().splitlines() for row in line.split(";") if row.strip()]
    with quiet():
        wanted = [eval(row, {"xp": np, **ARRAYS}) for row in rows]
    tensors = {name: lg.asarray(x) for name, x in ARRAYS.items()}
    found = [eval(row, {"xp": lg, **tensors}) for row in rows]
    lg.eval(found)
    for row, ours, theirs in zip(rows, found, wanted, strict=True):
        assert np.asarray(ours).dtype == theirs.dtype, row
        np.testing.assert_array_equal(np.asarray(ours), theirs, err_msg=row)


def test_derivatives_move_as_the_elements_do(device: str) -> None:
    z = lg.asarray([1 + 2j, 3 - 1j, 3 + 1j])
    size = lambda w: (w.real**2 + 3 * w.imag**2).sum()  # noqa: E731
    wanted = size_slope(3 + 1j)
    assert lg.grad(lambda z: size(lg.max(z)))(z).tolist() == [0, 0, wanted]
    assert lg.grad(lambda z: size(lg.minimum(z, 3 + 0j)))(z).tolist() == [size_slope(1 + 2j), size_slope(3 - 1j), 0]
    assert lg.vmap(lambda z: lg.max(z))(lg.stack([z, -z])).tolist() == [3 + 1j, -1 - 2j]
    step = lambda _, c: lg.maximum(c * 1j, c)  # noqa: E731
    assert lg.fori_loop(0, 2, step, z).tolist() == lg.compile(lambda z: step(0, step(0, z)))(z).tolist()


def size_slope(z: complex) -> complex:
    """The slopes of re**2 + 3 im**2 by both parts."""
    return complex(2 * z.real, 6 * z.imag)


def test_complex_numbers_with_a_nan_in_either_part_are_skipped(device):
    """NaN in one part only counts, infinities stay: rint and round leave the other part alone."""
    z = np.array([complex(1, np.nan), 2 + 0.5j, complex(-np.inf, 1.4), complex(np.nan, 3), 3 + 2j])
    of_numpy = {name: getattr(np, name)(z) for name in SKIPPING}
    for name, expected in of_numpy.items():
        np.testing.assert_array_equal(np.asarray(getattr(lg, name)(lg.asarray(z))), expected, err_msg=name)
    both = np.array([complex(np.inf, np.inf), complex(np.inf, 1.4), complex(np.nan, -2.6), 0.5 + 1.5j])
    np.testing.assert_array_equal(np.asarray(lg.rint(lg.asarray(both))), np.rint(both))
    assert np.isnan(np.asarray(lg.nanmax(lg.asarray(z[:1]))))
