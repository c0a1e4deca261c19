"""Random structured programs: reverse against forward against central differences."""

from __future__ import annotations

import pytest

from tests.autodiff import random_programs as _programs


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(90))
def test_gradients(derivatives, seed):
    _programs.check_program(derivatives, seed, depth=2 + seed % 3)


@pytest.mark.parametrize("seed", range(12))
def test_second_order(derivatives, seed):
    function, arrays = _programs.random_program(1000 + seed, depth=2)
    derivatives.check(function, arrays, order=2, numeric=False)
