"""Random scripts that come again with other numbers, run as users run them: directly, without a compiled function.

    python tests/programs/random_repeats.py --count 1000 [--first 0]

Each makes a list of pieces, writes to arrays or looks at elements, and joins the list. From its second run on calls,
lines and lists are known from before. NumPy runs the same text.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import loopgrad as lg

NUMBERS = (0.5, 0.0, -1.5, 3.0)  # `k` of each run
PLACES = ("i", "i", "-i", "n - 1 - i", "0", "i // 2", "i * 3 % n")
FACTORS = ("2.0", "-1", "k", "i", "(1.5 if i % 2 else -2)", "True")
PIECES = (
    "x[{i}] * {c}", "x[{i}] + y[{i}]", "x[{i}] * y[i]", "xp.where(x[{i}] > {c}, x[{i}], y[i])", "xp.sum(x[{i}]) * {c}",
    "m[{i}]", "m[{i}] * {c}", "m[{i}, i % 3] + {c}", "xp.sum(m[{i}])", "m[:, i % 3]", "m[{i}][::-1]", "y[{i}]",
    "xp.dot(m[{i}], m[0])", "z[{i}] * {c}", "xp.real(z[{i}]) + x[i]", "xp.astype(x[{i}], xp.float32) * 2",
    "xp.stack([x[{i}], x[0]])", "xp.maximum(y[{i}], {c})",
)  # fmt: skip
BETWEEN = (
    "pass", "made[-1] = made[0]", "held = made[1:3]", "x[0] = k", "x[::2] = y[::2]", "m[1] = 0; x[-1] = k", "z[1] = 0",
    "z[0] = k; z[-1] *= 2", "xp.sum(made[0]).item()", "made[-1].tolist()", "y += k", "z *= k", "x = x[::-1]",
    "made[0] = xp.copy(made[0])", "m.T[0] = k; m[0] += m[1]",
)  # fmt: skip
JOINS = (
    "xp.stack(made)", "xp.stack(made[::-1])", "xp.stack(made, axis=-1)", "xp.sum(xp.stack(made), axis=0)",
    "xp.concat([xp.reshape(v, (-1,)) for v in made])", "xp.concat([xp.reshape(v, (-1,)) for v in made] + [x])",
)  # fmt: skip
LOOKED_AT = ("out", "x", "y", "m", "z")


def script(seed: int) -> str:
    """The text, which has xp, the arrays, their length n and a number k."""
    draw = random.Random(seed)
    piece = draw.choice(PIECES).format(i=draw.choice(PLACES), c=draw.choice(FACTORS))
    lines = [f"made = [{piece} for i in range(n)]", draw.choice(BETWEEN), f"out = {draw.choice(JOINS)}"]
    return "\n".join([draw.choice(BETWEEN[3:8]) if draw.random() < 0.3 else "pass", *lines, draw.choice(BETWEEN)])


def difference(seed: int) -> str | None:
    """What the runs of a script disagree about with NumPy."""
    text, rng = script(seed), np.random.default_rng(seed)
    n = int(rng.choice([3, 9, 20, 40]))
    x, m, z = (rng.integers(-6, 7, shape) / 4 for shape in (n, (n, 3), (n, 2)))
    arrays = {"x": x, "m": m, "z": z[:, 0] + 1j * z[:, 1]}
    for k in NUMBERS:
        wanted, got = (_run(text, xp, arrays, n, k) for xp in (np, lg))
        for name in LOOKED_AT:
            if not np.allclose(np.asarray(got[name]), wanted[name], rtol=1e-6, atol=1e-9):
                return f"# seed {seed}, n = {n}, k = {k}: {name} is {got[name]}, not {wanted[name]}\n{text}"
    return None


def _run(text: str, xp: Any, arrays: dict[str, np.ndarray], n: int, k: float) -> dict[str, Any]:
    names: dict[str, Any] = {name: xp.asarray(array.copy()) for name, array in arrays.items()}
    names.update(xp=xp, n=n, k=k, y=names["x"] * 1.5 + 1)
    exec(text, names)
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    found = [d for seed in range(given.first, given.first + given.count) if (d := difference(seed)) is not None]
    print(*found, f"{given.count} scripts, {len(found)} differ", sep="\n")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
