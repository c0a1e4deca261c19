"""One random statement of a NumPy script at a time.

A statement is a line of text in which `xp` is the array module; it is tried with NumPy on the script's variables as
they are then, and left out where NumPy refuses it, so shapes need no bookkeeping.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from tests.programs.numpy_scripts.arguments import (
    BEYOND,
    Arrays,
    basic_index,
    index,
    name_of,
    operand,
    pick,
    value_for,
    written_to,
)
from tests.programs.numpy_scripts.calls import CALLS, Statement
from tests.programs.numpy_scripts.functions import FUNCTIONS

OPERATORS: Final = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "<", "<=", "==", "!=", ">", "@")
NUMPYS_OWN: Final = 0.12  # the share of calls that are of NumPy's own functions


def _operator(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    op = pick(rng, ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "<", "<=", "==", "!=", ">", "@"))
    left, right = name_of(rng, arrays), operand(rng, arrays)
    if rng.random() < 0.3:
        left, right = right, left
    if rng.random() < 0.9:
        return f"{new} = {left} {op} {right}"
    return f"{new} = {pick(rng, ('-', '~', '+', 'abs'))}({name_of(rng, arrays)})"


def _view(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name = name_of(rng, arrays)
    array = arrays[name]
    forms = [f"{name}[{basic_index(rng, array)}]"] * 4
    forms += [f"{name}.T", f"{name}.ravel()", f"xp.flip({name})", f"{name}.reshape(-1)", f"xp.asarray({name})", name]
    forms += [f"xp.split({name}, 1)[0]", f"xp.expand_dims({name}, 0)", f"list({name})[0]", f"xp.rot90({name})"]
    return f"{new} = {pick(rng, forms)}"


def _subscript(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name = name_of(rng, arrays)
    return f"{new} = {name}[{index(rng, arrays, arrays[name])}]"


def _write(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name = written_to(rng, arrays)
    array = arrays[name]
    place = f"{name}[{index(rng, arrays, array)}]"
    if rng.random() < 0.2:
        place = f"{name}[{basic_index(rng, array)}]{pick(rng, ('[...]', '[0]', '.T[...]', '[::-1][0]'))}"
    return f"{place} = {value_for(rng, arrays, array)}"


def _write_in_place(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name = written_to(rng, arrays)
    array = arrays[name]
    value = value_for(rng, arrays, array)
    if rng.random() < 0.15:
        function = pick(rng, ("add", "multiply", "maximum", "minimum", "subtract"))
        return f"np.{function}({name}, {value}, out={name})"
    if rng.random() < 0.1:
        return f"{name}.sort(axis={-1 if array.ndim else 0})"
    op = pick(rng, ("+=", "-=", "*=", "+=", "/=", "//=", "%=", "**=", "&=", "|=", "^=", "<<=", ">>="))
    place = f"[{index(rng, arrays, array)}]" if rng.random() < 0.4 else ""
    return f"{name}{place} {op} {value}"


def _flow(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    """Python's own control flow, on values and on Python numbers."""
    name, other, target = name_of(rng, arrays), name_of(rng, arrays), written_to(rng, arrays)
    op, sign = pick(rng, ("+", "*", "-")), pick(rng, (">", "<", "=="))
    value = value_for(rng, arrays, arrays[target])
    return pick(
        rng,
        (
            f"{new} = {name} {op} {other} if float({other}.sum()) {sign} 0 else {name} {op} {name}",
            f"{new} = {name}[:1] if bool(({other} {sign} 1).any()) else {name}",
            f"{new} = {name} * int(xp.argmax({other}))",
            f"{new} = xp.stack([row {op} {other} for row in {name}])",
            f"{new} = sum([{name} {op} k for k in range(3)])",
            f"{new} = xp.zeros({name}.shape[:1] + (len({other}),))",
            f"for k in range(len({target})): {target}[k] {op}= {value}",
            f"for row in {target}: row {op}= {value}",
            f"if float({name}.max()) {sign} 1: {target}[...] = {value}",
            f"{new} = {name}[int(xp.argmin({name}.ravel())) % len({name})]",
        ),
    )


def _overflow(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    """Whether a Python integer beside an array of integers is refused, as one that doesn't fit."""
    name, number = name_of(rng, arrays), pick(rng, BEYOND)
    call = pick(
        rng,
        (
            f"{name} {pick(rng, ('+', '-', '*', '//', '%', '&', '|', '^', '<', '==', '>='))} {number}",
            f"{number} {pick(rng, ('+', '-', '*', '//', '%', '&', '|', '^', '<', '==', '>='))} {name}",
            f"xp.maximum({name}, {number})",
            f"xp.clip({name}, {number}, None)",
            f"xp.full_like({name}, {number})",
            f"xp.where({name} > 0, {name}, {number})",
            f"xp.copy({name}).__iadd__({number})",
            f"xp.copy({name}).__setitem__(..., {number})",
            f"xp.asarray({number}, dtype={name}.dtype)",
        ),
    )
    return f"{new} = xp.asarray(overflows(lambda: {call}))"


STATEMENTS: Final[tuple[tuple[Statement, float], ...]] = (
    *CALLS,
    (_operator, 3),
    (_view, 2),
    (_subscript, 2),
    (_write, 3),
    (_write_in_place, 3),
    (_flow, 1),
    (_overflow, 0.6),
)
_WEIGHTS: Final = np.array([w for _, w in STATEMENTS]) / sum(w for _, w in STATEMENTS)
_CALL: Final = re.compile(r"xp\.(\w+)\((v\d+)")


def statement(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    """A line that may give the variable `new`, or write to one there is."""
    line = STATEMENTS[int(rng.choice(len(STATEMENTS), p=_WEIGHTS))][0](rng, arrays, new)
    call = _CALL.search(line)
    if call is not None and rng.random() < NUMPYS_OWN and call[1] not in FUNCTIONS["converting"]:
        return line[: call.start()] + "np." + line[call.start() + 3 :]
    return line


def overflows(call: Any) -> bool:
    """Whether a call raises OverflowError."""
    try:
        call()
    except OverflowError:
        return True
    return False
