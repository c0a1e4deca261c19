from __future__ import annotations

import pytest

from loopgrad.graph import errors
from loopgrad.graph.location import describe
from loopgrad.graph.nodes import Location


@pytest.mark.parametrize(
    ("error", "built_in"),
    [
        (errors.ShapeError, ValueError),
        (errors.DTypeError, TypeError),
        (errors.LeakedValueError, ValueError),
        (errors.IndexRangeError, IndexError),
        (errors.LoopLimitError, RuntimeError),
    ],
)
def test_each_error_is_ours_and_the_built_in_it_refines(error, built_in):
    assert issubclass(error, errors.LoopgradError)
    assert issubclass(error, built_in)


def test_a_location_without_a_readable_file_is_just_named():
    assert describe(None) == ""
    assert describe(Location("<stdin>", 4, "f")) == "  at <stdin>:4 in f"
