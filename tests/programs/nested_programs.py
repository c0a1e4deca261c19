"""Programs as nested tuples, as random_mutations and random_mixtures draw them: what both do with them.

A statement is a tuple; a control structure's last elements are blocks, tuples of statements.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

Statement = tuple[Any, ...]
Block = tuple[Statement, ...]
Check = Callable[[Any, str, Any], int]
"""Of a program, a device and ways (None: all): how many ways it was checked in; raises where one is wrong."""


class Nested:
    """A program; those who draw programs derive a dataclass."""

    block: Block

    def with_block(self, block: Block) -> Self:
        return replace(self, block=block)  # type: ignore[type-var]


class Drawing:
    """Draws one program from a seed; each kind of programs has a `stream` of its own."""

    def __init__(self, seed: int, stream: int) -> None:
        self.seed = seed
        self.random = np.random.default_rng([seed, stream])

    def one_of(self, options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]


def blocks_of(statement: Statement) -> tuple[Block, ...]:
    return tuple(part for part in statement if isinstance(part, tuple) and part and isinstance(part[0], tuple))


def statements(block: Block) -> Iterator[Statement]:
    """All of a block, inner ones too."""
    for statement in block:
        yield statement
        for inner in blocks_of(statement):
            yield from statements(inner)


def smaller(block: Block) -> list[Block]:
    """Blocks with a statement less, or with one of its blocks in its place, or with a smaller block in it."""
    found = []
    for i, statement in enumerate(block):
        if len(block) > 1:
            found.append(block[:i] + block[i + 1 :])
        for inner in blocks_of(statement):
            found.append(block[:i] + inner + block[i + 1 :])
            for less in smaller(inner):
                changed = tuple(less if part is inner else part for part in statement)
                found.append((*block[:i], changed, *block[i + 1 :]))
    return found


def failure(program: Nested, check: Check, device: str, ways: Any) -> str:
    try:
        check(program, device, ways)
    except Exception as error:  # whatever a program meets is what is looked for
        return f"{type(error).__name__}: {str(error).strip()}"
    return ""


def minimal(program: Nested, failing: Callable[[Nested], str], seconds: float) -> tuple[Nested, str]:
    """The smallest program found that fails with the same kind of error."""
    error, end = failing(program), time.monotonic() + seconds
    candidates = iter(smaller(program.block))
    while time.monotonic() < end and (block := next(candidates, None)) is not None:
        less = program.with_block(block)
        found = failing(less)
        if found.split(":")[0] == error.split(":")[0]:
            program, error, candidates = less, found, iter(smaller(block))
    return program, error


def parser(description: str, count: int) -> argparse.ArgumentParser:
    """The options that `run` reads."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--count", type=int, default=count)
    made.add_argument("--first", type=int, default=0)
    made.add_argument("--devices", default="cpu")
    made.add_argument("--ways", default=None, help="names joined by commas")
    made.add_argument("--seconds", type=float, default=30.0, help="for making a failing program smaller")
    return made


def run(chosen: argparse.Namespace, draw: Callable[[int], Nested], check: Check, ways: Collection[str] = ()) -> bool:
    """Check as many seeds as the command line asks for, and print what is wrong; whether something is. A program whose
    error begins with the name of one of the `ways` is made smaller in that one alone."""
    if "simulator" in chosen.devices:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from tests.simulator.device import install  # late: only where it is asked for

        install()
    wanted = chosen.ways and chosen.ways.split(",")
    failures, seen, unsuitable = 0, 0, 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        program = draw(seed)
        for device in chosen.devices.split(","):
            try:
                done = check(program, device, wanted)
            except Exception as error:  # reported, and the run goes on
                failures += 1
                way = str(error).strip().split(":")[0]
                narrowed = [way] if way in ways else wanted
                small, text = minimal(program, lambda p, d=device, w=narrowed: failure(p, check, d, w), chosen.seconds)
                print(f"seed {seed} on {device}: {text[:1500]}\n    {small}", flush=True)
                continue
            seen, unsuitable = seen + done, unsuitable + (not done)
    print(f"{chosen.count} programs, {seen} ways, {unsuitable} unsuitable, {failures} failures")
    return bool(failures)
