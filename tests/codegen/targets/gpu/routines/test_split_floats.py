"""Products of float32 by matrix units that multiply 16-bit floats alone: the simulator's, without the others."""

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.schedule import convolutions
from tests.codegen.targets.gpu.routines.test_window_products import by_numpy as convolved
from tests.lazy.networks.test_attention import by_numpy, derivatives
from tests.simulator.matrix_units import HostUnits

SCALE = 0.4


@pytest.fixture
def narrow_units(monkeypatch, gpu):
    if not gpu.startswith("simulator"):
        pytest.skip("matrix units of other devices are what they are")
    monkeypatch.setattr(HostUnits, "types", ("b16", "f16"))
    monkeypatch.setattr(convolutions, "LARGE_RESULT", 1)
    monkeypatch.setattr(convolutions, "LARGE_WINDOW", 1)
    with lg.default_device(gpu):
        yield


def near(got, wanted, limit=1e-6):
    wanted = np.asarray(wanted)
    assert np.linalg.norm(np.asarray(got, np.float64) - wanted) <= limit * np.linalg.norm(wanted)


@pytest.mark.usefixtures("narrow_units")
def test_attention_has_the_digits_of_float32():
    rng = np.random.default_rng(5)
    q, k, v, ct = (rng.normal(size=shape).astype(np.float32) for shape in ((19, 12), (37, 12), (37, 20), (19, 20)))

    def loss(q, k, v):
        result = lg.attention(q, k, v, scale=SCALE)
        return lg.sum(result * ct), result

    function = lg.compile(lg.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))
    given = [lg.asarray(x) for x in (q, k, v)]
    assert all("matrix units" in row.provider for row in function.plan(*given).routines)
    (_, result), found = function(*given)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    weights, wanted = by_numpy(*wide, scale=SCALE)
    near(result, wanted)
    for got, right in zip(found, derivatives(*wide, ct, np.zeros((1, 1)), weights, wanted, SCALE), strict=False):
        near(got, right)


@pytest.mark.usefixtures("narrow_units")
def test_infinite_factors_give_infinite_sums():
    """And NaN with zeros, as by NumPy."""
    rng = np.random.default_rng(6)
    x, kernel = rng.normal(size=(1, 5, 9, 9)).astype(np.float32), rng.normal(size=(18, 5, 3, 3)).astype(np.float32)
    function = lg.compile(lambda x, kernel: lg.conv(x, kernel))
    near(function(lg.asarray(x), lg.asarray(kernel)), convolved(x.astype(np.float64), kernel, 1, 0, 1, 1))
    x[0, 2, 4, 4], kernel[3, 2, 1, 1], kernel[4, 2, 1, 1], x[0, 0, 8, 8] = np.inf, 0.0, -2.0, np.nan
    got = np.asarray(function(lg.asarray(x), lg.asarray(kernel)))
    with np.errstate(invalid="ignore"):
        wanted = convolved(x.astype(np.float64), kernel, 1, 0, 1, 1)
    assert np.isinf(wanted).any()
    assert (np.isnan(got) == np.isnan(wanted)).all()
    assert (got[np.isinf(wanted)] == wanted[np.isinf(wanted)]).all()
