"""Opcode of the assembler protocol -> instruction of LLVM IR.

LLVM leaves shifts beyond the width, conversions out of range and division by zero undefined just as SPIR-V
does; the emitter asks for none of them where the result is used.
"""

from __future__ import annotations

from typing import Final

TYPE: Final = {"bool": "i1", "f16": "half", "f32": "float", "f64": "double"}  # integers keep their names

# x, y -> the same type
BINARY: Final = {
    "IAdd": "add",
    "ISub": "sub",
    "IMul": "mul",
    "UDiv": "udiv",
    "SDiv": "sdiv",
    "UMod": "urem",
    "SRem": "srem",
    "ShiftRightLogical": "lshr",
    "ShiftRightArithmetic": "ashr",
    "ShiftLeftLogical": "shl",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
    "BitwiseAnd": "and",
    "LogicalOr": "or",
    "LogicalAnd": "and",
    "LogicalNotEqual": "xor",
}

# x, y -> the same type; fast-math flags are allowed
FLOAT_BINARY: Final = {"FAdd": "fadd", "FSub": "fsub", "FMul": "fmul", "FDiv": "fdiv"}

# x, y -> bool
COMPARE: Final = {
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

# x -> another type
CONVERT: Final = {
    "ConvertFToU": "fptoui",
    "ConvertFToS": "fptosi",
    "ConvertSToF": "sitofp",
    "ConvertUToF": "uitofp",
    "Bitcast": "bitcast",
}

# x -> another width: (narrower, wider)
RESIZE: Final = {"SConvert": ("trunc", "sext"), "UConvert": ("trunc", "zext"), "FConvert": ("fptrunc", "fpext")}

# x -> the same type, with {t} the type and {a} the operand
UNARY: Final = {
    "SNegate": "sub {t} 0, {a}",
    "Not": "xor {t} {a}, -1",
    "LogicalNot": "xor {t} {a}, true",
}

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

ATOMIC: Final = {
    "AtomicExchange": "xchg",
    "AtomicIAdd": "add",
    "AtomicSMin": "min",
    "AtomicUMin": "umin",
    "AtomicSMax": "max",
    "AtomicUMax": "umax",
    "AtomicAnd": "and",
    "AtomicOr": "or",
    "AtomicXor": "xor",
    "AtomicFAddEXT": "fadd",
}
