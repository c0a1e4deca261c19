"""Functions with arguments at the corners, against NumPy: values, shapes and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

HUGE = 2**63 - 1
X = np.array([3.0, 1.0, -2.0, 5.0, 0.5])
M = np.arange(12.0).reshape(3, 4) - 4
C = np.arange(24.0).reshape(2, 3, 4)
NAN, INF = np.nan, np.inf
ODD = np.array([NAN, 1.0, -INF, INF, -0.0, 2.0])
BYTES = np.array([200, 2, 7], np.uint8)
SMALL = np.array([-128, 127, 5, 0], np.int8)
BOOLS = np.array([True, False, True])
STEPS = np.array([[1.0, 2.0], [3.0, 5.0], [8.0, 1.0]])
ROWS = np.array([[NAN, 1.0, 2.0], [3.0, NAN, NAN], [NAN, NAN, NAN]])

CASES: list[tuple[Any, ...]] = [
    ("trapezoid", STEPS, {"dx": np.array([1.0, 10.0]), "axis": 0}), ("trapezoid", STEPS, {"dx": np.array([2.0])}),
    ("trapezoid", STEPS, {"dx": np.array([[1.0], [10.0]]), "axis": 0}),
    ("trapezoid", M, np.arange(3.0) ** 2, {"axis": 0}), ("trapezoid", M, np.arange(4.0) ** 2),
    ("trapezoid", M, M**2, {"axis": 0}), ("trapezoid", C, {"axis": 1}), ("cov", np.zeros(0)),
    ("cov", np.zeros((3, 0))), ("cov", np.ones((2, 1))), ("cov", M, {"ddof": 4}), ("cov", M, {"ddof": 7}),
    ("cov", M, {"rowvar": False}),
    ("ldexp", np.array([0.0, 1e-300, INF, 5e-324, 1.5, 1e300, -3.0, 1.0, NAN]),
     np.array([1500, 1500, -2000, 1074, -1074, -2000, -1075, 1024, 3])),
    ("ldexp", np.array([1.5 * 2.0**-1000, (1 + 3 * 2.0**-52) * 2.0**-1000, 2 - 2.0**-52]), np.array([-73, -70, -1075])),
    ("ldexp", np.array([1, 1.5, 3, 1e-40, 1.1754945e-38], np.float32), np.array([-149, -149, -150, 200, -3], np.int16)),
    ("ldexp", np.array([1, 1.5, 60000, 6e-8], np.float16), np.array([-24, 15, -40, 40])),
    ("digitize", np.array([0.0, 2.0, 6.0, NAN]), np.array([5.0, 3.0, 1.0])),
    ("digitize", np.array([0.0, 1.0, 3.0, 5.0, 6.0]), np.array([5.0, 3.0, 1.0]), True),
    ("digitize", X, np.array([1.0])), ("digitize", X, np.array([1.0, 1.0])), ("digitize", X, np.zeros(0)),
    ("gcd", np.array([7], np.int8), np.array([-128], np.int8)),
    ("gcd", np.array([0, 12, -9]), np.array([-(2**63), 8, 6])), ("gcd", SMALL, SMALL[::-1]),
    ("lcm", SMALL, SMALL[::-1]), ("lcm", np.array([4, -6]), np.array([6, 4])), ("vecdot", BYTES, BYTES),
    ("vecdot", SMALL, SMALL), ("vecdot", BOOLS, BOOLS), ("vecdot", BYTES, SMALL[:3]),
    ("vecdot", np.array([200, 2], np.int32), np.array([2, 2], np.int32)), ("inner", BOOLS, BOOLS),
    ("tensordot", BOOLS, BOOLS, 1), ("einsum", "i,i->", BOOLS, BOOLS), ("einsum", "i,i->", BYTES, BYTES),
    ("matmul", BYTES, BYTES), ("dot", BYTES, BYTES), ("trace", np.array([[200, 2], [2, 200]], np.uint8)),
    *[(name, M, k) for name in ("tril", "triu") for k in (HUGE, 9 - HUGE, 5, -4)],
    *[("tri", 3, 4, k) for k in (HUGE, 9 - HUGE, 4, -3)], *[("eye", 3, 4, {"k": k}) for k in (HUGE, -HUGE, 3, -2)],
    ("tril", np.zeros((0, 3)), HUGE), ("diagonal", M, 4), ("diagonal", M, -3), ("signbit", ODD), ("signbit", -ODD),
    ("copysign", X[:1], -ODD[:1]), ("copysign", -ODD, ODD), ("median", np.array([INF, -INF, 1.0])),
    ("median", np.array([INF, INF])), ("median", np.array([1.0, INF])), ("median", np.arange(9001, dtype=np.float16)),
    ("nanmedian", np.array([INF, -INF, NAN, NAN, -2.0])), ("nanmedian", ROWS[:2], {"axis": 1}),
    ("quantile", X, np.array([0.1, 0.9])), ("quantile", C, 0.3, {"axis": (0, 2)}), ("nanvar", X, {"ddof": 7}),
    ("nanstd", X, {"ddof": 5}), ("var", X, {"ddof": 7}), ("nanvar", ROWS[:2], {"axis": 1}), ("vander", BYTES),
    ("vander", X, 0), ("vander", ODD, 3), ("polyval", BYTES, BYTES), ("polyval", BYTES, BOOLS),
    ("convolve", X, ODD[1:]), ("convolve", X, ODD[1:], "same"), ("correlate", X, ODD[1:3], "full"),
    ("linspace", -3.5, 3.5, 8, {"dtype": int}), ("linspace", 0, 1, 0), ("linspace", 2, 1, 1), ("linspace", 1, 1, 3),
    ("histogram", np.array([2.5, 2.5]), 4), ("histogram", np.zeros(0), 3), ("histogram", X, 3, {"range": (1.0, 1.0)}),
    ("logaddexp2", X, X.astype(np.float32)), ("average", M, {"axis": 0, "weights": np.array([1, 2, 3])}),
    ("average", np.arange(4, dtype=np.int8), {"weights": np.arange(4, dtype=np.float16)}),
    ("repeat", X, 0), ("tile", X, 0), ("roll", X, HUGE), ("diff", X, 9), ("flip", C, {"axis": (0, -1)}),
    ("sum", C, {"axis": ()}), ("prod", np.zeros((0, 3)), {"axis": -1}), ("mean", np.zeros(0)), ("all", np.zeros(0)),
    ("cumsum", BYTES), ("argmax", ROWS, {"axis": 1}), ("argmin", BOOLS), ("ptp", SMALL),
    ("sum", SMALL, {"dtype": np.int8}), ("searchsorted", np.zeros(0), X),
    ("bincount", np.zeros(0, int), {"minlength": 3}), ("isin", X, np.zeros(0)), ("clip", X, 2, 0),
    ("clip", X, NAN, 1.0), ("round", np.array([15, 25, -15, 12345]), -1), ("nan_to_num", ODD),
    *[("nan_to_num", ODD.astype(dtype), {"nan": 3, "posinf": 1, "neginf": 2}) for dtype in (np.float16, np.float32)],
    ("poly", ODD[[1, 0, 3]]), ("permute_dims", C, {"axes": None}), ("blackman", np.array(4, np.uint64)),
    ("bartlett", np.array(3, np.int8)), ("histogramdd", X, {"bins": 3}), ("histogramdd", [2.0, 3.0, 5.0], {"bins": 2}),
]  # fmt: skip


ON_DEVICES = ("ldexp", "signbit", "copysign", "gcd", "lcm", "vecdot")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", [c for c in CASES if c[0] in ON_DEVICES], ids=lambda case: str(case[0]))
def test_as_numpy_on_devices(device: str, case: tuple[Any, ...]) -> None:
    compare(*case)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", [c for c in CASES if c[0] not in ON_DEVICES], ids=lambda case: str(case[0]))
def test_as_numpy(case: tuple[Any, ...]) -> None:
    with lg.default_device("interpreter"):
        compare(*case)


def compare(name: str, *given: Any) -> None:
    arguments = list(given)
    options = arguments.pop() if isinstance(arguments[-1], dict) else {}
    made = [lg.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    wanted, got = getattr(np, name)(*arguments, **options), getattr(lg, name)(*made, **options)
    for one, other in zip(*(leaves(w) for w in (got, wanted)), strict=True):
        check(one, other, 2e-3 if np.asarray(other).dtype == np.float16 else None)


def leaves(found: Any) -> list[Any]:
    return [leaf for part in found for leaf in leaves(part)] if isinstance(found, tuple | list) else [found]


DTYPES = ["float16", "bfloat16", "float32", "float64"]


ORDERS = ("sort", "argsort", "min", "max", "argmin", "argmax", "median")
WITHOUT_NAN = ("nanmin", "nanmax", "nanmedian", "nanargmin", "nanargmax")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [2, 40])
def test_orders_with_nan(device: str, dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.integers(-3, 4, size).astype(np.float64)
    x[1:][rng.random(size - 1) < 0.4] = rng.choice([NAN, -NAN])
    table = np.sort(x)

    def everything(xp: Any, t: Any, table: Any) -> list[Any]:
        found = [getattr(xp, name)(t, **({"stable": True} if "sort" in name else {})) for name in ORDERS]
        found += [getattr(xp, name)(t) for name in WITHOUT_NAN]
        return [*found, *(xp.searchsorted(table, t, side=side) for side in ("left", "right"))]

    tensors = [lg.asarray(a, dtype=getattr(lg, dtype)) for a in (x, table)]
    got = lg.compile(lambda t, table: everything(lg, t, table))(*tensors)
    for name, one, other in zip((*ORDERS, *WITHOUT_NAN, "left", "right"), got, everything(np, x, table), strict=True):
        np.testing.assert_array_equal(np.asarray(one).astype(np.float64), other, err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_medians_of_many_halves_have_the_right_place(dtype: str) -> None:
    """Positions beyond 2**8 and 2**11 are no bfloat16 and no float16."""
    x = np.repeat([0.0, 1.0, 2.0], [501, 3, 501])
    assert float(lg.median(lg.asarray(x, dtype=getattr(lg, dtype)))) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_signs_of_nan(device: str, dtype: str) -> None:
    """Of data, and of constants, which must not be taken for one another."""
    x = np.array([NAN, -NAN, 0.0, -0.0, 1.0, -1.0, INF, -INF])
    t = lg.asarray(x, dtype=getattr(lg, dtype))
    np.testing.assert_array_equal(np.asarray(lg.signbit(t)), np.signbit(x))
    nan = lg.asarray(NAN, dtype=getattr(lg, dtype))
    for size in (nan, lg.ones_like(t)):
        signed = np.asarray(lg.copysign(size, t)).astype(np.float64)
        np.testing.assert_array_equal(np.signbit(signed), np.signbit(x))

    def constants(choice: Any) -> Any:
        return lg.where(choice, lg.asarray(NAN), lg.asarray(-NAN))

    chosen = np.asarray(lg.compile(constants)(lg.asarray([True, False])))
    np.testing.assert_array_equal(np.signbit(chosen), [False, True])


def test_nan_to_num_of_bfloat16() -> None:
    got = lg.nan_to_num(lg.asarray([NAN, INF, -INF], dtype=lg.bfloat16))
    assert got.tolist() == [0.0, float(lg.finfo(lg.bfloat16).max), float(lg.finfo(lg.bfloat16).min)]


@pytest.mark.parametrize("wrapped", [lambda a: a, lambda a: [a, a], lambda a: [[1.0, a[1]]]])
def test_masked_arrays_are_refused(wrapped: Any) -> None:
    hidden = wrapped(np.ma.array([1.0, 2.0], mask=[False, True]))
    for use in (lg.asarray, lg.sum, lambda a: lg.ones(2) + a, lambda a: lg.zeros(2).at[0].set(a)):
        with pytest.raises(lg.DTypeError, match="without masked elements"):
            use(hidden)


def test_masked_arrays_as_arguments_of_compiled_functions() -> None:
    hidden, open_array = (np.ma.array([1.0, 2.0], mask=[False, m]) for m in (True, False))
    double = lg.compile(lambda a: a * 2)
    for _ in range(2):
        assert double(open_array).tolist() == [2, 4]
        with pytest.raises(lg.DTypeError, match="1 of its 2 elements masked"):
            double(hidden)
    with pytest.raises(lg.DTypeError):
        lg.from_dlpack(hidden)


def test_dtypes_compare_with_anything() -> None:
    for other in ("1 2", "is it, this?", "(", "", "i4,i4", b"x", 3, [1], {}, object(), int, type, None):
        assert (lg.float64 == other) is False
        assert (lg.float64 != other) is True
    assert lg.float64 == "float64" == lg.float64


T, F = True, False
SCALAR_MASKS: list[Any] = [
    T, F, np.True_, np.asarray(True), np.asarray(False), (T, 0), (0, T), (slice(None), T), (..., T), (T, ...),
    (None, T), (T, T), (T, F), (slice(None), F), (np.asarray(True), np.array([1, 0])), ([1, 0], T),
    (T, [1, 0], slice(None), [2, 1]), (..., F, 0), (0, ..., T, 1), (T, C[:, 0, 0] > 5), (slice(None), T, slice(1, 3)),
    (..., T, slice(1, 3)), (T, None, 0),
]  # fmt: skip


@pytest.mark.parametrize("index", SCALAR_MASKS, ids=str)
def test_masks_without_axes(index: Any) -> None:
    items = index if isinstance(index, tuple) else (index,)
    for at in (index, tuple([lg.asarray(i) if isinstance(i, np.ndarray) else i for i in items])):
        check(lg.asarray(C)[at], C[index])
        changed, written, values = C.copy(), lg.asarray(C), np.random.default_rng(0).normal(size=C[index].shape)
        changed[index] = -1.0
        written[at] = -1.0
        check(written, changed)
        changed[index] = values
        check(lg.asarray(C).at[at].set(values), changed)


def test_masks_without_axes_of_scalars_and_while_tracing() -> None:
    assert lg.asarray([1, 2])[lg.asarray(True)].tolist() == [[1, 2]]
    for chosen in (True, False):
        x = lg.asarray(5)
        check(x[lg.asarray(chosen)], np.asarray(5)[np.asarray(chosen)])
        x[lg.asarray(chosen)] = 7
        assert int(x) == (7 if chosen else 5)
    set_where = lg.compile(lambda x, m: x.at[m].set(9))
    assert [set_where(lg.asarray([1, 2]), lg.asarray(m)).tolist() for m in (True, False)] == [[9, 9], [1, 2]]
    with pytest.raises(lg.DTypeError, match="depends on data"):
        lg.compile(lambda x, m: x[m])(lg.asarray([1, 2]), lg.asarray(True))


@pytest.mark.parametrize("name", ["quantile", "nanquantile", "percentile", "nanpercentile"])
@pytest.mark.parametrize("q", [-0.1, 1.5, np.inf, [0.5, 2.0], np.array([-1e-9]), 0.0, 1, True, NAN, [0.0, 1.0]])
def test_quantiles_out_of_range_are_refused_as_numpy_does(name: str, q: Any, device: str) -> None:
    scaled = np.multiply(q, 100) if "percentile" in name else q
    try:
        expected = getattr(np, name)(X, scaled)
    except ValueError:
        with pytest.raises(ValueError, match=f"^{name}: expected quantiles from 0 to 1"):
            getattr(lg, name)(X, scaled)
    else:
        check(getattr(lg, name)(X, scaled), expected)


def test_quantiles_out_of_range_in_tensors_are_nan(device: str) -> None:
    result = lg.quantile(X, lg.asarray([-0.1, 0.5, 1.5]))
    np.testing.assert_array_equal(np.asarray(result), [NAN, np.quantile(X, 0.5), NAN])
    result = lg.compile(lambda q: lg.percentile(X, q))(lg.asarray([100.0, 101.0]))
    np.testing.assert_array_equal(np.asarray(result), [5.0, NAN])
