"""Equal kernels are lowered and compiled once, however often a program launches them.

Enters: a KernelRequest. Leaves: its kernel's number, and the buffers behind the parameters. What a Python loop builds
repeats itself: its kernels differ in the buffers only, or in numbers as well (small constants, arrays of data, where a
small slice starts and what comes before padding), as in `a[i] = x` for many i. Once several kernels differed in nothing
but such numbers, further ones of their kind read them from memory.

    k = mul(load x0, 0.5)          k = mul(load x0, load c)
    k(x) k(y)                      k(x, 1.0) k(y, 2.0) k(z, 3.0)

Kernels with loops of their own aren't shared: stacks belong to one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.lower.context import Settings, Stored
from loopgrad.codegen.lower.kernel import (
    Accumulate,
    BuiltKernel,
    KernelRequest,
    Reduce,
    Root,
    ScatterUpdates,
    Store,
    build_kernel,
)
from loopgrad.graph.key import encode_attrs
from loopgrad.graph.lanes import iota_axis
from loopgrad.graph.lift import NumberPlace, computed, slots, without_slots
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.rebuild import GraphBuilder, renewed
from loopgrad.graph.types import TensorType

SMALL: Final = 64  # elements of a constant that is read from memory
SMALL_SLICE: Final = 1024  # elements of a slice or pad that may start anywhere: its index is no longer a line
ALIKE: Final = 8  # kernels that may differ in numbers only

Key = tuple[object, ...]


@dataclass(slots=True)
class KnownKernels:
    """The kernels of one Program. `splat(value, type)` and `constant(data, type)` give constant buffers."""

    splat: Callable[[Any, TensorType], Any]
    constant: Callable[[bytes, TensorType], Any]
    kernels: list[Kernel] = field(default_factory=list)
    _known: dict[Key, tuple[int, BuiltKernel, list[Any]]] = field(default_factory=dict)
    _alike: dict[Key, set[int]] = field(default_factory=dict)

    def number(self, request: KernelRequest, settings: Settings) -> tuple[int, tuple[Any, ...]]:
        """The kernel that does what is requested. NotLaneLocal is build_kernel's."""
        if request.lane_loops:
            return self._built(request, settings)
        key, buffers = _described(request, numbers=True)
        if key not in self._known:
            kind, _ = _described(request, numbers=False)
            alike = self._alike.setdefault(kind, set())
            if len(alike) >= ALIKE and (general := self._with_numbers_in_memory(request)) is not None:
                request = general
                key, buffers = _described(request, numbers=True)
            if key not in self._known:
                number, made = self._built(request, settings)
                kernel = self.kernels[number]
                if not kernel.errors:  # they name the lines of one of them
                    self._known[key] = number, BuiltKernel(kernel, made), buffers
                    alike.add(number)
                return number, made
        number, built, originals = self._known[key]
        now = {id(old): new for old, new in zip(originals, buffers, strict=True)}
        return number, tuple([now.get(id(b), b) for b in built.buffers])  # lowering itself adds those of literals

    def _built(self, request: KernelRequest, settings: Settings) -> tuple[int, tuple[Any, ...]]:
        built = build_kernel(request, settings)
        self.kernels.append(built.kernel)
        return len(self.kernels) - 1, built.buffers

    def _with_numbers_in_memory(self, request: KernelRequest) -> KernelRequest | None:
        """The same kernel, but its numbers are loaded; None where it has none."""
        builder, held, env = GraphBuilder(), dict(request.stored), dict[Value, Value]()
        for node in request.nodes:
            operands = tuple([env.get(v, v) for v in node.operands])
            builder.loc = node.loc
            if _is_data(node):
                held[node.results[0]] = Stored((self._buffer(node),))
            elif found := _positions(node):
                given = {place: Value(place.type) for place in found}
                held.update({v: Stored((self.splat(place.value, place.type),)) for place, v in given.items()})
                env[node.results[0]] = computed(builder, node, operands, given)
            else:
                current = renewed(node, operands, node.regions)
                builder.nodes.append(current)
                env.update(zip(node.results, current.results, strict=True))
        if len(held) == len(request.stored):
            return None
        roots = [_renamed(root, env) for root in request.roots]
        return replace(request, nodes=builder.nodes, stored=held, roots=roots)

    def _buffer(self, node: Node) -> Any:
        if node.op == "literal":
            return self.constant(node.attrs["data"], node.attrs["type"])
        return self.splat(node.attrs["value"], node.attrs["type"])

    def rewind(self, count: int) -> None:
        """Forget all but the first kernels."""
        del self.kernels[count:]
        self._known = {key: known for key, known in self._known.items() if known[0] < count}
        self._alike = {key: {n for n in alike if n < count} for key, alike in self._alike.items()}


def _is_data(node: Node) -> bool:
    """Whether the whole of it may be read from memory."""
    return node.op == "literal" or (node.op == "const" and node.attrs["type"].size <= SMALL)


def _positions(node: Node) -> Sequence[NumberPlace]:
    """Numbers of a movement that may be."""
    small = node.op in ("slice", "pad") and prod(node.results[0].shape) <= SMALL_SLICE
    return slots(node) if small else ()


def _attributes(node: Node, numbers: bool) -> str:
    """As text; `numbers`: with those that may be read from memory."""
    if not numbers and _is_data(node):
        return str(node.attrs["type"])
    found = () if numbers else _positions(node)
    attrs = without_slots(node, found) if found else node.attrs
    return encode_attrs(attrs, with_name=False) if attrs else ""


def _described(request: KernelRequest, numbers: bool) -> tuple[Key, list[Any]]:
    """What decides how a kernel is lowered, buffers by number, and the buffers. `numbers`: those that may be read from
    memory too."""
    words: list[object] = [request.lanes]
    order: dict[Value, int] = {}
    positions: dict[int, int] = {}
    buffers: list[Any] = []

    def places(held: tuple[Any, ...]) -> tuple[int, ...]:
        for b in held:
            if id(b) not in positions:
                positions[id(b)] = len(buffers)
                buffers.append(b)
        return tuple([positions[id(b)] for b in held])

    def number(v: Value) -> int:
        if v not in order:  # neither loaded nor computed: what a scatter starts from
            order[v] = len(order)
            words.append((str(v.type), iota_axis(v)))
        return order[v]

    for value, stored in request.stored.items():
        words.append((number(value), places(stored.buffers)))
    for node in request.nodes:
        words.append((node.op, _attributes(node, numbers), tuple([number(v) for v in node.operands])))
        for r in node.results:
            order.setdefault(r, len(order))
    words += [
        (type(root).__name__, number(_target(root)), places(_buffers(root)), _exclusive(root)) for root in request.roots
    ]
    return tuple(words), buffers


def _renamed(root: Root, env: Mapping[Value, Value]) -> Root:
    """The root of the nodes that took the place of others."""
    value = env.get(_target(root), _target(root))
    if isinstance(root, Store | Accumulate):
        return replace(root, value=value)
    assert value.node is not None
    return replace(root, node=value.node)


def _target(root: Root) -> Value:
    return root.value if isinstance(root, Store | Accumulate) else root.node.results[0]


def _buffers(root: Root) -> tuple[Any, ...]:
    return root.buffers if isinstance(root, Reduce) else (root.buffer,)


def _exclusive(root: Root) -> bool:
    return isinstance(root, ScatterUpdates | Accumulate) and root.exclusive
