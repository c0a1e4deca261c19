"""The public functions that NumPy has too, by how a random statement calls them, and those that none calls."""

from __future__ import annotations

from typing import Final


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "unary": words("""
        abs absolute acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwise_count
        bitwise_invert bitwise_not cbrt ceil copy cos cosh deg2rad degrees exp exp2 expm1 fabs floor invert isfinite
        isinf isnan isneginf isposinf log log10 log1p log2 logical_not nan_to_num negative positive rad2deg radians
        reciprocal rint round around sign signbit sin sinc sinh sqrt square tan tanh trunc ravel squeeze fliplr
        flipud flip transpose diag diagflat tril triu atleast_1d atleast_2d atleast_3d matrix_transpose zeros_like
        ones_like flatnonzero argwhere ptp trace diagonal rot90 vander angle conj conjugate real imag iscomplex isreal
    """),
    "pairs": words("""
        modf nonzero broadcast_arrays meshgrid divmod
    """),
    "binary": words("""
        add arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide
        equal float_power floor_divide fmax fmin fmod gcd greater greater_equal heaviside hypot lcm left_shift less
        less_equal logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum mod multiply not_equal
        pow power remainder right_shift subtract true_divide isclose allclose array_equal kron outer inner dot vdot
        matmul vecdot tensordot cross append isin convolve correlate ldexp
    """),
    "reduction": words("""
        all amax amin any argmax argmin average count_nonzero max mean median min nanargmax nanargmin nanmax nanmean
        nanmedian nanmin nanprod nanstd nansum nanvar prod std sum var
    """),
    "quantile": words("""
        quantile percentile nanquantile nanpercentile
    """),
    "running": words("""
        cumprod cumsum cumulative_prod cumulative_sum nancumprod nancumsum diff sort
    """),
    "joining": words("""
        column_stack concat concatenate dstack hstack stack vstack
    """),
    "creating": words("""
        arange empty eye full geomspace identity linspace logspace ones tri zeros fromfunction
    """),
    "axes": words("""
        expand_dims moveaxis permute_dims reshape roll swapaxes broadcast_to tile repeat pad flip
    """),
    "splitting": words("""
        array_split split hsplit vsplit dsplit unstack
    """),
    "choosing": words("""
        where clip take take_along_axis searchsorted select compress extract delete digitize
    """),
    "statistics": words("""
        bincount corrcoef cov gradient histogram interp polyval trapezoid einsum block
    """),
    "argsort": words("""
        argsort lexsort
    """),
    "converting": words("""
        asarray array astype empty_like full_like
    """),
}

ELSEWHERE: Final[dict[str, str]] = {
    **dict.fromkeys(
        words("""
        bool bool_ complex64 complex128 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
        byte cdouble csingle double half int_ intc intp long longlong short single ubyte uint uintc uintp ulong
        ulonglong ushort complexfloating floating generic inexact integer number signedinteger unsignedinteger
    """),
        "dtypes: in every conversion",
    ),
    **dict.fromkeys(
        words("""
        e inf nan pi newaxis
    """),
        "constants: in literals",
    ),
    **dict.fromkeys(
        words("""
        apply_along_axis apply_over_axes argpartition array_equiv bartlett blackman c_ choose copyto diag_indices
        diag_indices_from ediff1d euler_gamma fill_diagonal fix hamming hanning histogram2d histogram_bin_edges
        histogramdd i0 index_exp insert intersect1d isscalar ix_ kaiser mask_indices matvec mgrid ogrid packbits
        partition piecewise place poly polyadd polyder polydiv polyint polymul polysub put put_along_axis putmask r_
        ravel_multi_index resize rollaxis s_ setdiff1d setxor1d tril_indices tril_indices_from trim_zeros triu_indices
        triu_indices_from union1d unpackbits unwrap vecmat
    """),
        "tests/lazy/numpy/test_less_usual_functions.py",
    ),
    **dict.fromkeys(
        words("""
        asanyarray ascontiguousarray errstate frombuffer fromiter fromstring genfromtxt issubdtype loadtxt polyfit roots
        seterr vectorize array2string array_repr array_str base_repr binary_repr format_float_positional
        format_float_scientific get_printoptions iterable ndenumerate ndindex printoptions set_printoptions
        broadcast_shapes can_cast finfo iinfo isdtype promote_types result_type ndim shape size unravel_index
        indices from_dlpack frexp linalg nextafter spacing unique unique_all unique_counts unique_inverse unique_values
        iscomplexobj isrealobj real_if_close fft load random save testing __array_api_version__
        __array_namespace_info__
    """),
        "they give no array of arrays' elements, or are tested for themselves",
    ),
}
