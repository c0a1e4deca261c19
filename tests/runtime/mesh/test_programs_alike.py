"""Processes run the same programs whatever each of them has forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np

import loopgrad as lg
from loopgrad.runtime.session import SESSION
from tests.runtime.mesh.thread_processes import on_threads


def test_programs_that_left_the_memory_of_one_process() -> None:
    """Those whose numbers are inputs on the others: process 1 forgets all it has, again and again."""

    def program(mesh: lg.Mesh) -> Any:
        x, found = lg.shard(np.linspace(0.5, 2.0, 7), mesh), []
        for k, rate in enumerate((0.7, 0.3, 3.0, 0.3, 0.1)):
            found.append(float(lg.psum(x**rate) * rate))
            if mesh.rank == 1:
                for key, versions in list(SESSION._versions.items()):
                    if key[0] == mesh.device and k:
                        versions.forget()
        return found

    alone, *others = on_threads(1, program), *on_threads(3, program)
    assert others == [alone[0]] * 3
