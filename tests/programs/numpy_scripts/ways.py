"""The ways in which loopgrad runs a script, each compared with NumPy.

A statement that loopgrad refuses is left out of both runs, and counted by its message: a refusal isn't a wrong number.
Elements that differ count where the script is stable there: NumPy's own result changes less than that when every float
result is changed by a few units in its last place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

import loopgrad as lg
from tests.programs.numpy_scripts.scripts import Script, namespace, quiet, run_numpy, runnable, variant, without

# relative tolerance of one element, in the dtype's own resolution
TOLERANCE: Final = {"float16": 4e-3, "float32": 4e-6, "float64": 1e-11}
BATCH: Final = 3
_REFUSED: Final = (
    lg.LoopgradError, ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError,
)  # fmt: skip

_VARIABLE: Final = re.compile(r"v\d+")

Refusals = list[tuple[str, str]]  # lines and messages
Compared = list[tuple[str, Any, Any]]  # what it is, ours, NumPy's


@dataclass
class Outcome:
    """What one way of running gave: the first difference, or none; refused lines with their messages."""

    difference: str | None = None
    refused: Refusals = field(default_factory=list)


def run_lines(
    script: Script, inputs: Mapping[str, Any], after: Callable[[dict[str, Any]], None] = lambda space: None
) -> tuple[dict[str, Any], Refusals]:
    """The variables after all lines that aren't refused; `after` is called with the namespace after each."""
    space, refused = namespace(lg, inputs), []
    for line in script.lines:
        try:
            exec(line, space)
        except _REFUSED as error:
            if isinstance(error, NameError) and not _VARIABLE.fullmatch(str(error.name)):
                raise
            refused.append((line, f"{type(error).__name__}: {(str(error) or 'no message').splitlines()[0]}"))
        else:
            after(space)
    return {n: a for n, a in space.items() if isinstance(a, lg.Tensor | np.ndarray | np.generic)}, refused


def lazily(script: Script, rng: np.random.Generator) -> tuple[Compared, Refusals]:
    """Everything is built, then looked at in some order."""
    found, refused = run_lines(script, _tensors(script.inputs))
    return ([], refused) if refused else (_paired(script, found, script.inputs, rng), [])


def in_parts(script: Script, rng: np.random.Generator) -> tuple[Compared, Refusals]:
    """Some variable is looked at after some lines."""

    def look(space: dict[str, Any]) -> None:
        tensors = [a for a in space.values() if isinstance(a, lg.Tensor)]
        if rng.random() < 0.6:
            np.asarray(tensors[int(rng.integers(len(tensors)))])

    found, refused = run_lines(script, _tensors(script.inputs), look)
    return ([], refused) if refused else (_paired(script, found, script.inputs, rng), [])


def compiled(script: Script, rng: np.random.Generator) -> tuple[Compared, Refusals]:
    """The whole script is one compiled function, called with tensors and then with NumPy arrays of other elements;
    what it writes to its arguments is compared as well."""
    refused: Refusals = []

    def function(inputs: dict[str, Any]) -> dict[str, Any]:
        refused.clear()
        found, more = run_lines(script, inputs)
        refused.extend(more)
        return {} if more else found

    runs, ours = lg.compile(function), _tensors(script.inputs)
    found = runs(ours)
    if refused:
        return [], refused
    compared = _paired(script, found, script.inputs, rng) + _paired(script, ours, script.inputs, rng, "argument ")
    others = variant(script, rng)
    if others is not None:
        arrays = {n: a.copy() for n, a in others.items()}
        compared += _paired(script, runs(arrays), others, rng, "second call, ")
        compared += _paired(script, arrays, others, rng, "argument of the second call, ")
    return compared, []


def batched(script: Script, rng: np.random.Generator) -> tuple[Compared, Refusals]:
    """`vmap` of the script over a batch of inputs; NumPy runs each. Elements without axes are numbers in both."""
    refused: Refusals = []
    script = Script(script.seed, {n: a[()] for n, a in script.inputs.items()}, script.lines)
    script = runnable(script, script.inputs)

    def function(inputs: dict[str, Any]) -> dict[str, Any]:
        refused.clear()
        found, more = run_lines(script, inputs)
        refused.extend(more)
        return {} if more else {n: lg.asarray(a) for n, a in found.items()}

    batch = [script.inputs, *filter(None, (variant(script, rng) for _ in range(BATCH - 1)))]
    ours = {n: lg.asarray(np.stack([inputs[n] for inputs in batch])) for n in script.inputs}
    found = lg.vmap(function)(ours)
    if refused:
        return [], refused
    whole = {n: np.asarray(a) for n, a in found.items()}
    compared = []
    for k, inputs in enumerate(batch):
        element = {n: a[k] for n, a in whole.items()}
        compared += _paired(script, element, inputs, rng, f"element {k} of the batch, ")
    return compared, []


WAYS: Final = {"lazy": lazily, "parts": in_parts, "compiled": compiled, "vmap": batched}


def _tensors(inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {n: lg.asarray(a) for n, a in inputs.items()}


def _paired(
    script: Script, found: Mapping[str, Any], inputs: Mapping[str, np.ndarray], rng: np.random.Generator, what: str = ""
) -> Compared:
    """The variables of a run beside NumPy's, in random order; what isn't stable isn't compared element by element."""
    want = run_numpy(script, inputs)
    names = [n for n in want if n in found]
    rng.shuffle(names)
    pairs = []
    for name in names:
        ours = np.asarray(found[name])
        if compare(ours, want[name]) is not None and _unstable(script, inputs, name, ours, want[name]):
            continue
        pairs.append((what + name, ours, want[name]))
    return pairs


# ---- comparing


def check(script: Script, way: str, rng: np.random.Generator) -> Outcome:
    """Run one way and compare; lines that are refused are left out of NumPy's run as well."""
    refused: Refusals = []
    while True:
        try:
            compared, more = WAYS[way](script, rng)
        except Exception as error:
            return Outcome(f"{type(error).__name__}: {(str(error) or 'no message').splitlines()[0]}", refused)
        if not more:
            break
        refused += [(line, message) for line, message in more if not message.startswith("NameError")]
        script = without(script, {line for line, _ in more})
    for name, got, want in compared:
        difference = compare(got, want)
        if difference is not None:
            return Outcome(f"{name}: {difference}", refused)
    return Outcome(None, refused)


def compare(got: Any, want: Any) -> str | None:
    """None, or what differs."""
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, NumPy's is {want.dtype}"
    if got.shape != want.shape:
        return f"shape {got.shape}, NumPy's is {want.shape}"
    wrong = _wrong(got, want)
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements, first {at}: {got[at]!r}, NumPy's is {want[at]!r}"


def _wrong(got: Any, want: Any) -> np.ndarray:
    if want.dtype.kind != "f":
        return np.asarray(got != want)
    tolerance = TOLERANCE[want.dtype.name]
    with quiet():
        tiny = np.finfo(want.dtype).tiny
        near = np.abs(got.astype(float) - want.astype(float)) <= tolerance * np.abs(want.astype(float)) + 4 * tiny
        same = (got == want) | near | (np.isnan(got) & np.isnan(want))
        zeros = (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want))
    return np.asarray(~same | zeros)


def _unstable(script: Script, inputs: Mapping[str, np.ndarray], name: str, got: Any, want: Any) -> bool:
    """Whether NumPy's own result moves as far when its intermediate results are nudged."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    wrong = _wrong(got, want)
    moved = np.zeros(want.shape, dtype=bool)
    for seed in range(12):
        try:
            other = run_numpy(script, inputs, np.random.default_rng(seed))[name]
        except Exception:  # a nudge at which NumPy fails: another shape, another branch
            return True
        if other.shape != want.shape:
            return True
        with quiet():
            distance = np.abs(other.astype(float) - want.astype(float))
            moved |= ~(distance * 8 < np.abs(got.astype(float) - want.astype(float))) | (
                np.isnan(other) != np.isnan(want)
            )
            moved |= np.asarray((other != want) & (want.dtype.kind != "f"))
    return bool((moved | ~wrong).all())


def failures(script: Script, ways: Sequence[str]) -> list[tuple[str, Outcome]]:
    """The ways that differ, and all refusals."""
    found = []
    for way in ways:
        outcome = check(script, way, np.random.default_rng(script.seed + 1))
        if outcome.difference or outcome.refused:
            found.append((way, outcome))
    return found
