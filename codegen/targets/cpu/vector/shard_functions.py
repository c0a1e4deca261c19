"""What reduces lanes by shards (`shards`), as functions of LLVM IR text; one copy per module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loopgrad.codegen.kernel.nodes import Reduction
from loopgrad.codegen.math.compensated import added, balanced, merged
from loopgrad.codegen.targets.cpu.vector.context import memory_type
from loopgrad.codegen.targets.cpu.vector.lanes import row_width
from loopgrad.codegen.targets.cpu.vector.memory import itemsize
from loopgrad.codegen.targets.cpu.vector.outline import combine
from loopgrad.codegen.targets.cpu.vector.recipes import VectorOps, VectorScope
from loopgrad.codegen.targets.cpu.vector.vectors import SUFFIX, FunctionText, Vector, literal
from loopgrad.graph.identities import identity
from loopgrad.graph.primitives.shards import TOGETHER, numbers

Partial = tuple[Vector, ...]


def kept(r: Reduction) -> int:
    return numbers(r.kind)


def row_type(r: Reduction) -> str:
    """Of a row of a part."""
    return f"<{row_width(r)} x {memory_type(r.dtype)}>"


def nothing(r: Reduction) -> str:
    """A row of identities."""
    type = memory_type(r.dtype)
    return f"splat ({type} {literal(type, identity(r.kind, r.dtype))})"


def function_name(what: str, r: Reduction) -> str:
    return f"lg.shard.{what}.{r.kind}.{r.dtype.name}.{row_width(r)}"


def joined(r: Reduction, b: FunctionText, x: Partial, y: Partial) -> Partial:
    """Two partial results as one."""
    if kept(r) == 2:
        return merged(VectorOps(VectorScope(b)), *x, *y)
    (one,), (other,) = x, y
    return (combine(b, r.kind, r.dtype, one, other),)


def of_rows(r: Reduction, b: FunctionText, rows: list[Vector]) -> Vector:
    """What rows make, neighbours first."""
    return balanced(lambda p, q: combine(b, r.kind, r.dtype, p, q), rows)


def grown(r: Reduction, b: FunctionText, so_far: Partial, rows: list[Vector]) -> Partial:
    """With a few more rows."""
    x = of_rows(r, b, rows)
    if kept(r) == 2:
        total, rest = so_far
        return added(VectorOps(VectorScope(b)), total, rest, x)
    (before,) = so_far
    return (combine(b, r.kind, r.dtype, before, x),)


ROWS: Final = """
define internal void @NAME(ptr noalias %terms, i64 %count, ptr noalias %columns) #0 {
entry:
PLACES
  %whole = and i64 %count, -TOGETHER
  %any = icmp sgt i64 %whole, 0
  br i1 %any, label %rows, label %rest
rows:
  %at = phi i64 [ 0, %entry ], [ %after, %rows ]
BEFORE
  %q = getelementptr TYPE, ptr %terms, i64 %at
LOOP
  %after = add i64 %at, TOGETHER
  %more = icmp slt i64 %after, %whole
  br i1 %more, label %rows, label %rest
rest:
BETWEEN
  %left = sub i64 %count, %whole
  %none = icmp eq i64 %left, 0
  br i1 %none, label %done, label %ragged
ragged:
  %end = getelementptr TYPE, ptr %terms, i64 %whole
  %l0 = insertelement <WIDTH x i64> poison, i64 %left, i64 0
  %lefts = shufflevector <WIDTH x i64> %l0, <WIDTH x i64> poison, <WIDTH x i32> zeroinitializer
RAGGED
  br label %done
done:
AFTER
STORES
  ret void
}
"""


def rows_function(r: Reduction) -> str:
    """`void name(ptr terms, i64 count, ptr columns)`: adds rows of terms to the columns of a part. The last row may be
    ragged."""
    vt, n = row_type(r), kept(r)
    b = FunctionText(row_width(r), 1, "t")
    loop, whole = _grown_columns(b, r, "s", "%q", masked=False)
    ragged, last = _grown_columns(b, r, "g", "%end", masked=True)

    def phis(stem: str, *sources: tuple[str, list[str]]) -> str:
        each = [", ".join(f"[ {names[k]}, %{label} ]" for label, names in sources) for k in range(n)]
        return "\n".join([f"  %{stem}{k} = phi {vt} {text}" for k, text in enumerate(each)])

    def of_each(*lines: str) -> str:
        return "\n".join([f"  {line.format(k=k, vt=vt)}" for line in lines for k in range(n)])

    before, ends = [f"%b{k}" for k in range(n)], [f"%g{k}" for k in range(n)]
    texts = {
        "PLACES": of_each("%c{k} = getelementptr {vt}, ptr %columns, i64 {k}", "%b{k} = load {vt}, ptr %c{k}"),
        "BEFORE": phis("s", ("entry", before), ("rows", whole)),
        "BETWEEN": phis("g", ("entry", before), ("rows", whole)),
        "AFTER": phis("f", ("rest", ends), ("ragged", last)),
        "STORES": of_each("store {vt} %f{k}, ptr %c{k}"),
        "LOOP": loop,
        "RAGGED": ragged,
        "NAME": function_name("rows", r),
        "TYPE": memory_type(r.dtype),
        "TOGETHER": str(TOGETHER * row_width(r)),
        "WIDTH": str(row_width(r)),
    }
    text = ROWS
    for name, found in texts.items():
        text = text.replace(name, found)
    return text


def _grown_columns(b: FunctionText, r: Reduction, stem: str, base: str, masked: bool) -> tuple[str, list[str]]:
    """The columns with rows from `base` on, of which only `%lefts` elements are there where `masked`."""
    type, width, vt = memory_type(r.dtype), row_width(r), row_type(r)
    rows = []
    for k in range(TOGETHER):
        at, aligned = b.scalar("ptr", f"getelementptr {vt}, ptr {base}, i64 {k}").name, f"align {itemsize(type)}"
        read = f"load {vt}, ptr {at}, {aligned}"
        if masked:
            places = "<" + ", ".join(f"i64 {k * width + j}" for j in range(width)) + ">"
            inside = b.scalar(f"<{width} x i1>", f"icmp slt <{width} x i64> {places}, %lefts").name
            given = f"ptr {aligned} {at}, <{width} x i1> {inside}, {vt} {nothing(r)}"
            read = f"call {vt} @llvm.masked.load.v{width}{SUFFIX.get(type, type)}.p0({given})"
        rows.append(Vector(type, (b.scalar(vt, read).name,), False))
    so_far = tuple([Vector(type, (f"%{stem}{k}",), False) for k in range(kept(r))])
    found = [v.names[0] for v in grown(r, b, so_far, rows)]
    text = "\n".join(b.lines)
    b.lines.clear()
    b.memo.clear()
    return text, found


def close_function(r: Reduction) -> str:
    """`void name(ptr columns, ptr out, i64 pitch)`: out[0] becomes what the columns make, out[pitch] what that lost."""
    type, vt = memory_type(r.dtype), row_type(r)
    b, found = FunctionText(row_width(r), 1, "c"), []
    for k in range(kept(r)):
        at = b.scalar("ptr", f"getelementptr {vt}, ptr %columns, i64 {k}").name
        found.append(Vector(type, (b.scalar(vt, f"load {vt}, ptr {at}").name,), False))
    for k, value in enumerate(b.horizontal(found, lambda b, x, y: joined(r, b, x, y))):
        at = b.scalar("ptr", f"getelementptr {type}, ptr %out, i64 %pitch").name if k else "%out"
        b.line(f"store {type} {value.name}, ptr {at}")
    body = "\n".join(b.lines)
    arguments = "ptr noalias %columns, ptr noalias %out, i64 %pitch"
    return f"\ndefine internal void @{function_name('close', r)}({arguments}) #0 {{\nentry:\n{body}\n  ret void\n}}\n"


def parts_function(r: Reduction) -> str:
    """`void name(ptr terms, i64 count, i64 part, ptr out, i64 pitch)`: out[p] becomes what part p of the terms makes,
    and out[pitch + p] what that lost."""
    type, vt = memory_type(r.dtype), row_type(r)
    stores = "\n".join([
        f"  %s{k} = getelementptr {vt}, ptr %columns, i64 {k}\n  store {vt} {nothing(r)}, ptr %s{k}"
        for k in range(kept(r))
    ])  # fmt: skip
    arguments = "ptr noalias %terms, i64 %count, i64 %part, ptr noalias %out, i64 %pitch"
    return f"""
define internal void @{function_name("parts", r)}({arguments}) #0 {{
entry:
  %columns = alloca [{kept(r)} x {vt}], align 64
  br label %next
next:
  %first = phi i64 [ 0, %entry ], [ %second, %next ]
  %to = phi ptr [ %out, %entry ], [ %beside, %next ]
  %left = sub i64 %count, %first
  %size = call i64 @llvm.smin.i64(i64 %left, i64 %part)
  %from = getelementptr {type}, ptr %terms, i64 %first
{stores}
  call void @{function_name("rows", r)}(ptr %from, i64 %size, ptr %columns)
  call void @{function_name("close", r)}(ptr %columns, ptr %to, i64 %pitch)
  %beside = getelementptr {type}, ptr %to, i64 1
  %second = add i64 %first, %part
  %again = icmp slt i64 %second, %count
  br i1 %again, label %next, label %done
done:
  ret void
}}
"""


def merge_function(r: Reduction) -> str:
    """`void name(ptr p, i64 count, i64 step, i64 pitch)`: p[0] becomes what p[0], p[step], p[2 step] ... below `count`
    make, neighbours first; their rests are `pitch` behind them."""
    type, b = memory_type(r.dtype), FunctionText(1, 1, "m")

    def places(index: str) -> list[str]:
        found = [b.scalar("ptr", f"getelementptr {type}, ptr %p, i64 {index}").name]
        if kept(r) == 2:
            found.append(b.scalar("ptr", f"getelementptr {type}, ptr {found[0]}, i64 %pitch").name)
        return found

    left, right = places("%i"), places("%j")
    x, y = (tuple([b.scalar(type, f"load {type}, ptr {p}") for p in side]) for side in (left, right))
    for value, place in zip(joined(r, b, x, y), left, strict=True):
        b.line(f"store {type} {value.name}, ptr {place}")
    body = "\n".join(b.lines)
    return f"""
define internal void @{function_name("merge", r)}(ptr %p, i64 %count, i64 %step, i64 %pitch) {{
entry:
  br label %level
level:
  %s = phi i64 [ %step, %entry ], [ %twice, %up ]
  %some = icmp slt i64 %s, %count
  br i1 %some, label %pair, label %done
pair:
  %i = phi i64 [ 0, %level ], [ %ahead, %pair ]
  %j = add i64 %i, %s
{body}
  %ahead = add i64 %j, %s
  %far = add i64 %ahead, %s
  %go = icmp slt i64 %far, %count
  br i1 %go, label %pair, label %up
up:
  %twice = shl i64 %s, 1
  br label %level
done:
  ret void
}}
"""


FUNCTIONS: Final[dict[str, Callable[[Reduction], str]]] = {
    "rows": rows_function,
    "close": close_function,
    "parts": parts_function,
    "merge": merge_function,
}
