"""A sample of the random NumPy scripts; random_scripts.py runs as many as wanted."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import loopgrad as lg
from tests.programs.numpy_scripts import calls, statements
from tests.programs.numpy_scripts.conventions import REFUSALS
from tests.programs.numpy_scripts.functions import ELSEWHERE, FUNCTIONS
from tests.programs.numpy_scripts.scripts import Script, generate
from tests.programs.numpy_scripts.ways import WAYS, check, compare

COUNT = 60
DRAWN = ("unary", "binary", "reduction", "quantile", "running", "joining", "splitting")  # a name at random


@pytest.mark.in_turns
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(COUNT))
def test_scripts_in_the_interpreter_give_what_numpy_gives(seed, way):
    with lg.default_device("interpreter"):
        compared(seed, way)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(COUNT, COUNT + 12))
def test_scripts_give_what_numpy_gives(compiled_device, seed, way):
    compared(seed, way)


def compared(seed, way):
    """One script in one way; what is refused must be refused on purpose."""
    outcome = check(generate(seed), way, np.random.default_rng(seed))
    assert outcome.difference is None, generate(seed).text()
    for line, message in outcome.refused:
        assert any(re.match(pattern, message) for pattern, _ in REFUSALS), (line, message)


def test_every_name_that_numpy_has_is_called_or_left_out_with_a_reason():
    called = {name for names in FUNCTIONS.values() for name in names}
    assert {name for name in lg.__all__ if hasattr(np, name)} == called | set(ELSEWHERE)
    assert not called & set(ELSEWHERE)
    text = inspect.getsource(calls) + inspect.getsource(statements)
    written = {name for kind, names in FUNCTIONS.items() if kind not in DRAWN for name in names}
    assert {name for name in written if f"{name}(" not in text} == set()


def test_a_wrong_element_is_found():
    script = Script(0, {"v0": np.array([1.0, 2.0])}, ["v1 = v0 + xp.sum(v0)"])
    assert check(script, "lazy", np.random.default_rng(0)).difference is None
    assert compare(np.array([4.0, 5.0]), np.array([4.0, 5.0 + 1e-9])) is not None
    assert compare(np.array([0.0]), np.array([-0.0])) is not None
    assert compare(np.array([np.nan]), np.array([np.nan])) is None


def test_a_lost_write_is_found(monkeypatch):
    monkeypatch.setattr(lg.Tensor, "__setitem__", lambda self, index, value: None)
    script = Script(0, {"v0": np.array([1.0, 2.0])}, ["v1 = v0 * 2", "v1[0] = 7", "v2 = v1 + 1"])
    assert "elements" in str(check(script, "lazy", np.random.default_rng(0)).difference)


def test_a_wrapped_number_is_found(monkeypatch):
    monkeypatch.setattr(lg, "searchsorted", lambda a, v: lg.sum(a < lg.asarray(v).astype(a.dtype)))
    script = Script(0, {"v0": np.array([1, 2], np.uint32)}, ["v1 = xp.searchsorted(v0, -1)"])
    assert "NumPy's is" in str(check(script, "lazy", np.random.default_rng(0)).difference)


def test_scripts_write_branch_and_call_numpy():
    text = "\n".join("\n".join(generate(seed).lines) for seed in range(400))
    parts = ("] = ", "] += ", " += ", "out=", ".sort(", "for row in", "if float(", "np.", "[...] =", "overflows", "-1:")
    for part in parts:
        assert part in text, part
