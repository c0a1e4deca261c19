"""Random structured programs with what `random_programs` doesn't draw: a row of floats in each lane, read and
written at computed places; loops that leave early, count between two bounds of their lane or scan; a
switch of three; functions that are computed again in the reverse pass; quotients and exponentials.

    python tests/programs/random_rows.py --count 1000 --first 0 --devices cpu --sizes small,many
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from random_programs import (
    FLOATS,
    SMALL,
    Generator,
    Inputs,
    Program,
    PythonLane,
    Sizes,
    State,
    TensorLanes,
    Tree,
    compare,
    main,
    start_state,
    weighted,
)

import loopgrad as lg

ROW = 5
SCANNED = (0.3, -0.7, 0.9)
BUDGETS = (None, None, 1500)  # bytes


class RowGenerator(Generator):
    """Draws the statements of one program."""

    def statement(self, depth: int, loops: int) -> Tree:
        nested = ["until", "range", "scan", "switch", "again"] if depth < 4 else []
        kind = self.draw.choice(["plain", "plain", "put", "put", *nested])
        inner = lambda extra: self.block(depth + 1, self.draw.randint(1, 2), loops + extra)
        match kind:
            case "put":
                return (
                    "put",
                    self.draw.choice(["set", "add", "multiply"]),
                    self.draw.randint(-2, 4),
                    self.expression(1),
                )
            case "until":
                condition = ("less", self.draw.randrange(FLOATS), round(self.draw.uniform(-0.5, 0.8), 3))
                return ("until", condition, (24, 4, 2, 2, 2)[loops], inner(1))
            case "range":
                return ("range", self.draw.randint(-3, 3), (20, 5, 3, 2, 2)[loops], inner(1))
            case "scan":
                return ("scan", self.draw.random() < 0.5, inner(1))
            case "switch":
                return ("switch", self.draw.randint(-1, 1), inner(0), inner(0), inner(0))
            case "again":
                return ("again", inner(0))
        return super().statement(depth, loops)

    def expression(self, depth: int) -> Tree:
        if self.draw.random() < 0.6:
            return super().expression(depth)
        if depth == 0:
            return ("row", self.draw.randint(-2, 4))
        sub = lambda: self.expression(depth - 1)
        kind = self.draw.choice(["row", "quotient", "bell", "absolute"])
        return {"row": ("row", self.draw.randint(-2, 4)), "quotient": (kind, sub(), sub())}.get(kind) or (kind, sub())


class PythonRowLane(PythonLane):
    """One lane on Python floats."""

    def __init__(self, inputs: Inputs, lane: int, cells: list[float]) -> None:
        super().__init__(inputs, lane, cells)
        self.row = [self.floats[2] * k for k in range(ROW)]

    def place(self, offset: int) -> int:
        return (self.integer + offset) % ROW

    def execute(self, statement: Tree) -> None:
        match statement:
            case ("put", kind, offset, tree):
                at, value = self.place(offset), self.value(tree)
                old = self.row[at]
                self.row[at] = {"set": math.sin(value), "add": old + 0.1 * value, "multiply": old * math.tanh(value)}[
                    kind
                ]
            case ("until", condition, cap, body):
                rounds, leave = 0, False
                while not leave and rounds < cap:
                    self.run(body)
                    leave = not self.truth(condition)
                    rounds += 1
            case ("range", lower, cap, body):
                for k in range(self.integer + lower, int(self.inputs.trips[self.lane]) % (cap + 1)):
                    self.floats[0] = 0.9 * self.floats[0] + 0.01 * k * self.row[k % ROW]
                    self.run(body)
            case ("scan", backwards, body):
                total = 0.0
                for x in reversed(SCANNED) if backwards else SCANNED:
                    self.floats[1] = 0.8 * self.floats[1] + x * self.floats[0]
                    self.run(body)
                    total += x * self.floats[2]
                self.floats[2] = math.sin(total)
            case ("switch", offset, *blocks):
                self.run(blocks[min(max(self.integer + offset, 0), 2)])
            case ("again", body):
                self.run(body)
            case _:
                super().execute(statement)

    def value(self, tree: Tree) -> float:
        match tree:
            case ("row", offset):
                return self.row[self.place(offset)]
            case ("quotient", above, below):
                return self.value(above) / (1.0 + self.value(below) ** 2)
            case ("bell", argument):
                return math.exp(-(self.value(argument) ** 2))
            case ("absolute", argument):
                value = self.value(argument)
                return value if self.decide(value > 0.0) else -value
        return super().value(tree)


class TensorRowLanes(TensorLanes):
    """The same statements on tensors. `lanes`: where the rows are those of all lanes, the lanes' numbers."""

    def __init__(self, table: Any, trips: Any, sizes: Sizes, budget: int | None, lanes: Any = None) -> None:
        super().__init__(table, trips, sizes)
        self.budget, self.lanes = budget, lanes

    def place(self, state: State, offset: Any) -> Any:
        at = (state["integer"] + offset) % ROW
        return at if self.lanes is None else (self.lanes, at)

    def execute(self, statement: Tree, state: State) -> State:
        match statement:
            case ("put", kind, offset, tree):
                value, at = self.value(tree, state), state["row"].at[self.place(state, offset)]
                given = {"set": lg.sin, "add": lambda v: 0.1 * v, "multiply": lg.tanh}[kind](value)
                return {**state, "row": getattr(at, kind)(given)}
            case ("until", condition, cap, body):
                return self.repeat_until(condition, cap, body, state)
            case ("range", lower, cap, body):
                return self.repeat_range(state["integer"] + lower, self.trips % (cap + 1), body, state)
            case ("scan", backwards, body):
                return self.scanned(backwards, body, state)
            case ("switch", offset, *blocks):
                branches = [lambda s, block=block: self.run(block, s) for block in blocks]
                return lg.switch(state["integer"] + offset, branches, state)
            case ("again", body):
                return lg.checkpoint(lambda s: self.run(body, s))(state)
        return super().execute(statement, state)

    def repeat_until(self, condition: Tree, cap: int, body: tuple[Tree, ...], state: State) -> State:
        def step(carry: tuple[Any, Any, State]) -> tuple[Any, Any, State]:
            rounds, _, state = carry
            state = self.run(body, state)
            return rounds + 1, ~self.truth(condition, state), state

        start = (lg.zeros_like(state["integer"]), lg.zeros_like(state["flag"]), state)
        going = lambda c: ~c[1] & (c[0] < cap)
        return lg.while_loop(going, step, start, memory_budget=self.budget)[2]

    def repeat_range(self, lower: Any, upper: Any, body: tuple[Tree, ...], state: State) -> State:
        def step(k: Any, state: State) -> State:
            first, second, third = state["floats"]
            read = state["row"][k % ROW if self.lanes is None else (self.lanes, k % ROW)]
            first = 0.9 * first + 0.01 * lg.astype(k, lg.float64) * read
            return self.run(body, {**state, "floats": (first, second, third)})

        return lg.fori_loop(lower, upper, step, state, memory_budget=self.budget)

    def scanned(self, backwards: bool, body: tuple[Tree, ...], state: State) -> State:
        def step(state: State, x: Any) -> tuple[State, Any]:
            first, second, third = state["floats"]
            state = self.run(body, {**state, "floats": (first, 0.8 * second + x * first, third)})
            return state, x * state["floats"][2]

        state, parts = lg.scan(step, state, lg.asarray(SCANNED), reverse=backwards)
        first, second, _ = state["floats"]
        return {**state, "floats": (first, second, lg.sin(lg.sum(parts, axis=0)))}

    def value(self, tree: Tree, state: State) -> Any:
        match tree:
            case ("row", offset):
                return state["row"][self.place(state, offset)]
            case ("quotient", above, below):
                return self.value(above, state) / (1.0 + self.value(below, state) ** 2)
            case ("bell", argument):
                return lg.exp(-(self.value(argument, state) ** 2))
            case ("absolute", argument):
                return lg.abs(self.value(argument, state))
        return super().value(tree, state)


def run_python(program: Program, inputs: Inputs) -> tuple[float, list[int]]:
    """The program's loss and every decision taken on the way."""
    cells = [0.0] * inputs.sizes.cells
    total, decisions = 0.0, []
    for lane in range(inputs.sizes.lanes):
        own = [0.0] * inputs.sizes.cells if program.mapped else cells
        state = PythonRowLane(inputs, lane, own)
        state.run(program.statements)
        decisions += state.decisions
        total += sum((k + 1) * v for values in (state.floats, state.row) for k, v in enumerate(values))
        total += sum((k + 1) * c for k, c in enumerate(own)) if program.mapped else 0.0
    return total + (0.0 if program.mapped else sum((k + 1) * c for k, c in enumerate(cells))), decisions


def run_tensors(program: Program, inputs: Inputs) -> Callable[[Any, Any], Any]:
    """The program's loss as a function of starts and table."""
    trips, integers, sizes = lg.asarray(inputs.trips), lg.asarray(inputs.integers), inputs.sizes
    budget = BUDGETS[program.seed % len(BUDGETS)]

    def outcome(x: Any, integer: Any, flag: Any, lanes: TensorRowLanes) -> tuple[Any, Any]:
        state = start_state(x, integer, flag, sizes)
        row = state["floats"][2][..., None] * lg.arange(float(ROW))
        state = lanes.run(program.statements, {**state, "row": row})
        floats, cells = weighted(state)
        return floats + lg.sum(state["row"] * lg.arange(1.0, ROW + 1), axis=-1), cells

    def all_lanes(x: Any, table: Any) -> Any:
        lanes = TensorRowLanes(table, trips, sizes, budget, lg.arange(sizes.lanes))
        floats, cells = outcome(x, integers, lg.zeros((sizes.lanes,), dtype=lg.bool), lanes)
        return lg.sum(floats) + cells

    def mapped(x: Any, table: Any) -> Any:
        def lane(x: Any, trips: Any, integer: Any) -> Any:
            floats, cells = outcome(x, integer, lg.asarray(False), TensorRowLanes(table, trips, sizes, budget))
            return floats + cells

        return lg.sum(lg.vmap(lane)(x, trips, integers))

    return mapped if program.mapped else all_lanes


def check_rows(seed: int, device: str, sizes: Sizes = SMALL) -> None:
    """Build, run and differentiate the program of `seed`; AssertionError with its text where it differs."""
    program, inputs = RowGenerator(seed).program(seed), Inputs.drawn(seed, sizes)
    with lg.default_device(device):
        loss, x, table = run_tensors(program, inputs), lg.asarray(inputs.x), lg.asarray(inputs.table)
        value, slopes = lg.value_and_grad(loss, argnums=(0, 1))(x, table)
        got = float(value), [np.asarray(s) for s in slopes]
        along = (lg.cos(x + 1.0), lg.sin(table + 1.0))
        tangent = float(lg.jvp(loss, (x, table), along)[1])
    compare(program, inputs, got, f"seed {seed} on {device}, {sizes}: {program}", run_python)
    products = [s * np.asarray(a) for s, a in zip(got[1], along, strict=True)]
    scale = 1.0 + sum(float(np.abs(p).sum()) for p in products)
    assert abs(tangent - sum(float(p.sum()) for p in products)) < 1e-11 * scale, f"seed {seed}: jvp, {program}"


if __name__ == "__main__":
    main(check_rows)
