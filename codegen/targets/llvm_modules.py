"""A module of LLVM's for the time of one compilation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

REGION: Final = 200  # loads and stores of a block that LLVM's scheduler compares with each other
NEWEST: Final = 22  # LLVM known to have the option; it ends the process where it has not

_untold = [True]  # empty once LLVM knows: an option that is given twice ends the process


def bound_scheduling() -> None:
    """Once a process, before LLVM compiles: its scheduler compares every load and store of a block with all others as
    long as these are 1,000, which took four fifths of the time for an 8 x 8 factorisation of a lane. Of longer blocks
    half keep their order. Only an option of the whole process says so; what code computes doesn't change."""
    try:
        _untold.pop()  # and no lock, which a forked child might find taken
    except IndexError:
        return
    from llvmlite import binding  # late: heavy, and not needed where compiled code is loaded from disk

    if binding.llvm_version_info[0] <= NEWEST:
        binding.set_option("", f"-dag-maps-huge-region={REGION}")


@contextmanager
def parsed(text: str) -> Iterator[Any]:
    """The verified module of LLVM IR text, in a context of its own: LLVM's global one keeps every constant and type
    that it ever saw. Both are disposed of here and not by finalizers, in which what a signal handler raises is lost."""
    from llvmlite import binding  # late: heavy, and not needed where compiled code is loaded from disk

    bound_scheduling()
    with binding.create_context() as context, binding.parse_assembly(text, context) as module:
        module.verify()
        yield module
