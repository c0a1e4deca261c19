"""Structured control flow over lanes: `for`, `while`, `if`, `check`.

A uniform count, condition or predicate is scalar control flow and leaves the execution mask alone.
A varying one runs while any lane is active: the body executes under the mask of active lanes and carries
change only there. A branch that no active lane takes is jumped over, so memory it guards isn't touched;
two cheap pure branches become a select.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.kernel.nodes import Block, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.targets.cpu.vector.context import Affine, VectorEmitter
from loopgrad.codegen.targets.cpu.vector.interruption import Pause, Stretches, ends_soon
from loopgrad.codegen.targets.cpu.vector.outline import fail_function
from loopgrad.codegen.targets.cpu.vector.vectors import Vector, llvm_type

FLATTEN_OPS = 12


class Phis:
    """Phis of a header or join for a list of Kernel values; one per vector of each.

    Affine values carry their scalar base only.
    """

    def __init__(self, e: VectorEmitter, values: Sequence[KValue]) -> None:
        self.e = e
        self.values = values
        self.lines: list[int] = []
        self.results: list[Vector] = []
        for v in values:
            known = e.analysis.forms[v] is not None
            names = tuple([e.b.fresh() for _ in range(1 if known else e.layout.groups)])
            narrow = not known and e.analysis.narrow(v)
            self.results.append(Vector("i32" if narrow else llvm_type(v.dtype), names, known))
            self.lines.extend([e.b.reserve() for _ in names])

    def incoming(self, values: Sequence[KValue]) -> list[Vector]:
        """Values as these phis take them; emits conversions in the current block."""
        return [
            self.convert(target, result, v) for target, result, v in zip(self.values, self.results, values, strict=True)
        ]

    def convert(self, target: KValue, result: Vector, v: KValue) -> Vector:
        e = self.e
        x = e.base(v) if e.analysis.forms[target] is not None else e.vec(v)
        return e.b.resize(x, result.type) if target.dtype.kind == "i" else x

    def fill(self, edges: Sequence[tuple[str, Sequence[Vector]]]) -> None:
        """Write the phi lines, given per edge its block and its values."""
        places = iter(self.lines)
        for i, result in enumerate(self.results):
            type = result.type if result.uniform else self.e.b.vector_type(result.type)
            for u, name in enumerate(result.names):
                sources = ", ".join(f"[ {values[i].names[u]}, %{label} ]" for label, values in edges)
                self.e.b.lines[next(places)] = f"  {name} = phi {type} {sources}"

    def bind(self, targets: Sequence[KValue]) -> None:
        """Let these Kernel values stand for the phis."""
        bind(self.e, targets, self.results)


def bind(e: VectorEmitter, targets: Sequence[KValue], values: Sequence[Vector]) -> None:
    for target, value in zip(targets, values, strict=True):
        form = e.analysis.forms[target]
        e.env[target] = Affine(value) if form is not None and any(form) else value


def select_carries(e: VectorEmitter, alive: Vector | None, phis: Phis, new: list[Vector]) -> list[Vector]:
    """New carries where active, old ones elsewhere; scalars belong to uniform carries."""
    out = []
    for old, value in zip(phis.results, new, strict=True):
        out.append(value if old.uniform else e.b.choose(alive, value, old))
    return out


# -- for


def emit_for(e: VectorEmitter, op: KOp) -> None:
    count = e.wide(op.operands[0])
    if count.uniform:
        counted_loop(e, op, count, None)
        return
    b = e.b
    lanes = b.choose(e.mask, count, b.const(count.type, 0)) if e.mask is not None else count
    most = lanes.names[0]
    vt = b.vector_type(count.type)
    for other in lanes.names[1:]:
        larger = b.fresh()
        b.line(f"{larger} = call {vt} @llvm.smax.v{b.width}{count.type}({vt} {most}, {vt} {other})")
        most = larger
    trips = b.scalar(count.type, f"call {count.type} @llvm.vector.reduce.smax.v{b.width}{count.type}({vt} {most})")
    counted_loop(e, op, trips, lanes)


def counted_loop(e: VectorEmitter, op: KOp, trips: Vector, lanes: Vector | None) -> None:
    """for k in 0..trips (or down); `lanes`, where given, are the counts per lane."""
    b, (body,) = e.b, op.blocks
    reverse = bool(op.attrs.get("reverse", False))
    phis_of = body.arguments[1:]
    head, leave = b.fresh_label("for"), b.fresh_label("endfor")
    type = trips.type
    positive = b.scalar("i1", f"icmp sgt {type} {trips.name}, 0")
    inits = initial_values(e, phis_of, op.operands[1:])
    stretches = None if ends_soon(e, e.analysis.ranges.of(op.operands[0])[1]) else Stretches(e, trips, reverse)
    enter = b.label
    b.branch(positive.name, head, leave)
    b.start(head)
    counter_line, counter = b.reserve(), b.fresh()
    if stretches is not None:
        stretches.head()
    phis = Phis(e, phis_of)
    phis.bind(phis_of)
    step = b.named(type, counter)
    k = b.scalar(type, f"add nsw {type} {counter}, -1") if reverse else step
    e.env[body.arguments[0]] = k
    alive = e.mask
    if lanes is not None:
        alive = b.inst("i1", "icmp slt {t0} {a}, {b}", k, lanes)
    with e.under(alive), e.inside_loop():
        emit_block(e, body)
        new = select_carries(e, alive if lanes is not None else None, phis, phis.incoming(body.yields))
        following = k if reverse else b.scalar(type, f"add nsw {type} {counter}, 1")
        end = stretches.end if stretches is not None else "0" if reverse else trips.name
        again = b.scalar("i1", f"icmp {'sgt' if reverse else 'slt'} {type} {following.name}, {end}")
        latch = b.label
        b.branch(again.name, head, leave if stretches is None else stretches.label)
    back, out = [latch], [latch]
    if stretches is not None:
        more, out = stretches.between(following, enter, latch, head, leave)
        back = [latch, more]
    start = trips.name if reverse else "0"
    edges = "".join(f", [ {following.name}, %{label} ]" for label in back)
    b.lines[counter_line] = f"  {counter} = phi {type} [ {start}, %{enter} ]{edges}"
    phis.fill([(enter, inits), *[(label, new) for label in back]])
    b.start(leave)
    after = Phis(e, op.results)
    after.fill([(enter, inits), *[(label, new) for label in out]])
    after.bind(op.results)


def initial_values(e: VectorEmitter, targets: Sequence[KValue], values: Sequence[KValue]) -> list[Vector]:
    """Loop inits in the shape of the carries, emitted before the loop."""
    out = []
    for target, v in zip(targets, values, strict=True):
        form = e.analysis.forms[target]
        x = e.base(v) if form is not None else e.vec(v)
        narrow = form is None and e.analysis.narrow(target)
        type = "i32" if narrow else llvm_type(target.dtype)
        out.append(e.b.resize(x, type) if target.dtype.kind == "i" else x)
    return out


# -- while


def emit_while(e: VectorEmitter, op: KOp) -> None:
    b, (cond, body) = e.b, op.blocks
    head, do, leave = b.fresh_label("while"), b.fresh_label("do"), b.fresh_label("endwhile")
    varying = not e.analysis.uniform(cond.yields[0])
    limit = op.attrs.get("max_steps")
    pause = None if ends_soon(e, limit) else Pause(e)
    inits = initial_values(e, body.arguments, op.operands)
    outside = e.mask
    first = b.vector(b.const("i1", True)) if outside is None else outside
    enter = b.label
    b.jump(head)
    b.start(head)
    steps_line = b.reserve()
    steps = b.fresh()
    if pause is not None:
        pause.head()
    phis = Phis(e, body.arguments)
    alive_lines = [b.reserve() for _ in range(b.groups)] if varying else []
    alive_in = Vector("i1", tuple([b.fresh() for _ in alive_lines]), False)
    phis.bind(cond.arguments)
    phis.bind(body.arguments)
    with e.under(alive_in if varying else outside):
        emit_block(e, cond)
        condition = e.get(cond.yields[0])
        alive = b.both(alive_in, condition) if varying else outside
        go = b.any(alive) if varying and alive is not None else condition.name
        if limit is not None:
            go = limited(e, op, go, steps, alive, limit)
        if pause is not None and not varying:
            go = b.scalar("i1", f"and i1 {go}, {pause.going}").name
        b.branch(go, do, leave)
        b.start(do)
        with e.under(alive), e.inside_loop():
            emit_block(e, body)
            new = select_carries(e, alive if varying else None, phis, phis.incoming(body.yields))
            more = b.scalar("i64", f"add nsw i64 {steps}, 1")
            following = alive
            if pause is not None:
                following = pause.latch(enter, alive if varying else None)
            latch = b.label
            b.jump(head)
    b.lines[steps_line] = f"  {steps} = phi i64 [ 0, %{enter} ], [ {more.name}, %{latch} ]"
    phis.fill([(enter, inits), (latch, new)])
    if following is not None:
        for u, line in enumerate(alive_lines):
            sources = f"[ {first.names[u]}, %{enter} ], [ {following.names[u]}, %{latch} ]"
            b.lines[line] = f"  {alive_in.names[u]} = phi {b.vector_type('i1')} {sources}"
    b.start(leave)
    bind(e, op.results, phis.results)


def limited(e: VectorEmitter, op: KOp, go: str, steps: str, alive: Vector | None, limit: int) -> str:
    """`go` and the step limit; reaching the limit with work left is recorded as an error."""
    b = e.b
    reached = b.scalar("i1", f"icmp sge i64 {steps}, {limit}")
    bad = b.scalar("i1", f"and i1 {reached.name}, {go}")
    record_failure(e, bad.name, alive, int(op.attrs.get("error") or 0), b.named("i64", steps))
    stop = b.scalar("i1", f"xor i1 {reached.name}, true")
    return b.scalar("i1", f"and i1 {stop.name}, {go}").name


# -- if


def cheap(block: Block) -> bool:
    return len(block.ops) <= FLATTEN_OPS and all(OPCODES[o.opcode].quick for o in block.ops)


def emit_if(e: VectorEmitter, op: KOp) -> None:
    then, other = op.blocks
    condition = e.get(op.operands[0])
    if condition.uniform:
        two_way(e, op, condition.name)
    elif cheap(then) and cheap(other) and op.results:
        emit_block(e, then)
        emit_block(e, other)
        for r, x, y in zip(op.results, then.yields, other.yields, strict=True):
            e.env[r] = e.env[x] if x is y else merge(e, r, condition, x, y)
    else:
        masked_if(e, op, condition)


def merge(e: VectorEmitter, r: KValue, condition: Vector, x: KValue, y: KValue) -> Vector:
    type = "i32" if e.analysis.narrow(r) else llvm_type(r.dtype)
    a, b = (e.b.resize(e.get(v), type) if r.dtype.kind == "i" else e.get(v) for v in (x, y))
    return e.b.vector(e.b.choose(condition, a, b))


def two_way(e: VectorEmitter, op: KOp, condition: str) -> None:
    b, (then, other) = e.b, op.blocks
    yes, no, join = b.fresh_label("then"), b.fresh_label("else"), b.fresh_label("endif")
    b.branch(condition, yes, no)
    edges = []
    for label, block in ((yes, then), (no, other)):
        b.start(label)
        with e.under(e.mask):
            emit_block(e, block)
            values = initial_values(e, op.results, block.yields)
            edges.append((b.label, values))
            b.jump(join)
    b.start(join)
    phis = Phis(e, op.results)
    phis.fill(edges)
    phis.bind(op.results)


def masked_if(e: VectorEmitter, op: KOp, condition: Vector) -> None:
    """Each branch under its mask, jumped over where no lane takes it."""
    b = e.b
    inverse = b.inst("i1", "xor {t0} {a}, {b}", condition, b.const("i1", True))
    results = []
    for block, chosen in zip(op.blocks, (condition, inverse), strict=True):
        results.append(guarded(e, op, block, e.b.both(e.mask, chosen)))
    for i, (r, x, y) in enumerate(zip(op.results, op.blocks[0].yields, op.blocks[1].yields, strict=True)):
        e.env[r] = e.env[x] if x is y else b.choose(condition, results[0][i], results[1][i])


def guarded(e: VectorEmitter, op: KOp, block: Block, mask: Vector | None) -> list[Vector]:
    """The block's yields as vectors, anything where no lane is active."""
    b = e.b
    if not block.ops:
        return [b.vector(v) for v in initial_values(e, op.results, block.yields)]
    do, join = b.fresh_label("taken"), b.fresh_label("joined")
    enter = b.label
    b.branch(e.any_active(mask), do, join)
    b.start(do)
    with e.under(mask):
        emit_block(e, block)
        values = [b.vector(v) for v in initial_values(e, op.results, block.yields)]
        leave = b.label
        b.jump(join)
    b.start(join)
    merged = []
    for v in values:
        names = []
        for u in range(b.groups):
            name = b.fresh()
            vt = b.vector_type(v.type)
            b.line(f"{name} = phi {vt} [ zeroinitializer, %{enter} ], [ {v.names[u]}, %{leave} ]")
            names.append(name)
        merged.append(Vector(v.type, tuple(names), False))
    return merged


# -- check


def emit_check(e: VectorEmitter, op: KOp) -> None:
    b = e.b
    ok, detail = e.get(op.operands[0]), e.wide(op.operands[1])
    if ok.uniform and ok.name == "true":
        return
    bad = b.inst("i1", "xor {t0} {a}, {b}", ok, b.const("i1", True))
    failing = bad if e.layout.single else b.both(e.mask, b.vector(bad))
    assert failing is not None
    record_failure(e, b.any(failing), failing, int(op.attrs["error"]), detail)


def record_failure(e: VectorEmitter, bad: str, lanes: Vector | None, error: int, detail: Vector) -> None:
    """A cold block that stores code, first failing lane and detail."""
    b = e.b
    failed, fine = b.fresh_label("failed"), b.fresh_label("fine")
    b.branch(bad, failed, fine, rarely=True)
    b.start(failed)
    with b.scope():
        b.outlined.setdefault("lg.fail", fail_function)
        lane, what = first_lane(e, lanes, [e.row_lane() if not e.layout.single else b.const("i64", 0), detail])
        code = 2 * len(e.kernel.stacks) + 1
        where = b.scalar("ptr", f"getelementptr i64, ptr %control, i64 {code}")
        b.line(f"call void @lg.fail(ptr {where.name}, i64 {error + 1}, i64 {lane.name}, i64 {what.name})")
    b.jump(fine)
    b.start(fine)


def first_lane(e: VectorEmitter, lanes: Vector | None, values: list[Vector]) -> list[Vector]:
    """Each value in the first active lane (through memory: this is a cold path)."""
    b, width = e.b, e.layout.width
    if e.layout.single:
        return values
    position = b.const("i64", 0) if lanes is None else first_set(e, lanes)
    out = []
    for v in values:
        if v.uniform:
            out.append(v)
            continue
        place = e.slot(f"[{b.groups * width} x {v.type}]", b.fresh_label("pick"))
        for u, name in enumerate(v.names):
            at = b.scalar("ptr", f"getelementptr {v.type}, ptr {place}, i64 {u * width}")
            b.line(f"store {b.vector_type(v.type)} {name}, ptr {at.name}")
        at = b.scalar("ptr", f"getelementptr {v.type}, ptr {place}, i64 {position.name}")
        out.append(b.scalar(v.type, f"load {v.type}, ptr {at.name}"))
    return out


def first_set(e: VectorEmitter, lanes: Vector) -> Vector:
    """The number of the first active lane among all vectors."""
    b, width = e.b, e.layout.width
    position = b.const("i64", 0)
    for u in reversed(range(b.groups)):
        bits = b.scalar(f"i{width}", f"bitcast {b.vector_type('i1')} {lanes.names[u]} to i{width}")
        wide = b.scalar("i64", f"zext i{width} {bits.name} to i64")
        lowest = b.scalar("i64", f"call i64 @llvm.cttz.i64(i64 {wide.name}, i1 false)")
        here = b.scalar("i64", f"add i64 {lowest.name}, {u * width}")
        some = b.scalar("i1", f"icmp ne i64 {wide.name}, 0")
        position = b.scalar("i64", f"select i1 {some.name}, i64 {here.name}, i64 {position.name}")
    return position


def emit_block(e: VectorEmitter, block: Block) -> None:
    """Every operation of a block, in order."""
    for op in block.ops:
        e.dispatch(e, op)
