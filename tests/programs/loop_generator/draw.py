"""Drawing a program from a seed: expressions here, statements and whole programs in `Draw`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from loop_generator.description import Block, Cells, Program, Tree, Variable, blocks, written

SIGNED = ("int8", "int16", "int32", "int64")
DTYPES = (*SIGNED, "uint8", "uint16", "uint32", "int64", "int32")
SHAPES = [(1,), (2,), (3,), (4,), (4,), (5,), (5,), (7,), (13,), (17,), (20,), (2, 3), (3, 1), (1, 4), (33,), (1030,)]
BUDGETS = (None, None, None, None, None, None, None, 300, 1500, 20000)  # bytes


@dataclass(frozen=True)
class Place:
    """Where a statement stands. `together`: all lanes act at once. `counters`: of the loops around, whether each is
    one number for all lanes."""

    together: bool
    writable: tuple[str, ...]
    readable: tuple[str, ...]
    depth: int = 0
    counters: tuple[bool, ...] = ()
    rows: int = 0


class Expressions:
    """Draws expressions over the variables in `forms`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.variables: list[Variable] = []
        self.cells: list[Cells] = []
        self.style = "lanes"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.random.choice(choices)

    def named(self, form: str) -> list[str]:
        return [v.name for v in self.variables if v.form == form]

    def readable(self, form: str, place: Place) -> list[str]:
        return [c.name for c in self.cells if c.form == form and c.name in place.readable]

    def number(self, low: float = -1.0, high: float = 1.0) -> Tree:
        return ("c", round(self.random.uniform(low, high), 3))

    def leaf(self, place: Place) -> Tree:
        kinds = ["v", "v", "v", "x", "e", "c", "s", "T", "i"]
        kinds += ["b"] if self.named("bool") else []
        kinds += ["element", "dot"] if self.named("vector") else []
        kinds += ["entry"] if self.named("matrix") else []
        kinds += ["cell", "cell", "total"] if self.readable("float", place) else []
        kinds += ["k", "k"] if place.counters else []
        kinds += ["row", "row"] if place.rows else []
        kinds += ["mean"] if place.together and self.style == "lanes" and self.chance(0.3) else []
        single = [d for d, one in enumerate(place.counters) if one]
        kinds += ["crossed"] if self.style == "lanes" and self.chance(0.3) else []
        match self.pick(kinds):
            case "crossed":
                return ("crossed", self.pick(["mean", "flip"]), self.pick(["x", "e"]), self.pick([*single, 9]))
            case "v":
                return ("v", self.pick(self.named("float")))
            case "c":
                return self.number()
            case "T":
                return ("T", self.index(place))
            case "i":
                return ("i", self.pick(self.named("integer")))
            case "b":
                return ("b", self.pick(self.named("bool")))
            case "element":
                return ("element", self.pick(self.named("vector")), self.index(place))
            case "entry":
                return ("entry", self.pick(self.named("matrix")), 0, -1)
            case "dot":
                return ("half", ("dot", self.vector(0, place), self.vector(0, place)))
            case "cell":
                return ("cell", self.pick(self.readable("float", place)), self.index(place))
            case "total":
                return ("tanh", ("total", self.pick(self.readable("float", place))))
            case "k":
                return ("k", self.random.randrange(len(place.counters)))
            case "row":
                return ("row", self.random.randrange(place.rows))
            case "mean":
                return ("mean", ("v", self.pick(self.named("float"))))
            case word:
                return (word,)

    def float(self, depth: int, place: Place) -> Tree:
        if depth == 0 or self.chance(0.2):
            return self.leaf(place)
        sub = lambda: self.float(depth - 1, place)
        unary = ["sin", "tanh", "cos", "square", "half", "bell", "root", "log", "sin", "tanh", "stop", "abs", "sigmoid"]
        binary = ["add", "mul", "sub", "min", "max", "div", "atan", "add", "mul"]
        match self.random.randrange(5):
            case 0 | 1:
                return (self.pick(unary), sub())
            case 2:
                return ("where", self.condition(place), sub(), sub())
        return (self.pick(binary), sub(), sub())

    def vector(self, depth: int, place: Place) -> Tree:
        kinds = ["v", "v", "R", "c"]
        kinds += ["cell"] if self.readable("row", place) else []
        kinds += ["row"] if place.rows else []
        if depth:
            kinds += ["scale", "scale", "sin", "tanh", "half", "add", "mul", "sub"]
            kinds += ["times"] if self.named("matrix") else []
        sub = lambda: self.vector(depth - 1, place)
        match self.pick(kinds):
            case "v":
                return ("v", self.pick(self.named("vector")))
            case "R":
                return ("R", self.index(place))
            case "c":
                return self.number()
            case "cell":
                return ("cell", self.pick(self.readable("row", place)), self.index(place))
            case "row":
                return ("row", self.random.randrange(place.rows))
            case "scale":
                return ("scale", self.float(1, place), sub())
            case "times":
                return ("times", self.pick(self.named("matrix")), sub())
            case "add" | "mul" | "sub" as word:
                return (word, sub(), sub())
            case word:
                return (word, sub())

    def matrix(self, place: Place) -> Tree:
        own = ("v", self.pick(self.named("matrix")))
        outer = ("outer", self.vector(0, place), self.vector(1, place))
        return self.pick([
            ("add", ("half", own), outer), ("half", ("matmul", own, own)), ("tanh", ("add", own, outer)),
            ("half", ("matmul", outer, own)), ("half", own),
        ])  # fmt: skip

    def integer(self, depth: int, place: Place, dtype: str) -> Tree:
        leaves: list[Tree] = [("v", n) for n in self.named("integer")] + [("n",), ("q",), ("q",), ("u",)]
        leaves += [("k", d) for d in range(len(place.counters))] * 2
        leaves += [("cell", n, ("q",)) for n in self.readable("integer", place)]
        if depth == 0:
            return self.pick(leaves)
        sub = lambda: self.integer(depth - 1, place, dtype)
        match self.random.randrange(8):
            case 0:
                low = -3 if dtype in SIGNED else 0
                return ("add", sub(), ("c", self.random.randint(low, 4)))
            case 1:
                return ("mul", sub(), ("c", self.random.randint(-2 if dtype in SIGNED else 0, 3)))
            case 2 | 3:
                return ("mod", sub(), self.random.randint(2, 7))
            case 4:
                return ("floor", self.float(1, place), float(self.random.randint(1, 6)))
            case 5:
                return (self.pick(["add", "mul"]), sub(), sub())
            case 6:
                return self.pick([("J", sub()), ("where", self.condition(place), sub(), sub())])
        return self.pick(leaves)

    def index(self, place: Place) -> Tree:
        """An integer of some dtype, in range or not."""
        if self.chance(0.15):
            return self.pick([("p",), ("q",), ("c", self.random.randint(-3, 5))])
        dtype = self.pick(DTYPES)
        return ("as", dtype, self.integer(self.random.randint(0, 2), place, dtype))

    def condition(self, place: Place) -> Tree:
        flags = self.named("bool")
        match self.random.randrange(8):
            case 0:
                return ("odd", self.integer(1, place, "int64"))
            case 1:
                return ("fewer", self.integer(0, place, "int64"), ("c", self.random.randint(-1, 4)))
            case 2 if flags:
                return ("v", self.pick(flags))
            case 3:
                return ("not", self.condition(place))
            case 4:
                return ("and", self.condition(place), self.condition(place))
        return ("less", ("v", self.pick(self.named("float"))), self.number(-0.6, 0.8))


class Draw(Expressions):
    """Draws statements and programs."""

    def block(self, size: int, place: Place) -> Block:
        return tuple([s for _ in range(size) for s in self.statement(place)])

    def inner(self, place: Place, *more: bool, rows: int = 0) -> Block:
        counters = (*place.counters, *more)
        return self.block(
            self.pick([1, 2, 2, 3]), replace(place, depth=place.depth + 1, counters=counters, rows=place.rows + rows)
        )

    def statement(self, place: Place) -> list[Tree]:
        kinds = ["float", "float", "float", "integer", "swap"]
        kinds += ["vector", "put"] if self.named("vector") else []
        kinds += ["matrix"] if self.named("matrix") else []
        kinds += ["bool"] if self.named("bool") else []
        kinds += ["update"] * 4 if place.writable else []
        if place.depth < self.deepest:
            kinds += ["for", "for", "for", "while", "while", "scan", "if", "switch", "again"]
            kinds += ["for", "while", "for", "while"] * 4 * (place.depth == 0)
        kind = self.pick(kinds)
        if kind in ("for", "while", "scan", "if", "switch", "again"):
            return [self.nested(kind, place)]
        return [getattr(self, f"set_{kind}")(place)]

    # ---- plain statements

    def set_float(self, place: Place) -> Tree:
        name = self.pick(self.named("float"))
        own, new = ("v", name), self.float(self.random.randint(0, 2), place)
        tree = self.pick([
            ("tanh", new), ("sin", new), ("add", ("half", own), ("mul", self.number(), new)), ("half", own),
            ("add", own, self.number()), ("add", own, ("mul", ("c", 0.1), ("sin", new))), ("tanh", own), ("sin", own),
        ])  # fmt: skip
        return ("set", name, tree)

    def set_vector(self, place: Place) -> Tree:
        name = self.pick(self.named("vector"))
        new = self.vector(2, place)
        return ("set", name, self.pick([("tanh", new), ("add", ("half", ("v", name)), ("half", new)), ("sin", new)]))

    def set_matrix(self, place: Place) -> Tree:
        return ("set", self.pick(self.named("matrix")), self.matrix(place))

    def set_integer(self, place: Place) -> Tree:
        variable = self.pick([v for v in self.variables if v.form == "integer"])
        return ("set", variable.name, ("mod", self.integer(2, place, variable.dtype), self.random.randint(3, 9)))

    def set_bool(self, place: Place) -> Tree:
        return ("set", self.pick(self.named("bool")), self.condition(place))

    def set_put(self, place: Place) -> Tree:
        how = self.pick(["set", "set", "add", "mul", "max"])
        return ("put", self.pick(self.named("vector")), self.index(place), how, ("tanh", self.float(1, place)))

    def set_swap(self, place: Place) -> Tree:
        kinds = [self.named("float"), self.named("vector")]
        names = self.pick([k for k in kinds if len(k) > 1])
        return ("swap", tuple(self.random.sample(names, self.random.randint(2, len(names)))))

    def set_update(self, place: Place) -> Tree:
        cells = next(c for c in self.cells if c.name == self.pick(place.writable) or c.name == place.writable[0])
        free = place.together or self.style != "lanes"
        how, index = cells.how, self.index(place)
        if how == "any" or (free and self.chance(0.2)):
            hows = ["add", "max", "min", "set"]
            how = self.pick(hows if cells.form == "integer" else [*hows, "mul"])
            index = index if free else ("p",)
        if cells.form == "integer":
            return ("update", cells.name, index, how, self.integer(1, place, "int64"))
        if cells.form == "row":
            return ("update", cells.name, index, how, self.vector(1, place))
        outer = [("x",), ("e",), ("mul", ("e",), ("k", 0)), ("mul", ("x",), ("T", ("q",)))]
        value = self.pick(outer) if self.chance(0.3) else self.float(self.random.randint(0, 2), place)
        value = ("add", ("c", 1.1), ("mul", ("c", 0.3), ("tanh", value))) if how == "mul" else value
        if index[0] != "p" and self.chance(0.15):
            index = ("pair", index, self.index(place))
        return ("update", cells.name, index, how, value)

    # ---- loops and branches

    def nested(self, kind: str, place: Place) -> Tree:
        lane = self.chance(0.7)
        if kind in ("scan", "again") or (kind == "while" and self.style == "lanes" and not place.together):
            lane = kind == "while"
        where = "lane" if lane else "uniform"
        inside = self.alone(place) if lane else place
        if kind == "again" and not place.together and self.style == "lanes":
            inside = replace(inside, writable=())
        match kind:
            case "for":
                lower, upper, single = self.bounds(lane, place)
                block = self.inner(inside, single)
                return ("for", where, lower, upper, block, self.how(block, inside))
            case "while":
                return self.repeat_while(where, inside)
            case "scan":
                return self.scan(inside)
            case "if":
                return ("if", where, self.test(lane, place), self.inner(inside), self.branch(inside))
            case "switch":
                dtype = self.pick(DTYPES)
                index = ("as", dtype, self.integer(1, place, dtype)) if lane else ("u",)
                count = self.random.randint(2, 4)
                return ("switch", where, index, tuple([self.branch(inside) for _ in range(count)]))
        return ("again", self.inner(inside))

    def branch(self, place: Place) -> Block:
        return () if self.chance(0.25) else self.inner(place)

    def alone(self, place: Place) -> Place:
        """Inside, each lane decides: cells are written or read there, not both."""
        if not place.together or self.style != "lanes":
            return place
        writes = {name for name in place.writable if self.chance(0.7)}
        usable = {c.name for c in self.cells if c.how != "any" or self.unique}
        readable = tuple([n for n in place.readable if n not in writes])
        return replace(place, together=False, writable=tuple(sorted(writes & usable)), readable=readable)

    def how(self, block: Block, place: Place) -> Tree:
        others = [n for n in (*[v.name for v in self.variables], *place.readable) if n not in written(block)]
        extra = tuple(self.random.sample(others, 1)) if others and self.chance(0.3) else ()
        return (extra, self.pick(BUDGETS), self.pick(["tuple", "tuple", "dict", "nested"]))

    def bounds(self, lane: bool, place: Place) -> tuple[Tree, Tree, bool]:
        """Lower, upper, and whether the counter is one number for all lanes."""
        single = [d for d, one in enumerate(place.counters) if one]
        if not lane:
            uppers: list[Tree] = [("c", self.random.randint(0, 4)), ("u",), ("add", ("u",), ("c", 1))]
            uppers += [("k", d) for d in single]
            lower = self.pick([("c", 0), ("c", 0), ("c", self.random.randint(-2, 2)), ("u",)])
            return lower, self.pick(uppers), True
        dtype = self.pick(DTYPES)
        most = 5 if place.depth else 7
        count = ("mod", self.integer(1, place, dtype), self.random.randint(2, most))
        upper = self.pick([("n",), ("n",), ("n",), ("as", dtype, count), ("as", dtype, count)])
        if upper == ("n",) and self.chance(0.2):
            upper = ("add", upper, self.pick([("c", 1), ("c", -1), ("q",)]))
        if self.chance(0.75):
            return ("c", self.pick([0, 0, 0, 1, -1, -2])), upper, True
        return self.pick([("as", dtype, ("mod", ("q",), 3)), ("as", "int64", ("u",))]), upper, False

    def test(self, lane: bool, place: Place) -> Tree:
        if lane:
            return self.condition(place)
        tests = [("less", ("s",), self.number()), ("odd", ("u",))]
        single = [d for d, one in enumerate(place.counters) if one]
        tests += [("odd", ("k", self.pick(single)))] if single else []
        if place.together and self.style == "lanes":
            tests.append(("less", ("mean", ("v", self.pick(self.named("float")))), self.number(-0.4, 0.6)))
        return self.pick(tests)

    def repeat_while(self, where: str, place: Place) -> Tree:
        block = self.inner(place)
        if where == "uniform":
            most = self.random.randint(0, 4)
            return ("while", where, self.test(False, place), most, block, self.how(block, place))
        if self.chance(0.5):  # the values alone end it
            name = self.pick(self.named("float"))
            climb = ("add", ("c", 0.3), ("mul", ("c", 0.1), (self.pick(["bell", "sin"]), self.float(1, place))))
            block = (*block, ("set", name, ("add", ("v", name), climb)))
            condition: Tree = ("less", ("v", name), self.number(-0.3, 1.6))
            return ("while", where, condition, None, block, self.how(block, place))
        condition = self.condition(place) if self.chance(0.8) else ("fewer", ("q",), ("c", 3))
        return ("while", where, condition, self.random.randint(1, 5), block, self.how(block, place))

    def scan(self, place: Place) -> Tree:
        rows: list[Tree] = [("T", self.random.randint(1, min(self.table, 4))), ("R", min(self.table, 3))]
        rows += [("own", name) for name in self.named("vector")]
        block = self.inner(place, rows=1)
        tree = self.float(1, replace(place, rows=place.rows + 1))
        name = self.pick(self.named("float"))
        return ("scan", self.pick(rows), self.chance(0.4), name, tree, block, self.how(block, place))

    # ---- programs

    def program(self, seed: int) -> Program:
        self.deepest = self.pick([1, 1, 2, 3])
        self.style = self.pick(["lanes", "lanes", "lanes", "mapped", "mapped", "single"])
        shape = () if self.style == "single" else self.pick(SHAPES)
        if self.style == "mapped" and shape == (1030,):
            shape = (6,)
        self.shape, self.table, width = shape, self.pick([1, 3, 4, 8, 40]), self.pick([1, 2, 3, 3, 5])
        self.count = self.pick([1, 2, 3, 6, 10, 40, 300])
        if self.count in shape:
            self.count += 1
        lanes = 1
        for extent in shape:
            lanes *= extent
        self.unique = lanes <= self.count
        everywhere = Place(True, (), ())
        self.variables = [
            Variable(f"f{i}", "float", "", self.pick([("x",), ("e",), ("mul", ("x",), ("e",)), ("s",), self.number()]))
            for i in range(self.random.randint(2, 4))
        ]
        for i in range(self.random.randint(1, 2)):
            dtype = self.pick(DTYPES)
            self.variables.append(Variable(f"i{i}", "integer", dtype, ("mod", ("q",), 4)))
        if self.chance(0.4):
            self.variables.append(Variable("b0", "bool", "", ("less", ("x",), self.number(-0.5, 0.5))))
        rows = self.random.randint(1, 2) if self.chance(0.45) else 0
        for i in range(rows):
            row = ("R", ("q",))
            start = self.pick([("scale", ("x",), ("c", 1.0)), row, ("c", 0.5), ("scale", ("e",), row)])
            self.variables.append(Variable(f"v{i}", "vector", "", start))
        if rows and self.chance(0.4):
            self.variables.append(Variable("m0", "matrix", "", ("outer", ("v", "v0"), ("c", 0.8))))
        self.cells = [self.accumulator(i, bool(rows)) for i in range(self.pick([0, 1, 1, 2, 2, 3]))]
        names = tuple([c.name for c in self.cells])
        everywhere = replace(everywhere, writable=names, readable=names)
        usable = tuple([c.name for c in self.cells if c.how != "any" or self.unique])
        body = self.accumulating(everywhere, usable) if usable and self.chance(0.4) else ()
        while not any(blocks(s) for s in body):
            body = self.block(self.random.randint(1, 4), everywhere)
        dtypes = (self.pick(DTYPES), self.pick(DTYPES), self.pick(["int32", "int64"]), self.pick(DTYPES))
        return Program(
            seed, self.style, shape, "float32" if self.chance(0.25) else "float64", self.table, self.count, width,
            dtypes, tuple(self.variables), tuple(self.cells), body, self.losses(lanes, written(body)),
        )  # fmt: skip

    def accumulating(self, place: Place, usable: tuple[str, ...]) -> Block:
        """One loop of lanes that all update the same `usable` cells, with values that often don't depend on its
        carries."""
        lower, upper, single = self.bounds(True, place)
        counts = self.chance(0.7)
        counters = (single or not counts,)
        inside = replace(self.alone(place), depth=1, counters=counters, writable=(self.pick(usable),), readable=())
        makers = [self.set_update, *[self.pick([self.set_float, self.set_update]) for _ in range(self.pick([1, 1, 2]))]]
        block = tuple([make(inside) for make in self.random.sample(makers, len(makers))])
        if counts:
            return (("for", "lane", lower, upper, block, self.how(block, inside)),)
        test = self.condition(inside)
        return (("while", "lane", test, self.random.randint(1, 5), block, self.how(block, inside)),)

    def accumulator(self, position: int, vectors: bool) -> Cells:
        form = self.pick(["float", "float", "float", "row" if vectors else "float", "integer"])
        how = self.pick(["add", "add", "add", "add", "mul", "min", "max", "any"])
        if form == "integer":
            return Cells(f"C{position}", form, how if how != "mul" else "add", ("c", self.random.randint(0, 2)))
        init = self.pick([("c", 0.0), ("c", 0.0), ("c", 0.7), ("a", 1.0), ("a", 0.5)])
        return Cells(f"A{position}", form, how, ("c", 0.9) if how == "mul" and init == ("c", 0.0) else init)

    def losses(self, lanes: int, changed: list[str]) -> tuple[Tree, ...]:
        """Linear and nonlinear terms of some of the results, mostly of those that the body has changed."""
        functions = ["id", "id", "id", "square", "sin", "log", "tanh", "square"]
        floats = [v.name for v in self.variables if v.form in ("float", "vector", "matrix")]
        floats += [c.name for c in self.cells if c.form != "integer"] * 2
        floats += [name for name in floats if name in changed] * 4
        anything = floats + [v.name for v in self.variables if v.form == "integer"]
        weight = lambda: round(self.random.uniform(0.3, 1.2) / (lanes if lanes > 40 else 1), 6)
        terms: list[Tree] = []
        for _ in range(self.pick([1, 2, 2, 3, 4])):
            name = self.pick(anything)
            terms.append(("sum", name, self.pick(functions) if name in floats else "id", weight()))
        if self.chance(0.25):
            pair = [(self.pick(floats), self.pick(functions)) for _ in range(2)]
            terms.append(("product", *pair, round(self.random.uniform(0.5, 1.5), 3)))
        cells = [c.name for c in self.cells if c.form == "float"]
        if cells and self.style == "lanes" and self.chance(0.3):
            terms.append(("read", self.pick(cells), self.pick(self.named("float")), weight()))
        return tuple(terms)


def drawn(seed: int) -> Program:
    """The program of a seed."""
    return Draw(seed).program(seed)
