"""Processes run the same programs whatever each of them has forgotten."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.placement import overlap, partition
from loopgrad.graph.structure import MOST_NODES
from loopgrad.lazy.mesh.meshes import mesh_device
from loopgrad.runtime.mesh import device
from loopgrad.runtime.mesh.collective_call import CollectiveCall
from loopgrad.runtime.session import SESSION
from tests.runtime.mesh import random_meshes
from tests.runtime.mesh.thread_processes import EXCHANGING, Room, ThreadCommunicator, on_threads


def test_programs_that_left_the_memory_of_one_process() -> None:
    """Those whose numbers are inputs on the others: process 1 forgets all it has, again and again."""

    def program(mesh: lg.Mesh) -> Any:
        x, found = lg.shard(np.linspace(0.5, 2.0, 7), mesh), []
        for k, rate in enumerate((0.7, 0.3, 3.0, 0.3)):
            found.append(float(lg.psum(x**rate) * rate))
            if mesh.rank == 1:
                for key, versions in list(SESSION._versions.items()):
                    if key[0] == mesh.device and k:
                        versions.forget()
        return found

    alone, *others = on_threads(1, program), *on_threads(2, program)
    assert others == [alone[0]] * 2


def test_processes_that_give_other_numbers_are_told() -> None:
    """Also where numbers are inputs of programs that all have: in a script's lines, calls and replays."""

    def program(mesh: lg.Mesh) -> Any:
        x, found = lg.shard(np.arange(5.0), mesh), []

        def tried(call: Any, number: float) -> None:
            try:
                found.append(float(call(number)))
            except lg.DeviceError as error:
                found.append(str(error))

        scaled = lg.compile(lambda x, r: lg.psum(x * r))
        replay = scaled.capture(x, 1.5)
        for call in (lambda r: lg.psum(x * r), lambda r: scaled(x, r), lambda r: replay.replay(x, r)):
            for number in (0.3, 0.7, (0.9, 0.95)[mesh.rank], 0.7):
                tried(call, number)
        return found

    first, second = on_threads(2, program)
    assert first == second
    for at in (0, 4, 8):
        np.testing.assert_allclose([first[at + i] for i in (0, 1, 3)], [3.0, 7.0, 7.0])
        assert "the same programs" in first[at + 2]
        assert "process 0, " in first[at + 2]
        assert "for the numbers 0.9\n" in first[at + 2]
        assert "for the numbers 0.95\n" in first[at + 2]


def test_processes_in_different_collectives_of_a_program_are_told() -> None:
    """They would take each other's numbers for what they ask for."""
    room = Room(2)

    def gathered(rank: int) -> str:
        call = CollectiveCall(ThreadCommunicator(room, rank, 2), b"8 bytes.", lambda: "a program")
        attrs = {"counts": ((1, 1),), "final": True, "number": 1 + rank}
        try:
            return str(call.all_gather(attrs, [np.ones(1)]))
        except lg.DeviceError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(gathered, range(2)))
    assert "the same programs in the same order" in found[0] == found[1]


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", [5005, 9001])
def test_random_programs_that_went_wrong(seed: int) -> None:
    """What comes after it came before it on a process without lanes, and got the loop's numbers. Nor does a sum of what
    all have depend on the kernel in which a process has it, which its lanes decide."""
    assert random_meshes.check(seed) is None


def test_a_process_without_lanes_meets_for_one_collective_at_a_time() -> None:
    """It has fewer kernels than one that must look at a stack between two collectives, and met for both at once."""
    assert random_meshes.check(1017, EXCHANGING) is None


def _deep(weights: Any, x: Any) -> Any:
    for w in weights:
        x = lg.tanh(x @ w)
    return lg.mean(lg.sum(x * x, axis=1))


def _limited(weights: Any, x: Any) -> Any:
    """Lanes that take as many trips as they say, while a sum of them is under way."""
    y = x
    for w in weights:
        y = y @ w
    step = lambda s: (s[0] - 1.0, lg.sin(s[1]))  # noqa: E731
    walked = lg.while_loop(lambda s: s[0] > 0.0, step, (y[:, 0], y[:, 1]), max_steps=50)[1]
    return lg.sum(x, axis=0), lg.sum(walked * walked)


def test_collectives_go_on_beside_other_work_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing writes what they read or uses the memory of what they write until they are joined, in the first call and
    in those that are recorded; and nothing is under way any more when a call is over, also where it fails."""
    monkeypatch.setattr(partition, "LARGE", 16)
    monkeypatch.setattr(overlap, "EARLY", 0)
    monkeypatch.setattr(overlap, "OPERATIONS", 0)
    rng = np.random.default_rng(1)
    weights = np.eye(8) + 0.01 * rng.standard_normal((4, 8, 8))
    x = rng.random((40, 8))

    def program(mesh: lg.Mesh) -> Any:
        memory: Any = mesh_device(mesh).memory
        found = []
        for function in (lg.value_and_grad(_deep), _limited):
            step = lg.compile(function)
            for endless in (0.0, 0.0, 0.0, 90.0, 0.0):
                lanes = lg.shard(np.where(np.arange(40)[:, None] == 39, x + endless, x), mesh)
                before = memory.begun if memory else 0
                try:
                    results = step([lg.asarray(w) for w in weights], lanes)
                    found.append([np.asarray(v).tobytes() for v in lg.tree.leaves(results)])
                except lg.LoopLimitError as error:
                    found.append([type(error).__name__.encode()])
                if memory:
                    assert memory.begun > before
                    assert not memory.under_way
        return found

    alone, *others = [*on_threads(1, program, EXCHANGING), *on_threads(3, program, EXCHANGING)]
    assert [len(each) for each in alone].count(1) == 1
    assert others == [alone] * 3


def _shared_by_batch(x: Any, p: Any) -> Any:
    loss = lambda q: lg.psum(lg.sin(x[:, 0] * q)) * q  # noqa: E731
    return lg.vmap(lg.value_and_grad(loss))(p), lg.vmap(lg.grad(lg.grad(loss)))(p)


def _computed_again(x: Any, p: Any) -> Any:
    block = lg.checkpoint(lambda c: lg.sin(c) + lg.pmean(lg.cos(x[:, 0] * c)))
    return lg.value_and_grad(lambda p: lg.fori_loop(0, 4, lambda _, c: block(c), p[0]))(p)


def _normalised(x: Any, p: Any) -> Any:
    """Of a recurrent layer, whose weights are in each trip both before a collective and behind it."""
    w = lg.sin(p[:, None] + p)

    def loss(w: Any) -> Any:
        def step(_: Any, h: Any) -> Any:
            z = h @ w + x
            return lg.tanh(z - lg.pmean(z)[None, :]) * lg.sum(w)

        h = lg.fori_loop(0, 3, step, lg.zeros_like(x))
        return lg.psum(lg.sum(h**2, axis=1)) + lg.sum(w * w) * lg.pmean(h[:, 0])

    return lg.value_and_grad(loss)(w)


def _newton(x: Any, p: Any) -> Any:
    loss = lambda q: lg.psum(lg.log(1.0 + lg.exp(-(x @ q)))) + 0.1 * lg.sum(q * q)  # noqa: E731
    return lg.vmap(lambda e: lg.jvp(lg.grad(loss), (p,), (e,))[1])(lg.eye(3)), lg.grad(loss)(p)


def _table_by_branch(x: Any, p: Any) -> Any:
    """Lanes that add into a table inside a branch and a checkpoint, and push onto a stack inside one branch only."""
    rows = lg.astype(lg.abs(x[:, 0]) * 3.0, lg.int32) % 3
    trips = lg.astype(x[:, 2] * 4.0, lg.int32)

    def walked(t: Any) -> Any:
        return lg.psum(lg.fori_loop(0, trips, lambda _, v: lg.sin(v * t[0]), x[:, 1]) + t[rows])

    def loss(t: Any) -> Any:
        again = lg.checkpoint(lambda t: lg.psum(t[rows] * x[:, 1]))(t)
        return again + lg.cond(lg.sum(t) > 0.0, walked, lg.sum, t)

    return lg.value_and_grad(loss)(p)


def _tangents(x: Any, p: Any) -> Any:
    """A tangent is added to a product in each trip; it is made of parameters, once or by each lane, as their number
    has it."""

    def ends(p: Any) -> Any:
        return lg.sum(lg.vmap(lambda v: lg.while_loop(lambda s: lg.sum(s) < 9.0, lambda s: s * 1.3 + p[0] * 0.1, v))(x))

    return lg.jvp(ends, (p,), (lg.asarray([1.0, -0.5, 0.0]),))


ALIKE = (
    (_shared_by_batch, 1), (_computed_again, 1), (_normalised, 5), (_newton, 1), (_table_by_branch, 5),
    (_tangents, 5000),
)  # fmt: skip


def test_bits_do_not_depend_on_where_collectives_stand() -> None:
    """One lane and some, of which one process or two have some: also where sums of derivatives have products beside a
    collective, where a loop would be a kernel if nobody met in it, and where derivatives take the axis of an only lane
    away."""
    rng = np.random.default_rng(3)
    p = rng.random(3)
    for program, n in ALIKE:
        rows = rng.random((n, 3))

        def on_mesh(mesh: lg.Mesh, program: Any = program, rows: Any = rows) -> Any:
            found = lg.compile(program)(lg.shard(rows, mesh), lg.asarray(p))
            return [np.asarray(v) for v in lg.tree.leaves(found)]

        each = [*on_threads(1, on_mesh), *on_threads(2, on_mesh)]
        for found in each:
            assert [v.tobytes() for v in found] == [v.tobytes() for v in each[0]], (program, n)
        expected = lg.tree.leaves(program(*[lg.asarray(a, device="interpreter") for a in (rows, p)]))
        for value, reference in zip(each[0], expected, strict=True):
            np.testing.assert_allclose(value, np.asarray(reference), rtol=1e-10, atol=1e-14)


def test_products_of_the_interpreter_add_up_in_one_order() -> None:
    """Shards that are filled up lie otherwise in memory than those that aren't."""
    x = np.random.default_rng(0).random((130, 17))

    def products(mesh: lg.Mesh) -> list[bytes]:
        found = lg.compile(lambda x: (x.T @ x[:, 0], x.T @ x))(lg.shard(x, mesh))
        return [np.asarray(v).tobytes() for v in found]

    each = [bits for size in (1, 2, 3) for bits in on_threads(size, products, "interpreter")]
    assert all(bits == each[0] for bits in each)


def test_long_programs_run_without_being_compiled_by_users() -> None:
    """Lines of a script that come to more operations than are looked up by their words; processes meet in the last."""
    x0 = np.linspace(0.1, 1.0, 9)

    def program(mesh: lg.Mesh) -> float:
        x = lg.shard(x0, mesh)
        for i in range(MOST_NODES // 2 + 1):
            x = x * 0.75 + i * 0.001
        return float(lg.sum(x))

    wanted = x0
    for i in range(MOST_NODES // 2 + 1):
        wanted = wanted * 0.75 + i * 0.001
    for size in (1, 2):
        np.testing.assert_allclose(on_threads(size, program), [wanted.sum()] * size)


def _raised(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "nothing"


def test_what_fails_on_one_process_before_it_meets_the_others_all_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing, placing and sharding; the process goes on with something else, and nobody waits for its next call."""
    waiting = threading.Event()

    def program(mesh: lg.Mesh) -> Any:
        x, fine = lg.shard(np.arange(8.0), mesh), lg.compile(lambda x: lg.sum(x))

        def traced(x: Any) -> Any:
            if mesh.rank == 1:
                raise ValueError("not here")
            return lg.sum(x * 2.0)

        def placed(*given: Any) -> Any:
            if threading.get_ident() == first[0]:
                raise MemoryError("no room to place it")
            return partitioned(*given)

        found = [_raised(lambda: lg.compile(traced)(x)), float(fine(x))]
        found.append(_raised(lambda: lg.shard(np.float64(1.0) if mesh.rank == 1 else np.arange(8.0), mesh)))
        found.append(float(fine(x)))
        if mesh.rank == 1:
            first.append(threading.get_ident())
            monkeypatch.setattr(device, "partitioned", placed)
            waiting.set()
        assert waiting.wait(60)
        found += [_raised(lambda: lg.compile(lambda x: lg.max(x))(x)), _raised(lambda: lg.eval(lg.min(x)))]
        return [*found, float(fine(x))]

    first: list[int] = []
    partitioned = device.partitioned
    room = "MemoryError: no room to place it"
    shape = "ShapeError: shard: expected an array with an axis of lanes, got a scalar; reshape it to (1,)"
    assert on_threads(3, program) == [["ValueError: not here", 28.0, shape, 28.0, room, room, 28.0]] * 3
