"""`pytest benchmarks`: a test for each contender of each workload, small unless --full is given.

The harness runs a workload when its first contender's turn has come: all of its contenders in alternation, each in its
own process, checked against the oracle. What each round took is then told to pytest-benchmark by a clock that only
moves when it is told to, so that its statistics, storage (--benchmark-autosave), comparison (--benchmark-compare) and
JSON (--benchmark-json) are of those rounds. What wasn't installed is skipped, what was wrong or failed fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.arguments import OPTIONS, settings
from benchmarks.clock import Clock
from benchmarks.harness import Harness, Row, Settings
from benchmarks.machine import machine
from benchmarks.registry import expanded, load
from benchmarks.tables import Tables, record

CASE = ("workload", "device", "contender")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("workloads", "workloads of benchmarks")
    for flag, about in OPTIONS.items():
        group.addoption(flag, **about)
    group.addoption("--full", action="store_true", help="sizes that are worth timing; without it they are small")


def settings_of(config: pytest.Config) -> Settings:
    return settings(config.option, quick=not config.option.full)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if set(CASE) <= set(metafunc.fixturenames):
        chosen = settings_of(metafunc.config)
        names = expanded(metafunc.config.option.workload)
        metafunc.parametrize(CASE, [(name, *case) for name in names for case in chosen.chosen(load(name))])


@pytest.fixture
def clock(request: pytest.FixtureRequest, workload: str) -> Clock:
    """The test's clock. A test asks for it before it asks for `benchmark`, which reads the mark."""
    made = Clock()
    request.node.add_marker(pytest.mark.benchmark(group=workload, timer=made.read))
    return made


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """No letter for what the tables have."""
    return (report.outcome, "", report.outcome) if report.when == "call" and not report.failed else None


class Runs:
    """What the workloads' rows were, each run once, with the contenders that were selected."""

    def __init__(self, session: pytest.Session) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.settings = settings_of(session.config)
        self.harness = Harness(self.settings)
        self._chosen: dict[str, list[tuple[str, str]]] = {}
        for item in session.items:
            if isinstance(item, pytest.Function) and set(CASE) <= set(item.callspec.params):
                workload, device, contender = (item.callspec.params[key] for key in CASE)
                self._chosen.setdefault(workload, []).append((device, contender))
        self._plugins: Any = session.config.pluginmanager
        self._tables = Tables(self._write)

    def _write(self, text: str) -> None:
        with self._plugins.get_plugin("capturemanager").global_and_fixture_disabled():
            self._plugins.get_plugin("terminalreporter").write(text + "\n", flush=True)

    def row(self, name: str, device: str, contender: str) -> Row:
        if name not in self.rows:
            workload = load(name)
            self.rows[name] = self.harness.run(workload, self._chosen[name])
            self._tables.add(workload, self.settings.size_of(workload), [record(row) for row in self.rows[name]])
        return next(r for r in self.rows[name] if (r.device, r.name) == (device, contender))

    def not_timed(self) -> dict[str, Any]:
        """For the JSON: every workload's title and size, and the rows that pytest-benchmark doesn't know."""
        found = {}
        for name, rows in self.rows.items():
            workload = load(name)
            absent = [record(row) for row in rows if row.status != "ok"]
            found[name] = {"title": workload.title, "size": self.settings.size_of(workload), "not timed": absent}
        return found

    def close(self) -> None:
        with self.harness:
            self._tables.close()


RUNS = pytest.StashKey[Runs]()


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    found = request.config.stash[RUNS] = Runs(request.session)
    yield found
    found.close()


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    machine_info.update(machine())


def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    if RUNS in config.stash:
        output_json["workloads"] = config.stash[RUNS].not_timed()
