"""Every keyword of a function of NumPy's is one of ours, in the same place, but for those listed here.

Operands come by position, as in the array API standard, whatever NumPy calls them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

P = inspect.Parameter
BY_NAME = (P.POSITIONAL_OR_KEYWORD, P.KEYWORD_ONLY)
BY_POSITION = (P.POSITIONAL_OR_KEYWORD, P.POSITIONAL_ONLY)

NOWHERE = {
    "like": "chooses another library's function",
    "subok": "there are no subclasses of tensors",
    "signature": "chooses one of a ufunc's loops: dtype= says the same",
}
UFUNCS = {"order": "tensors lie row by row"}
_CORE_AXES = "products are over the last axes: lg.moveaxis moves others there"
_SEVERAL = "results are several: write each with x[...] = "
_OWN = "lg.save and lg.load are for trees of tensors; np.save(file, x) writes NumPy's form"
MISSING = {
    "array": ({"ndmax"}, "lists are numbers to the bottom, there are no objects"),
    "matmul": ({"axes", "axis", "keepdims"}, _CORE_AXES), "matvec": ({"axes", "axis", "keepdims"}, _CORE_AXES),
    "vecmat": ({"axes", "axis", "keepdims"}, _CORE_AXES), "vecdot": ({"axes", "keepdims"}, _CORE_AXES),
    "divmod": ({"out", "where", "casting", "dtype"}, _SEVERAL),
    "frexp": ({"out", "where", "casting", "dtype"}, _SEVERAL), "modf": ({"out", "where", "casting", "dtype"}, _SEVERAL),
    "load": ({"file", "mmap_mode", "allow_pickle", "fix_imports", "encoding", "max_header_size"}, _OWN),
    "save": ({"file", "arr", "allow_pickle"}, _OWN),
    "Generator.multivariate_normal": ({"check_valid", "tol"}, "a covariance isn't evaluated to be checked"),
}  # fmt: skip
ELSEWHERE = {
    "clip": "the names are the standard's; NumPy's a_min and a_max are taken, too",
    "seterr": "keywords alone", "vecdot": "NumPy's is a ufunc, the standard's takes axis",
    "fft.fftfreq": "the device is a keyword", "fft.rfftfreq": "the device is a keyword",
    "load": _OWN, "save": _OWN, "Generator.multivariate_normal": "as above",
    **dict.fromkeys(("broadcast_to", "copy", "empty_like", "full_like", "ones_like", "zeros_like"),
                    "behind subok, which there isn't"),
    **dict.fromkeys(("divmod", "frexp", "modf"), "as above"),
}  # fmt: skip


def pairs() -> Iterator[tuple[str, Any, Any]]:
    """NumPy's functions and methods that we offer, and ours."""
    for ours, theirs, prefix in (
        (lg, np, ""), (lg.linalg, np.linalg, "linalg."), (lg.fft, np.fft, "fft."),
        (lg.random.Generator, np.random.Generator, "Generator."), (lg.Tensor, np.ndarray, "ndarray."),
    ):  # fmt: skip
        for name in sorted(n for n in dir(theirs) if not n.startswith("_")):
            function = getattr(theirs, name)
            if callable(function) and not inspect.isclass(function) and hasattr(ours, name):
                yield prefix + name, getattr(ours, name), function


def parameters(function: Any) -> list[P] | None:
    """None for functions of C that don't tell: how many there are depends on NumPy's version."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def missing(ours: list[P], theirs: list[P]) -> list[str]:
    """Names that NumPy takes and we don't, but for those of operands, which are in places of ours without a name."""
    if any(p.kind is P.VAR_KEYWORD for p in ours):
        return []
    known = {p.name for p in ours if p.kind in BY_NAME}
    nameless = sum(p.kind is P.POSITIONAL_ONLY for p in ours)
    if any(p.kind is P.VAR_POSITIONAL for p in ours):
        nameless = len(ours)
    return [p.name for i, p in enumerate(theirs) if p.kind in BY_NAME and p.name not in known and i >= nameless]


def misplaced(ours: list[P], theirs: list[P]) -> list[str]:
    """Names that NumPy takes in a place where we take another, or none."""
    if any(p.kind is P.VAR_POSITIONAL for p in ours):
        return []
    places = [p for p in ours if p.kind in BY_POSITION]
    return [
        p.name
        for i, p in enumerate(t for t in theirs if t.kind in BY_POSITION)
        if p.name != "self" and (i >= len(places) or (places[i].kind in BY_NAME and places[i].name != p.name))
    ]


def test_keywords_are_numpys() -> None:
    wrong, used = [], set()
    for name, ours, theirs in pairs():
        mine, other = parameters(ours), parameters(theirs)
        if mine is None or other is None:
            continue
        lacking = [p for p in missing(mine, other) if p not in NOWHERE]
        if isinstance(theirs, np.ufunc):
            lacking = [p for p in lacking if p not in UFUNCS]
        listed = MISSING.get(name, (set(), ""))[0]
        used |= {(name, p) for p in lacking}
        wrong += [f"{name} lacks {p}" for p in lacking if p not in listed]
        moved = [p for p in misplaced(mine, other) if p not in NOWHERE and p not in listed]
        if moved and name not in ELSEWHERE:
            wrong.append(f"{name} has elsewhere {moved}")
    assert not wrong, "\n".join(wrong)
    if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        assert [(n, p) for n, (names, _) in MISSING.items() for p in names if (n, p) not in used] == []


def test_what_is_missing_is_refused() -> None:
    x = lg.ones((2, 2))
    for call in (
        lambda: lg.matmul(x, x, axes=[(0, 1)]), lambda: lg.divmod(x, x, out=x), lambda: lg.sin(x, subok=False),
        lambda: lg.zeros(2, like=x), lambda: lg.array([1], ndmax=1),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="unexpected keyword"):
            call()


def test_numpys_functions_take_operands_by_name(device: str) -> None:
    x = lg.asarray([[3.0, -1.0], [2.0, 4.0]])
    for call in (
        lambda x: np.sum(a=x, axis=0),
        lambda x: np.clip(a=x, a_min=0, a_max=2),
        lambda x: np.mean(a=x, out=None),
        lambda x: np.linalg.solve(a=x, b=x[0]),
        lambda x: np.interp(x=x[0], xp=x[1], fp=x[1]),
        lambda x: np.flip(m=x),
        lambda x: np.pad(array=x, pad_width=1),
        lambda x: np.tensordot(a=x, b=x, axes=1),
        lambda x: np.fft.fft(a=x),
    ):
        got = call(x)
        assert isinstance(got, lg.Tensor)
        check(got, call(np.asarray(x)))
    assert float(lg.grad(lambda x: np.sum(a=x * x))(x)[0, 0]) == 6.0
    with pytest.raises(TypeError):
        np.sum(x, nonsense=1)
