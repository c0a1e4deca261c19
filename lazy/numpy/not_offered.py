"""Names of NumPy's and JAX's that aren't offered, and what to do instead.

Not offered is what belongs to NumPy's memory or its text and to JAX's machinery, and what another name says.
docs/numpy.md prints these tables.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

_IN_PLACE: Final = "x[...] = v, x[i] = v or x[mask] = v write to a tensor"

_MADE_OTHERWISE: Final[dict[str, str]] = {
    "poly1d": "vectors of coefficients: lg.polyval, lg.polyfit, lg.polymul and so on",
    "trapz": "lg.trapezoid",
    "product": "lg.prod",
    **dict.fromkeys(("common_type", "mintypecode"), "lg.result_type"),
    "min_scalar_type": "Python numbers give way to the other operand's dtype: lg.result_type",
    "einsum_path": "lg.einsum chooses the order itself",
    "fromregex": "lg.asarray(np.fromregex(...))",
    "asarray_chkfinite": "lg.asarray(x), and lg.isfinite(x).all()",
    "require": "lg.asarray(x, dtype=...)",
    **dict.fromkeys(("geterr", "seterrcall", "geterrcall"), "float operations neither raise nor warn: lg.isfinite"),
    "ma": "lg.where of a mask, and where= of reductions",
    "dtype": "dtypes are lg.float32 and so on; functions take NumPy's and names as well",
    "ndarray": "lg.Tensor",
    "apply": "lg.vmap, or x.at[...].apply(f)",
    **dict.fromkeys(("savez", "savez_compressed", "savetxt"), "np.save(path, np.asarray(x))"),
    **dict.fromkeys(("fromfile", "memmap"), "lg.asarray(np.fromfile(path))"),
    "frompyfunc": "lg.vmap",
    "bmat": "lg.block",
    **dict.fromkeys(("asfortranarray", "matrix", "asmatrix"), "lg.asarray"),
    "nditer": "whole arrays at once, lg.fori_loop or lg.scan",
    "broadcast": "lg.broadcast_arrays",
    **{n: f"lg.{d}" for n, d in (
        ("row_stack", "vstack"), ("in1d", "isin"), ("longdouble", "float64"), ("float128", "float64"),
    )},
    "may_share_memory": "views are what they are in NumPy (docs/numpy.md): x.copy() shares with nobody",
    "shares_memory": "views are what they are in NumPy (docs/numpy.md): x.copy() shares with nobody",
    "jit": "lg.compile",
    "Array": "lg.Tensor",
    "block_until_ready": "lg.eval(x), then lg.synchronize()",
}  # fmt: skip

_SEPARATE: Final = "strings and dates are not numbers: NumPy's own, and lg.asarray of the numbers"
_OF_NUMPY: Final = "NumPy's own: it needs no arrays, or takes tensors as they are"
_SCIPY: Final = "SciPy's own takes tensors under SCIPY_ARRAY_API=1: docs/interoperation.md"
_OF_A_MESH: Final = "lg.mesh, lg.shard and lg.map_shards: docs/scale.md"

NUMPY_ABSENT: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("busday_count", "busday_offset", "busdaycalendar", "bytes_", "char", "character", "datetime64",
         "datetime_as_string", "datetime_data", "is_busday", "isnat", "object_", "rec", "recarray", "record", "str_",
         "strings", "timedelta64", "void", "flexible"), _SEPARATE),
    **dict.fromkeys(
        ("core", "ctypeslib", "dtypes", "emath", "exceptions", "f2py",
         "get_include", "getbufsize", "info",
         "little_endian", "polynomial", "sctypeDict", "setbufsize", "show_config", "show_runtime", "test", "typecodes",
         "typename", "typing", "ScalarType"), _OF_NUMPY),
    **dict.fromkeys(("flatiter", "nested_iters"), "whole arrays at once, lg.fori_loop or lg.scan"),
    "ufunc": "functions of elements have its methods (lg.add.reduce); make your own with lg.vectorize",
    "lib": "NumPy's own takes tensors; lg.sliding_window_view is here",
    "isfortran": "tensors are dense, row by row: False",
    **dict.fromkeys(("clongdouble", "complex256"), "lg.complex128"),
    "True_": "True", "False_": "False",
}  # fmt: skip

JAX_ABSENT: Final[dict[str, str]] = {
    **{n: f"lg.{d}" for n, d in (
        ("mul", "multiply"), ("sub", "subtract"), ("div", "divide"), ("neg", "negative"), ("eq", "equal"),
        ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal"),
        ("rem", "fmod"), ("logistic", "sigmoid"), ("is_finite", "isfinite"), ("population_count", "bitwise_count"),
        ("rev", "flip"), ("shift_left", "left_shift"), ("shift_right_arithmetic", "right_shift"),
        ("convert_element_type", "astype"), ("broadcast_in_dim", "broadcast_to, after lg.expand_dims"),
        ("broadcast_like", "broadcast_to"), ("broadcast_to_rank", "expand_dims"), ("collapse", "reshape"),
        ("cumlogsumexp", "logcumsumexp"), ("erf_inv", "special.erfinv"), ("betainc", "special.betainc"),
        ("igamma", "special.gammainc"), ("igammac", "special.gammaincc"), ("polygamma", "special.polygamma"),
        ("zeta", "special.zeta"), ("bessel_i0e", "special.i0e"), ("bessel_i1e", "special.i1e"),
        ("approx_max_k", "top_k"), ("approx_min_k", "top_k of -x"), ("batch_matmul", "matmul"),
        ("reduce_sum", "sum"), ("reduce_prod", "prod"), ("reduce_max", "max"), ("reduce_min", "min"),
        ("reduce_and", "all"), ("reduce_or", "any"), ("jacobian", "jacrev"), ("remat", "checkpoint"),
        ("device_put", "to_device"), ("make_jaxpr", "to_text"), ("custom_gradient", "custom_vjp"),
        ("float_", "float64"), ("complex_", "complex128"), ("tree_util", "tree"), ("tree_map", "tree.map"),
        ("tree_leaves", "tree.leaves"), ("local_devices", "devices"), ("effects_barrier", "synchronize"),
        ("conv_with_general_padding", "conv_general_dilated"), ("conv_transpose", "conv with input_dilation=stride"),
        ("default_backend", "default_device"), ("device_count", "devices"), ("live_arrays", "memory_stats"),
        ("iota", "arange"), ("make_mesh", "mesh"), ("xor", "bitwise_xor"),
    )},
    "sort_complex": "lg.sort(x.astype(lg.complex128))",
    "clamp": "lg.clip(x, min, max)", "select_n": "lg.where(which, case_1, case_0), or lg.choose",
    "integer_pow": "x ** n", "sort_key_val": "order = lg.argsort(keys), then lg.take_along_axis of both",
    "broadcasted_iota": "lg.broadcast_to(lg.arange(n), shape), after lg.expand_dims",
    "complex": "re + 1j * im", "mulhi": "lg.right_shift of the product in a wider dtype",
    **dict.fromkeys(("gather", "index_take", "slice", "slice_in_dim", "index_in_dim"), "x[...], or lg.take"),
    **{n: f"x.at[i].{n.partition('_')[2] or 'set'}(v)" for n in
       ("scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_apply")},
    "scatter_sub": "x.at[i].subtract(v)", "ops": "lg.zeros(n).at[ids].add(x) for segment_sum, and so on",
    "reduce": "lg.sum, lg.max and so on, lg.associative_scan, or lg.scan",
    **dict.fromkeys(("custom_root", "custom_linear_solve"), "lg.optim.implicit_minimum, lg.custom_vjp"),
    "closure_convert": "closures are differentiated through: lg.custom_vjp takes them",
    **dict.fromkeys(
        ("pmap", "shard_map", "NamedSharding", "P", "sharding"), _OF_A_MESH),
    **dict.fromkeys(("lax", "numpy", "scipy"), "all names are loopgrad's own: lg.scan, lg.sum, lg.special.erf"),
    "device_get": "np.asarray(x)", "config": "lg.set_default_dtype, lg.options", "enable_x64": "lg.set_default_dtype",
    "debug": "return what you want to see, or print it outside: values are computed when they are looked at",
    **dict.fromkeys(("pure_callback", "experimental", "ffi"), "nothing calls back to Python: write it with lg"),
    **dict.fromkeys(("named_call", "named_scope"), "the name= of loops, and lg.name"),
    "disable_jit": "functions are compiled by lg.compile alone", "float0": "allow_int=True of lg.grad",
    "with_sharding_constraint": _OF_A_MESH, "optimization_barrier": "lg.checkpoint",
    "image": "lg.reshape and lg.mean, or a product with a matrix of weights", "typeof": "x.shape, x.dtype",
    **dict.fromkeys(
        ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
         "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "int1", "int2", "int4",
         "uint1", "uint2", "uint4"), "lg.float16 and lg.int8 are the narrowest"),
    "ComplexWarning": "complex numbers become real by x.real alone",
    "clz": "32 - lg.frexp(x.astype(lg.float64))[1], of 32-bit x that isn't negative",
    "reduce_precision": "x.astype(lg.bfloat16).astype(x.dtype)", "reduce_xor": "lg.bitwise_xor.reduce",
    "shift_right_logical": "lg.right_shift of lg.bitcast_convert_type(x, lg.uint32)",
    **dict.fromkeys(("igamma_grad_a", "random_gamma_grad"), "lg.grad of lg.special.gammainc by its first argument"),
    **dict.fromkeys(("rng_uniform", "rng_bit_generator"), "rng = lg.random.default_rng(seed), whose methods draw"),
    **dict.fromkeys(
        ("conv_general_dilated_local", "conv_general_dilated_patches"), "lg.conv with a kernel of ones and zeros"),
    **dict.fromkeys(
        ("conv_dimension_numbers", "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple",
         "conv_transpose_shape_tuple", "padtype_to_pads", "reduce_window_shape_tuple"), "lg.eval_shape of it"),
    **dict.fromkeys(("ragged_dot", "ragged_dot_general"), "lg.einsum, with zeros where rows belong to other groups"),
    **dict.fromkeys(("after_all", "create_token", "dce_sink"), "results are ordered by what they are computed from"),
    **dict.fromkeys(
        ("pbroadcast", "pcast", "precv", "psend", "ragged_all_to_all", "reshard", "set_mesh", "smap", "distributed",
         "process_count", "process_index", "process_indices", "host_count", "host_id", "host_ids", "Shard",
         "make_array_from_callback", "make_array_from_process_local_data",
         "make_array_from_single_device_arrays"), _OF_A_MESH),
    **dict.fromkeys(
        ("Precision", "PrecisionLike", "DotAlgorithm", "DotAlgorithmPreset", "default_matmul_precision", "scaled_dot"),
        "matmul_precision= of lg.options"),
    **dict.fromkeys(("ref", "new_ref", "empty_ref", "free_ref", "freeze", "Ref"), "tensors are written to: x[i] = v"),
    **dict.fromkeys(
        ("debug_nans", "debug_infs", "check_tracer_leaks", "checking_leaks", "enable_checks"),
        "lg.isfinite(x).all() of what is computed; check_indices= of lg.options"),
    **dict.fromkeys(("custom_derivatives", "softmax_custom_jvp"), "lg.custom_jvp, lg.custom_vjp"),
    "fwd_and_bwd": "lg.vjp", "profiler": "plan(...) and explain(...) of what lg.compile gives",
    "version": "lg.__version__", "errors": "lg.LoopgradError and the classes beside it",
    "local_device_count": "lg.devices", "dlpack": "lg.from_dlpack, x.__dlpack__()",
    "platform_dependent": "x.device, which is known while a function is traced",
    "clear_caches": "what is kept is bounded: docs/when_work_happens.md", "composite": "call the function",
    **dict.fromkeys(
        ("select_and_scatter", "select_and_scatter_add", "select_and_gather_add"), "lg.vjp of lg.reduce_window"),
}  # fmt: skip
ABSENT: Final[dict[str, str]] = {**_MADE_OTHERWISE, **NUMPY_ABSENT, **JAX_ABSENT}

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
    "truncated_normal": "lg.special.ndtri(rng.uniform(lg.special.ndtr(low), lg.special.ndtr(high), size=shape))",
    "rademacher": "2 * rng.integers(2, size=shape) - 1",
    "categorical": "lg.argmax(logits + rng.gumbel(size=logits.shape), axis=-1)",
    "maxwell": "lg.sqrt(rng.chisquare(3.0, size=shape))",
    "double_sided_maxwell": "sign = 2 * rng.integers(2, size=n) - 1, then sign * lg.sqrt(rng.chisquare(3.0, size=n))",
    "generalized_normal": "sign = 2 * rng.integers(2, size=n) - 1, sign * rng.standard_gamma(1 / p, size=n) ** (1 / p)",
    "ball": "x = rng.normal(size=(n, d)), then x / lg.linalg.vector_norm(x, axis=1, keepdims=True) * u ** (1 / d)",
    "orthogonal": "q, r = lg.linalg.qr(rng.normal(size=(n, n))), then q * lg.sign(lg.diagonal(r))",
    "loggamma": "lg.log(rng.standard_gamma(a))",
    "bits": "rng.integers(2**32, size=shape, dtype=lg.uint32)",
    "random_gamma_p": "lg.special.gammainc",
    **{
        n: f"rng.{d}, of rng = lg.random.default_rng(seed)"
        for n, d in (
            ("cauchy", "standard_cauchy"),
            ("t", "standard_t"),
            ("weibull_min", "weibull"),
            ("multinomial", "multinomial"),
            ("bernoulli", "bernoulli"),
            ("beta", "beta"),
            ("binomial", "binomial"),
            ("chisquare", "chisquare"),
            ("dirichlet", "dirichlet"),
            ("f", "f"),
            ("gamma", "gamma"),
            ("geometric", "geometric"),
            ("gumbel", "gumbel"),
            ("laplace", "laplace"),
            ("logistic", "logistic"),
            ("lognormal", "lognormal"),
            ("pareto", "pareto"),
            ("multivariate_normal", "multivariate_normal"),
            ("poisson", "poisson"),
            ("rayleigh", "rayleigh"),
            ("triangular", "triangular"),
            ("wald", "wald"),
            ("clone", "copy()"),
        )
    },
    "random": "make rng = lg.random.default_rng(seed), whose methods draw",
    **dict.fromkeys(("key_data", "wrap_key_data", "key_impl"), "the state of rng.bit_generator"),
    **dict.fromkeys(("key", "PRNGKey", "split", "fold_in"), "lg.random.Generator(seed), its stream(shape), spawn(n)"),
}
NN_ABSENT: Final[dict[str, str]] = {
    "initializers": "draw weights: rng = lg.random.default_rng(seed); rng.normal(scale=s, size=shape)",
    "scaled_dot_general": "lg.dot_general", "scaled_matmul": "lg.matmul", "hardtanh": "lg.nn.hard_tanh",
    "logmeanexp": "lg.nn.logsumexp(x) - lg.log(x.size)", "identity": "x itself",
    **dict.fromkeys(("max_pool", "avg_pool"), "lg.reduce_window with lg.maximum, or with lg.add and a quotient"),
    "softsign": "lg.nn.soft_sign", "conv": "lg.conv", "batch_norm": "lg.nn.standardize over the batch axes",
    "layer_norm": "lg.nn.standardize", "cross_entropy": "-(labels * lg.nn.log_softmax(x)).sum(-1).mean()",
}  # fmt: skip
_OF_SYMMETRIC: Final = "of symmetric matrices w, v = lg.linalg.eigh(a), then v * f(w) @ v.mT"
_DENSE: Final = "lg.linalg.solve of the dense matrix, or a lg.scan over its rows"
LINALG_ABSENT: Final[dict[str, str]] = {
    "LinAlgWarning": "nothing warns: singular matrices give infinities or NaN",
    **dict.fromkeys(("sqrtm", "logm", "funm", "signm", "cosm", "sinm", "fractional_matrix_power"), _OF_SYMMETRIC),
    **dict.fromkeys(("solve_banded", "solveh_banded"), _DENSE),
    "eigh_tridiagonal": "lg.linalg.eigh of the dense matrix",
    "solve_toeplitz": "lg.linalg.solve(lg.linalg.toeplitz(c), b)",
    "solve_circulant": "lg.fft.ifft(lg.fft.fft(b) / lg.fft.fft(c))", "triangular_solve": "lg.linalg.solve_triangular",
    "expm_frechet": "lg.jvp(lg.linalg.expm, (a,), (e,))",
    "orth": "the columns of u of lg.linalg.svd(a) with singular values above rounding",
    "null_space": "the rows of vh of lg.linalg.svd(a) with singular values of rounding",
    "cholesky_update": "lg.linalg.cholesky(l @ l.mT + lg.outer(v, v))", "symmetric_product": "a @ a.mT",
    **dict.fromkeys(
        ("hessenberg", "schur", "rsf2csf", "qz", "ordqz", "cossin"), "lg.linalg.eig; scipy.linalg's of np.asarray(a)"),
    **dict.fromkeys(("householder_product", "ormqr", "qr_multiply"), "q @ c, of q, r = lg.linalg.qr(a)"),
    "lu_pivots_to_permutation": "p, l, u = lg.linalg.lu(a)", "tridiagonal": "lg.linalg.eigh",
    "fiedler_companion": "lg.linalg.companion", "ldl": "lg.linalg.lu, or lg.linalg.cholesky of positive definite ones",
    "qdwh": "u, s, vh = lg.linalg.svd(a, full_matrices=False), then u @ vh and vh.mT * s @ vh",
    "solve_sylvester": "lg.linalg.solve(lg.kron(a, lg.eye(m)) + lg.kron(lg.eye(n), b.mT), q.ravel()).reshape(n, m)",
    "solve_discrete_lyapunov": "lg.linalg.solve(lg.eye(n * n) - lg.kron(a, lg.conj(a)), q.ravel()).reshape(n, n)",
    "polar": "u, s, vh = lg.linalg.svd(a, full_matrices=False), then u @ vh and vh.mT * s @ vh",
}  # fmt: skip

STATS_ABSENT: Final[dict[str, str]] = {
    "gaussian_kde": "lg.logsumexp of lg.stats.norm.logpdf(x, points, width) along the points - lg.log(n)",
    "sem": "lg.std(x, ddof=1) / lg.sqrt(n)",
    "mode": "values, counts = lg.unique_counts(x), then values[counts.argmax()]",
    "zscore": "(x - x.mean(0)) / x.std(0)", "gmean": "lg.exp(lg.log(x).mean(0))",
    "entropy": "lg.special.entr(p).sum()",
    "multivariate_t": "lg.linalg.cholesky and lg.stats.t's formula",
    **dict.fromkeys(
        ("rankdata", "skew", "kurtosis", "describe", "iqr", "moment", "pearsonr", "spearmanr", "ttest_ind", "ttest_rel",
         "ttest_1samp", "kstest", "chisquare", "f_oneway", "variation", "hmean", "tmean", "circmean", "trim_mean"),
        _SCIPY),
}  # fmt: skip

_ELEMENTS: Final = "scipy.special's of np.asarray(x), elements without derivatives"
_OTHER_ORDERS: Final = "those of orders 0 and 1, and the recurrence from them; scipy.special's of np.asarray(x)"
SPECIAL_ABSENT: Final[dict[str, str]] = {
    "exp2": "lg.exp2", "expm1": "lg.expm1", "log1p": "lg.log1p", "cbrt": "lg.cbrt",
    "sinc": "lg.sinc", "round": "lg.round",
    **{n: f"lg.stats.{d}" for n, d in (
        ("chdtr", "chi2.cdf"), ("chdtrc", "chi2.sf"), ("stdtr", "t.cdf"), ("pdtr", "poisson.cdf"),
        ("pdtrc", "poisson.sf"), ("bdtr", "binom.cdf"), ("bdtrc", "binom.sf"), ("nbdtr", "nbinom.cdf"),
        ("gdtr", "gamma.cdf"), ("gdtrc", "gamma.sf"), ("fdtr", "beta.cdf of a * x / (a * x + b), with a / 2 and b / 2"),
    )},
    "boxcox": "lg.expm1(lmbda * lg.log(x)) / lmbda, and lg.log(x) for lmbda 0",
    "boxcox1p": "lg.expm1(lmbda * lg.log1p(x)) / lmbda, and lg.log1p(x) for lmbda 0",
    **dict.fromkeys(("comb", "binom"), "lg.exp(-lg.log1p(n) - lg.special.betaln(n - k + 1, k + 1))"),
    "perm": "lg.exp(lg.special.gammaln(n + 1) - lg.special.gammaln(n - k + 1))",
    "poch": "lg.exp(lg.special.gammaln(a + m) - lg.special.gammaln(a)), for positive ones",
    "loggamma": "lg.special.gammaln, for positive x",
    "multigammaln": "lg.special.gammaln(a[..., None] - lg.arange(d) / 2).sum(-1) + d * (d - 1) / 4 * lg.log(lg.pi)",
    "expn": "lg.special.exp1(x), and expn(n + 1, x) = (lg.exp(-x) - x * expn(n, x)) / n",
    "exprel": "lg.expm1(x) / x", "powm1": "lg.expm1(y * lg.log(x))", "log1pmx": "lg.log1p(x) - x",
    **dict.fromkeys(("bessel_jn", "jn", "jv", "yn", "yv", "iv", "kn", "kv"), _OTHER_ORDERS),
    **dict.fromkeys(
        ("airy", "bernoulli", "dawsn", "ellipe", "ellipj", "ellipk", "fresnel", "hyp0f1", "hyp1f1", "hyp2f1", "owens_t",
         "sph_harm", "sph_harm_y", "struve", "wofz"), _ELEMENTS),
}  # fmt: skip
_PYTREES: Final = "lg.register_pytree"
TREE_ABSENT: Final[dict[str, str]] = {
    **{f"tree_{n}": f"lg.tree.{n}" for n in (
        "all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map", "map_with_path",
        "reduce", "structure", "transpose", "unflatten",
    )},
    **dict.fromkeys(("reduce_associative", "tree_reduce_associative"), "lg.tree.reduce"),
    **dict.fromkeys(("static", "register_static"), "lg.register_static"), "Partial": "functools.partial",
    **dict.fromkeys(
        ("register_dataclass", "register_pytree_node", "register_pytree_node_class", "register_pytree_with_keys",
         "register_pytree_with_keys_class"), _PYTREES),
}  # fmt: skip

# attributes of arrays
TENSOR_ABSENT: Final[dict[str, str]] = {
    **dict.fromkeys(("itemset", "setflags", "setfield"), _IN_PLACE),
    "resize": "lg.resize(x, shape), a new tensor",
    "strides": "views share no memory that strides could reach: np.asarray(x).strides, of the array",
    "data": "np.asarray(x)",
    "base": "views are what they are in NumPy (docs/numpy.md): x.copy() shares with nobody",
    "flags": "tensors can be written to, but for results of broadcast_to and diagonal",
    "ctypes": "np.asarray(x).ctypes",
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


class AbsentAttribute:
    """An attribute of arrays that tensors lack: who asks is told what to use instead. A `__getattr__` of the class
    would be called for every name that isn't there, and NumPy asks each tensor for two such names before it takes its
    elements."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, tensor: object, cls: type) -> NoReturn:
        raise AttributeError(absent_name(cls.__name__, self._name, TENSOR_ABSENT), name=self._name, obj=tensor)
