"""A module of LLVM's for the time of one compilation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def parsed(text: str) -> Iterator[Any]:
    """The verified module of LLVM IR text, in a context of its own: LLVM's global one keeps every constant and type
    that it ever saw. Both are disposed of here and not by finalizers, in which what a signal handler raises is lost."""
    from llvmlite import binding  # late: heavy, and not needed where compiled code is loaded from disk

    with binding.create_context() as context, binding.parse_assembly(text, context) as module:
        module.verify()
        yield module
