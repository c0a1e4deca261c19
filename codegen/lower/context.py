"""Pulling values: what a kernel computes is asked for, element by element.

`pull(frame, value, index)` gives the scalar of a value at an index. Values bound in the frame come from
memory, from registers or from the enclosing frame; any other is computed by its node's rule, which asks
for what it needs by yielding requests: (frame, value, index) in, KValue out. A driver loop serves them, so
a chain of any length needs no recursion. Results are remembered per block.

Values made inside the kernel (results and carries of regions) exist at the lane's own index only;
asking elsewhere raises NotLaneLocal.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from loopgrad.codegen.kernel.nodes import BufferParam, ErrorSite, KValue, OwnArray, StackSlot
from loopgrad.codegen.lower.emitter import Index, KernelBuilder, Part, Position
from loopgrad.codegen.lower.liveness import Liveness
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.types import DType, TensorType, int64

Shape = tuple[int, ...]


class NotLaneLocal(Exception):
    """A lane asked for an element that another lane makes."""

    def __init__(self, value: Value) -> None:
        super().__init__(f"{value} is read at another lane's index")
        self.value = value


class CannotPredict(Exception):
    """A value was asked for before the effect that makes it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """In memory. More than one buffer: element t of the trailing positions is in buffers[t]."""

    buffers: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Registers:
    """Scalars the lane holds. `lane`: those of the lane's own index (leading dims are the lane shape),
    otherwise the whole value. `splat`: one scalar for every index."""

    values: tuple[KValue, ...]
    lane: bool
    splat: bool = False


@dataclass(frozen=True, slots=True)
class InArray:
    """In an array of the lane (`Kernel.arrays`), one element after the other; `lane` as for Registers."""

    array: int
    lane: bool


@dataclass(frozen=True, slots=True)
class Outer:
    """The value of an enclosing frame."""

    frame: Frame
    value: Value


@dataclass(frozen=True, slots=True)
class StackRef:
    """One kernel stack per trailing position of the element; or one for all `elements` in turn."""

    slots: tuple[int, ...]
    elements: int = 1


@dataclass(frozen=True, slots=True)
class AccumulatorRef:
    """Memory that scatters combine into."""

    param: int
    exclusive: bool


Binding = Stored | Registers | InArray | Outer | StackRef | AccumulatorRef


@dataclass(slots=True, eq=False)
class Frame:
    """One execution of a graph: what its values are bound to."""

    bindings: dict[Value, Binding] = field(default_factory=dict)

    def resolve(self, value: Value) -> tuple[Frame, Value, Binding | None]:
        """Through captures to where the value is bound or computed."""
        frame: Frame = self
        while True:
            binding = frame.bindings.get(value)
            if not isinstance(binding, Outer):
                return frame, value, binding
            frame, value = binding.frame, binding.value


Request = tuple[Frame, Value, Index]
Pull = Generator[Request, KValue, KValue]


class Params:
    """The kernel's parameters, in order of first use, and the buffers behind them."""

    def __init__(self) -> None:
        self.params: list[BufferParam] = []
        self.buffers: list[Any] = []
        self._numbers: dict[tuple[int, str], int] = {}

    def number(self, buffer: Any, type: TensorType, access: str) -> int:
        key = (id(buffer), access)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.params)
            self.params.append(BufferParam(type.dtype, type.size, access))
            self.buffers.append(buffer)
        return known


@dataclass(frozen=True, slots=True)
class Settings:
    """What the caller chose. `constant(data, type)` gives a buffer holding a literal, `residual(node)` the row of
    the saved values that a stack belongs to."""

    constant: Callable[[bytes, TensorType], Any]
    residual: Callable[[Node], int]
    liveness: Liveness
    check_indices: bool = False


class Lowering:
    """The state of one kernel under construction."""

    def __init__(
        self,
        settings: Settings,
        rules: Mapping[str, Callable[[Lowering, Frame, Node, Index], Pull]],
        dims: Shape,
        lane_loops: bool,
    ) -> None:
        arguments = tuple([KValue(int64) for _ in dims])
        self.settings = settings
        self.rules = rules
        self.emitter = KernelBuilder(arguments)
        self.dims = dims
        self.lanes = prod(dims)
        self.lane_index: Index = tuple([Part(d, a) for d, a in zip(dims, arguments, strict=True)])
        self.lane_loops = lane_loops
        self.accumulators: dict[Value, AccumulatorRef] = {}  # results of top-level regions
        self.params = Params()
        self.stacks: list[StackSlot] = []
        self.arrays: list[OwnArray] = []
        self.rolled = False  # values of many elements are kept in arrays
        self.errors: list[ErrorSite] = []
        self.split: set[int] = set()  # extents below which lane digits were divided
        self.mismatched: list[Value] = []  # read at an index that isn't the lane's, as far as digits tell
        self.beforehand: set[Value] = set()  # outside of regions, what each lane computes of its own before it is read
        self.unlike: frozenset[Value] = frozenset()  # what only has as many rows as there are lanes

    # ---- indices

    def cuts(self, index: Index, sizes: Sequence[int]) -> list[Index]:
        """The index cut into numbers of these sizes (whose product is the index's). Digits are kept, or
        divided one by one; only where neither fits are several combined first."""
        rest = list(reversed(index))
        result: list[Index] = []
        for j, size in enumerate(sizes):
            cut: list[Part] = []
            want = size
            while want > 1:
                part = rest.pop()
                if want % part.size == 0:
                    cut.append(part)
                    want //= part.size
                elif part.size % want == 0:
                    high, low = self._divided(part, part.size // want, rest)
                    cut.append(high)
                    rest.append(low)
                    want = 1
                else:
                    tail = (*cut, part, *reversed(rest))
                    return result + self._regroup(tail, sizes[j:])
            result.append(tuple(cut))
        return result

    def _divided(self, part: Part, below: int, rest: Sequence[Part]) -> tuple[Part, Part]:
        """One digit as two. Where it is a lane digit, the domain gets a dim boundary there."""
        if part in self.lane_index:
            place = self.lane_index.index(part)
            self.split.add(below * prod([p.size for p in self.lane_index[place + 1 :]]))
        high, low = self.emitter.divmod(part.at, below)
        return Part(part.size // below, high), Part(below, low)

    def _regroup(self, parts: Index, sizes: Sequence[int]) -> list[Index]:
        """All digits combined into one number, and that divided anew."""
        rest = self.emitter.linear(parts)
        digits: list[Index] = []
        for size in reversed(sizes[1:]):
            if size == 1:
                digits.append(())
                continue
            rest, low = self.emitter.divmod(rest, size)
            digits.append((Part(size, low),))
        digits.append((Part(sizes[0], rest),) if sizes[0] != 1 else ())
        return digits[::-1]

    def radix(self, index: Index, sizes: Sequence[int]) -> list[Position]:
        """The index as one digit for each of these sizes."""
        return [self.emitter.linear(cut) for cut in self.cuts(index, sizes)]

    def lane_at(self, shape: Shape, trailing: int) -> Index:
        """The lane's own element of a value whose shape starts with the lane shape."""
        size = prod(shape) // self.lanes
        return (*self.lane_index, Part(size, trailing)) if size != 1 else self.lane_index

    def leads(self, shape: Shape) -> bool:
        """Whether the value has one row per lane."""
        return self.lanes > 1 and leading_dims(shape, self.lanes) is not None

    def register_count(self, shape: Shape) -> int:
        """How many scalars a lane holds of a carried value."""
        return prod(shape) // self.lanes if self.leads(shape) else prod(shape)

    def own_index(self, shape: Shape, t: int) -> Index:
        """The index of scalar t of a carried value."""
        if self.leads(shape):
            return self.lane_at(shape, t)
        size = prod(shape)
        return (Part(size, t),) if size != 1 else ()

    # ---- values

    def error_site(self, kind: str, message: str, node: Node) -> int:
        self.errors.append(ErrorSite(kind, message, node.loc))
        return len(self.errors) - 1

    def load(self, buffer: Any, type: TensorType, at: Position) -> KValue:
        param = self.params.number(buffer, type, "read")
        return self.emitter.op("load", (self.emitter.value(at),), type.dtype, {"param": param})

    def pull(self, frame: Frame, value: Value, index: Index) -> KValue:
        """The scalar of `value` at `index`."""
        known = self._known((frame, value, index))
        if known is not None:
            return known
        pending: list[tuple[Request, Pull]] = [((frame, value, index), self._start((frame, value, index)))]
        answer: KValue | None = None
        while True:
            request, rule = pending[-1]
            try:
                wanted = next(rule) if answer is None else rule.send(answer)
            except StopIteration as done:
                pending.pop()
                answer = done.value
                self._remember(request, answer)
                if not pending:
                    return answer
                continue
            answer = self._known(wanted)
            if answer is None:
                pending.append((wanted, self._start(wanted)))

    def pull_at(self, frame: Frame, value: Value, t: int) -> KValue:
        """Scalar t of a carried value."""
        return self.pull(frame, value, self.own_index(value.shape, t))

    def pull_all(self, frame: Frame, value: Value) -> list[KValue]:
        """Every scalar of a value that the lane will hold."""
        return [self.pull_at(frame, value, t) for t in range(self.register_count(value.shape))]

    def _known(self, request: Request) -> KValue | None:
        for opened in reversed(self.emitter.blocks):
            known = opened.pulled.get(request)
            if known is not None:
                return known
        return None

    def _remember(self, request: Request, answer: KValue) -> None:
        self.emitter.blocks[self.emitter.depth[answer]].pulled[request] = answer

    def _start(self, request: Request) -> Pull:
        frame, value, index = request
        frame, value, binding = frame.resolve(value)
        if binding is not None:
            return self._bound(value, binding, index)
        rule = self.rules.get(value.node.op) if value.node is not None else None
        if rule is None:
            raise CannotPredict(f"{value} isn't known here")
        return rule(self, frame, value.node, index)  # type: ignore[arg-type]

    def _bound(self, value: Value, binding: Binding, index: Index) -> Pull:
        yield from ()
        match binding:
            case Stored():
                return self._read(value, binding, index)
            case Registers():
                return self._register(value, binding, index)
            case InArray():
                trailing = self._trailing(value, index) if binding.lane else index
                return self.element(binding.array, self.emitter.linear(trailing))
        raise NotLaneLocal(value)

    def _read(self, value: Value, stored: Stored, index: Index) -> KValue:
        type = value.type
        assert isinstance(type, TensorType)
        count = len(stored.buffers)
        if count == 1:
            return self.load(stored.buffers[0], type, self.emitter.linear(index))
        lead, trailing = self.radix(index, (type.size // count, count))
        part = TensorType((type.size // count,), type.dtype)
        if isinstance(trailing, int):
            return self.load(stored.buffers[trailing], part, lead)
        return self.choose(trailing, [self.load(b, part, lead) for b in stored.buffers])

    def _register(self, value: Value, held: Registers, index: Index) -> KValue:
        if held.splat or (len(held.values) == 1 and not held.lane):
            return held.values[0]
        if not held.lane:
            return self.choose(self.emitter.linear(index), held.values)
        at = self.emitter.linear(self._trailing(value, index))
        return held.values[at] if isinstance(at, int) else self.choose(at, held.values)

    def _trailing(self, value: Value, index: Index) -> Index:
        """The digits after the lane's own; none, and a note of it, where the leading digits are another lane's."""
        count = len(self.lane_index)
        if index[:count] == self.lane_index:
            return index[count:]
        self.mismatched.append(value)
        return ()

    # ---- arrays of the lane

    def new_array(self, dtype: DType, size: int) -> int:
        self.arrays.append(OwnArray(dtype, size))
        return len(self.arrays) - 1

    def element(self, array: int, at: Position) -> KValue:
        """Read here: what is stored later doesn't change it."""
        e = self.emitter
        return e.effect("array_load", (e.value(at),), (self.arrays[array].dtype,), {"array": array})[0]

    def put(self, array: int, at: Position, x: KValue) -> None:
        self.emitter.effect("array_store", (self.emitter.value(at), x), (), {"array": array})

    def choose(self, at: Position, values: Sequence[KValue]) -> KValue:
        """values[at], by selects where `at` is only known at run time."""
        if isinstance(at, int):
            return values[at]
        e = self.emitter
        result = values[0]
        for t, v in enumerate(values[1:], 1):
            if v is not result:
                result = e.op("select", (e.compare("eq", at, e.const(t, int64)), v, result), v.dtype)
        return result


def leading_dims(shape: Sequence[int], size: int) -> int | None:
    """How many leading dims hold `size` elements; None where no number does."""
    have = 1
    for d, extent in enumerate(shape):
        if have == size:
            return d
        have *= extent
    return len(shape) if have == size else None
