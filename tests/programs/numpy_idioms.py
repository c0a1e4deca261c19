"""Idioms of scripts for NumPy: expressions, and statements that leave a result in `r`.

`xp` is NumPy or loopgrad, `np` NumPy in both; the others are arrays, or what `test_numpy_idioms.py` makes beside them.
"""

from __future__ import annotations

from typing import Final

# separated by ||
EXPRESSIONS: Final = r"""
x[None, ..., 1] || x[..., None, :] || x[[2, 0], :][:, [1, 3]] || x[x > 0] || x[~(x > 0)]
x[np.ix_([0, 2], [1, 3])] || x[xp.ix_([0, 2], [1, 3])] || x[1:, ::-2] || x[::-1].T[0] || x[-1, -1]
x[(0, 1), (2, 3)] || x[xp.array([True, False, True])] || x[:, x[0] > 0] || x[[]] || x[np.array([], dtype=int)]
x[..., 0, None] || x[1][2] || x[np.newaxis].shape || x[slice(0, 2)] || x[i[0]] || x[i, :2] || x[i[:, None], i]
xp.where(x > 0)[0] || xp.where(x > 0, x, 0) || xp.where(x > 0, x, -1.5)
xp.select([x > 1, x < 0], [x, -x], 7.0) || xp.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v * 2])
xp.apply_along_axis(lambda r: r.sum(), 1, x) || xp.apply_along_axis(lambda r: r * 2, 0, x)
xp.einsum("ij,kj->ik", x, x, optimize=True) || xp.einsum("ij->j", x) || xp.einsum("ij,ij", x, x)
xp.einsum(x, [0, 1], [1, 0]) || np.sum(x) || np.mean(x, axis=0) || np.dot(x, x.T)
np.concatenate([x, x], axis=1) || np.stack([x, x]).shape || np.linalg.norm(x) || np.maximum(x, n) || n + x
x + n || n @ x.T || n * x[0] || n > x || np.where(x > 0, x, n) || np.float32(2) * x || 2 ** x || x ** 2
x ** -1.0 || x ** 0.5 || (-2) ** k || k ** 2 || k // 2 || k % 3 || -k // 2 || divmod(k, 3)[1] || divmod(x, 2)[0]
7 // (k + 1) || 7 % (k + 1) || 1 / (k + 1) || k / 2 || k << 1 || k >> 1 || ~k || k & 3 || k | 8 || k ^ 5
(k > 1) & (k < 4) || (k > 1) | (k == 0) || ~(k > 1) || -(x) || +x || abs(x) || round(x[0, 1], 2)
abs(-3.5 * x) || (0 < x) & (x < 2) || [float(v) for v in x[0]] || list(map(float, x[0])) || [r.sum() for r in x]
sum(x[0]) || sum(v * v for v in x[0]) || max(x[0]) || min(x[0]) || sorted(x[0].tolist()) || sorted(x[0])
[float(a * b) for a, b in zip(x[0], x[1])] || 1.5 in x || 99.0 in x || bool(x[0, 0] > 0) || int(k[2])
float(x[0, 0]) || complex(x[0, 0]) || range(10)[k[2]] || [10, 20, 30][k[1]] || len(x) || x.shape[0] || x.size
x.ndim || x.dtype == np.float64 || x.dtype == "float64" || x.dtype.kind || x.dtype.itemsize || x.itemsize
x.nbytes || pickle.loads(pickle.dumps(x)) || copy.copy(x) || copy.deepcopy(x) || math.sqrt(x[0, 1])
math.sin(x[0, 0]) || math.floor(x[0, 1]) || math.isfinite(x[0, 0]) || math.fsum(x[0]) || math.exp(x[0, 0])
math.pi * x || math.hypot(x[0,0], x[0,1]) || math.ceil(x[0,0]) || math.trunc(x[0,0]) || f"{x[0, 0]:.3f}"
f"{float(x.sum()):8.3f}" || "%.2f" % x[0, 0] || "{:.1e}".format(x[0, 1]) || str(k) || repr(float(x[0,0]))
str(x[0, 0]) || f"{k[1]:d}" || f"{k}" || "%d" % k[1] || f"{x[0]}" || str(x > 0) || str(x) || x.T
x.reshape(-1) || x.reshape(2, -1) || x.reshape((2, 6), order="F") || x.ravel("F") || x.flatten()
x.sum(axis=(0, 1)) || x.mean(0, keepdims=True) || x.std(ddof=1) || x.var(axis=1, ddof=1) || x.argmax()
x.argmax(axis=1) || x.argmin(0) || x.max(axis=1) || x.cumsum() || x.cumsum(1) || x.clip(0, 1) || x.clip(min=0)
x.clip(max=0) || x.round(1) || x.dot(x.T) || x.astype(int) || x.astype("f4") || x.astype(bool) || x.any()
x.all(axis=0) || x.nonzero()[0] || x.trace() || x.diagonal() || x.repeat(2) || x.repeat(2, axis=0)
x.take([0, 1]) || x.take([0, 1], axis=1) || x.swapaxes(0, 1) || x.transpose(1, 0) || x.transpose()
x.squeeze() || x.prod() || x.item(3) || x.tolist() || x.real || x.imag || x.conj() || x.fill(3) or x
x.tobytes() || len(x.flat) || x.flat[3] || list(x.flat)[2] || [float(v) for v in x.flat][:3] || x.mT || x.copy()
x.view() || x.sort() or x || x.argsort(axis=0) || x.compress([True, False, True], axis=0) || x.max(initial=10)
x.sum(where=x > 0) || x.__len__() || x.__array__().sum() || np.array(x) || np.asarray(x).sum()
np.array([x[0, 0], x[0, 1]]) || xp.array([x[0], x[1]]) || xp.array([[1, 2], [3, 4]]) @ k[:2]
xp.array([x[0, 0], 1.0, 2]) || xp.asarray([1, 2.5]) || xp.array(x[0]) || xp.array((1, 2, 3))
xp.array(range(3)) || xp.array([True, False]) || xp.array(3.5) || xp.array([1, 2], dtype=float)
xp.array([1, 2], "f4") || xp.array([1+2j]) || xp.array([[]]).shape || xp.array(x, ndmin=3).shape
xp.array([1,2], ndmin=2) || xp.zeros(3) || xp.zeros((2, 3), int) || xp.ones_like(x) || xp.full((2,), 7)
xp.full_like(k, 2.5) || xp.arange(5) || xp.arange(2, 8, 2) || xp.arange(0, 1, 0.25) || xp.arange(5.0)
xp.arange(3, dtype=xp.float32) || xp.linspace(0, 1, 5) || xp.linspace(0, 1, 5, endpoint=False)
xp.linspace(0, 1, 3, retstep=True)[1] || xp.logspace(0, 2, 3) || xp.eye(3) || xp.eye(3, k=1) || xp.identity(2)
xp.diag([1, 2]) || xp.diag(x[:, :3]) || xp.tri(3) || xp.meshgrid(k, k)[0] || xp.meshgrid(k, k, indexing="ij")[0]
xp.mgrid[0:2, 0:3] || xp.mgrid[0:1:3j] || xp.ogrid[0:2, 0:3][0] || xp.r_[1, 2, k] || xp.c_[k, k]
xp.indices((2, 2)) || xp.fromfunction(lambda a, b: a + b, (2, 3)) || xp.empty(3).shape || xp.tile(k, 2)
xp.tile(x, (2, 1)).shape || xp.repeat(k, 2) || xp.repeat(k, [1, 2, 0, 1, 1]) || xp.roll(k, 2)
xp.roll(x, 1, axis=0) || xp.flip(x) || xp.vander(k[:3]) || xp.geomspace(1, 8, 4) || xp.sum([1, 2, 3])
xp.mean([1, 2, 4]) || xp.max([3, 1]) || xp.sqrt(4) || xp.sqrt([1, 4]) || xp.exp(0) || xp.log(xp.e)
xp.sin(xp.pi) || xp.abs(-3) || xp.add(1, 2) || xp.maximum(1, [0, 2]) || xp.minimum(x, 1) || xp.hypot(3, 4)
xp.arctan2(1, 1) || xp.clip(x, None, 1) || xp.clip(5, 0, 3) || xp.sign(x) || xp.floor(x) || xp.round(x, 1)
xp.rint(x) || xp.mod(-7, 3) || xp.power(2, 3) || xp.power(2.0, k) || xp.cumsum([1, 2, 3]) || xp.cumprod(k + 1)
xp.diff(k) || xp.diff(x, axis=0, n=2) || xp.prod([]) || xp.sum([]) || xp.dot(3, 4) || xp.dot(k, k)
xp.inner(k, k) || xp.outer(k, k) || xp.cross([1, 0, 0], [0, 1, 0]) || xp.kron([1, 2], [1, 1]) || xp.trapezoid(k)
xp.trapezoid(x, dx=0.5) || xp.interp(2.5, k, k * k) || xp.interp([0.5, 9], k, k * 2, left=-1, right=-2)
xp.gradient(x[0]) || xp.convolve([1, 2, 3], [0, 1, 0.5]) || xp.convolve(k, [1, 1], "same")
xp.polyfit(k, k * k, 2).round(6) || xp.polyval([1, 2, 3], 2) || xp.roots([1, -3, 2]).real
xp.histogram(x, bins=3)[0] || xp.bincount(k) || xp.digitize(x, [0, 1]) || xp.unique([3, 1, 1])
xp.unique(k % 2, return_counts=True)[1] || xp.sort([3, 1, 2]) || xp.argsort(-k) || xp.percentile(x, 50)
xp.percentile(x, [25, 75]) || xp.quantile(x, 0.3, axis=0) || xp.median(x, axis=1)
xp.average(k, weights=k + 1) || xp.cov(x).shape || xp.corrcoef(x)[0, 1] || xp.nanmean([1, xp.nan])
xp.isnan([1, xp.nan]) || xp.nan_to_num([xp.nan, xp.inf]) || xp.allclose(x, x) || xp.isclose(x, x + 1e-9).all()
xp.array_equal(k, k) || xp.any(x > 0) || xp.all(x > 0, axis=0) || xp.count_nonzero(x > 0) || xp.argwhere(x > 1)
xp.flatnonzero(x > 1) || xp.nonzero(k)[0] || xp.searchsorted(k, 2.5) || xp.searchsorted(k, [0, 9], side="right")
xp.isin(k, [1, 2]) || xp.union1d(k, [9]) || xp.setdiff1d(k, [1]) || xp.intersect1d(k, [1, 7])
xp.vstack([k, k]) || xp.hstack([k, k]) || xp.column_stack([k, k]) || xp.dstack([k, k]).shape
xp.concatenate([k, [1.5]]) || xp.append(k, 9) || xp.insert(k, 1, 9) || xp.delete(k, 1) || xp.split(k, [2])[0]
xp.array_split(k, 2)[1] || xp.expand_dims(k, 0) || xp.squeeze(x[None]) || xp.atleast_2d(k)
xp.broadcast_to(k, (2, 5)) || xp.broadcast_arrays(k, k[:, None])[0] || xp.moveaxis(x[None], 0, -1).shape
xp.triu(x) || xp.tril(x, -1) || xp.trace(x) || xp.fill_diagonal(x, 0) or x || xp.unravel_index(5, (2, 3))
xp.ravel_multi_index((1, 2), (2, 3)) || xp.tril_indices(3)[0] || xp.pad(k, 1) || xp.pad(k, (1, 2), mode="edge")
xp.pad(x, ((0, 1), (1, 0)), constant_values=9) || xp.rot90(x) || xp.lexsort((k, -k))
xp.take_along_axis(x, x.argsort(1), 1) || xp.put_along_axis(x, x.argmax(1)[:, None], 0, 1) or x
xp.copyto(x, 1.0, where=x > 0) or x || xp.putmask(x, x > 1, 0) or x || xp.place(x, x > 1, [7, 8]) or x
xp.extract(x > 0, x) || xp.ediff1d(k) || xp.trim_zeros([0, 1, 0]) || xp.result_type(k, 1.0) == np.float64
xp.iinfo(xp.int8).max || xp.finfo(float).tiny || xp.issubdtype(x.dtype, xp.floating) || xp.ndim(3)
xp.size(x, 0) || xp.shape([[1]]) || xp.can_cast(int, float) || xp.vectorize(lambda a: a * 2)(k)
xp.linalg.inv(x[:, :3] + 3 * xp.eye(3)) || xp.linalg.solve(x[:, :3] + 3 * xp.eye(3), x[:, 0])
xp.linalg.det(x[:, :3]) || xp.linalg.eigh(x[:, :3] @ x[:, :3].T)[0]
xp.linalg.eigh(x[:, :3] @ x[:, :3].T).eigenvalues || xp.linalg.svd(x)[1] || xp.linalg.svd(x, compute_uv=False)
xp.linalg.lstsq(x, x[:, 0], rcond=None)[0] || xp.linalg.matrix_rank(x) || xp.linalg.norm(x, axis=1)
xp.linalg.norm(x, "fro") || xp.linalg.norm(x, ord=np.inf) || xp.linalg.pinv(x)
xp.linalg.matrix_power(x[:, :3], 2) || xp.fft.fft(k) || xp.fft.rfftfreq(5) || xp.fft.ifft(xp.fft.fft(k)).real
xp.array2string(x, precision=2) || xp.array_repr(k) == "" or 1 || xp.array_str(k)
xp.format_float_positional(x[0, 0]) || xp.format_float_scientific(x[0, 1]) || xp.base_repr(5, 2)
xp.binary_repr(5) || xp.get_printoptions()["precision"] || xp.ndindex(2, 2).__next__() || list(xp.ndindex(2, 2))
[i for i, v in xp.ndenumerate(k)] || xp.polyder([1, 2, 3]) || xp.polyint([1, 2]) || xp.polymul([1, 2], [1, 3])
xp.polydiv([1, 5, 6], [1, 2])[0] || xp.polyadd([1, 2], [1]) || xp.polysub([1, 2], 1) || xp.float64(3)
xp.int32(7) || xp.float32("1.5") || xp.bool_(1) || xp.int64(k[1]) || xp.float64(x[0, 0])
isinstance(k[1].item(), int) || isinstance(x[0, 0].item(), float) || xp.isscalar(3) || xp.iterable(x)
hash(float(x[0, 0])) || x is x || not x[0, 0] == 1 || (x == x).all() || (x != x).any()
x[0, 0] if x[0, 0] > 100 else 5 || {"a": x}["a"] || dataclasses.replace(Point(x, k), v=x + 1).v
Point(x, k).x + 1 || [*k] || (lambda a, b, *c: c)(*k) || tuple(k.shape) || x.shape == (3, 4)
"%s" % (x.shape,) || x[0].tolist() + [1] || max(k, key=lambda v: -v) || list(enumerate(k))[1]
list(reversed(k)) || any(k) || all(k) || any(v > 1.0 for v in x[0]) || k.argsort()[::-1] || k[::-1]
k[k.argsort()] || k[-3:] || k[1:-1] || k.max() - k.min() || x / x.sum(axis=1, keepdims=True)
(x - x.mean(0)) / x.std(0) || x @ x.T || x.T @ x || k @ k || x[:, 0] @ x
xp.sum(x ** 2, axis=-1, keepdims=True) || xp.sqrt((x ** 2).sum(-1))
((x[:, None, :] - x[None, :, :]) ** 2).sum(-1) || xp.exp(x) / xp.exp(x).sum(1)[:, None]
xp.loadtxt(["1 2", "3 4"]) || xp.fromstring("1 2", sep=" ") || xp.fromiter((v for v in range(3)), dtype=float)
xp.multiply.outer(k, k) || xp.add.reduce(x, axis=1) || xp.subtract.at(x, [0, 0], 1.0) or x || xp.frexp(x)[0]
xp.modf(x)[1] || xp.ldexp(x, 2) || xp.heaviside(x, 0.5) || xp.i0(x) || xp.sinc(x) || xp.unwrap(k * 2.0)
xp.angle(1j) || xp.real([1j]) || xp.nansum(x) || xp.ptp(x) || xp.block([[k[:2], k[2:]]])
xp.tensordot(x, x.T, 1) || xp.vdot(x, x) || xp.cumulative_sum(k) || xp.unstack(x)[0] || xp.matrix_transpose(x)
xp.concat([k, k]) || xp.permute_dims(x, (1, 0)) || xp.bitwise_count(k) || xp.isdtype(k.dtype, "integral")
xp.spacing(1.0) || xp.nextafter(1.0, 2.0) || xp.gcd(12, 18) || xp.lcm(4, 6) || xp.logaddexp(1, 2)
xp.float_power(2, -1) || xp.cbrt(8.0) || xp.deg2rad(180) || xp.fmax(1, xp.nan) || xp.trunc(-1.5)
xp.copysign(1, -2) || xp.signbit(-1.0) || xp.diagflat([1, 2]) || xp.resize(k, 7)
xp.choose([0, 1], [[1, 2], [3, 4]]) || xp.packbits([1, 0, 1]) || xp.apply_over_axes(xp.sum, x, [0, 1])
xp.average(x, axis=0)
"""

# what differs, and is documented: docs/numpy.md
DIFFERENT: Final = {
    "x.strides": "refused by name",
    "x.data.shape": "refused by name",
    "x.flags.c_contiguous": "refused by name",
    "x.base is None": "refused by name",
    "x.byteswap().shape": "refused by name",
    "x.resize((4, 3)) or x": "refused by name",
    "xp.asarray(x) is x": "another handle",
    "xp.finfo(xp.float32).eps": "a Python float, as the array API says",
    "xp.polyval(x, 2)": "a vector only",
    "x == None": "False",
    "xp.poly1d([1, 2])(3)": "refused by name",
}

# separated by empty lines
STATEMENTS: Final = r"""
y = x; y[0] = 9; r = x

y = x[0]; y += 1; r = x

y = x[:, 1]; y[:] = 0; r = x

x[x < 0] = 0; r = x

x[x < 0] += 5; r = x

x[[0, 0, 1]] += 1; r = x

x[:, None][0] = 3; r = x

x[1:] = x[:-1]; r = x

x[...] = 2; r = x

x[0], x[1] = x[1].copy(), x[0].copy(); r = x

x[::2, 1:3] = [[1, 2], [3, 4]]; r = x

x[:, 0] = k[:3]; r = x

x[0] = 7; x[0, 1:] *= 2; r = x

x -= x.mean(); x /= x.std(); r = x

k += 2; k *= 3; k //= 2; k %= 5; k <<= 1; k |= 1; k ^= 3; r = k

x.flat[2] = 9; r = x

x.flat = 0; r = x

x.T[0] = 5; r = x

x.ravel()[3] = 8; r = x

a, b, c = x; r = b

(a, b), (c, d) = x[:2, :2]; r = c

first, *rest = k; r = rest

r = 0.0
for row in x: r = r + row.sum()

r = []
for i, v in enumerate(k): r.append(int(v) * i)

total = xp.zeros(4)
for row in x: total += row
r = total

out = xp.empty_like(x); xp.add(x, 1, out=out); r = out

out = xp.zeros(3); x.sum(axis=1, out=out); r = out

np.add(x, 1, out=x); r = x

xp.multiply(x, 2, out=x, where=x > 0); r = x

m = x > 0; m &= x < 2; r = m

x[xp.where(x > 1)] = 0; r = x

x[np.arange(3), [0, 1, 2]] = -1; r = x

x[i] = x[i[::-1]]; r = x

n[0] = x[0]; r = n

n += np.asarray(x); r = n

with xp.printoptions(precision=2): r = str(x)

with np.printoptions(precision=2, suppress=True): r = str(x)

with xp.errstate(all="ignore"): r = xp.log(x * 0)

while x.sum() > 1: x = x / 2
r = x

r = k.copy(); r[r > 2] = 0

z = x + 0j; z.real = 1; z.imag[0] = 2; r = z

x.put([0, 1], [5, 6]); r = x

xp.put(x, [0, 1], 7); r = x

r = xp.zeros((2, 2)); r[0, 0], r[1, 1] = 1, 2

A = xp.eye(3); A[0] = k[:3] * 1.5; r = xp.linalg.det(A)

r = {float(v) for v in x[0]}

r = [int(v) for v in k if v % 2 == 0]

h = xp.histogram(x.ravel(), bins=[-3, 0, 1, 5]); r = h[0]

u, c = xp.unique(k % 3, return_counts=True); r = dict(zip(u.tolist(), c.tolist()))

q, rr = xp.linalg.qr(x[:, :3]); r = q @ rr

w, v = xp.linalg.eigh(x[:, :3] @ x[:, :3].T); r = w

r = np.array(x, dtype=np.float32)

r = np.zeros(3); r[:] = x[:, 0]

r = np.zeros(3); r += x[:, 0]

r = np.full(2, k[1])

r = np.arange(k[3])

r = np.zeros(k[2]) + x[0, 0]

r = xp.zeros(k[2])

r = xp.zeros((k[2], 3))

r = xp.arange(k[3])

r = x.reshape(k[1], -1)

r = x[: k[2]]

r = "ab" * k[2]

r = x.__class__.__name__ != ""
"""
