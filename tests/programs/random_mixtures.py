"""Random programs that mix what loopgrad has: linear algebra, transforms, sorts, tables, complex numbers and rules, in
loops, lanes, branches, batches and checkpoints (see mixture/).

The oracle is NumPy running the same program with Python's loops, and differences of it; `--oracle jax` takes JAX's
derivatives instead, which are exact. A failing program is made smaller before it is printed.

    python tests/programs/random_mixtures.py --count 300 --first 0 --devices cpu,interpreter --oracle jax
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from mixture.checking import check_mixture
from mixture.drawing import Draw, Mixture
from nested_programs import parser, run

WAYS = ("values", "gradient", "compiled", "replayed", "batched", "pushed", "twice", "pushed_twice")


def main() -> None:
    options = parser("check random mixtures of everything", count=100)
    options.add_argument("--oracle", default="differences", choices=["differences", "jax"])
    chosen, names = options.parse_args(), Counter[str]()

    def check(program: Mixture, device: str, ways: Any) -> int:
        done = check_mixture(program, device, ways, chosen.oracle)
        names.update(program.names() if done else ())
        return done

    failed = run(chosen, lambda seed: Draw(seed).program(), check, WAYS)
    print("seldom:", names.most_common()[-8:])
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
