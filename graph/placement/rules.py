"""How one process' part of each plain operation is emitted (see `partition`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from loopgrad.graph.errors import DeviceError
from loopgrad.graph.identities import identity
from loopgrad.graph.location import located
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.placement import sums
from loopgrad.graph.placement.layout import shard_count, shard_extent
from loopgrad.graph.placement.partition import GraphPartition, Meeting
from loopgrad.graph.placement.places import REPLICATED, Place, Places, gathers, is_reduced, meets
from loopgrad.graph.primitives import COMBINES, PRIMITIVES, REDUCTIONS, Kind
from loopgrad.graph.types import TensorType, float32, uint8

ORDERED_BY_SHAPE: Final = (Kind.LIBRARY, Kind.RUNNING_TOTAL, Kind.CONTRACTION)
MOST_KEPT: Final = 16  # elements of a lane that are reduced side by side
FEW_OF_LANE: Final = 64  # elements of a lane that are combined before lanes are
PRODUCT_BYTES: Final = 1 << 28  # of products of all shards, from which on they are made and added one by one
PRIVATE_BYTES: Final = 1 << 32  # of accumulators of which each lane has one


def emit_node(walk: GraphPartition, node: Node) -> None:
    """Emit a node, or note that it is made later or by the next collective."""
    operands = tuple([walk.places[v] for v in node.operands])
    if walk.is_deferred(node):
        walk.deferred[node.results[0]] = node
    elif node.op in ("push", "pop"):
        place = walk.places[node.results[0]]
        _put(walk, node, [walk.at(v, place) for v in node.operands])
    elif gathers(node, operands):
        _gathered(walk, node, operands[0])
    elif is_reduced(node, operands):
        _reduced(walk, node, operands)
    elif node.op == "scatter":
        _scatter(walk, node, operands)
    else:
        _kept(walk, node, operands)


def _put(walk: GraphPartition, node: Node, operands: Sequence[Value], **changed: object) -> None:
    """As it is; but sums of derivatives are contracted with products in lanes that nobody meets in only: elsewhere a
    collective may stand between the two, and where there is one process it doesn't."""
    attrs = {**node.attrs, **changed} if changed else node.attrs
    if attrs.get("contract") and not walk.inside:
        attrs = {**attrs, "contract": False}
    walk.env.update(zip(node.results, walk.builder.emit(node.op, operands, attrs), strict=True))


def _kept(walk: GraphPartition, node: Node, operands: Places) -> None:
    """What keeps lanes, or has none."""
    axis = walk.places[node.results[0]].axis
    if axis is None and _ordered_sum(walk, node):
        walk.env[node.results[0]] = _folded(
            walk, walk.at(node.operands[0], REPLICATED), node.attrs["axes"], COMBINES[node.op]
        )
    elif axis is None:
        _put(walk, node, [walk.at(v, REPLICATED) for v in node.operands])
    elif node.op == "gather" and operands[0].axis is not None and operands[0].axis < len(node.operands) - 1:
        table, *indices = [walk.at(v, Place(axis) if i else operands[0]) for i, v in enumerate(node.operands)]
        indices[operands[0].axis] = walk.own_positions(node.operands[1 + operands[0].axis], axis)
        _put(walk, node, (table, *indices))
    elif node.op in REDUCTIONS and node.operands[0].dtype.is_float and not walk.inside:
        walk.builder.loc = node.loc
        x = walk.at(node.operands[0], operands[0])
        walk.env[node.results[0]] = _folded(walk, x, node.attrs["axes"], COMBINES[node.op])
    elif _ordered_product(walk, node, axis):
        _product(walk, node, axis)
    else:
        _note_order(walk, node)
        _put(walk, node, walk.operands_of(node, axis), **walk.attrs_of(node, axis))


def _ordered_sum(walk: GraphPartition, node: Node) -> bool:
    """Whether a reduction of what all processes have is put in order: what else is in a process' program, which depends
    on its lanes, decides in which kernel and in what order its device would do it."""
    ordered = node.op in REDUCTIONS and node.operands[0].dtype.is_float
    return ordered and not walk.inside and not walk.partition.fast


def _note_order(walk: GraphPartition, node: Node) -> None:
    """What adds floats up in an order that may depend on how many rows there are."""
    row = PRIMITIVES[node.op]
    exact = row.exact is not None and row.exact(node)
    if row.kind in ORDERED_BY_SHAPE and not exact and any(v.dtype.is_float for v in node.results):
        where = f" at {node.loc}" if node.loc else ""
        walk.partition.notes[f"{node.op}{where}: done by shape, so bits may depend on the number of processes"] = None


def _ordered_product(walk: GraphPartition, node: Node, axis: int) -> bool:
    """Whether a product is made shard by shard. In lanes that end on their own each makes its own."""
    ordered = node.op == "matmul" and node.operands[0].dtype.is_float and axis >= len(node.results[0].shape) - 2
    return ordered and not walk.inside and not walk.partition.fast


def _product(walk: GraphPartition, node: Node, axis: int) -> None:
    """A product of matrices whose rows or columns are lanes, shard by shard: how large products are cut depends on how
    many rows they have, and with it the order of sums. Of all lanes at once where that isn't so from a shard's on."""
    b, part = walk.builder, walk.part
    (result,) = node.results
    n, side = result.shape[axis], axis - len(result.shape) + 2
    operands = walk.operands_of(node, axis)
    own, lanes, extent = len(part.shards(n)), len(part.lanes(n)), shard_extent(n)
    terms, columns = node.operands[0].shape[-1], node.operands[1 - side].shape[-1 - side]
    if walk.partition.rows_alike(extent, terms, columns, result.dtype):
        if own:
            operands[side] = sums.filled(b, operands[side], axis, max(extent, lanes), "add")
        walk.env[result] = sums.cut(b, b.value("matmul", *operands, **node.attrs), axis, 0, lanes)
        return
    if own:
        operands[side] = sums.sharded(b, operands[side], axis, n, part)
        other = operands[1 - side]
        dims = tuple(range(1, len(other.shape) + 1))
        operands[1 - side] = b.value("broadcast", other, shape=(own, *other.shape), dims=dims)
    product = b.value("matmul", *operands, **node.attrs)
    if own:
        order = list(range(1, len(product.shape)))
        order.insert(axis, 0)
        product = b.value("transpose", product, perm=tuple(order))
        kept = (*product.shape[:axis], own * product.shape[axis + 1], *product.shape[axis + 2 :])
        product = sums.cut(b, b.value("reshape", product, shape=kept), axis, 0, lanes)
    walk.env[result] = product


# ---- what lanes of all processes make


def _reduced(walk: GraphPartition, node: Node, operands: Places) -> None:
    if node.op == "matmul":
        _contracted(walk, node, operands)
        return
    if PRIMITIVES[node.op].finds:
        _position(walk, node, operands[0])
        return
    if node.op == "reshape":
        _only_lane(walk, node, operands[0])
        return
    x, place = walk.at(node.operands[0], operands[0]), operands[0]
    combine, axes = COMBINES[node.op], node.attrs["axes"]
    assert place.axis is not None
    n = node.operands[0].shape[place.axis]
    if node.results[0] in walk.depths:
        local = _exact(walk, node, x)
        walk.env[node.results[0]] = local
    elif not node.operands[0].dtype.is_float or (walk.partition.fast and combine == "add"):
        _met_exactly(walk, node, _exact(walk, node, x), combine)
    else:
        wide, narrow = _widened(walk, x)
        others = [a for a in axes if a != place.axis]
        if walk.partition.reduces_shards and prod(node.results[0].shape) <= MOST_KEPT:
            _met_by_device(walk, node, wide, place.axis, others, n, combine, narrow)
            return
        kept = place.axis - sum(a < place.axis for a in others)
        partial = _combination(walk, wide, combine).folded(wide, others)
        _met_by_shards(walk, node, partial, kept, n, combine, narrow)


def _exact(walk: GraphPartition, node: Node, x: Value) -> Value:
    """The reduction of the own lanes, in any order."""
    result = node.results[0]
    if x.type.size == 0:  # type: ignore[union-attr]
        return walk.builder.const(identity(COMBINES[node.op], x.dtype), TensorType(result.shape, x.dtype))
    return walk.builder.value(node.op, x, **node.attrs)


def _position(walk: GraphPartition, node: Node, place: Place) -> None:
    """Where the largest of all lanes is: each process has a candidate and where it stands, of which one is chosen as it
    is among elements."""
    b, part, axis = walk.builder, walk.part, place.axis
    assert axis is not None
    (result,) = node.results
    assert isinstance(result.type, TensorType)
    x, n = walk.at(node.operands[0], place), node.operands[0].shape[axis]
    if x.dtype.kind == "b":
        x = b.value("cast", x, dtype=uint8)
    own, row = part.lanes(n), (1, *result.shape)
    if own:
        best = b.value(PRIMITIVES[node.op].finds, x, axes=(axis,))
        position = b.value("add", b.value(node.op, x, axis=axis), b.const(own.start, result.type))
        rows = tuple([b.value("reshape", v, shape=row) for v in (best, position)])
    else:
        rows = tuple([b.const(0, TensorType((0, *result.shape), dtype)) for dtype in (x.dtype, result.dtype)])

    def combined(gathered: sums.Partial) -> Value:
        bests, positions = gathered
        chosen = b.value("reshape", b.value(node.op, bests, axis=0), shape=row)
        dims = tuple(range(len(row)))
        chosen = b.value("broadcast", chosen, shape=positions.shape, dims=dims)
        type = TensorType(positions.shape, positions.dtype)
        is_chosen = b.value("eq", b.value("iota", type=type, axis=0), chosen)
        kept = b.value("select", is_chosen, positions, b.const(0, type))
        return b.value("reduce_sum", kept, axes=(0,))

    counts = tuple([int(bool(part.of(rank).lanes(n))) for rank in range(part.size)])
    walk.meet(Meeting(rows, (counts, counts), combined, result), node)


def _only(partial: sums.Partial) -> Value:
    (value,) = partial
    return value


def _met_exactly(walk: GraphPartition, node: Node, own: Value, combine: str) -> None:
    """One row a process, which are combined in any order."""
    b, size = walk.builder, walk.part.size
    result = node.results[0]
    if own.dtype.is_float:
        walk.meet(Meeting((own,), (), _only, result, added=True), node)
        return

    def combined(gathered: sums.Partial) -> Value:
        (rows,) = gathered
        parts = [b.value("reshape", sums.cut(b, rows, 0, i, i + 1), shape=rows.shape[1:]) for i in range(size)]
        total = parts[0]
        for part in parts[1:]:
            total = b.value(combine, total, part)
        return total

    row = b.value("reshape", own, shape=(1, *own.shape))
    walk.meet(Meeting((row,), ((1,) * size,), combined, result, by_element=True), node)


def _combination(walk: GraphPartition, like: Value, combine: str) -> sums.Combination:
    return sums.Combination(walk.builder, combine, combine == "add" and like.dtype.is_float)


def _met_by_shards(
    walk: GraphPartition, node: Node, partial: sums.Partial, axis: int, n: int, combine: str, narrow: str | None
) -> None:
    """A float reduction of lanes along one axis, the others staying: shard by shard, then over shards. `narrow`: the
    dtype that it has in the end, if that is another."""
    combination = _combination(walk, partial[0], combine)
    shards = tuple([sums.sharded(walk.builder, v, axis, n, walk.part, combine) for v in partial])
    if shards[0].shape[0]:
        shards = tuple([sums.without(walk.builder, v, 1 + axis) for v in combination.tree(shards, 1 + axis)])
    else:
        shape = shards[0].shape
        nothing = combination.nothing((*shape[: 1 + axis], *shape[2 + axis :]), shards[0])
        shards = nothing if shard_extent(n) > 1 else nothing[: len(partial)]  # as where there are shards
    _met_rows(walk, node, shards, n, combination, narrow)


def _met_by_device(
    walk: GraphPartition, node: Node, x: Value, axis: int, others: Sequence[int], n: int, combine: str,
    narrow: str | None,
) -> None:  # fmt: skip
    """Likewise, where the device reduces shards in their order itself: few elements of a lane are combined first, many
    are as many lanes."""
    b, combination, extent = walk.builder, _combination(walk, x, combine), shard_extent(n)
    kept = [d for d in range(len(x.shape)) if d != axis and d not in others]
    more = prod([x.shape[d] for d in others])
    if more > FEW_OF_LANE and not kept:
        extent *= more
    else:
        x, kept = combination.plainly(x, others, axis), list(range(1, len(kept) + 1))
        axis, others = 0, ()
    order = (axis, *others, *kept)
    x = x if order == tuple(range(len(order))) else b.value("transpose", x, perm=order)
    if others:
        x = b.value("reshape", x, shape=(x.shape[0] * more,))
    if walk.partition.meets or not n:
        _met(walk, node, combination.rows_of_device(x, extent, n, walk.part), n, combination, narrow)
        return
    (result,) = node.results

    def combined(alone: sums.Partial) -> Value:
        return _only(alone) if narrow is None else b.value("cast", _only(alone), dtype=result.dtype)

    walk.meet(Meeting((combination.alone(x, extent, n),), (), combined, result, added=True), node)


def _met_rows(
    walk: GraphPartition, node: Node, shards: sums.Partial, n: int, combination: sums.Combination, narrow: str | None
) -> None:
    """One row a shard, which all processes combine."""
    _met(walk, node, combination.rows(shards, n, walk.part), n, combination, narrow)


def _met(
    walk: GraphPartition, node: Node, rows: sums.SubtreeRows, n: int, combination: sums.Combination, narrow: str | None
) -> None:
    """One row for each of this process' largest subtrees, which all processes combine."""
    b, part = walk.builder, walk.part
    (result,) = node.results

    def narrowed(total: Value) -> Value:
        return total if narrow is None else b.value("cast", total, dtype=result.dtype)

    def combined(gathered: sums.Partial) -> Value:
        found = combination.apart(_only(gathered)) if rows.beside else gathered
        return narrowed(combination.whole(found, n, part))

    add = (lambda found: narrowed(_only(found))) if combination.combine == "add" and not rows.beside else None
    walk.meet(Meeting(rows.own, rows.counts, combined, result, by_element=not rows.beside, add=add), node)


def _widened(walk: GraphPartition, x: Value) -> tuple[Value, str | None]:
    """Halves are added up as float32."""
    if x.dtype.bits > 16:
        return x, None
    return walk.builder.value("cast", x, dtype=float32), x.dtype.name


def _folded(walk: GraphPartition, x: Value, axes: Sequence[int], combine: str) -> Value:
    """A reduction of floats over axes without lanes, in an order that their extents decide."""
    wide, narrow = _widened(walk, x)
    combination = _combination(walk, wide, combine)
    found = combination.rounded(combination.folded(wide, axes))
    return found if narrow is None else walk.builder.value("cast", found, dtype=x.dtype)


def _contracted(walk: GraphPartition, node: Node, operands: Places) -> None:
    """A product of matrices that adds up over lanes: a product for each shard."""
    b, part, rank = walk.builder, walk.part, len(node.operands[0].shape)
    left, right = (walk.at(v, Place(rank - 1 - i)) for i, v in enumerate(node.operands))
    n = node.operands[0].shape[-1]
    if walk.partition.fast or not node.operands[0].dtype.is_float:
        _met_exactly(walk, node, b.value("matmul", left, right, **node.attrs), "add")
        return
    plain = sums.Combination(b, "add", compensated=False)  # as products are everywhere
    (result,) = node.results
    if shard_count(n) * prod(result.shape) * result.dtype.itemsize > PRODUCT_BYTES:

        def product(shard: int) -> sums.Partial:
            cut = [sums.one_shard(b, v, rank - 1 - i, n, part, shard) for i, v in enumerate((left, right))]
            return (b.value("reshape", b.value("matmul", *cut, **node.attrs), shape=(1, *result.shape)),)

        _met(walk, node, plain.rows_one_by_one(product, n, part, TensorType(result.shape, left.dtype)), n, plain, None)
        return
    shards = [sums.sharded(b, v, rank - 1 - i, n, part) for i, v in enumerate((left, right))]
    # the shard's lanes are at axis 1 + rank - 1 of the left, 1 + rank - 2 of the right, as a product has them
    _met_rows(walk, node, (b.value("matmul", *shards, **node.attrs),), n, plain, None)


def _gathered(walk: GraphPartition, node: Node, place: Place) -> None:
    """Lanes of all processes, to each."""
    x, b, axis = walk.at(node.operands[0], place), walk.builder, place.axis
    assert axis is not None
    order = (axis, *[d for d in range(len(x.shape)) if d != axis])
    rows = x if axis == 0 else b.value("transpose", x, perm=order)

    def combined(gathered: sums.Partial) -> Value:
        (rows,) = gathered
        if node.attrs["gathered"] is not True:  # what adds up or multiplies them reads memory on one process, too
            rows = b.value("alias", rows, kept=True)
        back = [order.index(d) for d in range(len(order))]
        return rows if axis == 0 else b.value("transpose", rows, perm=tuple(back))

    counts = walk.part.each(node.results[0].shape[axis])
    walk.meet(Meeting((rows,), (counts,), combined, node.results[0]), node)


def _only_lane(walk: GraphPartition, node: Node, place: Place) -> None:
    """What the only lane has, for all, without the axis of lanes."""
    axis, (result,) = place.axis, node.results
    assert axis is not None
    x, b = walk.at(node.operands[0], place), walk.builder
    mine = 1 if len(walk.part.lanes(1)) else 0
    rows = b.value("reshape", x, shape=(mine, *result.shape))

    def combined(gathered: sums.Partial) -> Value:
        return b.value("reshape", *gathered, shape=result.shape)

    walk.meet(Meeting((rows,), (walk.part.each(1),), combined, result), node)


# ---- scatters


def _scatter(walk: GraphPartition, node: Node, operands: Places) -> None:
    table, updates = node.operands[0], node.operands[-1]
    place = walk.places[node.results[0]]
    ranks = len(node.operands[1].shape)
    if meets(node, operands, place):
        _accumulated(walk, node, operands)
        return
    if place.axis is None:
        _put(walk, node, [walk.at(v, REPLICATED) for v in node.operands])
        return
    if place.axis >= len(node.operands) - 2:  # lanes in the windows
        window = place.axis - (len(node.operands) - 2) + ranks
        middle = [walk.at(v, REPLICATED) for v in node.operands[1:-1]]
        _put(walk, node, (walk.at(table, place), *middle, walk.at(updates, Place(window))))
        return
    index = node.operands[1 + place.axis]
    along = walk.places[index].position
    assert along is not None
    rest = [walk.at(v, Place(along)) for v in node.operands[1:]]
    rest[place.axis] = walk.own_positions(index, along)
    _put(walk, node, (walk.at(table, place), *rest))


def _accumulated(walk: GraphPartition, node: Node, operands: Places) -> None:
    """Lanes that meet in elements that all processes have: each lane adds into an accumulator of its own, and those are
    added up in the order of all sums."""
    b, table = walk.builder, node.operands[0]
    axis = next(p.axis for p in operands[1:] if p.axis is not None)
    n = node.operands[1].shape[axis]
    rest = [walk.at(v, Place(axis)) for v in node.operands[1:]]
    if operands[0].private:
        _put(walk, node, (walk.at(table, operands[0]), walk.own_positions(node.operands[1], axis), *rest))
        return
    type = table.type
    assert isinstance(type, TensorType)
    if walk.partition.fast:
        zeros = b.const(0, type)
        own = b.emit("scatter", (zeros, *rest), node.attrs)[0]
        added_to(walk, node, node.results[0], table, own, None)
        return
    zeros = b.const(0, private_type(walk, node, type, n))
    own = b.emit("scatter", (zeros, walk.own_positions(node.operands[1], axis), *rest), node.attrs)[0]
    added_to(walk, node, node.results[0], table, own, n)


def private_type(walk: GraphPartition, node: Node, type: TensorType, n: int) -> TensorType:
    each = walk.part.each(n)
    most = TensorType((max(each), *type.shape), type.dtype)  # what one process refuses, all do
    if most.nbytes > PRIVATE_BYTES:
        text = (
            f"{node.op}: expected accumulators of at most {PRIVATE_BYTES:,} bytes, got {most} for the lanes of a "
            "process, of which each has its own so that sums are the same on any number of processes; use more "
            "processes, or lg.options(fast_collectives=True), which adds lanes up in any order"
        )
        raise DeviceError(located(text, node.loc))
    return TensorType((each[walk.part.rank], *type.shape), type.dtype)


def added_to(walk: GraphPartition, node: Node, result: Value, table: Value, own: Value, n: int | None) -> None:
    """The table, and what the lanes of all processes add to it: `own`, one accumulator for each of n lanes, or one for
    all lanes of this process."""
    b = walk.builder
    start = walk.at(table, REPLICATED)
    if n is None and own.dtype.is_float:
        meeting = Meeting((own,), (), _only, result, added=True, finish=lambda total: b.value("add", start, total))
        walk.meet(meeting, node)
        return
    count = len(walk.meetings)
    stand_in = Node("scatter", (), (result.type,), {}, (), node.loc)
    if n is None:
        _met_exactly(walk, stand_in, own, "add")
    elif own.dtype.is_float:
        wide, narrow = _widened(walk, own)
        if walk.partition.reduces_shards and prod(wide.shape[1:]) <= MOST_KEPT:
            _met_by_device(walk, stand_in, wide, 0, (), n, "add", narrow)
        else:
            _met_by_shards(walk, stand_in, (wide,), 0, n, "add", narrow)
    else:
        local = b.value("reduce_sum", own, axes=(0,))
        _met_exactly(walk, stand_in, local, "add")
    made = walk.meetings[count]
    walk.meetings[count] = replace(made, result=result, finish=lambda total: b.value("add", start, total))
