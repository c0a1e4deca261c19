"""The LLVM functions that the AMDGPU backend turns into instructions, by operand type.

Others end the process while code is generated, so a module is looked through first: after the optimiser,
which brings functions of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FLOATS: Final = ("f16", "f32", "f64")
INTEGERS: Final = ("i8", "i16", "i32", "i64")

_BY_TYPE: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    FLOATS: ("fabs", "floor", "ceil", "trunc", "roundeven", "rint", "nearbyint", "sqrt", "fma", "fmuladd", "minnum",
             "maxnum", "copysign", "canonicalize", "is.fpclass"),
    ("f16", "f32"): ("sin", "cos", "exp", "exp2", "log", "log2", "log10"),
    INTEGERS: ("smin", "smax", "umin", "umax", "abs", "ctlz", "cttz", "ctpop", "fshl", "fshr", "uadd.sat", "usub.sat",
               "sadd.sat", "ssub.sat", "uadd.with.overflow", "usub.with.overflow", "umul.with.overflow",
               "sadd.with.overflow", "ssub.with.overflow", "smul.with.overflow", "scmp", "ucmp"),
    ("i16", "i32", "i64"): ("bswap",),
}  # fmt: skip

ALLOWED: Final = frozenset(
    f"llvm.{name}.{type}" for types, names in _BY_TYPE.items() for name in names for type in types
)
# families whose members all lower: the backend's own, memory, marks that leave no code
PREFIXES: Final = (
    "llvm.amdgcn.", "llvm.memset.", "llvm.memcpy.", "llvm.memmove.", "llvm.lifetime.", "llvm.assume",
    "llvm.experimental.noalias.scope.decl",
)  # fmt: skip


class UnknownFunctionError(ValueError):
    """A module that calls what the backend can't lower."""


def check(names: Iterable[str]) -> None:
    """Raises where one of the declared functions isn't known to lower. A result type of its own (as of ucmp)
    stands before the operand's."""
    unknown = sorted(name for name in names if not _known(name))
    if unknown:
        raise UnknownFunctionError(
            f"expected LLVM functions that lower to instructions of AMD GPUs, got {', '.join(unknown)}"
        )


def _known(name: str) -> bool:
    if name in ALLOWED or name.startswith(PREFIXES):
        return True
    head, _, type = name.rpartition(".")
    return head.rpartition(".")[0] in ("llvm.scmp", "llvm.ucmp") and type in INTEGERS
