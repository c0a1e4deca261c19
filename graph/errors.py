"""What graphs, their interpreter and their programs raise on purpose, each also an instance of the built-in exception
that it refines. runtime.failures and lazy.errors have those of stacks, devices and tensors."""

from __future__ import annotations

from typing import Final

import numpy as np

from loopgrad.graph.location import describe, located, user_location
from loopgrad.graph.nodes import Location

PUBLIC: Final = (
    "AxisError DTypeError DeviceError GradientError IndexRangeError LeakedValueError LoopgradError LoopLimitError "
    "NamedAxisError NestingError ShapeError"
)
PUBLIC_LINALG: Final = "LinAlgError"


class LoopgradError(Exception):
    """Base of the library's own exceptions."""


class ShapeError(LoopgradError, ValueError):
    """Shapes, ranks or axes that don't fit together."""


class AxisError(ShapeError, np.exceptions.AxisError):
    """An axis that an array hasn't: an IndexError as well, as the array API standard wants."""


class DTypeError(LoopgradError, TypeError):
    """An element type an operation isn't defined for, or operands whose types differ."""


class DeviceError(LoopgradError, ValueError):
    """Operands that were put on different devices, or lanes of several processes that an operation would move."""


class LinAlgError(LoopgradError, np.linalg.LinAlgError):
    """Matrices of the wrong shape, or without the factorisation that was asked for."""


class LeakedValueError(LoopgradError, ValueError):
    """A value made while tracing one region was used outside it."""


class NamedAxisError(LoopgradError, NameError):
    """A named axis of `vmap` that isn't around, or along which examples can't meet."""


class NestingError(LoopgradError, RecursionError):
    """Loops and branches inside each other, deeper than any program is meant to be."""


class GradientError(LoopgradError, TypeError):
    """A derivative that isn't defined as asked: a non-scalar loss, an integer argument, a rule that doesn't hold."""


class VerifyError(LoopgradError):
    """A graph that breaks the IR's rules: a bug in the library, not in the program."""


class IndexRangeError(LoopgradError, IndexError):
    """An index out of range, where checking was asked for."""


class LoopLimitError(LoopgradError, RuntimeError):
    """A loop's condition still held after `max_steps` trips."""

    def __init__(self, max_steps: int, loc: Location | None, name: str | None = None) -> None:
        loop = f"while loop {name!r}" if name else "while loop"
        super().__init__(
            f"{loop}: expected its condition to fail within max_steps={max_steps} trips, got one more; "
            "raise max_steps, or make sure that the body moves the condition towards False\n" + describe(loc)
        )
        self.max_steps = max_steps
        self.loc = loc


def explained(op: str, expected: object, got: object, fix: str) -> str:
    """The text of a user error: what was expected, what came, how to fix it, and the user's line."""
    return located(f"{op}: expected {expected}, got {got}; {fix}", user_location())
