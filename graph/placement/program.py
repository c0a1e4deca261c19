"""From a program over whole arrays to that of one process: `partitioned`."""

from __future__ import annotations

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.placement.layout import ProcessPart
from loopgrad.graph.placement.partition import GraphPartition, MeshPartition, localised
from loopgrad.graph.placement.places import Places
from loopgrad.graph.placement.regions import emit_region
from loopgrad.graph.placement.rules import emit_node
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.primitives.collectives import is_started
from loopgrad.graph.rebuild import substituted


def _emit(walk: GraphPartition, node: Node) -> None:
    if node.regions:
        emit_region(walk, node)
    else:
        emit_node(walk, node)


def new_partition(part: ProcessPart, fast: bool, meets: bool | None = None) -> MeshPartition:
    """What `partitioned` needs to know of this process. `fast`: the engine may add up in its own order. `meets`:
    whether collectives are needed, as they are where there are other processes."""
    return MeshPartition(part, fast, part.size > 1 if meets is None else meets, _emit)


def partitioned(graph: Graph, places: Places, partition: MeshPartition) -> tuple[Graph, Places, bool]:
    """The graph that one process runs, the places of its results, and whether processes meet in it: then a token is the
    last result.

    Raises DeviceError where lanes would move."""
    walk = GraphPartition(partition, graph, places)
    inputs = tuple([Value(localised(v.type, p, partition.part)) for v, p in zip(graph.inputs, places, strict=True)])
    found = partition.analysis.outputs(graph, places)
    outputs = walk.run(inputs, found)
    if not walk.met:
        return Graph(inputs, tuple(walk.builder.nodes), outputs), found, False
    return _closed(walk, inputs, outputs), found, True


def _closed(walk: GraphPartition, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> Graph:
    """The program whose last collective says so: a process that fails knows by it whether others wait. Where a loop or
    a branch has the last one, another follows, which carries nothing."""
    last = walk.token.node
    assert last is not None
    while is_started(last.attrs):  # it sends nothing more
        last = last.operands[0].node
        assert last is not None
    if not PRIMITIVES[last.op].collective:
        assert last is walk.token.node, last  # what is started in a level ends behind another one of that level
        attrs = {"counts": (), "part": walk.part.rank, "final": True}
        (walk.token,) = walk.builder.emit("all_gather", (walk.token,), attrs)
        return Graph(inputs, tuple(walk.builder.nodes), (*outputs, walk.token))
    types = tuple([r.type for r in last.results])
    final = Node(last.op, last.operands, types, {**last.attrs, "final": True}, (), last.loc)
    nodes = tuple([final if node is last else node for node in walk.builder.nodes])
    graph = Graph(inputs, nodes, (*outputs, walk.token))
    return substituted(graph, dict(zip(last.results, final.results, strict=True)))
