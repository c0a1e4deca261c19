"""State while one kernel is emitted, and the few instruction sequences that everything uses.

A `KValue` of dtype bool is a SPIR-V bool, float16 an f16, bfloat16 an f32 (rounded after every operation),
any other its own width; signedness lives in the opcodes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from loopgrad.codegen.kernel.nodes import Kernel, KValue
from loopgrad.codegen.targets.spirv.assembly import PHYSICAL, Assembler, Val
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.graph.types import DType

SIZE = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "f32": 4, "f64": 8}


def register_type(dtype: DType) -> str:
    """The type of a value of that dtype in registers."""
    if dtype.kind == "b":
        return "bool"
    if dtype.name == "bfloat16":
        return "f32"
    return f"{'f' if dtype.is_float else 'i'}{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """The type of an element in memory."""
    return {"bool": "i8", "bfloat16": "i16"}.get(dtype.name) or register_type(dtype)


class Emitter:
    """`params[p]`, `scratch[i]`, `stacks[s]` are addresses (i64 values) of this kernel's tables."""

    def __init__(self, kernel: Kernel, features: Features, fast: bool) -> None:
        self.kernel = kernel
        self.features = features
        self.fast = fast
        self.b = Assembler()
        self.values: dict[KValue, Val] = {}
        self.params: list[Val] = []
        self.scratch: list[Val] = []
        self.stacks: list[Val] = []
        self.capacities: list[Val] = []
        self.depths: list[int] = []
        self.control = self.void = Val(0, "i64")
        self.lane = self.invocation = self.resident = Val(0, "i64")
        self.copies: dict[int, Val] = {}
        self.guards: tuple[int, tuple[Val, Val]] | None = None
        self.guard_count = 0
        self.ordered = False  # lanes that share an element run in one invocation, in lane order
        self._once: list[dict[Hashable, tuple[Val, ...]]] = [{}]

    def get(self, value: KValue) -> Val:
        return self.values[value]

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

    def floating(self, name: str, type: str, *operands: Val) -> Val:
        """Float arithmetic: contracted and reassociated only where that was asked for."""
        return (self.b.inst if self.fast else self.b.exact)(name, type, *operands)

    def select(self, pred: Val, x: Val, y: Val) -> Val:
        return self.b.inst("Select", x.type, pred, x, y)

    def both(self, m: Val, n: Val) -> Val:
        return self.b.inst("LogicalAnd", "bool", m, n)

    def either(self, m: Val, n: Val) -> Val:
        return self.b.inst("LogicalOr", "bool", m, n)

    def resize(self, x: Val, type: str, signed: bool = True) -> Val:
        """An integer in another width."""
        if x.type == type:
            return x
        if signed and x.type == "i32" and type == "i64" and not self.features.widening:
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
        """The address of element `index`."""
        return self.offset(base, self.b.inst("IMul", "i64", index, self.b.const("i64", size)))

    def offset(self, base: Val, bytes: Val | int) -> Val:
        step = self.b.const("i64", bytes) if isinstance(bytes, int) else bytes
        return self.b.inst("IAdd", "i64", base, step)

    def cell(self, address: Val, type: str) -> int:
        """A pointer to one value of `type`."""
        pointer = self.b.pointer(PHYSICAL, self.b.type(type))
        return self.b.raw("ConvertUToPtr", pointer, address.id)

    def peek(self, address: Val, type: str) -> Val:
        self._storage(type)
        pointer = self.cell(address, type)
        return Val(self.b.raw("Load", self.b.type(type), pointer, 2, SIZE[type]), type)

    def poke(self, address: Val, value: Val) -> None:
        self._storage(value.type)
        self.b.put("Store", self.cell(address, value.type), value.id, 2, SIZE[value.type])

    def _storage(self, type: str) -> None:
        name = {1: "StorageBuffer8BitAccess", 2: "StorageBuffer16BitAccess"}.get(SIZE[type])
        if name is not None:
            self.b.capabilities[name] = None

    def atomic(self, name: str, address: Val, value: Val) -> Val:
        """A relaxed atomic of device scope; the old value."""
        device, relaxed = self.b.const("i32", 1), self.b.const("i32", 0)
        if value.type == "i64":
            self.b.capabilities["Int64Atomics"] = None
        pointer = self.cell(address, value.type)
        kind = self.b.type(value.type)
        return Val(self.b.raw(name, kind, pointer, device.id, relaxed.id, value.id), value.type)

    # structure

    def when(self, condition: Val, then: Callable[[], None]) -> None:
        """`then()` where the condition holds."""
        inside, after = self.b.fresh(), self.b.fresh()
        self.b.put("SelectionMerge", after, 0)
        self.b.branch(condition, inside, after)
        self.b.start(inside)
        with self.nested():
            then()
        self.b.jump(after)
        self.b.start(after)

    def choose(
        self, condition: Val, then: Callable[[], tuple[Val, ...]], other: Callable[[], tuple[Val, ...]]
    ) -> tuple[Val, ...]:
        """The values of one of two branches."""
        inside, outside, after = self.b.fresh(), self.b.fresh(), self.b.fresh()
        self.b.put("SelectionMerge", after, 0)
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
