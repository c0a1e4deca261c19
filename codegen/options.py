"""What a caller may choose about how a graph is compiled. Part of every cache key."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Final

from loopgrad.graph.errors import explained

PUBLIC: Final = "Options"

FULL_PRECISION: Final = "float32"
SCANS: Final = "scans by any function"  # a routine of GPUs (see codegen.schedule.associative_scans)
IN_COLUMNS: Final = "small matrices in columns"  # a routine of GPUs (see codegen.factorisations.in_columns)
LONG_COLUMNS: Final = "long columns"  # of a target whose workgroups can have 1,024 invocations
LANE_BYTES: Final = 11 << 14  # for the arrays of one lane, where a target has no less
PRECISIONS: Final = (FULL_PRECISION, "tf32", "bfloat16")


class OwnProducts(Enum):
    """Which products of matrices a target's own kernels do, rather than a library or routine that is called."""

    NONE = "none"
    IN_LOOPS = "in programs with loops or branches"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Options:
    """`stack_capacity` forces the depth of every kernel-local stack (no growth: exceeding it
    raises StackCapacityError). `check_indices` makes gathers and scatters raise where an index is
    out of range instead of clamping or dropping. `fast_math` allows reassociation and approximate
    functions. `sort_lanes` allows processing the lanes of a tile in the order of their trip counts,
    which are known or, on a GPU, measured (same result, other order). `deterministic=False` lets a GPU's lanes that
    add floats to shared elements do so by float atomics where it has them, in any order: faster, but every addition
    is rounded, and bits may differ from run to run. `direct=False` compiles every program before its first run; small
    ones that nobody has seen run operation by operation otherwise, to the same bits. `fast_collectives` lets the engine
    of a mesh add up sums of floats in its own order: less is sent, and bits depend on the number of processes.
    `libraries=False` keeps GPUs from calling a vendor's libraries (cuBLAS, cuFFT, cuSOLVER and their like): own
    kernels do all that they do, or, where there are none, the host. `matmul_precision="tf32"` or `"bfloat16"` lets a
    library multiply matrices of float32 with that many digits of each factor (11 or 8 bits), added up in float32, which
    CUDA's tensor cores do faster, and attention and large convolutions with 11 bits; `plan()` says for which."""

    stack_capacity: int | None = None
    check_indices: bool = False
    fast_math: bool = False
    sort_lanes: bool = True
    deterministic: bool = True
    direct: bool = True
    fast_collectives: bool = False
    libraries: bool = True
    matmul_precision: str = FULL_PRECISION

    def check(self) -> None:
        """Refuse values of other types."""
        capacity = self.stack_capacity
        if capacity is not None and (type(capacity) is not int or capacity < 0):
            fix = "leave it out to let stacks grow"
            raise TypeError(explained("options", "stack_capacity as an int of at least 0", repr(capacity), fix))
        for name in [f.name for f in fields(self) if f.type == "bool"]:
            value = getattr(self, name)
            if type(value) is not bool:
                raise TypeError(explained("options", f"{name} as a bool", repr(value), "pass True or False"))
        if self.matmul_precision not in PRECISIONS:
            expected = f"matmul_precision as one of {', '.join(map(repr, PRECISIONS))}"
            fix = "leave it out to multiply with all digits"
            raise TypeError(explained("options", expected, repr(self.matmul_precision), fix))

    def key(self) -> str:
        """A text that two Options share which give the same code."""
        return ",".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name != "direct")


DEFAULT_OPTIONS = Options()
