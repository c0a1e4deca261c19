"""Random scripts, which NumPy and loopgrad run from the same text.

A script is drawn while NumPy runs it, with its warnings off; a statement at which it fails is left out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tests.programs.numpy_scripts.arguments import data, elements
from tests.programs.numpy_scripts.conventions import differs, names
from tests.programs.numpy_scripts.statements import overflows, statement

FLOATS: Final = ("float16", "float32", "float64")
NUDGE: Final = {"float16": 1e-3, "float32": 5e-7, "float64": 1e-12}
MOST_ELEMENTS: Final = 4000
_TARGET: Final = re.compile(r"(v\d+) = ")
_WRITTEN: Final = re.compile(r"(?:if .*: |for .*: |np\.\w+\()?(v\d+)")
_OVERFLOWS = """

def overflows(call):
    try:
        call()
    except OverflowError:
        return True
    return False
"""


@dataclass
class Script:
    """`inputs` by name, and lines that use them."""

    seed: int
    inputs: dict[str, np.ndarray]
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        """A program that shows the script with NumPy and with loopgrad."""
        made = "\n    ".join(f"{n} = xp.asarray({a.tolist()!r}, dtype=xp.{a.dtype})" for n, a in self.inputs.items())
        body = "\n    ".join(self.lines)
        shown = ", ".join(f"{n}={n}" for n in [*self.inputs, *filter(None, map(target, self.lines))])
        helper = _OVERFLOWS if "overflows(" in body else ""
        return (
            f"import numpy as np, loopgrad as lg\nfrom numpy import inf, nan\n{helper}\n\ndef script(xp):\n"
            f"    {made}\n    {body}\n    return dict({shown})\n\n\n"
            "for xp in (np, lg):\n"
            "    print({n: (str(a.dtype), np.asarray(a).tolist()) for n, a in script(xp).items()})\n"
        )


def target(line: str) -> str | None:
    """The variable that a line makes; None where it writes to one."""
    found = _TARGET.match(line)
    return found[1] if found else None


@contextmanager
def quiet() -> Iterator[None]:
    """Without NumPy's warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def namespace(xp: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What lines see."""
    return {"xp": xp, "np": np, "overflows": overflows, **inputs}


def variables(space: Mapping[str, Any]) -> dict[str, Any]:
    """The script's arrays and numbers in a namespace of NumPy's."""
    return {n: a for n, a in space.items() if isinstance(a, np.ndarray | np.generic) and n in names(n)}


def generate(seed: int, most: int = 12) -> Script:
    """A script of up to `most` lines that NumPy runs."""
    rng = np.random.default_rng(seed)
    script = Script(seed, {f"v{i}": data(rng) for i in range(int(rng.integers(2, 5)))})
    space = namespace(np, {n: a.copy() for n, a in script.inputs.items()})
    with quiet():
        for _ in range(int(rng.integers(3, most + 1))):
            line = statement(rng, variables(space), f"v{len(script.inputs) + len(script.lines)}")
            if _runs(line, space):
                script.lines.append(line)
    return script


def admissible(script: Script, inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether NumPy runs every line for these inputs, and gives what loopgrad is to give."""
    space = namespace(np, {n: a.copy() for n, a in inputs.items()})
    with quiet():
        return all(_runs(line, space) for line in script.lines)


def runnable(script: Script, inputs: Mapping[str, np.ndarray]) -> Script:
    """The script without the lines that NumPy doesn't run for these inputs."""
    space = namespace(np, {n: a.copy() for n, a in inputs.items()})
    with quiet():
        return without(script, {line for line in script.lines if not _runs(line, space)})


def type_like(x: Any, array: np.ndarray) -> Any:
    """The array, as a number where x is one."""
    return array[()] if isinstance(x, np.generic) else array


def variant(script: Script, rng: np.random.Generator) -> dict[str, np.ndarray] | None:
    """Other inputs of the same dtypes and shapes that the script may have; None where none was found."""
    for _ in range(3):
        inputs = {n: type_like(a, elements(rng, a.dtype, a.shape)) for n, a in script.inputs.items()}
        if admissible(script, inputs):
            return inputs
    return None


def _runs(line: str, space: dict[str, Any]) -> bool:
    """Run a line with NumPy; where it fails, or gives no array that we compare, everything is as it was."""
    kept = dict(space)
    before = {n: a.copy() for n, a in variables(space).items()}
    name = target(line)
    try:
        exec(line, space)
        fine = name is None or _comparable(line, space[name], before)
        fine = fine and all(type(space[n]) is type(a) and space[n].dtype == a.dtype for n, a in before.items())
    except Exception:
        fine = False
    if not fine:
        space.clear()
        space.update(kept)
        for n, elements_before in before.items():
            if isinstance(space[n], np.ndarray) and space[n].flags.writeable:
                space[n][...] = elements_before
    return fine


def _comparable(line: str, made: Any, before: Mapping[str, Any]) -> bool:
    if not isinstance(made, np.ndarray | np.generic) or made.size > MOST_ELEMENTS:
        return False
    return (made.dtype.name in FLOATS or made.dtype.kind in "biu") and not differs(line, before, made)


def run_numpy(
    script: Script, inputs: Mapping[str, np.ndarray], nudge: np.random.Generator | None = None
) -> dict[str, Any]:
    """The script's variables; with `nudge` each float result is changed by a little."""
    space = namespace(np, {n: a.copy() for n, a in inputs.items()})
    with quiet():
        for name in inputs if nudge is not None else ():
            _nudge(space, name, nudge)
        for line in script.lines:
            exec(line, space)
            written = _WRITTEN.match(line)
            if nudge is not None and written is not None and written[1] in space:
                _nudge(space, written[1], nudge)
    return variables(space)


def _nudge(space: dict[str, Any], name: str, rng: np.random.Generator) -> None:
    value = space[name]
    if value.dtype.name not in NUDGE:
        return
    factor = (1 + NUDGE[value.dtype.name] * rng.uniform(-1, 1, value.shape)).astype(value.dtype)
    if isinstance(value, np.generic):
        space[name] = value * factor[()]
    elif value.flags.writeable:
        value *= factor


def without(script: Script, lines: set[str]) -> Script:
    """The script without these lines and those that need their variables."""
    gone = {name for line in lines if (name := target(line)) is not None}
    kept = []
    for line in script.lines:
        if line in lines or names(line) & gone:
            gone.update(name for name in (target(line),) if name is not None)
        else:
            kept.append(line)
    return Script(script.seed, script.inputs, kept)


def shrink(script: Script, fails: Callable[[Script], bool]) -> Script:
    """Without the lines that the failure doesn't need."""
    changed = True
    while changed:
        changed = False
        for line in reversed(script.lines):
            for smaller in (without(script, {line}), _without_line(script, line)):
                if len(smaller.lines) < len(script.lines) and admissible(smaller, smaller.inputs) and fails(smaller):
                    script, changed = smaller, True
                    break
            if changed:
                break
    used = {name for line in script.lines for name in names(line)}
    smaller = Script(script.seed, {n: a for n, a in script.inputs.items() if n in used}, script.lines)
    return smaller if smaller.inputs and fails(smaller) else script


def _without_line(script: Script, line: str) -> Script:
    return Script(script.seed, script.inputs, [other for other in script.lines if other is not line])
