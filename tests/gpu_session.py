"""What `tests/run_gpu` does: the suite, the benchmarks, the sanitizer or a mesh on real devices, in limited time.

Output is short enough to be read whole; everything else is in files. As a plugin of pytest it also ends a
worker whose device was lost by a failing test, so that the tests after it run in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[1]
SHOWN = 10_500  # characters of what failed
LOST = re.compile(
    r"ILLEGAL_ADDRESS|LAUNCH_FAILED|ILLEGAL_INSTRUCTION|MISALIGNED|LAUNCH_TIMEOUT|DEVICE_LOST|device lost"
)
SECONDS = "LOOPGRAD_TEST_SANITIZED_SECONDS"
SANITIZED = (
    "tests/programs/test_a_loop_shapes.py", "tests/programs/test_b_nested_loops.py",
    "tests/programs/test_e_siblings.py", "tests/programs/test_i_capacity.py", "tests/programs/test_replay.py",
)  # fmt: skip


class Report:
    """Collects what failed while the run goes on, so that a run that is cut short has said something."""

    def __init__(self, folder: Path) -> None:
        self.failures: dict[str, tuple[str, str]] = {}  # test -> message, place
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.durations: list[tuple[float, str]] = []
        self._file = (folder / "failures.jsonl").open("w")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.durations.append((report.duration, report.nodeid))
        if report.failed:
            if report.nodeid not in self.failures:
                self.counts["failed"] += 1
                self.failures[report.nodeid] = crash(report.longrepr)
                record = {"test": report.nodeid, "when": report.when, "text": report.longreprtext}
                self._file.write(json.dumps(record) + "\n")
                self._file.flush()
        elif report.skipped:
            self.counts["xfailed" if hasattr(report, "wasxfail") else "skipped"] += 1
        elif report.when == "call":
            self.counts["passed"] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and report.nodeid not in self.failures:
            self.counts["not collected"] += 1
            self.failures[report.nodeid] = crash(report.longrepr)

    def text(self) -> str:
        """Failures grouped by message, most frequent first; then totals and the slowest tests."""
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for test, (message, place) in self.failures.items():
            groups[f"{re.sub(r'0x[0-9a-f]+|[0-9.e+-]*[0-9]', '#', message)[:160]} @ {place}"].append(test)
        lines = []
        for tests in sorted(groups.values(), key=len, reverse=True):
            message, place = self.failures[tests[0]]
            lines.append(f"{len(tests):4} x {message[:300]}\n       at {place}; {shortened(tests[0])}")
        body = "\n".join(lines)
        if len(body) > SHOWN:
            body = body[:SHOWN] + "\n   ... more in failures.jsonl"
        totals = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items()))
        slow = "; ".join(f"{seconds:.1f} s {shortened(test)}" for seconds, test in sorted(self.durations)[-5:])
        return f"{body}\n\n{totals}\nslowest: {slow}" if body else f"{totals}\nslowest: {slow}"


def crash(longrepr: Any) -> tuple[str, str]:
    """The message of a failure and where it was raised."""
    at = getattr(longrepr, "reprcrash", None)
    if at is None:
        lines = [line for line in str(longrepr).strip().splitlines() if line.strip()] or ["no message"]
        errors = [line[1:].strip() for line in lines if line.startswith("E ")]
        return (errors or lines[-1:])[0], ""
    message = " ".join(str(at.message).split())
    return message, f"{shortened(at.path)}:{at.lineno}"


def shortened(path: str) -> str:
    return str(path).replace(f"{ROOT}/", "").replace("tests/programs/", "")


class Ending:
    """In a worker: after a failure that loses the device, end the process; pytest-xdist starts another."""

    lost = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report: Any = yield
        if report.failed and LOST.search(report.longreprtext):
            self.lost = True
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        if self.lost:
            os._exit(1)


class Deadline:
    """Stops between two tests when the time is used up, so that everybody says what they found."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        done: Any = yield
        if time.monotonic() > self._end:
            item.session.shouldstop = "the time was used up"
        return done


def pytest_configure(config: pytest.Config) -> None:
    """Loaded by name in every process of a run; only workers of pytest-xdist need `Ending`."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Ending())
    if SECONDS in os.environ:
        config.pluginmanager.register(Deadline(float(os.environ[SECONDS])))
        _allocate_exactly()


def _allocate_exactly() -> None:
    """Every array has an allocation of its own, of its own size: the sanitizer sees where it ends."""
    from loopgrad.runtime.gpu import memory  # late: only under the sanitizer

    memory.LARGEST_PIECE = 0  # type: ignore[misc]
    memory.LARGE_STEP = 4  # type: ignore[misc]


def check(chosen: argparse.Namespace, folder: Path) -> int:
    """The suite's tests whose names have the kinds of the devices."""
    os.environ["LOOPGRAD_TEST_DEVICES"] = chosen.devices
    os.environ["LOOPGRAD_TEST_COSTLY"] = os.environ["LOOPGRAD_TEST_SEEDS"] = "1"
    report, real = Report(folder), os.dup(1)
    began = time.monotonic()

    def tell(note: str) -> None:
        text = f"\n{report.text()}\n{note} after {time.monotonic() - began:.0f} s on {chosen.devices}\n"
        (folder / "check.txt").write_text(text)
        os.write(real, text.encode())

    def stop() -> NoReturn:
        tell("STOPPED: the time was used up")
        os._exit(3)

    timer = threading.Timer(chosen.limit, stop)
    timer.daemon = True
    timer.start()
    log = os.open(folder / "check.log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = int(pytest.main(arguments(chosen, chosen.n), plugins=[report]))
    timer.cancel()
    tell(f"pytest ended with {code}")
    if not report.counts:  # nothing ran: say why
        os.write(real, (folder / "check.log").read_bytes()[-4000:])
    return code


def arguments(chosen: argparse.Namespace, processes: int) -> list[str]:
    kinds = sorted({name.partition(":")[0] for name in chosen.devices.split(",")})
    words = " or ".join(kinds)
    selection = f"({words}) and ({chosen.k})" if chosen.k else words
    parallel = ["-n", str(processes), "--dist", "worksteal", "--max-worker-restart", "200"] if processes else []
    return [
        *parallel, "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:benchmark", "-p", "tests.gpu_session",
        "--timeout", "120", "-k", selection, *chosen.paths,
    ]  # fmt: skip


def bench(chosen: argparse.Namespace, folder: Path) -> int:
    """All workloads that have something to run on a GPU; `paths` are options of `python -m benchmarks`."""
    command = [
        sys.executable, "-m", "benchmarks", "--device", chosen.devices, "--out", str(folder / "bench.json"),
        "--limit", str(chosen.limit), "--rounds", "7", *chosen.paths,
    ]  # fmt: skip
    if "--workload" not in chosen.paths:
        names = "ragged,ragged_skewed,unforeseen,newton,stream,small,sphere_trace,big_axis,wide,ode,wave"
        command += ["--workload", names]
    return tee(command, folder / "bench.txt", chosen.limit + 60)


def tee(command: Sequence[str], path: Path, limit: float) -> int:
    """Run, show and keep what it prints; end it when the time is used up."""
    with path.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        timer = threading.Timer(limit, process.kill)
        timer.daemon = True
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            file.write(line)
            file.flush()
        code = process.wait()
        timer.cancel()
    return code


def sanitize(chosen: argparse.Namespace, folder: Path) -> int:
    """memcheck and racecheck; each gets half of the time."""
    tool = sanitizer()
    if tool is None:
        say("compute-sanitizer not found: it is in the CUDA toolkit and in PyPI's nvidia-cuda-sanitizer-api")
        return 2
    os.environ["LOOPGRAD_TEST_DEVICES"] = chosen.devices
    os.environ[SECONDS] = str(chosen.limit / 2 - 40)
    worst = 0
    for check_name in ("memcheck", "racecheck"):
        log, output = folder / f"{check_name}.txt", folder / f"{check_name}-tests.txt"
        command = [
            tool, "--tool", check_name, "--target-processes", "all", "--error-exitcode", "86", "--print-limit", "30",
            "--log-file", str(log), sys.executable, "-m", "pytest", *arguments(chosen, 0),
        ]  # fmt: skip
        with output.open("w") as file:
            try:
                code = subprocess.run(command, cwd=ROOT, stdout=file, stderr=file, timeout=chosen.limit / 2).returncode
            except subprocess.TimeoutExpired:
                code = 124
        say(f"---- {check_name}: ended with {code}{' (time used up)' if code == 124 else ''}")
        say(ending(log, 2500) + "\n" + ending(output, 1500))
        worst = max(worst, code)
    return worst


def mesh(chosen: argparse.Namespace, folder: Path) -> int:
    """Programs on one GPU and on several, whose memory goes by the library and through the host: the same bits."""
    from tests.runtime.mesh.gpu_programs import WAYS  # late: a broken checkout must still show its message

    expected: dict[str, str] = {}
    worst = 0
    for count in map(int, chosen.counts.split(",")):
        for way in WAYS if count > 1 else WAYS[:1]:
            began, out = time.monotonic(), folder / f"{count}-{way}"
            out.mkdir(exist_ok=True)
            command = [sys.executable, "-m", "loopgrad", "run", "-n", str(count)]
            command += ["tests/runtime/mesh/gpu_programs.py", str(out), "--way", way, "--device", chosen.mesh_device]
            code = tee(command, folder / f"{count}-{way}.txt", chosen.limit)
            found = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
            expected = expected or found[0]
            differing = sorted({name for bits in found for name in expected if bits.get(name) != expected[name]})
            took = f"{time.monotonic() - began:.0f} s"
            say(f"{count} by the {way}: ended with {code}, {len(expected)} programs, differing: {differing} ({took})")
            worst = max(worst, code, int(bool(differing) or len(found) != count))
    return worst


def sanitizer() -> str | None:
    """compute-sanitizer of the toolkit, or of the wheel beside the other packages."""
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if found:
        return found
    places = [Path(p) / "nvidia" / "cu13" / "compute-sanitizer" / "compute-sanitizer" for p in sys.path]
    return next((str(p) for p in places if p.exists()), None)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def ending(path: Path, size: int) -> str:
    return path.read_text(errors="replace")[-size:] if path.exists() else f"{path.name} was not written"


def describe() -> None:
    """The devices, with reasons."""
    import loopgrad as lg  # late: a broken checkout must still show its message

    for status in lg.devices():
        say(str(status))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests/run_gpu", description=__doc__,
        epilog="What else is given goes to pytest (tests, options) or to python -m benchmarks.",
    )  # fmt: skip
    parser.add_argument("what", choices=("check", "bench", "sanitize", "mesh"))
    parser.add_argument("--devices", default="cuda:0", help="joined by commas")
    parser.add_argument("--limit", type=float, default=480.0, help="seconds")
    parser.add_argument("-n", type=int, default=8, help="processes of check; 0 for one without pytest-xdist")
    parser.add_argument("-k", default="", help="an expression of pytest that selects fewer tests")
    parser.add_argument("--counts", default="1,2", help="of mesh: numbers of processes, joined by commas")
    parser.add_argument("--mesh-device", default="cuda", help="of mesh: what each process computes with")
    chosen, chosen.paths = parser.parse_known_args()
    chosen.paths = chosen.paths or {"check": ["tests"], "sanitize": list(SANITIZED)}.get(chosen.what, [])
    folder = Path(os.environ.get("OUT", ROOT / "build" / "gpu"))
    folder.mkdir(parents=True, exist_ok=True)
    describe()
    run = {"check": check, "bench": bench, "sanitize": sanitize, "mesh": mesh}[chosen.what]
    return run(chosen, folder)


if __name__ == "__main__":
    raise SystemExit(main())
