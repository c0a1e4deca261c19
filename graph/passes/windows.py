"""Many slices of one array as one value with an axis of the slices in front; see `alike`.

slices next to each other along an axis     one slice, its axis in two
single ones at equal distances              one slice with a step
any others                                  a gather at known positions
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import TensorType, int64

MOST_POSITIONS: Final = 1 << 16  # of a gather


def can_be_joined(nodes: Sequence[Node]) -> bool:
    """Whether these `slice` nodes of one value, all of one shape, are worth while as one value."""
    size = prod(nodes[0].results[0].shape)
    return size > 0 and (size * len(nodes) <= MOST_POSITIONS or _regular(nodes) is not None)


def joined_windows(nodes: Sequence[Node], source: Value, b: GraphBuilder) -> Value:
    """What they take from `source`."""
    regular = _regular(nodes)
    if regular is None:
        return _gathered(nodes, source, b)
    axis, step = regular
    first, last = _ranges(nodes[0]), _ranges(nodes[-1])
    shape = nodes[0].results[0].shape
    start = tuple([r.start for r in first])
    stop = tuple([last[d][-1] + 1 if d == axis else r[-1] + 1 for d, r in enumerate(first)])
    steps = tuple([step if d == axis else r.step for d, r in enumerate(first)])
    rows = b.value("slice", source, start=start, stop=stop, step=steps)
    parted = b.value("reshape", rows, shape=(*shape[:axis], len(nodes), *shape[axis:]))
    return b.value("transpose", parted, perm=(axis, *[d for d in range(len(shape) + 1) if d != axis]))


def _regular(nodes: Sequence[Node]) -> tuple[int, int] | None:
    """Along which axis, and with which step, one slice takes them all; None where none does."""
    ranges = [_ranges(n) for n in nodes]
    starts = np.array([[r.start for r in each] for each in ranges])
    moving = [axis for axis in range(starts.shape[1]) if np.any(starts[:, axis] != starts[0, axis])]
    if len(moving) != 1 or any(r.step < 0 for r in ranges[0]) or len({n.attrs["step"] for n in nodes}) != 1:
        return None
    (axis,) = moving
    width, distances = len(ranges[0][axis]), np.unique(np.diff(starts[:, axis]))
    distance = int(distances[0])
    if len(distances) != 1 or distance <= 0 or (width > 1 and (width != distance or ranges[0][axis].step != 1)):
        return None
    return axis, 1 if width == distance else distance


def _gathered(nodes: Sequence[Node], source: Value, b: GraphBuilder) -> Value:
    strides = [prod(source.shape[d + 1 :]) for d in range(len(source.shape))]
    index = np.stack([sum(np.ix_(*[np.array(r) * n for r, n in zip(_ranges(s), strides, strict=True)])) for s in nodes])
    flat = b.value("reshape", source, shape=(prod(source.shape),))
    type = TensorType(index.shape, int64)
    return b.value("gather", flat, b.value("literal", data=index.astype(np.int64).tobytes(), type=type))


def _ranges(node: Node) -> list[range]:
    """The positions that a slice takes along each axis."""
    attrs, extents = node.attrs, node.operands[0].shape
    bounds = zip(attrs["start"], attrs["stop"], attrs["step"], strict=True)
    return [range(*slice(*bound).indices(extent)) for bound, extent in zip(bounds, extents, strict=True)]
