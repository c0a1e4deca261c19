"""Small programs that nobody has seen before run at once, one operation after the other, to the bits of compiled code.

An operation whose bits are settled by what it means (`Primitive.exact`) has them from NumPy. What our code generator
decides as well follows generated code: a function that it expands (exp, pow, erf ...) is a program of its own
(`expanded`), short sums of floats are added up in its order (`in_order`). What else there is (regions, long sums, large
products) is compiled.

A graph of exact operations is walked as it is: no pass changes its bits. Any other is brought into the form that is
scheduled first, where `x ** 2` is a product, and functions of constants are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.graph.build import unbound
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, INDEXING, NULLARY, PRIMITIVES, REFERENCE, Kind
from loopgrad.graph.primitives.primitive import Attrs
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
CALL: Final = 8_000  # of one that is a program of its own
ORDERED: Final = 20_000  # of one in the order of generated code


class Operation(NamedTuple):
    """`attrs` None: the function takes arrays alone, and gives its result alone. `time`: see `work`."""

    function: Callable[..., Any]
    attrs: Attrs | None
    operands: tuple[Value, ...]
    time: int


def direct_program(graph: Graph, options: Options, expanded: Expanded) -> CpuDirectProgram | None:
    """The graph as a program that needs no compilation; None where it has to be compiled."""
    if options.fast_math or not _is_small(graph, options):
        return None
    if not all(map(_is_exact, graph.nodes)):
        from loopgrad.codegen.schedule.canonical import prepare, rewrite_block  # late: exact operations need neither

        graph = rewrite_block(prepare(unbound(graph)))
    operations = []
    for node in graph.nodes:
        if node.op in NULLARY:
            continue
        operation = _operation(node, expanded)
        if operation is None:
            return None
        operations.append(operation)
    program = CpuDirectProgram(graph, operations)
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


def _operation(node: Node, expanded: Expanded) -> Operation | None:
    """What computes a node of operands; None where compiled code must."""
    primitive, type = PRIMITIVES[node.op], node.results[0].type
    if node.regions or not isinstance(type, TensorType):
        return None
    size, operands = int(type.size * max(primitive.cost, 1.0)), node.operands
    contracts = bool(node.attrs.get("contract"))
    if _is_exact(node) or (contracts and not any(map(_may_be_product, operands))):
        if primitive.function is not None and all(v.dtype.np.kind != "V" for v in operands):
            return Operation(primitive.function, None, operands, STEP + size)
        assert primitive.reference is not None
        return Operation(primitive.reference, node.attrs, operands, STEP + size)
    from loopgrad.runtime.cpu.in_order import in_order  # late: as above

    function = in_order(node, host_machine())
    if function is not None:
        return Operation(function, None, operands, ORDERED + sum([prod(v.shape) for v in operands]) + size)
    if node.op not in ELEMENTWISE or type.dtype.kind != "f" or contracts:
        return None
    from loopgrad.codegen.lower.elementwise import whole_exponent  # late: as above

    exponent = whole_exponent(node) if len(operands) > 1 else None
    function = expanded.function(node, exponent)
    return Operation(function, None, operands if exponent is None else operands[:1], CALL + size)


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

    def __init__(self, graph: Graph, operations: Sequence[Operation]) -> None:
        constants = [node for node in graph.nodes if node.op in NULLARY]
        computed = [node for node in graph.nodes if node.op not in NULLARY]
        values = [*graph.inputs, *[node.results[0] for node in (*constants, *computed)]]
        places = {v: i for i, v in enumerate(values)}
        self.work = sum([operation.time for operation in operations])
        self._inputs = len(graph.inputs)
        self._constants = [REFERENCE[node.op](node.attrs)[0] for node in constants]
        self._operations = [(o.function, o.attrs, tuple([places[v] for v in o.operands])) for o in operations]
        self._outputs = [(places[v], v.type) for v in graph.outputs if isinstance(v.type, TensorType)]

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        found: list[Any] = [b.array for b in buffers]
        found += self._constants
        with np.errstate(all="ignore"):
            for function, attrs, operands in self._operations:
                arrays = [found[i] for i in operands]
                found.append(function(*arrays) if attrs is None else function(attrs, *arrays)[0])
        return [buffers[i] if i < self._inputs else _buffer(found[i], type) for i, type in self._outputs]


def _buffer(result: Any, type: TensorType) -> Buffer:
    """The elements, dense; nobody writes to them again."""
    array = np.asarray(result)
    if array.base is not None or not array.flags.c_contiguous:
        array = array.copy(order="C")
    array.flags.writeable = False
    assert array.shape == type.shape, (array.shape, type)
    assert array.dtype == type.dtype.np, (array.dtype, type)
    return Buffer(array, DEVICE, type)
