"""What is known about the integers of a kernel."""

from loopgrad.codegen.kernel.ranges import Ranges
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import bool_, float32, int8, int32, int64, uint8
from tests.codegen.targets.cpu.kernel_build import Build


def test_what_is_known_of_an_index():
    build = Build(6, 4)
    row, column = build.indices

    def of(value):
        return Ranges(build.kernel()).of(value)

    def at(k):
        return build.const(k, int64)

    assert (of(row), of(column)) == ((0, 5), (0, 3))
    place = build.one("add", (build.one("mul", (row, at(4))), column))
    assert of(place) == (0, 23)
    shifted = build.one("sub", (place, at(10)))
    assert of(shifted) == (-10, 13)
    assert of(build.one("mod", (shifted, at(7)))) == (0, 6)
    assert of(build.one("mod", (column, at(7)))) == (0, 3)
    assert of(build.one("floordiv", (shifted, at(4)))) == (-3, 3)
    assert of(build.one("rem", (shifted, at(7)))) == (-6, 6)
    assert of(build.one("shr", (shifted, at(1)))) == (-5, 6)
    assert of(build.one("sign", (shifted,))) == (-1, 1)
    assert of(build.one("min", (shifted, at(2)))) == (-10, 2)
    assert of(build.one("select", (build.const(True, bool_), at(-3), column), int64)) == (-3, 3)
    assert of(build.one("and", (shifted, at(7)))) == (0, 7)
    assert of(build.one("cast", (shifted,), int8)) == (-10, 13)
    assert of(build.one("cast", (shifted,), uint8)) == limits(uint8)  # it wraps around
    large = build.const(1 << 62, int64)
    assert of(build.one("add", (large, large))) == limits(int64)


def test_a_domain_of_one_lane_may_be_launched_with_any_number():
    build = Build(1)
    assert Ranges(build.kernel()).of(build.indices[0]) == limits(int64)


def test_indices_of_loops():
    build = Build(5)
    (i,) = build.indices
    seen = []
    build.loop(build.const(9, int64), [i], lambda k, v: [seen.append((k, v)) or v])
    build.loop(i, [i], lambda k, v: [seen.append((k, v)) or v])
    ranges = Ranges(build.kernel())
    assert [ranges.of(k) for k, _ in seen] == [(0, 8), (0, 3)]
    assert ranges.of(seen[0][1]) == limits(int64)


def test_what_wraps_around_and_comes_back():
    build = Build(101)
    (i,) = build.indices
    narrow = build.one("cast", (i,), int8)
    twice = build.one("add", (narrow, narrow))
    half = build.one("sub", (twice, build.const(73, int8)))
    ranges = Ranges(build.kernel())
    assert [ranges.of(v) for v in (narrow, twice, half)] == [(0, 100), limits(int8), (-73, 127)]
    assert [ranges.exact(v.op) for v in (narrow, twice, half)] == [True, False, False]


def test_a_float_has_no_range():
    build = Build(3)
    (i,) = build.indices
    x = build.load(build.param(float32, 3), i)
    assert Ranges(build.kernel()).of(build.one("cast", (x,), int32)) == limits(int32)
