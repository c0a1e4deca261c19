"""Branches that choose what is read become choices of values: before and after compute the same."""

import numpy as np
import pytest

from loopgrad.codegen.kernel.interpret import interpret_kernel
from loopgrad.codegen.kernel.nodes import walk
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.targets.gpu.lanes.analysis import straight
from loopgrad.codegen.targets.gpu.lanes.choices import MOST_READ, chosen
from loopgrad.codegen.targets.gpu.lanes.side_by_side import lanes_side_by_side
from loopgrad.graph.types import bool_, float32, int64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import check

PIECE = 40


def concat(pieces, size=PIECE):
    """Pieces one after the other, found by nested branches; each is added to its own number first."""
    build = Build(pieces * size)
    (lane,) = build.indices
    params = [build.param(float32, size) for _ in range(pieces)]

    def piece(n):
        shifted = build.one("sub", (lane, build.const(n * size, int64)))
        return build.one("add", (build.load(params[n], shifted), build.const(float(n), float32)))

    def choose(n):
        if n == 0:
            return piece(0)
        later = build.one("ge", (lane, build.const(n * size, int64)), bool_)
        return build.branch(later, lambda: [piece(n)], lambda: [choose(n - 1)], [float32])[0]

    build.store(build.param(float32, pieces * size, "write"), lane, choose(pieces - 1))
    return build.kernel()


def arrays_of(kernel):
    r = np.random.default_rng(0)
    return [r.integers(0, 50, p.size).astype(p.dtype.np) for p in kernel.params]


@pytest.mark.parametrize("pieces", [2, 3, MOST_READ])
def test_pieces(pieces):
    kernel = concat(pieces)
    after = chosen(kernel)
    verify_kernel(after)
    assert straight(after)
    wanted, got = arrays_of(kernel), arrays_of(kernel)
    interpret_kernel(kernel, wanted)
    interpret_kernel(after, got)
    np.testing.assert_array_equal(got[-1], wanted[-1])
    check(kernel, arrays_of(kernel))


def test_many_pieces_stay_branches():
    kernel = concat(MOST_READ + 1)
    assert chosen(kernel) is kernel


def test_loads_that_each_lane_needs_are_not_in_vain():
    """As many as a stencil of a padded array makes, and more than a concat may."""
    rows, length, taps = 6, 32, MOST_READ + 4
    build = Build(rows, length)
    (i, _), lane = build.indices, build.linear()
    source, total = build.param(float32, rows * length), build.const(0.0, float32)
    for k in range(taps):
        inside = build.one("ge", (i, build.const(k % rows, int64)), bool_)
        above = build.one("sub", (lane, build.const(k % rows * length, int64)))
        term = build.branch(
            inside, lambda p=above: [build.load(source, p)], lambda: [build.const(0.0, float32)], [float32]
        )
        total = build.one("add", (total, *term))
    build.store(build.param(float32, rows * length, "write"), lane, total)
    kernel = build.kernel()
    after = chosen(kernel)
    assert straight(after)
    assert lanes_side_by_side(after, 4) == 4  # neighbours choose alike
    wanted, got = arrays_of(kernel), arrays_of(kernel)
    interpret_kernel(kernel, wanted)
    interpret_kernel(after, got)
    np.testing.assert_array_equal(got[-1], wanted[-1])
    check(after, arrays_of(kernel))


def test_nothing_is_read_from_an_empty_array():
    kernel = concat(2, size=0)
    assert chosen(kernel) is kernel


def test_a_quotient_by_what_may_be_zero_stays_in_its_branch():
    build = Build(64)
    (lane,) = build.indices
    zero = build.const(0, int64)
    positive = build.one("gt", (lane, zero), bool_)
    (value,) = build.branch(positive, lambda: [build.one("floordiv", (zero, lane))], lambda: [lane], [int64])
    build.store(build.param(int64, 64, "write"), lane, value)
    kernel = build.kernel()
    assert chosen(kernel) is kernel
    check(kernel, arrays_of(kernel))


def test_branches_that_write_or_loop_stay():
    for effect in ("store", "loop"):
        build = Build(64)
        (lane,) = build.indices
        p = build.param(int64, 64, "write")
        positive = build.one("gt", (lane, build.const(5, int64)), bool_)

        def then(build=build, lane=lane, p=p, effect=effect):
            if effect == "store":
                build.store(p, lane, lane)
                return []
            return build.loop(lane, [lane], lambda k, v: [build.one("add", (v, k))])

        build.branch(
            positive,
            then,
            lambda lane=lane, effect=effect: [] if effect == "store" else [lane],
            [int64] * (effect == "loop"),
        )
        kernel = build.kernel()
        assert chosen(kernel) is kernel
        assert any(op.opcode == "if" for op in walk(kernel.body))


def test_one_array_is_read_at_the_place_that_is_chosen():
    """As by rolls of rolls: no load but that one."""
    build = Build(3 * PIECE)
    (lane,) = build.indices
    x = build.param(float32, 3 * PIECE)

    def shifted(place, by, inner):
        near = build.one("ge", (place, build.const(by, int64)), bool_)
        ways = [
            lambda far=far: [inner(build.one("add", (place, build.const(far - by, int64))))] for far in (0, 3 * PIECE)
        ]
        return build.branch(near, *ways, [float32])[0]

    value = shifted(lane, 7, lambda place: shifted(place, 11, lambda inner: build.load(x, inner)))
    build.store(build.param(float32, 3 * PIECE, "write"), lane, value)
    kernel = build.kernel()
    after = chosen(kernel)
    verify_kernel(after)
    assert straight(after)
    assert [op.opcode for op in walk(after.body)].count("load") == 1
    arrays = arrays_of(kernel)
    interpret_kernel(after, arrays)
    np.testing.assert_array_equal(arrays[1], np.roll(arrays[0], 18))
    check(kernel, arrays_of(kernel))
