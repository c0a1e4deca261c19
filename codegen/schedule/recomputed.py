"""Which expensive values several kernels would compute, before any kernel is put together.

Enters: a Partition and the levels of what is stored. Leaves: the last such values before the kernels part, as
`groups._shared` finds them among finished kernels. There every kernel is walked, and a chain of values between
reductions is in the kernel of each reduction after it; here one walk over the block, backwards, says of each node by
which kernels it would be computed, as far as that matters: by one, or by several, and from which level.

    s1 = reduce_sum(x1)    x2 = x1 + s1    s2 = reduce_sum(x2)    x3 = x2 + s2   ...   x1, x2, ... are stored
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import Final

from loopgrad.codegen.schedule.access import is_stack
from loopgrad.codegen.schedule.columns import reads_columns
from loopgrad.codegen.schedule.cost import AGAIN, CEILING, EXPENSIVE, LOAD, own_cost
from loopgrad.codegen.schedule.levels import Levels
from loopgrad.codegen.schedule.partition import MOST_LOOKED_AT, Partition
from loopgrad.codegen.schedule.roles import Role
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, REDUCTIONS

SHORT_ROW: Final = 1 << 12
ALONG: Final = frozenset({*ELEMENTWISE, "broadcast", "const"})
FLAT: Final = frozenset({*ELEMENTWISE, "const", "reshape"})
COLUMNS: Final = 1 << 32  # apart from the numbers of running totals
FOLLOWED: Final = 4  # kernels of one node, those of the lowest levels: whatever these find in memory, all find there

KernelKey = tuple[int, int, int]  # level, lanes, how many of these its reductions combine
Holders = tuple[KernelKey, ...]  # rising


def roots_by_kernel(partition: Partition, levels: Levels) -> dict[KernelKey, list[Value]]:
    """Stored values by level and lanes; reductions over part of the lanes keep to their kind, those by shards hold
    reductions of all lanes as well, and whatever any kernel can hold goes with one of them. A running total of its
    operand's elements is alone."""
    tables: dict[tuple[int, int], dict[int, list[Value]]] = {}
    found: dict[KernelKey, list[Value]] = {}
    for v, level in levels.level.items():
        lanes = partition.domain(v)
        if v.node is not None and partition.by_element(v.node):
            found[level, lanes, -1 - partition.position[v.node]] = [v]
            continue
        tables.setdefault((level, lanes), {}).setdefault(_combined(partition, v, lanes), []).append(v)
    for (level, lanes), kinds in tables.items():
        free = kinds.pop(0, [])
        shards = next((kind for kind in kinds if kind > lanes), None)
        if shards is not None and lanes in kinds:
            free = kinds.pop(lanes) + free
        host = shards or (lanes if lanes in kinds else next((kind for kind in kinds if kind > 0), 0))
        parts = _nested(partition, levels, free, lanes) if partition.in_order and not kinds else [free]
        for number, others in enumerate(parts[1:], len(partition.position) + 2):
            found[level, lanes, -number] = others
        for kind, roots in ({0: [], **kinds} if free and not host else kinds).items():
            found[level, lanes, kind] = [*roots, *parts[0]] if kind == host else roots
    return found


def _nested(partition: Partition, levels: Levels, roots: list[Value], lanes: int) -> list[list[Value]]:
    """Roots that any kernel can hold, together where the extents of one divide those of others, or don't matter:
    elsewhere lanes would divide to find where they are, which CPUs do by vectors of quotients, and read elements one by
    one."""
    if len({root.shape for root in roots}) < 2:
        return [roots]
    chains, parts = [set[int]()], [list[Value]()]
    for root in roots:
        shape = root.shape if prod(root.shape) == lanes and not _is_flat(partition, levels, root) else ()
        sizes = {*accumulate(reversed(shape), mul)} - {1}
        for chain, part in zip(chains, parts, strict=True):
            if all(not larger % smaller for smaller, larger in pairwise(sorted(chain | sizes))):
                chain |= sizes
                part.append(root)
                break
        else:
            chains.append(sizes)
            parts.append([root])
    return parts


def _is_flat(partition: Partition, levels: Levels, root: Value) -> bool:
    """Whether elements are made of those at the same place of memory, as far as that is looked at."""
    assert root.node is not None
    if root.node.op not in FLAT:
        return False
    pending, seen = [*levels.starts(root)], {root}
    while pending and len(seen) <= MOST_LOOKED_AT:
        v, kept = pending.pop()
        if v.node is None or v in levels.level:
            continue
        if v.node.op not in FLAT:
            return False
        fresh = [edge for edge in partition.edges(v, kept, prod(root.shape)) if edge[0] not in seen]
        seen.update([v for v, _ in fresh])
        pending.extend(fresh)
    return True


def _combined(partition: Partition, value: Value, lanes: int) -> int:
    """How many lanes a reduction combines, more than there are where it does so shard by shard; 0 for a root that any
    kernel of these lanes can hold. Lanes that are numbered column by column do nothing else: the number is negative.
    """
    node = value.node
    assert node is not None
    if partition.role[node] is not Role.REDUCE:
        return 0
    if node.op == "shard_reduce":
        extent: int = node.attrs["extent"]
        return lanes + extent
    combined = lanes * partition.kept_count(node) // prod(value.shape)
    return -COLUMNS * combined if reads_columns(node) else combined


def computed_twice(
    partition: Partition, levels: Levels, costs: dict[Value, float], before: set[Value] | None = None
) -> set[Value]:
    """The values, none of which is stored yet. `before`: those that were found and stored."""
    keys = {r: key for key, roots in roots_by_kernel(partition, levels).items() for r in roots}
    holders: dict[Node, Holders] = {}
    candidates: set[Value] = set()
    for node in reversed(partition.graph.nodes):
        roots = tuple([keys[r] for r in node.results if r in keys])
        held = _joined(holders.get(node, ()), roots) if roots else holders.get(node, ())
        if not held or not partition.role[node].in_kernel:
            continue
        holders[node] = held
        parts = bool(roots) or len(held) == 1
        for v in node.operands:
            made_by = v.node
            if made_by is None:
                continue
            computing = _computing(levels, v, held)
            if computing:
                known = holders.get(made_by)
                if known != computing:
                    holders[made_by] = computing if known is None else _joined(known, computing)
                if parts and worth_keeping(partition, v, costs.get(v, 0.0), levels.stored):
                    candidates.add(v)
    several = {n for n, held in holders.items() if len(held) > 1 and partition.role[n] is Role.INLINE}
    found = {v for v in candidates if v.node in several and v not in levels.stored and not is_stack(v)}
    return last_of(partition, found, before or set())


def worth_keeping(partition: Partition, value: Value, cost: float, stored: Collection[Value]) -> bool:
    """Whether a value that several kernels need had better be stored. Where it is made of one array, element by
    element, storing it saves no reading, and on a GPU its writing takes as long as some twenty operations do. Shorter
    rows may stay in memory of a workgroup that reduces them, which takes less than either. Where all that it is made of
    has fewer elements, as differences between each of some points and each of others have, nothing is read, or less
    than what would be stored: derivatives of their distances in each dimension. On an H200 softmax of rows of 50,000
    takes 1.15 times as long where exponentials are stored, of rows of 4,096 1.17 times where they aren't."""
    if cost < EXPENSIVE or cost >= CEILING or partition.in_order:
        return cost >= EXPENSIVE
    arrays = arrays_of(partition, value, stored)
    if not value.shape or arrays is None:
        return not value.shape or not _is_of_fewer(partition, value, stored)
    if not arrays:
        return False
    return _reduced_by_short_rows(partition, value) or arrays.pop().dtype.bits > value.dtype.bits


def _is_of_fewer(partition: Partition, value: Value, stored: Collection[Value]) -> bool:
    """Whether it is made, in few operations, of fewer elements, all of them in memory."""
    return all(_in_memory(partition, _reshaped(v, stored), stored) for v in partition.less_to_store(value))


def _reshaped(value: Value, stored: Collection[Value]) -> Value:
    """What it is the elements of, in another shape."""
    while value.node is not None and value.node.op == "reshape" and value not in stored:
        (value,) = value.node.operands
    return value


def last_of(partition: Partition, found: set[Value], before: set[Value]) -> set[Value]:
    """One value in the place of several that a GPU makes of it, element by element and in few operations: a distance,
    for a power and a comparison of it. None where it is one of those found and stored `before`."""
    if partition.in_order:
        return found
    sources = {v: _sources(partition, v) for v in found}
    left, kept = [v for v in found if before.isdisjoint(sources[v])], set[Value]()
    while left:
        uses = Counter([source for v in left for source in sources[v]])
        best = max(uses, key=lambda v: (uses[v], partition.position[v.node] if v.node is not None else -1))
        kept.add(best)
        left = [v for v in left if best not in sources[v]]
    return kept


def _sources(partition: Partition, value: Value) -> list[Value]:
    """It, and what it is made of alone, of which each is computed where it is needed; only it where that comes from as
    many elements in memory, which may stay in a workgroup with it."""
    size, spent, found = prod(value.shape), 0.0, [value]
    while (node := found[-1].node) is not None and node.op in ELEMENTWISE:
        spent += own_cost(node)
        wide = [v for v in dict.fromkeys(node.operands) if not _repeats(v, size)]
        if not wide:
            return found
        made_by = wide[0].node
        if spent >= AGAIN or len(wide) > 1 or made_by is None or partition.role[made_by] is not Role.INLINE:
            return [value]
        found.append(wide[0])
    return found


def _repeats(value: Value, size: int) -> bool:
    """Whether it is a constant, or made of fewer elements."""
    node = value.node
    return node is not None and (node.op == "const" or (node.op == "broadcast" and prod(node.operands[0].shape) < size))


def _reduced_by_short_rows(partition: Partition, value: Value) -> bool:
    """Whether workgroups reduce rows, which are short, of what is made of it, element by element."""
    pending, seen = [value], {value}
    while pending and len(seen) <= MOST_LOOKED_AT:
        for reader in partition.readers.get(pending.pop(), ()):
            if partition.role[reader] is Role.REDUCE and _row(partition, reader) <= SHORT_ROW:
                return True
            if reader.op in ELEMENTWISE or reader.op in ("reshape", "transpose"):
                fresh = [v for v in reader.results if v not in seen]
                seen.update(fresh)
                pending += fresh
    return False


def _row(partition: Partition, reduction: Node) -> int:
    """The elements that are one afterwards, where they lie side by side and it isn't only a part of a sum; else more
    than any row has."""
    after = [reader for v in reduction.results for reader in partition.readers.get(v, ())]
    if any(reader.op in REDUCTIONS for reader in after):
        return SHORT_ROW + 1
    shape, attrs = reduction.operands[0].shape, reduction.attrs
    axes = (attrs["axis"],) if "axis" in attrs else attrs.get("axes", ())
    last = axes and sorted(axes) == list(range(len(shape) - len(axes), len(shape)))
    return prod([shape[axis] for axis in axes]) if last else SHORT_ROW + 1


def arrays_of(partition: Partition, value: Value, stored: Collection[Value]) -> set[Value] | None:
    """The values of its size in memory that the value is made of, element by element and in few operations, beside
    constants and fewer elements, which are stored where they are expensive. None: in many, or of several."""
    size, pending, seen, cost = prod(value.shape), [value], {value}, 0.0
    arrays = set[Value]()
    while pending:
        found = pending.pop()
        if found is not value and prod(found.shape) < size:
            cost += LOAD
        elif _in_memory(partition, found, stored):
            cost += LOAD
            arrays.add(found)
        else:
            assert found.node is not None
            if found.node.op not in ALONG:
                return None
            cost += own_cost(found.node)
            fresh = [v for v in found.node.operands if v not in seen]
            seen.update(fresh)
            pending += fresh
        if len(arrays) > 1 or cost >= AGAIN:
            return None
    return arrays


def _in_memory(partition: Partition, value: Value, stored: Collection[Value]) -> bool:
    return value in stored or value.node is None or partition.role[value.node] is not Role.INLINE


def _joined(one: Holders, other: Holders) -> Holders:
    if one == other or not other:
        return one
    return tuple(sorted({*one, *other})[:FOLLOWED])


def _computing(levels: Levels, value: Value, held: Holders) -> Holders:
    """Those of the kernels that don't find the value in memory."""
    level = levels.level.get(value)
    return held if level is None else tuple([key for key in held if key[0] <= level])
