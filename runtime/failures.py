"""What a failed check in a kernel, or memory that was refused, means to the user, on any driver."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final, Protocol

from loopgrad.graph.errors import IndexRangeError, LoopgradError, LoopLimitError
from loopgrad.graph.location import describe, located
from loopgrad.graph.nodes import Location

PUBLIC: Final = "StackCapacityError"


class StackCapacityError(LoopgradError, RuntimeError):
    """A stack forced to a capacity that a lane exceeded. `stack` is its name, `loop/saved value`."""

    def __init__(self, stack: str, loc: Location | None, lane: int, needed: int, allocated: int) -> None:
        loop = stack.rpartition("/")[0] or stack
        super().__init__(
            f"{loop}: expected at most {allocated} saved trips (the forced stack capacity), lane {lane} needed "
            f"{needed}; raise stack_capacity to {needed}, or leave it out to let the stack grow\n" + describe(loc)
        )
        self.loop = loop
        self.loc = loc
        self.lane = lane
        self.needed = needed
        self.allocated = allocated


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
    text = located(message, site.loc)
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


def loop_names(stacks: Iterable[str]) -> str:
    """The loops whose values these stacks save; a stack's name is its loop's, then / and the value's."""
    loops = dict.fromkeys(name.rpartition("/")[0] or name for name in stacks)
    return ", ".join(name for name in loops if name)


def memory_failure(
    loops: str, loc: Location | None, needed: int, available: int | None, detail: str = "", counting: bool = False
) -> MemoryError:
    """The saved values of `loops` need more than there is; `available` where that is known. `counting`: they need
    even more than `needed`."""
    room = "what the system gives" if available is None else f"{available:,} bytes available"
    need = "needed more than" if counting else "needed"
    text = (
        f"loop {loops!r}: expected its saved values to fit into {room}, {need} {needed:,} bytes{detail}; "
        "give the loop a memory_budget=, or make it shorter"
    )
    return MemoryError(located(text, loc))
