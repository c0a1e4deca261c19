"""Functions of halves by Exp2 and Log2, on a device whose own are nearly right enough for that."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import loopgrad as lg
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.vulkan.api import device_count

FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log10": np.log10, "log1p": np.log1p,
    "log2": np.log2, "tanh": np.tanh, "erf": special.erf,
}  # fmt: skip
HALVES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_half(monkeypatch, name, half):
    gpu, dtype = get_device("vulkan:0").gpu, HALVES[half]
    monkeypatch.setattr(gpu, "features", replace(gpu.features, exponential=True, logarithm=True))
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):  # of NaN that signal
        x = every[(every == 0) | ~(np.abs(every) < 2.0**-126)]  # subnormal float32 may be taken for 0
    function = getattr(lg.special, name) if name == "erf" else getattr(lg, name)
    with lg.default_device("vulkan:0"):
        got = np.asarray(lg.compile(function)(lg.asarray(x))).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](x.astype(np.float64))
        wanted = exact.astype(np.float32).astype(dtype).astype(np.float64)
        unit = np.spacing(wanted.astype(dtype)).astype(np.float64) if half == "float16" else np.abs(exact) * 2.0**-7
    finite = np.isfinite(wanted)
    assert (np.abs(got[finite] - wanted[finite]) <= np.abs(unit[finite]) + 2.0**-126).all()
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
