"""Launches that don't depend on each other wait for nothing; the others see what those before them wrote."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.gpu.hazards import MOST_BESIDE, Hazards
from loopgrad.runtime.gpu.placement import SLOTS

A, B, C, IN, OUT = (SLOTS + i for i in range(5))
BYTES = 64


def hazards() -> Hazards:
    """Of slots of 64 bytes: the first three lie in the arena, the second one in the bytes of the first."""
    slots = [SimpleNamespace(type=SimpleNamespace(nbytes=BYTES))] * 5
    program: Any = SimpleNamespace(slots=slots, kernels=())
    placement: Any = SimpleNamespace(kernels=(), offsets=((A, 0), (B, 32), (C, 256)))
    return Hazards(program, placement)


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (([IN, A], {1}), ([A, OUT], {1}), True),  # what was written is read
        (([A, OUT], {1}), ([IN, A], {1}), True),  # what was read is written
        (([IN, A], {1}), ([IN, A], {1}), True),  # what was written is written
        (([A, OUT], {1}), ([IN, B], {1}), True),  # other bytes of it
        (([IN, A], {1}), ([IN, C], {1}), False),
        (([A, C], {1}), ([A, OUT], {1}), False),
        (([IN, A], {1}), ([IN, OUT], {1}), False),
    ],
)
def test_what_waits(first, second, wanted):
    found = hazards()
    assert not found.waits(*first)
    assert found.waits(*second) == wanted


def test_what_waited_for_all_before_is_behind_them():
    found = hazards()
    assert [found.waits(*launch) for launch in (([IN, A], {1}), ([A, C], {1}), ([IN, OUT], {1}))] == [0, 1, 0]
    assert found.waits([C, OUT], {1})
    found.forget()
    assert not found.waits([OUT, C], {1})


def test_few_are_looked_at():
    found = hazards()
    assert [found.waits([IN], ()) for _ in range(2 * MOST_BESIDE + 1)].count(True) == 2


def step(parameters: Any, gradients: Any, momenta: Any) -> Any:
    new = [0.9 * m + g for m, g in zip(momenta, gradients, strict=True)]
    rates = [0.1 / (lg.sqrt(lg.mean(m * m)) + 1e-8) for m in new]
    return [p - r * m for p, r, m in zip(parameters, rates, new, strict=True)], new


def layers(x: Any, weights: Any) -> Any:
    for w in weights:
        x = lg.tanh(x @ w)
    return lg.sum(x * x)


def moments(x: Any) -> Any:
    return lg.mean(x), lg.std(x), lg.sum(x, axis=0), lg.max(x, axis=1), lg.sort(x[0]), lg.cumsum(x[:, 0]), x.T @ x


def arrays(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [lg.asarray(rng.standard_normal(shape, dtype=np.float32)) for shape in shapes]


@pytest.mark.parametrize("name", ["step", "layers", "moments"])
def test_programs_are_the_same_each_time(name):
    """They are recorded in their second run; what lies between two waits the simulator runs in one order and in the
    other."""
    shapes = [(64 + i, 17) for i in range(3)]
    with lg.default_device("simulator:0"):
        function, given = {
            "step": (step, [arrays(i, *shapes) for i in range(3)]),
            "layers": (lg.value_and_grad(layers, argnums=1), [*arrays(0, (33, 40)), arrays(1, *[(40, 40)] * 3)]),
            "moments": (moments, arrays(0, (70, 129))),
        }[name]
        compiled = lg.compile(function)
        first, *others = [[np.asarray(leaf) for leaf in lg.tree.leaves(compiled(*given))] for _ in range(5)]
    for other in others:
        for x, y in zip(first, other, strict=True):
            np.testing.assert_array_equal(x, y)
