"""Every public function with every dtype: NumPy's values and dtype, or what the tables below say.

Each function is called with ordinary and with extreme elements. bfloat16, which NumPy lacks, is compared with NumPy's
float32: a result that is a float32 there is a bfloat16 here.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pytest

import loopgrad as lg
from tests.programs.numpy_scripts.functions import FUNCTIONS, words
from tests.programs.numpy_scripts.scripts import quiet

DTYPES: Final = words("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64")
TOLERANCE: Final = {"float16": 4e-3, "bfloat16": 2e-2, "float32": 4e-6, "float64": 1e-12}

# how a function is called with vectors x and y, where it isn't NAME(x), NAME(x, y) or NAME([x, y])
CALLS: Final = {
    "argsort": "xp.argsort(x, stable=True)", "argwhere": "xp.argwhere(x)", "array": "xp.array([x, y])",
    "array_split": "xp.array_split(x, 4)[0]", "astype": "xp.astype(x, xp.float64)",
    "average": "xp.average(x, weights=y)", "bincount": "xp.bincount(abs(x) % 5)",
    "bitwise_left_shift": "xp.bitwise_left_shift(x, y % 4)", "block": "xp.block([x, y])",
    "bitwise_right_shift": "xp.bitwise_right_shift(x, y % 4)", "broadcast_arrays": "xp.broadcast_arrays(x, y)[0]",
    "broadcast_to": "xp.broadcast_to(x, (2, x.size))", "clip": "xp.clip(x, 1, 2)",
    "compress": "xp.compress([True, False], x)", "corrcoef": "xp.corrcoef(xp.stack([x, y]))",
    "cross": "xp.cross(x[:3], y[:3])", "delete": "xp.delete(x, 1)", "diagonal": "xp.diagonal(x[None])",
    "digitize": "xp.digitize(x, xp.sort(y))", "divmod": "xp.divmod(x, y)[0]", "einsum": "xp.einsum('i,i->', x, y)",
    "dsplit": "xp.dsplit(x[None, None], 2)[0]", "empty_like": "xp.empty_like(x)[:0]",
    "expand_dims": "xp.expand_dims(x, 1)", "extract": "xp.extract(x == x, x)", "flip": "xp.flip(x)",
    "fliplr": "xp.fliplr(x[None])", "full_like": "xp.full_like(x, 1)", "gradient": "xp.gradient(x)",
    "histogram": "xp.histogram(x, bins=3, range=(0, 4))[0]", "hsplit": "xp.hsplit(x, 2)[0]",
    "interp": "xp.interp(x, [0, 2, 9], [1, 3, 2])", "isin": "xp.isin(x, y[:2])",
    "ldexp": "xp.ldexp(x, xp.asarray([2, -1, 1, 0, 3, -2]))", "left_shift": "xp.left_shift(x, y % 4)",
    "matmul": "xp.matmul(x[:, None], y[None])", "matrix_transpose": "xp.matrix_transpose(x[None])",
    "meshgrid": "xp.meshgrid(x, y)[1]", "modf": "xp.modf(x)[0]", "moveaxis": "xp.moveaxis(x[None], 0, 1)",
    "nanpercentile": "xp.nanpercentile(x, 40)", "nanquantile": "xp.nanquantile(x, 0.4)",
    "nonzero": "xp.nonzero(x)[0]", "pad": "xp.pad(x, 1)", "percentile": "xp.percentile(x, 40)",
    "permute_dims": "xp.permute_dims(x[None], (1, 0))", "pow": "xp.pow(x, abs(y) % 4)",
    "polyval": "xp.polyval(y, x)", "power": "xp.power(x, abs(y) % 4)", "quantile": "xp.quantile(x, 0.4)",
    "repeat": "xp.repeat(x, 2)",
    "reshape": "xp.reshape(x, (2, -1))", "right_shift": "xp.right_shift(x, y % 4)", "roll": "xp.roll(x, 2)",
    "rot90": "xp.rot90(x[None])", "searchsorted": "xp.searchsorted(xp.sort(x), y)",
    "sort": "xp.sort(x, stable=True)",
    "select": "xp.select([x > y, x == y], [x, y], 1)", "split": "xp.split(x, 2)[1]",
    "swapaxes": "xp.swapaxes(x[None], 0, 1)", "take": "xp.take(x, [0, -1])",
    "take_along_axis": "xp.take_along_axis(x, xp.asarray([1, 0]), axis=0)", "tensordot": "xp.tensordot(x, y, 1)",
    "tile": "xp.tile(x, 2)", "trace": "xp.trace(x[None])", "trapezoid": "xp.trapezoid(x)",
    "tril": "xp.tril(x[None])", "triu": "xp.triu(x[None])", "unstack": "xp.unstack(x)[0]",
    "vander": "xp.vander(x, 3)", "vsplit": "xp.vsplit(x[:, None], 2)[0]", "where": "xp.where(x > y, x, y)",
}  # fmt: skip
ELEMENTWISE: Final = tuple(name for name in FUNCTIONS["binary"] if isinstance(getattr(np, name), np.ufunc))
# what Python numbers and NumPy's arrays do beside arrays
MORE: Final = (
    *(f"x {op} {n}" for op in ("+", "*", "//", "%", "<", ">=", "==", "!=") for n in ("1", "2.5", "-1", "300", "2**40")),
    *(f"{n} {op} x" for op in ("-", "<=", "!=") for n in ("1", "-1", "300", "2**63", "True")),
    "xp.searchsorted(xp.sort(x), -1)", "xp.searchsorted(xp.sort(x), 300)", "xp.isin(x, [-1, 300])", "xp.isin(x, -1)",
    "xp.digitize(x, [-1, 1, 300])", "xp.append(x, 3)", "xp.where(x > 1, -1, 0) + x", "xp.clip(x, -1, 300)",
    "xp.sum(abs(x) > 1, dtype=xp.int8)", "xp.dot(x, 3)", "xp.kron(x, 2)", "xp.outer(x, 3)", "xp.max(x, initial=1)",
    "xp.hstack([x, 1])", "xp.concat([x, x[0], 1], axis=None)", "xp.asarray([x[0], 1])", "xp.full_like(x, -1)",
    "xp.pad(x, 1, constant_values=1)", "xp.select([x > 1], [x], 300)", "xp.diff(x, prepend=1)", "xp.add(1, 2) + x",
    "xp.reshape(-1, (1,)) + x", "xp.heaviside(x, 1)", "xp.cumsum(x)[::-1]", "xp.einsum('i,->i', x, 3)", "x @ y",
    "abs(x)", "-x", "~x", "x & 1", "x | y", "x ^ y", "x ** 2", "x ** 0.5", "x / 2",
)  # fmt: skip
# loopgrad's own functions: by NumPy's, of floats
OURS: Final = {
    "erf": lambda x: np.array([math.erf(e) for e in x], x.dtype),
    "erfc": lambda x: np.array([math.erfc(e) for e in x], x.dtype),
    "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "logsumexp": lambda x: np.log(np.sum(np.exp(x - x.max()))) + x.max(),
    "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate,
}  # fmt: skip
# NumPy has nothing like them, or under another name
ELSEWHERE: Final = words("digamma lgamma logcumsumexp sliding_window_view stop_gradient top_k")

# dtypes of which a function is refused, by an error that says what to do, where NumPy has an answer
REFUSED: Final = {
    **dict.fromkeys(words("divmod floor_divide fmod mod remainder cummax cummin"), ("bool",)),
    "xp.select([x > 1], [x], 300)": ("int8", "uint8"),  # 300 is none: NumPy wraps it
}  # fmt: skip
# dtypes of which NumPy refuses what we have an answer for
MORE_THAN_NUMPY: Final = {
    **dict.fromkeys(words("positive quantile percentile nanquantile nanpercentile gradient"), ("bool",)),
}  # fmt: skip
# docs/numpy.md: floats stay what they are where NumPy goes on with float64
FLOATS_STAY: Final = (
    *words("corrcoef cov"), "xp.append(x, 3)", "xp.dot(x, 3)", "xp.kron(x, 2)", "xp.outer(x, 3)",
    "xp.asarray([x[0], 1])", "xp.einsum('i,->i', x, 3)",
)  # fmt: skip
# another dtype than NumPy's, by function and dtype of the arrays
OTHER_DTYPE: Final = {("round", "bool"): "bool", ("around", "bool"): "bool", ("x ** 2", "bool"): "int64"}
# of two zeros either may be the larger one, and BLAS multiplies by a number as it likes
ANY_ZERO: Final = (*words("fmax fmin maximum minimum nanquantile nanpercentile"), "xp.dot(x, 3)")


def expressions() -> dict[str, str]:
    """The text that calls each function, by the function's name; other expressions by themselves."""
    forms = {"binary": "xp.{}(x, y)", "joining": "xp.{}([x, y])"}
    found = {
        name: CALLS.get(name) or forms.get(kind, "xp.{}(x)").format(name)
        for kind, names in FUNCTIONS.items()
        for name in names
        if kind != "creating"
    }
    return {**found, **{name: f"xp.{name}(x)" for name in OURS}, **{text: text for text in MORE}}


def elements(dtype: str, extreme: bool, turn: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two vectors, of float32 in place of bfloat16; `turn` says which of their elements meet."""
    own = np.dtype("float32" if dtype == "bfloat16" else dtype)
    if own.kind == "b":
        x, y = [True, False, True, True, False, True], [True, True, False, True, False, False]
    elif own.kind == "f":
        x, y = [1.5, -2.0, 0.5, 3.0, 0.0, 1.0], [2.0, 1.0, -1.0, 0.5, 3.0, -2.5]
        if extreme:
            x, y = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0], [1.0, -np.inf, 2.0, 0.0, -0.0, np.nan]
    else:
        x, y = [1, 2, 5, 3, 0, 1], [2, 1, 4, 3, 1, 2]
        if extreme:
            low, high = np.iinfo(own).min, np.iinfo(own).max
            x, y = [high, low, high // 2 + 1, 1, 0, high - 1], [high, 3, low, 2, 1, high // 2 + 1]
    return np.array(x, own), np.roll(np.array(y, own), turn)


class OurOracle:
    """NumPy with loopgrad's own functions."""

    def __getattr__(self, name: str) -> Any:
        if name not in OURS:
            return getattr(np, name)
        return lambda x: OURS[name](x if x.dtype.kind == "f" or name.startswith("cum") else x.astype(float))


def difference(name: str, text: str, dtype: str, extreme: bool, turn: int) -> str | None:
    """What is wrong with our result of an expression, None where nothing is."""
    x, y = elements(dtype, extreme, turn)
    try:
        want = np.asarray(eval(text, {"xp": OurOracle(), "x": x, "y": y}))
    except (TypeError, ValueError, OverflowError):
        want = None
    small = want is not None and (want.dtype in (np.float16, np.float32) or name == "reciprocal")
    if small and x.dtype.kind != "f":  # float functions of integers are of the default float here
        want = np.asarray(eval(text, {"xp": OurOracle(), "x": x.astype(float), "y": y.astype(float)}))
    tensors = [lg.asarray(a, dtype=getattr(lg, dtype)) for a in (x, y)]
    try:
        got = eval(text, {"xp": lg, "x": tensors[0], "y": tensors[1]})
    except (TypeError, ValueError, OverflowError) as error:
        refused = want is None or dtype in REFUSED.get(name, ())
        return None if refused and ";" in str(error) else f"refused: {error}"
    if want is None:
        return None if dtype in MORE_THAN_NUMPY.get(name, ()) else "NumPy refuses it"
    return compared(name, dtype, np.asarray(got), want)


def compared(name: str, dtype: str, got: np.ndarray, want: np.ndarray) -> str | None:
    """Whether dtype, shape and elements are NumPy's."""
    expected = OTHER_DTYPE.get((name, dtype), want.dtype.name)
    if want.dtype.kind == "f" and "float" in dtype:
        here = name in FLOATS_STAY or (dtype == "bfloat16" and want.dtype == np.float32)
        expected = dtype if here else expected
    if (got.dtype.name, got.shape) != (expected, want.shape):
        return f"{got.dtype}{got.shape}, expected {expected}{want.shape}"
    if "float" not in expected:
        return None if (got == want).all() else f"{got.tolist()}, expected {want.tolist()}"
    near = TOLERANCE[expected]
    ours, theirs = got.astype(float), want.astype(float)
    right = np.isclose(ours, theirs, rtol=near, atol=near / 10 * (dtype == "bfloat16"), equal_nan=True)
    if name not in ANY_ZERO:
        right &= (ours != 0) | (np.signbit(ours) == np.signbit(theirs))
    return None if right.all() else f"{ours.tolist()}, expected {theirs.tolist()}"


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extreme", [False, True])
def test_every_function_gives_what_numpy_gives(dtype: str, extreme: bool) -> None:
    with quiet(), lg.default_device("interpreter"):
        found = [
            (text, difference(name, text, dtype, extreme, turn))
            for name, text in expressions().items()
            for turn in range(6 if extreme and name in ELEMENTWISE else 1)
        ]
    wrong = [f"{text}: {what}" for text, what in found if what is not None]
    assert not wrong, "\n".join(wrong)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_kernels_give_what_the_interpreter_gives(compiled_device: str, dtype: str) -> None:
    x, y = [lg.asarray(a, dtype=getattr(lg, dtype)) for a in elements(dtype, False)]

    def function(x: Any, y: Any) -> dict[str, Any]:
        results = {}
        for text in expressions().values():
            try:
                results[text] = eval(text, {"xp": lg, "x": x, "y": y})
            except (TypeError, ValueError, OverflowError):  # refused
                continue
        return results

    with quiet():
        compiled = lg.compile(function)(x, y)
        with lg.default_device("interpreter"):
            wanted = function(*(lg.asarray(np.asarray(t)) for t in (x, y)))
        wrong = [t for t, got in compiled.items() if compared(t, dtype, np.asarray(got), np.asarray(wanted[t]))]
    assert not wrong, "\n".join(wrong)


def test_every_function_of_arrays_is_called() -> None:
    """Those that NumPy has too are listed in functions.py; the others are here, or aren't functions of an array."""
    own = {n for n in lg.__all__ if not hasattr(np, n) and getattr(getattr(lg, n), "__module__", "") in _OF_ARRAYS}
    assert own - {*words("memory_stats result_type")} == {*OURS, *ELSEWHERE}


_OF_ARRAYS: Final = tuple(
    f"loopgrad.lazy.numpy.{n}"
    for n in words(
        "elementwise special_values smooth_functions elementwise_compositions reduction statistics sampled_functions "
        "movement repetition running_totals sorting"
    )
)
