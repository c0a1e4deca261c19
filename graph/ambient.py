"""What this thread's next node belongs to: a function that is being traced, and a line that was named for it; and the
tensors of the top level that the thread made, by references that upper layers put here and graphs don't read: what
builds a line looks at both, and a look at a thread's own data takes as long as three at an attribute."""

from __future__ import annotations

import threading
from typing import Any, Final

from loopgrad.graph.nodes import Location

LIMIT: Final = 512  # of references, at first


class References(list[Any]):
    """`limit`: how many there may be before those that lead nowhere are dropped."""

    __slots__ = ("limit",)

    limit: int


class Ambient(threading.local):
    """`scope`: of `graph.build`; None at the top level. `loc`: the line that all nodes get, where one was named.
    `plain`: the references, as long as there is neither, so that what is computed belongs to the line that calls us.
    `within_call`: whether a function is called that remembers its calls, and so knows those that it makes itself.
    `looks_at_ranges`: how often it was asked between which numbers a value lies."""

    scope: Any = None
    loc: Location | None = None
    within_call: bool = False
    looks_at_ranges: int = 0

    def __init__(self) -> None:
        self.references = References()
        self.references.limit = LIMIT
        self.plain: References | None = self.references

    def belong(self, scope: Any, loc: Location | None) -> None:
        """Say both for the nodes to come."""
        self.scope = scope
        self.loc = loc
        self.plain = self.references if scope is None and loc is None else None


AMBIENT: Final = Ambient()
