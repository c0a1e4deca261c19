"""Public names are imported when they are first used.

Derivatives, batching and compilation bring half of the package, so `import loopgrad` brings none of them. Where each
name is found is read from `__init__.pyi`, which type checkers and editors read too. That file is written by
`python -m tests.architecture.public_stub` from the statements `PUBLIC = "absolute abs=absolute ..."` of the modules
that hold the functions; this module knows no name. `linalg.pyi` is written by the statements `PUBLIC_LINALG`, for
`loopgrad.linalg`, and so are those of the other modules in NAMESPACES.
"""

from __future__ import annotations

from collections.abc import Callable
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


NAMESPACES: Final = (
    "fft", "integrate", "interpolate", "linalg", "ndimage", "nn", "optim", "random", "signal", "special", "stats",
    "testing", "tree",
)  # fmt: skip


def origins_of(file: str) -> dict[str, Origin]:
    """What the stub beside a module of this package says."""
    return read(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))


ORIGINS: Final = origins_of(str(Path(__file__).with_name("__init__.py")))


def find(name: str) -> Any:
    """What `loopgrad` offers under this name; AttributeError, with what to do instead where NumPy has it."""
    if name in NAMESPACES:
        return import_module(f"loopgrad.{name}")
    return found(name, ORIGINS, "loopgrad", ABSENT)


def found(name: str, origins: dict[str, Origin], where: str, absent: dict[str, str]) -> Any:
    """What one of these names stands for, in the namespace `where`; AttributeError for another."""
    origin = origins.get(name)
    if origin is None:
        instead = absent_name(where, name, absent)
        raise AttributeError(instead or f"module {where!r} has no attribute {name!r}")
    return getattr(import_module(origin.module), origin.name)


def namespace(
    module: dict[str, Any], absent: dict[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of the module with these globals, by the stub beside it; `absent` says
    what to do instead of names that it lacks."""
    origins = origins_of(module["__file__"])
    names = sorted(origins)

    def get(name: str) -> Any:
        value = module[name] = found(name, origins, module["__name__"], absent or {})
        return value

    return names, get, lambda: names
