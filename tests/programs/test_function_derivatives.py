"""Derivatives of every public function, to third order and in every mode, against differences of NumPy's function; and
at special points, where those are of no use, against closed forms and the documented conventions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from function_cases import CASES, FFT, LINALG, METHODS, UPDATES
from function_points import POINTS, Point
from function_reference import Reference
from special_cases import SPECIAL
from special_cases import WITHOUT_DERIVATIVES as SPECIAL_WITHOUT_DERIVATIVES

import loopgrad as lg

# public functions without float arguments, or without a float result that depends on them
BOOLS = """
    allclose array_equal equal greater greater_equal isclose isfinite isin isinf isnan isneginf isposinf less less_equal
    not_equal signbit iscomplex isreal all any logical_and logical_not logical_or logical_xor
"""
POSITIONS = """
    argmax argmin argsort argwhere count_nonzero digitize flatnonzero lexsort nanargmax nanargmin nonzero searchsorted
    unravel_index argpartition array_equiv diag_indices diag_indices_from ix_ mask_indices packbits ravel_multi_index
    tril_indices tril_indices_from triu_indices triu_indices_from unpackbits
"""
INTEGERS = """
    bitcast_convert_type bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift
    bitwise_xor gcd lcm
"""
WITHOUT_ELEMENTS = """
    arange bartlett blackman hamming hanning
    empty empty_like eye from_dlpack fromfunction identity indices ones ones_like tri zeros zeros_like
"""
FREQUENCIES = "fftfreq next_fast_len prev_fast_len rfftfreq"
PROGRAMS = """
    __array_namespace_info__
    broadcast_shapes can_cast compile default_device default_dtype devices eval finfo iinfo isdtype memory_stats ndim
    issubdtype frombuffer fromiter fromstring genfromtxt loadtxt seterr
    eval_shape export linear_transpose load load_exported map_shards save sweep
    options promote_types register_pytree register_static result_type set_default_dtype shape size
    array2string array_repr array_str base_repr binary_repr format_float_positional format_float_scientific
    get_printoptions iterable ndenumerate ndindex printoptions set_printoptions
    iscomplexobj isrealobj __array_namespace_info__ isscalar synchronize explain to_dot to_networkx to_text
"""
REVERSE_ONLY = "attention"  # tests/lazy/networks has its derivatives
OF_MESHES = "gather_all mesh shard shard_batches"  # tests/lazy/mesh differentiates them
MEETINGS = """
    all_gather all_to_all axis_index axis_size pmax pmean pmin ppermute pshuffle psum psum_scatter pswapaxes
"""  # tests/lazy/transforms/test_named_axes.py
TRANSFORMS = "grad gradients hessian hvp jacfwd jacrev jvp linearize value_and_grad vjp"
WITHOUT_DERIVATIVES = [
    name
    for text in (BOOLS, POSITIONS, INTEGERS, WITHOUT_ELEMENTS, PROGRAMS, OF_MESHES, MEETINGS, REVERSE_ONLY, TRANSFORMS)
    for name in text.split()
]
METHODS_WITHOUT_DERIVATIVES = """
    argpartition choose compress fill flat partition put tobytes tofile view
    all any argmax argmin argsort at device dtype item itemsize nbytes ndim nonzero numpy searchsorted shape size
    to_device tolist
"""

REFERENCE = Reference()
ROWS = [
    *[(f"{name} {k}", call, call, arrays)
      for table in (CASES, LINALG, FFT, {f"method {n}": c for n, c in METHODS.items()})
      for name, cases in table.items() for k, (call, arrays) in enumerate(cases)],
    *[(f"at {name} {k}", *case) for name, cases in UPDATES.items() for k, case in enumerate(cases)],
]  # fmt: skip
ON_EVERY_DEVICE = {"power 0", "sinc 2", "hypot 1", "logaddexp 2", "cbrt 0", "atan2 3", "corrcoef 2", "cumprod 2"}

# ---- what is public is in a table


def test_every_public_function_is_listed():
    functions = {
        n: f for n in lg.__all__
        if callable(f := getattr(lg, n)) and not isinstance(f, type | lg.DType)
    }  # fmt: skip
    listed = {id(functions[n]) for n in (*CASES, *WITHOUT_DERIVATIVES)}
    assert [n for n, f in functions.items() if id(f) not in listed] == []
    assert [n for n in lg.fft.__all__ if n not in FFT and n not in FREQUENCIES.split()] == []
    assert [n for n in lg.special.__all__ if n not in SPECIAL and n not in SPECIAL_WITHOUT_DERIVATIVES] == []
    of_matrices = {n: f for n in lg.linalg.__all__ if not isinstance(f := getattr(lg.linalg, n), type)}
    assert [n for n, f in of_matrices.items() if n not in LINALG and id(f) not in listed] == []


def test_every_method_is_listed():
    listed = {*METHODS, *METHODS_WITHOUT_DERIVATIVES.split()}
    assert [n for n in dir(lg.ones(1)) if not n.startswith("_") and n not in listed] == []
    updates = [n for n in dir(type(lg.zeros(3).at[0])) if not n.startswith("_")]
    assert [n for n in updates if n not in UPDATES] == []


# ---- ordinary points


def leaves(result: Any) -> list[Any]:
    if isinstance(result, list | tuple):
        return [leaf for part in result for leaf in leaves(part)]
    return [result]


def weighted_sum(results: Any) -> Any:
    """One number in which every element of the results has a weight of its own."""
    total, count = 0.0, 0
    for leaf in leaves(results):
        shape = np.shape(leaf)
        size = int(np.prod(shape))
        total = total + (leaf * np.cos(1.0 + 0.7 * np.arange(count, count + size)).reshape(shape)).sum()
        count += size
    return total


STENCILS = np.array([
    [-1 / 60, 3 / 20, -3 / 4, 0, 3 / 4, -3 / 20, 1 / 60],
    [1 / 90, -3 / 20, 3 / 2, -49 / 18, 3 / 2, -3 / 20, 1 / 90],
    [1 / 8, -1, 13 / 8, 0, -13 / 8, 1, -1 / 8],
])  # fmt: skip
STEPS = 2.0 ** -np.arange(5, 13)
FLOOR = (1e-10, 1e-8, 1e-6)  # what rounding of the differences may cost


def differences(function: Callable[[float], float]) -> list[tuple[float, float]]:
    """The first three derivatives at 0 and how well each is known, from the two steps that agree best."""
    with np.errstate(all="ignore"):
        values = np.array([[function(k * h) for k in range(-3, 4)] for h in STEPS])
    rows = values @ STENCILS.T / STEPS[:, None] ** np.arange(1, 4)
    gaps = np.abs(np.diff(rows, axis=0))
    best = gaps.argmin(axis=0)
    return [(rows[best[i] + 1, i], gaps[best[i], i]) for i in range(3)]


def along(function: Callable[..., Any], directions: Sequence[Any], mode: str) -> Callable[..., Any]:
    """The derivative of a function along given directions."""
    if mode == "f":
        return lambda *xs: lg.jvp(function, xs, directions)[1]
    by_all = lg.grad(function, tuple(range(len(directions))))
    return lambda *xs: sum(lg.sum(g * d) for g, d in zip(by_all(*xs), directions, strict=True))


def check_case(ours: Any, numpys: Any, arrays: tuple[np.ndarray, ...], modes: Sequence[str]) -> None:
    draw = np.random.default_rng(len(arrays))
    directions = [np.where(draw.random(a.shape) < 0.5, -1, 1) * draw.uniform(0.5, 1, a.shape) for a in arrays]

    def moved(t: float) -> float:
        return float(weighted_sum(numpys(REFERENCE, *[a + t * d for a, d in zip(arrays, directions, strict=True)])))

    expected = differences(moved)
    xs, ds = tuple(lg.asarray(a) for a in arrays), tuple(lg.asarray(d) for d in directions)
    found = []
    for mode in modes:
        function = lambda *values: weighted_sum(ours(lg, *values))
        for letter in mode:
            function = along(function, ds, letter)
        found.append(function(*xs))
    lg.eval(found)
    for mode, value in zip(modes, found, strict=True):
        want, gap = expected[len(mode) - 1]
        floor = FLOOR[len(mode) - 1] * (1 + abs(want))
        assert gap < 1e4 * floor, f"the differences of order {len(mode)} are too rough"
        assert abs(float(value) - want) <= 10 * gap + floor, f"{mode}: {float(value)}, expected {want}"


@pytest.mark.in_turns
@pytest.mark.parametrize(("ours", "numpys", "arrays"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_ordinary_points(ours, numpys, arrays):
    """In each letter of a mode (first is innermost) r is reverse, f is forward."""
    with lg.default_device("interpreter"):
        check_case(ours, numpys, arrays, ("r", "f", "rr", "rf", "fr", "ff", "rrf", "ffr"))


@pytest.mark.in_turns
@pytest.mark.parametrize("row", [r[1:] for r in ROWS if r[0] in ON_EVERY_DEVICE], ids=sorted(ON_EVERY_DEVICE))
def test_ordinary_points_on_devices(compiled_device, row):
    check_case(*row, ("r", "rr", "rf"))


# ---- special points


def check_point(point: Point) -> None:
    count = len(point.at)
    xs = tuple(lg.asarray(x) for x in point.at)
    units = [tuple(lg.asarray(float(i == j)) for j in range(count)) for i in range(count)]
    slopes, bends = {}, {}
    for i in range(count):
        by = {"r": lg.grad(point.function, i), "f": lambda *v, i=i: lg.jvp(point.function, v, units[i])[1]}
        slopes |= {(m, i): g(*xs) for m, g in by.items()}
        for (m, g), j in itertools.product(by.items() if point.bends else (), range(count)):
            bends[m + "r", i, j] = lg.grad(g, j)(*xs)
            bends[m + "f", i, j] = lg.jvp(g, xs, units[j])[1]
    lg.eval((slopes, bends))
    for (mode, i), value in slopes.items():
        np.testing.assert_allclose(float(value), point.slopes[i], 1e-12, err_msg=f"{mode}, by argument {i}")
    for (mode, i, j), value in bends.items():
        np.testing.assert_allclose(float(value), point.bends[i][j], 1e-10, 1e-15, err_msg=f"{mode}, by {i} and {j}")


@pytest.mark.in_turns
@pytest.mark.parametrize("point", POINTS, ids=lambda p: f"{p.name} {p.at}")
def test_special_points(point):
    with lg.default_device("interpreter"):
        check_point(point)


SAMPLE = {"power": (4.0, 0.0), "hypot": (0.0, 2.0), "logaddexp": (1.0, 1.0), "sinc": (0.0,), "remainder": (1.0, 0.1)}


@pytest.mark.in_turns
@pytest.mark.parametrize("point", [p for p in POINTS if SAMPLE.get(p.name) == p.at], ids=lambda p: p.name)
def test_special_points_on_devices(compiled_device, point):
    check_point(point)


@pytest.mark.parametrize("name", ["hypot", "logaddexp"])
def test_a_norm_of_two_equal_numbers_may_be_differentiated_thrice(name):
    """The third derivative along (1, 0) at a tie, by closed forms: -9 x y**2 / r**5 ... and s (1 - s) (1 - 2 s)."""
    third = lg.grad(lg.grad(lg.grad(getattr(lg, name))))
    expected = {"hypot": -3 * 2.0 * 4.0 / 8.0**2.5, "logaddexp": 0.0}
    with lg.default_device("interpreter"):
        np.testing.assert_allclose(float(third(2.0, 2.0)), expected[name], rtol=1e-12, atol=1e-15)
