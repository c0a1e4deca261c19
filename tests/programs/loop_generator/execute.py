"""A program on plain Python numbers: statement by statement while all lanes act together, lane by lane, each alone to
its end, where lanes decide for themselves.

`Unsuitable` says that a program or its inputs can't be compared: too long, too large, or a decision so close that
rounding takes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from loop_generator.description import FLOATS, PER_LANE, Block, Program, Tree
from loop_generator.inputs import Inputs

TRIPS = 40  # of one loop
WORK = 300_000  # statements and numbers
LARGEST = 200.0  # any variable


class Unsuitable(Exception):
    """What the library computes for this program can't be told right from wrong."""


class Frame:
    """One lane: its variables, and the counters and rows of the loops around it."""

    def __init__(self, lane: int, cells: dict[str, list[Any]]) -> None:
        self.lane, self.cells = lane, cells
        self.variables: dict[str, Any] = {}
        self.counters: list[int] = []
        self.rows: list[list[Any]] = []


def wrapped(value: int, dtype: str) -> int:
    """Two's complement."""
    info = np.iinfo(dtype)
    return (value - int(info.min)) % (int(info.max) - int(info.min) + 1) + int(info.min)


def read_position(index: int, extent: int) -> int:
    return min(max(index + extent if index < 0 else index, 0), extent - 1)


class Execution:
    """`closest`: the least distance of a decision from its threshold; `tie` likewise of what only a derivative sees."""

    def __init__(self, program: Program, inputs: Inputs, numbers: Any) -> None:
        self.program, self.inputs, self.numbers = program, inputs, numbers
        self.closest = self.tie = math.inf
        self.work = 0
        self.group: list[Frame] = []
        self.leaves = {
            name: [
                numbers.variable(float(v), float(t))
                for v, t in zip(inputs.arrays[name].ravel(), inputs.directions[name].ravel(), strict=True)
            ]
            for name in FLOATS
        }

    # ---- the whole program

    def run(self) -> Any:
        """The loss."""
        shared = self.program.style == "lanes"
        cells = self.new_cells()
        self.frames = [Frame(i, cells if shared else self.new_cells()) for i in range(self.program.lanes)]
        for frame in self.frames:
            for variable in self.program.variables:
                frame.variables[variable.name] = self.expression(variable.init, frame, variable)
        if shared:
            self.block(self.program.body, self.frames)
        else:
            for frame in self.frames:
                self.block(self.program.body, [frame])
        loss = 0.0
        for term in self.program.loss:
            loss = self.numbers.add(loss, self.term(term))
        return loss

    def new_cells(self) -> dict[str, list[Any]]:
        """Each array of cells as a list of numbers, or of rows."""
        made: dict[str, list[Any]] = {}
        for name, form, _, init in self.program.accumulators:
            count, width = self.program.cells, self.program.width
            kind, number = init
            values = [self.numbers.mul(number, v) for v in self.leaves["a"]] if kind == "a" else [number] * count
            made[name] = [[v] * width for v in values] if form == "row" else values
        return made

    def term(self, term: Tree) -> Any:
        numbers = self.numbers
        match term:
            case ("sum", name, function, weight):
                return numbers.mul(weight, self.total(name, function))
            case ("product", left, right, weight):
                sums = [numbers.mul(1.0 / len(self.items(name)), self.total(name, f)) for name, f in (left, right)]
                return numbers.mul(weight, numbers.mul(*sums))
            case ("read", cells, name, weight):
                total = 0.0
                for frame in self.frames:
                    index = int(self.inputs.arrays["q"].ravel()[frame.lane])
                    value = frame.cells[cells][read_position(index, self.program.cells)]
                    total = numbers.add(total, numbers.mul(numbers.unary("sin", value), frame.variables[name]))
                return numbers.mul(weight, total)
        raise AssertionError(term)

    def items(self, name: str) -> list[tuple[Any, float]]:
        """All numbers of variables or cells, with weights that tell cells apart."""
        if name in self.frames[0].variables:
            return [(v, 1.0) for f in self.frames for v in flat(f.variables[name])]
        holders = self.frames[:1] if self.program.style == "lanes" else self.frames
        count = self.program.cells
        return [(v, 0.5 + j / count) for f in holders for j, cell in enumerate(f.cells[name]) for v in flat(cell)]

    def total(self, name: str, function: str) -> Any:
        total = 0.0
        for value, weight in self.items(name):
            total = self.numbers.add(total, self.numbers.mul(weight, self.function(function, value)))
        return total

    def function(self, name: str, value: Any) -> Any:
        return value if name == "id" else self.numbers.unary(name, value)

    def finals(self) -> dict[str, np.ndarray]:
        """Values of all variables and cells at the end."""
        value = lambda x: [value(v) for v in x] if isinstance(x, list) else self.numbers.value(x)
        shape = self.program.shape
        found = {}
        for variable in self.program.variables:
            rows = np.array([value(f.variables[variable.name]) for f in self.frames])
            found[variable.name] = rows.reshape(shape + rows.shape[1:])
        shared = self.program.style == "lanes"
        for cells in self.program.accumulators:
            rows = np.array([value(f.cells[cells.name]) for f in (self.frames[:1] if shared else self.frames)])
            found[cells.name] = rows[0] if shared else rows.reshape(shape + rows.shape[1:])
        return found

    # ---- statements

    def block(self, block: Block, frames: list[Frame]) -> None:
        for statement in block:
            self.group = frames
            self.statement(statement, frames)

    def statement(self, statement: Tree, frames: list[Frame]) -> None:
        if statement[0] in ("for", "while", "if", "switch"):
            decisions = [self.decision(statement, f) for f in (frames if statement[1] == "lane" else frames[:1])]
            parts = [[f] for f in frames] if statement[1] == "lane" else [frames]
            for decision, part in zip(decisions, parts, strict=True):
                self.control(statement, decision, part)
            return
        match statement:
            case ("set", name, tree):
                variable = self.program.variable(name)
                results = [self.expression(tree, f, variable) for f in frames]
                for frame, result in zip(frames, results, strict=True):
                    frame.variables[name] = result
            case ("put", name, index, how, tree):
                for frame in frames:
                    vector = frame.variables[name] = list(frame.variables[name])
                    self.write(vector, self.integer(index, frame), how, self.float(tree, frame))
            case ("update", name, index, how, tree):
                for frame, writes in [(f, self.writes(name, index, tree, f)) for f in frames]:
                    for position, value in writes:
                        self.write(frame.cells[name], position, how, value)
            case ("swap", names):
                for frame in frames:
                    values = [frame.variables[n] for n in names]
                    frame.variables.update(zip(names, [*values[1:], values[0]], strict=True))
            case ("again", block):
                self.block(block, frames)
            case ("scan", rows, backwards, name, tree, block, _):
                self.scan(rows, backwards, name, tree, block, frames)

    def decision(self, statement: Tree, frame: Frame) -> Any:
        """What is decided before any lane goes on: the branch, or the range of the counter."""
        match statement:
            case ("if", _, condition, _, _):
                return self.truth(condition, frame)
            case ("switch", _, index, branches):
                return min(max(self.integer(index, frame), 0), len(branches) - 1)
            case ("for", _, lower, upper, _, _):
                return range(self.integer(lower, frame), self.integer(upper, frame))
        return None

    def control(self, statement: Tree, decision: Any, frames: list[Frame]) -> None:
        match statement:
            case ("if", _, _, yes, no):
                self.block(yes if decision else no, frames)
            case ("switch", _, _, branches):
                self.block(branches[decision], frames)
            case ("for", _, _, _, block, _):
                if len(decision) > TRIPS:
                    raise Unsuitable("too many trips")
                for k in decision:
                    for frame in frames:
                        frame.counters.append(k)
                    self.block(block, frames)
                    for frame in frames:
                        frame.counters.pop()
            case ("while", _, condition, most, block, _):
                trips = 0
                self.group = frames
                while (most is None or trips < most) and self.truth(condition, frames[0]):
                    trips += 1
                    if trips > TRIPS:
                        raise Unsuitable("too many trips")
                    self.block(block, frames)
                    self.group = frames

    def scan(self, rows: Tree, backwards: bool, name: str, tree: Tree, block: Block, frames: list[Frame]) -> None:
        tables = [self.rows(rows, f) for f in frames]
        count = len(tables[0])
        stacked: list[list[Any]] = [[0.0] * count for _ in frames]
        for k in reversed(range(count)) if backwards else range(count):
            for frame, table in zip(frames, tables, strict=True):
                frame.rows.append(table[k])
            self.block(block, frames)
            self.group = frames
            for frame, ys in zip(frames, stacked, strict=True):
                ys[k] = self.float(tree, frame)
            for frame in frames:
                frame.rows.pop()
        for frame, ys in zip(frames, stacked, strict=True):
            for k, y in enumerate(ys):
                part = self.numbers.mul((k + 1) / count, self.numbers.unary("sin", y))
                frame.variables[name] = self.numbers.add(frame.variables[name], part)

    def rows(self, rows: Tree, frame: Frame) -> list[Any]:
        match rows:
            case ("T", count):
                return self.leaves["T"][:count]
            case ("R", count):
                return [self.table_row(i) for i in range(count)]
        return list(frame.variables[rows[1]])

    def writes(self, name: str, index: Tree, tree: Tree, frame: Frame) -> list[tuple[int, Any]]:
        form = self.program.accumulator(name).form
        if index[0] == "pair":
            value = self.float(tree, frame)
            first, second = [self.integer(i, frame) for i in index[1:]]
            return [(first, value), (second, self.numbers.mul(0.5, value))]
        evaluate: dict[str, Callable[[Tree, Frame], Any]] = {"float": self.float, "row": self.vector}
        value = evaluate.get(form, lambda t, f: self.integer(t, f, "int64"))(tree, frame)
        return [(self.integer(index, frame), value)]

    def write(self, cells: list[Any], index: int, how: str, value: Any) -> None:
        position = index + len(cells) if index < 0 else index
        if 0 <= position < len(cells):
            cells[position] = self.combined(how, cells[position], value)

    def combined(self, how: str, old: Any, new: Any) -> Any:
        if isinstance(old, list):
            return [self.combined(how, a, b) for a, b in zip(old, new, strict=True)]
        if isinstance(old, int) and isinstance(new, int):
            return {"add": old + new, "max": max(old, new), "min": min(old, new), "set": new}[how]
        if how in ("min", "max"):
            return self.extremum(how, old, new)
        result = {"add": self.numbers.add, "mul": self.numbers.mul, "set": lambda _, b: b}[how](old, new)
        return self.checked(result)

    # ---- expressions

    def expression(self, tree: Tree, frame: Frame, variable: Any) -> Any:
        match variable.form:
            case "float":
                return self.float(tree, frame)
            case "vector":
                return self.vector(tree, frame)
            case "matrix":
                return self.matrix(tree, frame)
            case "integer":
                return self.integer(tree, frame, variable.dtype)
        return self.truth(tree, frame)

    def checked(self, x: Any) -> Any:
        if not abs(self.numbers.value(x)) < LARGEST:
            raise Unsuitable("too large")
        return x

    def near(self, distance: float) -> None:
        self.closest = min(self.closest, abs(distance))

    def extremum(self, name: str, a: Any, b: Any) -> Any:
        if not self.numbers.same(a, b):
            self.tie = min(self.tie, abs(self.numbers.value(a) - self.numbers.value(b)))
        return self.numbers.extremum(name, a, b)

    def float(self, tree: Tree, frame: Frame) -> Any:
        numbers = self.numbers
        self.work += 1 + (self.program.cells if tree[0] == "total" else 0)
        if self.work > WORK:
            raise Unsuitable("too long")
        match tree:
            case ("c", number):
                return number
            case ("v", name):
                return frame.variables[name]
            case ("x" | "e" as name,):
                return self.leaves[name][frame.lane]
            case ("s",):
                return self.leaves["s"][0]
            case ("T", index):
                return self.leaves["T"][read_position(self.integer(index, frame), self.program.table)]
            case ("k", depth):
                return 0.1 * frame.counters[depth] if depth < len(frame.counters) else 0.0
            case ("row", depth):
                return flat(frame.rows[depth])[0] if depth < len(frame.rows) else 0.0
            case ("i", name):
                return 0.1 * frame.variables[name]
            case ("b", name):
                return float(frame.variables[name])
            case ("where", condition, left, right):
                return self.float(left if self.truth(condition, frame) else right, frame)
            case ("dot", left, right):
                return self.dot(self.vector(left, frame), self.vector(right, frame))
            case ("element", name, index):
                return frame.variables[name][read_position(self.integer(index, frame), self.program.width)]
            case ("entry", name, i, j):
                return frame.variables[name][i][j]
            case ("cell", name, index):
                return frame.cells[name][read_position(self.integer(index, frame), self.program.cells)]
            case ("total", name):
                return self.sum(numbers.unary("sin", v) for cell in frame.cells[name] for v in flat(cell))
            case ("crossed", how, name, depth):
                return self.crossed(how, name, self.float(("k", depth), frame), frame)
            case ("mean", inner):
                return numbers.mul(1.0 / len(self.group), self.sum([self.float(inner, f) for f in self.group]))
            case ("stop", inner):
                return numbers.stop(self.float(inner, frame))
        return self.checked(self.arithmetic(tree[0], [self.float(t, frame) for t in tree[1:]]))

    def crossed(self, how: str, name: str, counter: float, frame: Frame) -> Any:
        """A mean over all lanes, or another lane's value, of something that no lane changes."""
        numbers, others = self.numbers, self.leaves[name]
        found = [numbers.unary("tanh", numbers.mul(1.0 + counter, v)) for v in others]
        if self.program.style != "lanes":
            return found[frame.lane]
        return numbers.mul(1.0 / len(found), self.sum(found)) if how == "mean" else found[-1 - frame.lane]

    def arithmetic(self, word: str, values: list[Any]) -> Any:
        numbers = self.numbers
        if len(values) == 1:
            if word == "abs":
                self.tie = min(self.tie, abs(numbers.value(values[0])))
            return numbers.unary(word, values[0])
        left, right = values
        match word:
            case "sub":
                return numbers.add(left, numbers.mul(-1.0, right))
            case "div" | "atan":
                below = numbers.add(1.5, numbers.unary("square", right))
                quotient = numbers.mul(left, numbers.unary("inverse", below))
                return quotient if word == "div" else numbers.unary("atan", quotient)
            case "min" | "max":
                return self.extremum(word, left, right)
        return numbers.add(left, right) if word == "add" else numbers.mul(left, right)

    def sum(self, values: Iterable[Any]) -> Any:
        total: Any = 0.0
        for value in values:
            total = self.numbers.add(total, value)
        return total

    def dot(self, left: list[Any], right: list[Any]) -> Any:
        return self.sum(self.numbers.mul(a, b) for a, b in zip(left, right, strict=True))

    def table_row(self, row: int) -> list[Any]:
        width = self.program.width
        return self.leaves["R"][row * width : (row + 1) * width]

    def vector(self, tree: Tree, frame: Frame) -> list[Any]:
        numbers, width = self.numbers, self.program.width
        match tree:
            case ("v", name):
                return frame.variables[name]
            case ("c", number):
                return [number * (j + 1) / width for j in range(width)]
            case ("R", index):
                return self.table_row(read_position(self.integer(index, frame), self.program.table))
            case ("row", depth):
                row = flat(frame.rows[depth]) if depth < len(frame.rows) else [0.0]
                return row * width if len(row) == 1 else row
            case ("cell", name, index):
                return frame.cells[name][read_position(self.integer(index, frame), self.program.cells)]
            case ("scale", factor, vector):
                value = self.float(factor, frame)
                return [self.checked(numbers.mul(value, v)) for v in self.vector(vector, frame)]
            case ("times", name, vector):
                right = self.vector(vector, frame)
                return [self.checked(self.dot(row, right)) for row in frame.variables[name]]
            case ("sin" | "tanh" | "half" as word, vector):
                return [numbers.unary(word, v) for v in self.vector(vector, frame)]
        left, right = [self.vector(t, frame) for t in tree[1:]]
        return [self.checked(self.arithmetic(tree[0], [a, b])) for a, b in zip(left, right, strict=True)]

    def matrix(self, tree: Tree, frame: Frame) -> list[list[Any]]:
        numbers = self.numbers
        match tree:
            case ("v", name):
                return frame.variables[name]
            case ("outer", left, right):
                rows = self.vector(right, frame)
                return [[numbers.mul(a, b) for b in rows] for a in self.vector(left, frame)]
            case ("tanh" | "half" as word, inner):
                return [[numbers.unary(word, v) for v in row] for row in self.matrix(inner, frame)]
        left, right = [self.matrix(t, frame) for t in tree[1:]]
        if tree[0] == "add":
            return [[numbers.add(a, b) for a, b in zip(r, s, strict=True)] for r, s in zip(left, right, strict=True)]
        return [[self.checked(self.dot(row, list(column))) for column in zip(*right, strict=True)] for row in left]

    def integer(self, tree: Tree, frame: Frame, dtype: str = "int64") -> int:
        """Computed in `dtype`, wrapping after each step."""
        return wrapped(self.unwrapped(tree, frame, dtype), dtype)

    def unwrapped(self, tree: Tree, frame: Frame, dtype: str) -> int:
        sub = lambda t: self.integer(t, frame, dtype)
        match tree:
            case ("as", inner, argument):
                return self.integer(argument, frame, inner)
            case ("c", number):
                return number
            case ("v", name):
                return frame.variables[name]
            case ("u",):
                return int(self.inputs.arrays["u"])
            case ("k", depth):
                return frame.counters[depth] if depth < len(frame.counters) else 0
            case ("J", index):
                return int(self.inputs.arrays["J"][read_position(self.integer(index, frame), self.program.table)])
            case ("cell", name, index):
                return frame.cells[name][read_position(self.integer(index, frame), self.program.cells)]
            case ("floor", argument, scale):
                value = self.numbers.value(self.float(argument, frame)) * scale
                self.near(value - round(value))
                return min(max(math.floor(value), int(np.iinfo(dtype).min)), int(np.iinfo(dtype).max))
            case ("where", condition, left, right):
                return sub(left if self.truth(condition, frame) else right)
            case ("add", left, right):
                return sub(left) + sub(right)
            case ("mul", left, right):
                return sub(left) * sub(right)
            case ("mod", left, right):
                return sub(left) % right
        (name,) = tree
        assert name in PER_LANE
        return int(self.inputs.arrays[name].ravel()[frame.lane])

    def truth(self, tree: Tree, frame: Frame) -> bool:
        match tree:
            case ("less", left, right):
                a, b = [self.numbers.value(self.float(t, frame)) for t in (left, right)]
                self.near(a - b)
                return a < b
            case ("fewer", left, right):
                return self.integer(left, frame) < self.integer(right, frame)
            case ("odd", argument):
                return self.integer(argument, frame) % 2 == 1
            case ("v", name):
                return frame.variables[name]
            case ("not", argument):
                return not self.truth(argument, frame)
            case ("and", left, right):
                both = [self.truth(t, frame) for t in (left, right)]
                return all(both)
        return tree[1]


def flat(value: Any) -> list[Any]:
    """Numbers of a number, a vector or a matrix."""
    return [v for part in value for v in flat(part)] if isinstance(value, list) else [value]
