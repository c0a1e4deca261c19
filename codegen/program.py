"""A Program: everything the runtime sees of a compiled graph.

Slots are arrays of static size, addressed through one pointer table; steps run in order. Inputs and
outputs come first in `slots`. Loops over steps rotate pointers, so carried tensors aren't copied.

What a target makes of a Program holds these same classes (see codec.py). A GPU's says in `by` which of its support
launches does a step that is no kernel of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.graph.nodes import Location
from loopgrad.graph.types import TensorType

HOST: Final = "NumPy, on the host"  # as who does a library routine
NO_LIBRARIES: Final[Mapping[str, str]] = MappingProxyType({})
ALIGNMENT: Final = 64  # bytes, of constants and of memory on the CPU


@dataclass(frozen=True, slots=True)
class ArraySlot:
    """kind: input, output, temp, or constant (then `constant` is where its bytes begin in the program's constants)."""

    type: TensorType
    kind: str
    constant: int | None = None


@dataclass(frozen=True, slots=True)
class Initial:
    """What an accumulate parameter starts from: a slot's elements, or one value everywhere. `included`: kernels of the
    launch itself see to it."""

    source: int | None
    value: float | int | bool = 0
    by: int | None = None
    included: bool = False


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """Run kernels[kernel]; `slots[i]` backs its i-th parameter; `initials` are applied first, on
    every launch (also when it is repeated after a stack grew)."""

    kernel: int
    slots: tuple[int, ...]
    initials: tuple[tuple[int, Initial], ...] = ()

    @property
    def to_apply(self) -> tuple[tuple[int, Initial], ...]:
        """The initials that are work of their own: a slot that starts as itself is as it should be."""
        found = [(i, start) for i, start in self.initials if start.source != self.slots[i]]
        return tuple([(i, start) for i, start in found if not start.included])


@dataclass(frozen=True, slots=True)
class CopyStep:
    source: int
    target: int
    by: int | None = None


@dataclass(frozen=True, slots=True)
class MatmulStep:
    """out[b] = op(left[b]) @ op(right[b]), row-major; op transposes where the flag is set. `epilogue`: a launch that
    follows, lane by lane, and that whoever multiplies may do before an element leaves it; then `out` is only written
    where it is `stored`. `units`: matrix units make it, where a kernel of our own does."""

    left: int
    right: int
    out: int
    batch: int
    m: int
    k: int
    n: int
    transpose_left: bool = False
    transpose_right: bool = False
    by: int | None = None
    epilogue: LaunchStep | None = None
    stored: bool = True
    units: bool = False


@dataclass(frozen=True, slots=True)
class RoutineLaunch:
    """One launch of a routine: `by` is a support launch, `slots` are its arrays in the order of its parameters."""

    by: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoutineCall:
    """How a library of the device does a routine: it takes the slots `inputs` and makes `outputs`, between launches
    that make ready what it takes and finish what it made."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    before: tuple[RoutineLaunch, ...] = ()
    after: tuple[RoutineLaunch, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutineStep:
    """A library routine, a primitive of the graph by its name, on whole slots; `attrs` are sorted pairs. A GPU's
    `launches` do it one after the other, or a library of the device in the way of `call`; without either the host calls
    NumPy (runtime.cpu.host_calls). `scratch`: slots that it writes besides, what launches need, or the results of a
    collective that is under way from here on."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: tuple[tuple[str, object], ...] = ()
    scratch: tuple[int, ...] = ()
    launches: tuple[RoutineLaunch, ...] | None = None
    call: RoutineCall | None = None

    @property
    def by_host(self) -> bool:
        """Whether nobody else does it."""
        return self.launches is None and self.call is None


@dataclass(frozen=True, slots=True)
class ReserveStep:
    """Make room on `stack` for as many more tensors as slot `depth` (one int64) says, or refuse: a
    depth known ahead fails before the loop runs, and costs no growth."""

    stack: int
    depth: int


@dataclass(frozen=True, slots=True)
class PushStep:
    """Append the slot's tensor to program stack `stack` (grows geometrically). `in_place`: append a row that later
    steps write, which is what the slot is from here on."""

    stack: int
    slot: int
    by: int | None = None
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class PopStep:
    """Remove the top tensor of `stack`; `slot` then points at it until the next push."""

    stack: int
    slot: int


@dataclass(frozen=True, slots=True)
class ForStep:
    """count: slot of one integer; index: slot of one integer set before each pass (same dtype).
    After each pass the slots `rotate = ((carry, new), ...)` swap pointers."""

    count: int
    index: int
    body: tuple[Step, ...]
    rotate: tuple[tuple[int, int], ...]
    reverse: bool
    loc: Location | None


@dataclass(frozen=True, slots=True)
class WhileStep:
    """Runs `condition`, reads slot `pred` (one bool), runs `body`, rotates, repeats."""

    condition: tuple[Step, ...]
    pred: int
    body: tuple[Step, ...]
    rotate: tuple[tuple[int, int], ...]
    max_steps: int | None
    loc: Location | None


@dataclass(frozen=True, slots=True)
class SwitchStep:
    """index: slot of one integer or bool, clamped to the branches."""

    index: int
    branches: tuple[tuple[Step, ...], ...]


Step = (
    LaunchStep
    | CopyStep
    | MatmulStep
    | RoutineStep
    | ReserveStep
    | PushStep
    | PopStep
    | ForStep
    | WhileStep
    | SwitchStep
)


@dataclass(frozen=True, slots=True)
class ProgramStack:
    """A stack of whole tensors, pushed and popped by steps (uniform loops), for a row of the saved values."""

    element: TensorType
    name: str
    loc: Location | None
    residual: int = 0


@dataclass(frozen=True, slots=True)
class Residual:
    """One row of `plan`: what a loop's reverse pass saves, on one stack or on one for each scalar of a lane."""

    name: str
    element: TensorType
    formula: str
    reason: str
    place: str  # kernel | program
    loc: Location | None


@dataclass(frozen=True, slots=True)
class RoutineRow:
    """One row of `plan`: a library routine, or lanes of a kernel that meet in elements; what it works on, who does it
    or how, and why nobody faster."""

    name: str
    operands: str
    provider: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name} of {self.operands}: {self.provider}{f' ({self.reason})' if self.reason else ''}"


@dataclass(frozen=True, slots=True)
class Program:
    """`inputs` and `outputs` are slot numbers; the same slot may be returned twice. `constants`: the bytes of all
    constant slots, each aligned to ALIGNMENT."""

    slots: tuple[ArraySlot, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...]
    stacks: tuple[ProgramStack, ...] = ()
    residuals: tuple[Residual, ...] = ()
    notes: tuple[str, ...] = ()  # announced fallbacks, for explain() and plan()
    constants: bytes = b""
    libraries: tuple[tuple[str, str], ...] = ()  # routines that the device has libraries for, and those
