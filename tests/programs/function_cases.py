"""Every public function that takes floats, at ordinary points: what is called, and with which arrays.

A case is one function of a namespace `m` and of arrays, called twice: with loopgrad, and with NumPy, which
`function_reference.Reference` fills up with what it lacks. The points include those that a smooth function treats in a
piece of code of its own (0, ties, equal arguments, integers, both signs), because a derivative goes through that too;
where a function has a kink or no derivative, see `function_points.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...]]


def _array(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.float64)


X = _array(-1.7, -0.4, 0.3, 1.2, 2.6)
Y = _array(0.8, -1.1, 2.3, -0.6, 1.9)
POSITIVE = _array(0.2, 0.9, 1.0, 2.0, 3.7)
WITH_ZERO = _array(-2.0, -1.0, 0.0, 1.0, 2.0)
INSIDE = _array(-0.9, -0.5, 0.0, 0.3, 0.8)
M = np.cos(np.arange(12.0) * 1.7).reshape(3, 4)
N = np.sin(np.arange(12.0) * 0.9 + 0.4).reshape(4, 3)
S = np.cos(np.arange(9.0) * 2.1 + 0.3).reshape(3, 3)
CUBE = np.cos(np.arange(24.0) * 1.3).reshape(2, 3, 4)
MISSING = _array(0.7, math.nan, -0.3, 1.6, math.nan)
ZEROS = {"one": _array(1.5, 0.0, -0.7, 2.0), "two": _array(0.0, 1.5, 0.0, -0.7), "three": _array(0.0, 0.0, 1.1, 0.0)}
BOTH = (X, Y)


def _unary(name: str, *points: np.ndarray) -> list[Case]:
    return [(lambda m, x: getattr(m, name)(x), (p,)) for p in points]


def _binary(name: str, *points: tuple[np.ndarray, np.ndarray]) -> list[Case]:
    return [(lambda m, x, y: getattr(m, name)(x, y), p) for p in points]


def _joined(name: str, a: np.ndarray, b: np.ndarray) -> list[Case]:
    return [(lambda m, x, y: getattr(m, name)((x, y)), (a, b))]


ELEMENTWISE: dict[str, list[Case]] = {
    **{name: _unary(name, X, WITH_ZERO) for name in (
        "exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "erf", "erfc", "sigmoid",
        "square", "negative", "positive", "deg2rad", "rad2deg", "nan_to_num",
    )},
    **{name: _unary(name, POSITIVE) for name in ("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "lgamma")},
    **{name: _unary(name, X) for name in ("absolute", "fabs", "cbrt", "sign", "floor", "ceil", "trunc", "rint")},
    **{name: _unary(name, INSIDE) for name in ("asin", "acos", "atanh", "log1p")},
    **{name: _unary(name, X) for name in ("angle", "conj", "real", "imag", "real_if_close")},
    "acosh": _unary("acosh", _array(1.2, 2.0, 5.0)),
    "digamma": _unary("digamma", POSITIVE, _array(-0.3, -1.6, 0.5, 12.5)),
    "sinc": _unary("sinc", X, WITH_ZERO, _array(0.0, 0.1, 0.3, 0.318, 0.32)),
    "round": [(lambda m, x: m.round(x), (X,)), (lambda m, x: m.round(x, 1), (X + 0.02,))],
    "modf": [(lambda m, x: m.modf(x), (_array(-1.7, -0.4, 0.0, 0.3, 2.6),))],
    **{name: _binary(name, BOTH, (WITH_ZERO, Y)) for name in ("add", "subtract", "multiply", "divide")},
    **{name: _binary(name, BOTH) for name in ("maximum", "minimum", "fmax", "fmin", "copysign", "heaviside")},
    **{name: _binary(name, (X, Y + 0.03), (_array(1.0, 0.7, -2.3), _array(0.17, -0.2, 0.6)))
       for name in ("remainder", "fmod", "floor_divide", "divmod")},
    "atan2": _binary("atan2", BOTH, (_array(0, 0, 1.5, -1.5), _array(2, 0.7, 0, 0)), (X, X), (X, -X)),
    "hypot": _binary("hypot", BOTH, (_array(0, 0, 1.5, -1.5), _array(2, -2, 0, 0)), (X, X), (X, -X)),
    "logaddexp": _binary("logaddexp", BOTH, (X, X), (WITH_ZERO, WITH_ZERO), (X, X + 30)),
    "logaddexp2": _binary("logaddexp2", BOTH, (X, X), (WITH_ZERO, WITH_ZERO), (X, X + 30)),
    "power": [
        *_binary("power", (POSITIVE, Y), (POSITIVE, np.zeros(5)), (POSITIVE, _array(0, 1, 2, 3, -1))),
        *[(lambda m, x, n=n: m.power(x, n), (POSITIVE,)) for n in (0, 1, 2, 3, 5, -1, -2, 0.5, 1.5, 0.0, 2.0)],
        *[(lambda m, x, n=n: m.power(x, n), (WITH_ZERO,)) for n in (0, 1, 2, 3, 4, 5, 6.0)],
        (lambda m, x: m.power(x, _array(0, 1, 2, 3, 4)), (WITH_ZERO,)),
        (lambda m, x: m.power(x, _array(4, 3, 2, 1, 0)), (np.zeros(5),)),
        (lambda m, y: m.power(2.5, y), (WITH_ZERO,)),
    ],
    "float_power": _binary("float_power", (POSITIVE, Y), (POSITIVE, np.zeros(5))),
    "ldexp": [(lambda m, x: m.ldexp(x, np.array([1, -2, 0, 3, 5])), (X,))],
    "nextafter": [(lambda m, x: m.nextafter(x, 9.0), (X,))],
    "spacing": [(lambda m, x: m.spacing(x), (X,))],
    "frexp": [(lambda m, x: m.frexp(x)[0], (_array(-1.7, -0.4, 0.3, 1.2, 2.6),))],
    "clip": [(lambda m, x: m.clip(x, -0.5, 2.0), (X,)), (lambda m, x, a, b: m.clip(x, a, b), (X, X - Y**2, X + 1))],
    "where": [(lambda m, x, y: m.where(x > 0.1, x * y, y * y), BOTH)],
    "select": [(lambda m, x, y: m.select([x > 1, x > 0], [x * y, y * y], 0.5), BOTH)],
    "stop_gradient": [],
    **{name: _unary(name, X) for name in ("conj", "real", "imag")},
    "i0": _unary("i0", X, WITH_ZERO, 5 * X),
    "piecewise": [(lambda m, x: m.piecewise(x, [x < 0, x > 1], [lambda v: v * v, lambda v: m.sin(v), 2.0]), (X,))],
    "unwrap": [(lambda m, x: m.unwrap(4 * x), (X,))],
}  # fmt: skip

REDUCTIONS: dict[str, list[Case]] = {
    **{name: [(lambda m, x, n=name: getattr(m, n)(x), (M,)), (lambda m, x, n=name: getattr(m, n)(x, axis=1), (M,))]
       for name in ("sum", "mean", "var", "std", "max", "min", "logsumexp", "ptp", "median",
                    "nansum", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin", "nanmedian")},
    "prod": [(lambda m, x: m.prod(x), (z,)) for z in (Y, *ZEROS.values())]
    + [(lambda m, x: m.prod(x, axis=0), (M,))],
    "nanprod": [(lambda m, x: m.nanprod(x), (z,)) for z in (Y, *ZEROS.values())],
    "cumprod": [(lambda m, x: m.cumprod(x), (z,)) for z in (Y, *ZEROS.values())]
    + [(lambda m, x: m.cumprod(x, axis=1), (M,))],
    "nancumprod": [(lambda m, x: m.nancumprod(x), (z,)) for z in (Y, *ZEROS.values())],
    "cumsum": [(lambda m, x: m.cumsum(x, axis=1), (M,))],
    "nancumsum": [(lambda m, x: m.nancumsum(x, axis=1), (M,))],
    "cummax": [(lambda m, x: m.cummax(x, axis=0), (M,))],
    "logcumsumexp": [(lambda m, x: m.logcumsumexp(x), (z,)) for z in (X, np.sin(np.arange(11.0)))],
    "cummin": [(lambda m, x: m.cummin(x, axis=0), (M,))],
    "average": [(lambda m, x, w: m.average(x, weights=w), (X, POSITIVE)), (lambda m, x: m.average(x, axis=0), (M,))],
    "quantile": [(lambda m, x: m.quantile(x, _array(0.0, 0.2, 0.5, 0.9, 1.0), axis=1), (M,)),
                 (lambda m, x, q: m.quantile(x, q), (X, _array(0.3, 0.6)))],
    "nanquantile": [(lambda m, x: m.nanquantile(x, 0.3, axis=1), (M,))],
    "percentile": [(lambda m, x: m.percentile(x, 35.0, axis=1), (M,))],
    "nanpercentile": [(lambda m, x: m.nanpercentile(x, 35.0, axis=1), (M,))],
    "cov": [(lambda m, x: m.cov(x), (M,))],
    "corrcoef": [(lambda m, x: m.corrcoef(x), (M,)),
                 (lambda m, x: m.corrcoef(x)[0, 1], (np.stack([X, 2 * X + 1]),)),
                 (lambda m, x: m.corrcoef(x)[0, 1], (np.stack([X, -X]),))],
    "sort": [(lambda m, x: m.sort(x, axis=0), (M,)), (lambda m, x: m.sort(x), (Y,))],
    "top_k": [(lambda m, x: m.top_k(x, 3)[0], (Y,)), (lambda m, x: m.top_k(x, 2, axis=0)[0], (M,))],
    "unique": [(lambda m, x: m.unique(x), (Y,)), (lambda m, x: m.unique(x, axis=0), (M,))],
    "unique_values": [(lambda m, x: m.unique_values(x), (Y,))],
    **{f"unique_{name}": [(lambda m, x, n=name: getattr(m, f"unique_{n}")(x).values, (Y,))]
       for name in ("all", "counts", "inverse")},
    "partition": [(lambda m, x: m.partition(x, 2)[2], (Y,))],
    "ediff1d": [(lambda m, x: m.ediff1d(x, to_end=x[:1]), (M,))],
    **{name: [(lambda m, x, y, n=name: getattr(m, n)(x, y), BOTH)] for name in ("union1d", "setdiff1d", "setxor1d")},
    "intersect1d": [(lambda m, x, y: m.intersect1d(x, x[1:]), BOTH)],
    "trim_zeros": [(lambda m, x: m.trim_zeros(m.concat([np.zeros(2), x])), (X,))],
    "histogram2d": [(lambda m, w: m.histogram2d(X, Y, 2, weights=w)[0], (POSITIVE,))],
    "histogramdd": [(lambda m, w: m.histogramdd([X, Y], 2, weights=w, density=True)[0], (POSITIVE,))],
    "histogram_bin_edges": [(lambda m, x: m.histogram_bin_edges(x, 3), (X,))],
    "diff": [(lambda m, x: m.diff(x, n=2, axis=1), (M,))],
    "bincount": [(lambda m, w: m.bincount(np.array([0, 2, 2, 1, 0]), weights=w), (X,))],
    "histogram": [(lambda m, w: m.histogram(Y, bins=_array(-2, -1, 0, 1, 3), weights=w)[0], (X,))],
    "vector_norm": [
        (lambda m, x, p=p: m.vector_norm(x, ord=p), (a,))
        for p in (1, 2, 3, 4, 1.5, 2.5, math.inf, -math.inf) for a in (X, Y)
    ] + [(lambda m, x, p=p: m.vector_norm(x, ord=p), (_array(0.0, 1.2, -0.7),)) for p in (2, 4, 6)],
    "matrix_norm": [(lambda m, x, p=p: m.matrix_norm(x, ord=p), (M,)) for p in ("fro", 1, -1, math.inf, -math.inf)],
}  # fmt: skip

PRODUCTS: dict[str, list[Case]] = {
    "matmul": [(lambda m, x, y: m.matmul(x, y), p) for p in ((M, N), (CUBE, N[:, 0]), (M[0], N))],
    "dot": [(lambda m, x, y: m.dot(x, y), p) for p in ((M, N), BOTH)],
    "inner": _binary("inner", (M, N.T)),
    "outer": _binary("outer", BOTH),
    "matvec": _binary("matvec", (CUBE, CUBE[:, 0])),
    "vecmat": _binary("vecmat", (CUBE[:, :, 0], CUBE)),
    "kaiser": [(lambda m, x: m.kaiser(6, x), (_array(2.5)[0],))],
    **{name: _binary(name, BOTH, (M[0], X)) for name in ("polyadd", "polysub", "polymul")},
    "polydiv": _binary("polydiv", (X, M[0])),
    "polyder": [(lambda m, x: m.polyder(x, 2), (X,))],
    "polyint": [(lambda m, x, k: m.polyint(x, 2, k), (X, Y[:2]))],
    "poly": _unary("poly", X),
    "vdot": _binary("vdot", (M, N.T.copy())),
    "vecdot": _binary("vecdot", (M, M + 1)),
    "tensordot": [(lambda m, x, y: m.tensordot(x, y, axes=([1, 0], [0, 1])), (M, N))],
    "einsum": [
        (lambda m, x, y: m.einsum("ij,jk->ik", x, y), (M, N)),
        (lambda m, x: m.einsum("ii->i", x), (S,)),
        (lambda m, x, y, z: m.einsum("ij,jk,ik->", x, y, z), (M, N, S)),
        (lambda m, x, y: m.einsum("...ij,...j->...", x, y), (CUBE, CUBE[:, 0])),
    ],
    "cross": [(lambda m, x, y: m.cross(x, y), (S, S.T + 1))],
    "kron": _binary("kron", (S, N)),
    "trace": _unary("trace", S),
    "diagonal": _unary("diagonal", M),
    "diag": [(lambda m, x: m.diag(x, 1), (X,)), (lambda m, x: m.diag(x), (S,))],
    "diagflat": _unary("diagflat", S),
    "conv": [
        (lambda m, x, w: m.conv(x.reshape(1, 2, -1), w.reshape(2, 2, -1), padding=1), (np.arange(6.0), X[:4])),
    ],
    "convolve": _binary("convolve", (X, M[0])),
    "conv_general_dilated": [
        (
            lambda m, x, w: m.conv_general_dilated(x.reshape(1, 2, -1), w.reshape(1, 2, -1), (2,), "VALID"),
            (np.arange(8.0), Y[:4]),
        ),
    ],
    "dot_general": [(lambda m, x, y: m.dot_general(x, y, (([2], [1]), ([0], [0]))), (CUBE, np.stack([N, N * N])))],
    "reduce_window": [
        *[
            (lambda m, x, f=f, s=s: m.reduce_window(x, s, getattr(m, f), (3,)), (X,))
            for f, s in (("add", 0.0), ("multiply", 1.0), ("maximum", -math.inf), ("minimum", math.inf))
        ],
        (lambda m, x: m.reduce_window(x, 0.0, m.add, (9,), (2,)), (np.cos(np.arange(20.0)),)),
    ],
    "dynamic_slice": [(lambda m, x: m.dynamic_slice(x, [1, 1], [2, 3]), (M,))],
    "dynamic_slice_in_dim": [(lambda m, x: m.dynamic_slice_in_dim(x, 1, 2, 1), (M,))],
    "dynamic_index_in_dim": [(lambda m, x: m.dynamic_index_in_dim(x, 1, 1), (M,))],
    "dynamic_update_slice": [(lambda m, x, y: m.dynamic_update_slice(x, y, [0, 1]), (M, S))],
    "dynamic_update_slice_in_dim": [(lambda m, x, y: m.dynamic_update_slice_in_dim(x, y, 1, 1), (M, S))],
    "dynamic_update_index_in_dim": [(lambda m, x, y: m.dynamic_update_index_in_dim(x, y, 1, 0), (M, M[0]))],
    "map": [(lambda m, x: m.map(lambda v: v * v.sum(), x), (M,))],
    "vectorize": [(lambda m, x, y: m.vectorize(lambda a, b: a * b + b * b)(x, y), (M, M[0]))],
    "polyfit": [(lambda m, x, y: m.polyfit(x, y, 2), BOTH), (lambda m, x, y: m.polyfit(x, y, 1, w=y * y + 1.0), BOTH)],
    "roots": [(lambda m, p: m.real((m.roots(p, strip_zeros=False) ** 3).sum()), (_array(1.3, -0.4, 2.1, 0.7),))],
    "correlate": _binary("correlate", (X, M[0])),
    "polyval": _binary("polyval", (M[0], WITH_ZERO)),
    "vander": [(lambda m, x: m.vander(x, 4), (WITH_ZERO,))],
    "trapezoid": [(lambda m, y, x: m.trapezoid(y, x), BOTH), (lambda m, y: m.trapezoid(y, dx=0.3), (M,))],
    "gradient": [(lambda m, x: m.gradient(x, 0.4), (X,))],
    "interp": [
        (lambda m, x, f: m.interp(x, _array(-2, -1, 0.5, 3), f), (X, M[0])),
        (lambda m, x, f: m.interp(x, _array(-1, 0, 0.5, 2), f), (X, M[0])),
    ],
}

WRITES: dict[str, Callable[[Any, Any, Any], None]] = {
    "copyto": lambda m, x, y: m.copyto(x, y, where=np.array([True, False, True, True, False])),
    "fill_diagonal": lambda m, x, y: m.fill_diagonal(x.reshape(5, 1), y[:1]),
    "place": lambda m, x, y: m.place(x, np.array([True, False, True, True, False]), y[:2]),
    "put": lambda m, x, y: m.put(x, np.array([3, -5]), y),
    "put_along_axis": lambda m, x, y: m.put_along_axis(x, np.array([4, 0]), y[:2], axis=0),
    "putmask": lambda m, x, y: m.putmask(x, np.array([True, False, True, True, False]), y[:3]),
}


def _written(m: Any, name: str, x: Any, y: Any) -> Any:
    target = x * y
    WRITES[name](m, target, y)
    return target * x


MOVEMENT: dict[str, list[Case]] = {
    **{name: _unary(name, M) for name in (
        "asarray", "array", "copy", "ravel", "transpose", "matrix_transpose", "flip", "fliplr", "flipud", "rot90",
        "tril", "triu", "atleast_1d", "atleast_2d", "atleast_3d",
    )},
    **{name: _joined(name, X, Y) for name in ("concat", "stack", "hstack", "vstack", "dstack", "column_stack")},
    "block": [(lambda m, x, y: m.block([[x, y], [y, x]]), (S, S + 1))],
    "append": [(lambda m, x, y: m.append(x, y, axis=0), (S, S + 1))],
    "astype": [(lambda m, x: m.astype(x, m.float64), (M,))],
    "full": [(lambda m, x: m.full((2, 5), x), (X,))],
    "full_like": [(lambda m, x: m.full_like(np.zeros((2, 5)), x), (X,))],
    "linspace": [(lambda m, x, y: m.linspace(x[0], y[0], 4), BOTH)],
    "logspace": [(lambda m, x, y: m.logspace(x[1], y[0], 4), BOTH)],
    "geomspace": [(lambda m, x, y: m.geomspace(x[1], y[2], 4), (POSITIVE, Y))],
    "broadcast_to": [(lambda m, x: m.broadcast_to(x, (3, 5)), (X,))],
    "broadcast_arrays": [(lambda m, x, y: m.broadcast_arrays(x, y), (S, S[0]))],
    "expand_dims": [(lambda m, x: m.expand_dims(x, 1), (X,))],
    "squeeze": [(lambda m, x: m.squeeze(x, 0), (M[None],))],
    "moveaxis": [(lambda m, x: m.moveaxis(x, 0, -1), (CUBE,))],
    "permute_dims": [(lambda m, x: m.permute_dims(x, (2, 0, 1)), (CUBE,))],
    "swapaxes": [(lambda m, x: m.swapaxes(x, 0, 2), (CUBE,))],
    "sliding_window_view": [(lambda m, x: m.sliding_window_view(x, 3, 1), (M,))],
    "reshape": [(lambda m, x: m.reshape(x, (4, 3)), (M,))],
    "meshgrid": [(lambda m, x, y: m.meshgrid(x, y), BOTH)],
    "pad": [(lambda m, x: m.pad(x, 2), (X,))],
    "resize": [(lambda m, x: m.resize(x, (3, 3)), (X,))],
    "rollaxis": [(lambda m, x: m.rollaxis(x, 2), (CUBE,))],
    "insert": [(lambda m, x, y: m.insert(x, [1, 3], y[:2]), BOTH)],
    "choose": [(lambda m, x, y: m.choose(np.array([0, 1, 1, 0, 1]), [x, y]), BOTH)],
    "apply_along_axis": [(lambda m, x: m.apply_along_axis(lambda v: v * v[0], 1, x), (M,))],
    "apply_over_axes": [(lambda m, x: m.apply_over_axes(m.sum, x * x, (0, 1)), (M,))],
    **{name: [(lambda m, x, y, n=name: _written(m, n, x, y), BOTH)]
       for name in ("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask")},
    "repeat": [(lambda m, x: m.repeat(x, 2), (X,))],
    "tile": [(lambda m, x: m.tile(x, (2, 2)), (X,))],
    "roll": [(lambda m, x: m.roll(x, 2), (X,))],
    "split": [(lambda m, x: m.split(x, [1, 3]), (X,))],
    "array_split": [(lambda m, x: m.array_split(x, 2), (X,))],
    "hsplit": [(lambda m, x: m.hsplit(x, 2), (M,))],
    "vsplit": [(lambda m, x: m.vsplit(x, 3), (M,))],
    "dsplit": [(lambda m, x: m.dsplit(x, 2), (CUBE,))],
    "unstack": [(lambda m, x: m.unstack(x), (M,))],
    "take": [(lambda m, x: m.take(x, np.array([0, 2, 2, 4]), axis=0), (X,))],
    "take_along_axis": [(lambda m, x: m.take_along_axis(x, np.array([[0], [2], [2]]), 1), (M,))],
    "compress": [(lambda m, x: m.compress([True, False, True], x, axis=0), (M,))],
    "delete": [(lambda m, x: m.delete(x, 1, axis=0), (M,))],
    "extract": [(lambda m, x: m.extract(np.arange(5) % 2 == 0, x), (X,))],
}  # fmt: skip

CONTROL: dict[str, list[Case]] = {
    "fori_loop": [(lambda m, x, y: m.fori_loop(0, 4, lambda k, v: m.sin(v) * y + x**2, x), BOTH)],
    "while_loop": [(lambda m, x: m.while_loop(lambda v: m.sum(v * v) < 40, lambda v: v + m.sin(v) * x + 0.5, x), (X,))],
    "scan": [(lambda m, x, y: m.scan(lambda c, v: (c * v + m.sin(c), c * c), y[0], x), BOTH)],
    "associative_scan": [
        (lambda m, x: m.associative_scan(lambda a, b: a * b + a + b, x), (z,))
        for z in (X, WITH_ZERO, np.sin(np.arange(19.0)))
    ],
    "cond": [(lambda m, x, y: m.cond(m.sum(x) > 0, lambda a, b: a * b * b, lambda a, b: a, x, y), BOTH)],
    "switch": [(lambda m, x, y: m.switch(1, [lambda a, b: a, lambda a, b: a * b * b], x, y), BOTH)],
    "vmap": [(lambda m, x, y: m.vmap(lambda a, b: m.sin(a * b) * a)(x, y), BOTH)],
    "checkpoint": [(lambda m, x, y: m.checkpoint(lambda a, b: m.sin(a * b) * a)(x, y), BOTH)],
    "name": [(lambda m, x: m.name(m.sin(x) * x, "kept"), (X,))],
    "to_device": [],
}


def _parts(m: Any, z: Any) -> tuple[Any, Any]:
    return m.real(z), m.imag(z)


def _complex(x: Any) -> Any:
    return x[:3] + 1j * x[1:4]


FFT: dict[str, list[Case]] = {
    **{name: [(lambda m, x, f=name: _parts(m, getattr(m.fft, f)(_complex(x), norm="ortho")), (X,))]
       for name in ("fft", "ifft", "fftn", "ifftn")},
    **{name: [(lambda m, x, f=name: _parts(m, getattr(m.fft, f)(x, n=4)), (X,))] for name in ("rfft", "ihfft")},
    **{name: [(lambda m, x, f=name, n=n: getattr(m.fft, f)(_complex(x), n=n), (X,)) for n in (4, 5)]
       for name in ("irfft", "hfft")},
    **{name: [(lambda m, x, f=name: _parts(m, getattr(m.fft, f)(x)), (M,))]
       for name in ("fft2", "ifft2", "rfft2", "rfftn")},
    **{name: [(lambda m, x, f=name: getattr(m.fft, f)(x + 1j * x.T, s=(4, 3), axes=(0, 1)), (S,))]
       for name in ("irfft2", "irfftn", "hfft2", "hfftn")},
    **{name: [(lambda m, x, f=name: _parts(m, getattr(m.fft, f)(x)), (M,))] for name in ("ihfft2", "ihfftn")},
    **{name: [(lambda m, x, f=name, k=kind: getattr(m.fft, f)(x, k), (X,)) for kind in (1, 2, 3, 4)]
       for name in ("dct", "dst", "idct", "idst")},
    **{name: [(lambda m, x, f=name: getattr(m.fft, f)(x, norm="ortho"), (M,))]
       for name in ("dctn", "dstn", "idctn", "idstn")},
    **{name: [(lambda m, x, f=name: getattr(m.fft, f)(x), (M,))] for name in ("fftshift", "ifftshift")},
}  # fmt: skip

# well-conditioned, more than one matrix; symmetric positive definite ones, of which functions read one triangle
SQUARES = np.cos(np.arange(18.0) * 1.3).reshape(2, 3, 3) + 2 * np.eye(3)
DEFINITE = SQUARES @ np.swapaxes(SQUARES, 1, 2)
RIGHT = np.sin(np.arange(12.0)).reshape(2, 3, 2)
WIDE = np.cos(np.arange(12.0) ** 2 * 0.7).reshape(3, 4)
LARGER = np.cos(np.arange(16.0) * 1.7).reshape(4, 4) + 2 * np.eye(4)

# tests/lazy/numpy/linalg/test_special_matrices.py has their derivatives
PATTERNS = """
    block_diag circulant companion convolution_matrix dft fiedler hadamard hankel helmert hilbert invhilbert invpascal
    khatri_rao leslie pascal toeplitz
"""
LINALG: dict[str, list[Case]] = {
    "solve": [(lambda m, a, b: m.linalg.solve(a, b), (SQUARES, r)) for r in (RIGHT, RIGHT[0], RIGHT[0, :, 0])],
    "inv": [(lambda m, a: m.linalg.inv(a), (SQUARES,))],
    "cholesky": [(lambda m, a, u=u: m.linalg.cholesky(a, upper=u), (DEFINITE,)) for u in (False, True)],
    "det": [(lambda m, a: m.linalg.det(a), (a,)) for a in (SQUARES, SQUARES[:, :2, :2], LARGER, S[:1, :1])],
    "slogdet": [(lambda m, a: m.linalg.slogdet(a), (a,)) for a in (SQUARES, LARGER)],
    "qr": [(lambda m, a: m.linalg.qr(a), (a,)) for a in (SQUARES, WIDE, WIDE.T)]
    + [(lambda m, a: m.linalg.qr(a, mode="r"), (WIDE,))],
    "eigvalsh": [(lambda m, a, u=u: m.linalg.eigvalsh(a, u), (DEFINITE,)) for u in "LU"],
    "eigh": [(lambda m, a: m.abs(m.linalg.eigh(a).eigenvectors), (DEFINITE,))],
    "eigvals": [(lambda m, a: m.real(m.sum(m.linalg.eigvals(a) ** 3, axis=-1)), (SQUARES,))],
    "eig": [(lambda m, a: m.sum(m.abs(m.linalg.eig(a)[1]) ** 4, axis=-1), (DEFINITE + S,))],
    "svdvals": [(lambda m, a: m.linalg.svdvals(a), (a,)) for a in (SQUARES, WIDE, WIDE.T)],
    "svd": [
        (lambda m, a: [m.abs(v) for v in m.linalg.svd(a, full_matrices=False)], (a,)) for a in (SQUARES, WIDE, WIDE.T)
    ],
    "pinv": [(lambda m, a: m.linalg.pinv(a), (a,)) for a in (SQUARES, WIDE, WIDE.T)],
    "lstsq": [(lambda m, a, b: m.linalg.lstsq(a, b)[:2], (WIDE.T, b)) for b in (X[:4], LARGER[:, :2])],
    "cond": [(lambda m, a, p=p: m.linalg.cond(a, p), (SQUARES,)) for p in (None, -2, 1, "fro")],
    "expm": [(lambda m, a, by=by: m.linalg.expm(by * a), (SQUARES,)) for by in (0.01, 1.0, 9.0)],
    "matrix_rank": [],
    "tridiagonal_solve": [],  # tests/lazy/numpy/linalg/test_solving.py has its derivatives
    **{name: [] for name in PATTERNS.split()},
    "tensorsolve": [(lambda m, a, b: m.linalg.tensorsolve(a.reshape(2, 2, 4), b.reshape(2, 2)), (LARGER, X[:4]))],
    "tensorinv": [(lambda m, a: m.linalg.tensorinv(a.reshape(4, 2, 2), ind=1), (LARGER,))],
    "solve_triangular": [
        (lambda m, a, b, t=t, lower=lower: m.linalg.solve_triangular(a, b, trans=t, lower=lower), (SQUARES[0], S))
        for t in (0, 1)
        for lower in (False, True)
    ],
    "cho_factor": [(lambda m, a: m.triu(m.linalg.cho_factor(a)[0]), (DEFINITE[0],))],
    "cho_solve": [(lambda m, a, b: m.linalg.cho_solve((a, True), b), (SQUARES[0], X[:3]))],
    "lu": [(lambda m, a: m.linalg.lu(a), (a,)) for a in (SQUARES[1], WIDE, LARGER[:, :3])],
    "lu_factor": [(lambda m, a: m.linalg.lu_factor(a)[0], (SQUARES[1],))],
    "lu_solve": [
        (lambda m, a, b, t=t: m.linalg.lu_solve((a, np.array([2, 1, 2])), b, trans=t), (SQUARES[1], S)) for t in (0, 1)
    ],
    "norm": [(lambda m, x, p=p: m.linalg.norm(x, p), (X,)) for p in (None, 1, 2, 3, math.inf)]
    + [(lambda m, x, p=p: m.linalg.norm(x, p), (M,)) for p in (None, "fro", 1)]
    + [(lambda m, x, p=p: m.linalg.norm(x, p), (WIDE,)) for p in (2, -2, "nuc")],
    "matrix_power": [(lambda m, x, n=n: m.linalg.matrix_power(x, n), (S,)) for n in (0, 1, 2, 5)]
    + [(lambda m, x: m.linalg.matrix_power(x, -3), (SQUARES,))],
    "multi_dot": [(lambda m, x, y, z: m.linalg.multi_dot([x, y, z]), (S, M, N))],
    "diagonal": [(lambda m, x: m.linalg.diagonal(x), (CUBE[:, :, :3],))],
    "trace": [(lambda m, x: m.linalg.trace(x), (CUBE[:, :, :3],))],
}


def _updated(x: np.ndarray, ufunc: Any, y: np.ndarray, places: list[int]) -> np.ndarray:
    result = x.copy()
    ufunc.at(result, places, y)
    return result


def _at(name: str, ufunc: Any) -> list[tuple[Any, Any, tuple[np.ndarray, ...]]]:
    """Updates that meet at a place, and those that don't."""

    def case(places: list[int]) -> tuple[Any, Any, tuple[np.ndarray, ...]]:
        ours = lambda m, x, y: getattr(x.at[places], name)(y)
        return ours, lambda m, x, y: _updated(x, ufunc, y, places), (X, M[0])

    return [case([0, 2, 3, 1]), case([2, 0, 2, 4])]


# (loopgrad's, NumPy's, arrays)
UPDATES: dict[str, list[tuple[Any, Any, tuple[np.ndarray, ...]]]] = {
    "add": _at("add", np.add),
    "subtract": _at("subtract", np.subtract),
    "multiply": _at("multiply", np.multiply),
    "mul": _at("mul", np.multiply),
    "divide": _at("divide", np.divide),
    "min": _at("min", np.minimum),
    "max": _at("max", np.maximum),
    "set": [(lambda m, x, y: x.at[1:].set(y * y), lambda m, x, y: np.concatenate([x[:1], y * y]), (X, M[0]))],
    "get": [(lambda m, x, y: x.at[1:].get() * y, lambda m, x, y: x[1:] * y, (X, M[0]))],
    "power": [(lambda m, x, y: x.at[:2].power(y), lambda m, x, y: np.r_[x[:2] ** y, x[2:]], (POSITIVE, Y[:2]))],
    "apply": [(lambda m, x: x.at[1:3].apply(lambda v: v * v * v), lambda m, x: np.r_[x[:1], x[1:3] ** 3, x[3:]], (X,))],
}


def _sorted_in_place(x: Any) -> Any:
    rows = x.copy()
    rows.sort()
    return rows


METHODS: dict[str, list[Case]] = {
    **{name: [(lambda m, x, n=name: getattr(x, n)(), (M,))] for name in (
        "copy", "cumprod", "cumsum", "diagonal", "flatten", "max", "mean", "min", "prod", "ravel", "round", "squeeze",
        "std", "sum", "trace", "transpose", "var",
    )},
    **{name: [(lambda m, x, n=name: getattr(x, n), (M,))] for name in ("T", "mT", "real", "imag")},
    **{name: [(lambda m, x, n=name: getattr(x, n)(), (M,))] for name in ("conj", "conjugate")},
    "astype": [(lambda m, x: x.astype(np.float64), (M,))],
    "clip": [(lambda m, x: x.clip(-0.5, 0.5), (M,))],
    "dot": [(lambda m, x, y: x.dot(y), (M, N))],
    "repeat": [(lambda m, x: x.repeat(2), (X,))],
    "reshape": [(lambda m, x: x.reshape(4, 3), (M,))],
    "sort": [(lambda m, x: _sorted_in_place(x), (M,))],
    "swapaxes": [(lambda m, x: x.swapaxes(0, 1), (M,))],
    "take": [(lambda m, x: x.take([2, 0, 2]), (X,))],
    "operators": [
        (lambda m, x, y: -x * y + y / x - (x + 2.0) ** 2 * y % 5.0 + abs(x) - x // 3.0, (X, Y)),
        (lambda m, x, y: x**y + x**0.5 + x**-1 + 2.0**x + x**3, (POSITIVE, Y)),
        (lambda m, x, y: x @ y, (M, N)),
        (lambda m, x, y: x[::-1] * y + x[1], (X, Y)),
    ],
}  # fmt: skip

CASES: dict[str, list[Case]] = {**ELEMENTWISE, **REDUCTIONS, **PRODUCTS, **MOVEMENT, **CONTROL}
