"""Random structured programs over lanes: nests to depth 4, branches, per-lane and value-dependent
trips, integer and boolean carries, gathers, scatters.

One seed is one `Program`, a small syntax tree. `run_python` runs it lane by lane on Python floats and
records every decision it takes; `run_tensors` builds it with the library. `check_program` compares the
values, and the gradients with central differences of the Python run, leaving out a coordinate where a
decision changes within the difference.

    python tests/programs/random_programs.py --count 1000 --first 0 --devices cpu --sizes small,wide
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import loopgrad as lg

FLOATS = 3
STEP = 1e-6
MOST_DIFFERENCES = 8  # of one array; each takes two runs in Python

Tree = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """`statements` act on each lane's floats, integer, flag, and on cells that all lanes add to.
    `mapped`: built as `vmap` of a scalar function (then each lane has cells of its own)."""

    seed: int
    statements: tuple[Tree, ...]
    mapped: bool


class Generator:
    """Draws the statements of one program."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def program(self, seed: int) -> Program:
        mapped = self.draw.random() < 0.5
        return Program(seed, self.block(depth=0, size=self.draw.randint(2, 4), loops=0), mapped)

    def block(self, depth: int, size: int, loops: int) -> tuple[Tree, ...]:
        return tuple(self.statement(depth, loops) for _ in range(size))

    def statement(self, depth: int, loops: int) -> Tree:
        nested = ["for", "while", "if"] if depth < 4 else []
        kind = self.draw.choice(["float", "float", "integer", "flag", "scatter", *nested])
        inner = lambda extra: self.block(depth + 1, self.draw.randint(1, 2), loops + extra)
        match kind:
            case "float":
                return ("float", self.draw.randrange(FLOATS), self.expression(2))
            case "integer":
                return ("integer", self.draw.choice([1, 2, 3]), self.draw.randint(0, 4))
            case "flag":
                return ("flag", self.condition())
            case "scatter":
                return ("scatter", self.draw.randint(0, 5), self.expression(1))
            case "if":
                return ("if", self.condition(), inner(0), inner(0))
            case "while":
                limit = self.draw.uniform(0.5, 3.0)
                return ("while", limit, (24, 4, 2, 2, 2)[loops], inner(1))
            case _:
                bound = self.draw.choice(["lane", "lane", "integer", "constant"])
                return ("for", bound, (64, 5, 3, 2, 2)[loops], self.draw.randint(0, 3), inner(1))

    def expression(self, depth: int) -> Tree:
        leaf = [("variable", self.draw.randrange(FLOATS)), ("number", round(self.draw.uniform(-1, 1), 3))]
        leaf += [("integer",), ("gather", self.draw.randint(0, 5))]
        if depth == 0:
            return self.draw.choice(leaf)
        sub = lambda: self.expression(depth - 1)
        binary = (self.draw.choice(["add", "mul", "sub", "min", "max"]), sub(), sub())
        unary = (self.draw.choice(["sin", "tanh"]), sub())
        return self.draw.choice([binary, binary, unary, ("where", self.condition(), sub(), sub()), *leaf])

    def condition(self) -> Tree:
        kind = self.draw.choice(["less", "less", "odd", "flag"])
        return (kind, self.draw.randrange(FLOATS), round(self.draw.uniform(-0.5, 0.8), 3))


@dataclass(frozen=True)
class Sizes:
    """Lanes, elements of the gather table, cells to scatter into."""

    lanes: int
    table: int
    cells: int

    def row(self, number: Any) -> Any:
        """A row of the table for an integer."""
        return number * (self.table // 4) % self.table

    def cell(self, number: Any) -> Any:
        """A cell for an integer; out of range where that is out of 0..2."""
        return number * (self.cells // 3)


SIZES = {"small": Sizes(5, 4, 3), "wide": Sizes(5, 300, 321), "many": Sizes(300, 4, 3)}
SMALL = SIZES["small"]  # wide: more than registers hold; many: more lanes than one chunk of vectors


@dataclass(frozen=True)
class Inputs:
    """What a program runs on: starts, gather table, trip counts and first integers."""

    x: np.ndarray
    table: np.ndarray
    trips: np.ndarray
    integers: np.ndarray
    sizes: Sizes = SMALL

    @staticmethod
    def drawn(seed: int, sizes: Sizes = SMALL) -> Inputs:
        generator = np.random.default_rng(seed)
        trips = generator.integers(0, 65, sizes.lanes)
        trips[generator.integers(sizes.lanes)] = 0
        return Inputs(
            generator.uniform(-0.9, 0.9, sizes.lanes),
            generator.uniform(-1, 1, sizes.table),
            trips,
            generator.integers(0, 4, sizes.lanes),
            sizes,
        )


class PythonLane:
    """One lane on Python floats. `decisions` lists every comparison taken."""

    def __init__(self, inputs: Inputs, lane: int, cells: list[float]) -> None:
        self.inputs, self.lane, self.cells = inputs, lane, cells
        start = float(inputs.x[lane])
        self.floats = [start * (k + 1) / FLOATS for k in range(FLOATS)]
        self.integer, self.flag = int(inputs.integers[lane]), False
        self.decisions: list[int] = []

    def decide(self, outcome: bool) -> bool:
        self.decisions.append(int(outcome))
        return outcome

    def run(self, block: tuple[Tree, ...]) -> None:
        for statement in block:
            self.execute(statement)

    def execute(self, statement: Tree) -> None:
        match statement:
            case ("float", k, tree):
                self.floats[k] = math.sin(self.value(tree)) * 0.8 + 0.15 * self.floats[k]
            case ("integer", factor, offset):
                self.integer = (self.integer * factor + offset) % 7
            case ("flag", tree):
                self.flag = self.truth(tree)
            case ("scatter", offset, tree):
                index = self.inputs.sizes.cell(self.integer + offset - 2)
                if 0 <= index < self.inputs.sizes.cells:
                    self.cells[index] += self.value(tree)
            case ("if", tree, then, otherwise):
                self.run(then if self.truth(tree) else otherwise)
            case ("while", limit, cap, body):
                rounds, level = 0, abs(self.floats[0])
                while self.decide(level < limit) and rounds < cap:
                    self.run(body)
                    rounds, level = rounds + 1, level * 1.3 + 0.3 * abs(self.floats[1])
            case ("for", bound, cap, constant, body):
                trips = {"lane": int(self.inputs.trips[self.lane]), "integer": self.integer, "constant": constant}
                for k in range(trips[bound] % (cap + 1)):
                    self.floats[2] += 0.01 * k
                    self.run(body)

    def truth(self, tree: Tree) -> bool:
        kind, k, threshold = tree
        if kind == "less":
            return self.decide(self.floats[k] < threshold)
        return self.flag if kind == "flag" else self.integer % 2 == 1

    def value(self, tree: Tree) -> float:
        match tree:
            case ("variable", k):
                return self.floats[k]
            case ("number", number):
                return float(number)
            case ("integer",):
                return 0.1 * self.integer
            case ("gather", offset):
                return float(self.inputs.table[self.inputs.sizes.row(self.integer + offset)])
            case ("where", condition, left, right):
                chosen = self.truth(condition)
                return self.value(left) if chosen else self.value(right)
            case ("sin", argument):
                return math.sin(self.value(argument))
            case ("tanh", argument):
                return math.tanh(self.value(argument))
        left, right = self.value(tree[1]), self.value(tree[2])
        if tree[0] in ("min", "max"):
            smaller = self.decide(left < right)
            return left if smaller == (tree[0] == "min") else right
        return {"add": left + right, "mul": left * right, "sub": left - right}[tree[0]]


def run_python(program: Program, inputs: Inputs) -> tuple[float, list[int]]:
    """The program's loss and every decision taken on the way."""
    sizes = inputs.sizes
    total, decisions, cells = 0.0, [], [0.0] * sizes.cells
    for lane in range(sizes.lanes):
        own = [0.0] * sizes.cells if program.mapped else cells
        state = PythonLane(inputs, lane, own)
        state.run(program.statements)
        decisions += state.decisions
        total += sum((k + 1) * v for k, v in enumerate(state.floats))
        if program.mapped:
            total += sum((k + 1) * c for k, c in enumerate(own))
    if not program.mapped:
        total += sum((k + 1) * c for k, c in enumerate(cells))
    return total, decisions


State = dict[str, Any]


class TensorLanes:
    """The same statements on tensors: of one lane under `vmap`, or of all lanes at once."""

    def __init__(self, table: Any, trips: Any, sizes: Sizes) -> None:
        self.table, self.trips, self.sizes = table, trips, sizes

    def run(self, block: tuple[Tree, ...], state: State) -> State:
        for statement in block:
            state = self.execute(statement, state)
        return state

    def execute(self, statement: Tree, state: State) -> State:
        floats, integer = state["floats"], state["integer"]
        match statement:
            case ("float", k, tree):
                new = lg.sin(self.value(tree, state)) * 0.8 + 0.15 * floats[k]
                return {**state, "floats": (*floats[:k], new, *floats[k + 1 :])}
            case ("integer", factor, offset):
                return {**state, "integer": (integer * factor + offset) % 7}
            case ("flag", tree):
                return {**state, "flag": self.truth(tree, state)}
            case ("scatter", offset, tree):
                index = self.sizes.cell(integer + offset - 2)
                index = lg.where(index < 0, self.sizes.cells, index)  # out of range on purpose: dropped
                return {**state, "cells": state["cells"].at[index].add(self.value(tree, state))}
            case ("if", tree, then, otherwise):
                branches = [lambda s, block=block: self.run(block, s) for block in (then, otherwise)]
                return lg.cond(self.truth(tree, state), *branches, state)
            case ("while", limit, cap, body):
                return self.repeat_while(limit, cap, body, state)
        return self.repeat_for(statement, state)

    def repeat_while(self, limit: float, cap: int, body: tuple[Tree, ...], state: State) -> State:
        def step(carry: tuple[Any, Any, State]) -> tuple[Any, Any, State]:
            rounds, level, state = carry
            state = self.run(body, state)
            return rounds + 1, level * 1.3 + 0.3 * lg.abs(state["floats"][1]), state

        start = (lg.zeros_like(state["integer"]), lg.abs(state["floats"][0]), state)
        return lg.while_loop(lambda c: (c[1] < limit) & (c[0] < cap), step, start)[2]

    def repeat_for(self, statement: Tree, state: State) -> State:
        _, bound, cap, constant, body = statement
        counts = {"lane": self.trips, "integer": state["integer"], "constant": constant}
        count = counts[bound] % (cap + 1)

        def step(k: Any, state: State) -> State:
            first, second, third = state["floats"]
            third = third + 0.01 * lg.astype(k, lg.float64)
            return self.run(body, {**state, "floats": (first, second, third)})

        return lg.fori_loop(0, count, step, state)

    def truth(self, tree: Tree, state: State) -> Any:
        kind, k, threshold = tree
        if kind == "less":
            return state["floats"][k] < threshold
        return state["flag"] if kind == "flag" else state["integer"] % 2 == 1

    def value(self, tree: Tree, state: State) -> Any:
        sub = lambda index: self.value(tree[index], state)
        match tree[0]:
            case "variable":
                return state["floats"][tree[1]]
            case "number":
                return tree[1] + lg.zeros_like(state["floats"][0])
            case "integer":
                return 0.1 * lg.astype(state["integer"], lg.float64)
            case "gather":
                return self.table[self.sizes.row(state["integer"] + tree[1])]
            case "where":
                return lg.where(self.truth(tree[1], state), sub(2), sub(3))
        functions: dict[str, Callable[..., Any]] = {
            "sin": lg.sin, "tanh": lg.tanh, "add": lg.add, "mul": lg.multiply, "sub": lg.subtract,
            "min": lg.minimum, "max": lg.maximum,
        }  # fmt: skip
        return functions[tree[0]](*[sub(k) for k in range(1, len(tree))])


def start_state(x: Any, integer: Any, flag: Any, sizes: Sizes) -> State:
    floats = tuple(x * (k + 1) / FLOATS for k in range(FLOATS))
    return {"floats": floats, "integer": integer, "flag": flag, "cells": lg.zeros((sizes.cells,), dtype=lg.float64)}


def weighted(state: State) -> Any:
    total = sum((k + 1) * v for k, v in enumerate(state["floats"]))
    return total, lg.sum(state["cells"] * lg.arange(1.0, state["cells"].shape[0] + 1))


def run_tensors(program: Program, inputs: Inputs) -> Callable[[Any, Any], Any]:
    """The program's loss as a function of starts and table."""
    trips, integers, sizes = lg.asarray(inputs.trips), lg.asarray(inputs.integers), inputs.sizes

    def all_lanes(x: Any, table: Any) -> Any:
        state = start_state(x, integers, lg.zeros((sizes.lanes,), dtype=lg.bool), sizes)
        floats, cells = weighted(TensorLanes(table, trips, sizes).run(program.statements, state))
        return lg.sum(floats) + cells

    def mapped(x: Any, table: Any) -> Any:
        def lane(x: Any, trips: Any, integer: Any) -> Any:
            state = start_state(x, integer, lg.asarray(False), sizes)
            floats, cells = weighted(TensorLanes(table, trips, sizes).run(program.statements, state))
            return floats + cells

        return lg.sum(lg.vmap(lane)(x, trips, integers))

    return mapped if program.mapped else all_lanes


Run = Callable[[Program, Inputs], tuple[float, list[int]]]


def numeric_gradient(program: Program, inputs: Inputs, which: str, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Central differences of the Python run, and where they can be trusted."""
    point = getattr(inputs, which)
    gradient, smooth = np.zeros_like(point), np.zeros(point.shape, dtype=bool)
    _, decisions = run(program, inputs)
    few = np.linspace(0, point.size - 1, MOST_DIFFERENCES).astype(int)
    for index in range(point.size) if point.size <= MOST_DIFFERENCES else few:
        sides = []
        for sign in (1.0, -1.0):
            moved = point.copy()
            moved[index] += sign * STEP
            sides.append(run(program, replace(inputs, **{which: moved})))
        gradient[index] = (sides[0][0] - sides[1][0]) / (2 * STEP)
        smooth[index] = sides[0][1] == decisions == sides[1][1]
    return gradient, smooth


def check_program(seed: int, device: str, sizes: Sizes = SMALL) -> None:
    """Build, run and differentiate the program of `seed`; AssertionError with its text where it differs."""
    program, inputs = Generator(seed).program(seed), Inputs.drawn(seed, sizes)
    with lg.default_device(device):
        loss = run_tensors(program, inputs)
        value, slopes = lg.value_and_grad(loss, argnums=(0, 1))(lg.asarray(inputs.x), lg.asarray(inputs.table))
        got = float(value), [np.asarray(s) for s in slopes]
    compare(program, inputs, got, f"seed {seed} on {device}, {sizes}: {program}", run_python)


def compare(program: Program, inputs: Inputs, got: tuple[float, list[np.ndarray]], message: str, run: Run) -> None:
    """Value and gradients (of starts and table) with those of the Python run. Differences of a large loss are known no
    better than it is rounded."""
    want, _ = run(program, inputs)
    rounding = 4 * float(np.finfo(np.float64).eps) * abs(want) / STEP
    np.testing.assert_allclose(got[0], want, rtol=1e-11, atol=1e-11, err_msg=message)
    for which, slope in zip(("x", "table"), got[1], strict=True):
        numeric, smooth = numeric_gradient(program, inputs, which, run)
        scale = 1.0 + np.abs(numeric).max()
        tolerance = 1e-6 * scale + rounding
        np.testing.assert_allclose(slope[smooth], numeric[smooth], rtol=1e-5, atol=tolerance, err_msg=message)


def main(check: Callable[[int, str, Sizes], None]) -> None:
    """Check as many seeds as the command line asks for."""
    parser = argparse.ArgumentParser(description="check random structured programs")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--devices", default="cpu,interpreter")
    parser.add_argument("--sizes", default="small", help=", ".join(SIZES))
    chosen = parser.parse_args()
    failures = 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        for device, sizes in itertools.product(chosen.devices.split(","), chosen.sizes.split(",")):
            try:
                check(seed, device, SIZES[sizes])
            except Exception as error:  # any failure of one seed is reported and the run goes on
                failures += 1
                first_line = (str(error).strip() or "no message").splitlines()[0]
                print(f"seed {seed} on {device}, {sizes}: {type(error).__name__}: {first_line}", flush=True)
    print(f"{chosen.count} programs, {failures} failures")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main(check_program)
