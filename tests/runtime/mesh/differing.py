"""Three processes that don't do the same: what each of them is told. None waits for ever. Process 1 ends early."""

from __future__ import annotations

from typing import Any

import numpy as np

import loopgrad as lg


def raised(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def differing(mesh: lg.Mesh) -> dict[str, Any]:
    x = lg.shard(np.arange(8.0), mesh)
    total, largest = lg.compile(lambda x: lg.sum(x * 2.0)), lg.compile(lambda x: lg.max(x) + 1.0)
    found: dict[str, Any] = {"before": float(total(x))}
    if mesh.rank == 1:
        found["once more"] = raised(lambda: (total(x), total(x)))
    else:
        found["once more"] = raised(lambda: (total(x), largest(x)))
    found["afterwards"] = float(total(x))
    if mesh.rank == 2:
        found["another function"] = raised(lambda: lg.shard(lambda start, stop: np.zeros(stop - start), 8, mesh))
    else:
        found["another function"] = raised(lambda: total(x))
    found["again"] = float(largest(x))
    # a call that one process gives up and the others make
    missing = raised(lambda: 1 / 0) if mesh.rank == 0 else raised(lambda: total(x * 3.0))
    found["given up"] = missing if mesh.rank else raised(lambda: largest(x))
    found["in step"] = float(total(x))
    if mesh.rank == 1:
        return found
    found["ended"] = raised(lambda: total(x))
    found["ended, again"] = raised(lambda: largest(x))
    found["nobody meets"] = float(lg.asarray(2.0) + 1.0)
    return found
