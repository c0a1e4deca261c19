"""Lines that come often: Python code of their own, which takes a line's inputs and numbers, compares what must be as
it was, and runs its program.

    a * 2.5 + b          def taken(t, p0):
                             if row.expression is not expression: row.begin(expression)
                             elif (count := row.count + 1) < row.next: row.count = count
                             elif (found := batched(t, p0)) is not None: return found
                             if current() is not config or p0.known is not None or len(p0.note) != 4: return None
                             p1, p2 = p0.note[1]
                             p3, p4 = p1.note[1]
                             if p1.known is not None or getrefcount(p1) != 3: return None
                             if p2 is p3 or p2.committed or p3.committed: return None
                             b0, b1 = p3.buffer, p2.buffer
                             if b0.device != device or b1.device != device: return None
                             versions = versions_of()
                             if versions is None: return None
                             program = versions.exact.get((p4,))
                             if program is None: return otherwise(t, p0, [b0, b1], (p4,))
                             versions.used = True
                             return run(t, p0, program, [b0, b1], result)

What `lazy.tensor.repeated_lines` does for any line by walking over lists of places takes three times as long. Nothing
but numbers of places gets into the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from sys import getrefcount
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from loopgrad.graph.expressions import ONCE, Places, open_numbers
from loopgrad.graph.nodes import NO_ATTRS, NODE, Noted
from loopgrad.graph.structure import Numbers
from loopgrad.graph.types import TensorType, float64
from loopgrad.runtime.buffers import Buffer

LineCode = Callable[[Any, Noted], Buffer | None]
"""The elements of a tensor with a value in which a line ends; None where anything isn't as it was."""


class Running(NamedTuple):
    """What the code of a line does with what it takes. `row` counts how often its `expression` comes in a row, until
    it is worth a look whether more are computed with it (`batched`: `lazy.tensor.alike_tensors`). `config`: the
    settings in force, by what gives the `current` ones; `device`: in full. `versions_of` gives the session's programs,
    or None; where there is none for the numbers, the elements come `otherwise`. `run`: a program's only output, as a
    leaf with the expression `result`."""

    row: Any
    expression: Any
    batched: LineCode
    config: Any
    current: Callable[[], Any]
    device: str
    versions_of: Callable[[], Any]
    run: Callable[[Any, Noted, Any, list[Buffer], Any], Buffer | None]
    otherwise: Callable[[Any, Noted, list[Buffer], Numbers], Buffer | None]
    result: Any


MOST_PAIRS: Final = 3  # values that are compared each with each

_IN_A_ROW: Final = (
    " if row.expression is not expression: row.begin(expression)",
    " elif (count := row.count + 1) < row.next: row.count = count",
    " elif (found := batched(t, p0)) is not None: return found",
)
_NAMES: Final = {"getrefcount": getrefcount, "open_numbers": open_numbers}


def line_code(
    places: Places, firsts: Sequence[int], counts: Sequence[int | None], inputs: Sequence[int], numbers: Sequence[int],
    running: Running,
) -> LineCode:  # fmt: skip
    """The code of a line. `firsts`: for each of the values on the way and then the leaves, as `places` lists them,
    where the same value is first; `counts`: of references to each of those on the way, where these matter. `inputs` and
    `numbers`: their places among the parts."""
    inner, leaves = places.inner_places, places.leaf_places
    known = f"current() is not config or p0.known is not None or len(p0.note) != {NODE}"
    text = ["def taken(t, p0):", *_IN_A_ROW, f" if {known}: return None"]
    for part, operands, open in places.steps:
        if operands:
            text.append(f" {_listed('p', operands)} = p{part}.note[1]")
        if open:
            text.append(f" {_listed('p', range(operands.stop, operands.stop + open))} = open_numbers(p{part})")
    differs = [f"p{part}.known is not None" for part in inner]
    named = zip(inner, _counts(firsts, counts), strict=True)
    differs += [f"getrefcount(p{part}) != {n}" for part, n in named if n is not None]
    both = [*inner, *leaves]
    differs += [f"p{both[i]} is not p{both[first]}" for i, first in enumerate(firsts) if first != i]
    values, read = (
        [both[i] for i in kind if firsts[i] == i] for kind in (range(len(inner)), range(len(inner), len(both)))
    )
    differs += [*_same(values), *_same(read), *[f"p{part}.committed" for part in read]]
    if differs:
        text.append(f" if {' or '.join(differs)}: return None")
    if inputs:
        text.append(f" {_listed('b', inputs)} = {''.join([f'p{part}.buffer, ' for part in inputs])}")
        text.append(f" if {' or '.join([f'b{part}.device != device' for part in inputs])}: return None")
    given, constants = "".join([f"b{part}, " for part in inputs]), "".join([f"p{part}, " for part in numbers])
    text += [" versions = versions_of()", " if versions is None: return None"]
    text.append(f" program = versions.exact.get(({constants}))")
    text.append(f" if program is None: return otherwise(t, p0, [{given}], ({constants}))")
    text += [" versions.used = True", f" return run(t, p0, program, [{given}], result)"]
    made: LineCode = _made("\n".join(text), running._asdict())
    return made


def _counts(firsts: Sequence[int], counts: Sequence[int | None]) -> list[int | None]:
    """What `getrefcount` gives in the code: each value on the way has a name for each time that it is read, where it
    has two places in lists otherwise."""
    inner = [*firsts[: len(counts)]]
    more = [inner.count(first) - 1 for first in inner]
    return [None if n is None else NAMED + n - ONCE - m for n, m in zip(counts, more, strict=True)]


def _same(parts: Sequence[int]) -> list[str]:
    """Whether two of these values are the same, as conditions."""
    if len(parts) > MOST_PAIRS:
        return [f"len({{{_listed('p', parts)}}}) != {len(parts)}"]
    return [f"p{a} is p{b}" for i, a in enumerate(parts) for b in parts[:i]]


def _listed(letter: str, parts: Sequence[int]) -> str:
    return "".join([f"{letter}{part}, " for part in parts])


def _made(text: str, names: Mapping[str, Any] = MappingProxyType({})) -> Any:
    made: dict[str, Any] = {}
    exec(compile(text, "<line>", "exec"), {**_NAMES, **names}, made)
    return made["taken"]


def _named() -> int:
    """What `getrefcount` gives in such code for a value that one note reads and that has one name."""
    inner = Noted(TensorType((), float64), "alias", (), NO_ATTRS, None)
    value = Noted(TensorType((), float64), "alias", (inner,), NO_ATTRS, None)
    del inner
    counted: int = _made("def taken(p0):\n p1, = p0.note[1]\n if p1.known is None: return getrefcount(p1)")(value)
    return counted


NAMED: Final = _named()
