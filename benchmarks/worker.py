"""One contender of one workload in a process of its own, driven over a pipe.

Commands come as lines on standard input ("run N", "fetch PATH", "notes"); each is answered by one line
of JSON. Libraries that print do so to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

from benchmarks.contender import Contender, Unavailable
from benchmarks.registry import load


def main() -> None:
    workload, name, size = sys.argv[1:4]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")

    module = load(workload)
    arrays = module.inputs(int(size))
    began = time.perf_counter()
    try:
        contender: Contender = module.CONTENDERS[name](arrays)
        built = time.perf_counter()
        result = contender.run()
    except ImportError as error:
        answer(unavailable=f"not installed ({error.name or error})")
        return
    except Unavailable as error:
        answer(unavailable=str(error))
        return
    answer(build_s=built - began, first_s=time.perf_counter() - built)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "run":
            times = []
            for _ in range(int(argument)):
                began = time.perf_counter()
                result = contender.run()
                times.append(time.perf_counter() - began)
            answer(times=times)
        elif command == "fetch":
            np.savez(argument, **{k: np.asarray(v) for k, v in contender.fetch(result).items()})
            answer(fetched=argument)
        elif command == "notes":
            answer(notes=contender.notes())


if __name__ == "__main__":
    main()
