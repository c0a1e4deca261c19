"""matmul rows, batched and with empty dims."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops


@pytest.mark.parametrize("shapes", [((2, 3), (3, 4)), ((5, 2, 3), (5, 3, 1)), ((2, 0), (0, 3))])
def test_matmul(derivatives, shapes):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) for s in shapes]
    derivatives.check(lambda a, b: [ops.sin(ops.matmul(a, b))], arrays, order=2)


@pytest.mark.parametrize("active", [[0], [1]])
def test_one_side_only(derivatives, active):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 3)), rng.standard_normal((3, 4))]
    derivatives.check(lambda a, b: [ops.matmul(a, b)], arrays, active)
