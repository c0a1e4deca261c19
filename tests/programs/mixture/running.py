"""Runs a program: eagerly with Python's control flow, or on loopgrad with loops, branches and batches as nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from nested_programs import Block, Statement, statements

import loopgrad as lg

from .libraries import Eager, Loopgrad
from .operations import TABLES, State, kept


def member(s: State, names: str, b: int) -> State:
    """A member of a batch, in which these differ from the others'."""
    changed = {n: s[n] * (1.0 - 0.15 * b) for n in names if n != "k"}
    if "z" in names:
        changed["z"] = changed["z"] * 1j**b
    if "k" in names:
        changed["k"] = (s["k"] + b) % s["k"].shape[0]
    return {**s, **changed}


def floats(s: State) -> State:
    return {name: s[name] for name in "vwzm"}


def operate(o: Any, s: State, slot: str, name: str, number: float) -> State:
    return {**s, slot: kept(o, slot, s[slot], TABLES[slot][name](o, s, number))}


def lane_step(o: Any, s: State, c: float, k: Any) -> tuple[Any, Any]:
    """One trip of a lane: elementwise, of a real and a complex number."""
    v, z = s
    z = 0.9 * z * o.xp.exp(1j * c * v) + 0.1 * k
    return o.xp.sin(v + c) + 0.1 * o.xp.real(z), z / (1.0 + 0.1 * o.xp.abs(z + 4.0))


class Running:
    """What both ways share: blocks and operations."""

    o: Any

    def run(self, block: Block, s: State) -> State:
        for statement in block:
            s = self.execute(statement, s)
        return s

    def execute(self, statement: Statement, s: State) -> State:
        if statement[0] == "op":
            return operate(self.o, s, *statement[1:])
        return getattr(self, "_" + statement[0].replace(" ", "_"))(s, *statement[1:])

    def _trip(self, k: Any, s: State, body: Block) -> State:
        return self.run(body, {**s, "v": s["v"] + 0.05 * k})

    def _scanned(self, s: State, x: State, body: Block) -> tuple[State, Any]:
        s = self.run(body, {**s, "v": s["v"] + 0.2 * x["row"], "z": s["z"] * x["turn"]})
        return s, (s["w"], s["z"] * 0.3)

    def _after_scan(self, s: State, ys: Any) -> State:
        rows, turns = ys
        return {**s, "m": 0.5 * s["m"] + 0.5 * rows, "z": s["z"] + 0.1 * self.o.xp.sum(turns, axis=0)}


class EagerRunning(Running):
    """The oracle: Python's loops and branches over numbers that are there."""

    def __init__(self, o: Eager) -> None:
        self.o = o

    def decide(self, what: Any) -> Any:
        self.o.note(what)
        return what

    def _for(self, s: State, count: int, _: Any, body: Block) -> State:
        for k in range(count):
            s = self._trip(k, s, body)
        return s

    def _trips(self, s: State, cap: int, body: Block) -> State:
        for k in range(int(self.decide(self.o.xp.sum(s["k"]) % (cap + 1)))):
            s = self._trip(k, s, body)
        return s

    def _while(self, s: State, cap: int, bound: float, body: Block) -> State:
        k = 0
        while k < cap and bool(self.decide(self.o.xp.sum(s["v"]) < bound)):
            s, k = self._trip(k, s, body), k + 1
        return s

    def _scan(self, s: State, reverse: bool, body: Block) -> State:
        xp, found = self.o.xp, []
        turns, rows = xp.exp(1j * s["w"]), s["m"]
        places = range(len(rows))
        for i in reversed(places) if reverse else places:
            s, y = self._scanned(s, {"row": rows[i], "turn": turns[i]}, body)
            found.append(y)
        ys = found[::-1] if reverse else found
        return self._after_scan(s, tuple(xp.stack(parts) for parts in zip(*ys, strict=True)))

    def _cond(self, s: State, bound: float, yes: Block, no: Block) -> State:
        return self.run(yes if bool(self.decide(self.o.xp.sum(s["w"]) < bound)) else no, s)

    def _switch(self, s: State, *blocks: Block) -> State:
        return self.run(blocks[min(int(self.decide(s["k"][0])), len(blocks) - 1)], s)

    def _batch(self, s: State, count: int, names: str, _: int, __: int, body: Block) -> State:
        xp = self.o.xp
        members = [self.run(body, member(s, names, b)) for b in range(count)]
        found = {name: sum(m[name] for m in members) / count for name in "vwzm"}
        return {**found, "k": xp.max(xp.stack([m["k"] for m in members]), axis=0)}

    def _lanes(self, s: State, cap: int, until: bool, c: float) -> State:
        xp, found = self.o.xp, []
        for i in range(len(s["v"])):
            v, z = s["v"][i], s["z"][i]
            if until:
                k = 0
                while k < cap and bool(self.decide(v < c)):
                    (v, z), k = lane_step(self.o, (v, z), c, k), k + 1
            else:
                for k in range(int(self.decide(s["k"][i] % (cap + 1)))):
                    v, z = lane_step(self.o, (v, z), c, k)
            found.append((v, z))
        v, z = (xp.stack(parts) for parts in zip(*found, strict=True))
        return {**s, "v": v, "z": z}

    def _write(self, s: State, where: str, c: float) -> State:
        o, v, m, z = self.o, s["v"], s["m"], s["z"]
        match where:
            case "step":
                v = o.at(v, slice(None, None, 2), "add", c * s["w"][::2])
            case "row":
                m = o.at(m, s["k"][-1], "set", v * c)
            case "column":
                m = o.at(m, (slice(None), 0), "multiply", 1.0 + c * v)
            case "view":
                m = o.at(m.T, (slice(None), s["k"][0]), "add", c * v).T
            case "numbers":
                z = o.at(z, s["k"][0], "set", z[-1] * (c - 1j))
            case "parts":
                z = c * o.xp.imag(z) + 1j * (o.xp.imag(z) + v)
        return {**s, "v": v, "m": m, "z": z}

    def _plain(self, s: State, body: Block) -> State:
        return self.run(body, s)

    _rule = _tangent_rule = _plain

    def _checkpoint(self, s: State, _: Any, body: Block) -> State:
        return self.run(body, s)


class LoopgradRunning(Running):
    """The same on tensors."""

    def __init__(self) -> None:
        self.o = Loopgrad()

    def _for(self, s: State, count: int, budget: int | None, body: Block) -> State:
        return lg.fori_loop(0, count, lambda k, s: self._trip(k, s, body), s, memory_budget=budget)

    def _trips(self, s: State, cap: int, body: Block) -> State:
        return lg.fori_loop(0, lg.sum(s["k"]) % (cap + 1), lambda k, s: self._trip(k, s, body), s)

    def _while(self, s: State, cap: int, bound: float, body: Block) -> State:
        going = lambda c: (c[0] < cap) & (lg.sum(c[1]["v"]) < bound)
        return lg.while_loop(going, lambda c: (c[0] + 1, self._trip(c[0], c[1], body)), (0, s))[1]

    def _scan(self, s: State, reverse: bool, body: Block) -> State:
        xs = {"row": s["m"], "turn": lg.exp(1j * s["w"])}
        return self._after_scan(*lg.scan(lambda s, x: self._scanned(s, x, body), s, xs, reverse=reverse))

    def _cond(self, s: State, bound: float, yes: Block, no: Block) -> State:
        return lg.cond(lg.sum(s["w"]) < bound, lambda s: self.run(yes, s), lambda s: self.run(no, s), s)

    def _switch(self, s: State, *blocks: Block) -> State:
        return lg.switch(s["k"][0], [lambda s, b=b: self.run(b, s) for b in blocks], s)

    def _batch(self, s: State, count: int, names: str, into: int, out: int, body: Block) -> State:
        batched = {name: into if name in names else None for name in s}
        members = [member(s, names, b) for b in range(count)]
        many = {name: lg.stack([m[name] for m in members], axis=into) if name in names else s[name] for name in s}
        found = lg.vmap(lambda s: self.run(body, s), in_axes=(batched,), out_axes=out)(many)
        found = {name: lg.moveaxis(x, out, 0) for name, x in found.items()}
        return {**{name: lg.mean(found[name], axis=0) for name in "vwzm"}, "k": lg.max(found["k"], axis=0)}

    def _lanes(self, s: State, cap: int, until: bool, c: float) -> State:
        if until:
            going = lambda t: (t[0] < cap) & (t[1][0] < c)
            step = lambda t: (t[0] + 1, lane_step(self.o, t[1], c, t[0]))
            v, z = lg.while_loop(going, step, (lg.zeros_like(s["k"]), (s["v"], s["z"])))[1]
        else:
            v, z = lg.fori_loop(0, s["k"] % (cap + 1), lambda k, t: lane_step(self.o, t, c, k), (s["v"], s["z"]))
        return {**s, "v": v, "z": z}

    def _write(self, s: State, where: str, c: float) -> State:
        v, m, z = (lg.copy(s[name]) for name in "vmz")
        match where:
            case "step":
                v[::2] += c * s["w"][::2]
            case "row":
                m[s["k"][-1]] = v * c
            case "column":
                m[:, 0] *= 1.0 + c * v
            case "view":
                row = m[s["k"][0]]
                row += c * v
            case "numbers":
                z[s["k"][0]] = z[-1] * (c - 1j)
            case "parts":
                z.real = c * z.imag
                z.imag += v
        return {**s, "v": v, "m": m, "z": z}

    def _checkpoint(self, s: State, policy: str | None, body: Block) -> State:
        policies = lg.checkpoint_policies
        found = {"dots": policies.dots_saveable, "named": policies.save_only_these_names("v"), None: None}[policy]
        inner = lambda s: self.run(body, {**s, "v": lg.name(s["v"], "v")} if policy == "named" else s)
        return lg.checkpoint(inner, policy=found)(s)

    def _of_floats(self, body: Block, k: Any) -> Callable[[State], State]:
        return lambda s: floats(self.run(body, {**s, "k": k}))

    def _rule(self, s: State, body: Block) -> State:
        """A function whose rule is its own derivative, by vjp."""

        @lg.custom_vjp
        def function(s: State) -> State:
            return self.run(body, s)

        def forward(s: State) -> Any:
            return self.run(body, s), s

        def backward(s: State, ct: State) -> Any:
            pull = lg.vjp(self._of_floats(body, s["k"]), floats(s))[1]
            return ({**pull(floats(ct))[0], "k": None},)

        function.defvjp(forward, backward)
        return function(s)

    def _tangent_rule(self, s: State, body: Block) -> State:
        if any(inner[0] == "rule" for inner in statements(body)):
            return self.run(body, s)  # has no tangents

        @lg.custom_jvp
        def function(s: State) -> State:
            return self.run(body, s)

        def rule(primals: Any, tangents: Any) -> Any:
            (s,), (t,) = primals, tangents
            change = lg.jvp(self._of_floats(body, s["k"]), (floats(s),), (floats(t),))[1]
            return self.run(body, s), {**change, "k": t["k"]}

        function.defjvp(rule)
        return function(s)


def inputs(size: int, seed: int) -> State:
    random = np.random.default_rng([seed, 7])
    v, w, x, y = random.uniform(-1, 1, (4, size))
    m = random.uniform(-1, 1, (size, size))
    return {"v": v, "w": w, "z": x + 1j * y, "m": m, "k": random.integers(0, size, size)}
