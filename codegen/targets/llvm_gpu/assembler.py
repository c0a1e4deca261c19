"""LLVM's `Assembler`: the emitter's instructions as the text of one function for one kernel.

Variables are stack slots in the entry block, which LLVM promotes to registers. No float instruction gets a
fast-math flag unless fast_math asks for it, so LLVM contracts and reassociates nothing; no loop is marked as
one that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import (
    VECTOR_BYTES,
    HandedWords,
    MatrixUnits,
    SubgroupMatrices,
    Val,
    WarpgroupUnits,
)
from loopgrad.codegen.targets.gpu.emit.context import SIZE
from loopgrad.codegen.targets.llvm_gpu.flavour import FAST, Flavour
from loopgrad.codegen.targets.llvm_gpu.opcodes import ATOMIC
from loopgrad.codegen.targets.llvm_gpu.spelling import literal, llvm_type, number_in, result_type, vector_types
from loopgrad.codegen.targets.llvm_rows import BINARY, COMPLETED, CONVERT, FLOAT_BINARY, FUNCTION, RESIZE

WORDS: Final = ("table", "across", "along", "first", "end", "lanes")


class LlvmAssembler:
    """Implements codegen.targets.gpu.assembler.Assembler. `symbol` is the function's name and begins those of
    its arrays. `declarations`: of what the function needs; functions of one module share them."""

    fused = True
    rearranges = flushes = False
    widens = True
    guarded = False
    functions = True
    trips_at_once = 1
    neighbours, hand_on, wide_sums = 1, False, False
    short_offsets = False  # the processors multiply 32-bit numbers and add a 64-bit one at once
    float_sums: tuple[str, ...] = ("f32", "f64")

    @property
    def shared_quotients(self) -> tuple[str, ...]:
        return ()

    def usual_quotients(self, pairs: Sequence[tuple[Val, Val]], zeros: bool = False) -> tuple[Sequence[Val], Val]:
        return [self.exact("FDiv", x.type, x, y) for x, y in pairs], self.const("bool", True)

    @property
    def handed_words(self) -> HandedWords | None:
        return LlvmHandedWords(self) if self.flavour.waits else None

    @property
    def matrix_units(self) -> MatrixUnits | None:
        return None

    @property
    def subgroup_matrices(self) -> SubgroupMatrices | None:
        return None

    @property
    def warpgroup_units(self) -> WarpgroupUnits | None:
        return None

    def __init__(self, flavour: Flavour, symbol: str, group: int, fast: bool = False) -> None:
        self.flavour = flavour
        self.symbol = symbol
        self.group = group
        self.fast = fast
        self.label = "entry"
        self.shared_bytes = 0
        self._asked_alignment = 0
        self.asks = False  # whether launches ask for that memory
        self.declarations: dict[str, None] = {}
        self._globals: list[str] = []
        self._locals: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._functions: dict[str, Sequence[str]] = {}  # name -> the types of its results

    # text

    def _put(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def _name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def _value(self, type: str, text: str) -> Val:
        name = self._name()
        self._lines.append(f"  {name} = {text}")
        return Val(name, type)

    def _call(self, function: str, type: str, *operands: Val, flags: str = "") -> Val:
        """A function of LLVM's on operands of the result's type."""
        kind = llvm_type(type)
        name = f"@llvm.{function}.{type}"
        self.declarations[f"declare {kind} {name}({', '.join([kind] * len(operands))})"] = None
        return self._value(type, f"call {flags}{kind} {name}({', '.join(f'{kind} {v.id}' for v in operands)})")

    def call(self, function: str, *operands: Val) -> None:
        """A function of the target's library, for what it does."""
        types = ", ".join(llvm_type(v.type) for v in operands)
        self.declarations[f"declare void @{function}({types})"] = None
        self._put(f"call void @{function}({', '.join(f'{llvm_type(v.type)} {v.id}' for v in operands)})")

    # values

    def const(self, type: str, value: float | int | bool) -> Val:
        return Val(literal(type, value), type)

    def apart(self, index: Val) -> tuple[Val, int]:
        return index, 0

    def is_constant(self, value: Val) -> bool:
        return not value.id.startswith("%")

    def inst(self, name: str, type: str, *operands: Val) -> Val:
        return self._instruction(name, type, operands, FAST if self.fast else "")

    def exact(self, name: str, type: str, *operands: Val) -> Val:
        return self._instruction(name, type, operands, "")

    def wide_product(self, x: Val, y: Val) -> tuple[Val, Val]:
        return self._halves(self.inst("IMul", "i64", *[self.inst("UConvert", "i64", v) for v in (x, y)]))

    def nearest_bfloats(self, lower: Val, upper: Val) -> Val | None:
        return None

    def upper_halves(self, lower: Val, upper: Val) -> Val:
        x, y = [self.inst("Bitcast", "i32", v) for v in (lower, upper)]
        below = self.inst("ShiftRightLogical", "i32", x, self.const("i32", 16))
        return self.inst("BitwiseOr", "i32", below, self.inst("BitwiseAnd", "i32", y, self.const("i32", -1 << 16)))

    def extreme(self, name: str, x: Val, y: Val) -> Val | None:
        return None

    def own(self, name: str, *operands: Val) -> Val | None:
        return None

    def near_quotient(self, x: Val, y: Val) -> Val | None:
        return None

    def known(self, x: Val) -> float | None:
        return number_in(x.id, x.type)

    def near_inverse(self, y: Val) -> Val | None:
        return None

    def near_exp(self, x: Val) -> Val | None:
        return None

    def for_half(self, name: str, half: str, *operands: Val) -> Val | None:
        return None

    def _halves(self, wide: Val) -> tuple[Val, Val]:
        upper = self.inst("ShiftRightLogical", "i64", wide, self.const("i64", 32))
        return self.inst("UConvert", "i32", upper), self.inst("UConvert", "i32", wide)

    def _instruction(self, name: str, type: str, operands: tuple[Val, ...], flags: str) -> Val:
        first = operands[0]
        if name in BINARY:
            return self._value(type, f"{BINARY[name]} {llvm_type(first.type)} {first.id}, {operands[1].id}")
        kind = llvm_type(type)
        if name in FLOAT_BINARY:
            return self._value(type, f"{FLOAT_BINARY[name]} {flags}{kind} {first.id}, {operands[1].id}")
        if name in CONVERT:
            return self._value(type, f"{CONVERT[name]} {llvm_type(first.type)} {first.id} to {kind}")
        if name == "Select":
            return self._value(type, f"select i1 {first.id}, {kind} {operands[1].id}, {kind} {operands[2].id}")
        if name == "FNegate":
            return self._value(type, f"fneg {flags}{kind} {first.id}")
        if name == "IsNan":
            return self._value(type, f"fcmp uno {llvm_type(first.type)} {first.id}, {first.id}")
        if name in RESIZE:
            return self._resized(name, type, first)
        if name in COMPLETED:
            name, value = COMPLETED[name]
            return self._instruction(name, type, (*operands, self.const(type, value)), flags)
        raise ValueError(f"expected an opcode of the assembler, got {name!r}")

    def _resized(self, name: str, type: str, x: Val) -> Val:
        if x.type == type:
            return x
        narrower, wider = RESIZE[name]
        how = narrower if SIZE[x.type] > SIZE[type] else wider
        return self._value(type, f"{how} {llvm_type(x.type)} {x.id} to {llvm_type(type)}")

    def extended(self, name: str, type: str, *operands: Val) -> Val:
        return self._call(FUNCTION[name], type, *operands, flags=FAST if self.fast and name == "Sqrt" else "")

    def approximate(self, name: str, type: str, *operands: Val) -> Val | None:
        if type != "f32" or name not in self.flavour.quick:
            return None
        before, function, after = self.flavour.quick[name]
        (x,) = operands
        if before != 1:
            x = self.inst("FMul", type, x, self.const(type, before))
        x = self._value(type, f"call {FAST}float @{function}(float {x.id})")
        self.declarations[f"declare float @{function}(float)"] = None
        return x if after == 1 else self.inst("FMul", type, x, self.const(type, after))

    def opaque(self, x: Val) -> Val:
        return x

    def lookup(self, type: str, values: tuple[int, ...], first: Val, count: int) -> list[Val]:
        """Kernels of one module share it: memory for constants is small."""
        kind = llvm_type(type)
        elements = ", ".join(f"{kind} {literal(type, v)}" for v in values)
        name = f"@table.{blake2b(elements.encode(), digest_size=8).hexdigest()}"
        space = self.flavour.space(self.flavour.constant)
        self.declarations[f"{name} = internal {space} constant [{len(values)} x {kind}] [{elements}]"] = None
        places = [self.inst("IAdd", first.type, first, self.const(first.type, n)) for n in range(count)]
        return [self._read(self._cell(self.flavour.constant, name, type, place), type) for place in places]

    # variables of one invocation

    def local(self, type: str) -> str:
        name, space = self._name(), self.flavour.space(self.flavour.local)
        self._locals.append(f"  {name} = alloca {llvm_type(type)}{', ' * bool(space)}{space}")
        return f"{self.flavour.local} {name}"

    def get(self, variable: str, type: str) -> Val:
        return self._value(type, f"load {llvm_type(type)}, {variable}")

    def set(self, variable: str, value: Val) -> None:
        self._put(f"store {llvm_type(value.type)} {value.id}, {variable}")

    def array_of(self, type: str, count: int) -> str:
        name, space = self._name(), self.flavour.space(self.flavour.local)
        kind = f"[{count} x {llvm_type(type)}]"
        self._locals.append(f"  {name} = alloca {kind}, align {SIZE[type]}{', ' * bool(space)}{space}")
        return name

    def array_get(self, array: str, index: Val, type: str) -> Val:
        return self._read(self._cell(self.flavour.local, array, type, index), type)

    def array_set(self, array: str, index: Val, value: Val) -> None:
        self._write(self._cell(self.flavour.local, array, value.type, index), value)

    def guard_get(self, index: Val) -> Val:
        """Nobody stops loops here."""
        return self.const("i32", 0)

    def guard_set(self, index: Val, value: Val) -> None:
        """As above: there is nothing to note."""

    # memory

    def _address(self, address: Val) -> str:
        memory, name = self.flavour.memory, self._name()
        self._put(f"{name} = inttoptr i64 {address.id} to {memory}")
        return f"{memory} {name}"

    def _cell(self, pointer: str, array: str, type: str, index: Val) -> str:
        name = self._name()
        self._put(f"{name} = getelementptr {llvm_type(type)}, {pointer} {array}, {index.type} {index.id}")
        return f"{pointer} {name}"

    def _read(self, place: str, type: str, more: str = "") -> Val:
        return self._value(type, f"load {llvm_type(type)}, {place}, align {SIZE[type]}{more}")

    def _write(self, place: str, value: Val) -> None:
        self._put(f"store {llvm_type(value.type)} {value.id}, {place}, align {SIZE[value.type]}")

    def load(self, address: Val, type: str, invariant: bool = False) -> Val:
        return self._read(self._address(address), type, ", !invariant.load !0" if invariant else "")

    def store(self, address: Val, value: Val) -> None:
        self._write(self._address(address), value)

    def load_vector(self, address: Val, type: str, count: int, invariant: bool = False) -> list[Val]:
        _, words, bytes = vector_types(type, count)
        return self._elements(self._load_words(address, words, bytes, invariant), type, count)

    def _elements(self, loaded: str, type: str, count: int) -> list[Val]:
        """Of words."""
        kind, words, _ = vector_types(type, count)
        vector = self._recast(loaded, words, kind)
        return [self._value(type, f"extractelement {kind} {vector}, i32 {i}") for i in range(count)]

    def store_vector(self, address: Val, values: Sequence[Val]) -> None:
        self._store_vector(self._address(address), values)

    def _store_vector(self, place: str, values: Sequence[Val]) -> None:
        kind, words, bytes = vector_types(values[0].type, len(values))
        vector = "poison"
        for i, x in enumerate(values):
            name = self._name()
            self._put(f"{name} = insertelement {kind} {vector}, {llvm_type(x.type)} {x.id}, i32 {i}")
            vector = name
        self._put(f"store {words} {self._recast(vector, kind, words)}, {place}, align {bytes}")

    def _load_words(self, address: Val, words: str, bytes: int, invariant: bool) -> str:
        more = ", !invariant.load !0" if invariant else ""
        name, place = self._name(), self._address(address)
        self._put(f"{name} = load {words}, {place}, align {bytes}{more}")
        return name

    def _recast(self, value: str, kind: str, wanted: str) -> str:
        if kind == wanted:
            return value
        name = self._name()
        self._put(f"{name} = bitcast {kind} {value} to {wanted}")
        return name

    def atomic(self, name: str, address: Val, value: Val) -> Val:
        return self._atomic(name, self._address(address), value, self.flavour.device)

    def _atomic(self, name: str, place: str, value: Val, scope: str) -> Val:
        kind, how = llvm_type(value.type), ATOMIC[name]
        text = f"atomicrmw {how} {place}, {kind} {value.id} {scope}monotonic, align {SIZE[value.type]}"
        return self._value(value.type, text + (self.flavour.atomic_float if how == "fadd" else ""))

    def compare_exchange(self, address: Val, expected: Val, desired: Val) -> Val:
        kind, place = llvm_type(desired.type), self._address(address)
        scope = f"{self.flavour.device}monotonic monotonic, align {SIZE[desired.type]}"
        pair = self._value(desired.type, f"cmpxchg {place}, {kind} {expected.id}, {kind} {desired.id} {scope}")
        return self._value(desired.type, f"extractvalue {{ {kind}, i1 }} {pair.id}, 0")

    # blocks

    def block(self) -> str:
        self._count += 1
        return f"b{self._count}"

    def start(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        self._put(f"br label %{label}")

    def branch(self, condition: Val, then: str, other: str) -> None:
        self._put(f"br i1 {condition.id}, label %{then}, label %{other}")

    def leave(self) -> None:
        self._put("ret void")

    def merge(self, after: str) -> None:
        """LLVM finds the structure itself."""

    def loop_merge(self, after: str, again: str) -> None:
        """As above."""

    def phi(self, type: str, *pairs: tuple[Val, str]) -> Val:
        return self._value(type, f"phi {llvm_type(type)} " + ", ".join(f"[ {v.id}, %{b} ]" for v, b in pairs))

    # functions

    def outlined(
        self, name: str, operands: Sequence[Val], make: Callable[[Sequence[Val]], Sequence[Val]]
    ) -> tuple[Val, ...]:
        """Kernels of one module share it."""
        if name not in self._functions:
            self._functions[name] = self._function_of(name, [v.type for v in operands], make)
        types = self._functions[name]
        arguments = ", ".join(f"{llvm_type(v.type)} {v.id}" for v in operands)
        called = self._value(types[0], f"call {result_type(types)} @lg.{name}({arguments})")
        if len(types) == 1:
            return (called,)
        parts = [f"extractvalue {result_type(types)} {called.id}, {i}" for i in range(len(types))]
        return tuple([self._value(t, part) for t, part in zip(types, parts, strict=True)])

    def _function_of(
        self, name: str, types: Sequence[str], make: Callable[[Sequence[Val]], Sequence[Val]]
    ) -> Sequence[str]:
        """Write a function of operands of these types; gives those of its results. Its names are numbered anew, so that
        all kernels write the same."""
        outer = self._lines, self._locals, self.label, self._count
        self._lines, self._locals, self.label, self._count = [], [], "entry", 0
        results = make([Val(f"%x{i}", t) for i, t in enumerate(types)])
        kinds = [r.type for r in results]
        packed = results[0].id if len(kinds) == 1 else "poison"
        for i, r in enumerate(results if len(kinds) > 1 else ()):
            packed = self._value("", f"insertvalue {result_type(kinds)} {packed}, {llvm_type(r.type)} {r.id}, {i}").id
        parameters = ", ".join(f"{llvm_type(t)} %x{i}" for i, t in enumerate(types))
        attributes = f"noinline nounwind {self.flavour.fast_attributes if self.fast else ''}".rstrip()
        head = f"define internal {result_type(kinds)} @lg.{name}({parameters}) {attributes} {{\nentry:"
        end = f"  ret {result_type(kinds)} {packed}\n}}"
        self.declarations["\n".join([head, *self._locals, *self._lines, end])] = None
        self._lines, self._locals, self.label, self._count = outer
        return kinds

    # the launch

    def launch_words(self) -> list[Val]:
        return [Val(f"%{word}", "i64") for word in WORDS]

    def invocation(self) -> Val:
        first = self.inst("IMul", "i32", self.group_id(), self.const("i32", self.group))
        return self.inst("IAdd", "i32", first, self.local_id())

    def local_id(self, again: bool = False) -> Val:
        f = self.flavour
        return self._value(
            "i32", (f.local_id_again if again and f.local_id_again else f.local_id).format(group=self.group)
        )

    def group_id(self) -> Val:
        return self._value("i32", self.flavour.group_id)

    # the workgroup

    def across(self, x: Val, distance: int) -> Val:
        raise AssertionError("invocations exchange no registers")

    def behind(self, x: Val, distance: int) -> Val:
        raise AssertionError("invocations exchange no registers")

    def barrier(self) -> None:
        for line in self.flavour.barrier:
            self._put(line)

    def shared(self, type: str, count: int, alignment: int = VECTOR_BYTES) -> str:
        size = SIZE[type]
        offset = -(-self.shared_bytes // alignment) * alignment
        self.shared_bytes = offset + count * size
        return self._shared_array(offset, type, count, alignment)

    def _shared_array(self, offset: int, type: str, count: int, alignment: int) -> str:
        if self.asks:
            self._asked_alignment = max(self._asked_alignment, alignment)
            return self._asked_array(offset)
        name, space = f"@{self.symbol}.shared{offset}", self.flavour.space(self.flavour.workgroup)
        self._globals.append(
            f"{name} = internal {space} global [{count} x {llvm_type(type)}] poison, align {alignment}"
        )
        return name

    def _asked_array(self, offset: int) -> str:
        """In the one array whose size launches say."""
        whole, name = f"@{self.symbol}_shared", self._name()
        self._locals.append(f"  {name} = getelementptr i8, {self.flavour.workgroup} {whole}, i64 {offset}")
        return name

    def shared_get(self, array: str, index: Val, type: str) -> Val:
        return self._read(self._cell(self.flavour.workgroup, array, type, index), type)

    def shared_set(self, array: str, index: Val, value: Val) -> None:
        self._write(self._cell(self.flavour.workgroup, array, value.type, index), value)

    def shared_get_vector(self, array: str, index: Val, type: str, count: int) -> list[Val]:
        _, words, bytes = vector_types(type, count)
        name, place = self._name(), self._cell(self.flavour.workgroup, array, type, index)
        self._put(f"{name} = load {words}, {place}, align {bytes}")
        return self._elements(name, type, count)

    def shared_set_vector(self, array: str, index: Val, values: Sequence[Val]) -> None:
        self._store_vector(self._cell(self.flavour.workgroup, array, values[0].type, index), values)

    def shared_atomic(self, name: str, array: str, index: Val, value: Val) -> Val:
        place = self._cell(self.flavour.workgroup, array, value.type, index)
        return self._atomic(name, place, value, self.flavour.group)

    # the whole

    def finish(self, attributes: int) -> str:
        """The function and what belongs to it; `attributes` is the number of its attribute group."""
        f = self.flavour
        if self._asked_alignment:
            array = f"external {f.space(f.workgroup)} global [0 x i8], align {self._asked_alignment}"
            self.declarations[f"@{self.symbol}_shared = {array}"] = None
        words = ", ".join(f"i64 %{word}" for word in WORDS)
        head = f"define {f.entry}void @{self.symbol}({words}{f.arguments}) #{attributes} {{"
        lines = [*self._globals, head, "entry:", *self._locals, *self._lines, "  ret void", "}", ""]
        return "\n".join(lines)


class LlvmHandedWords:
    """Implements codegen.targets.gpu.assembler.HandedWords."""

    def __init__(self, b: LlvmAssembler) -> None:
        self.b = b

    def load(self, address: Val, type: str) -> Val:
        where = f"{self.b._address(address)} {self.b.flavour.device}monotonic, align {SIZE[type]}"
        return self.b._value(type, f"load atomic {llvm_type(type)}, {where}")

    def store(self, address: Val, value: Val) -> None:
        where = f"{self.b._address(address)} {self.b.flavour.device}monotonic, align {SIZE[value.type]}"
        self.b._put(f"store atomic {llvm_type(value.type)} {value.id}, {where}")
