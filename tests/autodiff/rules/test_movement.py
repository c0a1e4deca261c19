"""Movement rows: linear, so both modes must agree with differences to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops

X = np.arange(12.0).reshape(3, 4) / 7 - 0.6

CASES = {
    "broadcast": lambda x: ops.broadcast(x, (2, 3, 5, 4), (1, 3)),
    "broadcast of extents of one": lambda x: ops.broadcast(ops.reshape(x, (3, 1, 4, 1)), (3, 5, 4, 2), (0, 1, 2, 3)),
    "reshape": lambda x: ops.reshape(x, (2, 6)),
    "transpose": lambda x: ops.transpose(x, (1, 0)),
    "slice": lambda x: ops.slice(x, (1, 0), (3, 4), (1, 2)),
    "slice with steps": lambda x: ops.slice(x, (0, 1), (3, 4), (2, 2)),
    "slice backwards": lambda x: ops.slice(x, (2, 3), (None, 0), (-1, -2)),
    "slice from beyond the end": lambda x: ops.slice(x, (9, 1), (None, 3), (-2, 1)),
    "empty slice": lambda x: ops.slice(x, (2, 0), (2, 4)),
    "pad": lambda x: ops.pad(x, (1, 0), (2, 3), 7.0),
    "pad with a value": lambda x: ops.pad(x, (1, 0), (2, 3), ops.reduce_sum(x, (0, 1))),
    "concat": lambda x: ops.concat([x, ops.sin(x), x], 1),
    "flip": lambda x: ops.flip(x, (0, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_row(derivatives, name):
    derivatives.check(lambda x: [ops.sin(CASES[name](x))], [X], order=2)
