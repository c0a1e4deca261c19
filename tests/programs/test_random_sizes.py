"""A few of the cases of `random_sizes`, each function once or twice: sizes that other tests don't have."""

from __future__ import annotations

import pytest

from .random_sizes import CASES, checked

GROUPS = [tuple(CASES)[k::5] for k in range(5)]


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("group", range(len(GROUPS)))
def test_sizes(device: str, group: int) -> None:
    if device == "interpreter":
        pytest.skip("it computes with NumPy's functions")
    found = [text for seed in range(8) for text in checked(100 * group + seed, GROUPS[group], gradients=seed == 0)]
    assert found == []
