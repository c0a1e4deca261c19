"""What drivers don't say is tried: whether fma rounds once, whether long loops reach their end, whether a widened
integer compares rightly, and whether the invocations of a subgroup are neighbours in a workgroup.

Kernels of one lane. fma(x, x, -(x*x)) is not zero where it is fused; a loop with more trips than the
known limits counts them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from loopgrad.codegen.targets.spirv.features import ENTRY_NAME, UNIT_LANES, Features, FragmentOrder
from loopgrad.runtime.gpu.driver import Words, put
from loopgrad.runtime.gpu.recorder import Recorder
from loopgrad.runtime.vulkan import fragments
from loopgrad.runtime.vulkan.driver import VulkanDriver

TRIPS: Final = 70_000
POWERS: Final = 64  # of each invocation
SPECIAL: Final = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 200.0, -200.0], np.float32)
SPECIAL_OF: Final = {"Exp2": np.exp2, "Log2": np.log2}
X: Final[dict[str, np.floating[Any]]] = {"f32": np.float32(1 + 2**-12), "f64": np.float64(1 + 2**-30)}


def probed(driver: VulkanDriver, features: Features) -> Features:
    """The features with what the probes found."""
    trips = run(driver, "loop_probe", np.zeros(1, np.int64), TRIPS)
    fused = all(
        run(driver, "fused_probe", np.array([x, 0], x.dtype), name)[1] != 0
        for name, x in X.items()
        if name == "f32" or features.float64
    )
    compared = run(driver, "widening_probe", np.array([-5], np.int32))
    neighbours = features.neighbours
    if neighbours > 1:
        got = run(driver, "exchange_probe", np.zeros(features.group, np.int32))
        neighbours = neighbours if (got == neighbours.bit_length() - 1).all() else 1
    matrices = features.matrices if neighbours > 1 else ()
    units = driver.gpu.unit_types if matrices and neighbours == UNIT_LANES else ()
    orders = [fragment_order(driver, type) for type in units]
    return replace(
        features,
        fused=fused,
        endless_loops=bool(trips[0] == TRIPS),
        widening=bool(compared[0] == 2),
        exponential=exponential(driver),
        logarithm=logarithm(driver),
        neighbours=neighbours,
        matrices=matrices,
        fragments=tuple([order for order in orders if order is not None]),
    )


def exponential(driver: VulkanDriver) -> bool:
    """Whether Exp2 of numbers between -1/2 and 1/2 is right to two units in the last place, of others to 21 bits."""
    count = driver.gpu.features.group * POWERS
    given = np.concatenate([np.linspace(-x, x, count // 2, dtype=np.float32) for x in (0.5, 120.0)])
    got, wanted = run(driver, "function_probe", given, "Exp2", POWERS), np.exp2(given.astype(np.float64))
    units = np.abs(got - wanted) / np.spacing(wanted.astype(np.float32))
    return bool(units[: count // 2].max() <= 2 and units.max() <= 8)


def logarithm(driver: VulkanDriver) -> bool:
    """Whether Log2 is right to 20 bits after the point between 1/2 and 2, and to 20 bits elsewhere, and whether it and
    Exp2 give infinities, zeros and NaN where these are right."""
    count = driver.gpu.features.group * POWERS
    spread = np.exp2(np.linspace(-125, 127, count // 2)).astype(np.float32)
    given = np.concatenate([spread, np.linspace(0.5, 2, count // 2, dtype=np.float32)])
    got, wanted = run(driver, "function_probe", given, "Log2", POWERS), np.log2(given.astype(np.float64))
    right = (np.abs(got - wanted) <= 2.0**-20 * np.maximum(1, np.abs(wanted))).all()
    return bool(right) and all(_special(driver, name, function) for name, function in SPECIAL_OF.items())


def _special(driver: VulkanDriver, name: str, function: np.ufunc) -> bool:
    """Whether an extended function of what is special is as NumPy's."""
    given = np.resize(SPECIAL, driver.gpu.features.group)
    with np.errstate(all="ignore"):
        return np.array_equal(run(driver, "function_probe", given, name, 1), function(given), equal_nan=True)


def fragment_order(driver: VulkanDriver, type: str) -> FragmentOrder | None:
    return fragments.order_of(type, run(driver, "fragment_probe", fragments.given(type), type))


def run(driver: VulkanDriver, name: str, array: np.ndarray[Any, Any], *more: Any) -> np.ndarray[Any, Any]:
    """The array after one lane of a module of codegen.targets.spirv.probe, which sees it as its only parameter."""

    def make() -> bytes:
        from loopgrad.codegen.targets.spirv import probe  # late: a warm cache needs no emitter

        made: bytes = getattr(probe, name)(driver.gpu.features, *more)
        return made

    code = driver.code(" ".join([name, *map(str, more)]), make)
    data, control = put(driver, array), driver.shared(32)
    symbols: Words = np.array([data.address, control.address + 64, control.address, 0, 0, 0], np.uint64)
    recorder = Recorder(driver, symbols)
    pipeline = driver.image(code).pipeline("probe", ENTRY_NAME, driver.gpu.features.group)
    recorder.plain(pipeline, 1, recorder.table(range(6)))
    recorder.end(again=False)
    recorder.run(control)
    return driver.fetch(data, array.nbytes).view(array.dtype)
