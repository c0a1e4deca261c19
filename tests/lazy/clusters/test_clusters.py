"""`lg.map_shards` and `lg.sweep` on real Dask workers, which come, go and die."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.clusters import tasks
from loopgrad.lazy.clusters.waiting import StalledError, persistent
from tests.started_programs import around

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask's own threads and sockets

LENGTHS = [40, 40, 41, 40, 1, 40, 0, 41, 40]


def shard(number: int) -> Callable[[], Any]:
    """What a worker calls to read a part."""
    return lambda: {"x": np.random.default_rng(number).normal(size=LENGTHS[number]), "weight": number}


def loss(w: Any, part: Any) -> Any:
    def grown(x: Any) -> Any:
        return lg.while_loop(lambda v: v < 9.0, lambda v: v * (1.0 + w["rate"]) + w["shift"], x)

    lanes = lg.vmap(grown)(lg.abs(part["x"]))
    return lg.sum(lg.sin(lanes)) * part["weight"]


WEIGHTS = {"rate": 0.3, "shift": np.array(0.2)}
STEP = lg.value_and_grad(loss)


def over_lanes(results: list[Any]) -> Any:
    """The sum of what shards give, as lanes of a mesh: the bits that are promised."""
    mesh = lg.mesh()
    return [np.asarray(lg.psum(lg.shard(np.stack(column), mesh))) for column in zip(*results, strict=True)]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    step = lg.compile(STEP)
    return over_lanes([[np.asarray(x) for x in lg.tree.leaves(step(WEIGHTS, shard(i)()))] for i in range(len(LENGTHS))])


def check(found: Any, expected: list[Any]) -> None:
    for x, y in zip(lg.tree.leaves(found), expected, strict=True):
        assert isinstance(x, lg.Tensor)
        np.testing.assert_array_equal(np.asarray(x), y)


@pytest.fixture
def client() -> Iterator[Any]:
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        yield client


def test_the_sum_is_that_of_the_tree_however_shards_are_given(client: Any, expected: list[Any]) -> None:
    readers = [shard(i) for i in range(len(LENGTHS))]
    check(lg.map_shards(client, STEP, WEIGHTS, readers), expected)
    arrays = [read() for read in readers]
    check(lg.map_shards(client, lg.compile(STEP), WEIGHTS, arrays), expected)
    mixed = [*arrays[:4], *client.map(lambda i: shard(i)(), range(4, len(LENGTHS)))]
    check(lg.map_shards(client, STEP, WEIGHTS, mixed), expected)


def test_sums_have_rests_and_every_shard_of_a_kind_is_read_once(client: Any, tmp_path: Path) -> None:
    def read(i: int) -> Callable[[], Any]:
        def reading() -> Any:
            (tmp_path / f"{i}-{len(list(tmp_path.iterdir()))}").touch()
            return np.array([1e16, 1.0, -1e16, 1.0][i])

        return reading

    assert float(lg.map_shards(client, lambda w, x: w * x, 1.0, [read(i) for i in range(4)])) == 2.0
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ["0", "1", "2", "3"]

    def kinds(w: Any, x: Any) -> Any:
        return {"c": lg.astype(w * x, lg.complex128) * 1j, "h": lg.astype(x, lg.float16), "n": lg.asarray(2)}

    found = lg.map_shards(client, kinds, 1.0, [np.array(x) for x in (np.inf, 1.0, 2.0, np.inf)])
    assert np.asarray(found["c"]).imag == np.asarray(found["h"]) == np.inf
    assert (found["h"].dtype, int(found["n"])) == (lg.float16, 8)


def test_bad_arguments_and_steps_that_fail(client: Any) -> None:
    with pytest.raises(ValueError, match="expected at least one shard"):
        lg.map_shards(client, STEP, WEIGHTS, [])
    with pytest.raises(lg.ShapeError, match="reshape"):
        lg.map_shards(client, lambda w, x: lg.reshape(w * x, (7,)), 1.0, [np.ones(3)])
    with pytest.raises(OSError, match="no such part"):
        lg.map_shards(client, STEP, WEIGHTS, [_missing], retries=1)
    limited = lg.export(
        lambda w, x: lg.while_loop(lambda v: v < w, lambda v: v + 1, x[0], max_steps=5), 1.0, np.ones(1)
    )
    with pytest.raises(lg.LoopLimitError):
        lg.map_shards(client, limited, 100.0, [np.zeros(1), np.ones(1)], retries=0)
    with pytest.raises(lg.ShapeError, match="as it was exported"):
        lg.map_shards(client, limited, 2.0, [np.ones(3)], retries=0)
    with pytest.raises(ValueError, match="at least one value of every parameter"):
        lg.sweep(client, lambda p: p["a"], {"a": []})
    with pytest.raises(ValueError, match="pass \\[x\\] for one value"):
        lg.sweep(client, lambda p: p["a"], {"a": 1.0})


def _missing() -> Any:
    raise OSError("no such part")


def test_a_sweep_gives_each_point_its_place(client: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def f(point: dict[str, Any]) -> Any:
        grown = lg.fori_loop(0, point["n"], lambda _, v: v * point["a"], lg.ones(2))
        return {"grown": grown, "slope": lg.grad(lambda a: lg.sum(a**3))(point["a"]), "row": point["rows"] * 2}

    grid = {"a": np.array([0.5, 1.5, 2.0]), "n": [1, 3], "rows": lg.asarray([[1.0, 2.0], [3.0, 4.0]])}
    found = lg.sweep(client, f, grid, progress=True)
    assert "100%" in capsys.readouterr().out
    a, n = np.array(grid["a"])[:, None, None], np.array([1, 3])[None, :, None]
    np.testing.assert_array_equal(found["grown"], np.broadcast_to((a**n)[..., None], (3, 2, 2, 2)))
    np.testing.assert_allclose(found["slope"], np.broadcast_to(3 * a**2, (3, 2, 2)))
    np.testing.assert_array_equal(found["row"], np.broadcast_to(2 * np.asarray(grid["rows"]), (3, 2, 2, 2)))


def test_nobody_waits_for_ever_for_workers() -> None:
    """All are gone: an error, or the result where a new one comes in time."""
    with (
        distributed.LocalCluster(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        arguments = (client, lambda w, x: lg.sum(w * x), 2.0, [np.ones(2), np.ones(3)])
        assert float(lg.map_shards(*arguments)) == 10.0
        cluster.scale(0)
        while client.processing():
            time.sleep(0.05)
        with pytest.raises(RuntimeError, match=r"map_shards: .*none for 0.5 s, with 1 of 1 results missing"):
            lg.map_shards(*arguments, patience=0.5)
        with pytest.raises(RuntimeError, match=r"sweep: .*none for 0.5 s"):
            lg.sweep(client, lambda p: p["a"], {"a": [1.0]}, patience=0.5)
        comes = threading.Timer(0.3, lambda: cluster.scale(1))
        comes.start()
        assert float(lg.map_shards(*arguments, patience=60.0)) == 10.0
        comes.join()


def test_work_that_nobody_does_is_done_again() -> None:
    calls = []

    def stalled(workers: int) -> Any:
        def do() -> str:
            calls.append(workers)
            if len(calls) < 3:
                raise StalledError("nothing", workers)
            return "done"

        return do

    assert persistent(stalled(2), 2) == "done"
    for workers, retries in ((2, 1), (0, 2)):
        calls.clear()
        with pytest.raises(StalledError):
            persistent(stalled(workers), retries)
        assert len(calls) == (retries + 1 if workers else 1)


PHASES = ("loaded", "described", "same", "run", "unknown", "added", "rounded")

WORKERS = """
    import asyncio, multiprocessing, os, pathlib, signal, sys, threading
    import numpy as np
    import distributed
    import loopgrad as lg
    from tests.lazy.clusters import test_clusters as cases

    def deadly(name, folder):
        '''On a worker: it dies when it does this, from now on.'''
        from loopgrad.lazy.clusters import tasks
        def dies(*arguments):
            pathlib.Path(folder, f"{name}-{os.getpid()}.died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        setattr(tasks, name, dies)

    def work(address):
        '''A worker, until it is killed.'''
        async def running():
            async with distributed.Worker(address, nthreads=1, dashboard_address=None) as worker:
                await worker.finished()
        asyncio.run(running())

    def keep_two(address, ended):
        '''Start workers, and new ones for those that died: forked from a process that has imported what they need.'''
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["distributed", "loopgrad", "tests.lazy.clusters.test_clusters"])
        workers = []
        while not ended.wait(0.02):
            workers = [w for w in workers if w.is_alive()]
            for _ in range(2 - len(workers)):
                workers.append(context.Process(target=work, args=(address,), daemon=True))
                workers[-1].start()
        for worker in workers:
            worker.kill()

    def main():
        folder = sys.argv[1]
        ended = threading.Event()
        cluster = distributed.LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50)
        with cluster, distributed.Client(cluster) as client:
            threading.Thread(target=keep_two, args=(cluster.scheduler_address, ended)).start()
            for phase in cases.PHASES:
                client.wait_for_workers(2, timeout=60)  # those that died in the phase before are started again
                client.run(deadly, phase, folder)
                shards = [cases.shard(i) for i in range(len(cases.LENGTHS))]
                found = lg.map_shards(client, cases.STEP, cases.WEIGHTS, shards, patience=100.0)
                lg.save(pathlib.Path(folder, phase), [np.asarray(x) for x in lg.tree.leaves(found)])
            ended.set()
        print("done")

    if __name__ == "__main__":
        main()
"""


@pytest.mark.costly
def test_workers_that_are_killed_and_come_change_no_bit(tmp_path: Path, expected: list[Any]) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(WORKERS))
    command = [sys.executable, script, tmp_path]
    run = subprocess.run(command, capture_output=True, text=True, timeout=350, env=around(), check=False)
    assert run.stdout.endswith("done\n"), run.stderr[-4000:]
    for name in PHASES:
        check(lg.load(tmp_path / name), expected)
    died = [path.name.partition("-")[0] for path in tmp_path.glob("*.died")]
    assert set(died) == set(PHASES)
    assert died.count("run") == died.count("unknown") == 2  # all there were


def test_what_additions_lost_is_added_in_the_order_of_a_mesh() -> None:
    """Numbers that nearly cancel: the sum is what is left of the rests."""
    given = [49042.13629696119, -6.28234622214159e-08, 22827108972.520645, -49042.136296961195, -1097.2552608190958]
    given += [-22827108972.520645, 6.28234622214159e-08, 1097.2552608190958]
    level: list[Any] = list(map(np.asarray, given))
    while len(level) > 1:
        level = [tasks.added(one, other) for one, other in zip(level[::2], level[1::2], strict=True)]
    (expected,) = over_lanes([[np.asarray(x)] for x in given])
    assert tasks.rounded(level[0], np.asarray(given[0])).tobytes() == expected.tobytes()
