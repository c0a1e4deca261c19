"""What `help` says of each public function: its examples run."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import loopgrad as lg


def documented() -> dict[str, Callable[..., Any]]:
    """Each function once, under the name that comes first; methods of what `lg.compile` returns as well."""
    found: dict[str, Callable[..., Any]] = {}
    for prefix, space, names in (
        ("lg", lg, lg.__all__),
        ("lg.linalg", lg.linalg, lg.linalg.__all__),
        ("lg.Compiled", lg.Compiled, dir(lg.Compiled)),
        ("lg.Replay", lg.Replay, dir(lg.Replay)),
    ):
        for name in names:
            value = getattr(space, name)
            if inspect.isfunction(value) and not name.startswith("_"):
                found.setdefault(f"{prefix}.{name}", value)
    first = {id(f): name for name, f in reversed(found.items())}
    return {name: f for name, f in found.items() if first[id(f)] == name}


FUNCTIONS: Final = documented()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_run(name):
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    example = doctest.DocTestParser().get_doctest(text, {"lg": lg, "np": np}, name, None, None)
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert failed == 0, "".join(report)
