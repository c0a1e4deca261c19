"""Threads that share lazy tensors: a sample of `python tests/programs/random_threads.py --count N`."""

from __future__ import annotations

import pytest
from random_threads import stress


@pytest.mark.costly
def test_threads_share_lazy_tensors(device):
    assert stress(seed=1, threads=8, count=160, device=device) == []
