"""Kernels of a GPU target, described so that a harness can launch them: the interface of codegen.targets.gpu
with the numbers of each kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from loopgrad.codegen.codec import encode
from loopgrad.codegen.kernel.nodes import ErrorSite, Kernel, StackSlot
from loopgrad.codegen.objects.objects import Objects
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import MatmulStep, Program
from loopgrad.codegen.steps import all_steps, epilogue_slots
from loopgrad.codegen.targets.gpu.compile import ImageBuilder, compile_for
from loopgrad.codegen.targets.gpu.interface import (
    ERROR_CODE,
    ERROR_DETAIL,
    ERROR_LANE,
    MOST_ROWS,
    NEEDED,
    OVERFLOW_LANE,
    TRUNCATED,
    KernelInterface,
    control_bytes,
)
from loopgrad.codegen.targets.gpu.record import Module, ProgramRecord
from loopgrad.graph.nodes import Location

WORD: Final = 8
WORDS: Final = {
    "table": "address of the table",
    "across": "i64",
    "along": "i64",
    "first": "i64",
    "end": "i64",
    "lanes": "i64",
}
RULE: Final = "unit g does the items g * across + p * along for p in [first, end), those below lanes"
EXAMPLE_GROUPS: Final = 1024
TABLE_END: Final = ("address of control block", "address of void word", "zero", "zero", "invocations of the launch")


class _Listed:
    """An image that keeps the kernels it is given."""

    def __init__(self, image: ImageBuilder) -> None:
        self._image = image
        self.kernels: list[Kernel] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._image, name)

    def add(self, kernel: Kernel, *more: Any, **named: Any) -> None:
        self.kernels.append(kernel)
        self._image.add(kernel, *more, **named)


Details = Callable[[bytes], Mapping[str, Mapping[str, Any]]]


def describe_gpu(
    program: Program, options: Options, image: ImageBuilder, target: str, passing: str, details: Details
) -> Objects:
    """`details`: of the code's kernels by their entries, what else its format says of them."""
    listed = _Listed(image)
    artifact = compile_for(program, options, listed)
    record, code = artifact.program, artifact.code
    own = {kernel.module: kernel for kernel in record.kernels}
    places = dict.fromkeys((m.offset, m.size) for m in record.modules)
    names = {place: "code" if len(places) == 1 else f"{i:02d}" for i, place in enumerate(places)}
    images = {name: code[offset : offset + size] for (offset, size), name in names.items()}
    shapes = support_shapes(record)
    more = details(code)
    kernels = []
    for i, (module, kernel) in enumerate(zip(record.modules, listed.kernels, strict=True)):
        described = _kernel(module, kernel, own.get(i), passing, *shapes.get(i, (len(kernel.params), 0)))
        described |= {"target": target, "code": names[module.offset, module.size], "number": i}
        kernels.append({**described, **more.get(module.entry, {})})
    rest = encode(ProgramRecord, record)
    del rest["modules"], rest["residuals"]
    rest["notes"] = [*rest["notes"], *getattr(image, "notes", ())]  # of the linker, where the target has one
    return Objects(images, artifact.constants, tuple(kernels), {"target": target, **rest})


def support_shapes(record: ProgramRecord) -> dict[int, tuple[int, int]]:
    """Support kernels by number -> arrays of a launch, and the tiles of one, 0 where lanes are its items. Those of
    copies and fills aren't listed: they take their params, and do lanes."""
    found: dict[int, tuple[int, int]] = {}
    for kernel in record.kernels:
        for dispatch in (*kernel.before, *kernel.after):
            found[dispatch.module] = (len(dispatch.arrays), dispatch.tiles)
    for step in all_steps(record.steps):
        if isinstance(step, MatmulStep) and step.by is not None:
            launch = record.support[step.by]
            arrays = (step.left, step.right, step.out, *epilogue_slots(step))
            found[launch.module] = (len(arrays), launch.tiles)
    return found


def _kernel(
    module: Module, kernel: Kernel, own: KernelInterface | None, passing: str, arrays: int, tiles: int
) -> dict[str, Any]:
    """`own`: the record of a kernel of the program; a support kernel has none, but takes so many `arrays` (its
    params, then those that it leaves partial results in) and may do `tiles`."""
    stacks = [] if own is None else own.stacks
    scratch = [] if own is None else own.scratch[: own.own_scratch]
    params = arrays if own is None else len(kernel.params)
    return {
        "kernel": module.name,
        "support": own is None,
        "entry": module.entry,
        "arguments": [
            {"name": name, "offset": WORD * i, "bytes": WORD, "kind": kind}
            for i, (name, kind) in enumerate(WORDS.items())
        ],
        "passing": passing,
        "params": [
            {"dtype": p.dtype.name, "elements": p.size, "itemsize": p.dtype.itemsize, "access": p.access}
            for p in kernel.params
        ],
        "table": table(params, scratch, stacks),
        "launch": launch(module, own, tiles),
        "workgroup_memory": module.shared,
        "stacks": [_stack(s, stack) for s, stack in enumerate(stacks)],
        "control": control(len(stacks)),
        "checks": [] if own is None else encode(tuple[ErrorSite, ...], own.errors),
    }


def table(params: int, scratch: Sequence[int], stacks: Sequence[Any]) -> list[dict[str, Any]]:
    """The u64 words that `table` points at."""
    rows: list[dict[str, Any]] = [{"kind": "address of param", "param": i} for i in range(params)]
    rows += [{"kind": "address of scratch", "scratch": i, "bytes": size} for i, size in enumerate(scratch)]
    rows += [{"kind": kind} for kind in TABLE_END]
    for s in range(len(stacks)):
        rows += [{"kind": "address of stack", "stack": s}, {"kind": "rows of stack", "stack": s}]
    return [{"offset": WORD * i, **row} for i, row in enumerate(rows)]


def _stack(number: int, stack: StackSlot) -> dict[str, Any]:
    return {
        "name": stack.name,
        "itemsize": stack.itemsize,
        "layout": "[row][invocation], as many invocations to a row as the table says",
        "depth_param": stack.depth_param,
        "needed_offset": NEEDED + 4 * number,
        "loc": encode(Location | None, stack.loc),
    }


def control(stacks: int) -> dict[str, Any]:
    """The block of zeros that a launch starts with, and what it may hold afterwards."""
    fields = {
        "failed check": (ERROR_CODE, "u32", "0, or 1 + the position in checks"),
        "stopped": (TRUNCATED, "u32", "1 where the driver ended a loop before its end"),
        "lane of check": (ERROR_LANE, "u64", "a lane that failed the check"),
        "detail of check": (ERROR_DETAIL, "i64", "what the check adds, such as a number of steps"),
        "lane of overflow": (OVERFLOW_LANE, "u64", "a lane whose stack overflowed"),
    }
    rows = [{"name": n, "offset": offset, "type": type, "meaning": m} for n, (offset, type, m) in fields.items()]
    for s in range(stacks):
        meaning = f"0, or the rows that stack {s} needed where it had fewer: allocate them and launch again; "
        meaning += f"above {MOST_ROWS}: more than can be counted"
        rows.append({"name": f"needed rows of stack {s}", "offset": NEEDED + 4 * s, "type": "u32", "meaning": meaning})
    return {"bytes": control_bytes(stacks), "fields": rows}


def launch(module: Module, own: KernelInterface | None, tiles: int) -> dict[str, Any]:
    """Grid and block: what may be chosen, and one choice."""
    group: int = module.group
    items, what = ("tiles", "workgroup") if tiles or (own and own.tiles) else ("lanes", "invocation")
    found: dict[str, Any] = {"group": [group, 1, 1], "unit": what, "items": items, "rule": RULE}
    grid = f"any number of workgroups; across 1, along the number of units, end = ceil({items} / along)"
    if own is None:
        return {**found, "count": None, "grid": grid}
    lanes: int = own.tiles or own.lanes
    if own.copies:
        copies: int = own.copies
        stretch = -(-lanes // copies)
        grid = f"ceil({copies} / group) workgroups: {copies} invocations take a stretch of lanes each, in order"
        groups, words = -(-copies // group), {"across": stretch, "along": 1, "first": 0, "end": stretch}
    else:
        units = 1 if own.tiles else group
        groups = min(max(-(-lanes // units), 1), EXAMPLE_GROUPS)
        along = groups * units
        words = {"across": 1, "along": along, "first": 0, "end": -(-lanes // along)}
    example = {
        "groups": [groups, 1, 1],
        "invocations of the launch": groups * group,
        "words": {**words, "lanes": lanes},
    }
    return {**found, "count": lanes, "grid": grid, "example": example}
