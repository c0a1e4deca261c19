"""Equal kernels are lowered and compiled once, however often a program launches them.

Enters: a KernelRequest. Leaves: its kernel's number, and the buffers behind the parameters. What a Python loop builds
repeats itself: its kernels differ in the buffers only, or in constants as well, as in `a[i] = x` for many i. Once
several kernels differed in nothing but small constants, further ones of their kind read these from memory.

    k = mul(load x0, 0.5)          k = mul(load x0, load c)
    k(x) k(y)                      k(x, 1.0) k(y, 2.0) k(z, 3.0)

Kernels with loops of their own aren't shared: stacks belong to one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.lower.context import Settings, Stored
from loopgrad.codegen.lower.kernel import (
    Accumulate,
    BuiltKernel,
    KernelRequest,
    Reduce,
    Root,
    Scatter,
    Store,
    build_kernel,
)
from loopgrad.graph.key import encode_attrs
from loopgrad.graph.lanes import iota_axis
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import TensorType

SMALL: Final = 64  # elements of a constant that is read from memory
ALIKE: Final = 8  # kernels that may differ in constants only

Key = tuple[object, ...]


@dataclass(slots=True)
class KnownKernels:
    """The kernels of one Program. `splat(value, type)` gives a constant buffer."""

    splat: Callable[[Any, TensorType], Any]
    kernels: list[Kernel] = field(default_factory=list)
    _known: dict[Key, tuple[int, BuiltKernel, list[Any]]] = field(default_factory=dict)
    _alike: dict[Key, set[int]] = field(default_factory=dict)

    def number(self, request: KernelRequest, settings: Settings) -> tuple[int, tuple[Any, ...]]:
        """The kernel that does what is requested. NotLaneLocal is build_kernel's."""
        described = _described(request, constants=True)
        if described is None:
            return self._built(request, settings)
        key, buffers = described
        if key not in self._known:
            kind, _ = _described(request, constants=False) or (key, buffers)
            alike = self._alike.setdefault(kind, set())
            if len(alike) >= ALIKE and (general := self._with_constants_in_memory(request)) is not None:
                request = general
                key, buffers = _described(request, constants=True) or (key, buffers)
            if key not in self._known:
                number, made = self._built(request, settings)
                kernel = self.kernels[number]
                if not kernel.errors:  # they name the lines of one of them
                    self._known[key] = number, BuiltKernel(kernel, made), buffers
                    alike.add(number)
                return number, made
        number, built, originals = self._known[key]
        now = {id(old): new for old, new in zip(originals, buffers, strict=True)}
        return number, tuple([now[id(b)] for b in built.buffers])

    def _built(self, request: KernelRequest, settings: Settings) -> tuple[int, tuple[Any, ...]]:
        built = build_kernel(request, settings)
        self.kernels.append(built.kernel)
        return len(self.kernels) - 1, built.buffers

    def _with_constants_in_memory(self, request: KernelRequest) -> KernelRequest | None:
        found = [n for n in request.nodes if _is_small_constant(n)]
        if not found:
            return None
        held = {n.results[0]: Stored((self.splat(n.attrs["value"], n.attrs["type"]),)) for n in found}
        rest = [n for n in request.nodes if n.results[0] not in held]
        return replace(request, nodes=rest, stored={**request.stored, **held})

    def rewind(self, count: int) -> None:
        """Forget all but the first kernels."""
        del self.kernels[count:]
        self._known = {key: known for key, known in self._known.items() if known[0] < count}
        self._alike = {key: {n for n in alike if n < count} for key, alike in self._alike.items()}


def _is_small_constant(node: Node) -> bool:
    return node.op == "const" and node.attrs["type"].size <= SMALL


def _described(request: KernelRequest, constants: bool) -> tuple[Key, list[Any]] | None:
    """What decides how a kernel is lowered, buffers by number, and the buffers; None where it isn't shared.
    `constants`: the values of small constants too."""
    if request.lane_loops:
        return None
    words: list[object] = [request.lanes]
    numbers: dict[Value, int] = {}
    positions: dict[int, int] = {}
    buffers: list[Any] = []

    def places(held: tuple[Any, ...]) -> tuple[int, ...]:
        for b in held:
            if id(b) not in positions:
                positions[id(b)] = len(buffers)
                buffers.append(b)
        return tuple([positions[id(b)] for b in held])

    def number(v: Value) -> int:
        if v not in numbers:  # neither loaded nor computed: what a scatter starts from
            numbers[v] = len(numbers)
            words.append((str(v.type), iota_axis(v)))
        return numbers[v]

    for value, stored in request.stored.items():
        words.append((number(value), places(stored.buffers)))
    for node in request.nodes:
        if node.op == "literal":
            return None
        hidden = not constants and _is_small_constant(node)
        attrs = str(node.attrs["type"]) if hidden else encode_attrs(node.attrs, with_name=False) if node.attrs else ""
        words.append((node.op, attrs, tuple([number(v) for v in node.operands])))
        for r in node.results:
            numbers.setdefault(r, len(numbers))
    words += [
        (type(root).__name__, number(_target(root)), places(_buffers(root)), _exclusive(root)) for root in request.roots
    ]
    return tuple(words), buffers


def _target(root: Root) -> Value:
    return root.value if isinstance(root, Store | Accumulate) else root.node.results[0]


def _buffers(root: Root) -> tuple[Any, ...]:
    return root.buffers if isinstance(root, Reduce) else (root.buffer,)


def _exclusive(root: Root) -> bool:
    return isinstance(root, Scatter | Accumulate) and root.exclusive
