"""What a compiled function writes to its arguments.

The program returns the new elements of the arguments that the function writes to, after its results; here they are
written to the caller's tensors (and with them to all that shares their memory) and NumPy arrays, as the function
does when it is called without `lg.compile`. Numbers are not written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from loopgrad.graph.errors import explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.core import TensorCore, TensorLeaf, wrap
from loopgrad.lazy.memory import as_array, check_writable, is_array_without_axes, is_number, share_memory, write
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import get_device

if TYPE_CHECKING:
    from loopgrad.lazy.tensor import Tensor


def argument(x: Any, value: Value, weak: bool) -> Tensor:
    """What the function is called with in place of an argument."""
    tensor = wrap(value, weak)
    return as_array(tensor) if is_array_without_axes(x) else tensor


def written_to(leaves: Sequence[Any], given: Sequence[Tensor], values: Sequence[Value]) -> tuple[int, ...]:
    """The positions of arguments whose stand-ins (`given`, made of `values`) have been written to."""
    found = [i for i, (t, v) in enumerate(zip(given, values, strict=True)) if t._value is not v]
    return tuple([i for i in found if _has_memory(leaves[i])])


def _has_memory(x: Any) -> bool:
    return isinstance(x, np.ndarray) or (isinstance(x, TensorCore) and not is_number(x))


def check_written(leaves: Sequence[Any], written: Sequence[int]) -> None:
    """ValueError where an argument that the function writes to is read-only, or shares memory with another one."""
    for i in written:
        x = leaves[i]
        if isinstance(x, TensorCore):
            check_writable("compile", x)
        elif isinstance(x, np.ndarray) and not x.flags.writeable:
            got = f"a read-only array at argument {i}"
            raise ValueError(explained("compile", "arguments that can be written to", got, "pass a copy"))
    for i, j in combinations(range(len(leaves)), 2):
        if (i in written or j in written) and _share(leaves[i], leaves[j]):
            expected = "arguments that share no memory, as the function writes to one of them"
            got = f"arguments {i} and {j} that do"
            raise ValueError(explained("compile", expected, got, "pass a copy of one, x.copy()"))


def _share(a: Any, b: Any) -> bool:
    if isinstance(a, TensorCore) and isinstance(b, TensorCore):
        return share_memory(a, b)
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)


def write_back(leaves: Sequence[Any], written: Sequence[int], buffers: Sequence[Buffer], committed: bool) -> None:
    """The new elements, written to the caller's arguments."""
    for i, buffer in zip(written, buffers, strict=True):
        x = leaves[i]
        if isinstance(x, np.ndarray):
            np.copyto(x, get_device(buffer.device).get(buffer))
        elif _has_memory(x):
            write(x, TensorLeaf(buffer.type, buffer, computed=True, committed=committed))
