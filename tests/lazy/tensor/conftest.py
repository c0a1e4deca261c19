"""What tests of lines that come again, or for the first time, share."""

from __future__ import annotations

from typing import Any

import pytest

from loopgrad.lazy.tensor import evaluation


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The evaluations that took the usual way."""
    found: list[Any] = []
    run = evaluation._run
    monkeypatch.setattr(evaluation, "_run", lambda *asked: found.append(asked) or run(*asked))
    return found
