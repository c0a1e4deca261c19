"""What the module of Fourier transforms exports, and what its functions are told.

As many rows as a vector has lanes are transformed side by side: a point is two vectors, its real parts and its
imaginary ones, and a transform of `n` points is in `n` of these behind each other, in one of two places. `run(job)`
goes through blocks of rows. For each it calls the function that loads them, steps that go from one place to the other,
and the function that stores them. All are given as addresses in the job, i64 words named in JOB, behind which stand
STEP words for each step.

    load.columns  store.columns     rows side by side in memory: complex numbers in turns
    load.reals    store.reals       the same of reals: a point is the elements 2i and 2i + 1 along the axis
    load.rows     store.rows        points side by side in memory, or pairs of reals, which are points alike
    pass.r  last.r                  a pass of radix r, and one without factors behind it
    halve                           the spectrum of reals of that of their pairs
    join                            what is the other way, with parts exchanged

`chunk(lists, number, ...)`, for the pool, does the jobs of a list: how many they are, and their addresses. `lanes()`
says how many rows go side by side. `real` and `imaginary` say where in a point parts are: the inverse is the transform
with these exchanged on both ways.
"""

from __future__ import annotations

from typing import Final

JOB: Final = (
    "from", "to", "here", "there", "outer", "outer_from", "outer_to", "blocks", "block_from", "block_to",
    "load", "points_from", "lane_from", "step_from", "real_from", "imaginary_from",
    "store", "points_to", "lane_to", "step_to", "real_to", "imaginary_to", "scale", "steps",
)  # fmt: skip
"""Strides are bytes; `scale` has the bits of a float64."""
STEP: Final = ("function", "before", "between", "factors")
"""`before`: the product of the radices of earlier passes; `between`: that of later ones. Of `halve` and `join` the
former is the number of points."""
RADICES: Final = (2, 3, 4, 5, 7, 8)
MOVES: Final = ("load.columns", "load.reals", "load.rows", "store.columns", "store.reals", "store.rows")


def exports(suffix: str) -> tuple[str, ...]:
    passes = [f"{kind}.{radix}" for kind in ("pass", "last") for radix in RADICES]
    return tuple(
        [f"lg_fourier.{name}.{suffix}" for name in ("run", "chunk", "lanes", *MOVES, *passes, "halve", "join")]
    )
