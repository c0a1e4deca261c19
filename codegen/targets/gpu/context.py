"""State while one kernel is emitted, and the few instruction sequences that everything uses.

A `KValue` of dtype bool is a bool, float16 an f16, bfloat16 an f32 (rounded after every operation),
any other its own width; signedness lives in the opcodes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from loopgrad.codegen.kernel.nodes import Kernel, KValue
from loopgrad.codegen.targets.gpu.assembler import Assembler, Val, Variable
from loopgrad.codegen.targets.gpu.ranges import Ranges
from loopgrad.graph.errors import DTypeError
from loopgrad.graph.types import DType

if TYPE_CHECKING:
    from loopgrad.codegen.targets.gpu.accumulate import Accumulation

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


class Emitter:
    """`params[p]`, `scratch[i]` are addresses (i64 values) of this kernel's tables. `stacks[s]` is where this
    invocation's first element of a stack is, `rows[s]` the distance to its next one in bytes, in 32 bits.
    `control()` and `void()` read the addresses of the control block and of the word `void` where they are needed,
    which is seldom and not worth registers."""

    def __init__(self, kernel: Kernel, b: Assembler, fast: bool = False) -> None:
        self.kernel = kernel
        self.fast = fast
        self.b = b
        self.values: dict[KValue, Val] = {}
        self.params: list[Val] = []
        self.scratch: list[Val] = []
        self.stacks: list[Val] = []
        self.rows: list[Val] = []
        self.capacities: list[Val] = []
        self.depths: list[Variable] = []
        self.control: Callable[[], Val] = lambda: Val(0, "i64")
        self.void: Callable[[], Val] = lambda: Val(0, "i64")
        self.lane = self.invocation = self.resident = Val(0, "i64")
        self.copies: dict[int, Val] = {}
        self.failed: Variable | None = b.local("bool") if kernel.errors else None  # a check of the lane
        self.spilled: Variable | None = b.local("bool") if kernel.stacks else None  # a stack of the lane overflowed
        self.sure: set[int] = set()  # stacks known not to have overflowed
        self.watched: set[int] = set()  # stacks whose overflow is reported after the loop that pushes them
        self.ranges = Ranges(kernel)
        self.guards: tuple[Val, Val] | None = None  # zeros that the compiler doesn't know
        self.unknown_zero: Val | None = None  # likewise, an i32
        self.guard_count = 0
        self.ahead: dict[Val, tuple[Val, int]] = {}  # numbers that are others and a known distance
        self.ordered = False  # lanes that share an element run in one invocation, in lane order
        self.position = Val(0, "i32")  # of the lane in its tile
        self.accumulations: dict[int, Accumulation] = {}  # of parameters that several lanes write
        # of reductions: the scratch block, the first element there, how far from it its rest
        self.places: list[tuple[int, int, int]] = []
        # take what `reduce` is given: a term, or those of several lanes where these `meet`; a total and its rest
        self.contribute: Callable[..., None] = lambda _slot, *_terms: None
        self.join: Callable[[int, tuple[Val, ...]], None] = lambda _slot, _partial: None
        self.meet = False
        # what a kernel that can be left and continued does besides (see resume)
        self.effect: Callable[[Callable[[], None]], None] = lambda then: then()
        self.kept: Callable[[Val], Val] = lambda value: value
        self.enter: Callable[[Sequence[Variable], Sequence[str]], Callable[[], None]] = lambda _v, _t: lambda: None
        self.tick: Callable[[], None] = lambda: None
        self._once: list[dict[Hashable, tuple[Val, ...]]] = [{}]

    def get(self, value: KValue) -> Val:
        return self.values[value]

    def restart(self) -> None:
        """A lane begins: its stacks are empty, its checks have held."""
        for flag in (self.failed, self.spilled):
            if flag is not None:
                self.b.set(flag, self.b.const("bool", False))
        for depth in self.depths:
            self.b.set(depth, self.b.const("i32", 0))

    # scopes of shared results

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Instructions inside needn't run: what they compute isn't known afterwards."""
        self._once.append({})
        yield
        self._once.pop()

    def once(self, key: Hashable, make: Callable[[], tuple[Val, ...]]) -> tuple[Val, ...]:
        for known in self._once:
            if key in known:
                return known[key]
        result = self._once[-1][key] = make()
        return result

    # arithmetic

    def select(self, pred: Val, x: Val, y: Val) -> Val:
        return self.b.inst("Select", x.type, pred, x, y)

    def bound_integer(self, x: Val, limit: int) -> Val:
        """The smaller of a number that isn't negative and a constant."""
        end = self.b.const(x.type, limit)
        return self.select(self.b.inst("ULessThan", "bool", x, end), x, end)

    def both(self, m: Val, n: Val) -> Val:
        return self.b.inst("LogicalAnd", "bool", m, n)

    def either(self, m: Val, n: Val) -> Val:
        return self.b.inst("LogicalOr", "bool", m, n)

    def resize(self, x: Val, type: str, signed: bool = True) -> Val:
        """An integer in another width."""
        if x.type == type:
            return x
        if signed and x.type == "i32" and type == "i64" and not self.b.widens:
            return self._extended(x)
        return self.b.inst("SConvert" if signed else "UConvert", type, x)

    def _extended(self, x: Val) -> Val:
        """The sign extended by arithmetic, in a form that no compiler takes for a conversion."""
        top = self.b.const("i64", 1 << 31)
        wide = self.b.inst("UConvert", "i64", x)
        return self.b.inst("ISub", "i64", self.b.inst("BitwiseXor", "i64", wide, top), top)

    def bitcast(self, x: Val, type: str) -> Val:
        return self.b.inst("Bitcast", type, x)

    # memory

    def at(self, base: Val, index: Val, size: int) -> Val:
        """The address of element `index`; known distances are added last, where loads and stores take them for free."""
        if index in self.ahead:
            near, distance = self.ahead[index]
            return self.offset(self.at(base, near, size), distance * size)
        return self.offset(base, self.b.inst("IMul", "i64", index, self.b.const("i64", size)))

    def element(self, param: int, index: Val, base: Val | None = None) -> Val:
        """The address of a parameter's element, or of one of its copy at `base`."""
        described = self.kernel.params[param]
        base = self.params[param] if base is None else base
        size = SIZE[memory_type(described.dtype)]
        # the parameters of a kernel of one lane may be longer than they say
        if not self.b.short_offsets or prod(self.kernel.domain) == 1 or described.size * size >= 1 << 32:
            return self.at(base, index, size)
        if index in self.ahead:
            near, distance = self.ahead[index]
            return self.offset(self.element(param, near, base), distance * size)
        offset = self.resize(index, "i32")
        if size > 1:
            offset = self.b.inst("ShiftLeftLogical", "i32", offset, self.b.const("i32", size.bit_length() - 1))
        return self.offset(base, self.resize(offset, "i64", signed=False))

    def offset(self, base: Val, bytes: Val | int) -> Val:
        step = self.b.const("i64", bytes) if isinstance(bytes, int) else bytes
        return self.b.inst("IAdd", "i64", base, step)

    # structure

    def when(self, condition: Val, then: Callable[[], None]) -> None:
        """`then()` where the condition holds."""
        inside, after = self.b.block(), self.b.block()
        self.b.merge(after)
        self.b.branch(condition, inside, after)
        self.b.start(inside)
        with self.nested():
            then()
        self.b.jump(after)
        self.b.start(after)

    def one_of(self, condition: Val, then: Callable[[], None], other: Callable[[], None]) -> None:
        """`then()` where the condition holds, `other()` elsewhere."""

        def branch(make: Callable[[], None]) -> tuple[Val, ...]:
            make()
            return ()

        self.choose(condition, lambda: branch(then), lambda: branch(other))

    def choose(
        self, condition: Val, then: Callable[[], tuple[Val, ...]], other: Callable[[], tuple[Val, ...]]
    ) -> tuple[Val, ...]:
        """The values of one of two branches."""
        inside, outside, after = self.b.block(), self.b.block(), self.b.block()
        self.b.merge(after)
        self.b.branch(condition, inside, outside)
        results, ends = [], []
        for label, make in ((inside, then), (outside, other)):
            self.b.start(label)
            with self.nested():
                results.append(make())
            ends.append(self.b.label)
            self.b.jump(after)
        self.b.start(after)
        pairs = zip(*results, strict=True)
        return tuple([self.b.phi(x.type, (x, ends[0]), (y, ends[1])) for x, y in pairs])
