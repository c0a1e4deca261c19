"""Lines that come for the first time, and long ones: computed from what was noted of them, without a graph.

A device that runs small programs without compiling them (`runtime.executable.NotedProgram`) is asked first. What
tensors hold on the way becomes elements, too, as in lines that are known (`lazy.tensor.repeated_lines`); where more is
to be looked at, an evaluation takes its usual way.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getrefcount
from typing import Any, Final, NamedTuple

from loopgrad.graph.nodes import NO_ATTRS, Leaf, Noted, Value
from loopgrad.graph.noted_lists import noted_rows
from loopgrad.graph.primitives import NULLARY
from loopgrad.graph.structure import MOST_NODES
from loopgrad.graph.types import TensorType, float64
from loopgrad.lazy.tensor.config import Config
from loopgrad.lazy.tensor.core import TensorCore, TensorLeaf, array_leaf, few_elements, several
from loopgrad.lazy.tensor.evaluator import EVALUATOR, Computed, known_leaf
from loopgrad.lazy.tensor.liveness import GENERATIONS, holder_of
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import Device, get_device
from loopgrad.runtime.executable import CalledOften, NotedProgram
from loopgrad.runtime.rare_collection import RARE_COLLECTION
from loopgrad.runtime.session import SESSION, evaluate_graph

MOST_TIMES: Final = 4  # calls of functions are computed together before one program
USUAL: Final = 500_000  # nanoseconds that an evaluation takes which looks at all tensors that wait, about


class StillNeeded(NamedTuple):
    """What an evaluation gives beside its output: tensors that hold values on the way, and values that something else
    refers to, which may be garbage: these are small."""

    along: list[tuple[TensorCore, Noted]]
    read: list[Noted]


@RARE_COLLECTION
def computed_from_notes(t: TensorCore, value: Noted, config: Config, read: bool = False) -> Buffer | None:
    """The elements of a tensor without history, which becomes a leaf; None where a graph is needed. `read`: whether
    something else than the tensor and its memory refers to its value."""
    if value.known is not None or not config.options.direct:
        return None
    device = get_device(config.device)
    program = _program(value, config, device)
    if program is None or (TensorLeaf.any_committed and any(map(_is_committed, program.leaves))):
        return None
    kept, count = _kept(program, value, t), len(program.computed)
    if kept is None:
        return None
    if read:
        kept.read.append(value)
    generation = max([leaf.generation + 1 for leaf in program.starts], default=0)  # type: ignore[attr-defined]
    if kept.read and generation >= GENERATIONS:
        return None  # other tensors have waited for long
    counted = count > MOST_NODES or (read and program.work > USUAL)  # other lines are known when they come again
    place = hash((device.name, config.options, program.outline)) if counted else None
    if not SESSION.runs_once_more(place, program.work, count):
        return None
    mine = EVALUATOR.claim(value)
    if mine is None:
        return None
    try:
        return None if t._value is not value else _settled(t, value, program, kept, generation)
    finally:
        EVALUATOR.release(value, mine)


def _program(value: Noted, config: Config, device: Device) -> NotedProgram | None:
    """The program of a value, before which calls of one function were computed together."""
    for rest in reversed(range(MOST_TIMES)):
        try:
            return device.noted(value, known_leaf, config.options, rest > 0)
        except CalledOften as often:
            values = often.values
        if not _computed_first(values, config):  # outside of the handler, which refers to what is counted
            break
    return device.noted(value, known_leaf, config.options, False)


def _computed_first(values: list[Noted], config: Config) -> bool:
    """Compute alike values as one array, after which they are known; whether that was done."""
    device, type = get_device(config.device), values[0].type
    found = noted_rows(values, known_leaf, few_elements)
    if found is None or not isinstance(type, TensorType):
        return False
    leaves = [x if isinstance(x, Leaf) else array_leaf(x, copy=False) for x in found.given]
    (buffer,) = evaluate_graph(found.graph, leaves, config.device, config.options)
    rows = buffer.array.reshape(len(values), *type.shape)
    each: dict[Value, Buffer] = {v: Buffer(rows[i, ...], device.name, type) for i, v in enumerate(values)}
    EVALUATOR.settle((), values, Computed(each, (), 0))
    return True


def _is_committed(leaf: Leaf) -> bool:
    return isinstance(leaf, TensorLeaf) and leaf.committed


def _settled(t: TensorCore, value: Noted, program: NotedProgram, kept: StillNeeded, generation: int) -> Buffer:
    along, read = kept
    if read:
        wanted = [*dict.fromkeys([value, *[v for _, v in along], *read])]
        buffers = program.run(wanted)
        outputs: dict[Value, Buffer] = dict(zip(wanted, buffers, strict=True))
        EVALUATOR.settle([(t, value), *along], read, Computed(outputs, (), generation))
    else:
        buffers = program.run([value, *[v for _, v in along]])
        EVALUATOR.settle_line(t, value, along, buffers)
    return buffers[0]


def _kept(program: NotedProgram, output: Noted, t: TensorCore) -> StillNeeded | None:
    """What is still needed; None where several tensors hold a value, or another thread has computed the output since
    it was asked for. The memory that the tensor is a view of doesn't count, where nobody holds all of it."""
    expected = _references(program.computed)
    if expected.pop(output, None) is None:
        return None
    _count_memory(t, expected)
    seen = [*map(getrefcount, expected)]
    kept = StillNeeded([], [])
    if seen == [*expected.values()]:
        return kept
    for (v, alone), n in zip(expected.items(), seen, strict=True):
        if n != alone and v.note[0] not in NULLARY:
            if v.holder is several:
                return None
            holder = holder_of(v)
            if holder is not None:
                kept.along.append((holder, v))
            if holder_of(v, n - alone) is None:
                kept.read.append(v)
    return kept


def _count_memory(t: TensorCore, expected: dict[Any, int]) -> None:
    """Count the reference of the memory that a tensor is a view of."""
    root = None if t._view is None else t._view.root_value
    if root in expected and holder_of(root) is None:  # type: ignore[arg-type]
        expected[root] += 1


def _references(computed: Iterable[Noted]) -> dict[Any, int]:
    """How often these values are referred to, where only they read each other."""
    expected: dict[Any, int] = dict.fromkeys(computed, UNREAD)
    for v in computed:
        for operand in v.note[1]:
            if operand in expected:
                expected[operand] += 1
    return expected


def _unread() -> int:
    """What `getrefcount` gives, as it is asked above, for a value that no other reads."""
    computed: dict[Any, int] = {Noted(TensorType((), float64), "alias", (), NO_ATTRS, None): 0}
    expected = dict.fromkeys(computed, 0)
    return next(map(getrefcount, expected))


UNREAD: Final = _unread()
