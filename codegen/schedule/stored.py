"""Which inline values are worth keeping in memory.

A value read at several different indices (broadcast along a new axis, shifted twice, looked up) would be
computed as often. It is stored where that costs more than writing it once and reading it back:

    cost * (evaluations - elements)  >  STORE * elements + LOAD * evaluations + LAUNCH
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from loopgrad.codegen.schedule.columns import reads_columns
from loopgrad.codegen.schedule.cost import AGAIN, CEILING, EXPENSIVE, LAUNCH, LOAD, STORE, own_cost, repeats
from loopgrad.codegen.schedule.partition import Partition
from loopgrad.codegen.schedule.readings import OWN, Readings, ReadPlaces
from loopgrad.codegen.schedule.recomputed import arrays_of
from loopgrad.codegen.schedule.roles import Role
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, NULLARY
from loopgrad.graph.types import TensorType

UNIFORM = 8.0  # lanes that share one evaluation of a scalar, roughly
FEW_OPERATIONS = 2.0 * AGAIN
LOOKUPS = 8.0  # a region looks a table up about this often per lane
SLICES = frozenset({"slice", "flip"})
WORD = 32
SHORT_ROW = 32.0  # elements
PICKING = frozenset({"slice", "reshape"})
REPEATING = PICKING | {"broadcast", "cast"}
NARROW = 1024  # elements for each of what is repeated
SAME_INDEX = frozenset({*ELEMENTWISE, "reshape"})


def inline_costs(partition: Partition, stored: set[Value]) -> dict[Value, float]:
    """One element of each value, its operands computed along; CEILING at most."""
    costs: dict[Value, float] = {}
    for node in partition.graph.nodes:
        role = partition.role[node]
        if role is Role.INLINE:
            costs[node.results[0]] = _inline_cost(node, stored, costs)
        elif role is Role.LANES:
            costs.update(dict.fromkeys(node.results, CEILING))
    return costs


def choose_stored(partition: Partition) -> set[Value]:
    """The values that kernels write to memory."""
    stored = set(partition.must_store)
    costs = inline_costs(partition, stored)
    numbers = set() if partition.in_order else _of_positions(partition, costs)
    readings: dict[Value, Readings] = {}
    places = ReadPlaces()
    for node in reversed(partition.graph.nodes):
        for r in node.results:
            if r not in readings:
                readings[r] = Readings()
        if partition.role[node] is Role.INLINE:
            v = node.results[0]
            size, evaluations = 1.0 * prod(v.shape), readings[v].total()
            kept = v not in numbers and not _is_part(partition, v) and not _is_rolled(partition, v)
            kept = kept and node.op != "broadcast"  # what a broadcast repeats is stored in its place
            kept = kept and not _is_index_again(partition, v, costs[v], evaluations, stored)
            if v not in stored and kept and _worth_storing(costs[v], size, evaluations):
                stored.add(v)
            _inline_readings(partition, node, readings[v].evaluated(size, v in stored, places), readings, places)
        else:
            _root_readings(partition, node, readings, places)
    stored = stored if partition.in_order else _asked_again(partition, stored, readings)
    return _without_multiples(partition, stored, costs, readings)


def _asked_again(partition: Partition, stored: set[Value], readings: dict[Value, Readings]) -> set[Value]:
    """Without those that cost little now that what they are made of is stored: a comparison of it."""
    kept, costs = set(stored), dict[Value, float]()
    for node in partition.graph.nodes:
        if partition.role[node] is Role.INLINE:
            v = node.results[0]
            costs[v] = _inline_cost(node, kept, costs)
            chosen = v in kept and v not in partition.must_store
            if chosen and not _worth_storing(costs[v], 1.0 * prod(v.shape), readings[v].total()):
                kept.remove(v)
        elif partition.role[node] is Role.LANES:
            costs.update(dict.fromkeys(node.results, CEILING))
    return kept


def _inline_cost(node: Node, stored: set[Value], costs: dict[Value, float]) -> float:
    """Of one element, from what is stored on."""
    total = own_cost(node)
    for i, v in enumerate(node.operands):
        total += repeats(node, i) * (LOAD if v in stored else costs.get(v, LOAD))
    return min(total, CEILING)


def _of_positions(partition: Partition, costs: dict[Value, float]) -> set[Value]:
    """Values that are made of positions and constants in few operations, and read nothing: a GPU computes them again in
    less time than it waits for them."""
    found: set[Value] = set()
    for node in partition.graph.nodes:
        reads = partition.role[node] is not Role.INLINE or not (node.operands or node.op in NULLARY)
        if not reads and found.issuperset(node.operands) and costs[node.results[0]] < FEW_OPERATIONS:
            found.add(node.results[0])
    return found


def _is_part(partition: Partition, value: Value) -> bool:
    """Whether it is one element of what is in memory: read there, it costs what it would where it is stored. So do
    pieces of rows for GPUs, and numbers that are fewer bytes there."""
    found = value
    while found.node is not None and found not in partition.must_store:
        if found.node.op not in PICKING and (partition.in_order or not _widens(found.node)):
            break
        if prod(value.shape) != 1 and (partition.in_order or not _in_rows(found.node)):
            return False
        found = found.node.operands[0]
    return found.node is None or found in partition.must_store


def _widens(node: Node) -> bool:
    return node.op == "cast" and node.operands[0].dtype.bits <= node.results[0].dtype.bits


def _in_rows(node: Node) -> bool:
    """Whether neighbours of a slice lie side by side."""
    return node.op != "slice" or (node.results[0].shape[-1] != 1 and node.attrs["step"][-1] == 1)


def _is_index_again(partition: Partition, value: Value, cost: float, evaluations: float, stored: set[Value]) -> bool:
    """Whether it is an integer, or a test, made of one number in memory in few operations, for lanes of short rows: a
    GPU makes it again in each of them, which read no more. Such are a row's number, where negative ones are counted
    from the end, and whether there is such a row: writing those of 2**21 rows of 8 takes 6 us on an H200, where adding
    these to a table takes 105 in all."""
    if partition.in_order or value.dtype.is_float or cost >= EXPENSIVE:
        return False
    if evaluations > SHORT_ROW * prod(value.shape):
        return False
    arrays = arrays_of(partition, value, stored)
    return arrays is not None and len(arrays) == 1


def _is_rolled(partition: Partition, value: Value) -> bool:
    """Whether it is an array in memory whose elements are elsewhere: a GPU reads them there. Smaller ones are copied in
    less time than their places are computed: on an H200 the smallest of 9 neighbours takes 1.55 times as long by copies
    in float32, and 0.9 times in uint8. So are rows that a pad makes longer: neighbours don't choose
    alike at their ends."""
    node = value.node
    if partition.in_order or node is None or node.op not in ("concat", "pad") or value.dtype.bits < WORD:
        return False
    if node.op == "pad":
        source = node.operands[0]
        longer = node.attrs["low"][-1] or node.attrs["high"][-1]
        return not longer and (source.node is None or source in partition.must_store)
    slices = [v.node for v in node.operands]
    arrays = {n.operands[0] if n is not None and n.op in SLICES else None for n in slices}
    array = arrays.pop()
    return array is not None and not arrays and (array.node is None or array in partition.must_store)


def _without_multiples(
    partition: Partition, stored: set[Value], costs: dict[Value, float], readings: dict[Value, Readings]
) -> set[Value]:
    """One value in the place of several that are little more than it: a convolution's cotangent times each tap. What is
    left of each is computed at every reading, which has to cost less than storing it."""
    sources: dict[Value, list[Value]] = {}
    for node in partition.graph.nodes:
        for v in node.results:
            if v in stored and v not in partition.must_store:
                most = STORE * prod(v.shape) / max(readings[v].total(), 1.0)
                source = _source(partition, stored, v, costs, most)
                if source is not v:
                    sources.setdefault(source, []).append(v)
    for source, made in sources.items():
        if len(made) > 1 or source in stored:
            stored.difference_update(made)
            stored.add(source)
    return stored


def _source(partition: Partition, stored: set[Value], value: Value, costs: dict[Value, float], most: float) -> Value:
    """The first of the values of this size that `value` is made of element by element, at a cost of `most`, each the
    only operand of the next that isn't one number for all elements."""
    found, spent = value, 0.0
    while True:
        node = found.node
        if node is None or node.op not in ELEMENTWISE or found in partition.anchor:
            return found
        wide = [v for v in dict.fromkeys(node.operands) if not (_is_uniform(v, costs) or _is_narrow(stored, v))]
        spent += own_cost(node) + sum([costs.get(v, LOAD) for v in node.operands if v not in wide])
        if len(wide) != 1 or spent > most:
            return found
        source = wide[0].node
        if source is None or partition.role[source] is not Role.INLINE or wide[0].dtype.bits > value.dtype.bits:
            return found
        found = wide[0]


def _is_uniform(value: Value, costs: dict[Value, float]) -> bool:
    """Whether all elements are one that is cheap, or a constant."""
    while value.node is not None and value.node.op in ("broadcast", "reshape"):
        value = value.node.operands[0]
    if value.node is not None and value.node.op == "const":
        return True
    return prod(value.shape) == 1 and costs.get(value, LOAD) <= EXPENSIVE


def _is_narrow(stored: set[Value], value: Value) -> bool:
    """Whether it repeats a few elements in memory, which are read along."""
    size = prod(value.shape)
    while value.node is not None and value.node.op in REPEATING and value not in stored:
        value = value.node.operands[0]
    return NARROW * prod(value.shape) <= size and (value.node is None or value in stored)


def _worth_storing(cost: float, size: float, evaluations: float) -> bool:
    if size == 1:
        evaluations = max(evaluations / UNIFORM, 1.0)
    return cost * (evaluations - size) > STORE * size + LOAD * evaluations + LAUNCH


def _inline_readings(
    partition: Partition,
    node: Node,
    evaluated: Mapping[int, float],
    readings: dict[Value, Readings],
    places: ReadPlaces,
) -> None:
    for i, v in enumerate(node.operands):
        count = repeats(node, i) if partition.in_order else _share(node, v) or repeats(node, i)
        same = node.op in SAME_INDEX or (not partition.in_order and _is_in_columns(partition, node))
        if v not in readings:
            readings[v] = Readings()
        for place, evaluations in evaluated.items():
            if node.op == "reshape":
                there = places.reshaped(node, place)
            else:
                there = place if same else places.moved(node, i, place)
            readings[v].read(there, evaluations * count)


def _is_in_columns(partition: Partition, node: Node) -> bool:
    """Whether it is only read by lanes that are numbered column by column, each of which reads an element."""
    return node.op == "transpose" and all(map(reads_columns, partition.readers.get(node.results[0], [node])))


def _share(node: Node, piece: Value) -> float:
    """Of the elements that are joined or padded, those that are one of a slice's. Only their lanes read it, which need
    no copy of it; but a CPU's vectors do, which look at all pieces: stencils of rolled arrays take 1.2 times as long
    there without."""
    sliced = node.op in ("concat", "pad") and piece.node is not None and piece.node.op in SLICES
    return prod(piece.shape) / max(prod(node.results[0].shape), 1) if sliced else 0.0


def _root_readings(partition: Partition, node: Node, readings: dict[Value, Readings], places: ReadPlaces) -> None:
    """A reduction reads its operand once; a region reads what isn't its lane's own once per lane."""
    region = partition.decision.kernel.get(node)
    for i, v in enumerate(node.operands):
        if not isinstance(v.type, TensorType):
            continue
        size = 1.0 * v.type.size
        if region is None or region.keeps_lanes(i):
            readings.setdefault(v, Readings()).read(OWN, size)
            continue
        factor = LOOKUPS if i in region.report.table_inputs else 1.0
        readings.setdefault(v, Readings()).read(places.moved(node, i, OWN), factor * region.lanes * size)
