"""The machine code is made for: its name, features and vector length.

`Machine` is plain data and part of every cache key; `host_machine` reads it through llvmlite, which
is imported here, late, because a script that only builds graphs never needs it.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from functools import cache
from typing import Final


@dataclass(frozen=True, slots=True)
class Machine:
    """`vector_bits`: the register length; `masks`: compares give mask registers (AVX-512);
    `gathers`: hardware gathers exist; `registers`: vector registers."""

    triple: str
    cpu: str
    features: str
    vector_bits: int
    masks: bool
    gathers: bool
    registers: int

    @property
    def fused(self) -> bool:
        """Whether a product and a sum are one instruction, rounded once."""
        return self.triple.startswith(("aarch64", "arm64")) or _has(self.features, "+fma")

    def masked(self, itemsize: int) -> bool:
        """Whether one instruction loads or stores those lanes that a mask has; else LLVM makes a branch of each."""
        return self.masks or (self.gathers and itemsize >= 4)


@cache
def _has(features: str, wanted: str) -> bool:
    return wanted in features.split(",")


PLAIN: Final = Machine("", "", "", 64, False, False, 16)
LEGACY: Final = ("sse4a",)
"""Instructions that have no form for AVX. LLVM makes shuffles of bytes of them, and beside AVX's each costs 100 ns on a
Zen 3: distances of words took 20 ms where they take 0.2, a group norm's gradient 76 where it takes 6."""


def machine_from(triple: str, cpu: str, features: dict[str, bool]) -> Machine:
    """The vector length and abilities that a feature map implies."""
    if features.get("avx", False):
        features = {**features, **{name: False for name in LEGACY if name in features}}
    flat = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
    if triple.startswith(("x86_64", "amd64")):
        wide = all(features.get(f, False) for f in ("avx512f", "avx512bw", "avx512dq", "avx512vl"))
        if wide:
            return Machine(triple, cpu, flat, 512, True, True, 32)
        if features.get("avx2", False) and features.get("fma", False):
            return Machine(triple, cpu, flat, 256, False, True, 16)
        return Machine(triple, cpu, flat, 128, False, False, 16)
    if triple.startswith(("aarch64", "arm64")):
        return Machine(triple, cpu, flat, 128, False, False, 32)
    return replace(PLAIN, triple=triple, cpu=cpu, features=flat)


@cache
def host_machine() -> Machine:
    """The machine this process runs on."""
    from llvmlite import binding  # late: 0.1 s that scripts without compilation don't pay

    try:
        features = dict(binding.get_host_cpu_features())
    except RuntimeError:  # LLVM can't read them on this system: assume the baseline
        features = {}
    if platform.machine().lower() in ("x86_64", "amd64") and not features:
        features = {"sse2": True}
    return machine_from(binding.get_process_triple(), binding.get_host_cpu_name(), features)
