"""Lines that come often: Python code of their own, which takes a line's inputs and numbers and compares what must be as
it was.

    a * 2.5 + b          def taken(p0, device):
                             if p0.known is not None or len(p0.note) != 4: return None
                             p1, p2 = p0.note[1]
                             p3, p4 = p1.note[1]
                             if p1.known is not None or getrefcount(p1) != 3: return None
                             if p2 is p3 or p2.committed or p3.committed: return None
                             b0, b1 = p3.buffer, p2.buffer
                             if b0.device != device or b1.device != device: return None
                             return [b0, b1], (p4,)

What `lazy.tensor.repeated_lines` does for any line by walking over lists of places takes three times as long. Nothing
but numbers of places gets into the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, Final

from loopgrad.graph.expressions import ONCE, Places, open_numbers
from loopgrad.graph.nodes import NO_ATTRS, NODE, Noted
from loopgrad.graph.structure import Numbers
from loopgrad.graph.types import TensorType, float64
from loopgrad.runtime.buffers import Buffer

LineCode = Callable[[Noted, str], tuple[list[Buffer], Numbers] | None]
"""The inputs and the numbers of a line that ends in a value, on a device; None where anything isn't as it was."""

MOST_PAIRS: Final = 3  # values that are compared each with each

_NAMES: Final = {"getrefcount": getrefcount, "open_numbers": open_numbers}


def line_code(
    places: Places, firsts: Sequence[int], counts: Sequence[int | None], inputs: Sequence[int], numbers: Sequence[int]
) -> LineCode:
    """The code of a line. `firsts`: for each of the values on the way and then the leaves, as `places` lists them,
    where the same value is first; `counts`: of references to each of those on the way, where these matter. `inputs` and
    `numbers`: their places among the parts."""
    inner, leaves = places.inner_places, places.leaf_places
    text = ["def taken(p0, device):", f" if p0.known is not None or len(p0.note) != {NODE}: return None"]
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
    given, constants = [f"b{part}, " for part in inputs], [f"p{part}, " for part in numbers]
    text.append(f" return [{''.join(given)}], ({''.join(constants)})")
    made: LineCode = _made("\n".join(text))
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


def _made(text: str) -> Any:
    made: dict[str, Any] = {}
    exec(compile(text, "<line>", "exec"), {**_NAMES}, made)
    return made["taken"]


def _named() -> int:
    """What `getrefcount` gives in such code for a value that one note reads and that has one name."""
    inner = Noted(TensorType((), float64), "alias", (), NO_ATTRS, None)
    value = Noted(TensorType((), float64), "alias", (inner,), NO_ATTRS, None)
    del inner
    counted: int = _made("def taken(p0):\n p1, = p0.note[1]\n if p1.known is None: return getrefcount(p1)")(value)
    return counted


NAMED: Final = _named()
