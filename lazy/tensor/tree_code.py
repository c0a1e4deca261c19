"""Trees that come often: Python code of their own, which takes the leaves of a tree, or puts leaves together to one.

    ({"x": a, "y": b},), {}     def made(x0, x1):
                                    try:
                                        if type(x0) is not tuple or len(x0) != 1: return None
                                        x2, = x0
                                        if type(x2) is not dict or len(x2) != 2: return None
                                        x3, x4, = x2[k0], x2[k1],
                                        if type(x1) is not dict or len(x1) != 0: return None
                                    except (KeyError, ValueError): return None
                                    return [x3, x4]

A walk over the parts of a pattern (`lazy.tensor.tree_patterns`) takes three times as long, and optree four times as
long to put a tree together. Nothing but numbers gets into the text: keys are named by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import CodeType, NoneType
from typing import Any, Final, NamedTuple

MOST_PARTS: Final = 256  # containers and leaves
MOST_DEEP: Final = 32  # inside each other, of which Python's parser takes 100
LEAF: Final = None


class Container(NamedTuple):
    """A container with these children, a part or LEAF for each. `keys`: those of a dict, in its own order; the children
    are in the order of keys, as optree has them."""

    kind: type[Any]
    keys: tuple[str, ...]
    children: tuple[Container | None, ...]


def leaves_code(placed: Container, named: Container) -> Callable[[Any, Any], list[Any] | None] | None:
    """What takes the leaves of arguments of these parts, None from others; None where the parts are many."""
    code = _TreeCode()
    names = code.named(), code.named()
    for part, name in zip((placed, named), names, strict=True):
        code.take(part, name)
    if code.names > MOST_PARTS:
        return None
    lines = ["def made(x0, x1):", " try:", *code.lines, " except (KeyError, ValueError): return None"]
    made: Callable[[Any, Any], list[Any] | None] = code.made([*lines, f" return [{', '.join(code.leaves)}]"])
    return made


def tree_code(part: Container) -> Callable[[Sequence[Any]], Any] | None:
    """What makes a tree of these parts from its leaves; None where the parts are many, or deep inside each other."""
    if _depth(part) > MOST_DEEP:
        return None
    code = _TreeCode()
    tree = code.put(part)
    if len(code.leaves) > MOST_PARTS:
        return None
    taken = f" {''.join([f'{leaf}, ' for leaf in code.leaves])}= leaves" if code.leaves else " pass"
    made: Callable[[Sequence[Any]], Any] = code.made(["def made(leaves):", taken, f" return {tree}"])
    return made


def _depth(part: Container | None) -> int:
    return 0 if part is LEAF else 1 + max(map(_depth, part.children), default=0)


class _TreeCode:
    """Lines that take a tree apart; the names of its `leaves`, in order, and of the `keys` that dicts have."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves: list[str] = []
        self.keys: list[str] = []
        self.names = 0

    def named(self) -> str:
        """A name that nothing has."""
        self.names += 1
        return f"x{self.names - 1}"

    def key(self, key: str) -> str:
        """The name of a key."""
        self.keys.append(key)
        return f"k{len(self.keys) - 1}"

    def take(self, part: Container | None, name: str) -> None:
        """Add what takes the leaves of the part that has a name."""
        if part is LEAF:
            self.leaves.append(name)
            return
        kind, keys, children = part
        if kind is NoneType:
            self.lines.append(f"  if {name} is not None: return None")
            return
        self.lines.append(f"  if type({name}) is not {kind.__name__} or len({name}) != {len(children)}: return None")
        if not children:
            return
        names = [self.named() for _ in children]
        given = ", ".join([f"{name}[{self.key(key)}]" for key in sorted(keys)]) + "," if keys else name
        self.lines.append(f"  {', '.join(names)}, = {given}")
        for child, below in zip(children, names, strict=True):
            self.take(child, below)

    def put(self, part: Container | None) -> str:
        """The part as an expression of its leaves."""
        if part is LEAF:
            self.leaves.append(f"x{len(self.leaves)}")
            return self.leaves[-1]
        kind, keys, children = part
        if kind is NoneType:
            return "None"
        made = [self.put(child) for child in children]
        if kind is dict:
            by_key = dict(zip(sorted(keys), made, strict=True))
            return f"{{{', '.join([f'{self.key(key)}: {by_key[key]}' for key in keys])}}}"
        return f"[{', '.join(made)}]" if kind is list else f"({''.join([f'{x}, ' for x in made])})"

    def made(self, lines: Sequence[str]) -> Any:
        """The function that these lines define."""
        known: dict[str, Any] = {f"k{i}": key for i, key in enumerate(self.keys)}
        exec(_compiled("\n".join(lines)), known)
        return known["made"]


@cache
def _compiled(text: str) -> CodeType:
    """Many trees have one text."""
    return compile(text, "<tree>", "exec")
