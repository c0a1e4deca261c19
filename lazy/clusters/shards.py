"""`lg.map_shards`: a sum over the parts of a data set, which the workers of a Dask cluster compute.

The results of shards are added in a tree over their positions, which neither the number of workers nor who computed
what, when, or how often changes: the sum has the same bits on any cluster, also where workers come, go or die.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from loopgrad.graph.errors import explained
from loopgrad.lazy.clusters.tasks import (
    added,
    as_arrays,
    as_tensors,
    described,
    kind_of,
    loaded,
    program,
    rounded,
    run,
    same,
    unknown,
)
from loopgrad.lazy.clusters.waiting import PATIENCE, gathered, persistent
from loopgrad.lazy.tensor.trees import Tree, check_function

PUBLIC: Final = "map_shards"
ATTEMPTS: Final = 3


def map_shards(
    client: Any, step: Callable[[Any, Any], Any], params: Tree, shards: Sequence[Any], *, retries: int = ATTEMPTS,
    patience: float = PATIENCE,
) -> Tree:  # fmt: skip
    """The sum over all shards of `step(params, shard)`, computed by the workers of a Dask cluster.

    `client` is a `distributed.Client`. `step` is a function of two trees, an `lg.Exported` or one that is exported here
    for the shards' shapes and dtypes (`lg.export`: no Python code travels), and gives a tree of arrays, for instance
    the value and gradient of a loss. A shard is a tree of arrays, a Dask future of one, or a function without arguments
    that the worker calls to read it. `params` are sent to each worker once. A shard whose worker dies is computed by
    another; one whose step fails is tried `retries` times again. Where all workers are gone, new ones are awaited for
    `patience` seconds; where they are there and none does anything for so long, all is done again, `retries` times.

    The sum is formed in a fixed tree over the positions of shards, and compensated: it has the same bits on any
    cluster, and those of the sum over a mesh (`lg.psum`) of up to 64 lanes, each of which has the result of one shard.
    Use it for steps of 100 ms and more, since each shard costs Dask some milliseconds.

    Raises ValueError where there are no shards, what `step` raises, `distributed.KilledWorker` where a shard has ended
    several workers, and RuntimeError where nobody computes.

    >>> import distributed
    >>> client = distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)
    >>> loss = lg.value_and_grad(lambda w, x: lg.sum((x * w) ** 2))
    >>> lg.map_shards(client, loss, 2.0, [lg.ones(3), lg.ones(4)])
    (Tensor(28., dtype=float64), Tensor(28., dtype=float64))
    >>> client.close()
    """
    check_function("map_shards", step)
    parts = [shard if _is_elsewhere(shard) else as_arrays(shard) for shard in shards]
    if not parts:
        raise ValueError(explained("map_shards", "at least one shard", "none", "pass a list of arrays or functions"))
    work = _Work(client, step, as_arrays(params), retries, patience)
    return as_tensors(persistent(lambda: work.total(list(parts)), retries))


class _Work(NamedTuple):
    """The arguments of one call."""

    client: Any
    step: Callable[[Any, Any], Any]
    parameters: Tree
    retries: int
    patience: float

    def submit(self, *call: Any) -> Any:
        return self.client.submit(*call, pure=False, retries=self.retries)

    def gathered(self, futures: Sequence[Any]) -> list[Any]:
        return gathered(self.client, futures, "map_shards", self.patience)

    def total(self, parts: list[Any]) -> Tree:
        results = self.results(parts)
        (total,) = self.gathered([self.submit(rounded, self.sum(results), results[0])])
        return total

    def results(self, parts: list[Any]) -> list[Any]:
        """The futures of what shards give, each there."""
        held = self.submit(same, self.parameters)
        found: dict[int, Any] = {}
        programs: dict[Any, bytes] = {}
        if callable(parts[0]):  # the one that is looked at first is read once
            parts[0] = self.submit(loaded, parts[0])
        waiting = dict(enumerate(self.gathered([self.submit(described, parts[0])])))
        while len(found) < len(parts):  # once for each kind of shards
            for kind in waiting.values():
                place = kind_of(kind)
                if place not in programs:
                    programs[place] = program(self.step, (self.parameters, kind))
            sent = self.submit(same, programs)
            left = [i for i in range(len(parts)) if i not in found]
            made = [self.submit(run, sent, held, parts[i]) for i in left]
            told = self.gathered([self.submit(unknown, result) for result in made])
            waiting = {i: kind for i, kind in zip(left, told, strict=True) if kind is not None}
            found |= {i: result for i, result in zip(left, made, strict=True) if i not in waiting}
        return [found[i] for i in range(len(parts))]

    def sum(self, results: Sequence[Any]) -> Any:
        """The future of the sum, in the tree in which a mesh adds shards: a power of two of them and the rest."""
        if len(results) == 1:
            return results[0]
        half = 1 << (len(results) - 1).bit_length() - 1
        return self.submit(added, self.sum(results[:half]), self.sum(results[half:]))


def _is_elsewhere(shard: Any) -> bool:
    """Whether a worker has or reads it."""
    return callable(shard) or (hasattr(shard, "key") and hasattr(shard, "result"))
