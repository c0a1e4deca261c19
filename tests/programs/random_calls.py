"""Random calls of functions that NumPy has, too: arguments are drawn by the names of the parameters.

One seed is one `Call`: a function of `lg`, `lg.linalg` or `lg.fft`, arrays of any dtype, rank and size, with zeros,
infinities and NaN in them, and one or two options. Where both give results, these have the same shapes and elements;
where NumPy refuses, or leaves elements to chance, nothing is compared. Refusals of ours alone are counted by their
messages: many are meant (docs/numpy.md), and who looks for others reads the list.

    python tests/programs/random_calls.py --count 5000 --first 0 --device cpu
"""

from __future__ import annotations

import argparse
import inspect
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import loopgrad as lg

SHAPES: Final = ((), (1,), (3,), (6,), (0,), (2, 3), (3, 3), (1, 3), (3, 1), (2, 0), (0, 3), (2, 3, 4), (2, 1, 3))
MATRICES: Final = ((3, 3), (2, 2), (2, 3, 3), (1, 1), (0, 0), (3, 2), (2, 3), (0, 3))
DTYPES: Final = ("f8", "f8", "f8", "f4", "i8", "i4", "u1", "?", "i1", "c16", "f2", "u8")
SPECIAL: Final = (np.nan, np.inf, -np.inf, 0.0, -0.0)
NUMBERS: Final = (0, 1, 2, -1, 3, 0.5, True, -0.0, 2.0, 5)
ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "axis": (0, 1, -1, -2, None, (0,), (0, 1), (), 2, -3),
    "axes": (None, (0, 1), (1, 0), (-1,), 1, (0,)),
    "axis1": (0, 1), "axis2": (1, 0, 2), "source": (0, 1, -1), "destination": (0, 1, -1),
    "keepdims": (True, False), "ddof": (0, 1, 2, 0.5), "correction": (0, 1, 2),
    "mode": ("full", "same", "valid", "wrap", "clip", "raise", "constant", "edge", "reflect", "symmetric", "mean"),
    "side": ("left", "right"), "k": (0, 1, -1, 2, -5, 10), "n": (0, 1, 2, 3, -1, 5), "N": (0, 1, 2, 4), "deg": (1, 2),
    "ord": (None, 1, 2, np.inf, -np.inf, 0, -1, "fro", "nuc", 3), "offset": (0, 1, -1, 3),
    "dtype": ("float32", "float64", "complex128"), "initial": (0, 1, -3), "decimals": (0, 1, 2, -1),
    "indices": ([0, 1], [0], 0, [-1], [2, 0, 0]), "shift": (0, 1, -1, 7, (1, 2)), "repeats": (0, 1, 2, 3),
    "reps": (0, 1, 2, (2, 1), (2, 2, 2)), "indexing": ("ij", "xy"), "equal_nan": (True, False),
    "return_index": (True,), "return_inverse": (True,), "return_counts": (True,), "increasing": (True, False),
    "bins": (1, 3, 10, [0, 1, 2], [-1.0, 0.0, 5.0]), "range": (None, (0, 1), (-3, 3)), "density": (True, False),
    "minlength": (0, 3, 10), "full_matrices": (True, False), "norm": (None, "ortho", "forward", "backward"),
    "q": (0.5, [0.1, 0.9], 0, 1), "a_min": (0, None), "a_max": (1, None), "min": (0, None), "max": (1,),
    "method": ("linear", "lower", "higher", "nearest", "midpoint", "median_unbiased", "weibull"),
    "order": ("C", "F"), "endpoint": (True, False), "num": (0, 1, 5), "base": (2, 10.0), "retstep": (True, False),
    "left": (0,), "period": (None, 3), "trim": ("fb", "f", "b"), "rowvar": (True, False), "bias": (True, False),
    "prepend": (0,), "append": (1,), "edge_order": (1, 2), "discont": (None, 4), "kth": (0, 1), "obj": (0, 1, [0, 1]),
    "nan": (7.0,), "rcond": (None, 1e-3), "include_initial": (True, False), "UPLO": ("L", "U"), "upper": (True, False),
    "pad_width": (0, 1, (1, 2), ((1, 0), (0, 2))), "constant_values": (0, 3), "reflect_type": ("even", "odd"),
    "stat_length": (None, 1, 2), "shape": ((2, 3), (6,), (-1,), (3, 2), (2, 2, 2), (0,)), "new_shape": ((4,), (2, 2)),
    "start": (0, 1, 5), "fill_value": (0, 1.5, 2), "window_shape": (1, 2),
}  # fmt: skip
NAMES: Final = """
    save savez load savetxt loadtxt empty empty_like printoptions get_printoptions set_printoptions fromfile
    frombuffer fromiter array2string array_repr array_str base_repr binary_repr ndindex ndenumerate
    may_share_memory shares_memory info show_config dtype result_type finfo iinfo isscalar errstate seterr
    asarray array vectorize iterable ix_ isdtype can_cast promote_types min_scalar_type common_type mintypecode
    typename issubdtype fromstring genfromtxt format_float_positional format_float_scientific fromfunction
    apply_along_axis apply_over_axes piecewise from_dlpack asanyarray ascontiguousarray asfortranarray require
    copyto putmask place put fill_diagonal put_along_axis astype byte short intc long longlong ubyte ushort
    uintc uint ulong ulonglong int_ eig eigh eigvals svd qr partition argpartition unique_values searchsorted
    roots poly polyfit lstsq broadcast test ediff1d i0 unwrap geomspace reciprocal tensorsolve
    full_like spacing intersect1d
    setxor1d polyadd polysub polymul polydiv polyder polyint
"""
LEFT_OUT: Final = frozenset(NAMES.split())  # of files, texts and dtypes, or in place; whose elements are left to chance


@dataclass(frozen=True)
class Call:
    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def __str__(self) -> str:
        shown = [f"{x.dtype}{x.tolist()}" if isinstance(x, np.ndarray) else repr(x) for x in self.arguments]
        return f"{self.name}({', '.join([*shown, *[f'{k}={v!r}' for k, v in self.options.items()]])})"


def functions() -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    for prefix, ours, theirs in (("", lg, np), ("linalg.", lg.linalg, np.linalg), ("fft.", lg.fft, np.fft)):
        for name in dir(ours):
            function = getattr(ours, name)
            if name[0] == "_" or name in LEFT_OUT or not callable(function) or inspect.isclass(function):
                continue
            if callable(getattr(theirs, name, None)) and not inspect.isclass(getattr(theirs, name)):
                yield prefix + name, function, getattr(theirs, name)


FUNCTIONS: Final = tuple(functions())


class Draw:
    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)

    def array(self, shape: tuple[int, ...] | None = None, special: bool = True) -> Any:
        dtype = np.dtype(self.rng.choice(DTYPES))
        x = self.numbers.normal(size=self.rng.choice(SHAPES) if shape is None else shape) * self.rng.choice([1, 3, 10])
        if dtype.kind in "biu":
            x = np.round(np.abs(x) if dtype.kind == "u" else x)
        elif x.size and special and self.rng.random() < 0.25:
            x = np.asarray(x)
            x.flat[self.rng.randrange(x.size)] = self.rng.choice(SPECIAL)
        elif self.rng.random() < 0.2:
            x = np.round(x)
        return np.asarray(x + 1j * self.numbers.normal(size=x.shape) if dtype.kind == "c" else x).astype(dtype)

    def argument(self, name: str, matrices: bool, special: bool) -> Any:
        if name in ARGUMENTS and self.rng.random() < 0.9:
            return self.rng.choice(ARGUMENTS[name])
        if name in ("arrays", "tup", "seq", "xs"):
            first = self.array()
            return [first, *[self.array(first.shape) for _ in range(self.rng.randint(0, 2))]]
        if matrices and self.rng.random() < 0.8:
            return self.array(self.rng.choice(MATRICES), special=False)
        return self.array(special=special) if self.rng.random() < 0.9 else self.rng.choice(NUMBERS)

    def call(self) -> Call:
        name, ours, theirs = self.rng.choice(FUNCTIONS)
        try:
            parameters = list(inspect.signature(theirs).parameters.values())
        except ValueError:  # a ufunc of an older NumPy
            parameters = [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)] * getattr(theirs, "nin", 1)
        places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        needed = [p for p in places if p.default is p.empty] or places[:1]
        matrices = name.startswith("linalg.")
        special = not matrices and "quantile" not in name and "percentile" not in name  # inf - inf is up to the method
        arguments = [self.argument(p.name, matrices, special) for p in needed]
        if len(arguments) > 1 and all(isinstance(x, np.ndarray) for x in arguments[:2]) and self.rng.random() < 0.6:
            arguments[1] = self.array(arguments[0].shape, special)
        has = set(inspect.signature(ours).parameters)
        optional = [p.name for p in parameters if p.default is not p.empty and p.name in ARGUMENTS and p.name in has]
        chosen = self.rng.sample(optional, min(len(optional), self.rng.choice([0, 1, 1, 2])))
        return Call(name, ours, theirs, tuple(arguments), {k: self.rng.choice(ARGUMENTS[k]) for k in chosen})


def flat(x: Any) -> list[Any]:
    return [leaf for part in x for leaf in flat(part)] if isinstance(x, tuple | list) else [x]


def as_tensors(x: Any) -> Any:
    if isinstance(x, list) and x and isinstance(x[0], np.ndarray):
        return [lg.asarray(part) for part in x]
    return lg.asarray(x) if isinstance(x, np.ndarray) else x


def in_numpy(call: Call) -> list[Any] | None:
    """Nothing where NumPy refuses, or casts what its target can't hold."""
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in call.arguments]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.filterwarnings("ignore")
        warnings.filterwarnings("error", message="invalid value encountered in cast")
        try:
            return [np.asarray(x) for x in flat(call.theirs(*copies, **call.options))]
        except Exception:
            return None


def difference(found: Any, expected: Any, dtypes: Iterable[Any]) -> str | None:
    """`dtypes`: of floats that were given, in which either may have computed."""
    if found.shape != expected.shape:
        return f"shape {found.shape} in place of {expected.shape}"
    if "c" not in found.dtype.kind + expected.dtype.kind and "f" not in found.dtype.kind + expected.dtype.kind:
        return None if np.array_equal(found, expected) else f"{found.tolist()} in place of {expected.tolist()}"
    if expected.dtype == np.float16 != found.dtype:  # NumPy's dtype for functions of small integers
        return None
    tolerance = max([{2: 2e-2, 4: 2e-4}.get(np.empty(0, x).real.itemsize, 1e-8) for x in (*dtypes, found.dtype)])
    # complex infinities and NaN: which part is which is left to chance
    a, b = (np.where(np.isfinite(x), x, np.nan) if "c" in x.dtype.kind else x for x in (found, expected))
    largest = max([1.0, *np.abs(b[np.isfinite(b)]).astype(float).ravel()])
    if np.allclose(a, b, rtol=tolerance, atol=tolerance * largest, equal_nan=True):
        return None
    return f"{found.tolist()} in place of {expected.tolist()}"


def check_call(seed: int, device: str) -> str:
    """What came of it; raises AssertionError where a result is another one."""
    call = Draw(seed).call()
    expected = in_numpy(call)
    if expected is None:
        return "refused by NumPy"
    with lg.default_device(device), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.filterwarnings("ignore")
        try:
            found = [np.asarray(x) for x in flat(call.ours(*map(as_tensors, call.arguments), **call.options))]
        except (ValueError, TypeError, IndexError, OverflowError, np.linalg.LinAlgError) as error:
            return f"refused: {str(error).partition(', got')[0]}"
    assert len(found) == len(expected), f"seed {seed}, {call}: {len(found)} results in place of {len(expected)}"
    given = [x.dtype for part in call.arguments for x in flat(part) if getattr(x, "dtype", np.dtype(int)).kind in "fc"]
    for x, y in zip(found, expected, strict=True):
        problem = difference(x, y, given)
        assert problem is None, f"seed {seed}, {call}: {problem}"
    return "same"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    outcomes, failed = Counter[str](), 0
    for seed in range(options.first, options.first + options.count):
        try:
            outcomes[check_call(seed, options.device)] += 1
        except Exception as error:
            failed += 1
            print(f"{seed}: {type(error).__name__} {error}", flush=True)
    for outcome, times in outcomes.most_common():
        print(f"{times:6} {outcome}")
    print(f"{options.count} calls, {failed} failed")


if __name__ == "__main__":
    main()
