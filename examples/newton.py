"""A loop that nobody can bound: Newton's cube root, until each element has converged.

The gradient goes back through as many steps as each element took; no limit was declared anywhere.

    python examples/newton.py
"""

from __future__ import annotations

import numpy as np

import loopgrad as lg


def cube_root(a):
    """Solve v³ = a element by element."""

    def unfinished(v):
        return lg.abs(v * v * v - a) > 1e-12 * a

    def step(v):
        return v - (v * v * v - a) / (3.0 * v * v)

    return lg.while_loop(unfinished, step, lg.ones_like(a))


def main() -> None:
    a = lg.asarray([0.001, 2.0, 8.0, 1e6])
    root, pullback = lg.vjp(cube_root, a)
    (slope,) = pullback(lg.ones_like(a))
    exact = np.cbrt(np.asarray(a))
    print(f"{'a':>12}{'root':>14}{'gradient':>14}{'exact gradient':>16}")
    for row in zip(np.asarray(a), np.asarray(root), np.asarray(slope), 1 / (3 * exact**2), strict=True):
        print(f"{row[0]:>12.4g}{row[1]:>14.8g}{row[2]:>14.8g}{row[3]:>16.8g}")


if __name__ == "__main__":
    main()
