"""A module's text as several, which link to what it is by itself, so that they can be compiled side by side.

Leave: texts of about PIECE characters, by the text alone. Functions of a module become visible to the others, and are
declared where these name them; private constants are copied to where they are named. What names anything else that is
private, or memory that changes, stays together in the first text.

    define internal void @f(ptr %p) {...}          define void @f(ptr %p) {...}
    define void @g(ptr %p) {... call @f ...}   ->  and    declare void @f(ptr %p)
                                                          define void @g(ptr %p) {... call @f ...}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

PIECE: Final = 1 << 16  # characters, which take some 50 ms
TYPE: Final = r"(?:void|ptr|i\d+|half|bfloat|float|double|[%{<\[])"
DEFINITION: Final = re.compile(rf"^define (?:internal )?(?P<head>{TYPE}.*?(?P<name>@[\w.$-]+)\(.*\).*) \{{$")
GLOBAL: Final = re.compile(r"^(?P<name>@[\w.$-]+) = (?P<constant>private unnamed_addr constant )?")
NAME: Final = re.compile(r"@[\w.$-]+")


@dataclass(frozen=True, slots=True)
class _Function:
    text: str
    declaration: str
    names: frozenset[str]


class _Parsed:
    """A module's functions, private constants, other globals, and lines that each piece has. `simple`: nothing else."""

    def __init__(self, text: str) -> None:
        self.functions: dict[str, _Function] = {}
        self.constants: dict[str, str] = {}
        self.memory: dict[str, str] = {}  # globals that aren't constant, and other names for their parts
        self.everywhere: list[str] = []
        self.simple = True
        lines = iter(text.split("\n"))
        for line in lines:
            if line.startswith("define"):
                self._function(line, lines)
            elif (found := GLOBAL.match(line)) is not None:
                (self.constants if found["constant"] else self.memory)[found["name"]] = line
            elif line:
                self.everywhere.append(line)

    def _function(self, line: str, lines: Iterator[str]) -> None:
        while not line.endswith(("{", "}")):
            line += f" {next(lines).strip()}"
        found = DEFINITION.match(line)
        if found is None:
            self.simple = False
            return
        body = ["", *takewhile(lambda inner: inner != "}", lines), "}", ""]
        text = f"define {found['head']} {{" + "\n".join(body)
        names = frozenset(NAME.findall(text)) - {found["name"]}
        self.functions[found["name"]] = _Function(text, f"declare {found['head']}", names)


def pieces(text: str) -> list[str]:
    """See the module's text; the text alone where it isn't long, or has parts of another form."""
    if len(text) < 2 * PIECE:
        return [text]
    module = _Parsed(text)
    groups = _groups(module) if module.simple else []
    return [text] if len(groups) < 2 else [_text(module, group, first=not i) for i, group in enumerate(groups)]


def _groups(module: _Parsed) -> list[list[str]]:
    """Names of functions."""
    together = [name for name, function in module.functions.items() if not function.names.isdisjoint(module.memory)]
    groups, size = [together], sum(len(module.functions[name].text) for name in together)
    for name, function in module.functions.items():
        if name in together:
            continue
        if size >= PIECE:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += len(function.text)
    return groups


def _text(module: _Parsed, group: Sequence[str], first: bool) -> str:
    named = {name for function in group for name in module.functions[function].names}
    constants: dict[str, str] = {}
    pending = [*module.constants] if first else [name for name in module.constants if name in named]
    while pending:
        name = pending.pop()
        if name not in constants:
            constants[name] = module.constants[name]
            names = set(NAME.findall(constants[name]))
            named |= names
            pending += [other for other in names if other in module.constants]
    memory = module.memory.values() if first else ()
    functions = [module.functions[name].text for name in group]
    declared = [f.declaration for name, f in module.functions.items() if name in named and name not in group]
    return "\n".join([*module.everywhere, *memory, *constants.values(), *declared, *functions, ""])
