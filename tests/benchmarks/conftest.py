"""Benchmarks that tests start are processes of their own, not workers of the run that the tests are part of."""

import pytest


@pytest.fixture(autouse=True)
def no_worker(monkeypatch):
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
