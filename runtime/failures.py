"""What a failed check in a kernel means to the user, on any driver."""

from __future__ import annotations

from math import prod
from typing import Protocol

from loopgrad.graph.errors import IndexRangeError, LoopgradError, LoopLimitError
from loopgrad.graph.location import describe
from loopgrad.graph.nodes import Location


class CheckSite(Protocol):
    """A place in a kernel that can fail: its kind, its message with {lane} and {detail}, the user's line."""

    @property
    def kind(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def loc(self) -> Location | None: ...


def failed_check(site: CheckSite, domain: tuple[int, ...], lane: int, detail: int) -> Exception:
    """The exception of a check that failed first in the linear lane `lane` of `domain`."""
    place = lane_text(domain, lane)
    if site.kind == "max_steps":
        failure = LoopLimitError(detail, site.loc)
        failure.add_note(f"first seen in lane {place}")
        return failure
    message = site.message.replace("{lane}", place).replace("{detail}", str(detail))
    text = "\n".join(part for part in (message, describe(site.loc)) if part)
    return IndexRangeError(text) if site.kind == "index" else LoopgradError(text)


def lane_text(domain: tuple[int, ...], lane: int) -> str:
    """A linear lane index as the user would index the array."""
    if len(domain) < 2 or not 0 <= lane < prod(domain):
        return str(lane)
    index = []
    for extent in reversed(domain):
        lane, position = divmod(lane, extent)
        index.append(position)
    return str(tuple(reversed(index)))
