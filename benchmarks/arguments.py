"""The options of a benchmark run: the same for `python -m benchmarks` and for `pytest benchmarks`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from benchmarks.harness import Settings
from benchmarks.registry import FAMILIES, WORKLOADS

# flag -> what `add_argument` takes; both parsers add "quick" and "full" their own way
OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "--workload": {
        "default": ",".join(WORKLOADS + FAMILIES), "metavar": "NAMES",
        "help": "workloads, families (arrays, programs, calls) or members of them (arrays.sort), joined by commas",
    },
    "--device": {"default": "cpu", "metavar": "NAMES", "help": "devices joined by commas: cpu, cuda:0, vulkan:0, ..."},
    "--peers": {
        "default": None, "metavar": "NAMES",
        "help": "contenders beside loopgrad, joined by commas; all without it, 'none' for none",
    },
    "--rounds": {"default": None, "type": int, "help": "turns of each contender (11; quick: 3)"},
    "--size": {"default": None, "type": int, "help": "lanes or elements, instead of the workload's own number"},
    "--limit": {"default": float("inf"), "type": float, "help": "seconds; what doesn't fit is left out"},
}  # fmt: skip
QUICK_ROUNDS: Final = 3
ROUNDS: Final = 11


def settings(chosen: Any, *, quick: bool) -> Settings:
    """What a parser found; a rounds of None is the usual number."""
    return Settings(
        contenders=() if chosen.peers is None else ("loopgrad", "limit", *chosen.peers.split(",")),
        devices=chosen.device.split(","), quick=quick, size=chosen.size,
        rounds=chosen.rounds or (QUICK_ROUNDS if quick else ROUNDS),
        deadline=time.monotonic() + chosen.limit,
    )  # fmt: skip


def given(chosen: Any) -> Iterator[str]:
    """The same options as words of a command."""
    for flag in OPTIONS:
        value = getattr(chosen, flag.removeprefix("--"))
        if value is not None:
            yield f"{flag}={value}"
