"""What a workload gives the harness: one way of computing it.

A workload module has `TITLE`, `SIZES` ("full", "quick"), `inputs(size)`, `oracle(inputs)`,
`TOLERANCE` (relative, per output name) and `CONTENDERS`: name -> function of the inputs that builds a
`Contender`. A builder imports what it needs: ImportError means "not installed", `Unavailable` says why not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


class Unavailable(Exception):
    """This contender cannot run here; the message says why."""


@dataclass(frozen=True)
class Contender:
    """`run` computes once and returns when the result exists; `fetch` turns its result into arrays to
    check; `notes` may report numbers of its own (bytes, counts) after the runs."""

    run: Callable[[], Any]
    fetch: Callable[[Any], Arrays]
    notes: Callable[[], dict[str, Any]] = field(default=dict)
