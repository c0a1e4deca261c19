"""Random scripts of views and writes against NumPy.

`python tests/programs/random_views.py --count N` runs as many as wanted.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_views import MODES, Generator, check_script, run

COUNT = 40


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(COUNT))
def test_random_script_in_the_interpreter(seed, mode):
    check_script(seed, "interpreter", mode)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(COUNT, COUNT + 3))
def test_random_script(device, seed, mode):
    check_script(seed, device, mode)


def test_the_scripts_cover_what_they_should():
    """Views that share memory with what is written to, and every kind of refusal, occur among the scripts."""
    scripts = [Generator(seed).generate() for seed in range(COUNT)]
    text = "\n".join(str(script) for script in scripts)
    calls = (".T", "reshape", "ravel", "swapaxes", "flip", "split", "einsum", "broadcast_to", "asarray", "argmax")
    for part in (*calls, "bump", "sort", "out=", "[[0, 1, 0]]", "# ValueError", "del "):
        assert part in text, part
    sharing = 0
    for script in scripts:
        arrays = [a for a in run(script.lines, np, script.roots()).values() if isinstance(a, np.ndarray)]
        sharing += any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    assert sharing > COUNT / 2
