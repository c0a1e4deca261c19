"""Names of NumPy's that aren't offered, and what to do instead.

Not offered is what the library has no kernels for (transforms, factorisations), what assignment to a
subscript does as well, and what has a result whose shape depends on data (but masks, `nonzero` and their relatives,
which evaluate). docs/numpy.md prints this table.
"""

from __future__ import annotations

from typing import Any, Final

_HOST: Final = "its shape depends on data: lg.asarray(np.{0}(np.asarray(x)))"
_LOOP: Final = "write it as a loop (docs/numpy.md has examples), or np.linalg.{0}(np.asarray(x)) outside gradients"
_IN_PLACE: Final = "x[...] = v, x[i] = v or x[mask] = v write to a tensor"
_POLYNOMIALS: Final = "np.{0}(np.asarray(x)) where it is data; lg.polyval evaluates polynomials"

ABSENT: Final[dict[str, str]] = {
    "fft": "no transforms: np.fft on np.asarray(x), or lg.convolve for short kernels",
    **{n: _HOST.format(n) for n in (
        "intersect1d", "union1d", "setdiff1d", "setxor1d", "trim_zeros",
    )},
    **{n: _POLYNOMIALS.format(n) for n in ("polyfit", "poly", "roots", "polyadd", "polymul", "polyder", "polyint")},
    **dict.fromkeys(("copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal"), _IN_PLACE),
    **dict.fromkeys(("vectorize", "apply_along_axis", "apply_over_axes"), "lg.vmap(f)(x)"),
    "piecewise": "lg.select([x < 0, x < 1], [f(x), g(x)]) or lg.where",
    "choose": "lg.select, or lg.take_along_axis of the stacked choices",
    "insert": "lg.concat([x[:i], values, x[i:]])",
    "resize": "lg.tile(x, n)[:size], then .reshape",
    "rollaxis": "lg.moveaxis",
    "partition": "lg.sort",
    "argpartition": "lg.argsort",
    "ediff1d": "lg.diff(lg.ravel(x))",
    "array_equiv": "lg.array_equal(*lg.broadcast_arrays(x, y))",
    "fix": "lg.trunc",
    "view": "lg.bitcast_convert_type(x, dtype) for the bits of elements, a copy; .astype converts",
    "trapz": "lg.trapezoid",
    "row_stack": "lg.vstack",
    "product": "lg.prod",
    "issubdtype": "lg.isdtype(dtype, 'real floating')",
    "floating": "lg.isdtype(dtype, 'real floating')",
    "integer": "lg.isdtype(dtype, 'integral')",
    "dtype": "dtypes are lg.float32 and so on; functions take NumPy's and names as well",
    "ndarray": "lg.Tensor",
    "isscalar": "x.ndim == 0",
    "apply": "lg.vmap, or x.at[...].apply(f)",
    "ix_": "lg.asarray(rows)[:, None], lg.asarray(columns)[None, :] as indices",
    **dict.fromkeys(
        ("tril_indices", "triu_indices", "diag_indices", "ravel_multi_index"),
        "NumPy's: its integer arrays index tensors",
    ),
    **dict.fromkeys(("save", "savez", "savetxt"), "np.save(path, np.asarray(x))"),
    **dict.fromkeys(("load", "loadtxt", "genfromtxt", "fromfile"), "lg.asarray(np.load(path))"),
    "frompyfunc": "lg.vmap",
    **dict.fromkeys(("mgrid", "ogrid"), "lg.meshgrid, or lg.indices"),
    **dict.fromkeys(("r_", "c_", "bmat"), "lg.concat, lg.stack or lg.block"),
    **dict.fromkeys(("asanyarray", "ascontiguousarray", "asfortranarray", "matrix", "asmatrix"), "lg.asarray"),
    **dict.fromkeys(("array_str", "array_repr", "array2string"), "str(x), repr(x); np.set_printoptions holds for them"),
    **dict.fromkeys(("errstate", "seterr"), "float operations neither raise nor warn: test with lg.isfinite"),
    **dict.fromkeys(("nditer", "ndenumerate", "ndindex"), "whole arrays at once, lg.fori_loop or lg.scan"),
    **dict.fromkeys(("hanning", "hamming", "blackman", "bartlett", "kaiser"), "NumPy's: lg.asarray(np.hanning(n))"),
    **dict.fromkeys(("histogram2d", "histogramdd"), "lg.bincount of lg.digitize along each axis"),
    "matvec": "lg.matmul(a, v[..., None])[..., 0]",
    "vecmat": "lg.matmul(v[..., None, :], a)[..., 0, :]",
    "unwrap": "x - period * lg.cumsum of rounded jumps",
    "fromiter": "lg.asarray(list(iterable))",
    "broadcast": "lg.broadcast_arrays",
    **{n: f"lg.{d}" for n, d in (
        ("half", "float16"), ("single", "float32"), ("double", "float64"), ("int_", "int64"), ("intp", "int64"),
        ("byte", "int8"), ("short", "int16"), ("intc", "int32"), ("uint", "uint64"), ("longdouble", "float64"),
        ("float128", "float64"),
    )},
    "may_share_memory": "views are what they are in NumPy (docs/numpy.md): x.copy() shares with nobody",
    "shares_memory": "views are what they are in NumPy (docs/numpy.md): x.copy() shares with nobody",
    "jit": "lg.compile",
    "Array": "lg.Tensor",
    "block_until_ready": "lg.eval(x), then lg.synchronize()",
}  # fmt: skip

RANDOM_ABSENT: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "rand", "randn", "randint", "random_sample", "ranf", "sample", "normal", "uniform", "choice", "permutation",
            "shuffle", "exponential", "standard_normal", "random_integers", "bytes",
        ),
        "make rng = lg.random.default_rng(seed), whose methods draw",
    ),
    "seed": "make rng = lg.random.default_rng(seed), whose methods draw",
    "RandomState": "lg.random.default_rng(seed)",
    "SeedSequence": "np.random.SeedSequence is taken as a seed",
    **dict.fromkeys(("PCG64", "PCG64DXSM", "MT19937", "SFC64", "Philox"), "lg.random.Philox4x32 or Philox4x64"),
    **dict.fromkeys(("key", "PRNGKey", "split", "fold_in"), "lg.random.Generator(seed), its stream(shape), spawn(n)"),
}
LINALG_ABSENT: Final[dict[str, str]] = {
    n: _LOOP.format(n)
    for n in (
        "det", "slogdet", "pinv", "lstsq", "qr", "svd", "svdvals", "eig", "eigh", "eigvals",
        "eigvalsh", "matrix_rank", "cond", "tensorsolve", "tensorinv",
    )
}  # fmt: skip

# attributes of arrays
TENSOR_ABSENT: Final[dict[str, str]] = {
    **dict.fromkeys(("fill", "put", "itemset", "setflags", "resize", "partition"), _IN_PLACE),
    "view": ABSENT["view"],
    "flat": "x.ravel()[i], or x.reshape(-1)",
    "strides": "tensors are dense, row by row: np.asarray(x).strides",
    "data": "np.asarray(x)",
    "base": "views are what they are in NumPy (docs/numpy.md): x.copy() shares with nobody",
    "flags": "tensors can be written to, but for results of broadcast_to and diagonal",
    "ctypes": "np.asarray(x).ctypes",
    "tobytes": "np.asarray(x).tobytes()",
    "tofile": "np.asarray(x).tofile(path)",
    "argpartition": ABSENT["argpartition"],
    "choose": ABSENT["choose"],
    "compress": "lg.compress(condition, x)",
    "ptp": "lg.ptp(x)",
    "byteswap": "np.asarray(x).byteswap()",
    "newbyteorder": "tensors have the machine's byte order",
    "block_until_ready": "lg.eval(x), then lg.synchronize()",
    "backward": "lg.gradients(loss, [x]), or lg.grad(f)(x)",
    "grad": "lg.gradients(loss, [x]), or lg.grad(f)(x)",
    "detach": "lg.stop_gradient(x)",
    "cpu": "x.to_device('cpu')",
    "cuda": "x.to_device('cuda:0')",
    "to": "x.to_device('cuda:0') or x.astype(dtype)",
}


def absent_name(where: str, name: str, table: dict[str, str]) -> str | None:
    """The text of an AttributeError for a name that isn't offered; None where nothing is known of it."""
    instead: Any = table.get(name)
    return None if instead is None else f"{where} has no attribute {name!r}; instead: {instead}"
