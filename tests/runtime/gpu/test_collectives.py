"""Collectives on a device's memory by a library with NCCL's interface: a stand-in on the simulator, whose memory is the
host's. The bits are those of collectives through the host."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.placement import overlap, partition
from loopgrad.graph.types import float32
from loopgrad.lazy.mesh.meshes import Mesh
from loopgrad.runtime.devices import MAKERS, get_device
from loopgrad.runtime.gpu.context import GpuContext
from loopgrad.runtime.gpu.pieces import RecordedPiece
from loopgrad.runtime.gpu.streams.collectives import ID_BYTES, Library, StreamCollectives, joined
from loopgrad.runtime.mesh.communicator import Alone
from loopgrad.runtime.mesh.device import MeshDevice
from loopgrad.runtime.mesh.messages import FAILED, HEADER, Head
from tests.simulator.device import SimulatorDevice
from tests.simulator.streams import HostApi


class Function:
    """A function of a library, as ctypes has them: with attributes."""

    def __init__(self, name: str, seen: list[Any], do: Any) -> None:
        self.name, self.seen, self.do = name, seen, do

    def __call__(self, *arguments: Any) -> Any:
        plain = [a.value if isinstance(a, ctypes.c_void_p) else a for a in arguments]
        self.seen.append((self.name, *plain))
        return self.do(*arguments) or 0


class StandIn:
    """A library for one process, which notes what is called, and puts it on the streams of `api`, if that is known."""

    def __init__(self) -> None:
        self.api: HostApi | None = None
        self.seen: list[Any] = []
        self.sent: list[tuple[int, int]] = []
        functions = {
            "ncclGetUniqueId": lambda _: None, "ncclCommInitRank": lambda *_: None, "ncclGroupStart": lambda: None,
            "ncclGroupEnd": lambda: None, "ncclAllGather": self.moved, "ncclBroadcast": self.moved,
            "ncclAllReduce": lambda source, target, count, *more: self.moved(source, target, 8 * count, *more),
            "ncclSend": lambda source, count, *_: self.sent.append((source, count)), "ncclRecv": self.received,
            "ncclGetErrorString": lambda _: b"refused",
        }  # fmt: skip
        for name, do in functions.items():
            setattr(self, name, Function(name, self.seen, do))

    def moved(self, source: int, target: int, count: int, *more: Any) -> None:
        def work() -> None:
            ctypes.memmove(target, source, count)

        if self.api is None:
            work()
        else:
            self.api.put(more[-1], work)

    def received(self, target: int, count: int, *more: Any) -> None:
        source, sent = self.sent.pop(0)
        assert sent == count
        self.moved(source, target, count, *more)

    def names(self) -> list[str]:
        return [name for name, *_ in self.seen]


class Together(Alone):
    """One process whose programs have collectives nevertheless."""

    meets = True


class WithLibrary(SimulatorDevice):
    def __init__(self, library: StandIn | None) -> None:
        super().__init__(1)
        self.library = library
        if library is not None:
            library.api = self.driver.host

    def collectives(self, communicator: Any) -> Any:
        return joined(lambda: self.library, "the library", self.driver, b"", communicator)


@pytest.fixture
def meshes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A mesh whose collectives are the stand-in's, and one whose go through the host."""
    library = StandIn()
    for name, given in (("mesh:library", library), ("mesh:host", None)):
        device = MeshDevice(WithLibrary(given), Together())
        device.name = name
        monkeypatch.setitem(MAKERS, name, lambda device=device: device)
        monkeypatch.delitem(get_device.__globals__["_made"], name, raising=False)
    yield library, Mesh(0, 1, "mesh:library"), Mesh(0, 1, "mesh:host")
    for name in ("mesh:library", "mesh:host"):
        get_device.__globals__["_made"].pop(name, None)


def uniform(x: Any, p: Any) -> Any:
    """Collectives in a loop over whole tensors, and in its condition."""
    step = lambda v: v * p + lg.sum(v) * 1e-3  # noqa: E731
    return lg.while_loop(lambda v: lg.max(v) < 40.0, step, x)


def program(p: Any, x: Any, k: Any) -> Any:
    ragged = lg.value_and_grad(lambda p: lg.sum(lg.fori_loop(0, k, lambda _, v: lg.sin(v) * p, x)))(p)
    half = lg.sum(lg.astype(x, lg.float32)[:, None] * lg.ones((1, 3), dtype=lg.float32), axis=0)
    return ragged, half, lg.max(x), lg.sum(k), lg.gather_all(uniform(x, p))


def test_the_bits_are_those_of_the_hosts_way(meshes: Any) -> None:
    library, *both = meshes
    x, k = np.linspace(0.1, 2.0, 150), np.arange(150) % 17
    found = []
    for mesh in both:
        arguments = (1.25, lg.shard(x, mesh), lg.shard(k, mesh))
        step = lg.compile(program)
        for _ in range(3):  # also when it was recorded
            result = step(*arguments)
        replay = step.capture(*arguments).replay(1.25, *arguments[1:])
        found.append([np.asarray(r) for r in lg.tree.leaves((result, replay))])
        notes = str(step.plan(*arguments))
        assert ("by the library, on the device" if mesh is both[0] else "isn't installed") in notes
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert library.names().count("ncclAllGather") > 20
    before = len(library.seen)
    with lg.options(fast_collectives=True):
        total = float(lg.sum(lg.shard(x, both[0]) * 2.0))
    np.testing.assert_allclose(total, 2.0 * x.sum())
    assert "ncclAllReduce" in library.names()[before:]


def deep(weights: Any, x: Any) -> Any:
    for w in weights:
        x = lg.tanh(x @ w)
    return lg.mean(lg.sum(x * x, axis=1))


def test_large_results_travel_on_a_stream_of_their_own(meshes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are there when the stream of kernels has waited for them, and not before: the stand-in moves nothing
    earlier. Those that all wait for stay on that stream."""
    library, *both = meshes
    monkeypatch.setattr(partition, "LARGE", 1 << 8)
    monkeypatch.setattr(overlap, "EARLY", 1 << 7)
    rng, found = np.random.default_rng(0), []
    weights, x = list(rng.standard_normal((4, 32, 32)).astype(np.float32)), rng.random((64, 32), np.float32)
    for mesh in both:
        step = lg.compile(lg.value_and_grad(deep))
        for _ in range(3):
            library.seen.clear()
            results = step([lg.asarray(w) for w in weights], lg.shard(x, mesh))
            found.append([np.asarray(v).tobytes() for v in lg.tree.leaves(results)])
            streams = [call[-1] for call in library.seen if call[0] in ("ncclAllGather", "ncclRecv", "ncclBroadcast")]
            assert {*streams} == ({0, 1} if mesh is both[0] else set())
        assert ("start on their way" in str(step.plan(weights, lg.shard(x, mesh)))) or mesh is both[1]
    assert all(bits == found[0] for bits in found)
    driver = MAKERS["mesh:library"]().inner.driver
    assert len(driver.host.others[1]) == driver.host.done[1] > 0
    assert len(driver.host.events) < 8


def note_pieces(library: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among what is called: which were started where nothing has moved."""
    usual = RecordedPiece.run

    def noted(piece: RecordedPiece, moved: bool) -> None:
        library.seen.append(("piece", "moved" if moved else "again"))
        usual(piece, moved)

    monkeypatch.setattr(RecordedPiece, "run", noted)


def two_steps(x: Any, p: Any, trips: Any) -> Any:
    """A loop whose arrays change places, with a number of each trip, a branch and a loop inside."""

    def step(k: Any, s: Any) -> Any:
        a, b = s
        mean = lg.pmean(a * lg.cos(p * k))
        b = lg.cond(lg.sum(b) > 20.0, lambda b: b * 0.5 + mean, lambda b: lg.sin(b) + lg.pmax(a), b)
        return lg.fori_loop(0, k % 3, lambda _, v: lg.tanh(v + lg.pmean(v)), b), a + mean

    return [lg.gather_all(v) for v in lg.fori_loop(0, trips, step, (x, x * 2.0))]


def test_loops_in_which_processes_meet_are_recorded_trip_by_trip(meshes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch for each place that a loop's arrays come back to; trips of the second call and later are started again
    as they are. One message each, as where the host drives."""
    library, *both = meshes
    values, found = np.linspace(0.1, 2.0, 30), []
    note_pieces(library, monkeypatch)
    for mesh in both:
        x, step = lg.shard(values, mesh), lg.compile(two_steps)
        found.append([np.asarray(v) for trips in (1, 6, 0, 17) for v in step(x, 1.25, trips)])
        wanted = [np.asarray(v) for n in (1, 6, 0, 17) for v in two_steps(lg.asarray(values), 1.25, n)]
        for one, other in zip(found[-1], wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)

    def fit(w: Any, x: Any, n: Any) -> Any:
        return lg.fori_loop(0, n, lambda k, w: w - 0.1 * lg.pmean(lg.sin(x * w)) / (k + 1.0), w)

    x, step, communicator = lg.shard(values, both[0]), lg.compile(fit), MAKERS["mesh:library"]().communicator
    usual, sent = communicator.gather, list[bytes]()
    monkeypatch.setattr(communicator, "gather", lambda said: (sent.append(said), usual(said))[1])
    for n in (9, 9, 40):
        library.seen.clear()
        sent.clear()
        result = float(step(1.0, x, n))
        np.testing.assert_allclose(result, float(fit(lg.asarray(1.0), lg.asarray(values), n)), rtol=1e-12)
    pieces = [how for name, *how in library.seen if name == "piece"]
    assert 40 <= len(pieces) <= 44
    assert pieces.count(["moved"]) <= 4
    assert len(sent) == library.names().count("ncclGroupStart") == 41


def test_what_is_launched_between_collectives_is_recorded(meshes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays start pieces, with collectives between, whatever trips lanes take: a stack that grows is looked at before
    anything is sent."""
    library, mesh, _ = meshes
    note_pieces(library, monkeypatch)

    def loss(w: Any, x: Any, k: Any) -> Any:
        y = lg.tanh(x @ w)
        y = y - lg.pmean(y)
        return lg.mean(lg.fori_loop(0, k, lambda _, v: lg.sin(v * w[0, 0]), lg.sum(y * y, axis=1)))

    rng = np.random.default_rng(3)
    w, x, trips = rng.random((24, 24)), rng.random((90, 24)), [np.arange(90) % most for most in (3, 40, 1, 900)]
    step = lg.compile(lg.value_and_grad(loss))
    given = [(w, lg.shard(x, mesh), lg.shard(k, mesh)) for k in trips]
    replay = step.capture(*given[0])
    for arguments, k in zip(given, trips, strict=True):
        library.seen.clear()
        found = [np.asarray(v) for v in replay.replay(*arguments)]
        names = [name for name in library.names() if name in ("piece", "ncclAllGather")]
        first = names.index("ncclAllGather")
        assert names[:first], names
        assert "piece" in names[first:]
        wanted = lg.value_and_grad(loss)(*[lg.asarray(a, device="interpreter") for a in (w, x, k)])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, np.asarray(other), rtol=1e-9, atol=1e-13)
    assert "it starts what it has recorded of a trip" in str(step.plan(*given[0]))


def test_calls_at_the_same_addresses_are_repeated_with_their_collectives(
    meshes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where the ledger has calls that may be done again: what was sent can't be sent again. What another process
    reports is raised, and the next call works."""
    library, mesh, by_host = meshes
    usual = GpuContext.repeat
    monkeypatch.setattr(GpuContext, "repeat", lambda context: (library.seen.append(("repeat",)), usual(context))[1])
    program = lg.compile(lambda x, p: (lg.psum(lg.sin(x) * p), lg.pmean(x * p), lg.gather_all(x + p)))
    ragged = lg.compile(lg.grad(lambda x, k: lg.sum(lg.fori_loop(0, k, lambda _, v: lg.sin(v), x))))
    values, trips = np.linspace(0.1, 2.0, 40), lg.asarray(np.arange(40) % 9, device="simulator:1")
    for where, wanted in ((mesh, 6), (by_host, 0)):
        library.seen.clear()
        x = lg.shard(values, where)
        for i in range(10):
            sums, mean, gathered = program(x, 2.0)
            np.testing.assert_allclose(float(sums), 2.0 * np.sin(values).sum())
            np.testing.assert_allclose(float(mean), 2.0 * values.mean())
            np.testing.assert_allclose(np.asarray(gathered), values + 2.0)
            del sums, mean, gathered
            if i == 7:
                ragged(lg.asarray(values, device="simulator:1"), trips)
        assert library.names().count("repeat") >= wanted
        assert (library.names().count("repeat") > 0) == (wanted > 0)
    (device,) = [MAKERS["mesh:library"]()]
    x, whole = lg.shard(values, mesh), device.communicator.gather
    failed = HEADER.pack(*Head(FAILED, b"", 0, 0, 19)) + b"MemoryError\nno room"
    device.communicator.gather = lambda _: [failed]
    with pytest.raises(MemoryError, match="no room"):
        program(x, 2.0)
    device.communicator.gather = whole
    np.testing.assert_allclose(float(program(x, 2.0)[0]), 2.0 * np.sin(values).sum())


def test_each_collective_takes_one_message(meshes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first call as in later ones, whatever is recorded: other processes may know the program, or have kernels
    between."""
    _, mesh, by_host = meshes
    centred = lg.compile(lambda x: lg.sum(lg.sin(x - lg.pmean(lg.cos(x)))))
    values = np.linspace(0.1, 2.0, 40)
    for where, messages in ((mesh, 2), (by_host, 2)):
        communicator, sent, x = MAKERS[where.device]().communicator, [], lg.shard(values, where)
        usual = communicator.gather
        monkeypatch.setattr(communicator, "gather", lambda said, u=usual, sent=sent: (sent.append(said), u(said))[1])
        for call in range(1, 4):
            np.testing.assert_allclose(float(centred(x)), np.sin(values - np.cos(values).mean()).sum())
            assert len(sent) == call * messages


def test_large_results_are_gathered_where_devices_exchange_memory(meshes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to as many bytes as take as long as another message; through the host each process combines a part sooner."""
    _, mesh, by_host = meshes
    monkeypatch.setattr(partition, "LARGE", 1 << 10)
    for rows, ways in ((100, ("all_to_all", "all_gather")), (3000, ("all_to_all", "all_to_all"))):
        for where, way in zip((by_host, mesh), ways, strict=True):
            x = lg.shard(np.ones((2, rows)), where)
            total = lg.compile(lg.psum)
            found = np.asarray(total(x))
            np.testing.assert_array_equal(found, np.full(rows, 2.0))
            row = next(row for row in total.plan(x).routines)
            assert row.name == way
            assert ("the library, in the device's memory" in row.provider) == (where is mesh)


def test_operands_of_one_collective_travel_in_one_group() -> None:
    library, driver = StandIn(), SimulatorDevice(1).driver
    engine = StreamCollectives(Library(library, "it"), driver, bytes(ID_BYTES), 0, 1)
    memory = np.arange(64, dtype=np.uint8)
    a, library.seen[:] = memory.ctypes.data, []
    engine.gather([(a, a, (8, 8, 8)), (a, a + 24, (4, 0, 12)), (a, a, (0, 0, 0))])
    stream = driver.api.stream
    assert library.seen == [
        ("ncclGroupStart",), ("ncclAllGather", a, a, 8, 0, None, stream),
        ("ncclBroadcast", a, a + 24, 4, 0, 0, None, stream), ("ncclBroadcast", a, a + 28, 12, 0, 2, None, stream),
        ("ncclGroupEnd",),
    ]  # fmt: skip
    library.seen[:] = []
    engine.exchange([([(0, a, 4), (1, a + 4, 0), (2, a + 4, 8)], [(1, a + 12, 4)])])
    assert library.seen[1:-1] == [
        ("ncclSend", a, 4, 0, 0, None, stream), ("ncclSend", a + 4, 8, 0, 2, None, stream),
        ("ncclRecv", a + 12, 4, 0, 1, None, stream),
    ]  # fmt: skip
    library.seen[:] = []
    engine.sum([(a, a, 2, float32), (a, a, 0, float32)])
    assert library.seen[1:-1] == [("ncclAllReduce", a, a, 2, 7, 0, None, stream)]
    library.ncclAllReduce.do = lambda *_: 3
    with pytest.raises(RuntimeError, match="it's collective failed: ncclAllReduce: refused"):
        engine.sum([(a, a, 2, float32)])


class Several(Alone):
    """What processes say when they meet: these messages."""

    size = 2

    def __init__(self, changed: Any) -> None:
        super().__init__()
        self.changed = changed

    def gather(self, message: Any) -> Any:
        other = np.frombuffer(message, np.uint8).copy()
        other[HEADER.size :][self.changed] ^= 1
        return [message, other.tobytes()]


def test_who_has_no_library_or_shares_a_device_goes_through_the_host() -> None:
    driver = SimulatorDevice(1).driver
    has, device, meets = 0, 1, slice(17, 17)
    assert joined(lambda: StandIn(), "it", driver, b"0", Several(has)) == "it isn't installed where process 1 is"
    assert "share a device" in str(joined(lambda: StandIn(), "it", driver, b"0", Several(meets)))
    assert isinstance(joined(lambda: StandIn(), "it", driver, b"0", Several(device)), StreamCollectives)
