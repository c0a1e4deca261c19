"""`python -m benchmarks.mesh_gpus`: lanes on several GPUs of one machine, beside JAX, and collectives beside PyTorch's.

    python -m benchmarks.mesh_gpus --counts 1,2            this machine's GPUs, one process each
    python -m benchmarks.mesh_gpus --counts 1,2 --quick --device cpu   small, to see that everything runs

- *strong*: `ragged_skewed` (lanes of a Zipf law's trips, value and gradient by every lane) with as many lanes in all on
  each number of GPUs; *weak*: with as many for each GPU; *sorted*: strong, with lanes in order of their trips.
- *collectives*: a compiled call that gathers, or adds up, 8 bytes to 64 MiB of each process: calls one after another
  until the last is done, and each waited for. Beside them PyTorch's of the same bytes, by the same NCCL.
- *host*: what a call of a small program costs the host on a mesh, and without one.
- JAX: value and gradient of the lanes by a masked scan, `shard_map` over the GPUs; it is told the largest trip count.

Times are medians of rounds, of the slowest process in each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

DEEPEST: Final = 4096
BYTES: Final = (8, 1 << 20, 1 << 26)
WARM: Final = 4  # calls before: what comes back to the same addresses is recorded by then
ROUNDS: Final = 7
PATIENCE: Final = 400  # seconds for what one kind of process measures
Found = dict[str, float]


def drawn(lanes: int, seed: int, ordered: bool = False) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Starts and trip counts."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, lanes).astype(np.float32)
    trips = np.minimum(generator.zipf(1.3, lanes), DEEPEST).astype(np.int32)
    return x, np.sort(trips) if ordered else trips


def median_of_slowest(
    call: Callable[[], Any], done: Callable[[], Any], meet: Callable[[float], float], n: int
) -> float:
    """Seconds of a call of n in a row until the last is `done`; `meet` gives all processes the largest of theirs."""
    for _ in range(WARM):
        call()
        done()
    times = []
    for _ in range(ROUNDS):
        meet(0.0)
        begin = time.perf_counter()
        for _ in range(n):
            call()
        done()
        times.append(meet((time.perf_counter() - begin) / n))
    return statistics.median(times)


def in_a_row(nbytes: int) -> int:
    """Calls that let what the first one waits for say little."""
    return max(16, (1 << 28) // nbytes)


# ---- ours: what each process of a mesh measures


class Timed:
    """Writes what it has found after each, for a run that is ended."""

    def __init__(self, out: Path, mesh: Any, device: Any) -> None:
        self._out, self._mesh, self._device = out, mesh, device
        self._found: Found = {}

    def __call__(self, what: str, call: Callable[[], Any], n: int = 1) -> None:
        import loopgrad as lg  # late: peers' processes need none

        done = lambda: lg.synchronize(self._device.inner.name)
        self._found[what] = median_of_slowest(call, done, self._largest, n)
        if self._mesh.rank == 0:
            self._out.write_text(json.dumps(self._found))

    def _largest(self, seconds: float) -> float:
        own = struct.pack("d", seconds)
        return max(struct.unpack_from("d", said)[0] for said in self._device.communicator.gather(own))


def ours(out: Path, device: str, sizes: Sequence[int], longest: int) -> None:
    import loopgrad as lg  # late: peers' processes need none
    from loopgrad.lazy.mesh.meshes import mesh_device

    mesh = lg.mesh(device)
    timed = Timed(out, mesh, mesh_device(mesh))
    _lanes(lg, mesh, timed, sizes)
    _calls(lg, mesh, timed, mesh_device(mesh).inner.name, longest)


def _lanes(lg: Any, mesh: Any, timed: Timed, sizes: Sequence[int]) -> None:
    strong, weak, peer = sizes
    step = lg.compile(lg.value_and_grad(lambda x, k: lg.sum(lg.fori_loop(0, k, lambda _, v: lg.sin(v) + 0.1, x))))
    cases = {
        "strong": (strong, False), "weak": (weak * mesh.size, False), "sorted": (strong, True), "peer": (peer, False)
    }  # fmt: skip
    for what, (lanes, ordered) in cases.items():
        x, k = (lg.shard(array, mesh) for array in drawn(lanes, 0, ordered))
        timed(what, lambda x=x, k=k: step(x, k), 3)
    replay = step.capture(x, k)
    timed("peer, replayed", lambda: replay.replay(x, k), 3)


def _calls(lg: Any, mesh: Any, timed: Timed, device: str, longest: int) -> None:
    small, gather = lg.compile(lambda x: lg.sin(x) + 1.0), lg.compile(lg.gather_all)
    ordered, engines = lg.compile(lg.psum), lg.compile(lambda x: lg.psum(x))
    plain = lg.to_device(np.ones(10, np.float32), device)
    lanes = lg.shard(np.ones(10 * mesh.size, np.float32), mesh)
    for most, kind in ((100, "in a row"), (1, "waited for")):
        timed(f"no mesh, {kind}", lambda: small(plain), most)
        timed(f"nobody meets, {kind}", lambda: small(lanes), most)
        for size in [size for size in BYTES if size <= longest]:
            x, n = lg.shard(np.ones((mesh.size, size // 4), np.float32), mesh), min(most, in_a_row(size))
            timed(f"gather {size}, {kind}", lambda x=x: gather(x), n)
            timed(f"sum {size}, {kind}", lambda x=x: ordered(x), n)
            with lg.options(fast_collectives=True):
                timed(f"sum {size} by the engine, {kind}", lambda x=x: engines(x), n)


# ---- peers


def torch_process(rank: int, size: int, out: Path) -> None:
    """NCCL's collectives by PyTorch."""
    import torch
    import torch.distributed as engine

    torch.cuda.set_device(rank)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    os.environ.update(address)
    engine.init_process_group("nccl", rank=rank, world_size=size, device_id=torch.device("cuda", rank))
    shared = torch.zeros(1, dtype=torch.float64, device="cuda")

    def largest(seconds: float) -> float:
        shared.fill_(seconds)
        engine.all_reduce(shared, engine.ReduceOp.MAX)
        return float(shared.item())

    found: Found = {}
    for most, kind in ((100, "in a row"), (1, "waited for")):
        for nbytes in BYTES:
            x = torch.ones(nbytes // 4, device="cuda")
            rows = torch.empty(size * (nbytes // 4), device="cuda")
            n = min(most, in_a_row(nbytes))
            calls = {
                "gather": lambda x=x, rows=rows: engine.all_gather_into_tensor(rows, x),
                "sum": lambda x=x: engine.all_reduce(x),
            }
            for what, call in calls.items():
                found[f"{what} {nbytes}, {kind}"] = median_of_slowest(call, torch.cuda.synchronize, largest, n)
    if rank == 0:
        out.write_text(json.dumps(found))
    engine.destroy_process_group()


def torch_main(out: Path, size: int) -> None:
    from torch.multiprocessing import spawn

    spawn(torch_process, (size, out), nprocs=size)


def jax_main(out: Path, size: int, lanes: int) -> None:
    """Value and gradient of the lanes over so many devices; of one, without `shard_map`."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    x, trips = drawn(lanes, 0)
    deepest = int(trips.max())

    def loss(x: Any, trips: Any) -> Any:
        step = lambda v, k: (jnp.where(k < trips, jnp.sin(v) + jnp.float32(0.1), v), None)
        return jnp.sum(jax.lax.scan(step, x, jnp.arange(deepest))[0])

    each = jax.value_and_grad(loss)
    found: Found = {}
    for count in sorted({1, size}):
        mesh = Mesh(np.array(jax.devices()[:count]), ("lanes",))
        split, whole = PartitionSpec("lanes"), PartitionSpec()

        def shared(x: Any, trips: Any) -> Any:
            value, slope = each(x, trips)
            return jax.lax.psum(value, "lanes"), slope

        mapped = jax.shard_map(shared, mesh=mesh, in_specs=(split, split), out_specs=(whole, split))
        compiled = jax.jit(mapped if count > 1 else each)
        placed = [jax.device_put(a, NamedSharding(mesh, split)) for a in (x, trips)]
        run = lambda compiled=compiled, placed=placed: jax.block_until_ready(compiled(*placed))
        found[f"peer, {count}"] = median_of_slowest(run, lambda: None, lambda seconds: seconds, 1)
        out.write_text(json.dumps(found))


# ---- the table


def measured(command: Sequence[str], what: str) -> Found:
    """What processes of a kind found; what they said where they failed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found.json")
        try:
            ran = subprocess.run(
                [*command, "--out", str(out)], timeout=PATIENCE, capture_output=True, text=True, check=False
            )
            failure = "" if ran.returncode == 0 else (ran.stdout + ran.stderr)[-1500:]
        except subprocess.TimeoutExpired:
            failure = f"ended after {PATIENCE} s"
        if failure:
            print(f"{what}: {failure}", flush=True)
        found: Found = json.loads(out.read_text()) if out.exists() else {}
    return found


def shown(columns: dict[str, Found]) -> str:
    names = list(dict.fromkeys(name for found in columns.values() for name in found))
    lines = ["| milliseconds | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in names:
        cells = [f"{1e3 * found[name]:.4g}" if name in found else "" for found in columns.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compared(chosen: argparse.Namespace) -> dict[str, Found]:
    """A column for each number of processes, and for each peer with the last of these."""
    counts = [int(count) for count in chosen.counts.split(",")]
    file = str(Path(__file__).resolve())
    options = ["--device", chosen.device, *(["--quick"] if chosen.quick else [])]
    columns = {}
    for count in counts:
        launch = [sys.executable, "-m", "loopgrad", "run", "-n", str(count), file]
        columns[f"loopgrad, {count}"] = measured([*launch, "--kind", "ours", *options], f"loopgrad, {count}")
        print(shown(columns), flush=True)
    for peer in chosen.peers.split(",") if chosen.peers != "none" else ():
        alone = [sys.executable, file, "--kind", peer, "--count", str(counts[-1]), *options]
        columns[f"{peer}, {counts[-1]}"] = measured(alone, peer)
        print(shown(columns), flush=True)
    return columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1,2", help="numbers of processes, joined by commas")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="few lanes")
    parser.add_argument("--peers", default="torch,jax", help="joined by commas, or none")
    parser.add_argument("--json", type=Path, help="where to write all of it")
    parser.add_argument("--kind", choices=("ours", "torch", "jax"), help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    sizes = (10_000, 5_000, 1_000) if chosen.quick else (1 << 24, 1 << 24, 1 << 20)
    if chosen.kind == "ours":
        ours(chosen.out, chosen.device, sizes, BYTES[1 if chosen.quick else 2])
    elif chosen.kind == "torch":
        torch_main(chosen.out, chosen.count)
    elif chosen.kind == "jax":
        jax_main(chosen.out, chosen.count, sizes[-1])
    else:
        columns = compared(chosen)
        if chosen.json:
            chosen.json.write_text(json.dumps(columns, indent=1))


if __name__ == "__main__":
    main()
