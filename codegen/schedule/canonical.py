"""The graph as scheduling wants it: same meaning, fewer cases.

sum of 16-bit floats                    ->  of float32, rounded once; so with products of matrices, where a target
                                            doesn't multiply such factors (`wide_products`)
products of parts of complex matrices   ->  one product of pairs, or sums, on GPUs (`complex_products`)
a value without elements                ->  const
convolution                             ->  product of matrices, or sum of products (`convolutions`), of zeros between
                                            elements several without (`spread_convolutions`)
products, reductions of what is transposed -> in the order of memory, on GPUs (`memory_order`)
reduction of no elements, and the like  ->  const, or the operand
reduce over leading and trailing dims   ->  the trailing dims first, then the others
reduce of (k, n, m) over n, m small     ->  m reductions of rows, side by side
reduce over dims with kept ones between ->  the innermost first, where few elements are kept, on GPUs
product of few elements, many terms     ->  sum of products of slices (`deep_products`)
reduce of (n, m) over n, m small        ->  two reductions, over blocks and within them
reduce of columns that goes back there  ->  reduce of rows of the transposed array, on GPUs (`columns`)
scatter {kind=add} of rows, on GPUs     ->  sum of segments (`row_sums`)
sums into the same elements             ->  one sum (`graph.passes.scatters`)
concat of computed pieces of short rows ->  concat of single elements (`points`)
concat of very many pieces              ->  concats of some of them each, concatenated
scatter {kind=set}, order matters       ->  the winner of each element by scatter {kind=max}, then gather; but where
                                            lanes meet in their order, and little is computed for it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import prod
from operator import itemgetter
from typing import Final

from loopgrad.codegen.lower.control import memory_source
from loopgrad.codegen.math.sums_of_exponentials import EXPONENTIALS
from loopgrad.codegen.options import DEFAULT_OPTIONS, FULL_PRECISION, Options
from loopgrad.codegen.schedule import deep_products
from loopgrad.codegen.schedule.associative_scans import rewrite_scans
from loopgrad.codegen.schedule.attention import has_routines, rewrite_routines
from loopgrad.codegen.schedule.columns import as_rows, of_rows, returning
from loopgrad.codegen.schedule.complex_products import rewrite_complex_products
from loopgrad.codegen.schedule.convolutions import rewrite_convolution, rewrite_window_products
from loopgrad.codegen.schedule.cost import own_cost
from loopgrad.codegen.schedule.factorisations import rewrite_factorisations
from loopgrad.codegen.schedule.memory_order import in_memory_order
from loopgrad.codegen.schedule.narrow_products import narrow_products
from loopgrad.codegen.schedule.neighbours import over_neighbours
from loopgrad.codegen.schedule.points import in_single_elements
from loopgrad.codegen.schedule.products import rewrite_products
from loopgrad.codegen.schedule.row_sums import rewrite_row_sums
from loopgrad.codegen.schedule.scatter_bases import rewrite_scatter_bases
from loopgrad.codegen.schedule.sorts import rewrite_sorts
from loopgrad.codegen.schedule.spread_convolutions import rewrite_spread_convolutions
from loopgrad.codegen.schedule.transforms import rewrite_transforms
from loopgrad.graph.distinct import no_duplicates
from loopgrad.graph.identities import of_nothing
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import PIPELINE, alike, calls, pads, scatters
from loopgrad.graph.primitives import COMBINES, PRIMITIVES, REDUCTIONS
from loopgrad.graph.primitives.window_products import OF_CHANNELS
from loopgrad.graph.rebuild import GraphBuilder, Rewrite, rebuild
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import TensorType, bool_, int32, int64, sum_dtype

LONG_ROW: Final = 64  # trailing reductions of this length run across lanes
SHORT_ROW: Final = 17  # where there are many elements, and lanes of a vector come from memory together
MANY_ELEMENTS: Final = 1 << 16
LONG_COLUMN: Final = 1024
FEW_COLUMNS: Final = 16  # which are reduced side by side by lanes that read a row each
MANY_LANES: Final = 1 << 17  # that reduce columns, each a block of one
MOST_LANES: Final = 1 << 18  # the same on GPUs: an H200 takes 126 us for 64 x 1,000 columns with half as many, else 73
SHORT_BLOCK: Final = 64
LONGEST_HELD: Final = 2048  # elements of a column
MANY_COLUMNS: Final = 256  # for as many workgroups as keep a GPU busy
SMALL: Final = 1 << 20  # elements
FEW_LANES: Final = 1 << 14
SHORT_BLOCK_OF_ROWS: Final = 32  # where workgroups reduce what blocks leave
FEW_BESIDE: Final = 3  # columns whose reductions are made side by side (8 take 3 times as long so on an H100)
FEW_BESIDE_IN_ORDER: Final = 8  # the same for vectors of a CPU's (half the time)
FEW_BLOCKS: Final = 4
LIGHT: Final = 24.0  # of what one thread computes for a scatter, in units of `cost`
MUCH: Final = 1 << 18
MUCH_LEFT: Final = 1 << 13  # by blocks, of few columns
NARROW: Final = 128  # elements of rows, below which a vector often reaches into the next one
WIDE: Final = 256  # elements of narrow rows side by side: the last of their vectors may be partly empty
VECTORS: Final = 64  # elements of rows whose vectors are all full
ABREAST: Final = 8  # times as many rows as side by side, that are worth it
MOST_PIECES: Final = 64  # of one concat
IN_OTHERS: Final[Mapping[str, Rewrite]] = {"conv": rewrite_convolution}
"""Primitives that are written in others, of which scheduling and lowering know nothing."""


def prepare(
    graph: Graph,
    library: frozenset[str] = frozenset(),
    wide_products: bool = False,
    precision: str = FULL_PRECISION,
    in_order: bool = False,
) -> Graph:
    """The graph passes, then no calls of routines that the target hasn't, no empty values, no sums in 16 bits anywhere,
    no sums into the same elements one after the other and no long lists of alike pieces, then the passes once more
    where that changed something, no calls, and no factorisations but those that the target calls a `library` for, or
    the host, and Fourier transforms as that library has them."""
    graph = through_pipeline(graph)
    if has_routines(graph):
        graph = through_pipeline(rewrite_routines(graph, library, precision))
    scanned = rewrite_scans(graph, library)
    graph = graph if scanned is graph else through_pipeline(scanned)
    graph = rewrite_spread_convolutions(graph, OF_CHANNELS in library)
    if "window_products" in library:
        multiplied = rewrite_window_products(graph, precision, OF_CHANNELS in library)
        graph = graph if multiplied is graph else through_pipeline(multiplied)
    graph = graph if wide_products else rewrite_complex_products(graph)
    full = in_single_elements(rebuild(rebuild(graph, _without_empty), _in_others), in_order)
    rewritten = alike.run(pads.run(scatters.run(rebuild(full, _products_in_32_bits if wide_products else _in_32_bits))))
    settled = graph if rewritten is graph else through_pipeline(rewritten)
    together = rewrite_transforms(settled, library)
    settled = settled if together is settled else through_pipeline(together)
    return rewrite_factorisations(calls.separate(settled), library)


def through_pipeline(graph: Graph) -> Graph:
    """The graph after every pass."""
    for _, run in PIPELINE:
        graph = run(graph)
    return graph


def rewrite_block(
    graph: Graph,
    in_order: bool = False,
    wide_products: bool = False,
    options: Options = DEFAULT_OPTIONS,
    long_columns: bool = False,
) -> Graph:
    """Reductions, scatters, sorts and products of `graph` itself in forms that kernels and routines have; its regions
    stay. `in_order`: lanes that meet in an element come one after the other, in their order; `wide_products`: products
    of matrices don't read 16-bit floats; `long_columns`: see `columns`."""
    if not in_order:
        graph = rewrite_row_sums(rewrite_scatter_bases(in_memory_order(graph)), options)
    graph = rewrite_sorts(graph, counts_bits=not in_order)
    graph = rewrite_products(graph if wide_products else narrow_products(graph))
    held = set() if in_order else returning(graph, long_columns)
    beside = {} if in_order else _rows_beside(graph)

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        match node.op:
            case "matmul":
                return deep_products.for_libraries(node, builder)
            case "scatter":
                return _scatter(node, builder, in_order)
            case "concat" if len(node.operands) > MOST_PIECES:
                return [_in_pieces(node, builder)]
        if builder.original in held:
            return [as_rows(node, builder)]
        if builder.original in beside:
            return _in_two(node, builder, beside[builder.original])
        return _reduce(node, builder, in_order) if node.op in REDUCTIONS else None

    return rebuild(graph, rewrite, inner=False)


def _in_others(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    rewrite = IN_OTHERS.get(node.op)
    return None if rewrite is None else rewrite(node, builder)


def _without_empty(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    if node.regions:
        return _region(Region.of(node), builder)
    match node.op:
        case "const" | "stack_new":
            return None
        case "push":
            return [node.operands[0]] if prod(node.operands[1].shape) == 0 else None
        case "pop":
            return [node.operands[0], _nothing(node.results[1], builder)] if _is_empty(node.results[1]) else None
    type = node.results[0].type
    assert isinstance(type, TensorType)
    zero = False if type.dtype is bool_ else 0
    if len(node.results) > 1:  # a routine
        return [_nothing(r, builder) for r in node.results] if all(map(_is_empty, node.results)) else None
    if type.size == 0:
        return [builder.const(zero, type)]
    sizes = [prod(v.shape) for v in node.operands]
    match node.op:
        case "gather" if sizes[0] == 0:
            return [builder.const(zero, type)]
        case "scatter" if sizes[-1] == 0:
            return [node.operands[0]]
        case "matmul" | "conv" if 0 in sizes:
            return [builder.const(zero, type)]
        case "concat":
            return _concat(node, builder)
    if node.op in REDUCTIONS and sizes[0] == 0:
        return [builder.const(of_nothing(COMBINES[node.op], type.dtype), type)]
    return None


def _in_32_bits(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    """Adding up takes more digits than 16-bit floats have."""
    return _widened(node, builder) if COMBINES.get(node.op) in ("add", EXPONENTIALS) else None


def _products_in_32_bits(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    return _widened(node, builder) if node.op == "matmul" else _in_32_bits(node, builder)


def _widened(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    wide, result = sum_dtype(node.operands[0].dtype), node.results[0].dtype
    if wide is node.operands[0].dtype:
        return None
    attrs = {name: value for name, value in node.attrs.items() if name != "dtype"}
    total = builder.value(node.op, *[builder.value("cast", v, dtype=wide) for v in node.operands], **attrs)
    return [builder.cast(total, result)]


def _is_empty(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.size == 0


def _nothing(value: Value, builder: GraphBuilder) -> Value:
    """A constant in the place of an empty value."""
    assert isinstance(value.type, TensorType)
    return builder.const(False if value.type.dtype is bool_ else 0, value.type)


def _region(region: Region, builder: GraphBuilder) -> Sequence[Value] | None:
    """A region without lanes does nothing; in any other, empty results are constants."""
    node, idle = region.node, prod(region.lane_shape) == 0
    if not idle and not any(_is_empty(r) for r in node.results):
        return None
    if not idle:
        builder.nodes.append(node)
    results = []
    for j, r in enumerate(node.results):
        if _is_empty(r):
            results.append(_nothing(r, builder))
        elif idle:
            source = region.source(j) if isinstance(region, Loop) else memory_source(region, j)
            assert source is not None
            results.append(node.operands[source])
        else:
            results.append(r)
    return results


def _concat(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    """Without empty operands."""
    axis = node.attrs["axis"]
    full = [v for v in node.operands if v.shape[axis]]
    if len(full) == len(node.operands):
        return None
    return full if len(full) == 1 else builder.emit("concat", full, {"axis": axis})


def _in_pieces(node: Node, builder: GraphBuilder) -> Value:
    """Finding the piece that an element is of, in code that grows with their number, is left to kernels of few."""
    parts: Sequence[Value] = node.operands
    while len(parts) > MOST_PIECES:
        some = [parts[i : i + MOST_PIECES] for i in range(0, len(parts), MOST_PIECES)]
        parts = [builder.value("concat", *s, axis=node.attrs["axis"]) if len(s) > 1 else s[0] for s in some]
    return builder.value("concat", *parts, axis=node.attrs["axis"])


# ---- reductions


def long_row(elements: int, in_order: bool) -> int:
    """From which length on rows of so many elements in all are reduced across lanes."""
    return SHORT_ROW if in_order and elements >= MANY_ELEMENTS else LONG_ROW


def _rows_beside(graph: Graph) -> dict[Node, set[int]]:
    """Reductions of whole arrays -> the trailing dims that others of such shapes reduce first: one kernel reads the
    elements for both, where they are made of one array. On an H200 a batch norm's loss has its own pass otherwise."""
    rows: dict[tuple[int, ...], set[int]] = {}
    whole = list[Node]()
    for node in graph.nodes:
        if node.op in REDUCTIONS and 0 not in node.operands[0].shape:
            shape = node.operands[0].shape
            wide = {a for a in node.attrs["axes"] if shape[a] != 1}
            trailing = _trailing(shape, wide) - {d for d, n in enumerate(shape) if n == 1}
            if trailing == {d for d, n in enumerate(shape) if n != 1}:
                whole.append(node)
            elif trailing and trailing != wide and prod(shape[a] for a in trailing) >= LONG_ROW:
                rows.setdefault(shape, trailing)
    return {node: rows[node.operands[0].shape] for node in whole if node.operands[0].shape in rows}


def _reduce(node: Node, builder: GraphBuilder, in_order: bool) -> Sequence[Value] | None:
    operand, axes = node.operands[0], set(node.attrs["axes"])
    shape, type = operand.shape, node.results[0].type
    assert isinstance(type, TensorType)
    wide = {a for a in axes if shape[a] != 1}
    if not wide:
        return [builder.value("reshape", operand, shape=type.shape)]
    trailing = _trailing(shape, wide)
    if trailing and trailing != wide and prod(shape[a] for a in trailing) >= long_row(prod(shape), in_order):
        return _in_two(node, builder, trailing)
    first = min(wide)
    leading = wide == {d for d in range(first, max(wide) + 1) if shape[d] != 1}
    count, kept = prod(shape[a] for a in wide), type.size
    if not leading and not in_order and _blocks(count, kept, MUCH, MOST_LANES) > 1:
        return [_run_by_run(node, builder)]
    before, after = shape[:first], shape[max(wide) + 1 :]
    if not leading or trailing or (kept <= FEW_COLUMNS and (in_order or prod(before) == 1)):
        return None
    few = prod(after) <= (FEW_BESIDE_IN_ORDER if in_order else FEW_BESIDE)
    if few and (count >= LONG_ROW or (not in_order and over_neighbours(node, prod(after)))):
        return [_column_by_column(node, builder, first, max(wide) + 1)]
    side = _side_by_side(count, prod(after)) if in_order else 1
    many = MANY_LANES if in_order else MOST_LANES
    blocked = side > 1 or _blocks(count, kept, MUCH, many) > 1
    if not in_order and _by_workgroups(count, kept, blocked):
        return [as_rows(node, builder)]
    if not blocked:
        return None
    columns = builder.value("reshape", operand, shape=(*before, count, *after))
    if in_order:
        found = (_rows_abreast if side > 1 else _in_blocks)(node.op, columns, first, builder, MUCH, many)
    else:
        found = _in_rows_of_blocks(node.op, columns, first, builder)
    return [found if found.shape == type.shape else builder.value("reshape", found, shape=type.shape)]


def _run_by_run(node: Node, builder: GraphBuilder) -> Value:
    """Of reduced dims with kept ones in between: the innermost first, as columns, which lanes side by side read in the
    order of memory; rows that are left at the end, which are short, at last. Else the few lanes of what is kept would
    do all the work."""
    operand, type = node.operands[0], node.results[0].type
    assert isinstance(type, TensorType)
    dims = [(d in node.attrs["axes"], n) for d, n in enumerate(operand.shape) if n != 1]
    runs = [(reduced, prod(n for _, n in run)) for reduced, run in groupby(dims, key=itemgetter(0))]
    found = operand
    while inner := [d for d, (reduced, _) in enumerate(runs[:-1]) if reduced]:
        whole = builder.value("reshape", found, shape=tuple([n for _, n in runs]))
        found = _in_blocks(node.op, whole, inner[-1], builder, MUCH, MOST_LANES)
        del runs[inner[-1]]
    if runs[-1][0]:
        found = builder.value(node.op, found, axes=(len(runs) - 1,))
    return builder.value("reshape", found, shape=type.shape)


def _column_by_column(node: Node, builder: GraphBuilder, first: int, end: int) -> Value:
    """Few columns in each of many places: a reduction of rows for each, which read neighbours and, as one kernel, have
    in common what is the same for all columns."""
    operand, type = node.operands[0], node.results[0].type
    assert isinstance(type, TensorType)
    before, count, beside = operand.shape[:first], prod(operand.shape[first:end]), prod(operand.shape[end:])
    columns = builder.value("reshape", operand, shape=(*before, count, beside))
    found = []
    for j in range(beside):
        start, stop = (0,) * (first + 1) + (j,), (*before, count, j + 1)
        column = builder.value("slice", columns, start=start, stop=stop, step=(1,) * (first + 2))
        row = builder.value("reshape", column, shape=(*before, count))
        total = builder.value(node.op, row, axes=(first,))
        found.append(builder.value("reshape", total, shape=(*before, 1)))
    return builder.value("reshape", builder.value("concat", *found, axis=first), shape=type.shape)


def _side_by_side(count: int, width: int) -> int:
    """How many of `count` rows of a few elements are reduced side by side, as one row: where lanes go through rows in
    their order, they then find elements that lie side by side. 1 where rows would have to be added for that."""
    if width >= NARROW or width % VECTORS == 0:
        return 1
    least = -(-WIDE // width)
    return next((n for n in range(least, 2 * least) if count % n == 0), 1) if count >= ABREAST * least else 1


def _rows_abreast(op: str, columns: Value, axis: int, builder: GraphBuilder, much: int, many: int) -> Value:
    """Each row of several first, then what these leave."""
    shape, count = columns.shape, columns.shape[axis]
    before, after = shape[:axis], shape[axis + 1 :]
    side = _side_by_side(count, prod(after))
    joined = builder.value("reshape", columns, shape=(*before, count // side, side * prod(after)))
    found = builder.value("reshape", _in_blocks(op, joined, axis, builder, much, many), shape=(*before, side, *after))
    return _in_blocks(op, found, axis, builder, MUCH_LEFT, many)


def _blocks(count: int, kept: int, much: int, many: int, shortest: int = SHORT_BLOCK) -> int:
    """Into how many blocks columns of that length are cut, so that there are so many lanes; preferably ones of equal
    length. Fewer than `much` elements aren't worth another kernel."""
    most = min(count // shortest, many // kept)
    if most < FEW_BLOCKS or (count < LONG_COLUMN and count * kept < much):
        return 1
    return next((n for n in range(most, most // 2, -1) if count % n == 0), most)


def _by_workgroups(count: int, kept: int, blocked: bool) -> bool:
    """Whether a GPU's workgroups reduce so many columns as they are, each some neighbouring ones: by lanes few of them
    would go down all of a column, and with blocks of these that small arrays can be cut into there are two launches."""
    small = count <= LONGEST_HELD and kept >= MANY_COLUMNS and count * kept <= SMALL
    return count >= LONG_ROW and (small if blocked else kept <= FEW_LANES)


def _trailing(shape: Sequence[int], axes: set[int]) -> set[int]:
    """Those of the reduced dims below which nothing is kept."""
    found = set()
    for d in range(len(shape) - 1, -1, -1):
        if d in axes:
            found.add(d)
        elif shape[d] != 1:
            break
    return found


def _in_two(node: Node, builder: GraphBuilder, trailing: set[int]) -> Sequence[Value]:
    operand = node.operands[0]
    first = builder.value(node.op, operand, axes=tuple(sorted(trailing)))
    left = [d for d in range(len(operand.shape)) if d not in trailing]
    axes = tuple([i for i, d in enumerate(left) if d in node.attrs["axes"]])
    return [builder.value(node.op, first, axes=axes)]


def _in_blocks(op: str, columns: Value, axis: int, builder: GraphBuilder, much: int, many: int) -> Value:
    """Few columns, or long ones: without blocks, and blocks of blocks, a few lanes would do all the work."""
    count = columns.shape[axis]
    blocks = _blocks(count, prod(columns.shape) // count, much, many)
    if blocks < 2:
        return builder.value(op, columns, axes=(axis,))
    return _in_blocks(op, _of_blocks(op, columns, axis, builder, blocks), axis, builder, MUCH_LEFT, many)


def _of_blocks(op: str, columns: Value, axis: int, builder: GraphBuilder, blocks: int) -> Value:
    """Each of so many blocks of every column reduced."""
    shape, length = columns.shape, -(-columns.shape[axis] // blocks)
    whole = builder.extended(columns, axis, blocks * length, of_nothing(COMBINES[op], columns.dtype))
    view = builder.value("reshape", whole, shape=(*shape[:axis], blocks, length, *shape[axis + 1 :]))
    return builder.value(op, view, axes=(axis + 1,))


def _in_rows_of_blocks(op: str, columns: Value, axis: int, builder: GraphBuilder) -> Value:
    """The same on GPUs, whose workgroups reduce what many blocks of a column leave as a row: lanes that go down columns
    of so few elements wait for each of them in turn. What 1,024 blocks of 64 columns leave takes an H100 26 us by
    blocks of them, in two launches."""
    shape, count = columns.shape, columns.shape[axis]
    blocks = _blocks(count, prod(shape) // count, MUCH, MOST_LANES, SHORT_BLOCK_OF_ROWS)
    left = _of_blocks(op, columns, axis, builder, blocks)
    if blocks < LONG_ROW:
        return builder.value(op, left, axes=(axis,))
    flat = builder.value("reshape", left, shape=(prod(shape[:axis]), blocks, prod(shape[axis + 1 :])))
    return of_rows(op, flat, builder)


# ---- scatter


def _scatter(node: Node, builder: GraphBuilder, in_order: bool) -> Sequence[Value] | None:
    table, indices, updates = node.operands[0], node.operands[1:-1], node.operands[-1]
    if node.attrs["kind"] != "set" or no_duplicates(node) or (in_order and _light(node)):
        return None
    looked_up, index_shape = table.shape[: len(indices)], indices[0].shape
    count = prod(index_shape)
    narrow = int32 if count < 1 << 31 else int64
    order = builder.value("iota", type=TensorType((count,), narrow), axis=0)
    order = builder.value("reshape", order, shape=index_shape)
    none = builder.const(-1, TensorType(looked_up, narrow))
    winner = builder.value("scatter", none, *indices, order, kind="max")
    window = table.shape[len(indices) :]
    flat = builder.value("reshape", updates, shape=(count, *window))
    zero = builder.const(0, TensorType(looked_up, narrow))
    found = builder.value("gather", flat, builder.value("max", winner, zero))  # -1, nobody's, isn't an index
    hit = builder.value("ge", winner, zero)
    dims = tuple(range(len(looked_up)))
    return [builder.value("select", builder.value("broadcast", hit, shape=table.shape, dims=dims), found, table)]


def _light(scatter: Node) -> bool:
    """Whether little is computed for the indices and updates of a scatter, in whose kernel that may happen."""
    left, seen, total = list(scatter.operands[1:]), set[Node](), 0.0
    while left:
        node = left.pop().node
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.regions or PRIMITIVES[node.op].heavy:
            return False
        total += own_cost(node)
        if total > LIGHT:
            return False
        left += node.operands
    return True
