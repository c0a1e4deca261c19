"""SciPy's functions on tensors: the same numbers as on NumPy's arrays, as tensors.

Functions that SciPy hasn't brought to the standard get the elements: their numbers are right, as NumPy's arrays
(OUTSIDE). Some refuse tensors (REFUSED), none gives other numbers.

SciPy looks at SCIPY_ARRAY_API when it is imported, so `python -m tests.programs.scipy_functions` runs all rows in a
process of its own and prints those that are wrong; `test_scipy_functions.py` does that, on the interpreter: what is
asked is what SciPy calls and what it gets, not how a device computes (`--device cpu`). Rows are expressions of SciPy's
modules, of `xp` (NumPy, loopgrad) and of arrays. docs/interoperation.md lists the functions.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import numpy as np

MODULES: Final = (
    "special stats signal ndimage integrate interpolate cluster.vq cluster.hierarchy fft optimize.elementwise "
    "differentiate spatial.transform constants linalg optimize sparse sparse.linalg spatial spatial.distance"
)
ROWS: Final = """
    special.logsumexp(m, axis=1); special.softmax(m, axis=0); special.log_softmax(m, axis=1); special.expit(x)
    special.logit(p); special.erf(x); special.erfc(x); special.gammaln(pos); special.xlogy(pos, pos); special.entr(p)
    special.rel_entr(p, p[::-1]); special.ndtr(x); special.ndtri(p); special.log_ndtr(x); special.i0(x)
    special.i0e(x); special.i1(x); special.i1e(x); special.gammainc(pos, pos[::-1]); special.gammaincc(pos, pos[::-1])
    special.betainc(pos, pos[::-1], p); special.betaln(pos, pos[::-1]); special.chdtr(pos, pos)
    special.chdtrc(pos, pos); special.stdtr(pos, x); special.stdtrit(pos[:1], p[:1]); special.fdtr(pos, pos, pos)
    special.poch(pos, pos); special.sinc(x); special.digamma(pos); special.gamma(pos); special.zeta(pos+1.5, pos)
    special.polygamma(1, pos); special.multigammaln(pos+2, 2); special.xlog1py(pos, pos)
    special.kl_div(pos, pos[::-1]); special.huber(1.0, x); special.boxcox(pos, 0.5); special.exprel(x)
    stats.zscore(m); stats.zmap(x, y); stats.gzscore(pos); stats.moment(m, order=3); stats.skew(m)
    stats.kurtosis(m, axis=1); stats.describe(m).variance; stats.describe(x).skewness; stats.gmean(pos)
    stats.hmean(pos); stats.pmean(pos, 2); stats.variation(pos); stats.sem(m); stats.iqr(x); stats.entropy(p)
    stats.differential_entropy(b); stats.rankdata(i); stats.rankdata(m, axis=1); stats.mode(i).mode
    stats.ttest_1samp(x, 0.0).statistic; stats.ttest_1samp(x, 0.0).pvalue; stats.ttest_ind(x, y).pvalue
    stats.ttest_rel(x, y).statistic; stats.pearsonr(x, y).statistic; stats.pearsonr(x, y).pvalue
    stats.skewtest(x).statistic; stats.kurtosistest(x).pvalue; stats.normaltest(x).statistic
    stats.jarque_bera(x).statistic; stats.chisquare(cnt).statistic; stats.chisquare(cnt).pvalue
    stats.power_divergence(cnt, lambda_=0).statistic; stats.f_oneway(x, y).statistic; stats.bartlett(x, y).statistic
    stats.levene(x, y).statistic; stats.fligner(x, y).statistic; stats.ansari(x, y).statistic
    stats.mood(x, y).statistic; stats.kruskal(x, y).statistic; stats.alexandergovern(x, y).statistic
    stats.combine_pvalues(p).statistic; stats.false_discovery_control(p); stats.directional_stats(m).mean_direction
    stats.circmean(x); stats.circvar(x); stats.circstd(x); stats.trim_mean(x, 0.1); stats.tmean(x); stats.tvar(x)
    stats.tstd(x); stats.tsem(x); stats.tmin(x); stats.tmax(x); stats.quantile(x, xp.asarray([0.2, 0.5]))
    stats.boxcox_llf(0.5, pos); stats.yeojohnson_llf(0.5, x); stats.lmoment(x); stats.wilcoxon(x, y).statistic
    stats.mannwhitneyu(x, y).statistic; stats.brunnermunzel(x, y).statistic
    stats.friedmanchisquare(x, y, pos).statistic; stats.gstd(pos); stats.chatterjeexi(x, y).statistic
    signal.fftconvolve(x, y); signal.oaconvolve(b, w); signal.convolve(x, w); signal.correlate(x, w)
    signal.detrend(x); signal.hilbert(x); signal.resample(x, 15); signal.resample_poly(x, 2, 3); signal.upfirdn(w, x)
    signal.filtfilt(w, xp.asarray([1.0, 0.2]), b); signal.medfilt(b, 3)
    signal.lfilter_zi(w, xp.asarray([1.0, 0.2, 0.1])); signal.freqz(w)[1]
    signal.group_delay((w, xp.asarray([1.0])))[1]; signal.lombscargle(pos, x, w); signal.cspline1d(x)
    signal.qspline1d(x); signal.tf2zpk(w, w)[2]; signal.zpk2tf(w, w, 1.0)[0]; signal.bilinear(w, w)[0]
    signal.argrelmax(b)[0]; signal.vectorstrength(pos, 1.5)[0]; signal.deconvolve(signal.convolve(x, w), w)[0]
    signal.envelope(b);
    integrate.trapezoid(m, axis=0); integrate.cumulative_trapezoid(x); integrate.cumulative_simpson(x)
    integrate.romb(x[:17]); integrate.tanhsinh(lambda t: xp.exp(-t*t), xp.asarray(0.0), xp.asarray(1.0)).integral
    integrate.cubature(lambda t: xp.sum(t*t, axis=-1), xp.asarray([0.0,0.0]), xp.asarray([1.0,1.0])).estimate
    integrate.nsum(lambda k: 1/k**2, xp.asarray(1.0), xp.asarray(float('inf'))).sum
    differentiate.derivative(lambda t: xp.exp(t), p).df; differentiate.jacobian(lambda t: xp.sin(t), w).df
    differentiate.hessian(lambda t: xp.sum(t**3, axis=0), w).ddf
    optimize.elementwise.find_root(lambda t: t**2-2, (xp.asarray(0.0), xp.asarray(2.0))).x
    optimize.elementwise.find_minimum(lambda t: (t-1)**2, (xp.asarray(-1.0), xp.asarray(0.5), xp.asarray(3.0))).x
    optimize.elementwise.bracket_root(lambda t: t**3-2, xp.asarray(0.5)).bracket[0]; optimize.rosen(w)
    optimize.rosen_der(w); optimize.rosen_hess(w)
    interpolate.CubicSpline(xp.sort(x), y)(p); interpolate.PchipInterpolator(xp.sort(x), y)(p)
    interpolate.Akima1DInterpolator(xp.sort(x), y)(p); interpolate.CubicHermiteSpline(xp.sort(x), y, y)(p)
    interpolate.make_interp_spline(xp.sort(x), y)(p); interpolate.RBFInterpolator(obs, obs[:, 0])(obs[:3])
    interpolate.RegularGridInterpolator((w, w), xp.ones((3,3)))(obs[:2]*0+1.5)
    interpolate.BSpline(xp.asarray([0.,0,1,2,3,3]), w, 2)(p); interpolate.PPoly(m[:3,:2], xp.asarray([0.,1,2]))(p)
    ndimage.gaussian_filter(g, 1.0); ndimage.gaussian_filter1d(x, 1.0); ndimage.uniform_filter(g, 3)
    ndimage.median_filter(g, 3); ndimage.maximum_filter(g, 3); ndimage.minimum_filter(g, 3)
    ndimage.percentile_filter(g, 30, 3); ndimage.rank_filter(g, 2, 3); ndimage.convolve(g, k3)
    ndimage.correlate(g, k3); ndimage.convolve1d(x, w); ndimage.sobel(g); ndimage.prewitt(g); ndimage.laplace(g)
    ndimage.gaussian_laplace(g, 1.0); ndimage.gaussian_gradient_magnitude(g, 1.0); ndimage.zoom(g, 1.5)
    ndimage.rotate(g, 30); ndimage.shift(g, 0.5); ndimage.affine_transform(g, xp.asarray([[1.0,0.1],[0.0,1.0]]))
    ndimage.map_coordinates(g, xp.asarray([[1.0,2.5],[0.5,3.0]])); ndimage.spline_filter(g); ndimage.label(g > 0)[0]
    ndimage.sum_labels(g, ndimage.label(g > 0)[0]); ndimage.mean(g); ndimage.variance(g)
    ndimage.center_of_mass(xp.abs(g))[0]; ndimage.histogram(g, -1, 1, 5); ndimage.binary_dilation(g > 0)
    ndimage.binary_erosion(g > 0); ndimage.binary_opening(g > 0); ndimage.binary_fill_holes(g > 0)
    ndimage.distance_transform_edt(g > 0); ndimage.grey_dilation(g, 3); ndimage.morphological_gradient(g, 3)
    ndimage.white_tophat(g, 3)
    cluster.vq.whiten(obs); cluster.vq.vq(obs, obs[:3])[0]; cluster.vq.kmeans(obs, obs[:3])[0]
    cluster.vq.kmeans2(obs, obs[:3])[0]; cluster.hierarchy.linkage(obs)
    cluster.hierarchy.cophenet(cluster.hierarchy.linkage(obs))
    cluster.hierarchy.fcluster(cluster.hierarchy.linkage(obs), 1.0)
    fft.fft(x); fft.ifft(cx); fft.rfft(x); fft.irfft(cx); fft.fftn(g); fft.fftshift(x); fft.dct(x); fft.idct(x)
    fft.dst(x); fft.fht(x, 0.1, 0.0)
    spatial.transform.Rotation.from_quat(xp.asarray([0.0,0.0,0.6,0.8])).as_matrix()
    spatial.transform.Rotation.from_euler('zyx', w).apply(w)
    constants.convert_temperature(w, 'Celsius', 'Kelvin'); constants.lambda2nu(w)
"""

OUTSIDE: Final = """
    linalg.inv(s); linalg.svd(m)[1]; linalg.expm(s); linalg.solve(s, s[0]); linalg.cholesky(s @ s.T + xp.eye(4))
    linalg.lu(s)[2]; linalg.eigh(s @ s.T)[0]; linalg.qr(s)[1]; linalg.norm(s); linalg.schur(s)[0]; linalg.hankel(w)
    linalg.sqrtm(s @ s.T); linalg.null_space(s[:3]) ** 2; linalg.lstsq(m, m[:, 0])[0]; linalg.det(s); linalg.pinv(m)
    signal.welch(b)[1]; signal.find_peaks(b)[0]; signal.savgol_filter(b, 5, 2); signal.stft(b)[2]
    signal.decimate(b, 2); signal.spectrogram(b)[2]; signal.wiener(b); signal.csd(b, b)[1]; signal.coherence(b, b)[1]
    stats.linregress(x, y).slope; stats.kendalltau(x, y).statistic; stats.ks_2samp(x, y).statistic; stats.norm.pdf(x)
    stats.norm.fit(x); stats.gaussian_kde(x)(y); stats.ecdf(x).cdf.quantiles; stats.tukey_hsd(x, y).statistic
    stats.binned_statistic(x, y, bins=3).statistic; stats.chi2_contingency(xp.reshape(cnt, (2, 3))).statistic
    stats.anderson_ksamp([x, y]).statistic; stats.theilslopes(y, x)[0]; stats.cramervonmises_2samp(x, y).statistic
    stats.epps_singleton_2samp(x, y).statistic; stats.energy_distance(x, y); stats.wasserstein_distance(x, y)
    stats.bws_test(x, y).statistic; stats.sigmaclip(x)[0]; stats.somersd(i, i).statistic
    optimize.curve_fit(lambda t, a, c: a * t + c, x, y)[0]; optimize.nnls(obs, obs[:, 0])[0]
    optimize.lsq_linear(obs, obs[:, 0]).x; optimize.linear_sum_assignment(s)[1]; optimize.fsolve(lambda t: t**2 - 2, w)
    optimize.linprog(xp.ones(2), A_ub=-xp.eye(2), b_ub=-w[:2]).x; optimize.root(lambda t: t**2 - 2, w).x
    optimize.least_squares(lambda t: np.asarray(t) - 1.0, w).x; optimize.newton(lambda t: t**2 - 2, w)
    integrate.simpson(x); integrate.solve_ivp(lambda t, u: -u, (0, 1), w).y; integrate.fixed_quad(xp.sin, 0, 1)[0]
    integrate.odeint(lambda u, t: -u, w, xp.sort(p)); interpolate.interp1d(xp.sort(x), y)(xp.sort(x))
    interpolate.griddata(obs, obs[:, 0], obs[:2]); interpolate.UnivariateSpline(xp.sort(x), y)(xp.sort(x))
    interpolate.splev(p, interpolate.splrep(xp.sort(x), y)); interpolate.make_smoothing_spline(xp.sort(x), y)(p)
    interpolate.NearestNDInterpolator(obs, obs[:, 0])(obs[:2])
    interpolate.interpn((w, w), xp.ones((3, 3)), obs * 0 + 2)
    interpolate.BarycentricInterpolator(w, w)(p); interpolate.KroghInterpolator(w, w)(p)
    sparse.csr_array(s).toarray(); sparse.csr_array(s) @ s[0]; sparse.eye_array(4) @ s; sparse.coo_array(s).sum()
    spatial.cKDTree(obs).query(obs[:2])[1]; spatial.distance.cdist(obs[:2], obs); spatial.distance.pdist(obs)
    spatial.ConvexHull(obs).vertices; spatial.Delaunay(obs).simplices; spatial.procrustes(obs, obs)[2]
    special.jv(0, x); special.comb(5, i); special.lambertw(pos); special.ellipk(p); special.binom(pos, 2)
    special.erfinv(p); special.expi(p); special.hyp2f1(1, 2, 3, p); special.loggamma(pos); special.eval_legendre(2, x)
    special.sph_harm_y(1, 0, x, x); special.wofz(x); special.factorial(i); special.kv(1, pos); special.ellipj(x, 0.5)[1]
    ndimage.generic_filter(g, np.mean, 3); ndimage.fourier_gaussian(fft.fftn(g), 1.0)
"""
REFUSED: Final = {
    "linalg.toeplitz(w)": "walks by strides: np.asarray(w)",
    "signal.lfilter([1.0], [1.0, 0.5], x)": "all arrays of a call from one library: lg.asarray the coefficients",
    "signal.peak_prominences(x, [3])": "the same",
    "stats.spearmanr(x, y)": "takes masks in a function of np.apply_along_axis: np.asarray",
    "stats.shapiro(x)": "wants a buffer of C: np.asarray",
    "sparse.linalg.cg(s @ s.T, s[0])": "asks for NumPy's class: np.asarray",
}


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    s = rng.normal(size=(4, 4))
    return {
        "x": rng.normal(size=30), "y": rng.normal(size=30), "m": rng.normal(size=(8, 5)), "s": s,
        "p": rng.uniform(0.1, 0.9, size=30), "pos": rng.uniform(0.5, 5, size=30), "i": np.arange(12) % 5,
        "g": rng.normal(size=(9, 9)), "b": rng.normal(size=100), "w": np.array([1.0, 2, 3]),
        "obs": rng.normal(size=(20, 2)), "cx": rng.normal(size=8) + 1j * rng.normal(size=8),
        "cnt": np.array([16.0, 18, 16, 14, 12, 12]), "k3": np.ones((3, 3)) / 9,
    }  # fmt: skip


def rows(text: str = ROWS) -> list[str]:
    return [row.strip() for line in text.strip().splitlines() for row in line.split(";") if row.strip()]


def functions() -> list[str]:
    """The names of the functions that rows call."""
    return sorted({row.partition("(")[0] for row in (*rows(), *rows(OUTSIDE), *REFUSED)})


def wrong(device: str, part: slice) -> Iterator[str]:
    """Those of a part of the rows that give something else on the device, or no tensor, and what they give."""
    os.environ["SCIPY_ARRAY_API"] = "1"
    import loopgrad as lg  # late: after the variable

    for name in MODULES.split():
        import_module(f"scipy.{name}")
    scipy = vars(import_module("scipy"))
    with lg.default_device(device):
        tensors = {name: lg.asarray(x) for name, x in arrays().items()}
    for row in (*rows(), *rows(OUTSIDE))[part]:
        wanted = leaves(eval(row, {**scipy, **arrays(), "xp": np, "np": np}))
        try:
            with lg.default_device(device):  # where they are looked at, too: that is when they are computed
                got = leaves(eval(row, {**scipy, **tensors, "xp": lg, "np": np}))
                if row in rows():
                    assert [type(g) for g in got] == [lg.Tensor] * len(wanted), {type(g).__name__ for g in got}
                for ours, theirs in zip(got, wanted, strict=True):
                    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-9, atol=1e-9)
        except Exception as error:
            yield f"{row}: {type(error).__name__} {error}"
    for row in REFUSED:
        with suppress(TypeError, AttributeError), lg.default_device(device):
            yield f"{row}: isn't refused, but gives {eval(row, {**scipy, **tensors, 'xp': lg})}"


def leaves(result: Any) -> list[Any]:
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, list | tuple) else [result]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="interpreter")
    parser.add_argument("--part", default="0/1", help="K/N: every N-th row from the K-th on")
    chosen = parser.parse_args()
    first, step = map(int, chosen.part.split("/"))
    for line in wrong(chosen.device, slice(first, None, step)):
        print(" ".join(line.split()))
