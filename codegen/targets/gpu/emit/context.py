"""State while one kernel is emitted: what the prologue read, the lane that runs, and a few objects that say what
becomes of what lanes do. These are given when an Emitter is made, and stay.

A `KValue` of dtype bool is a bool, float16 an f16, bfloat16 an f32 (rounded after every operation),
any other its own width; signedness lives in the opcodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Final, Protocol

from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.codegen.kernel.ranges import Ranges
from loopgrad.codegen.targets.gpu.assembler import Assembler, Val, Variable
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions
from loopgrad.codegen.targets.gpu.emit.near_loads import near_loads
from loopgrad.codegen.targets.gpu.emit.outlined import crowded
from loopgrad.codegen.targets.gpu.emit.own_arrays import ArrayPlace, HeldArrays, LocalArray
from loopgrad.graph.errors import DTypeError
from loopgrad.graph.types import DType

NO_VALUE: Final = Val(0, "i64")
SIZE = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "f32": 4, "f64": 8}
# how a register's type is kept in memory of a workgroup, where that isn't the type itself
GROUP_TYPE = {"bool": "i32", "i8": "i32", "i16": "i32", "f16": "f32"}


def register_type(dtype: DType) -> str:
    """The type of a value of that dtype in registers."""
    if dtype.kind == "b":
        return "bool"
    if dtype.bits > 64:
        raise DTypeError(
            f"expected elements of at most 64 bits in a GPU's kernels, got {dtype}; keep real and imaginary parts "
            "as two arrays"
        )
    if dtype.name == "bfloat16":
        return "f32"
    return f"{'f' if dtype.is_float else 'i'}{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """The type of an element in memory."""
    return {"bool": "i8", "bfloat16": "i16"}.get(dtype.name) or register_type(dtype)


@dataclass(frozen=True, slots=True)
class Reporting:
    """Where a kernel reports: reads the addresses of its control block and of the word `void` where they are needed,
    which is seldom and not worth registers. `table`: the address of the launch's table; the words of the two there.
    `failed`: whether a check of the lane failed, where there are checks."""

    table: Val
    words: int
    failed: Variable | None = None

    def control(self, b: Assembler, offset: int) -> Val:
        """The address of a word of the control block."""
        return self._plus(b, self._read(b, self.words), offset)

    def void(self, b: Assembler) -> Val:
        """The address of the word that makes later launches do nothing."""
        return self._read(b, self.words + 1)

    def _read(self, b: Assembler, word: int) -> Val:
        return b.load(self._plus(b, self.table, 8 * word), "i64", invariant=True)

    @staticmethod
    def _plus(b: Assembler, base: Val, bytes: int) -> Val:
        return b.inst("IAdd", "i64", base, b.const("i64", bytes))


@dataclass(frozen=True, slots=True)
class LaneStack:
    """A stack: where this invocation's first element is, the distance to its next one in bytes (i32), how many it may
    hold, how many it holds."""

    base: Val
    pitch: Val
    capacity: Val
    depth: Variable


@dataclass(slots=True)
class LaneStacks:
    """`spilled`: whether a stack of the lane overflowed, where that is known. `sure`: stacks known not to have
    overflowed; `watched`: stacks whose overflow is reported after the loop that pushes them."""

    stacks: Sequence[LaneStack] = ()
    spilled: Variable | None = None
    sure: set[int] = field(default_factory=set)
    watched: set[int] = field(default_factory=set)

    def __getitem__(self, s: int) -> LaneStack:
        return self.stacks[s]


@dataclass(slots=True)
class LoopGuards:
    """`zeros`: two that the compiler doesn't know, where drivers may stop loops. `count`: loops so far."""

    zeros: tuple[Val, Val] | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class KernelTable:
    """What the prologue read: addresses (i64 values) of parameters and scratch blocks, the number of this invocation.
    `partials`: of reductions, the scratch block, the first element there, how far from it its rest. `unknown_zero`: an
    i32 that the compiler doesn't know."""

    params: Sequence[Val] = ()
    scratch: Sequence[Val] = ()
    partials: Sequence[tuple[int, int, int]] = ()
    invocation: Val = NO_VALUE
    unknown_zero: Val | None = None


class Accumulation(Protocol):
    def idle(self, e: Emitter, block: int) -> Val | None:
        """Whether lanes have nothing to do, where all that they do is to add here and that may be so."""
        ...

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        """Combine x with element `index`; `block` is the first scratch block."""
        ...


@dataclass(frozen=True, slots=True)
class SharedParams:
    """Parameters that several lanes write. `ordered`: lanes that share an element run in one invocation, in lane order;
    `copies`: this invocation's own copy of a parameter; others have an accumulation and its first scratch block."""

    ordered: bool = False
    copies: Mapping[int, Val] = field(default_factory=dict)
    accumulations: Mapping[int, tuple[Accumulation, int]] = field(default_factory=dict)


class LaneArray(Protocol):
    """An array in memory of the workgroup, with an element for each lane of a tile. `one`: all of them share one."""

    @property
    def one(self) -> bool: ...

    def get(self, index: Val) -> Val: ...

    def set(self, index: Val, value: Val) -> None: ...


class Contribution(Protocol):
    """Takes what lanes give to reductions. `meets`: terms of several lanes may be given at once."""

    @property
    def meets(self) -> bool: ...

    def add(self, e: Emitter, slot: int, *terms: Val) -> None:
        """One term, or those of several lanes."""
        ...

    def join(self, e: Emitter, slot: int, partial: tuple[Val, ...]) -> None:
        """A total and its rest, of terms that were folded elsewhere."""
        ...


class NoContribution:
    """Of a kernel without reductions."""

    meets = False

    def add(self, e: Emitter, slot: int, *terms: Val) -> None:
        raise AssertionError("the kernel has no reductions")

    def join(self, e: Emitter, slot: int, partial: tuple[Val, ...]) -> None:
        raise AssertionError("the kernel has no reductions")


class Continuation(Protocol):
    """What a kernel that can be left and continued does besides (see resume)."""

    def effect(self, e: Emitter, then: Callable[[], None]) -> None:
        """then(), unless it was done before the lane was left."""
        ...

    def spilled(self, e: Emitter, value: Val) -> Val:
        """The value, or the one that it was before the lane was left."""
        ...

    def enter(self, e: Emitter, variables: Sequence[Variable], types: Sequence[str]) -> Callable[[], None]:
        """A loop with these variables, which have their first values, begins. What is returned comes at the top
        of each trip."""
        ...

    def tick(self, e: Emitter) -> None:
        """A trip of any loop."""
        ...


class RunsThrough:
    """The Continuation of a kernel that isn't left in the middle."""

    def effect(self, e: Emitter, then: Callable[[], None]) -> None:
        then()

    def spilled(self, e: Emitter, value: Val) -> Val:
        return value

    def enter(self, e: Emitter, variables: Sequence[Variable], types: Sequence[str]) -> Callable[[], None]:
        return lambda: None

    def tick(self, e: Emitter) -> None:
        """Nothing is counted."""


NO_TABLE: Final = KernelTable()
NO_ARRAYS: Final[Mapping[int, LaneArray]] = MappingProxyType({})
NO_REPORTS: Final = Reporting(NO_VALUE, 0)
NONE_SHARED: Final = SharedParams()


class Emitter(Instructions):
    """`values`: of the lane that runs, whose number is `lane` and place in its tile `position`. `arrays`: parameters
    that are arrays of the tile, `own_arrays`: those of the lane, which are `held` in device memory if that is given.
    `outlined`: recipes and types that are functions, `near_loads`: loads that are one. `convergent`: all invocations of
    a workgroup come here."""

    def __init__(
        self,
        kernel: Kernel,
        b: Assembler,
        fast: bool = False,
        *,
        table: KernelTable = NO_TABLE,
        reporting: Reporting = NO_REPORTS,
        stacks: LaneStacks | None = None,
        guards: LoopGuards | None = None,
        shared: SharedParams = NONE_SHARED,
        contribution: Contribution | None = None,
        continuation: Continuation | None = None,
        arrays: Mapping[int, LaneArray] = NO_ARRAYS,
        held: HeldArrays | None = None,
    ) -> None:
        super().__init__(b)
        self.kernel, self.fast = kernel, fast
        self.table, self.reporting, self.shared, self.arrays = table, reporting, shared, arrays
        self.stacks = LaneStacks() if stacks is None else stacks
        self.guards = LoopGuards() if guards is None else guards
        self.contribution = NoContribution() if contribution is None else contribution
        self.continuation = RunsThrough() if continuation is None else continuation
        types = [register_type(a.dtype) for a in kernel.arrays]
        sizes = [a.size for a in kernel.arrays]
        self.own_arrays = [self._own_array(GROUP_TYPE.get(t, t), n, held) for t, n in zip(types, sizes, strict=True)]
        self.ranges = Ranges(kernel)
        self.outlined = crowded(kernel) if b.functions else frozenset()
        self.near_loads = near_loads(kernel)
        self.values: dict[KValue, Val] = {}
        self.lane, self.position = NO_VALUE, Val(0, "i32")
        self.convergent = False

    def _own_array(self, type: str, size: int, held: HeldArrays | None) -> ArrayPlace:
        if held is None:
            return LocalArray(self.b, self.b.array_of(type, size), type)
        return held.array(type, size, SIZE[type])

    @property
    def unknown_zero(self) -> Val | None:
        return self.table.unknown_zero

    def get(self, value: KValue) -> Val:
        return self.values[value]

    @contextmanager
    def in_function(self, unknown_zero: Val | None) -> Iterator[None]:
        """What is emitted inside is the code of a function, where nothing of the kernel is known."""
        outer = self.table, self.continuation, self.outlined, self._once, self.unrounded
        self.table, self.continuation = replace(NO_TABLE, unknown_zero=unknown_zero), RunsThrough()
        self.outlined, self._once, self.unrounded = frozenset(), [{}], {}
        yield
        self.table, self.continuation, self.outlined, self._once, self.unrounded = outer

    def restart(self) -> None:
        """A lane begins: its stacks are empty, its checks have held."""
        for flag in (self.reporting.failed, self.stacks.spilled):
            if flag is not None:
                self.b.set(flag, self.b.const("bool", False))
        for stack in self.stacks.stacks:
            self.b.set(stack.depth, self.b.const("i32", 0))

    @contextmanager
    def contributing(self, contribution: Contribution) -> Iterator[None]:
        """What is emitted inside gives its terms there."""
        outer, self.contribution = self.contribution, contribution
        yield
        self.contribution = outer

    def element(self, param: int, index: Val, base: Val | None = None) -> Val:
        """The address of a parameter's element, or of one of its copy at `base`."""
        described = self.kernel.params[param]
        base = self.table.params[param] if base is None else base
        size = SIZE[memory_type(described.dtype)]
        # the parameters of a kernel of one lane may be longer than they say
        if not self.b.short_offsets or prod(self.kernel.domain) == 1 or described.size * size >= 1 << 32:
            return self.at(base, index, size)
        if index in self.ahead:
            near, distance = self.ahead[index]
            return self.offset(self.element(param, near, base), distance * size)
        near, distance = self.b.apart(index)
        if distance and (described.size + abs(distance)) * size < 1 << 31:
            known = (base, near, size)
            (place,) = self.once(
                known, lambda: (self.offset(base, self.resize(self._short_offset(near, size), "i64")),)
            )
            return self.offset(place, distance * size)
        return self.offset(base, self.resize(self._short_offset(index, size), "i64", signed=False))

    def _short_offset(self, index: Val, size: int) -> Val:
        """Bytes to that element, in 32 bits."""
        offset = self.resize(index, "i32")
        if size == 1:
            return offset
        return self.b.inst("ShiftLeftLogical", "i32", offset, self.b.const("i32", size.bit_length() - 1))
