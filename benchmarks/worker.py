"""One contender in its own process: prepares the workload, then times one call per line of input.

Protocol (standard input and output, one JSON object a line): `run` -> {"seconds"}; `check` ->
{"error"} against the oracle; end of input ends the process.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

import numpy as np

from benchmarks.workloads import WORKLOADS


def _worst_error(got: Any, wanted: Any) -> float:
    worst = 0.0
    for name, expected in wanted.items():
        a, b = np.asarray(got[name], np.float64), np.asarray(expected, np.float64)
        if a.shape != b.shape or not np.isfinite(a).all():
            return float("inf")
        scale = np.abs(b).max() if b.size else 1.0
        worst = max(worst, float(np.abs(a - b).max() / max(scale, 1e-30))) if b.size else worst
    return worst


def main() -> None:
    name, contender, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a peer prints must not enter the protocol
    workload = WORKLOADS[name]
    case = workload.make_case(size)
    start = time.perf_counter()
    call = workload.contenders[contender](case)
    fetch = call()
    first = time.perf_counter() - start
    print(json.dumps({"first": first}), file=channel)
    for line in sys.stdin:
        if line.strip() == "run":
            start = time.perf_counter()
            fetch = call()
            reply: dict[str, Any] = {"seconds": time.perf_counter() - start}
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            reply = {"error": _worst_error(fetch(), workload.oracle(case)), "peak_mib": peak / 1024}
        print(json.dumps(reply), file=channel)


if __name__ == "__main__":
    main()
