"""Many carried values: a loop of 27 trips over 563 float32 and 408 integer and bool carries, reverse mode.

What counts is the bytes of the stack heap (the peer that was measured on such a program needed 41 GB for
600,000 lanes); the time is there too. Each float carry is multiplied by a neighbour, so that every one must
be saved in every trip; integers and bools choose between two factors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contender import Arrays, Contender
from benchmarks.oracles import in_pieces

FLOATS, INTEGERS, BOOLS, TRIPS = 563, 204, 204, 27
TITLE = f"wide: {TRIPS} trips, {FLOATS} float32 and {INTEGERS + BOOLS} integer and bool carries, gradient by the start"
SIZES = {"full": 16_384, "quick": 64, "gpu": 600_000}
TOLERANCE = {"value": 1e-4, "gradient": 2e-3}
QUICK = 1024  # lanes below which the loop has a sixteenth of the carries


def inputs(size: int) -> Arrays:
    x = np.random.default_rng(0).uniform(0.5, 1.5, size).astype(np.float32)
    share = 16 if size < QUICK else 1
    return {"x": x, "widths": np.array([FLOATS, INTEGERS, BOOLS]) // share}


def turn(where: Callable[..., Any], floats: list[Any], integers: list[Any], bools: list[Any]) -> tuple[Any, Any, Any]:
    count = len(floats)
    new = []
    for i, v in enumerate(floats):
        chosen = where(bools[i % len(bools)], 0.75 * v, 1.25 - 0.5 * v)
        new.append(chosen * (0.5 + 0.5 * floats[(i + 1) % count]))
    counters = [n * 5 + 3 for n in integers]
    return new, counters, [(counters[i % len(counters)] & 4) == 0 for i in range(len(bools))]


def start(x: Any, integer: Callable[[int], Any], bool_: Callable[[bool], Any], widths: np.ndarray) -> tuple[Any, ...]:
    floats, integers, bools = (int(w) for w in widths)
    return (
        [x * (1.0 - i / (2.0 * floats)) for i in range(floats)],
        [integer(i) for i in range(integers)],
        [bool_(i % 3 == 0) for i in range(bools)],
    )


def oracle(arrays: Arrays) -> Arrays:
    """Forward mode by hand in float64, a tangent along with every lane; all lanes have the same integers and bools."""
    floats, integers, bools = (int(w) for w in arrays["widths"])
    scales = 1.0 - np.arange(floats) / (2.0 * floats)
    counters, flags = np.arange(integers, dtype=np.int32), np.arange(bools) % 3 == 0
    lines = []  # offset and slope by which each carry changes in each trip
    for _ in range(TRIPS):
        chosen = flags[np.arange(floats) % bools, None]
        lines.append((np.where(chosen, 0.0, 1.25), np.where(chosen, 0.75, -0.5)))
        counters = counters * np.int32(5) + np.int32(3)
        flags = (counters[np.arange(bools) % integers] & 4) == 0

    def piece(at: slice) -> tuple[float, np.ndarray]:
        v = scales[:, None] * arrays["x"][at].astype(np.float64)
        tangent = np.broadcast_to(scales[:, None], v.shape)
        for offset, slope in lines:
            chosen, factor = offset + slope * v, 0.5 + 0.5 * np.roll(v, -1, 0)
            tangent = slope * tangent * factor + 0.5 * chosen * np.roll(tangent, -1, 0)
            v = chosen * factor
        return float(v.sum()), tangent.sum(0)

    parts = in_pieces(piece, arrays["x"].size, 1 << 8)
    return {"value": np.sum([value for value, _ in parts]), "gradient": np.concatenate([slope for _, slope in parts])}


def loopgrad(**options: Any) -> Callable[[Arrays], Contender]:
    def build(arrays: Arrays) -> Contender:
        lg = peers.loopgrad(**options)

        def loss(x: Any, trips: Any) -> Any:
            integer = lambda n: lg.full(x.shape, n, dtype=lg.int32)
            bool_ = lambda b: lg.full(x.shape, b, dtype=lg.bool)
            body = lambda _, carry: turn(lg.where, *carry)
            floats, _, _ = lg.fori_loop(0, trips, body, start(x, integer, bool_, arrays["widths"]))
            total = floats[0]
            for v in floats[1:]:
                total = total + v
            return lg.sum(total)

        x, trips = lg.asarray(arrays["x"]), lg.asarray(np.full(arrays["x"].shape, TRIPS, np.int32))
        step = lg.compile(lg.value_and_grad(loss))

        def notes() -> dict[str, Any]:
            floats, *others = (int(w) for w in arrays["widths"])
            everything = x.size * TRIPS * (4 * floats + 4 * others[0] + others[1])
            heap = step.memory_stats().heap_peak_bytes
            return {"stack heap, bytes": f"{heap:,} (all lanes, all carries: {everything:,})", "notes": notes_of(step)}

        fetch = lambda result: {"value": np.asarray(result[0]), "gradient": np.asarray(result[1])}
        return peers.own(lambda: step(x, trips), list, fetch, notes)

    return build


def notes_of(step: Any) -> str:
    """What the compiler announces: nothing where the loop is one kernel."""
    return "; ".join(step.explain().splitlines()[2:]) or "none"


CONTENDERS = {"loopgrad": loopgrad()}
GPU_CONTENDERS = CONTENDERS
