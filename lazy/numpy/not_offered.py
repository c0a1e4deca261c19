"""Names of NumPy's that aren't offered, and what to do instead.

Not offered is what the library has no kernels for (transforms, factorisations), what belongs to
NumPy's memory or its text, and what another name says. docs/numpy.md prints this table.
"""

from __future__ import annotations

from typing import Any, Final

_IN_PLACE: Final = "x[...] = v, x[i] = v or x[mask] = v write to a tensor"
_POLYNOMIALS: Final = "np.{0}(np.asarray(x)) where it is data; lg.polyval evaluates polynomials"

ABSENT: Final[dict[str, str]] = {
    **{n: _POLYNOMIALS.format(n) for n in ("polyfit", "roots", "poly1d")},
    "vectorize": "lg.vmap(f)(x)",
    "trapz": "lg.trapezoid",
    "product": "lg.prod",
    **dict.fromkeys(("issubdtype", "floating", "inexact"), "lg.isdtype(dtype, 'real floating')"),
    **dict.fromkeys(("integer", "signedinteger", "unsignedinteger"), "lg.isdtype(dtype, 'integral')"),
    **dict.fromkeys(("number", "generic"), "lg.isdtype(dtype, 'numeric')"),
    **dict.fromkeys(("common_type", "mintypecode"), "lg.result_type"),
    "min_scalar_type": "Python numbers give way to the other operand's dtype: lg.result_type",
    "einsum_path": "lg.einsum chooses the order itself",
    **dict.fromkeys(("fromstring", "frombuffer", "fromregex"), "lg.asarray(np.frombuffer(data))"),
    "asarray_chkfinite": "lg.asarray(x), and lg.isfinite(x).all()",
    "require": "lg.asarray(x, dtype=...)",
    **dict.fromkeys(("set_printoptions", "get_printoptions", "printoptions"), "NumPy's: they hold for tensors as well"),
    **dict.fromkeys(("geterr", "seterrcall", "geterrcall"), "float operations neither raise nor warn: lg.isfinite"),
    "ma": "lg.where of a mask, and where= of reductions",
    "sort_complex": "lg.sort of what it is to be sorted by, then lg.take",
    "dtype": "dtypes are lg.float32 and so on; functions take NumPy's and names as well",
    "ndarray": "lg.Tensor",
    "apply": "lg.vmap, or x.at[...].apply(f)",
    **dict.fromkeys(("savez", "savez_compressed", "savetxt"), "np.save(path, np.asarray(x))"),
    **dict.fromkeys(("loadtxt", "genfromtxt", "fromfile", "memmap"), "lg.asarray(np.load(path))"),
    "frompyfunc": "lg.vmap",
    "bmat": "lg.block",
    **dict.fromkeys(("asanyarray", "ascontiguousarray", "asfortranarray", "matrix", "asmatrix"), "lg.asarray"),
    **dict.fromkeys(("array_str", "array_repr", "array2string"), "str(x), repr(x); np.set_printoptions holds for them"),
    **dict.fromkeys(("errstate", "seterr"), "float operations neither raise nor warn: test with lg.isfinite"),
    **dict.fromkeys(("nditer", "ndenumerate", "ndindex"), "whole arrays at once, lg.fori_loop or lg.scan"),
    "fromiter": "lg.asarray(list(iterable))",
    "broadcast": "lg.broadcast_arrays",
    **{n: f"lg.{d}" for n, d in (
        ("row_stack", "vstack"), ("in1d", "isin"), ("half", "float16"), ("single", "float32"),
        ("double", "float64"), ("int_", "int64"), ("intp", "int64"),
        ("byte", "int8"), ("short", "int16"), ("intc", "int32"), ("uint", "uint64"),
        ("ubyte", "uint8"), ("ushort", "uint16"),
        ("uintc", "uint32"), ("uintp", "uint64"), ("long", "int64"), ("longlong", "int64"), ("ulong", "uint64"),
        ("ulonglong", "uint64"), ("csingle", "complex64"), ("cdouble", "complex128"), ("longdouble", "float64"),
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
            "rand",
            "randn",
            "randint",
            "random_sample",
            "ranf",
            "sample",
            "normal",
            "uniform",
            "choice",
            "permutation",
            "shuffle",
            "exponential",
            "standard_normal",
            "random_integers",
            "bytes",
        ),
        "make rng = lg.random.default_rng(seed), whose methods draw",
    ),
    "seed": "make rng = lg.random.default_rng(seed), whose methods draw",
    "RandomState": "lg.random.default_rng(seed)",
    "SeedSequence": "np.random.SeedSequence is taken as a seed",
    **dict.fromkeys(("PCG64", "PCG64DXSM", "MT19937", "SFC64", "Philox"), "lg.random.Philox4x32 or Philox4x64"),
    **dict.fromkeys(("key", "PRNGKey", "split", "fold_in"), "lg.random.Generator(seed), its stream(shape), spawn(n)"),
}
LINALG_ABSENT: Final[dict[str, str]] = {"LinAlgWarning": "nothing warns: singular matrices give infinities or NaN"}

# attributes of arrays
TENSOR_ABSENT: Final[dict[str, str]] = {
    **dict.fromkeys(("itemset", "setflags", "setfield"), _IN_PLACE),
    "resize": "lg.resize(x, shape), a new tensor",
    "flat": "x.ravel()[i], or x.reshape(-1)",
    "strides": "tensors are dense, row by row: np.asarray(x).strides",
    "data": "np.asarray(x)",
    "base": "views are what they are in NumPy (docs/numpy.md): x.copy() shares with nobody",
    "flags": "tensors can be written to, but for results of broadcast_to and diagonal",
    "ctypes": "np.asarray(x).ctypes",
    "tobytes": "np.asarray(x).tobytes()",
    "tofile": "np.asarray(x).tofile(path)",
    **dict.fromkeys(("dump", "dumps"), "pickle.dumps(x)"),
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
