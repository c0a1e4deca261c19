"""Idioms of scripts run with NumPy and with loopgrad in its place: the same values, dtypes, shapes and texts."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from numpy_idioms import DIFFERENT, EXPRESSIONS, STATEMENTS

import loopgrad as lg

X = np.array([[0.5, 1.5, -2.0, 4.0], [2.5, -3.0, 0.25, 1.0], [1.0, 2.0, 3.0, 0.5]])


@dataclasses.dataclass
class Point:
    x: Any
    v: Any


def names(xp: Any) -> dict[str, Any]:
    arrays = {"x": xp.array(X), "k": xp.arange(5), "i": xp.array([2, 0]), "n": X[::-1].copy()}
    modules = {"np": np, "math": math, "pickle": pickle, "copy": copy, "dataclasses": dataclasses}
    return {"xp": xp, "Point": Point, **arrays, **modules}


def plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    return np.asarray(value) if isinstance(value, lg.Tensor | np.ndarray | np.generic) else value


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        alike = (a.shape, a.dtype) == (b.shape, b.dtype)
        return bool(alike) and np.allclose(a, b, rtol=1e-12, atol=1e-13, equal_nan=True)
    return bool(type(a) is type(b) and (a == b or (a != a and b != b)))


def outcome(code: str, xp: Any, statements: bool) -> Any:
    scope = names(xp)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if statements:
            exec(code, scope)
        return plain(scope["r"] if statements else eval(code, scope))


def differing(programs: list[str], statements: bool) -> dict[str, Any]:
    found = {}
    for code in programs:
        expected = outcome(code, np, statements)
        try:
            got = outcome(code, lg, statements)
        except Exception as error:  # whatever it is, it belongs into the list
            got = error
        if not same(expected, got):
            found[code] = (expected, got)
    return found


def test_expressions_are_numpys() -> None:
    programs = [code.strip() for line in EXPRESSIONS.strip().splitlines() for code in line.split("||")]
    assert len(programs) > 480
    assert differing(programs, statements=False) == {}


def test_statements_are_numpys() -> None:
    assert differing(STATEMENTS.strip().split("\n\n"), statements=True) == {}


def test_what_differs_is_known() -> None:
    assert sorted(differing(list(DIFFERENT), statements=False)) == sorted(DIFFERENT)


def test_elements_row_by_row(device: str) -> None:
    x = lg.asarray(X)
    x.T.flat[[1, 1, 5]] = [7.0, 8.0, 9.0]
    expected = X.copy()
    expected.T.flat[[1, 1, 5]] = [7.0, 8.0, 9.0]
    x[1].flat = expected[1].flat = [1, 2, 3]  # repeated
    np.testing.assert_array_equal(np.asarray(x), expected)
    np.testing.assert_array_equal(np.asarray(x.flat), expected.ravel())

    def loss(x: lg.Tensor) -> lg.Tensor:
        y = x * x
        y.flat[2:4] = 3.0 * x.flat[0]
        return lg.sum(y.flat[1:]) + sum(v for v in x.flat)

    slope = np.ones((3, 4)) + 2 * X
    slope.flat[[0, 2, 3]] = [7.0, 1.0, 1.0]
    np.testing.assert_allclose(np.asarray(lg.grad(loss)(lg.asarray(X))), slope)
    with pytest.raises(lg.ShapeError, match="at least one value"):
        x.flat = []


def test_whole_numbers_of_traced_values_are_tensors() -> None:
    assert type(math.floor(lg.asarray(1.5))) is int
    assert lg.grad(lambda x: x * math.ceil(x))(1.5) == 2.0
    assert lg.compile(lambda x: math.trunc(x) + x)(lg.asarray(1.5)) == 2.5
