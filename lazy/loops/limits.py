"""The keyword arguments that bound or name a loop."""

from __future__ import annotations

from dataclasses import dataclass

from loopgrad.graph.errors import explained


@dataclass(frozen=True, slots=True)
class Limits:
    """The keyword arguments of a loop."""

    max_steps: int | None = None
    memory_budget: int | None = None
    name: str | None = None

    def check(self, what: str) -> None:
        for text, value in (("max_steps", self.max_steps), ("memory_budget", self.memory_budget)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ValueError(explained(what, f"{text} to be a whole number or None", repr(value), "pass an int"))
