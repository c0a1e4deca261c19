"""Many slices of one array as one value with an axis of the slices in front; see `alike`.

slices next to each other along an axis     one slice, its axis in two
single ones at equal distances              one slice with a step
any others                                  a gather at known positions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.graph.nodes import Value
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import TensorType, int64

MOST_POSITIONS: Final = 1 << 16  # of a gather


class Window(NamedTuple):
    """A slice with these attributes, of an array of one shape, that gives another."""

    attrs: Mapping[str, Any]
    extents: tuple[int, ...]
    shape: tuple[int, ...]


def can_be_joined(windows: Sequence[Window]) -> bool:
    """Whether these slices of one value, all of one shape, are worth while as one value."""
    size = prod(windows[0].shape)
    return size > 0 and (size * len(windows) <= MOST_POSITIONS or _regular(windows) is not None)


def joined_windows(windows: Sequence[Window], source: Value, b: GraphBuilder) -> Value:
    """What they take from `source`."""
    regular = _regular(windows)
    if regular is None:
        return _gathered(windows, source, b)
    axis, step = regular
    first, last = _ranges(windows[0]), _ranges(windows[-1])
    shape = windows[0].shape
    start = tuple([r.start for r in first])
    stop = tuple([last[d][-1] + 1 if d == axis else r[-1] + 1 for d, r in enumerate(first)])
    steps = tuple([step if d == axis else r.step for d, r in enumerate(first)])
    rows = b.value("slice", source, start=start, stop=stop, step=steps)
    parted = b.value("reshape", rows, shape=(*shape[:axis], len(windows), *shape[axis:]))
    return b.value("transpose", parted, perm=(axis, *[d for d in range(len(shape) + 1) if d != axis]))


def _regular(windows: Sequence[Window]) -> tuple[int, int] | None:
    """Along which axis, and with which step, one slice takes them all; None where none does."""
    steps = windows[0].attrs["step"]
    if min(steps, default=1) < 0 or any(w.attrs["step"] != steps for w in windows):
        return None
    starts = np.array([w.attrs["start"] for w in windows])
    moving = [axis for axis in range(starts.shape[1]) if np.any(starts[:, axis] != starts[0, axis])]
    if len(moving) != 1:
        return None
    (axis,) = moving
    width, distances = windows[0].shape[axis], np.unique(np.diff(starts[:, axis]))
    distance = int(distances[0])
    if len(distances) != 1 or distance <= 0 or (width > 1 and (width != distance or steps[axis] != 1)):
        return None
    return axis, 1 if width == distance else distance


def _gathered(windows: Sequence[Window], source: Value, b: GraphBuilder) -> Value:
    shape, rank = windows[0].shape, len(source.shape)
    starts = np.array([w.attrs["start"] for w in windows], np.int64).reshape(-1, rank)
    steps = np.array([w.attrs["step"] for w in windows], np.int64).reshape(-1, rank)
    index = np.zeros((len(windows), *shape), np.int64)
    for d, extent in enumerate(source.shape):
        first = np.minimum(starts[:, d], extent - 1)  # where a slice that goes backwards starts
        places = first[:, None] + steps[:, d, None] * np.arange(shape[d])
        rows = (len(windows), *[shape[d] if i == d else 1 for i in range(rank)])
        index += (places * prod(source.shape[d + 1 :])).reshape(rows)
    flat = b.value("reshape", source, shape=(prod(source.shape),))
    return b.value("gather", flat, b.value("literal", data=index.tobytes(), type=TensorType(index.shape, int64)))


def _ranges(window: Window) -> list[range]:
    """The positions that a slice takes along each axis."""
    attrs = window.attrs
    bounds = zip(attrs["start"], attrs["stop"], attrs["step"], strict=True)
    return [range(*slice(*bound).indices(extent)) for bound, extent in zip(bounds, window.extents, strict=True)]
