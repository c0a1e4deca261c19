"""A module's text without the functions that many modules have, and those by themselves.

What kernels and entries call besides each other (the driver's reports and stacks, huge angles, trees of sums, Ctrl-C)
has one text in all programs, named @lg.* or @drv.*. LLVM takes longer for it than for a small kernel, so it is compiled
apart, once, and linked with each program that calls it. Functions that call each other stay together, and the
driver's. What names something else of its module stays there.

    define void @k0() { ... @lg.f ... }             define void @k0() ...        define void @lg.f() ... @lg.g ...
    define internal void @lg.f() { ... @lg.g ... }  declare void @lg.f()     ,   define void @lg.g() ...
    define internal void @lg.g() { ... }
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

FUNCTION: Final = re.compile(
    r"\ndefine internal (?P<head>[^@\n]*(?P<name>@(?:lg|drv)\.[\w.]+)\([^{]*?)\s*\{\n.*?\n\}(?=\n)", re.DOTALL
)
CONSTANT: Final = re.compile(r"\n(?P<name>@(?:lg|drv)\.[\w.]+) = private unnamed_addr constant [^@\n]*(?=\n)")
"""That names nothing itself."""

DECLARED: Final = re.compile(r"\ndeclare [^@\n]*(?P<name>@[\w.]+)\(.*")
EVERYWHERE: Final = (re.compile(r"\nattributes .*"), re.compile(r"\n!\d.*"))
NAME: Final = re.compile(r"@[\w.]+")
INTRINSIC: Final = "@llvm."


@dataclass(frozen=True, slots=True)
class _SharedFunction:
    text: str
    head: str
    names: frozenset[str]


def apart(text: str) -> tuple[str, list[str]]:
    """The text that is left, and those of functions that belong together."""
    functions = {
        m["name"]: _SharedFunction(m[0], m["head"], frozenset(NAME.findall(m[0])) - {m["name"]})
        for m in FUNCTION.finditer(text)
    }
    constants = {m["name"]: m[0] for m in CONSTANT.finditer(text)} if functions else {}
    declared = {m["name"]: m[0] for m in DECLARED.finditer(text)} if functions else {}
    _keep_common(functions, {*constants, *declared})
    if not functions:
        return text, []
    own = FUNCTION.sub(lambda m: "" if m["name"] in functions else m[0], text)
    called = [f"declare {functions[name].head}\n" for name in sorted(functions.keys() & {*NAME.findall(own)})]
    everywhere = [line for pattern in EVERYWHERE for line in pattern.findall(own)]
    others = []
    for group in _groups(functions):
        named = {name for one in group for name in functions[one].names}
        beside = [lines[name] for lines in (declared, constants) for name in sorted(named & lines.keys())]
        texts = [functions[name].text.replace("define internal ", "define ", 1) for name in group]
        others.append("".join([*beside, *texts, *everywhere, "\n"]))
    return "".join([own, "\n", *called]), others


def _keep_common(functions: dict[str, _SharedFunction], known: set[str]) -> None:
    """Take away those that name what isn't known."""
    while True:
        odd = [
            name
            for name, function in functions.items()
            if any(n not in functions and n not in known and not n.startswith(INTRINSIC) for n in function.names)
        ]
        if not odd:
            return
        for name in odd:
            del functions[name]


def _groups(functions: Mapping[str, _SharedFunction]) -> Iterator[list[str]]:
    """Names of functions that are connected by calls, in order; the driver's, which come together, are one group."""
    beside: dict[str, set[str]] = {name: set() for name in functions}
    driver = [name for name in functions if name.startswith("@drv.")]
    for one, other in pairwise(driver):
        beside[one].add(other)
        beside[other].add(one)
    for name, function in functions.items():
        for other in function.names & functions.keys():
            beside[name].add(other)
            beside[other].add(name)
    left = set(functions)
    for first in sorted(functions):
        found, pending = set(), [first] if first in left else []
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += beside[name]
        left -= found
        if found:
            yield sorted(found)
