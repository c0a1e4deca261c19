"""Every public function: does its result share memory with its argument as NumPy's does?

For each call of the table the result is written to and the argument looked at, then the other way round, with NumPy's
function of that name (or a statement that the result is new) as the oracle. A public function that is missing here
fails by name.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.tensor.storage import by_rows

X = np.arange(1.0, 13.0).reshape(3, 4)

UNARY = """
    abs absolute acos acosh arccos arccosh arcsin arcsinh arctan arctanh around asin asinh atan atanh bitwise_count
    bitwise_invert bitwise_not cbrt ceil cos cosh deg2rad degrees digamma erf erfc exp exp2 expm1 fabs floor invert
    isfinite isinf isnan isneginf isposinf lgamma log log10 log1p log2 logical_not modf nan_to_num negative positive
    rad2deg radians reciprocal rint round rsqrt sigmoid sign signbit sin sinc sinh sqrt square stop_gradient tan tanh
    frexp spacing trunc angle conj conjugate imag iscomplex isreal real real_if_close
    all any amax amin argmax argmin argsort argwhere average count_nonzero corrcoef cov cummax cummin cumprod
    cumsum diff flatnonzero logsumexp max mean median min nanargmax nanargmin
    nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar nonzero prod ptp sort std sum
    var broadcast_arrays copy array asarray atleast_1d atleast_2d atleast_3d diag diagflat diagonal fliplr flipud flip
    from_dlpack matrix_norm matrix_transpose meshgrid ravel rot90 squeeze trace transpose tril triu trapezoid gradient
    vector_norm empty_like ones_like zeros_like unstack histogram
"""
JOINS = "block column_stack concat concatenate dstack hstack stack vstack"
BINARY = """
    add allclose arctan2 array_equal atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
    copysign divide divmod equal float_power floor_divide fmax fmin fmod gcd greater greater_equal heaviside hypot
    isclose isin lcm left_shift less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor maximum
    minimum mod multiply nextafter
    not_equal pow power remainder right_shift subtract true_divide append inner kron outer
    vdot vecdot
"""
SQUARES = "cross dot matmul"
NOT_OF_ARRAYS = """
    arange bfloat16 bool bool_ broadcast_shapes can_cast complex128 complex64 default_device default_dtype devices
    empty eval eye finfo float16 float32 float64 fromfunction geomspace identity iinfo indices int16 int32 int64 int8
    isdtype linspace logspace memory_stats ndim ones options promote_types result_type set_default_dtype shape size
    register_pytree register_static synchronize explain to_dot to_networkx to_text uint16 uint32 uint64 uint8
    zeros unravel_index tri __array_namespace_info__ bartlett blackman hamming hanning isscalar ix_ diag_indices
    diag_indices_from tril_indices tril_indices_from triu_indices triu_indices_from mask_indices unpackbits trim_zeros
    attention eval_shape export linear_transpose load load_exported map_shards save sweep
    all_gather all_to_all axis_index axis_size gather_all mesh pmax pmean pmin ppermute pshuffle psum psum_scatter
    pswapaxes shard shard_batches
    complexfloating floating generic inexact integer issubdtype number signedinteger unsignedinteger
    array2string array_repr array_str base_repr binary_repr format_float_positional format_float_scientific
    get_printoptions iterable ndenumerate ndindex printoptions set_printoptions
    frombuffer fromiter fromstring genfromtxt loadtxt errstate seterr
    byte cdouble csingle double half int_ intc intp long longlong short single ubyte uint uintc uintp ulong ulonglong
    ushort copyto fill_diagonal iscomplexobj isrealobj place put put_along_axis putmask
"""  # no array goes in, or none comes out

# results in memory of their own, and no function of NumPy's to compare with
NEW = (
    "m.linalg.svd(x)",
    "m.fft.dct(x)",
    "m.fft.idct(x, 1)",
    "m.fft.dst(x, 4)",
    "m.fft.idst(x, n=3)",
    "m.fft.dctn(x)",
    "m.fft.idctn(x, s=(3, 4))",
    "m.fft.dstn(x, axes=(1,))",
    "m.fft.idstn(x, axes=())",
    "m.fft.hfft2(x)",
    "m.fft.ihfft2(x)",
    "m.fft.hfftn(x)",
    "m.fft.ihfftn(x)",
    "m.asarray(m.fft.next_fast_len(len(x)))",
    "m.asarray(m.fft.prev_fast_len(len(x)))",
    "m.linalg.toeplitz(x[0])",
    "m.linalg.hankel(x[0])",
    "m.linalg.circulant(x[:, :1])",
    "m.linalg.convolution_matrix(x[0], 1)",
    "m.linalg.fiedler(x)",
    "m.linalg.companion(x[0])",
    "m.linalg.leslie(x[0, :1], x[0, :0])",
    "m.linalg.block_diag(x)",
    "m.linalg.khatri_rao(x, x[:1])",
    "m.linalg.dft(2)",
    "m.linalg.hadamard(2)",
    "m.linalg.helmert(2)",
    "m.linalg.hilbert(2)",
    "m.linalg.invhilbert(2)",
    "m.linalg.pascal(2)",
    "m.linalg.invpascal(2)",
    "m.linalg.expm(x[:, :3])",
    "m.linalg.solve_triangular(x[:, :3], x)",
    "m.linalg.tridiagonal_solve(x[:, 0], 9.0 + x[:, 1], x[:, 2], x)",
    "m.linalg.cho_factor(m.matmul(1.0 * x, x.T) + 9.0 * m.eye(3))[0]",
    "m.linalg.cho_solve((x[:, :3], True), x)",
    "m.linalg.lu(x)",
    "m.linalg.lu_factor(x)",
    "m.linalg.lu_solve((x[:, :3], [0, 1, 2]), x)",
    "m.associative_scan(m.add, x)",
    "m.logcumsumexp(x, 0)",
    "m.top_k(x, 2)",
    "m.sliding_window_view(x, (3, 4))",
    "m.sliding_window_view(x, 1, 0)",
    'm.to_device(x, "cpu")',
    "m.cond(m.sum(x) > 0, lambda v: v, lambda v: v, x)",
    "m.cond(True, lambda v: v, lambda v: v, x)",
    "m.switch(m.argmax(x), [lambda v: v, lambda v: v], x)",
    "m.fori_loop(0, 2, lambda _, v: v, x)",
    "m.fori_loop(0, 2, lambda _, v: v + 1, x)",
    "m.while_loop(lambda c: c[1] < 2, lambda c: (c[0], c[1] + 1), (x, 0))[0]",
    "m.scan(lambda c, row: (c, row), x, x)",
    "m.checkpoint(lambda v: v)(x)",
    "m.vmap(lambda v: v)(x)",
    "m.vmap(lambda a, b: b, in_axes=(0, None), out_axes=None)(x, x)",
    "m.grad(lambda v: m.sum(v))(x)",
    "m.value_and_grad(lambda v: m.sum(v * v))(x)",
    "m.gradients(m.sum(x * x), [x])",
    "m.name(x, 'kept')",
    "m.jvp(lambda v: v, (x,), (x,))",
    "(lambda r: (r[0], *r[1](x)))(m.vjp(lambda v: v, x))",
    "(lambda r: (r[0], r[1](x)))(m.linearize(lambda v: v, x))",
    "m.hvp(lambda v: m.sum(v * v), x, x)",
    "m.jacrev(lambda v: v[0])(x)",
    "m.jacfwd(lambda v: v[0])(x)",
    "m.hessian(lambda v: m.sum(v * v))(x)",
    "m.compile(lambda v: v)(x)",
    "m.sort(x, descending=True)",
    "m.argsort(x, descending=True)",
    "m.bitcast_convert_type(x, m.int64)",
    "m.partition(x, 1)",
    "m.argpartition(x, 1)",
    "m.array_equiv(x, x)",
    "m.kaiser(4, m.sum(x) * 0 + 1.0)",
    "m.polyder(x[0], 0)",
    "m.polyint(x[0], 0)",
    "m.conj(x)",
    "m.conv(x[None, None], m.ones((1, 1, 1, 1)))",
    "m.polydiv(x[0], x.ravel())[1]",
    "m.conv_general_dilated(x[None], m.ones((3, 3, 1)), (1,), 'VALID')",
    "m.dot_general(x, x, (([1], [1]), ([], [])))",
    "m.dynamic_index_in_dim(x, 0)",
    "m.dynamic_slice(x, (0, 0), x.shape)",
    "m.dynamic_slice_in_dim(x, 0, 3)",
    "m.dynamic_update_index_in_dim(x, x[0], 0, 0)",
    "m.dynamic_update_slice(x, x, (0, 0))",
    "m.dynamic_update_slice_in_dim(x, x, 0, 0)",
    "m.map(lambda v: v, x)",
    "m.reduce_window(x, 0.0, m.add, (1, 1))",
    "m.vectorize(lambda v: v)(x)",
)
NUMPYS = (
    "m.array_split(x, 2)",
    "m.apply_along_axis(lambda v: v, 1, x)",
    "m.apply_over_axes(m.cumsum, x, 0)",
    "m.choose(m.zeros_like(x).astype(m.int64), [x, x])",
    "m.ediff1d(x)",
    "m.histogram2d(x.ravel(), x.ravel(), 2)",
    "m.histogramdd([x.ravel()], 2)",
    "m.histogram_bin_edges(x, 2)",
    "m.histogram_bin_edges(x, m.asarray([0.0, 1.0]))",
    "m.i0(x)",
    "m.insert(x, 0, 1, axis=0)",
    "m.intersect1d(x, x)",
    "m.union1d(x, x)",
    "m.setdiff1d(x, x[:1])",
    "m.setxor1d(x, x[:1])",
    "m.matvec(x[:, :3], m.ones(3))",
    "m.vecmat(m.ones(3), x)",
    "m.piecewise(x, [x > 0], [x])",
    "m.poly(x[0])",
    "m.polyfit(x[0], x[1], 1)",
    "m.roots(x[0])",
    "m.polyadd(x[0], x[1])",
    "m.polysub(x[0], x[1])",
    "m.polymul(x[0], x[1])",
    "m.polyder(x[0])",
    "m.polyint(x[0])",
    "m.polydiv(x[0], x[0][:2])[0]",
    "m.ravel_multi_index((m.asarray([0, 1]), m.asarray([1, 0])), (2, 2))",
    "m.resize(x, (3, 4))",
    "m.resize(x, (2, 2))",
    "m.rollaxis(x, 1)",
    "m.unwrap(x)",
    "m.packbits(x > 0)",
    "m.fix(x)",
    "m.conjugate(x)",
    "x.compress([True, True, True], axis=0)",
    "m.array(x, copy=True)",
    "m.array(x, copy=None)",
    "m.asarray(x, copy=True)",
    "m.asanyarray(x)",
    "m.ascontiguousarray(x)",
    "m.asarray(x, copy=False)",
    "m.asarray(x, dtype=m.float64)",
    "m.asarray(x, dtype=m.float32)",
    "m.astype(x, m.float64)",
    "m.astype(x, m.float32)",
    "m.astype(x, m.float64, copy=False)",
    "x.astype(m.float64)",
    "x.astype(m.float64, copy=False)",
    "x.copy()",
    "x.flatten()",
    'x.flatten("F")',
    "x.ravel()",
    "x.view()",
    "x.view(m.float64)",
    "x.view(m.int64)",
    "x.view(m.uint8)",
    "x.T.view(m.int64)[0]",
    "x.reshape(-1)",
    "x.squeeze()",
    "x.transpose(1, 0)",
    "x.T",
    "x.mT",
    "x.swapaxes(0, 1)",
    "x.diagonal()",
    "x.clip(0, 99)",
    "x.round()",
    "x.repeat(1)",
    "x.take(0)",
    "+x",
    "abs(x)",
    "divmod(x, 1)",
    "m.cumulative_prod(x, axis=0)",
    "m.cumulative_sum(x, axis=0)",
    "m.bincount(m.astype(m.ravel(x), m.int64))",
    "m.broadcast_to(x, (3, 4))",
    "m.broadcast_to(x, (2, 3, 4))",
    "m.clip(x, 0, 5)",
    "m.clip(x, None, None)",
    "m.compress([True, True, True], x, axis=0)",
    "m.convolve(x[0], m.asarray([1.0]))",
    "m.correlate(x[0], m.asarray([1.0]))",
    "m.delete(x, [], axis=0)",
    "m.diag(x[0])",
    "m.diag(x, 1)",
    "m.diff(x, n=0)",
    "m.digitize(x, m.asarray([1.0, 5.0]))",
    "m.dsplit(x.reshape(3, 2, 2), 2)",
    'm.einsum("ij->ij", x)',
    'm.einsum("ij->ji", x)',
    'm.einsum("ij,ij->ij", x, x)',
    'm.einsum("ij->i", x)',
    'm.einsum("ii->i", x[:, :3])',
    'm.einsum("...i->i...", x)',
    "m.expand_dims(x, 1)",
    "m.extract(x > 0, x)",
    "m.flip(x, axis=())",
    "m.flip(x, axis=1)",
    "m.full((3, 4), x)",
    "m.full_like(x, 1)",
    "m.full_like(x, x)",
    "m.hsplit(x, 2)",
    "m.interp(x, m.asarray([1.0, 12.0]), m.asarray([1.0, 12.0]))",
    "m.ldexp(x, 0)",
    "m.meshgrid(x[0], x[1], sparse=True)",
    "m.moveaxis(x, 0, 1)",
    "m.moveaxis(x, 0, 0)",
    "m.pad(x, 0)",
    'm.pad(x, 0, mode="edge")',
    "m.percentile(x, 50, axis=0)",
    "m.nanpercentile(x, 50, axis=0)",
    "m.nanquantile(x, 0.5, axis=0)",
    "m.quantile(x, 0.5, axis=0)",
    "m.permute_dims(x, (1, 0))",
    "m.permute_dims(x, (0, 1))",
    "m.polyval(m.asarray([1.0, 0.0]), x)",
    "m.ravel(x.T)",
    "m.ravel(x[0][::2])",
    'm.ravel(x, order="F")',
    'm.ravel(x.T, order="F")',
    "m.repeat(x, 1, axis=0)",
    "m.reshape(x, (4, 3))",
    "m.reshape(x, (3, 4))",
    "m.reshape(x, (3, 4), copy=True)",
    "m.reshape(x, (2, 6), copy=False)",
    'm.reshape(x, (4, 3), order="F")',
    "m.reshape(x[:, ::2], (6,))",
    "m.reshape(x[::2], (2, 2, 2))",
    "m.reshape(x[0][::-1], (2, 2))",
    "m.reshape(x.T, (12,))",
    "m.reshape(x.T, (2, 2, 3))",
    "m.roll(x, 1)",
    "m.roll(x, 0)",
    "m.roll(x, 0, axis=0)",
    "m.rot90(x, 0)",
    "m.rot90(x, 2)",
    "m.rot90(x, 3)",
    "m.lexsort((x[0], x[1]))",
    "m.searchsorted(x[0], x[1])",
    "m.unique(x)",
    "m.unique(x, axis=1)",
    "m.unique(x, True, True, True)",
    "m.unique_all(x)",
    "m.unique_counts(x)",
    "m.unique_inverse(x)",
    "m.unique_values(x)",
    "m.select([x > 0], [x])",
    "m.split(x, 3)",
    "m.split(x, [1, 2], axis=1)",
    "m.split(x, 1)",
    "m.squeeze(x[:1], axis=0)",
    "m.sum(x, axis=())",
    "m.max(x, axis=())",
    "m.swapaxes(x, 0, 1)",
    "m.swapaxes(x, 1, 1)",
    "m.sort(x, axis=0)",
    "m.take(x, [0, 1], axis=0)",
    "m.take(x, 0, axis=0)",
    "m.take_along_axis(x, m.asarray([[0], [0], [0]]), axis=1)",
    "m.tile(x, 1)",
    "m.unstack(x, axis=1)",
    "m.vander(x[0], 1)",
    "m.vsplit(x, 3)",
    "m.where(x > 0, x, x)",
    "m.matmul(x, m.eye(4))",
    "m.tensordot(x, m.eye(4), 1)",
    "m.fft.fft(x)",
    "m.fft.ifft(x, axis=0)",
    "m.fft.rfft(x)",
    "m.fft.irfft(x)",
    "m.fft.hfft(x)",
    "m.fft.ihfft(x)",
    "m.fft.fftn(x, axes=(0,))",
    "m.fft.ifftn(x, axes=(1,))",
    "m.fft.rfftn(x)",
    "m.fft.irfftn(x)",
    "m.fft.fft2(x)",
    "m.fft.ifft2(x)",
    "m.fft.rfft2(x)",
    "m.fft.irfft2(x)",
    "m.fft.fftshift(x)",
    "m.fft.fftshift(x, axes=())",
    "m.fft.ifftshift(x, axes=0)",
    "m.fft.fftfreq(4)",
    "m.fft.rfftfreq(4)",
    "m.linalg.diagonal(x)",
    "m.linalg.matrix_transpose(x)",
    "m.linalg.matrix_power(x[:, :3], 1)",
    "m.linalg.multi_dot([x, m.eye(4)])",
    "m.linalg.norm(x, axis=0)",
    "m.linalg.solve(x[:, :3], x)",
    "m.linalg.solve(x[:, :3], x[0, :3])",
    "m.linalg.inv(x[:, :3])",
    "m.linalg.det(x[:, :3])",
    "m.linalg.slogdet(x[:, :3])",
    "m.linalg.qr(x)",
    "m.linalg.eigh(x[:, :3])",
    "m.linalg.eigvalsh(x[:, :3])",
    "m.linalg.eig(x[:, :3] + 0j)",
    "m.linalg.eigvals(x[:, :3] + 0j)",
    "m.linalg.svdvals(x)",
    "m.linalg.pinv(x)",
    "m.linalg.lstsq(x, x)",
    "m.linalg.cond(x)",
    "m.linalg.matrix_rank(x)",
    "m.linalg.tensorinv(m.eye(3), 1)",
    "m.linalg.tensorsolve(m.eye(3), x[:, 0])",
    "m.linalg.cholesky(m.matmul(x, x.T) + 9.0 * m.eye(3))",
    "x[0]",
    "x[0, 0]",
    "x[0, 0, ...]",
    "x[...]",
    "x[:]",
    "x[()]",
    "x[None]",
    "x[1:, ::-2]",
    "x[::-1][0]",
    "x[0:0]",
    "x[m.argmax(x[:, 0])]",
    "x[:, m.argmax(x[0])]",
    "x[m.argmax(x[:, 0]), None]",
    "x[m.asarray(1)]",
    "x[[0, 1]]",
    "x[x > 0]",
    "x[m.asarray([True, True, True])]",
    "x[m.asarray([0, 1]), 1:]",
    "list(x)",
    "list(x[0])",
    "x.T.T[1:]",
    "m.split(m.swapaxes(x, 0, 1), 2)",
)
# without axes a number, where NumPy has an array
NUMBERS = frozenset({"i0", "isin", "pad", "piecewise", "roll", "select", "tensordot", "where"})


def cases() -> Iterator[tuple[str, bool]]:
    """Calls as text, of which `m` is the library and `x` the array, and whether they are NumPy's as well."""
    for name in UNARY.split():
        yield f"m.{name}(x)", hasattr(np, name) and name != "empty_like"
    yield from [(f"m.{name}([x])", True) for name in JOINS.split()]
    yield from [(f"m.{name}(x, m.ones_like(x))", hasattr(np, name)) for name in BINARY.split()]
    yield from [(f"m.{name}(x[:, :3], m.eye(3))", True) for name in SQUARES.split()]
    yield from [(text, True) for text in NUMPYS]
    yield from [(text, False) for text in NEW]


CASES = list(cases())


def call(text: str, library: Any, x: Any) -> list[Any]:
    """The results of a call, of nested ones each."""
    return arrays(eval(text, {"m": library, "x": x}))


def arrays(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [a for part in result for a in arrays(part)]
    return [result]


def test_every_function_is_in_the_table() -> None:
    covered = {name for text, _ in CASES for name in re.findall(r"m\.((?:(?:linalg|fft)\.)?\w+)", text)}
    for name in lg.__all__:
        function = getattr(lg, name)
        if callable(function) and not isinstance(function, type | lg.DType):
            assert name in covered or name in NOT_OF_ARRAYS.split(), name
    functions = {name for name in lg.linalg.__all__ if not isinstance(getattr(lg.linalg, name), type)}
    assert {name for name in functions if name not in covered and f"linalg.{name}" not in covered} == set()
    assert {name for name in lg.fft.__all__ if f"fft.{name}" not in covered} == set()


@pytest.mark.in_turns
@pytest.mark.parametrize(("text", "numpys"), CASES, ids=[text for text, _ in CASES])
def test_results_share_memory_as_numpys_do(text: str, numpys: bool) -> None:
    looked_at = 0
    with lg.default_device("interpreter"), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype, source in product(("float64", "int64", "uint8", "bool"), (X, X[0], X[0, 0])):
            a = np.asarray(source, dtype=dtype)
            try:
                theirs = call(text, np, a) if numpys else None
                ours = call(text, lg, lg.asarray(a))
            except (TypeError, ValueError, IndexError):
                continue  # not for this dtype or rank
            number = all(not np.shape(r) for r in ours) and NUMBERS & set(re.findall(r"\w+", text))
            if number or (theirs is not None and len(theirs) != len(ours)):
                continue
            for i in range(len(ours)):
                check_writing_to_the_result(text, numpys, a, i)
                check_writing_to_the_argument(text, numpys, a, i)
            looked_at += 1
    assert looked_at


def check_writing_to_the_result(text: str, numpys: bool, a: np.ndarray, i: int) -> None:
    """The i-th result, and the argument afterwards."""
    other, x = a.copy(), lg.asarray(a)
    result = call(text, lg, x)[i]
    theirs = call(text, np, other)[i] if numpys else None
    if not isinstance(result, lg.Tensor) or (not result.shape and theirs is None):
        return
    assert result is not x
    zero = np.asarray(result).dtype.type(0)
    if isinstance(theirs, np.ndarray) and not theirs.flags.writeable:
        with pytest.raises(ValueError, match="read-only"):
            result[...] = zero
    else:
        result[...] = zero
        assert not np.asarray(result).any()
        if isinstance(theirs, np.ndarray):  # a number of NumPy's doesn't change
            theirs[...] = zero
    np.testing.assert_array_equal(np.asarray(x), other)


def check_writing_to_the_argument(text: str, numpys: bool, a: np.ndarray, i: int) -> None:
    """The argument, and the i-th result afterwards."""
    other, x = a.copy(), lg.asarray(a)
    result = call(text, lg, x)[i]
    theirs = call(text, np, other)[i] if numpys else None
    before = np.asarray(result).copy()
    x[...] = other[...] = a.dtype.type(1)
    shares = isinstance(theirs, np.ndarray) and np.shares_memory(theirs, other)
    by_columns = isinstance(theirs, np.ndarray) and not theirs.flags.c_contiguous
    if isinstance(result, lg.Tensor) and not shares and not by_columns:  # so that `ravel` and `reshape` of it are views
        assert by_rows(result)
    np.testing.assert_array_equal(np.asarray(result), theirs if shares else before)
    assert np.asarray(x).all()
