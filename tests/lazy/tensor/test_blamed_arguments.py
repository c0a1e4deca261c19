"""Errors of Python's own name the function, the argument and the user's line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg

M = lg.asarray([[1.0, 2.0], [3.0, 4.0]])
SEVERAL = np.array([1, 2])

BLAMED: dict[str, Any] = {
    "sum: expected keepdims of type bool, got array": lambda: lg.sum(M, axis=0, keepdims=SEVERAL),
    "tril: expected k of type int, got \\[\\]": lambda: lg.tril(M, k=[]),
    "stack: expected xs of type Sequence": lambda: lg.stack(2),
    "select: expected condlist of type Sequence": lambda: lg.select(3, M),
    "take: expected mode of type str": lambda: lg.take(M, [0], mode=SEVERAL),
    "std: expected ddof of type float | None": lambda: lg.std(M, ddof="a"),
    "gaussian_filter1d: expected radius of type int | None": lambda: lg.ndimage.gaussian_filter1d(M, 1.0, radius={1}),
    "ravel: expected order of type": lambda: lg.ravel(M, order=SEVERAL),
    "hsplit: expected indices_or_sections of type int": lambda: lg.hsplit(M, None),
    "tril_indices_from: expected k of type int": lambda: lg.tril_indices_from(M, None),
    "rollaxis: expected start of type int": lambda: lg.rollaxis(M, 1, "a"),
    "linear_schedule: expected transition_steps of type int": lambda: lg.optim.linear_schedule(1.0, 0.0, None),
}  # fmt: skip


@pytest.mark.parametrize("message", BLAMED)
def test_the_argument_is_named(message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        BLAMED[message]()
    assert "test_blamed_arguments.py" in str(caught.value)
    assert caught.value.__cause__ is not None  # what Python said


SAID: dict[str, Any] = {
    "vjp: expected a function, got None": lambda: lg.vjp(None, M),
    "linearize: expected a function, got None": lambda: lg.linearize(None, M),
    "insert: expected positions that are integers, got 1.5": lambda: lg.insert(M, 1.5, 0.0, axis=0),
    "split: expected positions that are integers": lambda: lg.split(M, [0.5]),
    "histogram2d: expected a number of bins, or edges, got 2.5": lambda: lg.histogram2d(M[0], M[0], 2.5),
    "einsum: expected operands behind the letters, got none": lambda: lg.einsum("ij->i"),
    "ldexp: expected real numbers, got complex128": lambda: lg.ldexp(M * 1j, 2),
    "expected numbers, got NoneType": lambda: lg.optim.adam(None),
    "retries: expected a number of at least 0, got -7": lambda: lg.map_shards(None, lg.sum, 1.0, [M], retries=-7),
}


@pytest.mark.parametrize("message", SAID)
def test_what_was_expected_is_said(message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        SAID[message]()
    assert "test_blamed_arguments.py" in str(caught.value)


def test_traced_calls_name_it_as_well() -> None:
    with pytest.raises(TypeError, match="tril: expected k of type int"):
        lg.compile(lambda x: lg.tril(x, k=[]))(M)


def test_without_a_suspect_the_function_and_the_line_are_noted() -> None:
    with pytest.raises(TypeError, match="no len") as caught:
        lg.histogram([0.0, 1.0], range=1.5)
    (note,) = caught.value.__notes__
    assert note.startswith("in histogram")
    assert "test_blamed_arguments.py" in note


def broken(row: Any) -> Any:
    return {}[row.shape]


@pytest.mark.parametrize("call", [lambda: lg.apply_along_axis(broken, 0, M), lambda: lg.grad(broken)(M)])
def test_errors_of_the_users_functions_stay(call: Any) -> None:
    with pytest.raises(KeyError) as caught:
        call()
    assert caught.value.args == ((2,),) or caught.value.args == ((2, 2),)
    assert not hasattr(caught.value, "__notes__")


def test_our_own_errors_stay() -> None:
    with pytest.raises(lg.ShapeError, match="reshape: expected") as caught:
        lg.reshape(M, (3,))
    assert not hasattr(caught.value, "__notes__")


def test_missing_arguments_are_pythons_to_tell() -> None:
    with pytest.raises(TypeError, match="missing 1 required") as caught:
        lg.sin()  # type: ignore[call-arg]
    assert not hasattr(caught.value, "__notes__")
