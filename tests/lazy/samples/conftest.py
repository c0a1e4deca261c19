"""What is asked is what formulas are, not how a device computes them: but for tests that name devices, the interpreter
runs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import loopgrad as lg


@pytest.fixture(autouse=True)
def _formulas_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    if "device" in request.fixturenames:
        yield
    else:
        with lg.default_device("interpreter"):
            yield
