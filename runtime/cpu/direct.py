"""Small programs that nobody has seen before run at once, one operation after the other, to the bits of compiled code.

An operation whose bits are settled by what it means (`Primitive.exact`) has them from NumPy. What our code generator
decides as well is taken from generated code: a function that it expands (exp, pow, erf ...) is a program of its own
(`expanded`). What else there is (regions, sums of floats in an order that a whole program decides) is compiled.

A graph of exact operations is walked as it is: no pass changes its bits. Any other is brought into the form that is
scheduled first, where `x ** 2` is a product, and functions of constants are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.codegen.options import Options
from loopgrad.graph.build import unbound
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, INDEXING, NULLARY, PRIMITIVES, REFERENCE, Kind
from loopgrad.graph.primitives.primitive import Array, Attrs
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.cpu.expanded import Expanded
from loopgrad.runtime.executable import DirectProgram

DEVICE: Final = "cpu"
MOST_ELEMENTS: Final = 1 << 16
"""Of a value. Beyond, memory and threads make up for the time that compiling takes."""

LONGEST: Final = 50_000_000
"""Nanoseconds that a program may take."""

STEP: Final = 2_000  # nanoseconds of an operation, however few elements it has
CALL: Final = 8_000  # and of one that is a program of its own


class Operation(NamedTuple):
    """One operation; `operands` are places, its result has the next one. `attrs` None: the function takes arrays alone,
    and gives its result alone."""

    function: Callable[..., Any]
    attrs: Attrs | None
    operands: tuple[int, ...]


def direct_program(graph: Graph, options: Options, expanded: Expanded) -> CpuDirectProgram | None:
    """The graph as a program that needs no compilation; None where it has to be compiled."""
    if options.fast_math or not _is_small(graph, options):
        return None
    if not all(map(_is_exact, graph.nodes)):
        from loopgrad.codegen.schedule.canonical import prepare, rewrite_block  # late: exact operations need neither

        graph = rewrite_block(prepare(unbound(graph)))
        if not all(map(_is_known, graph.nodes)):
            return None
    program = CpuDirectProgram(graph, expanded)
    return program if program.work <= LONGEST else None


def _is_small(graph: Graph, options: Options) -> bool:
    for node in graph.nodes:
        if node.regions or (options.check_indices and node.op in INDEXING):
            return False
        for value in node.results:
            if not isinstance(value.type, TensorType) or value.type.size > MOST_ELEMENTS:
                return False
    return True


def _is_exact(node: Node) -> bool:
    rule = PRIMITIVES[node.op].exact
    return rule is not None and rule(node)


def _is_known(node: Node) -> bool:
    if _is_exact(node):
        return True
    if node.op not in ELEMENTWISE or node.results[0].dtype.kind != "f":
        return False
    return not node.attrs.get("contract") or not any(map(_may_be_product, node.operands))


def _may_be_product(value: Value) -> bool:
    """Whether generated code may see a product behind the value, with which it would contract a sum of derivatives."""
    pending = [value]
    while pending:
        node = pending.pop().node
        if node is None:
            continue
        if node.op == "mul":
            return True
        if PRIMITIVES[node.op].kind is Kind.MOVEMENT or node.op in ("neg", "select"):
            pending += node.operands
    return False


class CpuDirectProgram(DirectProgram):
    """See the module. Safe to call from several threads."""

    def __init__(self, graph: Graph, expanded: Expanded) -> None:
        places = {v: i for i, v in enumerate(graph.inputs)}
        self._constants: list[Array] = []
        self._operations: list[Operation] = []
        self.work = 0
        computed = []
        for node in graph.nodes:
            if node.op in NULLARY:
                places[node.results[0]] = len(places)
                self._constants.append(REFERENCE[node.op](node.attrs)[0])
            else:
                computed.append(node)
        for node in computed:
            operands = tuple([places[v] for v in node.operands])
            places[node.results[0]] = len(places)
            self._add(node, operands, expanded)
        self._inputs = len(graph.inputs)
        self._outputs = [places[v] for v in graph.outputs]
        self._types = [v.type for v in graph.outputs if isinstance(v.type, TensorType)]

    def _add(self, node: Node, operands: tuple[int, ...], expanded: Expanded) -> None:
        primitive, type = PRIMITIVES[node.op], node.results[0].type
        assert isinstance(type, TensorType)
        time, attrs, function = STEP, None, primitive.function
        if not _is_exact(node) and not node.attrs.get("contract"):
            from loopgrad.codegen.lower.elementwise import whole_exponent  # late: as above

            exponent = whole_exponent(node) if len(node.operands) > 1 else None
            function = expanded.function(node, exponent)
            operands = operands[: 1 if exponent is not None else None]
            time = CALL
        elif function is None or any(v.dtype.np.kind == "V" for v in node.operands):
            attrs, function = node.attrs, primitive.reference
        assert function is not None
        self.work += time + int(type.size * max(primitive.cost, 1.0))
        self._operations.append(Operation(function, attrs, operands))

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        found: list[Any] = [b.array for b in buffers]
        found += self._constants
        with np.errstate(all="ignore"):
            for function, attrs, operands in self._operations:
                arrays = [found[i] for i in operands]
                found.append(function(*arrays) if attrs is None else function(attrs, *arrays)[0])
        return [
            buffers[place] if place < self._inputs else _buffer(found[place], type)
            for place, type in zip(self._outputs, self._types, strict=True)
        ]


def _buffer(result: Any, type: TensorType) -> Buffer:
    """The elements, dense; nobody writes to them again."""
    array = np.asarray(result)
    if array.base is not None or not array.flags.c_contiguous:
        array = array.copy(order="C")
    array.flags.writeable = False
    assert array.shape == type.shape, (array.shape, type)
    assert array.dtype == type.dtype.np, (array.dtype, type)
    return Buffer(array, DEVICE, type)
