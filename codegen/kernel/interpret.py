"""Reference semantics of a Kernel, in NumPy: every lane runs the body on its own.

All lanes advance together under a mask, which is the same thing, since lanes only meet in
`accumulate` and `reduce`. Slow and plain on purpose: tests compare every lowering with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.graph.errors import IndexRangeError, LoopLimitError
from loopgrad.graph.primitives import COMBINES, REFERENCE, RUNNING_TOTALS
from loopgrad.graph.primitives.running import associative_scan

Array = np.ndarray[Any, np.dtype[Any]]

_COMBINE: dict[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.logical_and,
    "or": np.logical_or,
}

RUNNING_TOTAL_OF: dict[str, str] = {COMBINES[name]: name for name in RUNNING_TOTALS}


class _Stack:
    """Per-lane stacks of one slot: `cells[depth, lane]`."""

    def __init__(self, lanes: int, dtype: np.dtype[Any]) -> None:
        self.cells: Array = np.zeros((4, lanes), dtype)
        self.depth: Array = np.zeros(lanes, np.int64)

    def push(self, value: Array, active: Array) -> None:
        lanes = np.flatnonzero(active)
        if lanes.size and self.depth[lanes].max() >= len(self.cells):
            self.cells = np.concatenate([self.cells, np.zeros_like(self.cells)])
        self.cells[self.depth[lanes], lanes] = value[lanes]
        self.depth[lanes] += 1

    def pop(self, active: Array) -> Array:
        lanes = np.flatnonzero(active)
        assert (self.depth[lanes] > 0).all(), "pop from an empty stack"
        self.depth[lanes] -= 1
        result = np.zeros(active.shape, self.cells.dtype)
        result[lanes] = self.cells[self.depth[lanes], lanes]
        return result


def _undefined(shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """What an array that nobody has written holds: what shows, where it is used."""
    return np.full(shape, np.nan if dtype.kind == "f" else 77, dtype)


class _KernelInterpreter:
    def __init__(self, kernel: Kernel, arrays: Sequence[Array]) -> None:
        self.kernel = kernel
        self.arrays = [a.reshape(-1) for a in arrays]
        self.lanes = int(np.prod(kernel.domain, dtype=np.int64))
        self.env: dict[KValue, Array] = {}
        self.stacks = [_Stack(self.lanes, s.dtype.np) for s in kernel.stacks]
        self.held: list[Array] = [_undefined((a.size, self.lanes), a.dtype.np) for a in kernel.arrays]

    def run(self) -> None:
        grid = np.indices(self.kernel.domain, dtype=np.int64).reshape(len(self.kernel.domain), self.lanes)
        self.block(self.kernel.body, list(grid), np.ones(self.lanes, bool))

    def block(self, block: Block, arguments: Sequence[Array], active: Array) -> list[Array]:
        self.env.update(zip(block.arguments, arguments, strict=True))
        for op in block.ops:
            results = self.operation(op, [self.env[v] for v in op.operands], active)
            self.env.update(zip(op.results, results, strict=True))
        return [self.env[v] for v in block.yields]

    def operation(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        handler = _HANDLERS.get(op.opcode)
        if handler is not None:
            return handler(self, op, operands, active)
        attrs = op.attrs
        with np.errstate(all="ignore"):
            return [np.asarray(r) for r in REFERENCE[op.opcode](attrs, *operands)]

    def const(self, op: KOp, _operands: list[Array], _active: Array) -> Sequence[Array]:
        return [np.full(self.lanes, op.attrs["value"], op.results[0].dtype.np)]

    def cast(self, op: KOp, operands: list[Array], _active: Array) -> Sequence[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(r) for r in REFERENCE["cast"]({"dtype": op.results[0].dtype}, *operands)]

    def fma(self, _op: KOp, operands: list[Array], _active: Array) -> Sequence[Array]:
        x, y, z = operands
        with np.errstate(all="ignore"):
            return [x * y + z]

    def whole_power(self, op: KOp, operands: list[Array], _active: Array) -> Sequence[Array]:
        (x,) = operands
        with np.errstate(all="ignore"):
            return [np.power(x, x.dtype.type(op.attrs["exponent"]))]

    def load(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        source = self.arrays[op.attrs["param"]]
        index = np.where(active, operands[0], 0)
        if source.size == 0:
            assert not active.any(), "load from an empty buffer"
            return [np.zeros(self.lanes, source.dtype)]
        assert ((index >= 0) & (index < source.size)).all(), "load out of range"
        return [source[index]]

    def store(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        index, value = operands
        self.arrays[op.attrs["param"]][index[active]] = value[active]
        return []

    def accumulate(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        index, value, predicate = operands
        lanes = active & predicate
        target = self.arrays[op.attrs["param"]]
        if op.attrs["kind"] == "set":
            target[index[lanes]] = value[lanes]
        else:
            _COMBINE[op.attrs["kind"]].at(target, index[lanes], value[lanes])
        return []

    def push(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        self.stacks[op.attrs["stack"]].push(operands[0], active)
        return []

    def pop(self, op: KOp, _operands: list[Array], active: Array) -> Sequence[Array]:
        return [self.stacks[op.attrs["stack"]].pop(active)]

    def array_load(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        cells = self.held[op.attrs["array"]]
        index = np.where(active, operands[0], 0)
        assert ((index >= 0) & (index < len(cells))).all(), "index of a lane's array out of range"
        return [cells[index, np.arange(self.lanes)]]

    def array_store(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        index, value = operands
        cells, lanes = self.held[op.attrs["array"]], np.flatnonzero(active)
        assert ((index[lanes] >= 0) & (index[lanes] < len(cells))).all(), "index of a lane's array out of range"
        cells[index[lanes], lanes] = value[lanes]
        return []

    def reduce(self, op: KOp, operands: list[Array], _active: Array) -> Sequence[Array]:
        reduction = self.kernel.reductions[op.attrs["slot"]]
        domain = self.kernel.domain
        kept = domain[: len(domain) - reduction.rank]
        assert len(operands) == 1, "sums so far are for support kernels"
        if reduction.shards is not None:
            shards = reduction.shards
            attrs = {"combine": reduction.kind, **asdict(shards)}
            (result,) = REFERENCE["shard_reduce"](attrs, operands[0].reshape(-1))
            self.arrays[reduction.param][:] = result.reshape(-1)
            return []
        rows = operands[0].reshape((int(np.prod(kept, dtype=np.int64)), -1))
        if reduction.kind == "add":
            (result,) = REFERENCE["reduce_sum"]({"axes": (1,)}, rows)
        else:
            result = _COMBINE[reduction.kind].reduce(rows, axis=1, dtype=rows.dtype)
        self.arrays[reduction.param][:] = result
        return []

    def scan(self, op: KOp, operands: list[Array], _active: Array) -> Sequence[Array]:
        running = self.kernel.running
        assert running is not None
        if running.function is not None:
            given = {"along": -2, "reverse": running.reverse, "function": running.function, "taken": running.taken}
            found = associative_scan(given, *[x.reshape(running.shape) for x in operands])
            for param, values in enumerate(found, running.param):
                self.arrays[param][:] = values.reshape(-1)
            return []
        terms = operands[0].reshape(running.shape)
        attrs = {"axis": 1, "reverse": running.reverse}
        (result,) = REFERENCE[RUNNING_TOTAL_OF[running.kind]](attrs, terms)
        self.arrays[running.param][:] = result.reshape(-1)
        return []

    def check(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        failed = np.flatnonzero(active & ~operands[0])
        if failed.size:
            site = self.kernel.errors[op.attrs["error"]]
            raise IndexRangeError(site.message.format(lane=failed[0], detail=operands[1][failed[0]]))
        return []

    def for_(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        count, carries = operands[0], operands[1:]
        longest = int(count[active].max()) if active.any() else 0
        steps = range(longest - 1, -1, -1) if op.attrs["reverse"] else range(longest)
        for k in steps:
            running = active & (k < count)
            index = np.full(self.lanes, k, count.dtype)
            after = self.block(op.blocks[0], [index, *carries], running)
            carries = [np.where(running, new, old) for new, old in zip(after, carries, strict=True)]
        return carries

    def while_(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        carries, limit, step = operands, op.attrs.get("max_steps"), 0
        running = active.copy()
        while True:
            (pred,) = self.block(op.blocks[0], carries, running)
            running &= pred
            if not running.any():
                return carries
            if limit is not None and step >= limit:
                site = op.attrs.get("error")
                raise LoopLimitError(limit, None if site is None else self.kernel.errors[site].loc)
            after = self.block(op.blocks[1], carries, running)
            carries = [np.where(running, new, old) for new, old in zip(after, carries, strict=True)]
            step += 1

    def if_(self, op: KOp, operands: list[Array], active: Array) -> Sequence[Array]:
        pred = operands[0]
        then = self.block(op.blocks[0], [], active & pred)
        other = self.block(op.blocks[1], [], active & ~pred)
        return [np.where(pred, a, b) for a, b in zip(then, other, strict=True)]


_HANDLERS: dict[str, Callable[[_KernelInterpreter, KOp, list[Array], Array], Sequence[Array]]] = {
    "const": _KernelInterpreter.const,
    "cast": _KernelInterpreter.cast,
    "fma": _KernelInterpreter.fma,
    "whole_power": _KernelInterpreter.whole_power,
    "load": _KernelInterpreter.load,
    "store": _KernelInterpreter.store,
    "accumulate": _KernelInterpreter.accumulate,
    "for": _KernelInterpreter.for_,
    "while": _KernelInterpreter.while_,
    "if": _KernelInterpreter.if_,
    "push": _KernelInterpreter.push,
    "pop": _KernelInterpreter.pop,
    "array_load": _KernelInterpreter.array_load,
    "array_store": _KernelInterpreter.array_store,
    "reduce": _KernelInterpreter.reduce,
    "scan": _KernelInterpreter.scan,
    "check": _KernelInterpreter.check,
}


def interpret_kernel(kernel: Kernel, arrays: Sequence[Array]) -> None:
    """Run `kernel` on `arrays` (one C-contiguous array per parameter), in place.

    Accumulate parameters must hold their initial elements. Raises IndexRangeError and
    LoopLimitError as the compiled kernel would.
    """
    _KernelInterpreter(kernel, arrays).run()
