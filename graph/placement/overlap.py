"""When results of a process start on their way to the others, while it computes what doesn't wait for them.

A collective of all that is ready at the end of a level (`partition`) is the rule: one latency. Where results are large
and much is left to compute before the last of them, those that are there start early. Nodes of such a level are looked
at by how many come before them, as devices run them: a graph has the derivative by the first layer's weights first,
whose cotangent is the last to be known. Processes must decide alike, so everything is counted of whole arrays, and
divided by the number of processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod
from typing import Final

from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import PRIMITIVES, Kind
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import TensorType

EARLY: Final = 1 << 20  # bytes of each process that are worth a message of their own
OPERATIONS: Final = 8  # to be left for each byte: networks bring 10 GB/s and more, a core does 10^10 a second and more
SWIFT_BYTES: Final = 32  # times as many where devices exchange memory: two H100s lose by 4 MiB, and by 32 they don't
SWIFT_OPERATIONS: Final = 16  # likewise: links of GPUs bring 200 GB/s and more, a GPU does 3 * 10^13 a second and more
TRIPS: Final = 16  # of loops whose number isn't known


def worth_starting(nbytes: int, operations: int, size: int, swift: bool) -> bool:
    """Whether results of so many bytes of all processes start early, before so many operations of all. `swift`: devices
    exchange memory."""
    each = SWIFT_OPERATIONS if swift else 1
    return nbytes >= _fewest(swift) * size and operations >= OPERATIONS * nbytes * each


def _fewest(swift: bool) -> int:
    """Bytes of each process that are worth a message of their own."""
    return EARLY * SWIFT_BYTES if swift else EARLY


def operations(node: Node) -> int:
    """About how many operations a node is, of the lanes of all processes."""
    if node.regions:
        region = Region.of(node)
        inside = sum([operations(inner) for body in region.running for inner in body.nodes])
        return inside * (_trips(region) if isinstance(region, Loop) else 1)
    row = PRIMITIVES[node.op]
    made = sum(map(_elements, node.results))
    if row.kind is Kind.CONTRACTION:  # exact for products of two matrices
        return 2 * isqrt(made * prod(map(_elements, node.operands)))
    return int(row.cost * max([made, *map(_elements, node.operands)]))


def _elements(value: Value) -> int:
    return value.type.size if isinstance(value.type, TensorType) else 0


def _trips(loop: Loop) -> int:
    count = loop.count
    if count is None or count.node is None or count.node.op != "const":
        return TRIPS
    return int(count.node.attrs["value"])


def by_readiness(level: Sequence[tuple[Node, bool]], swift: bool) -> Sequence[tuple[Node, bool]]:
    """The nodes of a level, of which those are marked whose results a collective makes whole; in an order in which what
    others wait for comes early, where some of these results are so large that it matters."""
    met = [r.type for node, meets in level if meets for r in node.results]
    if sum([t.nbytes for t in met if isinstance(t, TensorType)]) < _fewest(swift):
        return level
    depth: dict[Node, int] = {}
    for node, _ in level:
        before = [depth.get(v.node, 0) for v in node.operands if v.node is not None]
        depth[node] = 1 + max(before, default=0)
    return sorted(level, key=lambda entry: depth[entry[0]])


def operations_left(level: Sequence[tuple[Node, bool]]) -> list[int]:
    """Behind each of these nodes, in their order, up to the last one whose results a collective makes whole; these are
    marked."""
    left, found, meets = list[int](), 0, False
    for node, met in reversed(level):
        left.append(found)
        meets = meets or met
        found += operations(node) if meets else 0
    return left[::-1]
