"""On which device something is computed: where the user put what it is computed from, else the default one.

A tensor is placed by `device=`, `to_device`, or by what another library handed over; results are where their
operands are. Operands that the user placed on different devices are an error: copies between devices are asked
for, never made in passing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loopgrad.graph.errors import DeviceError, explained
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Value
from loopgrad.lazy.tensor.core import TensorCore, TensorLeaf


def places(values: Sequence[Value]) -> list[str | None]:
    """The device of each value, None where the user chose none; DeviceError where they chose two for one value."""
    if not TensorLeaf.any_committed:
        return [None] * len(values)
    graph = extract(values)
    return places_of_outputs(graph, graph.inputs)


def places_of_outputs(graph: Graph, leaves: Sequence[Value]) -> list[str | None]:
    """The devices of what a graph gives whose inputs are those leaves, as above."""
    if not TensorLeaf.any_committed:
        return [None] * len(graph.outputs)
    found: dict[Value, str | None] = {v: place_of(leaf) for v, leaf in zip(graph.inputs, leaves, strict=True)}
    chosen = set(found.values())
    if chosen <= {None}:
        return [None] * len(graph.outputs)
    if len(chosen) == 1 and len(graph.outputs) == 1:
        return list(chosen)  # all inputs are there, and it depends on them
    for node in graph.nodes:
        place = common([found[v] for v in node.operands], node.op)
        found.update(dict.fromkeys(node.results, place))
    return [found[v] for v in graph.outputs]


def place_of(value: Value) -> str | None:
    """The device that the user put elements on, None where they didn't."""
    return str(value.buffer.device) if isinstance(value, TensorLeaf) and value.committed else None


def common(devices: Iterable[str | None], op: str) -> str | None:
    """The one device among these; DeviceError where there are two."""
    chosen = list(dict.fromkeys(d for d in devices if d is not None))
    if len(chosen) > 1:
        fix = f"move one of them with .to_device({chosen[0]!r})"
        raise DeviceError(explained(op, "operands on one device", " and ".join(chosen), fix))
    return chosen[0] if chosen else None


def place_of_arguments(leaves: Iterable[object], op: str) -> str | None:
    """As `common`, for what a compiled function is called with."""
    if not TensorLeaf.any_committed:
        return None
    tensors = [x._value for x in leaves if isinstance(x, TensorCore)]
    pending = places([v for v in tensors if v.node is not None and v.scope is None])
    return common([*[place_of(v) for v in tensors], *pending], op)
