"""The short message with which each process starts whatever processes do together, and what all conclude.

It says whether the process goes on, has failed or has ended; which program it runs, which of its calls this is and
where in it the process is; and has room for some bytes. All processes see the same messages, so all come to the same
conclusion, without sending another one:

- one has failed: its error is raised by all;
- one has ended its program: the others are told, now and whenever they would wait for it again;
- they run different programs, or one has made a call less: each says once more what it called, and from which line, and
  all raise that.

Nobody waits for ever, since there is no other way to meet: a process that ends says so (`ended`).
"""

from __future__ import annotations

import builtins
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn

from loopgrad.graph import errors
from loopgrad.graph.errors import DeviceError, LoopgradError, explained
from loopgrad.graph.location import describe, user_location
from loopgrad.runtime import failures
from loopgrad.runtime.mesh.communicator import MESSAGE, Communicator, Said

HEADER: Final = struct.Struct("<q8sqqq")  # state, program, call, collective and how many before, bytes that follow
AGREED: Final = HEADER.size - 8  # what is the same on all processes where nothing is wrong
INLINE: Final = MESSAGE - HEADER.size
GOING, FAILED, ENDED = range(3)
MOST_LISTED: Final = 8


class ProcessError(LoopgradError, RuntimeError):
    """An error of another process of the mesh, of a class that is known there only."""


class Head(NamedTuple):
    """What a message says of its process."""

    state: int
    program: bytes
    call: int
    step: int
    length: int


class Messages:
    """Those of one call. `describe`: what is called, for people."""

    _line: str | None = None

    def __init__(self, communicator: Communicator, program: bytes, describe: Callable[[], str]) -> None:
        self._communicator = communicator
        self._program = program
        self._describe = describe
        self._history = history = communicator.history
        self._call = history.calls = history.calls + 1
        history.known = None

    def locate(self) -> None:
        """Note the user's line: other threads, which may send messages of this call, don't see it."""
        if self._line is None:
            self._line = describe(user_location()).strip()

    def met(self, step: int, data: bytes) -> Sequence[Said]:
        """The messages of all processes: behind the header what each has to give. Raises what keeps them from going
        on."""
        try:
            return self._met(step, data)
        except Exception as error:
            self._history.known = error
            raise

    def _met(self, step: int, data: bytes) -> Sequence[Said]:
        if self._history.over:
            raise self._alone()
        own = HEADER.pack(GOING, self._program, self._call, step, len(data)) + data
        messages, head = self._communicator.gather(own), own[:AGREED]
        for said in messages:
            if not said.startswith(head):
                self._differ(messages)
        return messages

    def failed(self, step: int, error: Exception) -> None:
        """Tell the others, who wait for this process. Several may have failed: each raises its own error."""
        self._history.known = error
        if self._history.over:
            return
        notes = [str(note) for note in getattr(error, "__notes__", ())]
        text = "\n".join([type(error).__name__, str(error), *notes]).encode()[:INLINE]
        head = Head(FAILED, self._program, self._call, step, len(text))
        self._noted(heads_of(self._communicator.gather(HEADER.pack(*head) + text)))

    def _noted(self, heads: Sequence[Head]) -> None:
        """After what went wrong, calls are counted from the same number on."""
        self._history.calls = max(head.call for head in heads)
        ended = [rank for rank, head in enumerate(heads) if head.state == ENDED]
        if ended:
            self._history.over = f"process {ended[0]} of {len(heads)} has ended its program"

    def _differ(self, messages: Sequence[Said]) -> NoReturn:
        heads = heads_of(messages)
        self._noted(heads)
        for rank, head in enumerate(heads):
            if head.state == FAILED:
                raise error_of(data_of(messages[rank]), rank, len(heads))
        if self._history.over:
            raise self._alone()
        text = self._own().encode()[:INLINE]
        head = Head(GOING, self._program, self._call, 0, len(text))
        texts = [data_of(said) for said in self._communicator.gather(HEADER.pack(*head) + text)]
        found = "\n".join(_by_text([text.decode(errors="replace") for text in texts]))
        raise DeviceError(
            "mesh: expected all processes to call the same programs in the same order, got different ones:\n"
            f"{found}\n"
            "a program, its shapes and the numbers written into it, and how often it is called, can't depend on "
            "mesh.rank: what differs between processes goes through lg.shard"
        )

    def _alone(self) -> DeviceError:
        fix = "let all processes call the same programs, as often"
        expected = f"all processes for {self._own()}"
        return DeviceError(explained("mesh", expected, self._history.over, fix))

    def _own(self) -> str:
        self.locate()
        where = self._line
        return f"call {self._call}: {self._describe()}" + (f"\n    {where}" if where else "")


def heads_of(messages: Sequence[Said]) -> list[Head]:
    return [Head(*HEADER.unpack_from(said)) for said in messages]


def data_of(message: Said) -> bytes:
    """What it gives behind its header."""
    return bytes(message[HEADER.size : HEADER.size + Head(*HEADER.unpack_from(message)).length])


def ended(communicator: Communicator) -> None:
    """The end of this process' program, where the others end theirs or are told."""
    history = communicator.history
    if not history.over:
        history.over = "this process has ended its program"
        communicator.gather(HEADER.pack(*Head(ENDED, b"", history.calls, 0, 0)))


def _by_text(texts: Sequence[str]) -> list[str]:
    """What processes say, and which say the same."""
    said: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        said.setdefault(text, []).append(rank)
    lines = [f"  process{'es' if len(ranks) > 1 else ''} {_ranges(ranks)}, {text}" for text, ranks in said.items()]
    more = len(lines) - MOST_LISTED
    return [*lines[:MOST_LISTED], f"  and {more} others"] if more > 0 else lines


def _ranges(ranks: Sequence[int]) -> str:
    """Numbers in ascending order, neighbours as a range."""
    found: list[list[int]] = []
    for rank in ranks:
        if found and found[-1][1] == rank - 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in found)


def error_of(text: bytes, rank: int, size: int) -> Exception:
    """The error that process `rank` reports, of the same class where this is one of ours or of Python's."""
    name, _, message = text.decode(errors="replace").partition("\n")
    for module in (errors, failures, builtins):
        found = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            error: Exception = found.__new__(found)
            error.args = (message,)
            break
    else:
        error = ProcessError(f"{name}: {message}")
    error.add_note(f"raised on process {rank} of {size}")
    return error
