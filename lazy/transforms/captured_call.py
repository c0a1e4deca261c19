"""What `compiled.capture(...)` returns: a call that was recorded, to be run again at the least cost.

Circle: `lazy/transforms/compiled_methods.py` says that a method's `capture` returns one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Leaf
from loopgrad.lazy.tensor.core import PYTHON_SCALARS, TensorCore
from loopgrad.lazy.tensor.errors import StaleCaptureError, StaticArgumentError
from loopgrad.lazy.tensor.tree_patterns import TreePattern
from loopgrad.lazy.transforms.compiled_arguments import check_written, type_of
from loopgrad.lazy.transforms.compiled_version import Version
from loopgrad.lazy.transforms.input_buffers import input_buffers
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.replay import DeviceReplay as DeviceReplay
from loopgrad.runtime.replay import ReplayStats

if TYPE_CHECKING:
    from loopgrad.lazy.transforms.compile import Compiled

PUBLIC: Final = "Replay"
_SIMPLE: Final = (TensorCore, np.ndarray, np.generic, bool, int, float, complex)


class Replay:
    """A recorded call. Values and trip counts may change between replays; shapes and dtypes may not."""

    def __init__(
        self, compiled: Compiled, version: Version, recorded: DeviceReplay, leaves: Sequence[Any],
        pattern: TreePattern | None,
    ) -> None:  # fmt: skip
        self._compiled = compiled
        self._version = version
        self._recorded = recorded
        self._pattern = pattern  # of the arguments of the capture, where they are trees that have one
        self._leaves = leaves if version.written else ()  # the last arguments, of which the elements have changed

    def replay(self, *args: Any, **kwargs: Any) -> Any:
        """Run again; without arguments, on the last ones. Calling the object does the same.

        Raises ShapeError or DTypeError for arguments of other shapes or dtypes than those of the capture,
        StaticArgumentError for other static ones, StaleCaptureError where a tensor that the function reads from around
        it was written to.

        >>> total = lg.compile(lambda x: lg.sum(x)).capture(lg.ones(3))
        >>> total(lg.asarray([1.0, 2.0, 3.0])), total()
        (Tensor(6., dtype=float64), Tensor(6., dtype=float64))
        """
        version = self._version
        if version.stale:
            expected = "the tensors that the function reads from around it as they were at the capture"
            fix = "capture again, or pass it as an argument"
            raise StaleCaptureError(explained("replay", expected, "one that was written to", fix))
        if not args and not kwargs and not version.written:
            return version.results(self._recorded.replay(None))
        if not kwargs and (ready := _evaluated(args, version)) is not None:
            return version.results(self._recorded.replay([*ready, *version.captured]))
        found = None if self._pattern is None else self._pattern.leaves(args, kwargs)
        if found is not None and (ready := _evaluated(found, version)) is not None:
            return version.results(self._recorded.replay([*ready, *version.captured]))
        leaves = self._given(args, kwargs)
        inputs = _checked_inputs(leaves, version)
        if version.written:
            check_written(leaves, version.written)
            self._leaves = leaves
        return version.finish(leaves, self._recorded.replay([*inputs, *version.captured]))

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The arguments that are inputs."""
        if not args and not kwargs:
            return self._leaves
        if not self._version.parts and not kwargs and not [x for x in args if not isinstance(x, _SIMPLE)]:
            return args
        call = self._compiled._call(args, kwargs)
        if call.parts != self._version.parts:
            expected, fix = "the static arguments of the capture", "capture again for others"
            raise StaticArgumentError(explained("replay", expected, "another one", fix))
        return call.inputs()

    __call__ = replay

    def __reduce__(self) -> Any:
        fix = "keep the compiled function, and capture again"
        raise TypeError(explained("a captured call", "to stay in its process", "a copy or pickle of it", fix))

    def __repr__(self) -> str:
        types = ", ".join(map(str, self._version.types)) or "no arguments"
        return f"<captured call of ({types}) on {self._version.device.name}>"

    def stats(self) -> ReplayStats:
        """Captures, replays, and how often a stack heap grew: a `ReplayStats` of integers.

        >>> total = lg.compile(lambda x: lg.sum(x)).capture(lg.ones(3))
        >>> total(), total.stats().replays
        (Tensor(3., dtype=float64), 1)
        """
        return self._recorded.stats()


def _evaluated(args: Sequence[Any], version: Version) -> list[Buffer] | None:
    """The buffers of arguments that are all evaluated tensors of the capture's types, where nothing else is to be
    looked at: the common case."""
    if len(args) != len(version.types) or version.parts or version.written or version.required:
        return None
    found: list[Buffer] = []
    device = version.device.name
    for x, expected in zip(args, version.types):  # noqa: B905  # checked, and half the time
        value = x._value if isinstance(x, TensorCore) else None
        if not isinstance(value, Leaf):
            return None
        if value.type is not expected:
            if value.type != expected:
                return None
            value.type = expected  # equal: the next replay sees it at once
        buffer: Buffer = value.buffer
        if buffer.device != device:
            return None
        found.append(buffer)
    return found


def _checked_inputs(leaves: Sequence[Any], version: Version) -> list[Buffer]:
    if len(leaves) != len(version.types):
        fix = "pass the arguments of the capture"
        raise ShapeError(explained("replay", f"{len(version.types)} arrays", len(leaves), fix))
    for i, (x, expected) in enumerate(zip(leaves, version.types, strict=True)):
        got = type_of(x)
        if got != expected and not (type(x) in PYTHON_SCALARS and not expected.shape):
            error = ShapeError if got.shape != expected.shape else DTypeError
            raise error(explained("replay", f"argument {i} of type {expected}", got, "capture again for another type"))
    return input_buffers(leaves, version)
