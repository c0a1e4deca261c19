"""Collectives: operations in which all processes of a mesh take part, each at the same place of its program.

`graph.placement` emits them, after derivatives, into the part of a program that one process runs.

    all_gather   (token, x, ...)   ->  token, the rows of every process' x along axis 0, in the order of processes
                                       attrs counts: per operand how many rows each process has; part: this process;
                                       final: no other collective follows in a call
    all_to_all   (token, x, ...)   ->  token, of the rows of every other process' x those columns (along axis 1) that
                                       are this process' (`columns`), in the order of processes
                                       attrs counts, part, final
    all_sum      (token, x, ...)   ->  token, the sum of every process' x, in the order that the engine likes
                                       attrs final
    collective_start
                 (token, x, ...)   ->  token. The collective `op`, whose attrs these are besides, is under way. One of
                                       the same number and operands, whose attr `started` is true, waits for its
                                       results: what doesn't need these is computed meanwhile

Attr number, where there is one, says which collective of the program it is: processes must meet in the same.

One node carries any number of operands in one message. The token (an int64 scalar) threads collectives, as stacks are
threaded: each takes the one that the last gave, so that all processes meet in the same order, whatever else their
programs leave out.

The transposes are the pair of JAX's JEP 17111: what all processes know and each uses for its own part has a cotangent
that is summed over processes; of an all-sum, every process has the cotangent already, and nothing is sent.

The references hand the arrays to the engine of the call (`ENGINE`), which the runtime sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol

import numpy as np

from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    Kind,
    Primitive,
    Types,
    dtype_error,
    shape_error,
    table,
    tensor_type,
)
from loopgrad.graph.types import TensorType, int64

TOKEN: Final = TensorType((), int64)


def columns(n: int, part: int, size: int) -> range:
    """Those of n that are process `part`'s, of so many processes."""
    return range(part * n // size, (part + 1) * n // size)


class Engine(Protocol):
    """What moves arrays between processes."""

    def all_gather(self, attrs: Attrs, parts: Sequence[Array]) -> list[Array]:
        """The rows of all processes, operand by operand."""
        ...

    def start(self, attrs: Attrs, parts: Sequence[Array]) -> None:
        """Begin the collective `op` of these attrs. Its operands stay as they are until it is finished."""
        ...

    def finish(self, attrs: Attrs) -> list[Array]:
        """The results of the first collective of this number that was begun and isn't finished."""
        ...

    def all_sum(self, attrs: Attrs, parts: Sequence[Array]) -> list[Array]:
        """The sums over all processes, operand by operand."""
        ...

    def all_to_all(self, attrs: Attrs, parts: Sequence[Array]) -> list[Array]:
        """The own columns of the rows of all other processes, operand by operand."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether collectives can work on the memory of devices, without the host: by `meet` and `move`."""
        ...

    def meet(self, attrs: Attrs) -> None:
        """Until all processes are at the collective of these attrs; raises what one of them has failed with."""
        ...

    def move(
        self, name: str, attrs: Attrs, types: Sequence[TensorType], sources: Sequence[int], targets: Sequence[int]
    ) -> None:
        """The collective of that name, from and to these addresses, once processes have met for it; `types` are those
        of the own rows. One that only starts is beside the work that comes until it is joined."""
        ...

    def join(self, attrs: Attrs) -> None:
        """What comes waits for the first collective of this number that was started and wasn't joined."""
        ...

    def join_all(self) -> None:
        """What comes waits for all that was started."""
        ...


ENGINE: Final[ContextVar[Engine]] = ContextVar("engine of collectives")


def _engine() -> Engine:
    engine = ENGINE.get(None)
    if engine is None:
        raise LoopgradError("expected a collective inside a call of its mesh, got one outside: a bug of the library")
    return engine


def memory_engine() -> Engine | None:
    """The engine of this call, where it can work on the memory of devices."""
    engine = ENGINE.get(None)
    return engine if engine is not None and engine.in_memory else None


def _parts(op: str, operands: Sequence[Value]) -> list[TensorType]:
    if not operands or operands[0].type != TOKEN:
        raise dtype_error(op, f"a token of type {TOKEN} in front", operands[:1], "thread the last collective's")
    return [tensor_type(op, v) for v in operands[1:]]


def _infer_all_gather(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    parts, counts, part = _parts("all_gather", operands), attrs["counts"], attrs["part"]
    if len(counts) != len(parts):
        raise shape_error("all_gather", f"counts of {len(parts)} operands", len(counts), "count the rows of each")
    gathered = []
    for t, rows in zip(parts, counts, strict=True):
        if not t.shape or not 0 <= part < len(rows) or t.shape[0] != rows[part]:
            raise shape_error("all_gather", f"the rows of process {part} of {rows}", t, "count the rows of each part")
        gathered.append(TensorType((sum(rows), *t.shape[1:]), t.dtype))
    return (TOKEN, *gathered)


def _infer_all_to_all(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    gathered = _infer_all_gather(operands, attrs, regions)[1:]
    found: list[TensorType] = []
    for t, rows in zip(gathered, attrs["counts"], strict=True):
        assert isinstance(t, TensorType)
        if len(t.shape) < 2:
            raise shape_error("all_to_all", "rows with columns", t, "give each an axis of columns")
        own = columns(t.shape[1], attrs["part"], len(rows))
        found.append(TensorType((t.shape[0] - rows[attrs["part"]], len(own), *t.shape[2:]), t.dtype))
    return (TOKEN, *found)


def _infer_all_sum(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    parts = _parts("all_sum", operands)
    for t in parts:
        if t.dtype.kind == "b":
            raise dtype_error("all_sum", "numbers", t, "cast the operand")
    return (TOKEN, *parts)


def _infer_start(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    return ROWS[attrs["op"]].infer(operands, attrs, regions)[:1]


def is_started(attrs: Attrs) -> bool:
    """Whether a collective is under way when its turn comes."""
    return bool(attrs.get("started"))


def _all_gather(attrs: Attrs, token: Array, *parts: Array) -> tuple[Array, ...]:
    engine = _engine()
    found = engine.finish(attrs) if is_started(attrs) else engine.all_gather(attrs, parts)
    return (np.asarray(token + 1), *found)


def _all_to_all(attrs: Attrs, token: Array, *parts: Array) -> tuple[Array, ...]:
    engine = _engine()
    found = engine.finish(attrs) if is_started(attrs) else engine.all_to_all(attrs, parts)
    return (np.asarray(token + 1), *found)


def _all_sum(attrs: Attrs, token: Array, *parts: Array) -> tuple[Array, ...]:
    engine = _engine()
    found = engine.finish(attrs) if is_started(attrs) else engine.all_sum(attrs, parts)
    return (np.asarray(token + 1), *found)


def _start(attrs: Attrs, token: Array, *parts: Array) -> tuple[Array, ...]:
    _engine().start(attrs, parts)
    return (np.asarray(token + 1),)


def _apart(node: Node, operand: int, axes: Axes) -> Axes | None:
    """Nobody meets in one lane: all lanes are there, or the loop runs in lockstep."""
    return None if axes else axes


def _row(name: str, **rules: Any) -> Primitive:
    return Primitive(name=name, public=None, kind=Kind.LIBRARY, heavy=True, collective=True, **rules)


ROWS: Final[dict[str, Primitive]] = table(
    _row("all_gather", linear=True, infer=_infer_all_gather, reference=_all_gather, axes=_apart),
    _row("all_to_all", linear=True, infer=_infer_all_to_all, reference=_all_to_all, axes=_apart),
    _row("all_sum", linear=True, kinds="iufc", infer=_infer_all_sum, reference=_all_sum, axes=_apart),
    _row("collective_start", infer=_infer_start, reference=_start, axes=_apart,
         not_differentiable="processes are given their parts of a program after its derivatives"),
)  # fmt: skip
