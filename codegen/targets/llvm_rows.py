"""Opcode -> instruction of LLVM IR, for the CPU and for GPUs that LLVM generates code for.

{r} is the type of the result, {t0} {t1} {t2} those of the operands {a} {b} {c}, {f} flags of fast-math. LLVM leaves
shifts beyond the width, conversions out of range and division by zero undefined just as SPIR-V does; codegen.scalar
asks for none of them where the result is used.
"""

from __future__ import annotations

from typing import Final

TYPE: Final = {"bool": "i1", "f16": "half", "b16": "bfloat", "f32": "float", "f64": "double"}  # integers keep theirs

_BINARY: Final = {
    "IAdd": "add",
    "ISub": "sub",
    "IMul": "mul",
    "UDiv": "udiv",
    "SDiv": "sdiv",
    "UMod": "urem",
    "ShiftRightLogical": "lshr",
    "ShiftRightArithmetic": "ashr",
    "ShiftLeftLogical": "shl",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
    "BitwiseAnd": "and",
    "LogicalOr": "or",
    "LogicalAnd": "and",
    "LogicalNotEqual": "xor",
    "LogicalEqual": "icmp eq",
    "IEqual": "icmp eq",
    "INotEqual": "icmp ne",
    "UGreaterThan": "icmp ugt",
    "SGreaterThan": "icmp sgt",
    "UGreaterThanEqual": "icmp uge",
    "SGreaterThanEqual": "icmp sge",
    "ULessThan": "icmp ult",
    "SLessThan": "icmp slt",
    "ULessThanEqual": "icmp ule",
    "SLessThanEqual": "icmp sle",
    "FOrdEqual": "fcmp oeq",
    "FUnordNotEqual": "fcmp une",
    "FOrdLessThan": "fcmp olt",
    "FOrdGreaterThan": "fcmp ogt",
    "FOrdLessThanEqual": "fcmp ole",
    "FOrdGreaterThanEqual": "fcmp oge",
    "FAdd": "fadd {f}",
    "FSub": "fsub {f}",
    "FMul": "fmul {f}",
    "FDiv": "fdiv {f}",
}
_CONVERSION: Final = {
    "ConvertFToU": "fptoui",
    "ConvertFToS": "fptosi",
    "ConvertSToF": "sitofp",
    "ConvertUToF": "uitofp",
    "Bitcast": "bitcast",
}


def _spaced(instruction: str) -> str:
    return instruction if instruction.endswith("}") else instruction + " "


ROWS: Final[dict[str, str]] = {
    **{opcode: _spaced(name) + "{t0} {a}, {b}" for opcode, name in _BINARY.items()},
    **{opcode: name + " {t0} {a} to {r}" for opcode, name in _CONVERSION.items()},
    "Select": "select {t0} {a}, {t1} {b}, {t2} {c}",
    "FNegate": "fneg {f}{t0} {a}",
    "IsNan": "fcmp uno {t0} {a}, {a}",
}

# x -> x and a constant
COMPLETED: Final[dict[str, tuple[str, bool | int]]] = {
    "LogicalNot": ("LogicalNotEqual", True),
    "Not": ("BitwiseXor", -1),
}

# x -> another width: (narrower, wider)
RESIZE: Final = {"SConvert": ("trunc", "sext"), "UConvert": ("trunc", "zext"), "FConvert": ("fptrunc", "fpext")}

# functions that every backend turns into instructions, for f32 and f64
FUNCTION: Final = {
    "RoundEven": "roundeven",
    "Trunc": "trunc",
    "FAbs": "fabs",
    "Floor": "floor",
    "Ceil": "ceil",
    "Sqrt": "sqrt",
    "Fma": "fma",
}
