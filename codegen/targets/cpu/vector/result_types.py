"""The types of values in LLVM IR text of our own, read from the lines that define them."""

from __future__ import annotations

import re
from typing import Final

FLAGS: Final = frozenset({
    "volatile", "atomic", "inbounds", "nuw", "nsw", "exact", "disjoint", "nneg", "tail", "notail",
    "fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc",
})  # fmt: skip
CASTS: Final = frozenset({
    "trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp", "ptrtoint", "inttoptr",
    "bitcast", "addrspacecast",
})  # fmt: skip
_SIMPLE: Final = re.compile(r" *(<\d+ x \w+>|\w+)(?:[ ,)]|$)")
BITS: Final = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}


def result_type(line: str) -> str:
    """The type of what `  %name = instruction` gives.

    >>> result_type("  %a = fcmp olt <8 x double> %x, %y")
    '<8 x i1>'
    >>> result_type("  %b = select <8 x i1> %a, <8 x double> %x, <8 x double> %y")
    '<8 x double>'
    """
    word, rest = _word(line.split(" = ", 1)[1])
    if word == "alloca":
        return "ptr"
    if word in CASTS:
        return _leading(rest.rsplit(" to ", 1)[1])
    if word in ("icmp", "fcmp"):
        rest = _word(rest)[1]  # the predicate
    type = _leading(rest)
    match word:
        case "icmp" | "fcmp":
            return _like(type, "i1")
        case "getelementptr" if "<" not in rest:
            return "ptr"
        case "getelementptr":
            return next((t for v in _operands(rest)[1:] if (t := _like(_leading(v), "ptr")) != "ptr"), "ptr")
        case "select":
            return _leading(_operands(rest)[1])
        case "extractelement":
            return _parts(type)[1]
        case "shufflevector":
            return f"<{_parts(_leading(_operands(rest)[2]))[0]} x {_parts(type)[1]}>"
        case "extractvalue":
            which = int(_operands(rest)[1])
            return _operands(type[1:-1])[which] if type[0] == "{" else type[1:-1].split(" x ", 1)[1]
        case "atomicrmw":
            return _leading(_operands(rest)[1])
    return type


def size_of(type: str) -> int | None:
    """Bytes of a scalar or vector in memory; None for other types."""
    if type[0] == "<":
        count, element = _parts(type)
        return max(int(count) * _bits(element) // 8, 1)
    return None if type[0] in "{[" else max(_bits(type) // 8, 1)


def _bits(type: str) -> int:
    return BITS.get(type) or int(type[1:])


def _like(type: str, element: str) -> str:
    """`element`, as often as the type has elements."""
    return f"<{_parts(type)[0]} x {element}>" if type[0] == "<" else element


def _parts(vector: str) -> tuple[str, str]:
    count, element = vector[1:-1].split(" x ", 1)
    return count, element


def _word(text: str) -> tuple[str, str]:
    """The first word, and what follows it and its flags."""
    word, _, rest = text.lstrip().partition(" ")
    while rest.split(" ", 1)[0] in FLAGS:
        rest = rest.partition(" ")[2]
    return word, rest


def _leading(text: str) -> str:
    """The type that the text begins with."""
    simple = _SIMPLE.match(text)
    if simple is not None:
        return simple[1]
    text = text.lstrip()
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "<{[(") - (c in ">}])")
        if depth == 0 and (c in ">}]" or (i and c in " ,")):
            return text[: i + 1] if c in ">}]" else text[:i]
    return text


def _operands(text: str) -> list[str]:
    """What top-level commas part."""
    found, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "<{[(") - (c in ">}])")
        if c == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    return [*found, text[start:].strip()]
