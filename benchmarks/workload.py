"""What a workload is: a case made from a seed, contenders that compute it, an oracle."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Case = dict[str, Any]
# Prepares one contender on a case and returns a call that does the whole work, waits for it, and
# gives a mapping of result names to NumPy arrays (or a function that fetches them, untimed).
Prepare = Callable[[Case], Callable[[], Callable[[], Mapping[str, Any]]]]


@dataclass(frozen=True)
class Workload:
    """One row group of the table.

    `make_case(size)` builds inputs; `contenders` maps a peer's name to its `Prepare`; `oracle(case)`
    gives results all must match within `rtol`; `limit` names the contender that is the bound.
    """

    name: str
    what: str
    size: int
    make_case: Callable[[int], Case]
    contenders: Mapping[str, Prepare]
    oracle: Callable[[Case], Mapping[str, Any]]
    rtol: float
    limit: str | None = None
    requires: Mapping[str, str] = field(default_factory=dict)  # contender -> module that must import

    def missing(self, contender: str) -> str | None:
        """Why the contender can't run here; None where it can."""
        module = self.requires.get(contender, contender if contender != "loopgrad" else "loopgrad")
        if module == "gcc":
            import shutil

            return None if shutil.which("gcc") else "not installed"
        return None if importlib.util.find_spec(module) else "not installed"
