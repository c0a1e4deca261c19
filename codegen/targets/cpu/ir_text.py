"""LLVM IR as text with loops: what functions of products and sorts are written with. Indices are i64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

Index = str | int


class IrText:
    """The lines of one function. `variable`s are memory until LLVM makes them registers."""

    def __init__(self) -> None:
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._names = 0

    def function(self, head: str) -> str:
        return "\n".join([f"define {head} {{", "entry:", *self._allocas, *self._lines, "}", "", ""])

    def put(self, line: str) -> None:
        self._lines.append("  " + line)

    def let(self, expression: str) -> str:
        name = f"%t{self._number()}"
        self.put(f"{name} = {expression}")
        return name

    def variable(self, type: str, value: Index | None = None) -> str:
        name = f"%m{self._number()}"
        self._allocas.append(f"  {name} = alloca {type}, align 64")
        if value is not None:
            self.put(f"store {type} {value}, ptr {name}")
        return name

    def mul(self, a: Index, b: Index) -> str:
        return self.let(f"mul i64 {a}, {b}")

    def add(self, a: Index, b: Index) -> str:
        return self.let(f"add i64 {a}, {b}")

    def least(self, a: Index, b: Index) -> str:
        return self.let(f"call i64 @llvm.umin.i64(i64 {a}, i64 {b})")

    def up(self, a: Index, step: int) -> str:
        """The next multiple of a step."""
        return self.mul(self.let(f"udiv i64 {self.add(a, step - 1)}, {step}"), step)

    def parts(self, a: Index, each: Index) -> str:
        """How many parts of at most `each` there are."""
        return self.let(f"udiv i64 {self.add(a, self.let(f'sub i64 {each}, 1'))}, {each}")

    def at(self, type: str, base: str, index: Index) -> str:
        return self.let(f"getelementptr {type}, ptr {base}, i64 {index}")

    def load(self, type: str, base: str, index: Index = 0, align: int = 1) -> str:
        return self.let(f"load {type}, ptr {base if index == 0 else self.at(type, base, index)}, align {align}")

    @contextmanager
    def loop(self, stop: Index, step: int = 1, start: Index = 0) -> Iterator[str]:
        """An index from `start`, below `stop`."""
        number, index = self._number(), self.variable("i64", start)
        self._go(f"head{number}")
        at = self.let(f"load i64, ptr {index}")
        more = self.let(f"icmp ult i64 {at}, {stop}")
        self.put(f"br i1 {more}, label %body{number}, label %done{number}")
        self._lines.append(f"body{number}:")
        yield at
        self.put(f"store i64 {self.add(at, step)}, ptr {index}")
        self.put(f"br label %head{number}")
        self._lines.append(f"done{number}:")

    @contextmanager
    def first_of(self) -> Iterator[str]:
        """Cases, each begun by `case` with this label: the first whose condition holds is done, then what follows."""
        label = f"end{self._number()}"
        yield label
        self._go(label)

    @contextmanager
    def case(self, end: str, condition: str) -> Iterator[None]:
        number = self._number()
        self.put(f"br i1 {condition}, label %case{number}, label %else{number}")
        self._lines.append(f"case{number}:")
        yield
        self.put(f"br label %{end}")
        self._lines.append(f"else{number}:")

    def _go(self, label: str) -> None:
        self.put(f"br label %{label}")
        self._lines.append(f"{label}:")

    def _number(self) -> int:
        self._names += 1
        return self._names
