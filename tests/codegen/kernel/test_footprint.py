"""Which loads are better made in another order of lanes."""

from __future__ import annotations

import pytest

from loopgrad.codegen.kernel.footprint import scattered_reads
from loopgrad.graph.types import int64
from tests.codegen.targets.cpu.kernel_build import Build

EXTENT = 512


class Places(Build):
    """What a load's place may be, of row and column."""

    def of_row(self):
        """One element for all lanes of a row, as positions of rows are."""
        return self.indices[0]

    def of_column(self):
        return self.indices[1]

    def clamped(self):
        """Not linear in the lanes, so that lanes are looked at."""
        return self.one("max", (self.one("sub", (self.indices[0], self.const(2, int64))), self.const(0, int64)))

    def windows(self):
        """Neighbours read what others read, too."""
        return self.one("add", self.indices)

    def transposed(self):
        row, column = self.indices
        return self.one("add", (self.one("mul", (column, self.const(EXTENT, int64))), row))


@pytest.mark.parametrize(
    ("place", "orders"),
    [("of_row", []), ("of_column", []), ("clamped", []), ("windows", []), ("transposed", [(0, 1)])],
)
def test_reads_of_which_a_sector_serves_many_lanes_are_left_alone(place, orders):
    build = Places(EXTENT, EXTENT)
    found = build.load(build.param(int64, EXTENT * EXTENT), getattr(build, place)())
    build.store(build.param(int64, EXTENT * EXTENT, "write"), build.linear(), found)
    assert [read.order for read in scattered_reads(build.kernel())] == orders
