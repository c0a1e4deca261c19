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
        (errors.StackCapacityError, RuntimeError),
    ],
)
def test_each_error_is_ours_and_the_built_in_it_refines(error, built_in):
    assert issubclass(error, errors.LoopgradError)
    assert issubclass(error, built_in)


def test_a_capacity_error_says_what_was_needed_and_where():
    error = errors.StackCapacityError("while loop 'march'", Location(__file__, 3, "render"), 17, 40, 32)
    assert (error.loop, error.lane, error.needed, error.allocated) == ("while loop 'march'", 17, 40, 32)
    text = str(error)
    for part in ("'march'", "lane 17", "40", "32", "stack_capacity", f"{__file__}:3 in render", "import pytest"):
        assert part in text


def test_a_location_without_a_readable_file_is_just_named():
    assert describe(None) == ""
    assert describe(Location("<stdin>", 4, "f")) == "  at <stdin>:4 in f"
