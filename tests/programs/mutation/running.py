"""Runs a program: by NumPy with Python's loops, or on loopgrad with loops and branches as nodes.

Statements that write are the same code for both. What a body, a branch or a checkpointed function gets are copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from nested_programs import Block, Statement, statements

import loopgrad as lg

from .drawing import Mutations, State, floats_of

VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "tail": lambda x, j: x[1:],
    "head": lambda x, j: x[:-1],
    "back": lambda x, j: x[::-1],
    "even": lambda x, j: x[::2],
    "column": lambda x, j: x.reshape(-1, 1)[:, 0],
    "lifted": lambda x, j: x[None][0],
    "all": lambda x, j: x[...],
    "number": lambda x, j: x[j % max(x.shape[0], 1)][None] if x.shape[0] else x,
    "first": lambda x, j: x[:1],
    "transposed": lambda m, j: m.T,
    "rows": lambda m, j: m[1:],
    "turned": lambda m, j: m[::-1, ::-1],
    "row": lambda m, j: m[-1],
    "row j": lambda m, j: m[j % m.shape[0]],
    "column j": lambda m, j: m[:, j % m.shape[0]],
    "flat": lambda m, j: m.reshape(-1)[: m.shape[0]],
    "columns": lambda m, j: m[:, ::2].T,
    "corner": lambda m, j: m[:1, -1:],
    "row of T": lambda m, j: m.T[0],
}


class Running:
    """What both sides share."""

    xp: Any
    dtype: Any  # of floats

    def __init__(self, program: Mutations) -> None:
        self.program = program
        self.outer: list[State] = []

    def run(self, block: Block, s: State) -> State:
        for statement in block:
            s = self.execute(statement, s)
        return s

    def within(self, block: Block, outer: State) -> Callable[[State], State]:
        """A body: what is around it can be read in it."""

        def body(s: State) -> State:
            self.outer.append(outer)
            try:
                return self.run(block, dict(s))
            finally:
                self.outer.pop()

        return body

    def execute(self, statement: Statement, s: State) -> State:
        return getattr(self, "_" + statement[0].replace(" ", "_"))(s, *statement[1:])

    # ---- expressions

    def value(self, tree: Any, s: State) -> Any:
        xp, j = self.xp, s["j"]
        match tree:
            case ("name", x):
                return s[x]
            case ("number", number):
                return xp.full(s["a"].shape, number, dtype=self.dtype)
            case ("outer", x):
                return (self.outer[-1] if self.outer else s)[x].copy()
            case ("s", _):
                return s["s"] + xp.zeros(s["a"].shape)
            case ("line", view):
                return VIEWS[view](s["m"], j)
            case ("gather", x):
                return s[x][s["k"] % s[x].shape[0]]
            case ("integers", _):
                return 0.1 * xp.astype(s["k"] % 5, self.dtype)
            case ("back", x):
                return s[x][::-1]
            case ("roll", x):
                return xp.roll(s[x], 1)
            case ("sin", x):
                return xp.sin(self.value(x, s))
            case ("tanh", x):
                return 0.8 * xp.sin(0.7 * self.value(x, s)) + 0.1
            case ("totals", x):
                return 0.3 * xp.cumsum(self.value(x, s))
            case ("product", x):
                return 0.3 * (s["m"] @ self.value(x, s))
            case ("where", x, y):
                return xp.where(s["p"], self.value(x, s), self.value(y, s))
        name, left, right = tree
        return getattr(xp, name)(self.value(left, s), self.value(right, s))

    # ---- statements

    def _let(self, s: State, x: str, tree: Any) -> State:
        found = self.value(tree, s)
        return {**s, x: found if tree[0] in ("name", "back", "line") else self.xp.sin(found)}

    def _same(self, s: State, x: str, y: str) -> State:
        return {**s, x: s[y]}

    def _swap(self, s: State, names: tuple[str, ...]) -> State:
        return {**s, **dict(zip(names, [s[n] for n in (*names[1:], names[0])], strict=True))}

    def _line(self, s: State, x: str, view: str) -> State:
        return {**s, x: VIEWS[view](s["m"], s["j"])}

    def _write(self, s: State, x: str, views: tuple[str, ...], how: str, tree: Any) -> State:
        part, given = s[x], self.value(tree, s)
        for view in views:
            part = VIEWS[view](part, s["j"])
        if part.shape[-1] > given.shape[0]:
            return s
        given = given[: part.shape[-1]]
        match how:
            case "set":
                part[...] = given
            case "add":
                part += 0.3 * given
            case _:
                part *= 0.9 + 0.1 * given
        return s

    def _places(self, s: State, x: str, how: str, tree: Any) -> State:
        n = s["a"].shape[0]
        k, given = s["k"] % n, 0.3 * self.value(tree, s)
        at = k if x != "m" else (k, k[::-1])
        match how:
            case "set":  # of places that meet the last one counts
                s[x][at] = given
            case "add":
                s[x][at] += given
            case "at set once":
                s[x][(s["k"] % n)[0]] = given[0] if x != "m" else given
            case _:
                return {**s, x: self.at(s[x], at, how.split()[1], given if how == "at add" else 0.8 + 0.3 * given)}
        return s

    def _mask(self, s: State, x: str, number: float) -> State:
        s[x][s["p"]] = number
        return s

    def _k(self, s: State, how: str, factor: int, offset: int) -> State:
        k, n = s["k"], s["k"].shape[0]
        match how:
            case "wrap":
                return {**s, "k": k * factor + offset}
            case "place":
                k[k[0] % n] += k[-1]
                return s
            case "shift":
                return {**s, "k": (k << 1) ^ (k >> factor)}
            case "bits":
                return {**s, "k": (k & 93) | (k ^ offset)}
        return {**s, "k": k // offset + k % factor}

    def _j(self, s: State, how: str) -> State:
        dtype = s["j"].dtype
        match how:
            case "total":
                return {**s, "j": s["j"] + 1}
            case "of k":
                return {**s, "j": self.cast(self.xp.max(s["k"] % 7), dtype)}
        return {**s, "j": s["j"] * 3 - 2 if dtype.name[0] != "u" else s["j"] * 3 + 2}

    def _p(self, s: State, x: str, bound: float) -> State:
        return {**s, "p": self.less(s[x], bound) ^ s["p"]}

    def _lane_steps(self, s: State, steps: tuple[Statement, ...], table: Any, lanes: Any) -> State:
        """One trip of lanes: what they do is elementwise, but for reads of a table and writes to rows of their own."""
        s = dict(s)
        for step in steps:
            match step:
                case ("add", x, y, c):
                    s[x] += 0.3 * self.xp.sin(s[y] + c)
                case ("same", x, y):
                    s[x] = s[y]
                case ("swap", names):
                    s.update(zip(names, [s[n] for n in (*names[1:], names[0])], strict=True))
                case ("read", x, y):
                    s[x] = 0.5 * s[y] + table[s["k"] % self.program.size]
                case ("put", how, x, c):
                    self.put(s, lanes, how, x, c)
                case ("wrap", factor, offset):
                    s["k"] = s["k"] * factor + offset
        return s

    def put(self, s: State, lanes: Any, how: str, x: str, c: float) -> None:
        at = (lanes, s["k"] % self.program.size)
        if how == "set":
            s["m"][at] = c * s[x]
        else:
            s["m"][at] += c * s[x]


class NumPyRunning(Running):
    """The oracle. `closest`: how near a decision was."""

    xp = np
    dtype = np.complex128

    def __init__(self, program: Mutations) -> None:
        super().__init__(program)
        self.decisions: list[Any] = []
        self.closest = np.inf

    def less(self, x: Any, bound: float) -> Any:
        self.closest = min(self.closest, np.min(np.abs(np.real(x) - bound)))
        found = np.real(x) < bound
        self.decisions.append(found.tolist())
        return found

    def cast(self, x: Any, dtype: Any) -> Any:
        return np.asarray(x).astype(dtype)

    def at(self, x: Any, where: Any, how: str, given: Any) -> Any:
        found = x.copy()
        getattr(np, how).at(found, where, given)
        return found

    def own(self, s: State) -> State:
        return {n: np.array(x) for n, x in s.items()}

    def called(self, block: Block, s: State, around: State) -> State:
        return self.own(self.within(block, around)(self.own(s)))

    def upper(self, s: State, bound: Any) -> int:
        return {"j": int(s["j"]) % 4, "k": int(s["k"][0]) % 3}.get(bound, bound)

    def _for(self, s: State, lower: int, upper: Any, _: Any, block: Block) -> State:
        around, carry = s, self.own(s)
        for i in range(lower, self.upper(s, upper)):
            carry["s"] = carry["s"] + 0.1 * i
            carry = self.own(self.within(block, around)(carry))
        return carry

    def _while(self, s: State, most: int, bound: float, _: Any, block: Block) -> State:
        around, carry, going, rounds = s, self.own(s), True, 0
        while rounds < most and going:
            carry = self.own(self.within(block, around)(carry))
            rounds, going = rounds + 1, bool(self.less(carry["a"].sum(), bound))
        return carry

    def _lanes(self, s: State, most: int, how: str, steps: tuple[Statement, ...]) -> State:
        n, table, found = self.program.size, s["c"].copy(), self.own(s)
        for i in range(n):
            lane = {x: np.array(s[x][i : i + 1]) for x in ("a", "b", "c", "k", "m")}
            rounds, most_of_lane = 0, int(s["k"][i]) % (most + 1) if how == "for" else most
            while rounds < most_of_lane and (how == "for" or bool(self.less(lane["a"][0], 0.4))):
                lane = self.own(self._lane_steps(lane, steps, table, np.arange(1)))
                rounds += 1
            for x, part in lane.items():
                found[x][i] = part[0]
        return found

    def _scan(self, s: State, reverse: bool, block: Block) -> State:
        around, carry, rows = s, self.own(s), s["m"].copy()
        ys: list[Any] = [None] * len(rows)
        for i in reversed(range(len(rows))) if reverse else range(len(rows)):
            carry["b"] += rows[i]
            carry = self.own(self.within(block, around)(carry))
            ys[i] = carry["a"].copy()
        return {**carry, "m": np.stack(ys)}

    def _cond(self, s: State, how: str, bound: float, yes: Block, no: Block) -> State:
        chosen = int(s["j"]) % 2 == 1 if how == "odd" else bool(self.less(s["b"].sum(), bound))
        return self.called(yes if chosen else no, s, s)

    def _switch(self, s: State, *blocks: Block) -> State:
        return self.called(blocks[min(int(s["j"]) % 4, 2)], s, s)

    def _batch(self, s: State, count: int, names: str, _: int, __: int, block: Block) -> State:
        return joined(np, [self.called(block, member(s, names, b), s) for b in range(count)], s)

    def _checkpoint(self, s: State, block: Block) -> State:
        return self.called(block, s, s)

    _compiled = _checkpoint

    def _rule(self, s: State, block: Block) -> State:
        """What is around such a function is its argument, which it may write to."""
        own = self.own(s)
        return self.own(self.within(block, own)(own))

    _tangent_rule = _exported = _rule


def member(s: State, names: str, b: int) -> State:
    """A member of a batch, in which these differ from the others'."""
    return {n: (x if n not in names or b == 0 else x ^ True if n == "p" else x + (b if n in "kj" else 0.2 * b))
            for n, x in s.items()}  # fmt: skip


def joined(xp: Any, members: list[State], s: State) -> State:
    found = {n: sum(m[n] for m in members) / len(members) for n in floats_of(s)}
    last = members[-1]
    return {**found, "k": members[0]["k"] ^ last["k"], "j": last["j"].copy(), "p": members[0]["p"] | last["p"]}


class LoopgradRunning(Running):
    """The same on tensors."""

    xp = lg
    dtype = lg.float64

    def less(self, x: Any, bound: float) -> Any:
        return x < bound

    def cast(self, x: Any, dtype: Any) -> Any:
        return lg.astype(x, dtype)

    def at(self, x: Any, where: Any, how: str, given: Any) -> Any:
        return getattr(x.at[where], how)(given)

    def _for(self, s: State, lower: int, upper: Any, budget: int | None, block: Block) -> State:
        most = {"j": lambda: s["j"] % 4, "k": lambda: s["k"][0] % 3}.get(upper, lambda: upper)()
        body = self.within(block, s)
        step = lambda i, c: body({**c, "s": c["s"] + 0.1 * i})
        return lg.fori_loop(lower, most, step, s, memory_budget=budget)

    def _while(self, s: State, most: int, bound: float, budget: int | None, block: Block) -> State:
        body = self.within(block, s)

        def step(carry: Any) -> Any:
            found = body(carry[2])
            return carry[0] + 1, found["a"].sum() < bound, found

        going = lambda c: (c[0] < most) & c[1]
        return lg.while_loop(going, step, (0, True, s), memory_budget=budget)[2]

    def _lanes(self, s: State, most: int, how: str, steps: tuple[Statement, ...]) -> State:
        table, lanes = s["c"], lg.arange(self.program.size)
        state = {x: s[x] for x in ("a", "b", "c", "k", "m")}
        one = lambda c: self._lane_steps(c, steps, table, lanes)
        if how == "for":
            found = lg.fori_loop(0, s["k"] % (most + 1), lambda i, c: one(c), state)
        else:
            start = (lg.zeros((self.program.size,), dtype=lg.int64), state)
            going = lambda c: (c[0] < most) & (c[1]["a"] < 0.4)
            found = lg.while_loop(going, lambda c: (c[0] + 1, one(c[1])), start)[1]
        return {**s, **found}

    def _scan(self, s: State, reverse: bool, block: Block) -> State:
        body = self.within(block, s)

        def step(carry: State, row: Any) -> Any:
            carry["b"] += row
            carry = body(carry)
            return carry, carry["a"]

        carry, rows = lg.scan(step, s, s["m"], reverse=reverse)
        return {**carry, "m": rows}

    def _cond(self, s: State, how: str, bound: float, yes: Block, no: Block) -> State:
        chosen = s["j"] % 2 == 1 if how == "odd" else s["b"].sum() < bound
        return lg.cond(chosen, self.within(yes, s), self.within(no, s), s)

    def _switch(self, s: State, *blocks: Block) -> State:
        return lg.switch(s["j"] % 4, [self.within(b, s) for b in blocks], s)

    def _batch(self, s: State, count: int, names: str, into: int, out: int, block: Block) -> State:
        members = [member(s, names, b) for b in range(count)]
        many = {n: lg.stack([m[n] for m in members], axis=into) if n in names else s[n] for n in s}
        axes = {n: into if n in names else None for n in s}
        outs = {n: out if s[n].ndim or out == -1 else 0 for n in s}
        found = lg.vmap(self.within(block, s), in_axes=(axes,), out_axes=outs)(many)
        found = {n: lg.moveaxis(x, outs[n], 0) for n, x in found.items()}
        return joined(lg, [{n: x[b] for n, x in found.items()} for b in range(count)], s)

    def _checkpoint(self, s: State, block: Block) -> State:
        return lg.checkpoint(self.within(block, s))(s)

    def _compiled(self, s: State, block: Block) -> State:
        body = self.within(block, s)
        return lg.compile(lambda s: body({n: x.copy() for n, x in s.items()}))(s)

    def _exported(self, s: State, block: Block) -> State:
        def function(t: State) -> State:
            own = {n: x.copy() for n, x in t.items()}
            return self.within(block, own)(own)

        return lg.export(function, s)(s)

    def _rule(self, s: State, block: Block) -> State:
        """A function whose rule is its own derivative."""
        alone = lambda t: self.within(block, t)(t)

        @lg.custom_vjp
        def function(t: State) -> State:
            return alone(t)

        def backward(t: State, ct: State) -> Any:
            rest = {n: t[n] for n in "kjp"}
            pull = lg.vjp(lambda f: floats_of(alone({**f, **rest})), floats_of(t))[1]
            return ({**pull(floats_of(ct))[0], **dict.fromkeys("kjp")},)

        def forward(t: State) -> Any:
            before = {n: x.copy() for n, x in t.items()}
            return alone(t), before

        function.defvjp(forward, backward)
        return function(s)

    def _tangent_rule(self, s: State, block: Block) -> State:
        if any(inner[0] == "rule" for inner in statements(block)):
            own = {n: x.copy() for n, x in s.items()}
            return self.within(block, own)(own)
        alone = lambda t: self.within(block, t)(t)

        @lg.custom_jvp
        def function(t: State) -> State:
            return alone(t)

        def rule(primals: Any, tangents: Any) -> Any:
            (t,), (along,) = primals, tangents
            rest = {n: t[n] for n in "kjp"}
            change = lg.jvp(lambda f: floats_of(alone({**f, **rest})), (floats_of(t),), (floats_of(along),))[1]
            return alone({n: x.copy() for n, x in t.items()}), {**change, **{n: along[n] for n in "kjp"}}

        function.defjvp(rule)
        return function(s)
