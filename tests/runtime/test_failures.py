"""Errors that launches end with."""

from __future__ import annotations

from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.nodes import Location
from loopgrad.runtime.failures import StackCapacityError


def test_a_capacity_error_says_what_was_needed_and_where():
    error = StackCapacityError("while loop 'march'", Location(__file__, 5, "render"), 17, 40, 32)
    assert (error.loop, error.lane, error.needed, error.allocated) == ("while loop 'march'", 17, 40, 32)
    text = str(error)
    for part in ("'march'", "lane 17", "40", "32", "stack_capacity", f"{__file__}:5 in render", "import LoopgradError"):
        assert part in text
    assert isinstance(error, LoopgradError)
    assert isinstance(error, RuntimeError)
