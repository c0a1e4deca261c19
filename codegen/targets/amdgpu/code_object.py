"""A relocatable object -> what a HIP driver loads, checked against the launches that it will get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from loopgrad.codegen.targets.amdgpu import elf
from loopgrad.codegen.targets.amdgpu.comgr import Comgr, ComgrError
from loopgrad.codegen.targets.amdgpu.linker import LinkError, link
from loopgrad.codegen.targets.amdgpu.notes import KernelNote, descriptor, kernel_notes

WORDS: Final = 6  # table, across, along, first, end, lanes: 64 bits each
ARGUMENTS: Final = 8 * WORDS


def loadable(data: bytes, cpu: str) -> tuple[bytes, tuple[str, ...]]:
    """The code object, and what to tell the user: that ROCm's linker was needed, if it was."""
    try:
        return link(data), ()
    except LinkError as refused:
        try:
            comgr = Comgr()
            code = comgr.link(data, cpu)
        except ComgrError as missing:
            raise LinkError(f"{refused}; ROCm's linker can't do it either: {missing}") from None
        return code, (f"linked by ROCm's comgr {comgr.version}, since the linker here refused: {refused}",)


def check(code: bytes, entries: Iterable[str]) -> dict[str, KernelNote]:
    """The notes of the kernels. LinkError where one of them doesn't take exactly the six words that launches
    pass, or where its descriptor disagrees with its note."""
    file = elf.read(code)
    found = kernel_notes(file)
    for entry in entries:
        kernel = found.get(entry)
        if kernel is None:
            raise LinkError(f"expected a kernel {entry}, got a code object with {', '.join(found)}")
        places = [(argument.offset, argument.size, argument.kind) for argument in kernel.arguments]
        wanted = [(8 * i, 8, "by_value") for i in range(WORDS)]
        if places != wanted or kernel.arguments_size != ARGUMENTS:
            raise LinkError(f"kernel {entry}: expected the arguments {wanted}, got {places}")
        said = descriptor(file, entry)
        if (said.arguments_size, said.group_memory) != (ARGUMENTS, kernel.group_memory):
            raise LinkError(
                f"kernel {entry}: expected a descriptor of {ARGUMENTS} bytes of arguments and {kernel.group_memory} of "
                f"workgroup memory, as its note says, got {said.arguments_size} and {said.group_memory}"
            )
    return found
