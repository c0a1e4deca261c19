"""Random programs that write in place: through views, rows, transposes and places that meet, to arrays with two
names, in loops, lanes, branches, scans, batches, checkpoints, exported functions and functions with rules, nested in
each other (see mutation/).

Both sides run the same statements: NumPy with Python's loops, which copies what a body gets, and loopgrad. Integers
have any dtype and wrap. A failing program is made smaller before it is printed.

    python tests/programs/random_mutations.py --count 300 --first 0 --devices cpu,interpreter
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from mutation.checking import check_mutations
from mutation.drawing import Draw, Mutations
from random_mixtures import smaller


def failure(program: Mutations, device: str, ways: Any) -> str:
    try:
        check_mutations(program, device, ways)
    except Exception as error:  # whatever a program meets is what is looked for
        return f"{type(error).__name__}: {str(error).strip()}"
    return ""


def minimal(program: Mutations, device: str, ways: Any, error: str) -> tuple[Mutations, str]:
    """The smallest program found that fails with the same kind of error."""
    changed = True
    while changed:
        changed = False
        for block in smaller(program.block):
            found = failure(program.with_block(block), device, ways)
            if found.split(":")[0] == error.split(":")[0]:
                program, error, changed = program.with_block(block), found, True
                break
    return program, error


def main() -> None:
    parser = argparse.ArgumentParser(description="check random programs that write in place")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--ways", default=None, help="names joined by commas")
    chosen = parser.parse_args()
    ways = chosen.ways and chosen.ways.split(",")
    if "simulator" in chosen.devices:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from tests.simulator.device import install  # late: only where it is asked for

        install()
    failures, seen, unsuitable = 0, 0, 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        program = Draw(seed).program()
        for device in chosen.devices.split(","):
            try:
                done = check_mutations(program, device, ways)
            except Exception as error:  # reported, and the run goes on
                failures += 1
                small, text = minimal(program, device, ways, f"{type(error).__name__}: {str(error).strip()}")
                print(f"seed {seed} on {device}: {text[:1500]}\n    {small}", flush=True)
                continue
            seen, unsuitable = seen + done, unsuitable + (not done)
    print(f"{chosen.count} programs, {seen} ways, {unsuitable} unsuitable, {failures} failures")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
