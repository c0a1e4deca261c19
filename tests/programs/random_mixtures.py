"""Random programs that mix what loopgrad has: linear algebra, transforms, sorts, tables, complex numbers and rules, in
loops, lanes, branches, batches and checkpoints (see mixture/).

The oracle is NumPy running the same program with Python's loops, and differences of it; `--oracle jax` takes JAX's
derivatives instead, which are exact. A failing program is made smaller before it is printed.

    python tests/programs/random_mixtures.py --count 300 --first 0 --devices cpu,interpreter --oracle jax
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from mixture.checking import check_mixture
from mixture.drawing import Block, Draw, Mixture, blocks_of

WAYS = ("values", "gradient", "compiled", "replayed", "batched", "pushed", "twice", "pushed_twice")


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


def failure(program: Mixture, device: str, ways: object, oracle: str) -> str:
    try:
        check_mixture(program, device, ways, oracle)
    except Exception as error:  # whatever a program meets is what is looked for
        return f"{type(error).__name__}: {error}"
    return ""


def minimal(program: Mixture, device: str, ways: object, oracle: str, seconds: float) -> tuple[Mixture, str]:
    """The smallest program found that fails with the same kind of error."""
    error, end = failure(program, device, ways, oracle), time.monotonic() + seconds
    kind = error.split(":")[0]
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for block in smaller(program.block):
            less = program.with_block(block)
            found = failure(less, device, ways, oracle)
            if found.split(":")[0] == kind:
                program, error, changed = less, found, True
                break
            if time.monotonic() > end:
                break
    return program, error


def main() -> None:
    """Check as many seeds as the command line asks for."""
    parser = argparse.ArgumentParser(description="check random mixtures of everything")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--ways", default=None, help="names joined by commas")
    parser.add_argument("--oracle", default="differences", choices=["differences", "jax"])
    parser.add_argument("--seconds", type=float, default=30.0, help="for making a failing program smaller")
    chosen = parser.parse_args()
    ways = chosen.ways and chosen.ways.split(",")
    if "simulator" in chosen.devices:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from tests.simulator.device import install  # late: only where it is asked for

        install()
    failures, seen, unsuitable, names = 0, 0, 0, Counter[str]()
    for seed in range(chosen.first, chosen.first + chosen.count):
        program = Draw(seed).program()
        for device in chosen.devices.split(","):
            try:
                done = check_mixture(program, device, ways, chosen.oracle)
            except Exception as error:  # reported, and the run goes on
                failures += 1
                way = str(error).strip().split(":")[0]
                small = minimal(program, device, [way] if way in WAYS else ways, chosen.oracle, chosen.seconds)
                print(f"seed {seed} on {device}: {small[1][:1500]}\n    {small[0]}", flush=True)
                continue
            seen, unsuitable = seen + done, unsuitable + (not done)
            names.update(program.names() if done else ())
    print(f"{chosen.count} programs, {seen} ways, {unsuitable} unsuitable, {failures} failures")
    print("seldom:", names.most_common()[-8:])
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
