"""SPIR-V words: one module with one entry point, built instruction by instruction (see assembler for what the
emitter sees).

Types, constants and pointers are made once. Values are (id, type name); types are named bool, i8 .. i64
(signless), f16, f32, f64. Section numbers are those of the SPIR-V specification, 2.16 and 3.49.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Final

import numpy as np

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.spirv.features import CAPABILITIES, ENTRY_NAME

MAGIC: Final = 0x07230203
VERSION: Final = 0x00010500
FUNCTION: Final = 7
PRIVATE: Final = 6
PHYSICAL: Final = 5349
WORKGROUP: Final = 4
PUSH_CONSTANT: Final = 9
INPUT: Final = 1
SUBGROUP_SCOPE: Final = 3
GLSL450, VULKAN = 1, 3  # memory models
NON_PRIVATE: Final = 0x20  # other invocations see it, as barriers say: Vulkan's model wants that said
OP: Final = {
    "ExtInstImport": 11, "ExtInst": 12, "MemoryModel": 14, "EntryPoint": 15, "ExecutionMode": 16, "Capability": 17,
    "TypeVoid": 19, "TypeBool": 20, "TypeInt": 21, "TypeFloat": 22, "TypeVector": 23, "TypeArray": 28, "TypeStruct": 30,
    "TypePointer": 32, "TypeFunction": 33, "ConstantTrue": 41, "ConstantFalse": 42, "Constant": 43,
    "ConstantComposite": 44, "Function": 54, "FunctionEnd": 56, "Variable": 59, "Load": 61, "Store": 62,
    "AccessChain": 65, "Decorate": 71, "MemberDecorate": 72, "CompositeConstruct": 80, "CompositeExtract": 81,
    "CompositeInsert": 82,
    "FConvert": 115, "ConvertFToU": 109, "ConvertFToS": 110, "ConvertSToF": 111, "ConvertUToF": 112, "UConvert": 113,
    "SConvert": 114, "ConvertUToPtr": 120, "Bitcast": 124, "FNegate": 127, "IAdd": 128, "FAdd": 129, "ISub": 130,
    "FSub": 131, "IMul": 132, "FMul": 133, "UDiv": 134, "SDiv": 135, "FDiv": 136, "UMod": 137, "UMulExtended": 151,
    "IsNan": 156, "LogicalEqual": 164, "LogicalNotEqual": 165, "LogicalOr": 166, "LogicalAnd": 167,
    "LogicalNot": 168, "Select": 169, "IEqual": 170, "INotEqual": 171, "UGreaterThan": 172, "SGreaterThan": 173,
    "UGreaterThanEqual": 174, "SGreaterThanEqual": 175, "ULessThan": 176, "SLessThan": 177, "ULessThanEqual": 178,
    "SLessThanEqual": 179, "FOrdEqual": 180, "FUnordNotEqual": 183, "FOrdLessThan": 184, "FOrdGreaterThan": 186,
    "FOrdLessThanEqual": 188, "FOrdGreaterThanEqual": 190, "ShiftRightLogical": 194, "ShiftRightArithmetic": 195,
    "ShiftLeftLogical": 196, "BitwiseOr": 197, "BitwiseXor": 198, "BitwiseAnd": 199, "Not": 200,
    "AtomicExchange": 229, "AtomicCompareExchange": 230, "AtomicIAdd": 234, "AtomicSMin": 236, "AtomicUMin": 237,
    "AtomicSMax": 238, "AtomicUMax": 239, "AtomicAnd": 240, "AtomicOr": 241, "Phi": 245, "LoopMerge": 246,
    "SelectionMerge": 247, "Label": 248, "Branch": 249, "BranchConditional": 250, "Return": 253,
    "Extension": 10, "TypeCooperativeMatrixKHR": 4456, "CooperativeMatrixLoadKHR": 4457,
    "CooperativeMatrixStoreKHR": 4458, "CooperativeMatrixMulAddKHR": 4459, "ControlBarrier": 224,
    "GroupNonUniformShuffleXor": 346,
}  # fmt: skip
GLSL: Final = {
    "RoundEven": 2, "Trunc": 3, "FAbs": 4, "Floor": 8, "Ceil": 9, "Exp2": 29, "Log2": 30, "Sqrt": 31,
    "SMax": 42, "Fma": 50, "NMax": 80, "NClamp": 81,
}  # fmt: skip
WIDTH_CAPABILITY: Final = {"i8": "Int8", "i16": "Int16", "i64": "Int64", "f16": "Float16", "f64": "Float64"}
FLOAT_MODES: Final = {"DenormPreserve": 4459, "SignedZeroInfNanPreserve": 4461, "RoundingModeRTE": 4462}
_PACK: Final = {"f16": "<f2", "f32": "<f4", "f64": "<f8"}


def text_words(text: str) -> list[int]:
    data = text.encode() + b"\0"
    data += bytes(-len(data) % 4)
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def constant_words(type: str, value: float | int) -> list[int]:
    """The literal of a scalar constant; integers wrap to their width."""
    if type[0] == "f":
        with np.errstate(all="ignore"):  # a constant beyond the type's range is infinity
            data = np.asarray(value).astype(_PACK[type]).tobytes()
        data += bytes(-len(data) % 4)
        return list(struct.unpack(f"<{len(data) // 4}I", data))
    bits = int(type[1:])
    whole = int(value) & ((1 << bits) - 1)  # narrow literals of signless types are zero-extended
    return [whole & 0xFFFFFFFF] if bits <= 32 else [whole & 0xFFFFFFFF, whole >> 32]


class Words:
    """Collects the sections; `words()` puts them in order."""

    def __init__(self) -> None:
        self.bound = 1
        self.extensions: dict[str, None] = {}
        self.capabilities: dict[str, None] = {"Shader": None, "PhysicalStorageBufferAddresses": None}
        self.decorations: list[int] = []
        self.globals: list[int] = []
        self.code: list[int] = []
        self.locals: list[int] = []
        self.interface: list[int] = []
        self.modes: list[int] = []
        self.label = 0
        self.constants: dict[int, float | int] = {}  # id -> value
        self.zeros: set[int] = set()  # among the constants: 0.0, not -0.0
        self._made: dict[Hashable, int] = {}
        self._types: dict[str, int] = {}
        self._constants: dict[tuple[str, float | int], Val] = {}  # by type and value
        self._glsl: int | None = None

    def fresh(self) -> int:
        number = self.bound
        self.bound += 1
        return number

    @staticmethod
    def encode(name: str, *words: int) -> list[int]:
        return [(1 + len(words)) << 16 | OP[name], *words]

    # types and constants

    def _global(self, key: Hashable, name: str, *words: int, typed: int | None = None) -> int:
        known = self._made.get(key)
        if known is None:
            known = self._made[key] = self.fresh()
            front = (known,) if typed is None else (typed, known)
            self.globals += self.encode(name, *front, *words)
        return known

    def type(self, name: str) -> int:
        known = self._types.get(name)
        if known is None:
            known = self._types[name] = self._new_type(name)
        return known

    def _new_type(self, name: str) -> int:
        if name in WIDTH_CAPABILITY:
            self.capabilities[WIDTH_CAPABILITY[name]] = None
        if name == "void":
            return self._global("void", "TypeVoid")
        if name == "bool":
            return self._global("bool", "TypeBool")
        bits = int(name[1:])
        return self._global(name, "TypeInt", bits, 0) if name[0] == "i" else self._global(name, "TypeFloat", bits)

    def pointer(self, storage: int, type: int) -> int:
        return self._global(("pointer", storage, type), "TypePointer", storage, type)

    def vector(self, type: str, count: int) -> int:
        return self.vector_of(self.type(type), count)

    def vector_of(self, element: int, count: int) -> int:
        return self._global(("vector", element, count), "TypeVector", element, count)

    def array(self, type: str, count: int) -> int:
        element, length = self.type(type), self.const("i32", count).id
        return self._global(("array", type, count), "TypeArray", element, length)

    def function_type(self) -> int:
        void = self.type("void")
        return self._global("function", "TypeFunction", void)

    def struct(self, key: str, members: list[int], offsets: list[int]) -> int:
        """A block with explicit offsets."""
        number = self._global(("struct", key), "TypeStruct", *members)
        self.decorations += self.encode("Decorate", number, 2)
        for i, offset in enumerate(offsets):
            self.decorations += self.encode("MemberDecorate", number, i, 35, offset)
        return number

    def bfloat(self) -> int:
        """The type of a bfloat16 in matrices."""
        return self._global("b16", "TypeFloat", 16, 0)

    def matrix(self, element: int, rows: int, columns: int, use: int) -> int:
        """The type of a matrix that a subgroup has."""
        sizes = [self.const("i32", n).id for n in (SUBGROUP_SCOPE, rows, columns, use)]
        return self._global(("matrix", element, *sizes), "TypeCooperativeMatrixKHR", element, *sizes)

    def pair(self, type: str) -> int:
        """Two values of a type, as some instructions give."""
        return self._global(("pair", type), "TypeStruct", self.type(type), self.type(type))

    def const(self, type: str, value: float | int | bool) -> Val:
        if not value and type[0] == "f":  # 0.0 and -0.0 are equal
            return self._new_constant(type, value)
        known = self._constants.get((type, value))
        if known is None:
            known = self._constants[type, value] = self._new_constant(type, value)
        return known

    def _new_constant(self, type: str, value: float | int | bool) -> Val:
        kind = self.type(type)
        if type == "bool":
            return Val(self._global(("const", bool(value)), f"Constant{bool(value)}", typed=kind), type)
        words = constant_words(type, value)
        number = self._global(("const", type, *words), "Constant", *words, typed=kind)
        self.constants[number] = value
        if type[0] == "f" and not any(words):
            self.zeros.add(number)
        return Val(number, type)

    def constant_array(self, type: str, values: tuple[int, ...]) -> int:
        """A Private variable that holds these constants."""
        shape = self.array(type, len(values))
        parts = [self.const(type, v).id for v in values]
        whole = self._global(("composite", type, values), "ConstantComposite", *parts, typed=shape)
        pointer = self.pointer(PRIVATE, shape)
        known = ("private", whole)
        if known not in self._made:
            number = self._made[known] = self.fresh()
            self.globals += self.encode("Variable", pointer, number, PRIVATE, whole)
            self.interface.append(number)
        return self._made[known]

    def global_variable(self, storage: int, type: int) -> int:
        pointer, number = self.pointer(storage, type), self.fresh()
        self.globals += self.encode("Variable", pointer, number, storage)
        self.interface.append(number)
        return number

    # instructions

    def put(self, name: str, *words: int) -> None:
        self.code += ((1 + len(words)) << 16 | OP[name], *words)

    def raw(self, name: str, type: int, *words: int) -> int:
        number = self.bound
        self.bound = number + 1
        self.code += ((3 + len(words)) << 16 | OP[name], type, number, *words)
        return number

    def inst(self, name: str, type: str, *operands: Val) -> Val:
        known = self._types.get(type)
        number = self.raw(name, self.type(type) if known is None else known, *[v[0] for v in operands])
        return Val(number, type)

    def exact(self, name: str, type: str, *operands: Val) -> Val:
        """A float instruction that may not be fused with another."""
        result = self.inst(name, type, *operands)
        self.decorations += (3 << 16 | OP["Decorate"], result.id, 42)
        return result

    def extended(self, name: str, type: str, *operands: Val) -> Val:
        """An instruction of GLSL.std.450."""
        if self._glsl is None:
            self._glsl = self.fresh()
        kind = self.type(type)
        return Val(self.raw("ExtInst", kind, self._glsl, GLSL[name], *[v.id for v in operands]), type)

    def local(self, type: str) -> int:
        """A Function variable."""
        return self.local_of(self.type(type))

    def local_of(self, type: int) -> int:
        number, pointer = self.fresh(), self.pointer(FUNCTION, type)
        self.locals += self.encode("Variable", pointer, number, FUNCTION)
        return number

    def get(self, variable: int, type: str) -> Val:
        return Val(self.raw("Load", self.type(type), variable), type)

    def set(self, variable: int, value: Val) -> None:
        self.put("Store", variable, value.id)

    # blocks

    def start(self, label: int) -> None:
        self.put("Label", label)
        self.label = label

    def jump(self, label: int) -> None:
        self.put("Branch", label)

    def branch(self, condition: Val, then: int, other: int) -> None:
        self.put("BranchConditional", condition.id, then, other)

    def phi(self, type: str, *pairs: tuple[Val, int]) -> Val:
        words = [word for value, label in pairs for word in (value.id, label)]
        return Val(self.raw("Phi", self.type(type), *words), type)

    # the whole

    def words(self, function: int, first_label: int, group: int) -> bytes:
        """The module whose entry point runs `code` after `first_label`."""
        void, kind = self.type("void"), self.function_type()
        out: list[int] = []
        for capability in self.capabilities:
            out += self.encode("Capability", CAPABILITIES[capability][0])
        for extension in self.extensions:
            out += self.encode("Extension", *text_words(extension))
        if self._glsl is not None:
            out += self.encode("ExtInstImport", self._glsl, *text_words("GLSL.std.450"))
        out += self.encode("MemoryModel", 5348, VULKAN if "VulkanMemoryModel" in self.capabilities else GLSL450)
        out += self.encode("EntryPoint", 5, function, *text_words(ENTRY_NAME), *self.interface)
        out += self.encode("ExecutionMode", function, 17, group, 1, 1)
        out += self.modes + self.decorations + self.globals
        out += self.encode("Function", void, function, 0, kind) + self.encode("Label", first_label)
        out += self.locals + self.code + self.encode("Return") + self.encode("FunctionEnd")
        header = [MAGIC, VERSION, 0, self.bound, 0]
        return struct.pack(f"<{len(header) + len(out)}I", *header, *out)
