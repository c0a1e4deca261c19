"""`lg.sweep`: a function at every point of a grid of parameters, on the workers of a Dask cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from loopgrad.graph.errors import explained
from loopgrad.lazy.clusters.shards import ATTEMPTS
from loopgrad.lazy.clusters.tasks import as_arrays, as_tensors, program, run_points, same, signature
from loopgrad.lazy.clusters.waiting import PATIENCE, aside, gathered, persistent
from loopgrad.lazy.tensor.core import TensorCore
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, unflatten

PUBLIC: Final = "sweep"
TASKS: Final = 4  # a thread of the cluster: so that a slow one doesn't hold all up


def sweep(
    client: Any,
    f: Callable[[dict[str, Any]], Any],
    grid: Mapping[str, Any],
    *,
    progress: bool | None = None,
    retries: int = ATTEMPTS,
    patience: float = PATIENCE,
) -> Tree:
    """`f(point)` at every point of a grid, computed by the workers of a Dask cluster.

    `client` is a `distributed.Client`, `grid` names parameters and gives the values of each: an array, whose first axis
    is taken, or a list of numbers. `f` is called with a dict of one value of each name; it travels as an exported
    function (`lg.export`), which is compiled once a worker. The result is the tree that `f` returns, each leaf with an
    axis in front for each parameter, in the grid's order. A bar on stdout shows progress where that is a terminal, or
    as `progress` says. What a worker was computing when it died is computed by another; `retries` and `patience` are as
    for `lg.map_shards`.

    Raises ValueError for a grid without points, what `f` raises, RuntimeError where nobody computes.

    >>> import distributed
    >>> client = distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)
    >>> lg.sweep(client, lambda p: p["a"] * 10 + p["b"], {"a": [1.0, 2.0], "b": [0.0, 1.0, 2.0]})
    Tensor([[10., 11., 12.],
            [20., 21., 22.]], dtype=float64)
    >>> client.close()
    """
    check_function("sweep", f)
    axes = {name: _values(name, values) for name, values in grid.items()}
    shape = tuple([len(values) for values in axes.values()])
    if not prod(shape):
        expected = "at least one value of every parameter"
        raise ValueError(explained("sweep", expected, f"a grid of {shape}", "leave out what has none"))
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    exported = program(f, (signature(points[0]),))
    threads = sum(client.nthreads().values()) or 1
    size = -(-len(points) // (TASKS * threads))
    parts = [points[first : first + size] for first in range(0, len(points), size)]

    def run() -> list[Any]:
        data = client.submit(same, exported, pure=False)
        futures = [client.submit(run_points, data, part, pure=False, retries=retries) for part in parts]
        shown = aside(lambda: _bar(futures)) if (sys.stdout.isatty() if progress is None else progress) else None
        found = gathered(client, futures, "sweep", patience)
        if shown is not None:
            shown.result()
        return found

    results = [result for part in persistent(run, retries) for result in part]
    structure = flatten(results[0])[1]
    columns = zip(*[flatten(result)[0] for result in results], strict=True)
    stacked = [np.stack(column).reshape(shape + np.shape(column[0])) for column in columns]
    return as_tensors(unflatten(structure, stacked))


def _bar(futures: Sequence[Any]) -> None:
    """Progress, until all is done."""
    import distributed  # late: only where there is a client

    show: Any = distributed.progress
    show(futures, notebook=False)


def _values(name: str, values: Any) -> Sequence[Any]:
    """The values of a parameter, of one dtype."""
    array = as_arrays(values) if isinstance(values, TensorCore) else np.asarray(values)
    if array.ndim == 0 or array.dtype.kind not in "biufc":
        got = f"{values!r:.80} for {name!r}"
        raise ValueError(explained("sweep", "an array or a list of numbers", got, "pass [x] for one value"))
    return [x[()] for x in array]
