"""Public names are imported when they are first used.

Derivatives, batching and compilation bring half of the package, so `import loopgrad` brings none of them. Where each
name is found is read from `__init__.pyi`, which type checkers and editors read too. That file is written by
`python -m tests.architecture.public_stub` from the statements `PUBLIC = "absolute abs=absolute ..."` of the modules
that hold the functions; this module knows no name.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from loopgrad.lazy.numpy.not_offered import ABSENT, absent_name


class Origin(NamedTuple):
    """The module in which something is found, and its name there."""

    module: str
    name: str


def read(stub: str) -> dict[str, Origin]:
    """Public name -> origin, of lines `from MODULE import NAME as NAME` (`from MODULE import NAME` gives no public
    name) and, below them, `PUBLIC = NAME`."""
    modules: dict[str, str] = {}
    found: dict[str, Origin] = {}
    for line in stub.splitlines():
        match line.split():
            case "from", module, "import", name, *public:
                modules[name] = module
                if public:
                    found[name] = Origin(module, name)
            case public_name, "=", name:
                found[public_name] = Origin(modules[name], name)
    return found


ORIGINS: Final = read(Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8"))


def find(name: str) -> Any:
    """What `loopgrad` offers under this name; AttributeError, with what to do instead where NumPy has it."""
    if name == "linalg":
        return import_module("loopgrad.linalg")
    origin = ORIGINS.get(name)
    if origin is None:
        instead = absent_name("loopgrad", name, ABSENT)
        raise AttributeError(instead or f"module 'loopgrad' has no attribute {name!r}")
    return getattr(import_module(origin.module), origin.name)
