"""Random scripts that come again give NumPy's numbers each time (see random_repeats)."""

from __future__ import annotations

import pytest

from tests.programs.random_repeats import difference


@pytest.mark.parametrize("seed", range(30))
def test_scripts_that_come_again(seed: int) -> None:
    found = difference(seed)
    assert found is None, found
