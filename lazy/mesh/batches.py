"""`lg.shard_batches`: lanes that don't fit into memory, some at a time, read while those before them are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from loopgrad.graph.errors import explained
from loopgrad.lazy.mesh.meshes import Mesh, mesh_device
from loopgrad.lazy.mesh.sharding import lanes_of
from loopgrad.lazy.tensor.trees import Tree

PUBLIC: Final = "shard_batches"


def shard_batches(load: Callable[[int, int], Tree], n: int, mesh: Mesh, batch: int) -> Iterator[Any]:
    """n lanes in batches of `batch`, the last of which may be shorter: for each, what `lg.shard` gives.

    `load(start, stop)` gives the lanes from start to stop of n, as for `lg.shard`; each process is asked for its own
    ones of a batch. It is called by a thread, once at a time and one batch ahead, so that reading goes on while the
    batch before is computed. All processes take batches at the same place of the program; what `load` raises on one of
    them is raised by all when that batch is asked for.

    Raises ValueError for a batch or a number of lanes that can't be, ShapeError where `load` gives another number of
    rows, TypeError where there is no mesh.

    >>> mesh = lg.mesh()
    >>> [x.shape for x in lg.shard_batches(lambda start, stop: lg.arange(start, stop), 10, mesh, 4)]
    [(4,), (4,), (2,)]
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(explained("shard_batches", "a mesh of lg.mesh()", type(mesh).__name__, "pass one"))
    if batch < 1 or n < 0:
        got = f"{n} lanes in batches of {batch}"
        raise ValueError(explained("shard_batches", "n >= 0 lanes, batch >= 1", got, "pass such numbers"))
    return _batches(load, n, mesh, batch)


def _batches(load: Callable[[int, int], Tree], n: int, mesh: Mesh, batch: int) -> Iterator[Any]:
    device = mesh_device(mesh)

    def read(start: int) -> Tree:
        own = device.part.lanes(min(batch, n - start))
        return load(start + own.start, start + own.stop)

    with ThreadPoolExecutor(1) as pool:
        starts = range(0, n, batch)
        reading = pool.submit(read, 0) if n else None
        for start in starts:
            assert reading is not None
            with device.together(b"batch"):
                found = lanes_of(reading.result(), min(batch, n - start), device)
            if start + batch < n:
                reading = pool.submit(read, start + batch)
            yield found
