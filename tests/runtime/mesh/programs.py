"""What each process of a mesh runs: `python -m loopgrad run -n 3 tests/runtime/mesh/programs.py DIR usual`.

Writes DIR/RANK.json: of every program the digest of its results, of every error what was raised.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import loopgrad as lg
from loopgrad.graph.placement import overlap, partition
from loopgrad.lazy.mesh.meshes import mesh_device
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.cpu.executable import CpuExecutable
from tests.graph.placement import test_partition
from tests.graph.placement.test_partition import CASES
from tests.runtime.mesh.differing import differing
from tests.runtime.mesh.library import WithLibrary, check_sums, gpu_mesh, gpu_mesh_by_host

COMPILED = ("ragged", "table in a loop", "uniform loop")
DTYPES = "bool int8 uint8 int16 int64 uint64 float16 float32 float64 complex64 complex128"


def digest(results: Any) -> str:
    return hashlib.md5(b"".join([np.asarray(r).tobytes() for r in lg.tree.leaves(results)])).hexdigest()


def sharded(arrays: list[Any], lanes: int, mesh: lg.Mesh) -> list[Any]:
    """Lanes from a function where they are odd ones, else from arrays."""
    found: list[Any] = []
    for i, array in enumerate(arrays[:lanes]):
        load = lambda start, stop, array=array: array[start:stop]  # noqa: E731
        found.append(lg.shard(load, len(array), mesh) if i % 2 else lg.shard(array, mesh))
    return [*found, *arrays[lanes:]]


def results_of_cases(mesh: lg.Mesh, names: Any, count: int) -> dict[str, str]:
    found = {}
    for name in names:
        test_partition.RNG = np.random.default_rng(count)
        case = CASES[name]
        arguments = sharded(case.arrays(count), case.lanes, mesh)
        together = lambda *a, case=case: [lg.gather_all(r) for r in lg.tree.leaves(case.program(*a))]  # noqa: E731
        found[f"{name}, {count} lanes on {mesh.device}"] = digest(lg.compile(together)(*arguments))
    return found


def dtypes(mesh: lg.Mesh) -> dict[str, str]:
    """Elements of every kind, in more and fewer lanes than processes: NumPy's results, the same on all."""
    found = []
    for name in DTYPES.split():
        for n in (0, 1, 7):
            whole = (np.arange(2 * n).reshape(n, 2) % 3).astype(name)
            x = lg.shard(whole, mesh)
            results = [lg.gather_all(x), lg.psum(x), lg.any(x), lg.count_nonzero(x)]
            wanted = [whole, whole.sum(axis=0), whole.any(), np.count_nonzero(whole)]
            if n and not name.startswith("c"):
                results += [lg.pmax(x), lg.prod(x, axis=0), lg.argmax(x, axis=0)]
                wanted += [whole.max(axis=0), whole.prod(axis=0), whole.argmax(axis=0)]
            for result, reference in zip(results, wanted, strict=True):
                np.testing.assert_array_equal(np.asarray(result), reference, f"{name}[{n}]")
            found.append(digest(results))
    return {"dtypes": "".join(found)}


def large_results(gpus: lg.Mesh, library: WithLibrary | None) -> dict[str, str]:
    """As if all results were large, also such that they start early, and by a library that moves devices' memory."""
    limit, partition.LARGE = partition.LARGE, 1  # type: ignore[misc]
    early, overlap.EARLY = overlap.EARLY, 0  # type: ignore[misc]
    found = results_of_cases(lg.mesh(), ("dense", "uniform loop"), 34)
    found.update(results_of_cases(gpu_mesh_by_host(), ("dense",), 34))
    found.update(failing_meanwhile(lg.mesh()))
    overlap.EARLY = early  # type: ignore[misc]
    found.update(results_of_cases(lg.mesh("interpreter"), CASES, 33))
    found.update(results_of_cases(lg.mesh(), ("ragged", "dense"), 33))
    found.update(results_of_cases(gpus, ("ragged", "uniform loop", "dense", "batched meetings"), 70))
    partition.LARGE = limit  # type: ignore[misc]
    check_sums(gpus, library)
    return found


def replayed_on_gpus(mesh: lg.Mesh) -> dict[str, str]:
    """Launches are recorded in pieces, with collectives between; for lanes of other trips, of which stacks grow."""

    def loss(p: Any, x: Any, k: Any) -> Any:
        y = lg.sin(x) - lg.pmean(x)
        return lg.mean(lg.fori_loop(0, k, lambda _, v: lg.sin(v * p), y * y)) * lg.pmax(y)

    step, x = lg.compile(lg.value_and_grad(loss)), lg.shard(np.linspace(0.1, 1.0, 50), mesh)
    replay, found = None, {}
    for most in (4, 90, 1, 700):
        arguments = (1.1, x, lg.shard(np.arange(50) % most, mesh))
        replay = replay or step.capture(*arguments)
        found[f"replayed for {most} trips"] = digest(replay.replay(*arguments))
        assert digest(step(*arguments)) == found[f"replayed for {most} trips"]
    return found


def failing_meanwhile(mesh: lg.Mesh) -> dict[str, str]:
    """A lane that doesn't end, behind products of matrices, while a sum is on its way; and when it ends again."""

    def program(x: Any, w: Any) -> Any:
        y = (lg.sin(x @ w) @ w) @ w * 12.0
        return lg.sum(x, axis=0), walk(y[:, 0], 1.1, 10), lg.sum(y * y)

    step, w, found = lg.compile(program), np.eye(48), {}
    for i, last in enumerate((0.75, 1.5, 0.75)):
        x = lg.shard(np.where(np.arange(20)[:, None] == 19, last, 0.5) * np.ones(48), mesh)
        if mesh.size > 1:
            assert "start on their way" in str(step.plan(x, w))
        found[f"while sums are under way {i}"] = raised(step, x, w) if last > 1.0 else digest(step(x, w))
    assert found["while sums are under way 1"] == "LoopLimitError"
    return found


def walk(x: Any, p: Any, limit: int) -> Any:
    """As many steps as a lane says."""
    step = lambda s: (s[0] - 1.0, lg.sin(s[1] * p))  # noqa: E731
    return lg.sum(lg.while_loop(lambda s: s[0] > 0.0, step, (x, x), max_steps=limit)[1])


def replayed_and_eager(mesh: lg.Mesh) -> dict[str, str]:
    """A captured call with other lanes, a stack that grows on one process, and operations one by one."""
    short, long = np.full(20, 3.0), np.where(np.arange(20) == 19, 900.0, 3.0)
    step = lg.compile(lg.value_and_grad(lambda p, x: walk(x, p, 1000)))
    first, second = lg.shard(short, mesh), lg.shard(long, mesh)
    replay = step.capture(1.1, first)
    found = {"replayed": digest(replay.replay(1.1, second)), "called": digest(step(1.1, second))}
    assert found["replayed"] == found["called"]
    (row,) = [r for r in step.plan(1.1, second).residuals if r.depth]
    held = 19 in range(20)[slice(*mesh_range(mesh, 20))]
    assert (row.depth >= 900) == held, (row, mesh)
    y = second * 2.0
    mean = lg.pmean(y)
    found["eager"] = digest([mean, lg.pmax(y - mean), lg.psum(lg.exp(-y)), lg.gather_all(y), lg.sum(y[:, None])])
    with lg.options(fast_collectives=True):
        value, slope = lg.value_and_grad(lambda p: lg.mean(lg.sin(p * first)))(1.1)
    np.testing.assert_allclose([float(value), float(slope)], [np.sin(3.3), 3.0 * np.cos(3.3)])
    return found


def mesh_range(mesh: lg.Mesh, n: int) -> tuple[int, int]:
    seen: list[tuple[int, int]] = []
    lg.shard(lambda start, stop: (seen.append((start, stop)), np.zeros(stop - start))[1], n, mesh)
    return seen[0]


def raised(function: Any, *arguments: Any) -> str:
    try:
        digest(function(*arguments))
    except Exception as error:
        return type(error).__name__
    return "nothing"


def errors(mesh: lg.Mesh) -> dict[str, str]:
    """What one process fails with, all raise; the next call works."""
    x = lg.shard(np.where(np.arange(10) == 9, 50.0, 2.0), mesh)
    step = lg.compile(lg.value_and_grad(lambda p, x: walk(x, p, 10)))
    found = {"a loop without end in one lane": raised(step, 1.1, x)}
    alone = lg.compile(lambda x: lg.while_loop(lambda v: v > 0.0, lambda v: v - 1.0, x, max_steps=10))
    found["where nobody meets"] = raised(lambda x: lg.eval(alone(x)), x)
    replay = alone.capture(lg.shard(np.full(10, 2.0), mesh))
    found["in a replay"] = raised(lambda x: lg.eval(replay.replay(x)), x)
    found["in a replay afterwards"] = digest(lg.gather_all(replay.replay(lg.shard(np.full(10, 3.0), mesh))))
    with lg.options(check_indices=True):
        table = lg.arange(10.0)
        found["an index in one lane"] = raised(lambda x: lg.eval(table[lg.astype(x, lg.int32)]), x)
    fine = lg.compile(lambda x: lg.sum(x))
    fine(x)
    compile_, run = CpuDevice.compile, CpuExecutable.run
    if mesh.rank == mesh.size - 1:

        def no_compiler(*_: Any) -> Any:
            raise MemoryError("none to compile with")

        CpuDevice.compile = no_compiler  # type: ignore[method-assign]
    anew = lg.compile(lambda x: lg.max(x) * 2.0)
    found["no memory to compile with, on one process"] = raised(anew, x)
    found["no memory to record with, on one process"] = raised(lambda x: lg.compile(lg.min).capture(x), x)
    CpuDevice.compile = compile_  # type: ignore[method-assign]
    found["compiled afterwards"] = digest(anew(x))
    if mesh.rank == mesh.size - 1:

        def refused(*_: Any) -> Any:
            raise MemoryError("there is none left")

        CpuExecutable.run = refused  # type: ignore[method-assign]
    found["no memory on one process"] = raised(fine, x)
    CpuExecutable.run = run  # type: ignore[method-assign]
    if mesh.size > 1:
        found["another program"] = raised(lg.compile(lambda x: lg.sum(x * float(mesh.rank))), x)
    found["elements of lanes"] = raised(lambda x: np.asarray(x), x)
    found["moved lanes"] = raised(lg.compile(lg.sort), x)
    found["afterwards"] = digest(fine(x))
    return found


def broken_off(mesh: lg.Mesh) -> dict[str, str]:
    """Ctrl-C while one process waits for the others: it has sent what they need, and the next call finds it in step."""
    x, total = lg.shard(np.arange(8.0), mesh), lg.compile(lambda x: lg.sum(x))
    found, broken = {"before": digest(total(x))}, "KeyboardInterrupt"
    if mesh.size > 1:
        from loopgrad.runtime.mesh import mpi  # late: only where there is a launcher

        def interrupt(_: Any) -> None:
            raise KeyboardInterrupt

        engine: Any = mesh_device(mesh).communicator
        (crowded, engine._crowded), (wait, mpi._await) = (engine._crowded, True), (mpi._await, interrupt)
        try:
            if mesh.rank == 0:
                broken = digest(total(x))
        except KeyboardInterrupt:
            pass
        engine._crowded, mpi._await = crowded, wait
        if mesh.rank:
            assert digest(total(x)) == found["before"]
    return {**found, "broken off": broken, "in step afterwards": digest(total(x))}


def files(mesh: lg.Mesh, folder: Path) -> dict[str, str]:
    """What was saved by one process, or by so many as there are, is read by these, and whole; all raise errors."""
    path = folder / "tree.npz"
    for count in (0, 3, 70):
        x = lg.shard(np.arange(2.0 * count).reshape(count, 2), mesh)
        lg.save(path, {"x": x, "turned": x.T, "half": lg.astype(x, lg.bfloat16), "all": lg.sum(x), "n": count})
        whole, again = lg.load(path), lg.load(path, mesh)
        lg.save(path, again)  # in place of what it was read from
        for tree in (whole, again, lg.load(path, mesh)):
            assert tree["n"] == count
            everywhere = {name: np.asarray(lg.gather_all(tree[name])) for name in ("x", "turned", "half", "all")}
            np.testing.assert_array_equal(everywhere["x"], np.arange(2.0 * count).reshape(count, 2))
            np.testing.assert_array_equal(everywhere["turned"], everywhere["x"].T)
            np.testing.assert_array_equal(everywhere["half"].astype(float), everywhere["x"])
            assert everywhere["all"] == everywhere["x"].sum()
    assert lg.load(path, mesh)["x"].device == mesh.device
    one = lg.load(folder.parent / "one.npz", mesh)
    found = {"read from one": digest([lg.gather_all(one), lg.sum(one)])}

    def refused(start: int, stop: int) -> Any:
        if mesh.rank == mesh.size - 1:
            raise OSError("a disk that fails")
        return np.zeros(stop - start)

    found["lanes that can't be read"] = raised(lambda: lg.shard(refused, 20, mesh))
    found["no such file"] = raised(lambda: lg.load(folder / ("none" if mesh.rank == 0 else "tree.npz"), mesh))
    write = np.lib.format.write_array
    if mesh.rank == mesh.size - 1:
        np.lib.format.write_array = lambda *_, **__: refused(0, 0)  # type: ignore[assignment]
    found["a disk that is full"] = raised(lambda: lg.save(path, x))
    np.lib.format.write_array = write
    found["the file before"] = digest(lg.load(path)["x"])
    return found


def main(folder: Path, what: str) -> None:
    """What is "large", what is "usual", or that with calls that "differ" in the end, and messages as many processes
    send them."""
    mesh = lg.mesh()
    found = {"large": large_results(*gpu_mesh())} if what == "large" else usual(folder, mesh, what == "differ")
    (folder / f"{mesh.rank}.json").write_text(json.dumps(found))


def usual(folder: Path, mesh: lg.Mesh, differ: bool) -> dict[str, Any]:
    if differ:
        from loopgrad.runtime.mesh import mpi  # late: only where there is a launcher

        mpi.FEW = 1  # type: ignore[misc]
    small = lg.mesh("interpreter")
    found: dict[str, Any] = {**results_of_cases(small, list(CASES)[::2], 5), **results_of_cases(small, CASES, 130)}
    found.update(dtypes(small))
    found.update(results_of_cases(mesh, COMPILED, 150))
    if not differ:
        found["broken off"] = broken_off(mesh)
    found.update(replayed_on_gpus(gpu_mesh()[0]))
    found.update(replayed_and_eager(mesh))
    found.update(errors(mesh))
    found.update(files(mesh, folder))
    if differ:
        found["differing"] = differing(mesh)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
