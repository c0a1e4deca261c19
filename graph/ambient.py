"""What this thread's next node belongs to: a function that is being traced, and a line that was named for it."""

from __future__ import annotations

import threading
from typing import Any, Final

from loopgrad.graph.nodes import Location


class Ambient(threading.local):
    """`scope`: of `graph.build`; None at the top level. `loc`: the line that all nodes get, where one was named.
    `plain`: there is neither, so that what is computed belongs to the line that calls us."""

    scope: Any = None
    loc: Location | None = None
    plain: bool = True

    def belong(self, scope: Any, loc: Location | None) -> None:
        """Say both for the nodes to come."""
        self.scope = scope
        self.loc = loc
        self.plain = scope is None and loc is None


AMBIENT: Final = Ambient()
