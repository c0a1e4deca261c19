"""Random scripts of views and writes, run by NumPy and by loopgrad, compared element by element.

One seed is one `Script`: lines of Python over arrays v0, v1, ... and a module `m`. Lines are drawn while NumPy runs
them, so shapes and which arrays share memory are known; what NumPy refuses (writing to a read-only view, a result of
another kind or shape) stays in the script as a line that must raise. All numbers are small multiples of powers of
two, so results are equal to the last bit, in whatever order sums are taken.

    python tests/programs/random_views.py --count 1000 --first 0 --devices cpu,interpreter --modes eager,parts
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import loopgrad as lg

ROOTS = ((3, 4), (4,), (2, 3, 2), ())
DTYPES = ("float64", "float64", "float32", "int64")
LINES = 14
MOST = 512.0  # larger numbers are written down to smaller ones, so that nothing is ever rounded

Env = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One statement. `error`: the class that NumPy raised, and loopgrad must raise; None where it runs."""

    text: str
    error: type[Exception] | None = None


@dataclass
class Script:
    """`shapes` and `dtypes` are those of the arrays v0, v1, ... that the lines start from."""

    seed: int
    shapes: list[tuple[int, ...]]
    dtypes: list[str]
    lines: list[Line] = field(default_factory=list)

    def roots(self, shift: int = 0) -> list[np.ndarray]:
        """The arrays to start from."""
        found = []
        for i, (shape, dtype) in enumerate(zip(self.shapes, self.dtypes, strict=True)):
            size = int(np.prod(shape))
            found.append(((np.arange(size) * (3 + i) + shift) % 7 - 2).reshape(shape).astype(dtype))
        return found

    def __str__(self) -> str:
        starts = [f"v{i} = {d}{s}" for i, (s, d) in enumerate(zip(self.shapes, self.dtypes, strict=True))]
        ends = [f"{line.text}{f'  # {line.error.__name__}' if line.error else ''}" for line in self.lines]
        return f"seed {self.seed}\n    " + "\n    ".join(starts + ends)


def bump(v: Any) -> None:
    """A function that writes to its argument."""
    v += 1


def run(lines: Sequence[Line], m: Any, roots: Sequence[Any], look: Callable[[Env], None] | None = None) -> Env:
    """The arrays after all lines; `look` is called with them after each one."""
    env: Env = {f"v{i}": root for i, root in enumerate(roots)}
    for line in lines:
        if line.error is None:
            exec(line.text, {"m": m, "np": np, "bump": bump}, env)
        else:
            try:
                exec(line.text, {"m": m, "np": np, "bump": bump}, env)
            except line.error:
                continue
            raise AssertionError(f"{line.text!r} should have raised {line.error.__name__}")
        if look is not None:
            look(env)
    return env


# ---- drawing


class Generator:
    """Draws the lines of one script while NumPy runs them. `traced`: only what a traced function may do."""

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.draw = random.Random(seed)
        self.traced = traced
        count = self.draw.randint(1, 3)
        shapes = [self.draw.choice(ROOTS) for _ in range(count)]
        self.script = Script(seed, shapes, [self.draw.choice(DTYPES) for _ in range(count)])
        self.env: Env = {f"v{i}": root for i, root in enumerate(self.script.roots())}
        self.next = count

    def generate(self, lines: int = LINES) -> Script:
        for _ in range(lines * 4):
            if len(self.script.lines) == lines:
                break
            kind = self.draw.choices(("view", "write", "copy", "forget"), (5, 5, 2, 1))[0]
            self.attempt(getattr(self, kind)())
        return self.script

    def attempt(self, text: str) -> None:
        """Keep the line if NumPy runs it, or refuses it for a reason that loopgrad shares (a number of ours takes
        `n[...] = v`)."""
        with np.errstate(all="ignore"):
            try:
                exec(text, {"m": np, "np": np, "bump": bump}, self.env)
            except (ValueError, TypeError) as error:
                refused = "read-only" in str(error) or "cast" in str(error)
                if refused or "non-broadcastable output" in str(error):
                    kind = TypeError if isinstance(error, TypeError) else ValueError
                    self.script.lines.append(Line(text, kind))
                return
            except IndexError:
                return
        self.script.lines.append(Line(text))
        for name, a in list(self.env.items()):
            if np.abs(a).max(initial=0) > MOST and getattr(a, "flags", None) is not None and a.flags.writeable:
                self.attempt(f"{name}[...] = {self.draw.randint(1, 3)}" if a.ndim else f"del {name}")

    def name(self) -> str:
        return self.draw.choice(list(self.env) or ["v0"])

    def array(self) -> str:
        """An array, rather than a number."""
        found = [n for n, a in self.env.items() if isinstance(a, np.ndarray)]
        return self.draw.choice(found) if found else self.name()

    def fresh(self) -> str:
        self.next += 1
        return f"v{self.next - 1}"

    def subscript(self, name: str) -> str:
        """A basic subscript, at times with a number that is data."""
        shape = np.shape(self.env.get(name, 0))
        items: list[str] = []
        for extent in shape[: self.draw.randint(0, len(shape))]:
            if not extent or self.draw.random() < 0.5:
                items.append(self.slice(extent))
            elif self.draw.random() < 0.25:
                items.append(f"m.argmax({name})[()] % {extent}")
            else:
                items.append(str(self.draw.randint(-extent, extent - 1)))
        if self.draw.random() < 0.2:
            items.insert(self.draw.randint(0, len(items)), "None")
        if not items or self.draw.random() < 0.2:
            items.append("...")
        return ", ".join(items)

    def slice(self, extent: int) -> str:
        start, stop = (self.draw.choice(["", str(self.draw.randint(-extent, extent))]) for _ in range(2))
        return f"{start}:{stop}:{self.draw.choice(['', '1', '2', '-1', '-2'])}"

    def view(self) -> str:
        name = self.array()
        a = np.asarray(self.env.get(name, 0))
        axis = self.draw.randint(0, max(a.ndim - 1, 0))
        shapes = [(a.size,), (1, a.size), (a.size, 1), (2, a.size // 2), (a.size // 2, 2), (3, a.size // 3)]
        forms = [
            *[f"{name}[{self.subscript(name)}]"] * 4,
            f"{name}.T",
            f"{name}.ravel()",
            f"{name}.reshape({self.draw.choice(shapes)})",
            f"m.reshape({name}, {self.draw.choice(shapes)}, order='F')",
            f"m.swapaxes({name}, 0, {axis})",
            f"m.moveaxis({name}, {axis}, 0)",
            f"m.expand_dims({name}, {axis})",
            f"m.squeeze({name})",
            f"m.flip({name}, axis={axis})",
            f"m.rot90({name}, {self.draw.randint(0, 3)})",
            f"m.split({name}, [1, 2], axis={axis})[{self.draw.randint(0, 2)}]",
            f"m.array_split({name}, 2)[0]",
            f"m.diagonal({name})",
            *([f"m.einsum('ii->i', {name}[:2, :2])"] if a.ndim == 2 and min(a.shape) > 1 else []),
            f"m.broadcast_to({name}, {(2, *a.shape)})",
            f"m.asarray({name})",
            f"m.atleast_2d({name})",
            f"list({name})[-1]",
            f"{name}.astype({name}.dtype, copy=False)",
            name,
        ]
        return f"{self.fresh()} = {self.draw.choice(forms)}"

    def copy(self) -> str:
        name, other = self.name(), self.name()
        forms = [
            f"{name}.copy()",
            f"m.copy({name}.reshape(-1))",
            f"{name}.flatten()",
            f"(+{name}).copy()",
            f"({name} + {other}).copy()",
            f"({name} * 0.5).copy()",
            f"m.concatenate([{name}.reshape(-1), {other}.reshape(-1)])",
            f"{name}[[0, -1, 0]].copy()",
            f"m.sum({name})",
            f"m.roll({name}.reshape(-1), 0)",
        ]
        return f"{self.fresh()} = {self.draw.choice(forms)}"

    def write(self) -> str:
        name = self.array() if self.draw.random() < 0.9 else self.name()
        a = np.asarray(self.env.get(name, 0))
        index, value = self.subscript(name), self.value(a)
        sign = self.draw.choice(["+=", "-=", "*=", "+="])
        forms = [
            f"{name} {sign} {value}",
            f"{name}[{index}] {sign} {value}",
            f"{name}[{index}] = {value}",
            f"{name}[{index}][...] = {value}",
            f"{name}[{index}][0] {sign} 1",
            f"{name}[{name} > 1] = {self.draw.randint(-2, 2)}",
            f"{name}[[0, 1, 0]] += 1",
            f"{name}[m.argmax({name}) % {max(a.shape[0] if a.ndim else 1, 1)}] {sign} {value}",
            f"np.add({name}, 1, out={name})",
            f"bump({name})",
            f"bump({name}[{index}])",
            *([] if a.dtype.kind == "b" else [f"{name}.sort()"]),
        ]
        return self.draw.choice(forms)

    def value(self, like: np.ndarray) -> str:
        """A number, or an array of the same kind of dtype (NumPy's assignment casts any to any, loopgrad's doesn't)."""
        options = [str(self.draw.randint(-3, 3))]
        options += [n for n, a in self.env.items() if np.asarray(a).dtype == like.dtype and np.ndim(a) <= like.ndim]
        if like.dtype.kind == "f":
            options.append("0.5")
        return self.draw.choice(options)

    def forget(self) -> str:
        return f"del {self.name()}" if len(self.env) > 2 else self.copy()


# ---- comparing


def same(env: Env, expected: Env, message: str) -> None:
    """Every array of the one with that of the other."""
    assert env.keys() == expected.keys(), message
    for name, want in expected.items():
        compare(env[name], want, f"{name} of {message}")


def compare(got: Any, want: Any, message: str) -> None:
    found = np.asarray(got)
    assert found.dtype == np.asarray(want).dtype, (found.dtype, np.asarray(want).dtype, message)
    np.testing.assert_array_equal(found, want, err_msg=message)


def check_eager(script: Script) -> None:
    expected = run(script.lines, np, script.roots())
    same(run(script.lines, lg, [lg.asarray(a) for a in script.roots()]), expected, f"eager, {script}")


def check_parts(script: Script) -> None:
    """Arrays are looked at in between, so the lines are evaluated in parts."""
    draw = random.Random(script.seed)

    def look(env: Env) -> None:
        if env and draw.random() < 0.5:
            np.asarray(env[draw.choice(list(env))])

    expected = run(script.lines, np, script.roots())
    same(run(script.lines, lg, [lg.asarray(a) for a in script.roots()], look), expected, f"in parts, {script}")


def check_compiled(script: Script) -> None:
    """All lines as a function of the first arrays, called twice: results, and what it writes to its arguments."""
    names: list[str] = []

    def program(*roots: Any) -> list[Any]:
        env = run(script.lines, lg, roots)
        names[:] = list(env)
        return [env[n] for n in names]

    compiled = lg.compile(program)
    for shift, given in ((0, lg.asarray), (1, np.array)):
        theirs, ours = script.roots(shift), [given(a) for a in script.roots(shift)]
        expected = run(script.lines, np, theirs)
        results = compiled(*ours)
        same(dict(zip(names, results, strict=True)), expected, f"compiled, {script}")
        for i, (got, want) in enumerate(zip(ours, theirs, strict=True)):
            compare(got, want, f"argument {i} of compiled {script}")


def check_loop(script: Script) -> None:
    """The lines as the body of a loop that carries the first arrays."""

    def body(_: Any, roots: Any) -> Any:
        run(script.lines, lg, roots)
        return roots

    theirs = script.roots()
    for _ in range(2):
        run(script.lines, np, theirs)
    ours = lg.fori_loop(0, 2, body, tuple(lg.asarray(a) for a in script.roots()))
    for i, (got, want) in enumerate(zip(ours, theirs, strict=True)):
        compare(got, want, f"carry {i} of a loop of {script}")


MODES: dict[str, Callable[[Script], None]] = {
    "eager": check_eager, "parts": check_parts, "compiled": check_compiled, "loop": check_loop,
}  # fmt: skip


def check_script(seed: int, device: str, mode: str) -> None:
    """Draw and run the script of `seed`; AssertionError with its text where NumPy and loopgrad differ."""
    script = Generator(seed, traced=mode in ("compiled", "loop")).generate()
    with lg.default_device(device):
        MODES[mode](script)


def main() -> None:
    """Check as many seeds as the command line asks for."""
    parser = argparse.ArgumentParser(description="check random scripts of views and writes")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--devices", default="interpreter")
    parser.add_argument("--modes", default=",".join(MODES))
    chosen = parser.parse_args()
    failures = 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        for device, mode in itertools.product(chosen.devices.split(","), chosen.modes.split(",")):
            try:
                check_script(seed, device, mode)
            except Exception as error:  # any failure of one seed is reported and the run goes on
                failures += 1
                first = (str(error).strip() or "no message").splitlines()[0]
                print(f"seed {seed} on {device}, {mode}: {type(error).__name__}: {first}", flush=True)
    print(f"{chosen.count} scripts, {failures} failures")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
