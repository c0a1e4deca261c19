"""Making a failing program small, and writing it down as a script that needs nothing of the tests.

Delta debugging on the description: parts are left out or replaced by what is inside them, sizes are reduced, and
what still fails in the same way is kept. A change that makes no program (an integer where a float belongs) fails in
the oracle and is passed over.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import loopgrad as lg
from loop_generator.check import WAYS, Mismatch, Subject
from loop_generator.description import FLOATS, INTEGERS, Block, Program, Tree, blocks
from loop_generator.source import text_of

_PLAIN = ((), None, "tuple")
_CONSTANTS: tuple[Tree, ...] = (("c", 0.5), ("c", 1), ("c", 0), ("is", True), ("x",), ("n",))
_STATEMENTS = ("set", "put", "update", "swap", "for", "while", "scan", "if", "switch", "again")


def failure(program: Program, way: str, device: str) -> str | None:
    """How a program fails: in a number, in a shape, or by an error and where that was raised. None where it doesn't."""
    try:
        subject = Subject(program)
    except Exception:  # also descriptions that a change has made senseless
        return None
    try:
        with lg.default_device(device):
            WAYS[way](subject)
    except Mismatch as error:
        return "shape" if "shape" in str(error) else "number"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {frame.name} of {frame.filename}"
    return None


def size(program: Program) -> int:
    """What a change must make less."""
    parts = (program.variables, program.accumulators, program.body, program.loss, program.dtypes, program.variants)
    numbers = 3 * program.lanes + 5 * len(program.shape) + program.table + program.cells + 4 * program.width
    return len(repr(parts)) + numbers + {"single": 0, "lanes": 20, "mapped": 40}[program.style]


def minimised(program: Program, way: str, device: str, seconds: float) -> Program:
    """The smallest failing program found in the time."""
    wanted, end = failure(program, way, device), time.monotonic() + seconds
    progress = wanted is not None
    while progress:
        progress = False
        for candidate in changes(program):
            if time.monotonic() > end:
                return program
            if size(candidate) < size(program) and failure(candidate, way, device) == wanted:
                program, progress = candidate, True
                break
    return program


def changes(program: Program) -> Iterator[Program]:
    """Smaller programs, the bold ones first."""
    if len(program.variants) > 1:
        for variant in program.variants:
            yield replace(program, variants=(variant,))
    for body in smaller_blocks(program.body):
        yield replace(program, body=body)
    for i in range(len(program.loss)):
        yield replace(program, loss=program.loss[:i] + program.loss[i + 1 :])
    yield from smaller_sizes(program)
    for i in range(len(program.accumulators)):
        yield replace(program, accumulators=program.accumulators[:i] + program.accumulators[i + 1 :])
    for i, variable in enumerate(program.variables):
        yield replace(program, variables=program.variables[:i] + program.variables[i + 1 :])
        for init in smaller_trees(variable.init):
            changed = variable._replace(init=init)
            yield replace(program, variables=(*program.variables[:i], changed, *program.variables[i + 1 :]))
    for body in smaller_trees(program.body):
        yield replace(program, body=body)
    for loss in smaller_trees(program.loss):
        yield replace(program, loss=loss)


def smaller_blocks(block: Block) -> Iterator[Block]:
    """Without some statements, or with what is inside one in its place, at any depth."""
    count = len(block)
    step = count
    while step > 1:
        step = (step + 1) // 2
        for start in range(0, count, step):
            if step < count:
                yield block[:start] + block[start + step :]
    if count == 1:
        yield ()
    for i, statement in enumerate(block):
        for inner in blocks(statement):
            yield block[:i] + inner + block[i + 1 :]
    for i, statement in enumerate(block):
        for position, part in enumerate(statement):
            if is_block(part):
                nested: Iterator[Any] = smaller_blocks(part)
            elif statement[0] == "switch" and position == 3:
                nested = smaller_branches(part)
            else:
                continue
            for changed in nested:
                yield (*block[:i], (*statement[:position], changed, *statement[position + 1 :]), *block[i + 1 :])


def smaller_branches(branches: tuple[Block, ...]) -> Iterator[tuple[Block, ...]]:
    if len(branches) > 1:
        for i in range(len(branches)):
            yield branches[:i] + branches[i + 1 :]
    for i, branch in enumerate(branches):
        for changed in smaller_blocks(branch):
            yield (*branches[:i], changed, *branches[i + 1 :])


def is_block(part: Any) -> bool:
    return isinstance(part, tuple) and bool(part) and all(
        isinstance(s, tuple) and s and isinstance(s[0], str) and s[0] in _STATEMENTS for s in part
    )  # fmt: skip


def smaller_trees(tree: Any) -> Iterator[Any]:
    """An expression inside replaced by one inside it, or by a constant; a loop without its options."""
    if not isinstance(tree, tuple) or not tree:
        return
    if len(tree) == 3 and isinstance(tree[0], tuple) and tree[2] in ("tuple", "dict", "nested"):
        yield _PLAIN
        return
    if isinstance(tree[0], str) and tree[0] not in _STATEMENTS and tree[0] not in ("sum", "product", "read"):
        yield from [part for part in tree if isinstance(part, tuple)]
        yield from _CONSTANTS
    for i, part in enumerate(tree):
        for changed in smaller_trees(part):
            yield (*tree[:i], changed, *tree[i + 1 :])


def smaller_sizes(program: Program) -> Iterator[Program]:
    yield replace(program, style="single", shape=())
    yield replace(program, style="lanes")
    for lanes in (1, 2, 3, program.lanes // 2, program.lanes - 1):
        if lanes >= 1:
            yield replace(program, shape=(lanes,))
    for name in ("table", "cells", "width"):
        for extent in (1, 2, 3, getattr(program, name) // 2):
            if extent >= 1:
                yield replace(program, **{name: extent})
    yield replace(program, dtypes=("int64",) * 4)
    yield replace(program, dtypes=(program.dtypes[0], "int64", "int64", "int64"))


# ---- a script

_CALLS = {
    "values": "print(program(*floats, *integers))",
    "pushed": "print(lg.compile(lambda f, d: lg.jvp(loss, tuple(f), tuple(d)))(floats, along))",
    "forward_over_reverse": "print(lg.compile(lambda f, d: lg.hvp(loss, tuple(f), tuple(d)))(floats, along))",
    "second_in_parts": "for product in lg.hvp(loss, tuple(floats), tuple(along)):\n    print(np.asarray(product))",
    "reverse_over_reverse": "slope = lambda *f: sum(lg.sum(g * d) for g, d in zip(lg.grad(loss, every)(*f), along))\n"
    "print(lg.compile(lg.grad(slope, every))(*floats))",
    "batched": "stack = lambda values: [np.stack([v, v]) for v in values]\n"
    "print(lg.vmap(lg.value_and_grad(lambda *a: program(*a)[0], every))(*stack(floats), *stack(integers)))",
    "in_parts": "(value, found), slopes = lg.value_and_grad(program, every, has_aux=True)(*floats, *integers)\n"
    "for part in (value, *found.values(), *slopes):\n    print(np.asarray(part))",
    "afterwards": "floats = [lg.asarray(f) for f in floats]\nprint(lg.gradients(loss(*floats), floats))",
    "eager": "print(lg.value_and_grad(loss, every)(*floats))",
    "replayed": "function = lg.compile(lg.value_and_grad(lambda *a: program(*a)[0], every))\n"
    "print(function.capture(*map(lg.asarray, (*floats, *integers))).replay(*floats, *integers))",
}


def script(program: Program, way: str, device: str, error: str) -> str:
    """A program of its own that shows the failure."""
    subject = Subject(program)
    inputs, wanted = subject.inputs[0], subject.wanted[0]
    literal = lambda a: f"np.array({a.tolist()!r}, dtype={a.dtype.name!r})"
    listed = lambda arrays: "[\n" + "".join([f"    {literal(a)},\n" for a in arrays]) + "]"
    second = way in ("forward_over_reverse", "second_in_parts", "reverse_over_reverse")
    shown = wanted.curvature if second else wanted.gradient
    expectation = [f"loss {wanted.loss!r}", f"derivative along {wanted.slope!r}"]
    what = "Hessian times along" if second else "gradient"
    expectation += [f"{what} of {name}: {array.tolist()}" for name, array in zip(FLOATS, shown, strict=True)]
    if way == "values":
        expectation = [f"{name}: {np.asarray(value).tolist()}" for name, value in wanted.finals.items()]
    lines = [
        f"# seed {program.seed}, {way}, {device}: {error.splitlines()[0][:200] if error else ''}", text_of(program), "",
        f"device = lg.default_device({device!r})  # held: a context that nobody holds ends at once",
        "device.__enter__()",
        f"floats = {listed(inputs.floats())}", f"integers = {listed([inputs.arrays[n] for n in INTEGERS])}",
        f"along = {listed(inputs.along())}", f"every = {tuple(range(len(FLOATS)))}",
        "loss = lambda *f: program(*f, *integers)[0]",
        _CALLS.get(way, "print(lg.compile(lg.value_and_grad(loss, every))(*floats))"), "# expected:",
        *[f"#   {line}" for line in expectation],
    ]  # fmt: skip
    return "\n".join(lines)


def report(program: Program, way: str, device: str, error: str, seconds: float) -> str:
    """The script of a failing program, made smaller for some seconds."""
    small = minimised(program, way, device, seconds) if seconds else program
    return f"{script(small, way, device, error)}\n# {small!r}\n"
