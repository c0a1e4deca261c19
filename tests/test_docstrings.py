"""What `help` says of each public function: an example that runs, and shapes, dtypes or errors."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.numpy.at_updates import AtIndex
from loopgrad.public_names import NAMESPACES

SAID: Final = re.compile(
    r"\b(shapes?|ax[ei]s|dtypes?|vectors?|matrix|integers?|ints?|floats?|bools?|elements?|lanes?|trees?|raises)\b", re.I
)


def documented() -> dict[str, Callable[..., Any]]:
    """Each function once, under its first name; methods of tensors and of what `lg.compile` returns as well."""
    found: dict[str, Callable[..., Any]] = {}
    for prefix, space, names in (
        ("lg", lg, lg.__all__),
        *((f"lg.{name}", getattr(lg, name), getattr(lg, name).__all__) for name in NAMESPACES),
        ("lg.random.Generator", lg.random.Generator, dir(lg.random.Generator)),
        ("lg.random.Stream", lg.random.Stream, dir(lg.random.Stream)),
        ("lg.Tensor", lg.Tensor, dir(lg.Tensor)),
        ("lg.Tensor.at[...]", AtIndex, dir(AtIndex)),
        ("lg.Compiled", lg.Compiled, dir(lg.Compiled)),
        ("lg.Replay", lg.Replay, dir(lg.Replay)),
        ("lg.Exported", lg.Exported, dir(lg.Exported)),
    ):
        for name in names:
            value = getattr(space, name, None)  # a class lists attributes that only say what to use instead
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


def test_all_have_an_example_and_say_what_goes_in_and_out():
    texts = {name: inspect.getdoc(f) or "" for name, f in FUNCTIONS.items()}
    assert [name for name, text in texts.items() if ">>>" not in text] == []
    assert [name for name, text in texts.items() if not SAID.search(text.split(">>>")[0])] == []
