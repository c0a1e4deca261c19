"""Opcode -> instruction of LLVM IR, for the CPU and for GPUs that LLVM generates code for.

LLVM leaves shifts beyond the width, conversions out of range and division by zero undefined just as SPIR-V does;
codegen.scalar asks for none of them where the result is used.
"""

from __future__ import annotations

from typing import Final

TYPE: Final = {"bool": "i1", "f16": "half", "b16": "bfloat", "f32": "float", "f64": "double"}  # integers keep theirs

# x, y -> the same type or bool
BINARY: Final = {
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
}

# x, y -> the same type; fast-math flags are allowed
FLOAT_BINARY: Final = {"FAdd": "fadd", "FSub": "fsub", "FMul": "fmul", "FDiv": "fdiv"}

# x -> another type
CONVERT: Final = {
    "ConvertFToU": "fptoui",
    "ConvertFToS": "fptosi",
    "ConvertSToF": "sitofp",
    "ConvertUToF": "uitofp",
    "Bitcast": "bitcast",
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
