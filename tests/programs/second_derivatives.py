"""Second derivatives of every program of this folder.

Run as a script, it runs the tests of this folder with `lg.grad` and `lg.value_and_grad` replaced: where one of them is
called with arrays of float64 or float32, the Hessian of the loss times a vector is computed too, forward over reverse
and reverse over reverse. They must agree, and equal central differences of the gradient where those have converged
(they don't where a trip count changes). What the tests themselves say is not looked at.

    python tests/programs/second_derivatives.py --share 0.05        # of the calls, always the same ones
    python tests/programs/second_derivatives.py --all -k random      # every call; the rest is for pytest
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import direction

import loopgrad as lg
from loopgrad.lazy.tensor.core import TensorCore
from loopgrad.lazy.tensor.trees import flatten, unflatten

LARGEST = 20_000  # elements of the arguments
SECONDS = 20  # for one call
STEPS = (1e-4, 2.5e-5)


class OutOfTimeError(Exception):
    """A call took longer than SECONDS."""


class Checks:
    """A pytest plugin; `found` are the calls with a wrong second derivative, `tally` counts all of them."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.found: list[str] = []
        self.tally: Counter[str] = Counter()
        self.test = ""
        self.busy = False
        self.originals = {"grad": lg.grad, "value_and_grad": lg.value_and_grad}

    # ---- pytest's hooks

    def pytest_sessionstart(self) -> None:
        for name, original in self.originals.items():
            setattr(lg, name, self.checking(original))

    def pytest_sessionfinish(self) -> None:
        for name, original in self.originals.items():
            setattr(lg, name, original)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.test = item.nodeid

    # ---- the calls

    def checking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`lg.grad` or `lg.value_and_grad`, whose functions check themselves when they are called."""

        @wraps(original)
        def transform(fun: Any, argnums: Any = 0, has_aux: bool = False) -> Any:
            derivative = original(fun, argnums, has_aux)

            @wraps(derivative)
            def call(*args: Any, **kwargs: Any) -> Any:
                result = derivative(*args, **kwargs)
                chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)
                if not self.busy and self.is_wanted([args[i] for i in chosen]):
                    self.check(lambda *a: fun(*a, **kwargs), chosen, args, has_aux)
                return result

            return call

        return transform

    def is_wanted(self, arguments: Sequence[Any]) -> bool:
        """Arrays of floats, at least one, not too large, and among the share that was asked for."""
        leaves = flatten(list(arguments))[0]
        if not leaves or any(isinstance(x, TensorCore) and x._value.scope is not None for x in leaves):
            return False  # what is being traced has no elements
        kinds = {np.dtype(str(x.dtype)) if isinstance(x, TensorCore) else np.asarray(x).dtype for x in leaves}
        if not kinds <= {np.dtype("f4"), np.dtype("f8")} or sum(int(np.prod(np.shape(x))) for x in leaves) > LARGEST:
            return False
        return zlib.crc32(f"{self.test} {sum(self.tally.values())}".encode()) < self.share * 2**32

    def check(self, fun: Callable[..., Any], chosen: Sequence[int], args: Sequence[Any], has_aux: bool) -> None:
        self.busy = True
        try:
            with limited(SECONDS):
                outcome = compare(*gradient_of(self.originals["grad"], fun, chosen, args, has_aux))
        except OutOfTimeError:
            outcome = "out of time"
        except Exception as error:
            outcome = f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        finally:
            self.busy = False
        self.tally[outcome.split(":")[0]] += 1
        if outcome.startswith(("wrong", "raised")):
            self.found.append(f"{self.test}: {outcome}")


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def gradient_of(
    grad: Callable[..., Any], fun: Callable[..., Any], chosen: Sequence[int], args: Sequence[Any], has_aux: bool
) -> tuple[Callable[..., Any], list[Any]]:
    """The gradient as a function of flat arrays, which gives a list of tensors, and the arrays."""
    leaves, structure = flatten([args[i] for i in chosen])

    def gradient(*values: Any) -> list[Any]:
        trees = unflatten(structure, list(values))
        arguments = list(args)

        def of_chosen(*parts: Any) -> Any:
            for i, part in zip(chosen, parts, strict=True):
                arguments[i] = part
            return fun(*arguments)

        result = grad(of_chosen, tuple(range(len(chosen))), has_aux)(*trees)
        return flatten(list(result[0] if has_aux else result))[0]

    return gradient, [np.asarray(x) for x in leaves]


def compare(gradient: Callable[..., Any], arrays: list[np.ndarray]) -> str:
    """What became of one call: right, unknown (differences that haven't converged, NaN), or wrong and how."""
    try:
        flat(gradient(*arrays))
    except Exception as error:  # what the test wants to see
        return f"no gradient: {type(error).__name__}"
    vectors = [direction(a.shape).astype(a.dtype) for a in arrays]
    single = any(a.dtype == np.float32 for a in arrays)
    xs, vs = [lg.asarray(a) for a in arrays], [lg.asarray(v) for v in vectors]

    def projected(*values: Any) -> Any:
        return sum(lg.sum(g * v) for g, v in zip(gradient(*values), vs, strict=True))

    forward = flat(lg.jvp(lambda *v: gradient(*v), tuple(xs), tuple(vs))[1])
    reverse = flat(BY_REVERSE(projected, tuple(range(len(xs))))(*xs))
    scale = 1 + np.abs(forward[np.isfinite(forward)]).max(initial=0.0)
    finite = np.isfinite(forward) & np.isfinite(reverse)
    if not np.array_equal(np.isfinite(forward), np.isfinite(reverse)):
        return f"wrong: {forward} forward over reverse isn't finite where {reverse} is"
    if np.abs(forward - reverse)[finite].max(initial=0.0) > (2e-3 if single else 1e-8) * scale:
        return f"wrong: {forward} forward over reverse, {reverse} reverse over reverse"
    if single or not finite.all():
        return "right, without differences" if finite.all() else "not finite"

    def difference(h: float) -> np.ndarray:
        pairs = list(zip(arrays, vectors, strict=True))
        above, below = (flat(gradient(*[lg.asarray(a + step * v) for a, v in pairs])) for step in (h, -h))
        return (above - below) / (2 * h)

    coarse, fine = (difference(h) for h in STEPS)
    gap = np.abs(coarse - fine).max(initial=0.0)
    if not gap <= 1e-4 * scale:
        return "unknown, differences haven't converged"
    if np.abs(forward - fine).max(initial=0.0) > 10 * gap + 1e-6 * scale:
        return f"wrong: {forward}, differences of the gradient are {fine}"
    return "right"


BY_REVERSE = lg.grad


def flat(tensors: Sequence[Any]) -> np.ndarray:
    parts = [np.asarray(t).astype(np.float64).ravel() for t in tensors]
    return np.concatenate(parts) if parts else np.zeros(0)


def run(arguments: Sequence[str], share: float = 1.0) -> Checks:
    """Run the tests that pytest finds by these arguments, quietly, and look at this share of the calls."""
    checks = Checks(share)
    quiet = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "--timeout=0"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = pytest.main([*quiet, *arguments], plugins=[checks])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest: {code}\n{printed.getvalue()}")
    return checks


def main() -> int:
    parser = argparse.ArgumentParser(description="Check second derivatives of the programs of this folder.")
    parser.add_argument("--all", action="store_true", help="every call of grad and value_and_grad")
    parser.add_argument("--share", type=float, default=0.05, help="this part of them, without --all")
    options, others = parser.parse_known_args()
    os.environ.setdefault("LOOPGRAD_TEST_DEVICES", "interpreter")
    places = [a for a in others if Path(a.split("::")[0]).exists()]
    checks = run([*others, *([] if places else [str(Path(__file__).parent)])], 1.0 if options.all else options.share)
    print("\n".join(checks.found))
    print(dict(checks.tally))
    return 1 if checks.found or not checks.tally else 0


if __name__ == "__main__":
    sys.exit(main())
