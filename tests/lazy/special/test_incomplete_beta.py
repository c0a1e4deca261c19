"""The incomplete beta function over the whole plane of its shapes: against SciPy's values, and numbers of 25 digits by
mpmath's hypergeometric series and central differences of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import loopgrad as lg

# a, b, x, betainc, betaincc, and the derivatives of betaincc by all three
KNOWN = np.array([
    (1e-17, 0.3, 1e-30, 0.9999999999999993, 7.200286134711995e-16, 72.00286134711992, -1.2245364546107723e-16,
     -9999999999999.992),
    (1e-10, 0.3, 0.02, 0.9999999993176789, 6.823211111754039e-10, 6.823211108897622, -1.2225121071592534e-09,
     -5.0712118203968305e-09),
    (1e-17, 1e6, 1e-18, 0.9999999999999998, 2.70538059510281e-16, 27.053805951028092, -1.0000004999991665e-23,
     -9.999999999989997),
    (1e-300, 2.0, 1e-300, 1.0, 6.897755278982137e-298, 689.7755278982137, -6.449340668482265e-301, -1.0),
    (0.3, 1e-10, 0.02, 1.0356438771806482e-10, 0.9999999998964356, 7.49125153840636e-10, -1.0356438768772063,
     -1.5778035439790917e-09),
    (2e-05, 3e-09, 0.4, 0.0001499762871317634, 0.9998500237128682, 7.497750516761546, -49984.59802088786,
     -1.2497896225827739e-08),
    (0.6, 40.0, 0.01, 0.5598426117489415, 0.4401573882510585, 0.6673812376752154, -0.006526351707060372,
     -26.106944852203128),
    (0.6, 40.0, 0.2, 0.999962609273668, 3.73907263320416e-05, 0.0001387064598267633, -8.685134388072694e-06,
     -0.0019367829662607125),
    (0.02, 7.5, 1e-09, 0.6946944421274723, 0.30530555787252767, 12.663495219854696, -0.001978673548463709,
     -13893888.754009958),
    (1e-12, 1e9, 3e-08, 1.0, 3.0215506538458833e-27, 3.021550653857999e-15, -9.357618902991049e-35,
     -3.119206346225509e-18),
    (2.5, 1e-08, 0.7, 3.5610884554835173e-09, 0.9999999964389116, 2.3572974877391267e-09, -0.3561088472088647,
     -1.9522067300709854e-08),
    (30.0, 0.4, 0.999, 0.7261752412565641, 0.273824758743436, 0.003609997841571582, -0.9483216771199279,
     -107.27927992069208),
    (250.0, 900.0, 0.23, 0.8498840549673268, 0.15011594503267323, 0.012868950513338523, -0.0037055425043986717,
     -18.67014710371758),
])  # fmt: skip


@pytest.mark.usefixtures("formulas_alone")
def test_values_and_derivatives() -> None:
    """By each argument, of both functions, in both modes."""
    *arguments, below, above, by_a, by_b, by_x = KNOWN.T
    expected = np.array([by_a, by_b, by_x])
    operands = tuple(map(lg.asarray, arguments))
    for name, value, sign in (("betaincc", above, 1.0), ("betainc", below, -1.0)):
        function = getattr(lg.special, name)
        slopes = lg.grad(lambda *a, f=function: lg.sum(f(*a)), (0, 1, 2))(*operands)
        along = [[lg.ones_like(x) if i == k else lg.zeros_like(x) for i, x in enumerate(operands)] for k in range(3)]
        found = [function(*operands), slopes, [lg.jvp(function, operands, tuple(ts))[1] for ts in along]]
        lg.eval(found)  # one program, in which much is shared
        np.testing.assert_allclose(found[0], value, 2e-14, err_msg=name)
        for mode in found[1:]:
            np.testing.assert_allclose([np.asarray(s) for s in mode], sign * expected, 2e-12, err_msg=name)


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_shapes_of_all_sizes(dtype: type) -> None:
    """On the CPU. Errors grow with the logarithm of the value, and by what the arguments' last digits change."""
    rng, narrow = np.random.default_rng(5), dtype is np.float32
    for least in (-2.0, -8.0, -30.0):
        a, b = 10.0 ** rng.uniform(least, 3.0, (2, 400))
        small = 10.0 ** rng.uniform(least, np.log10(0.5), 400)
        near = 1.0 / (1.0 + b / a * np.exp(2.0 * rng.normal(size=400) * np.sqrt(np.minimum(1.0 / a + 1.0 / b, 4.0))))
        x = np.where(rng.random(400) < 0.3, small, np.where(rng.random(400) < 0.3, 1.0 - small, near))
        a, b, x = (v.astype(dtype) for v in (a, b, np.where((x > 0.0) & (x < 1.0), x, 0.5)))
        for name in ("betainc", "betaincc"):
            found = np.asarray(getattr(lg.special, name)(a, b, x), np.float64)
            expected = getattr(special, name)(*[v.astype(np.float64) for v in (a, b, x)])
            tolerance, floor = (3e-4, 1e-36) if narrow else (2e-12, 1e-290)
            np.testing.assert_allclose(found, expected, tolerance, floor, err_msg=f"{name} from {least}")


@pytest.mark.usefixtures("formulas_alone")
def test_shapes_beyond_all_measure() -> None:
    """Where shapes are so large or small that a value is 0 or 1, it and its slopes are numbers."""
    sizes = np.array([3e-308, 1e-300, 1e-160, 1e-17, 1.0, 1e17, 1e160, 1e300])
    x = np.array([1e-300, 1e-17, 0.3, 0.5, 1.0 - 2.0**-53])
    operands = tuple(lg.asarray(v.ravel()) for v in np.meshgrid(sizes, sizes, x))
    for function in (lg.special.betainc, lg.special.betaincc):
        value = function(*operands)
        slopes = lg.grad(lambda *a, f=function: lg.sum(f(*a)), (0, 1, 2))(*operands)
        lg.eval([value, slopes])
        assert ((np.asarray(value) >= 0.0) & (np.asarray(value) <= 1.0)).all()
        assert not any(np.isnan(np.asarray(s)).any() for s in slopes)
