"""How a backend spells what LLVM IR leaves to targets: entry points, numbers of invocations, barriers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log, log2
from typing import Final

from loopgrad.codegen.targets.gpu.interface import NO_MATRICES, SubgroupShapes

FAST: Final = "reassoc nsz arcp contract afn "


@dataclass(frozen=True, slots=True)
class Flavour:
    """`entry`: what stands between `define` and `void` of a kernel. `memory`, `local`, `constant`, `workgroup`:
    pointer types of buffers, variables, tables and memory of a workgroup. `device`, `group`: the scopes of
    atomics (with the blank behind). `local_id`, `group_id`: expressions of type i32, `local_id_again` one that isn't
    merged with others. `barrier`: instructions.
    `attributes`: of a kernel, where {group} is the size of a workgroup; `fast_attributes`: what fast_math adds,
    `shared_attributes` what memory of a workgroup does, `sorted_attributes` what sorting lanes does,
    `summed_attributes` what many sums beside loops do, where {groups} workgroups have 512 invocations; a tile of such a
    kernel belongs to `summed_group` invocations (0: as many as others), where its sums are over long rows;
    `staged_attributes` what stages that wait at barriers do, where {resident} workgroups should run side by side;
    `recipe_attributes` what a recipe does that is best with {registers} registers.
    `columns_group`: invocations of a workgroup that holds long columns or rows (0: as many as others).
    `asked_memory`: bytes of a workgroup that launches can ask for, `warpgroup_memory` those where warpgroups multiply.
    `exchanges`: neighbouring invocations exchange registers. `unit_types`: of factors that matrix units of warps
    multiply. `matrices`: that subgroups multiply. `waits`: workgroups that have begun go on whatever others wait for.
    `group_vectors`: memory of a workgroup is read and written by vectors.
    `arguments`: parameters of a kernel behind the words of its launch. `quick`: primitives of f32 whose fast
    approximation is an LLVM function: name -> (factor of the operand, function, factor of the result).
    `atomic_float`: metadata that makes an atomic float addition one instruction. `declarations`: of all that the
    fields mention."""

    triple: str
    entry: str
    memory: str
    local: str
    constant: str
    workgroup: str
    device: str
    group: str
    local_id: str
    group_id: str
    barrier: tuple[str, ...]
    attributes: str
    declarations: str
    arguments: str = ""
    local_id_again: str = ""
    fast_attributes: str = ""
    shared_attributes: str = ""
    sorted_attributes: str = ""
    summed_attributes: str = ""
    summed_group: int = 0
    staged_attributes: str = ""
    recipe_attributes: str = ""
    columns_group: int = 0
    asked_memory: int = 0
    warpgroup_memory: int = 0
    exchanges: bool = False
    unit_types: tuple[str, ...] = ()
    matrices: SubgroupShapes = NO_MATRICES
    waits: bool = False
    group_vectors: bool = False
    atomic_float: str = ""
    quick: Mapping[str, tuple[float, str, float]] = field(default_factory=dict)

    def space(self, pointer: str) -> str:
        """The address space of a pointer type, as globals and variables write it."""
        return pointer.removeprefix("ptr").strip()


def quick(sin: str, cos: str, binary_exp: str, binary_log: str) -> Mapping[str, tuple[float, str, float]]:
    """A flavour's `quick`, from the approximations that GPUs have: exponentials and logarithms to base 2."""
    return {
        "sin": (1.0, sin, 1.0),
        "cos": (1.0, cos, 1.0),
        "exp": (1 / log(2), binary_exp, 1.0),
        "exp2": (1.0, binary_exp, 1.0),
        "log": (1.0, binary_log, log(2)),
        "log2": (1.0, binary_log, 1.0),
        "log10": (1.0, binary_log, 1 / log2(10)),
    }
