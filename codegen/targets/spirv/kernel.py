"""One Kernel to one SPIR-V module: prologue, the loop over this invocation's lanes, the body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp
from loopgrad.codegen.targets.spirv import control, elementwise, memory, stacks
from loopgrad.codegen.targets.spirv.assembly import FLOAT_MODES, INPUT, PUSH_CONSTANT, Val
from loopgrad.codegen.targets.spirv.context import SIZE, Emitter, memory_type
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.loops import emit_loop

COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
VALUE: Final[dict[str, Callable[[Emitter, KOp], Val]]] = {
    "const": elementwise.emit_const,
    "cast": elementwise.emit_cast,
    "select": elementwise.emit_select,
    "is_nan": elementwise.emit_predicate,
    "is_inf": elementwise.emit_predicate,
    "alias": lambda e, op: e.get(op.operands[0]),
    "stop_gradient": lambda e, op: e.get(op.operands[0]),
    "load": memory.emit_load,
    "pop": stacks.emit_pop,
    **dict.fromkeys(COMPARISONS, elementwise.emit_compare),
}
EFFECT: Final[dict[str, Callable[[Emitter, KOp], None]]] = {
    "store": memory.emit_store,
    "accumulate": memory.emit_accumulate,
    "reduce": memory.emit_reduce,
    "push": stacks.emit_push,
    "check": control.emit_check,
}
REGION: Final[dict[str, Callable[[Emitter, KOp, control.EmitBlock], None]]] = {
    "for": control.emit_for,
    "while": control.emit_while,
    "if": control.emit_if,
}


def emit_block(e: Emitter, block: Block) -> tuple[Val, ...]:
    """The block's operations; its arguments are bound already."""
    for op in block.ops:
        if op.opcode in REGION:
            REGION[op.opcode](e, op, emit_block)
        elif op.opcode in EFFECT:
            EFFECT[op.opcode](e, op)
        else:
            e.values[op.results[0]] = VALUE.get(op.opcode, elementwise.emit_elementwise)(e, op)
    return tuple([e.get(v) for v in block.yields])


def walk(block: Block) -> Iterator[KOp]:
    for op in block.ops:
        yield op
        for inner in op.blocks:
            yield from walk(inner)


def shared_params(kernel: Kernel) -> dict[int, set[str]]:
    """Parameters whose elements several lanes may write -> the kinds of accumulation."""
    found: dict[int, set[str]] = {}
    for op in walk(kernel.body):
        if op.opcode == "accumulate" and not op.attrs["exclusive"]:
            found.setdefault(op.attrs["param"], set()).add(op.attrs["kind"])
    return found


def emit_kernel(
    kernel: Kernel, features: Features, fast: bool = False, copied: tuple[int, ...] = (), ordered: bool = False
) -> bytes:
    """The module. `copied` parameters are accumulated into private copies (scratch blocks after those of
    the reductions); `ordered`: lanes that share elements run in order, so no atomics are needed."""
    e = Emitter(kernel, features, fast)
    e.ordered = ordered
    b = e.b
    main, first = b.fresh(), b.fresh()
    b.label = first
    bounds = prologue(e, len(kernel.reductions) + len(copied))
    for i, param in enumerate(copied):
        described = kernel.params[param]
        size = described.size * SIZE[memory_type(described.dtype)]
        e.copies[param] = e.at(e.scratch[len(kernel.reductions) + i], e.invocation, size)
    lanes(e, *bounds)
    return finished(e, main, first)


def emit_body(kernel: Kernel, features: Features, body: Callable[[Emitter], None]) -> bytes:
    """A module with `kernel`'s table whose every invocation runs `body`."""
    e = Emitter(kernel, features, False)
    main, first = e.b.fresh(), e.b.fresh()
    e.b.label = first
    prologue(e, len(kernel.reductions))
    body(e)
    return finished(e, main, first)


def finished(e: Emitter, main: int, first: int) -> bytes:
    if e.guards is not None:
        declare_guards(e)
    float_modes(e, main)
    for capability in e.b.capabilities:
        e.features.require(capability, e.kernel.name)
    return e.b.words(main, first, e.features.group)


def prologue(e: Emitter, scratch: int) -> tuple[Val, Val, Val, Val, Val]:
    """Reads the push constants and the table; gives across, along, first, end, lanes."""
    b = e.b
    block = b.struct("push", [b.type("i64")] * 6, [0, 8, 16, 24, 32, 40])
    push = b.global_variable(PUSH_CONSTANT, block)
    vector = b.vector("i32", 3)
    identity = b.global_variable(INPUT, vector)
    b.decorations += b.encode("Decorate", identity, 11, 28)
    member = b.pointer(PUSH_CONSTANT, b.type("i64"))
    table, *bounds = [b.get(b.raw("AccessChain", member, push, b.const("i32", i).id), "i64") for i in range(6)]
    whole = b.raw("Load", vector, identity)
    number = Val(b.raw("CompositeExtract", b.type("i32"), whole, 0), "i32")
    e.invocation = e.resize(number, "i64", signed=False)
    position = 0

    def word() -> Val:
        nonlocal position
        value = e.peek(e.offset(table, 8 * position), "i64")
        position += 1
        return value

    e.params = [word() for _ in e.kernel.params]
    e.scratch = [word() for _ in range(scratch)]
    e.control, e.void = word(), word()
    opaque = (e.resize(word(), "i32"), e.resize(word(), "i32"))
    e.resident = word()
    for _ in e.kernel.stacks:
        e.stacks.append(word())
        e.capacities.append(e.resize(word(), "i32"))
        e.depths.append(b.local("i32"))
    if not e.features.endless_loops:
        e.guards = (b.fresh(), opaque)
    across, along, first, end, lanes = bounds
    idle = b.inst("INotEqual", "bool", e.peek(e.void, "i32"), b.const("i32", 0))
    return across, along, first, e.select(idle, first, end), lanes


def declare_guards(e: Emitter) -> None:
    """One cell a loop; two at least, or the index would be known."""
    b = e.b
    assert e.guards is not None
    shape = b.array("i32", max(e.guard_count, 2))
    b.locals += b.encode("Variable", b.pointer(7, shape), e.guards[0], 7)


def lanes(e: Emitter, across: Val, along: Val, first: Val, end: Val, count: Val) -> None:
    """for p in [first, end): the lane at g * across + p * along, while there is one."""
    b = e.b
    start = b.inst("IMul", "i64", e.invocation, across)
    pass_number, lane = b.local("i64"), b.local("i64")
    b.set(pass_number, first)
    b.set(lane, b.inst("IAdd", "i64", start, b.inst("IMul", "i64", first, along)))

    def test() -> Val:
        inside = b.inst("SLessThan", "bool", b.get(lane, "i64"), count)
        return e.both(inside, b.inst("SLessThan", "bool", b.get(pass_number, "i64"), end))

    def body() -> None:
        e.lane = b.get(lane, "i64")
        for depth in e.depths:
            b.set(depth, b.const("i32", 0))
        e.values.update(zip(e.kernel.body.arguments, digits(e), strict=True))
        emit_block(e, e.kernel.body)
        b.set(lane, b.inst("IAdd", "i64", e.lane, along))
        b.set(pass_number, b.inst("IAdd", "i64", b.get(pass_number, "i64"), b.const("i64", 1)))

    emit_loop(e, test, body)


def digits(e: Emitter) -> list[Val]:
    """The lane's index along every dim of the domain, in 32-bit arithmetic where that suffices."""
    domain, b = e.kernel.domain, e.b
    if len(domain) < 2:
        return [e.lane] * len(domain)
    type = "i32" if prod(domain) < 1 << 31 else "i64"
    rest, found = e.resize(e.lane, type), []
    for extent in reversed(domain[1:]):
        size = b.const(type, max(extent, 1))
        above = b.inst("UDiv", type, rest, size)
        found.append(b.inst("ISub", type, rest, b.inst("IMul", type, above, size)))
        rest = above
    return [e.resize(v, "i64", signed=False) for v in (rest, *reversed(found))]


def float_modes(e: Emitter, main: int) -> None:
    """Ask for IEEE behaviour in every width that the device offers it for."""
    b, f = e.b, e.features
    offered = {"DenormPreserve": f.denormals, "SignedZeroInfNanPreserve": f.specials, "RoundingModeRTE": f.nearest}
    used = {16: "Float16", 64: "Float64"}
    for capability, widths in offered.items():
        for width in widths:
            if width == 32 or used.get(width) in b.capabilities:
                b.capabilities[capability] = None
                b.modes += b.encode("ExecutionMode", main, FLOAT_MODES[capability], width)
