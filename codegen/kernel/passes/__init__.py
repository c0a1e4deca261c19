"""Kernel passes, shared by all targets: each is a pure function Kernel -> Kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.kernel.passes import cse, dce, fold, licm, share_arrays


def hoist(kernel: Kernel) -> Kernel:
    """Loop-invariant code moves, and what is equal in front of the loops then is computed once."""
    moved = licm.run(kernel)
    return kernel if moved is kernel else cse.run(moved)


PIPELINE: Final[tuple[Callable[[Kernel], Kernel], ...]] = (fold.run, cse.run, hoist, dce.run, share_arrays.run)


def optimise(kernel: Kernel) -> Kernel:
    """The kernel after every pass of the pipeline."""
    for run in PIPELINE:
        kernel = run(kernel)
    return kernel
