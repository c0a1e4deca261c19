"""The battery of tests of random bits tells weak generators, and passes `lg.random`'s words; it is run with more words
by hand (`python tests/programs/random_battery.py --words 26`)."""

from __future__ import annotations

import numpy as np
from random_battery import arrangements, failures, weak


def test_weak_generators_fail() -> None:
    found = {name: failures(words) for name, words in weak(1 << 16)}
    assert [name for name, failed in found.items() if not failed] == []
    assert failures(np.random.default_rng(5).integers(0, 2**32, 1 << 17, np.uint32)) == {}


def test_words_as_they_are_handed_out() -> None:
    found = {name: failures(words) for name, words in arrangements(1 << 16)}
    assert {name: failed for name, failed in found.items() if failed} == {}
