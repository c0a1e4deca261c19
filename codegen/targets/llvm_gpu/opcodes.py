"""Opcode of the assembler protocol -> operation of LLVM's `atomicrmw`; others are in codegen.targets.llvm_rows."""

from __future__ import annotations

from typing import Final

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
