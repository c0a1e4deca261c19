"""A fit whose process is killed in the middle: `python -m loopgrad run -n 2 tests/runtime/mesh/killed_fit.py FILE`.

FILE then has the state of the last checkpoint before, from which any number of processes goes on; with `RESULT` behind
it, they do, and write what they find.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np
from examples import hare_lynx

import loopgrad as lg

STARTS, ITERATIONS, EVERY, KILLED = 70, 12, 3, 8


def fitted(mesh: lg.Mesh | None, checkpoint: str | None = None, report: Any = None) -> Any:
    observed = np.log(np.loadtxt(hare_lynx.DATA, delimiter=",", skiprows=2)[:, 1:])
    return hare_lynx.fit(
        observed, STARTS, ITERATIONS, report=report, mesh=mesh, checkpoint=checkpoint, every=EVERY
    )  # fmt: skip


def main(checkpoint: str, result: str | None = None) -> None:
    mesh = lg.mesh()
    if result is not None:
        found = [lg.gather_all(x) for x in lg.tree.leaves(fitted(mesh, checkpoint))]
        lg.save(result, found)
        return

    def killed(iteration: int, _: Any) -> None:
        if iteration == KILLED and mesh.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    fitted(mesh, checkpoint, killed)


if __name__ == "__main__":
    main(*sys.argv[1:])
