"""Chunks of neighbouring rows, where these are read across; against the kernel interpreter."""

import itertools

import numpy as np
import pytest

from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.vector.lanes import LINE, plan_lanes
from loopgrad.graph.types import bool_, float16, float32, float64, int8, int64
from tests.codegen.targets.cpu.cpu_harness import check
from tests.codegen.targets.cpu.kernel_build import Build


def transposes(domain, perms, dtype=float32):
    """The sum of arrays whose axes lie in these orders; of one array, a copy."""
    build, size = Build(*domain), int(np.prod(domain))
    total = None
    for perm in perms:
        index = build.const(0, int64)
        for d in perm:
            index = build.one("add", (build.one("mul", (index, build.const(domain[d], int64))), build.indices[d]))
        x = build.load(build.param(dtype, size), index)
        total = x if total is None else build.one("add", (total, x))
    build.store(build.param(dtype, size, "write"), build.linear(), total)
    return build.kernel()


def arrays_of(kernel):
    r = np.random.default_rng(0)
    return [r.integers(0, 2 if p.dtype is bool_ else 60, p.size).astype(p.dtype.np) for p in kernel.params]


def across(kernel):
    return plan_lanes(kernel, host_machine(), Options()).across


@pytest.mark.parametrize(
    "domain", [(128, 128), (170, 201), (3, 4100), (2, 70_000), (300, 65), (1, 150, 1, 130), (65, 33)]
)
def test_transposes(domain):
    kernel = transposes(domain, [tuple(reversed(range(len(domain))))])
    assert across(kernel) is not None
    check(kernel, arrays_of(kernel))


@pytest.mark.parametrize("perm", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("domain", [(17, 18, 70), (64, 5, 66), (3, 40, 81)])
def test_every_order_of_three_axes(domain, perm):
    kernel = transposes(domain, [perm])
    check(kernel, arrays_of(kernel))


@pytest.mark.parametrize("dtype", [bool_, int8, int64, float16, float64], ids=str)
def test_dtypes(dtype):
    kernel = transposes((131, 77), [(1, 0)], dtype)
    dim, size = across(kernel)
    assert (dim, size) == (0, min(LINE // dtype.itemsize, 131))
    check(kernel, arrays_of(kernel))


def test_several_arrays_in_their_orders():
    kernel = transposes((20, 21, 90), [(2, 1, 0), (1, 2, 0), (0, 1, 2)])
    assert across(kernel) is not None
    check(kernel, arrays_of(kernel))


def test_rows_stay_whole_where_they_are_read_along():
    for domain, perm in (((4096, 64), (0, 1)), ((40, 50, 64), (1, 0, 2)), ((50_000, 3), (1, 0))):
        assert across(transposes(domain, [perm])) is None


def test_pieces_of_long_rows():
    """A chunk isn't larger than elsewhere."""
    layout = plan_lanes(transposes((500, 100_000), [(1, 0)]), host_machine(), Options())
    assert layout.pieces > 1
    assert layout.piece_lanes * layout.rows_per_chunk <= 1 << 17
    assert layout.chunks == layout.pieces * -(-500 // layout.rows_per_chunk)
