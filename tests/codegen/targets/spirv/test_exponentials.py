"""exp by Exp2, on a device whose own isn't right enough for that."""

from dataclasses import replace

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.vulkan.api import device_count

SPECIAL = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 200.0, -200.0, 1e-30]
UNITS = 128  # x - n log(2) is what Fma is for, which lavapipe rounds twice


@pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")
def test_exponentials(monkeypatch):
    gpu = get_device("vulkan:0").gpu
    monkeypatch.setattr(gpu, "features", replace(gpu.features, exponential=True))
    x = np.concatenate([np.linspace(-87, 88.5, 400), SPECIAL]).astype(np.float32)
    with lg.default_device("vulkan:0"):
        got = np.asarray(lg.compile(lg.exp)(lg.asarray(x)))
    with np.errstate(over="ignore"):
        wanted = np.exp(x.astype(np.float64)).astype(np.float32)
    finite = np.isfinite(wanted)
    assert (np.abs(got[finite] - wanted[finite]) <= UNITS * np.spacing(wanted[finite])).all()
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
