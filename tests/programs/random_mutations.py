"""Random programs that write in place: through views, rows, transposes and places that meet, to arrays with two
names, in loops, lanes, branches, scans, batches, checkpoints, exported functions and functions with rules, nested in
each other (see mutation/).

Both sides run the same statements: NumPy with Python's loops, which copies what a body gets, and loopgrad. Integers
have any dtype and wrap. A failing program is made smaller before it is printed.

    python tests/programs/random_mutations.py --count 300 --first 0 --devices cpu,interpreter
"""

from __future__ import annotations

from mutation.checking import check_mutations
from mutation.drawing import Draw
from nested_programs import parser, run


def main() -> None:
    chosen = parser("check random programs that write in place", count=300).parse_args()
    raise SystemExit(run(chosen, lambda seed: Draw(seed).program(), check_mutations))


if __name__ == "__main__":
    main()
