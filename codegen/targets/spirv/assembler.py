"""SPIR-V's `Assembler`: the emitter's instructions as words of one module for one kernel.

Circle: `codegen/targets/spirv/cooperative_matrices.py` and `codegen/targets/spirv/fragments.py` write instructions by
the assembler that gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, Val
from loopgrad.codegen.targets.gpu.emit.binary_exponential import LOG2_E, exp_by_power
from loopgrad.codegen.targets.gpu.emit.context import SIZE
from loopgrad.codegen.targets.gpu.emit.half_functions import HalfFunctions
from loopgrad.codegen.targets.spirv.assembly import (
    FLOAT_MODES,
    FUNCTION,
    INPUT,
    NON_PRIVATE,
    PHYSICAL,
    PRIVATE,
    PUSH_CONSTANT,
    SUBGROUP_SCOPE,
    WORKGROUP,
    Words,
)
from loopgrad.codegen.targets.spirv.cooperative_matrices import CooperativeMatrices
from loopgrad.codegen.targets.spirv.distances import MOVED, Distances
from loopgrad.codegen.targets.spirv.factors import NOTED, Factors
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.fragments import FragmentUnits
from loopgrad.codegen.targets.spirv.narrow_elements import elements_of, hidden_half, upper_halves, word_of, words_for

LAUNCH_WORDS: Final = 6
BUILT_IN: Final = {"WorkgroupId": 26, "LocalInvocationId": 27, "GlobalInvocationId": 28}
DEVICE_SCOPE, WORKGROUP_SCOPE = 1, 2
WORKGROUP_ORDER: Final = 0x8 | 0x40 | 0x100  # acquire and release, of buffers and memory of the workgroup
SEEN_BY_ALL: Final = 0x2000 | 0x4000  # what was written is made available and visible, where that must be said
ALIGNED: Final = 2
NON_WRITABLE: Final = 24
DONT_UNROLL: Final = 2
_WITH_ZEROS: Final = {"FAdd": 2, "FSub": 1, "FMul": 2}  # of how many operands: x - 0.0 is x
LARGE_LOOP: Final = 1000  # words of code, about 200 instructions
# What ends with an unknown zero where `known_bits` isn't right.
REASONED_ABOUT: Final = ("BitwiseAnd", "UDiv", "ShiftRightLogical", "ISub", "IMul", "Select")
HIGHEST: Final = 62  # no address has this bit
MATRICES: Final = ("CooperativeMatrixKHR", "VulkanMemoryModel", "VulkanMemoryModelDeviceScope")
NARROW: Final = {1: "StorageBuffer8BitAccess", 2: "StorageBuffer16BitAccess"}


class SpirvAssembler(Words):
    """Implements codegen.targets.gpu.assembler.Assembler for a device with these features. `matrices`: the kernel has
    some of subgroups, and is written for Vulkan's memory model, which these need."""

    float_sums: tuple[str, ...] = ()
    flushes = True
    short_offsets = True
    functions = False  # Mesa's compilers put them in the place of every call
    trips_at_once = 4
    shared_quotients: tuple[str, ...] = ()
    handed_words = None
    hand_on, wide_sums = False, False
    warpgroup_units = None

    def __init__(self, features: Features, name: str, group: int = 0, matrices: bool = False) -> None:
        super().__init__()
        if matrices:
            self.capabilities |= dict.fromkeys(MATRICES)
            self.extensions["SPV_KHR_cooperative_matrix"] = None
        self._for_others = (NON_PRIVATE,) if matrices else ()  # of memory that a workgroup shares
        self.features = features
        self.name = name
        self.fused, self.widens = features.fused, features.widening
        self.rearranges = not features.fused
        self.guarded = not features.endless_loops
        self.group = group or features.group
        self.neighbours = features.neighbours
        self._main, self.label = self.fresh(), self.fresh()
        self._first = self.label
        self._guards: int | None = None
        self._guard_count = 2  # one cell a loop; two at least, or the index would be known
        self._built_in: dict[str, int] = {}
        self._constant_blocks: dict[str, int] = {}
        self._widened: dict[int, Val] = {}  # 64-bit values -> the 32-bit ones that they were made of
        self.open_blocks: list[int] = []  # of control flow, that are open: the labels after them
        self._open_loops: list[tuple[int, int]] = []  # label after the loop, position of its loop control
        self._unknown: dict[str, Val] = {}  # zeros that the driver's compiler doesn't know to be zeros
        self._zeros: dict[str, Val] = {}  # the same, where all that it may reason about is hidden by them
        self._loaded_halves: set[int] = set()
        self._factors, self._distances = Factors(), Distances(self.constants)
        self._units = FragmentUnits(self) if matrices and features.fragments else None

    def exact(self, name: str, type: str, *operands: Val) -> Val:
        """A float instruction that may not be fused with another. A zero is hidden where drivers compute with one in
        front of them as if there were no infinities, NaN and negative zeros, whatever was asked for (lavapipe)."""
        if name in _WITH_ZEROS:
            hidden = operands[: _WITH_ZEROS[name]]
            shown = [self._hidden_zero(type) if v.id in self.zeros else v for v in hidden]
            operands = (*shown, *operands[len(hidden) :])
        return super().exact(name, type, *operands)

    def _hidden_zero(self, type: str) -> Val:
        """0.0, as a driver doesn't know: groups lie along x alone."""
        return self.inst("ConvertUToF", type, self._identity("WorkgroupId", 2))

    def inst(self, name: str, type: str, *operands: Val) -> Val:
        if name not in ("UConvert", "SConvert"):
            if name == "IMul" and type == "i32" and type in self._zeros:
                return self._hidden_product(*operands)
            if name == "FConvert":
                operands = tuple([self._as_rounded(x) for x in operands])
            made = super().inst(name, type, *operands)
            if name in NOTED:
                self._factors.note(name, made.id, [v.id for v in operands])
            hidden = self._hidden(made) if type in self._zeros and name in REASONED_ABOUT else made
            if type == "i64" and name in MOVED:
                self._distances.note(name, hidden.id, *[v.id for v in operands])
            return hidden
        (x,) = operands
        if type == "i32" and x.id in self._widened:
            return self._widened[x.id]
        made = super().inst(name, type, x)
        if (x.type, type) == ("i32", "i64"):
            self._widened[made.id] = x
        return made

    def _hidden(self, x: Val) -> Val:
        if x.type[0] == "f":
            word = super().inst("Bitcast", f"i{x.type[1:]}", x)
            return super().inst("Bitcast", x.type, self._hidden(word))
        return super().inst("BitwiseXor", x.type, x, self._unknown[x.type])

    def _as_rounded(self, x: Val) -> Val:
        """A number to widen or to round. Drivers may take what a float16 was rounded from for it, or fuse what made it
        with what is made of it."""
        known = x.type != "f16" or x.id in self._loaded_halves or self.is_constant(x)
        return x if known or self.features.rounded_halves else hidden_half(self, x, self._unknown["i32"])

    def _hidden_product(self, x: Val, y: Val) -> Val:
        """Of a product of 32 bits by a constant the power of two is a shift, so that drivers know of what it is a
        multiple: they read memory of workgroups in vectors then. (Products of matrices take 1.2 times as long without
        on an H200, and 1.08 times where those of 64 bits, which are addresses, say so as well.)"""
        x, y = (y, x) if self.is_constant(x) else (x, y)
        if not self.is_constant(y):
            return self._hidden(super().inst("IMul", "i32", x, y))
        factor = int(self.constants[y.id])
        places = max((factor & -factor).bit_length() - 1, 0)
        odd = factor >> places
        made = x if odd == 1 else self._hidden(super().inst("IMul", "i32", x, self.const("i32", odd)))
        return super().inst("ShiftLeftLogical", "i32", made, self.const("i32", places)) if places else made

    @property
    def matrix_units(self) -> FragmentUnits | None:
        return self._units

    @property
    def subgroup_matrices(self) -> CooperativeMatrices | None:
        return CooperativeMatrices(self) if self._for_others else None

    def is_constant(self, value: Val) -> bool:
        return value.id in self.constants

    def apart(self, index: Val) -> tuple[Val, int]:
        return self._distances.apart(self, index)

    def extended(self, name: str, type: str, *operands: Val) -> Val:
        """lavapipe rounds the f64 1.5 to 1 and 2**51 + 0.5 to a fraction on processors without AVX-512. What Fma adds
        is hidden where a driver might factor it with the product."""
        if name == "Fma":
            x, y, z = operands
            if type in ("f32", "f64") and self._unknown and self._factors.shared(x.id, y.id, z.id):
                z = self._hidden(z)
            made = super().extended(name, type, x, y, z)
            self._factors.note(name, made.id, [x.id, y.id])
            return made
        if type == "f64" and name in ("RoundEven", "Trunc"):
            (x,) = operands
            size, whole = self.extended("FAbs", type, x), self.const(type, 2.0**52)
            if name == "Trunc":
                return self._with_sign(x, self.extended("Floor", type, size))
            near = self.exact("FSub", type, self.exact("FAdd", type, size, whole), whole)
            return self._with_sign(x, self.inst("Select", type, self._less(size, whole), near, size))
        return super().extended(name, type, *operands)

    def _less(self, x: Val, y: Val) -> Val:
        return self.inst("FOrdLessThan", "bool", x, y)

    def _with_sign(self, x: Val, size: Val) -> Val:
        """-size where x is negative; x where it is zero or NaN."""
        zero = self.const(x.type, 0.0)
        positive = self.inst("Select", x.type, self._less(zero, x), size, x)
        return self.inst("Select", x.type, self._less(x, zero), self.exact("FNegate", x.type, size), positive)

    def wide_product(self, x: Val, y: Val) -> tuple[Val, Val]:
        pair = self.raw("UMulExtended", self.pair("i32"), x.id, y.id)
        lower, upper = [Val(self.raw("CompositeExtract", self.type("i32"), pair, n), "i32") for n in (0, 1)]
        return upper, lower

    def nearest_bfloats(self, lower: Val, upper: Val) -> Val | None:
        return None

    def upper_halves(self, lower: Val, upper: Val) -> Val:
        return upper_halves(self, lower, upper)

    def extreme(self, name: str, x: Val, y: Val) -> Val | None:
        return None

    def own(self, name: str, *operands: Val) -> Val | None:
        (x, *_) = operands
        if name != "exp" or x.type != "f32" or not self.features.exponential:
            return None
        return exp_by_power(self, x, self._saturated, self._power_of_two)

    def _power_of_two(self, x: Val) -> Val:
        return self.extended("Exp2", "f32", x)

    def _binary_logarithm(self, x: Val) -> Val:
        return self.extended("Log2", "f32", x)

    def _positive_inverse(self, x: Val) -> Val:
        """To 18 bits below 2**16. Division is rounded to nearest, which takes drivers several times as long."""
        return self._power_of_two(self.exact("FNegate", "f32", self._binary_logarithm(x)))

    def _saturated(self, x: Val, y: Val, z: Val) -> Val:
        bounds = [self.const("f32", value) for value in (0.0, 1.0)]
        return self.extended("NClamp", "f32", self.extended("Fma", "f32", x, y, z), *bounds)

    def usual_quotients(self, pairs: Sequence[tuple[Val, Val]], zeros: bool = False) -> tuple[Sequence[Val], Val]:
        return [self.exact("FDiv", x.type, x, y) for x, y in pairs], self.const("bool", True)

    def near_quotient(self, x: Val, y: Val) -> Val | None:
        return None

    def known(self, x: Val) -> float | None:
        return None

    def near_inverse(self, y: Val) -> Val | None:
        return None

    def near_exp(self, x: Val) -> Val | None:
        if not self.features.exponential:
            return None
        return self._power_of_two(self.exact("FMul", "f32", x, self.const("f32", LOG2_E)))

    def for_half(self, name: str, half: str, *operands: Val) -> Val | None:
        if not (self.features.exponential and self.features.logarithm):
            return None
        functions = HalfFunctions(self, self._power_of_two, self._binary_logarithm, self._positive_inverse)
        return functions.of(name, half, operands[0])

    def approximate(self, name: str, type: str, *operands: Val) -> Val | None:
        return None  # drivers differ too much in what their functions give

    def lookup(self, type: str, values: tuple[int, ...], first: Val, count: int) -> list[Val]:
        table = self.constant_array(type, values)
        places = [self.inst("IAdd", first.type, first, self.const(first.type, n)) for n in range(count)]
        return [self.get(self._cell(PRIVATE, type, table, place), type) for place in places]

    def opaque(self, x: Val) -> Val:
        return x

    def _cell(self, storage: int, type: str, array: int, index: Val) -> int:
        return self.raw("AccessChain", self.pointer(storage, self.type(type)), array, index.id)

    # arrays of the invocation

    def array_of(self, type: str, count: int) -> int:
        return self.local_of(self.array(type, count))

    def array_get(self, array: int, index: Val, type: str) -> Val:
        return self.get(self._cell(FUNCTION, type, array, index), type)

    def array_set(self, array: int, index: Val, value: Val) -> None:
        self.set(self._cell(FUNCTION, value.type, array, index), value)

    # guards

    def _guard(self, index: Val) -> int:
        if self._guards is None:
            self._guards = self.fresh()
        return self._cell(FUNCTION, "i32", self._guards, index)

    def guard_get(self, index: Val) -> Val:
        self._guard_count += 1
        return self.get(self._guard(index), "i32")

    def guard_set(self, index: Val, value: Val) -> None:
        self.set(self._guard(index), value)

    # memory

    def _constant_pointer(self, address: Val, type: str) -> int:
        """To memory that nobody writes during the launch: the only member of a block that says so."""
        member = self.type(type)
        known = self._constant_blocks.get(type)
        if known is None:
            known = self._constant_blocks[type] = self.struct(f"constant {type}", [member], [0])
            self.decorations += self.encode("MemberDecorate", known, 0, NON_WRITABLE)
        block = self.raw("ConvertUToPtr", self.pointer(PHYSICAL, known), address.id)
        return self.raw("AccessChain", self.pointer(PHYSICAL, member), block, self.const("i32", 0).id)

    def _pointer(self, address: Val, type: str) -> int:
        pointer = self.pointer(PHYSICAL, self.type(type))
        return self.raw("ConvertUToPtr", pointer, address.id)

    def _storage(self, type: str) -> None:
        if SIZE[type] in NARROW:
            self.capabilities[NARROW[SIZE[type]]] = None

    def load(self, address: Val, type: str, invariant: bool = False) -> Val:
        self._storage(type)
        pointer = self._constant_pointer(address, type) if invariant else self._pointer(address, type)
        found = Val(self.raw("Load", self.type(type), pointer, ALIGNED, SIZE[type]), type)
        if type == "f16":
            self._loaded_halves.add(found.id)
        return found

    def store(self, address: Val, value: Val) -> None:
        self._storage(value.type)
        self.put("Store", self._pointer(address, value.type), value.id, ALIGNED, SIZE[value.type])

    def load_vector(self, address: Val, type: str, count: int, invariant: bool = False) -> list[Val]:
        word, words, each = words_for(type, count)
        pointer, kind, bytes = self._vector_at(address, word, words)
        whole = self.raw("Load", kind, pointer, ALIGNED, bytes)
        found = [Val(whole, word)]
        if words > 1:
            found = [Val(self.raw("CompositeExtract", self.type(word), whole, i), word) for i in range(words)]
        if each == 1:
            return found
        elements = [x for word in found for x in elements_of(self, word, type)]
        if type == "f16":
            self._loaded_halves.update([x.id for x in elements])
        return elements

    def store_vector(self, address: Val, values: Sequence[Val]) -> None:
        word, words, each = words_for(values[0].type, len(values))
        given = [word_of(self, values[i : i + each]) for i in range(0, len(values), each)]
        pointer, kind, bytes = self._vector_at(address, word, words)
        whole = given[0].id
        if words > 1:
            whole = self.raw("CompositeConstruct", kind, *[x.id for x in given])
        self.put("Store", pointer, whole, ALIGNED, bytes)

    def _vector_at(self, address: Val, word: str, words: int) -> tuple[int, int, int]:
        """A pointer to so many words, their type, their bytes."""
        kind = self.vector(word, words) if words > 1 else self.type(word)
        return self.raw("ConvertUToPtr", self.pointer(PHYSICAL, kind), address.id), kind, words * SIZE[word]

    def atomic(self, name: str, address: Val, value: Val) -> Val:
        return self._atomic(name, self._pointer(address, value.type), value, DEVICE_SCOPE)

    def _atomic(self, name: str, pointer: int, value: Val, scope: int) -> Val:
        if value.type == "i64":
            self.capabilities["Int64Atomics"] = None
        where, relaxed = self.const("i32", scope).id, self.const("i32", 0).id
        return Val(self.raw(name, self.type(value.type), pointer, where, relaxed, value.id), value.type)

    def compare_exchange(self, address: Val, expected: Val, desired: Val) -> Val:
        if desired.type == "i64":
            self.capabilities["Int64Atomics"] = None
        where, relaxed = self.const("i32", DEVICE_SCOPE).id, self.const("i32", 0).id
        words = (self._pointer(address, desired.type), where, relaxed, relaxed, desired.id, expected.id)
        return Val(self.raw("AtomicCompareExchange", self.type(desired.type), *words), desired.type)

    # blocks

    def block(self) -> int:
        return self.fresh()

    def leave(self) -> None:
        self.put("Return")

    def jump(self, label: int) -> None:
        if self._units is not None:
            self._units.leaving()
        super().jump(label)

    def merge(self, after: int) -> None:
        self.open_blocks.append(after)
        self.put("SelectionMerge", after, 0)

    def loop_merge(self, after: int, again: int) -> None:
        self.open_blocks.append(after)
        self.put("LoopMerge", after, again, 0)
        for _, control in self._open_loops:  # a loop around a loop
            self.code[control] = DONT_UNROLL
        self._open_loops.append((after, len(self.code) - 1))

    def start(self, label: int) -> None:
        """Drivers unroll loops of known length, and a workgroup's few lanes are one: the whole program of a lane so
        many times costs registers. Short loops are left to them, so that loads of several trips come together."""
        super().start(label)
        if self.open_blocks and self.open_blocks[-1] == label:
            self.open_blocks.pop()
        if self._open_loops and label == self._open_loops[-1][0]:
            _, control = self._open_loops.pop()
            if len(self.code) - control > LARGE_LOOP:
                self.code[control] = DONT_UNROLL

    def outlined(
        self, name: str, operands: Sequence[Val], make: Callable[[Sequence[Val]], Sequence[Val]]
    ) -> tuple[Val, ...]:
        """By its code, as drivers would."""
        return tuple(make(operands))

    # the launch

    def launch_words(self) -> list[Val]:
        word = self.type("i64")
        block = self.struct("push", [word] * LAUNCH_WORDS, [8 * i for i in range(LAUNCH_WORDS)])
        push = self.global_variable(PUSH_CONSTANT, block)
        member = self.pointer(PUSH_CONSTANT, word)
        places = [self.raw("AccessChain", member, push, self.const("i32", i).id) for i in range(LAUNCH_WORDS)]
        words = [self.get(place, "i64") for place in places]
        if self.features.fused or not (self.features.known_bits and self.features.rounded_halves):
            zero = super().inst("ShiftRightLogical", "i64", words[0], self.const("i64", HIGHEST))
            self._unknown = {"i64": zero, "i32": super().inst("UConvert", "i32", zero)}
        if not self.features.known_bits:
            self._zeros = self._unknown
        return words

    def invocation(self) -> Val:
        return self._identity("GlobalInvocationId")

    def local_id(self, again: bool = False) -> Val:
        return self._identity("LocalInvocationId")

    def group_id(self) -> Val:
        return self._identity("WorkgroupId")

    def _identity(self, name: str, axis: int = 0) -> Val:
        vector = self.vector("i32", 3)
        if name not in self._built_in:
            self._built_in[name] = self.global_variable(INPUT, vector)
            self.decorations += self.encode("Decorate", self._built_in[name], 11, BUILT_IN[name])
        whole = self.raw("Load", vector, self._built_in[name])
        return Val(self.raw("CompositeExtract", self.type("i32"), whole, axis), "i32")

    # the workgroup

    def across(self, x: Val, distance: int) -> Val:
        for capability in ("GroupNonUniform", "GroupNonUniformShuffle"):
            self.capabilities[capability] = None
        scope, bit = self.const("i32", SUBGROUP_SCOPE).id, self.const("i32", distance).id
        return Val(self.raw("GroupNonUniformShuffleXor", self.type(x.type), scope, x.id, bit), x.type)

    def behind(self, x: Val, distance: int) -> Val:
        raise AssertionError("a capability of its own, which is not asked for")

    def barrier(self) -> None:
        seen = SEEN_BY_ALL if self._for_others else 0
        scope, order = self.const("i32", WORKGROUP_SCOPE).id, self.const("i32", WORKGROUP_ORDER | seen).id
        self.put("ControlBarrier", scope, scope, order)

    def shared(self, type: str, count: int, alignment: int = VECTOR_BYTES) -> int:
        """Where it lies can't be said; only right factors of units that there aren't must lie somewhere."""
        return self.global_variable(WORKGROUP, self.array(type, count))

    def shared_vectors(self, type: str, side: int, count: int) -> int:
        """So many vectors of `side` elements."""
        vector, length = self.vector(type, side), self.const("i32", count).id
        whole = self._global(("array", vector, count), "TypeArray", vector, length)
        return self.global_variable(WORKGROUP, whole)

    def shared_get(self, array: int, index: Val, type: str) -> Val:
        place = self._cell(WORKGROUP, type, array, index)
        return Val(self.raw("Load", self.type(type), place, *self._for_others), type)

    def shared_set(self, array: int, index: Val, value: Val) -> None:
        self.put("Store", self._cell(WORKGROUP, value.type, array, index), value.id, *self._for_others)

    def shared_get_vector(self, array: int, index: Val, type: str, count: int) -> list[Val]:
        """One by one: pointers to elements are no pointers to vectors."""
        places = [self.inst("IAdd", "i32", index, self.const("i32", i)) for i in range(count)]
        return [self.shared_get(array, place, type) for place in places]

    def shared_set_vector(self, array: int, index: Val, values: Sequence[Val]) -> None:
        for i, value in enumerate(values):
            self.shared_set(array, self.inst("IAdd", "i32", index, self.const("i32", i)), value)

    def shared_atomic(self, name: str, array: int, index: Val, value: Val) -> Val:
        return self._atomic(name, self._cell(WORKGROUP, value.type, array, index), value, WORKGROUP_SCOPE)

    # the whole

    def finish(self) -> bytes:
        """The module. LoopgradError where the device lacks what it needs."""
        if self._guards is not None:
            shape = self.array("i32", self._guard_count)
            self.locals += self.encode("Variable", self.pointer(FUNCTION, shape), self._guards, FUNCTION)
        for capability, width in self.features.float_modes(self.capabilities):
            self.capabilities[capability] = None
            self.modes += self.encode("ExecutionMode", self._main, FLOAT_MODES[capability], width)
        for capability in self.capabilities:
            self.features.require(capability, self.name)
        return self.words(self._main, self._first, self.group)
