"""A program as the text of a function that builds it with loopgrad: what a user would have written."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

from loop_generator.description import FLOATS, INTEGERS, PER_LANE, Block, Program, Tree, Variable, written

_ARGUMENTS = ", ".join((*FLOATS, *INTEGERS))
_FUNCTIONS = {
    "square": "lg.square({0})", "half": "0.5 * {0}", "bell": "lg.exp(-lg.square({0}))", "id": "{0}",
    "root": "lg.sqrt(1 + lg.square({0}))", "log": "lg.log(1.5 + lg.square({0}))", "inverse": "1 / {0}",
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "{0} * {1}", "div": "{0} / (1.5 + lg.square({1}))",
    "atan": "lg.arctan2({0}, 1.5 + lg.square({1}))", "min": "lg.minimum({0}, {1})", "max": "lg.maximum({0}, {1})",
    "stop": "lg.stop_gradient({0})",
}  # fmt: skip
_PRELUDE = """import numpy as np

import loopgrad as lg

F = lg.{dtype}
L, S = {lanes}, {shape}  # the lanes, and what of them one array holds
M, D = {cells}, {width}
at = lambda z: lg.broadcast_to(lg.asarray(z), S)
full = lambda z: lg.broadcast_to(lg.astype(lg.asarray(z), F), S)
col = lambda z: lg.expand_dims(lg.astype(lg.asarray(z), F), -1)
vec = lambda z: lg.broadcast_to(lg.astype(z, F), (*S, D))
mat = lambda z: lg.broadcast_to(lg.astype(z, F), (*S, D, D))
ranks = lambda n: np.arange(1, n + 1, dtype="{dtype}").reshape(n, *[1 for _ in S]) / np.{dtype}(n)
W = 0.5 + np.arange(M, dtype="{dtype}") / np.{dtype}(M)
C = np.arange(1, D + 1, dtype="{dtype}") / np.{dtype}(D)
own = {own}
"""


class Writer:
    """Appends the lines of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.indent = 0
        self.count = 0
        self.counters: list[str] = []
        self.rows: list[tuple[str, bool]] = []  # the name, and whether a row is a vector
        self.shared = program.style != "mapped"
        stretched = program.style == "lanes"
        self.scalars = {
            v.name for v in program.variables if stretched and v.form == "float" and v.init[0] in ("c", "s")
        }

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    # ---- the whole program

    def text(self) -> str:
        program = self.program
        shape = program.shape if self.shared else ()
        own = "(lg.arange(S[0]),)" if len(shape) == 1 else "tuple([lg.asarray(g) for g in np.indices(S)])"
        head = _PRELUDE.format(
            dtype=program.dtype, lanes=program.shape, shape=shape, cells=program.cells, width=program.width, own=own
        )
        self.line(f"def program({_ARGUMENTS}):")
        self.indent += 1
        if self.shared:
            self.inside()
        else:
            names = ", ".join(PER_LANE)
            self.line(f"def lane({names}):")
            self.indent += 1
            self.inside()
            self.line(f"return {self.results()}")
            self.indent -= 1
            self.line(f"found = {'lg.vmap(' * len(program.shape)}lane{')' * len(program.shape)}({names})")
            for name in self.names():
                self.line(f"{name} = found[{name!r}]")
        self.line(f"loss = {' + '.join([self.term(t) for t in program.loss]) or 'lg.sum(0.0 * x)'}")
        self.line(f"return loss, {self.results()}")
        return f"{head}\n\n" + "\n".join(self.lines) + "\n"

    def names(self) -> list[str]:
        return [v.name for v in self.program.variables] + [c.name for c in self.program.accumulators]

    def results(self) -> str:
        return "{" + ", ".join([f"{n!r}: {self.lane(n)}" for n in self.names()]) + "}"

    def inside(self) -> None:
        for variable in self.program.variables:
            raw = variable.name in self.scalars
            self.line(f"{variable.name} = {self.float(variable.init) if raw else self.value(variable, variable.init)}")
        for cells in self.program.accumulators:
            kind, number = cells.init
            dtype = "lg.int64" if cells.form == "integer" else "F"
            shape = "(M, D)" if cells.form == "row" else "(M,)"
            start = f"lg.full({shape}, {number}, dtype={dtype})"
            if kind == "a":
                start = f"{number} * a" if cells.form == "float" else f"{number} * lg.expand_dims(a, -1) + {start} * 0"
            self.line(f"{cells.name} = {start}")
        self.block(self.program.body)

    def term(self, term: Tree) -> str:
        match term:
            case ("sum", name, function, weight):
                return f"{weight} * lg.sum({self.weighted(name, function)})"
            case ("product", (left, f), (right, g), weight):
                return f"{weight} * (lg.mean({self.weighted(left, f)}) * lg.mean({self.weighted(right, g)}))"
        _, cells, name, weight = term
        return f"{weight} * lg.sum(lg.sin({cells}[q]) * {self.lane(name)})"

    def weighted(self, name: str, function: str) -> str:
        forms = {c.name: c.form for c in self.program.accumulators}
        integer = forms.get(name) == "integer" or any(
            v.name == name and v.form == "integer" for v in self.program.variables
        )
        value = self.apply(function, [f"lg.astype({name}, F)" if integer else self.lane(name)])
        if name not in forms:
            return value
        return f"{value} * {'W[:, None]' if forms[name] == 'row' else 'W'}"

    def lane(self, name: str) -> str:
        """A variable, stretched to the lanes where it began as a scalar."""
        return f"full({name})" if name in self.scalars else name

    # ---- statements

    def block(self, block: Block) -> None:
        for statement in block:
            self.statement(statement)

    def statement(self, statement: Tree) -> None:
        match statement:
            case ("set", name, tree):
                self.line(f"{name} = {self.value(self.program.variable(name), tree)}")
            case ("put", name, index, how, tree):
                place = f"(*own, {self.at(index)})"
                self.line(f"{name} = {name}.at[{place}].{how.replace('mul', 'multiply')}(full({self.float(tree)}))")
            case ("update", name, index, how, tree):
                self.update(name, index, how.replace("mul", "multiply"), tree)
            case ("swap", names):
                self.line(f"{', '.join(names)} = {', '.join([self.lane(n) for n in (*names[1:], names[0])])}")
            case ("for", kind, lower, upper, block, how):
                self.repeat_for(kind, lower, upper, block, how)
            case ("while", kind, condition, most, block, how):
                self.repeat_while(kind, condition, most, block, how)
            case ("scan", rows, backwards, name, tree, block, how):
                self.scan(rows, backwards, name, tree, block, how)
            case ("if", kind, condition, yes, no):
                test = self.truth(condition)
                self.choice("cond", f"at({test})" if kind == "lane" else test, kind, [yes, no])
            case ("switch", kind, index, branches):
                test = self.at(index) if kind == "lane" else f"lg.asarray({self.integer(index)})"
                self.choice("switch", test, kind, branches)
            case ("again", block):
                self.choice("checkpoint", "", "uniform", [block])

    def update(self, name: str, index: Tree, how: str, tree: Tree) -> None:
        form = self.program.accumulator(name).form
        if index[0] == "pair":
            places = f"lg.stack([{self.at(index[1])}, {self.at(index[2])}], axis=-1)"
            self.count += 1
            self.line(f"p{self.count} = full({self.float(tree)})")
            value = f"lg.stack([p{self.count}, 0.5 * p{self.count}], axis=-1)"
        else:
            places = self.at(index)
            value = {
                "float": lambda: f"full({self.float(tree)})",
                "row": lambda: f"vec({self.vector(tree)})",
                "integer": lambda: f"at({self.integer(tree)})",
            }[form]()
        self.line(f"{name} = {name}.at[{places}].{how}({value})")

    def carried(self, block: Block, how: Tree) -> list[str]:
        names = written(block)
        return names + [n for n in how[0] if n not in names]

    @staticmethod
    def packed(names: list[str], form: str) -> str:
        if form == "dict":
            return "{" + ", ".join([f"{n.split('(')[-1].rstrip(')')!r}: {n}" for n in names]) + "}"
        if form == "nested" and len(names) > 1:
            return f"({names[0]}, [{', '.join(names[1:])}])"
        return f"({', '.join(names)},)"

    def unpack(self, names: list[str], form: str, source: str = "c") -> None:
        if form == "dict":
            targets = ", ".join(names) + ("," if len(names) == 1 else "")
            self.line(f"{targets} = {', '.join([f'{source}[{n!r}]' for n in names])}{',' if len(names) == 1 else ''}")
        else:
            self.line(f"{self.packed(names, form)} = {source}")

    def function(self, signature: str, body: Callable[[], str]) -> None:
        """A nested function whose body returns what it is to return."""
        self.line(f"def {signature}:")
        self.indent += 1
        self.line(f"return {body()}")
        self.indent -= 1

    def starts(self, names: list[str], kind: str) -> list[str]:
        return [n if kind == "lane" else self.lane(n) for n in names]

    @staticmethod
    def budget(how: Tree) -> str:
        return f", memory_budget={how[1]}" if how[1] else ""

    def repeat_for(self, kind: str, lower: Tree, upper: Tree, block: Block, how: Tree) -> None:
        names, form = self.carried(block, how), how[2]
        if not names:
            return
        bounds = [str(b[1]) if b[0] == "c" else f"lg.asarray({self.integer(b)})" for b in (lower, upper)]
        if kind == "lane":
            bounds[1] = self.at(upper)
        self.count += 1
        step, counter = f"step{self.count}", f"k{self.count}"

        def body() -> str:
            self.unpack(names, form)
            self.counters.append(counter)
            self.block(block)
            self.counters.pop()
            return self.packed(names, form)

        self.function(f"{step}({counter}, c)", body)
        start = self.packed(self.starts(names, kind), form)
        call = f"lg.fori_loop({', '.join(bounds)}, {step}, {start}{self.budget(how)})"
        self.assign(names, form, call)

    def assign(self, names: list[str], form: str, call: str) -> None:
        if form == "dict":
            self.line(f"c = {call}")
            self.unpack(names, form)
        else:
            self.line(f"{self.packed(names, form)} = {call}")

    def repeat_while(self, kind: str, condition: Tree, most: int | None, block: Block, how: Tree) -> None:
        names, form = self.carried(block, how), how[2]
        self.count += 1
        step, more, fuse = f"step{self.count}", f"more{self.count}", f"w{self.count}"
        fuses = [] if most is None else [fuse]
        if not names and not fuses:
            return

        def test() -> str:
            self.unpack([*fuses, *names], form)
            text = self.truth(condition)
            text = f"lg.logical_and({fuse} < {most}, {text})" if fuses else text
            return f"at({text})" if kind == "lane" else text

        def body() -> str:
            self.unpack([*fuses, *names], form)
            self.block(block)
            if fuses:
                self.line(f"{fuse} = {fuse} + 1")
            return self.packed([*fuses, *names], form)

        self.function(f"{more}(c)", test)
        self.function(f"{step}(c)", body)
        if fuses:
            self.line(f"{fuse} = {'at(0)' if kind == 'lane' else '0'}")
        start = self.packed([*fuses, *self.starts(names, kind)], form)
        self.assign([*fuses, *names], form, f"lg.while_loop({more}, {step}, {start}{self.budget(how)})")

    def scan(self, rows: Tree, backwards: bool, name: str, tree: Tree, block: Block, how: Tree) -> None:
        names, form = self.carried(block, how), how[2]
        self.count += 1
        step, row, stacked = f"step{self.count}", f"row{self.count}", f"ys{self.count}"
        table = f"lg.moveaxis({rows[1]}, -1, 0)" if rows[0] == "own" else f"{rows[0]}[:{rows[1]}]"
        count = "D" if rows[0] == "own" else rows[1]

        def body() -> str:
            if names:
                self.unpack(names, form)
            self.rows.append((row, rows[0] == "R"))
            self.block(block)
            result = f"full({self.float(tree)})"
            self.rows.pop()
            return f"{self.packed(names, form) if names else '()'}, {result}"

        self.function(f"{step}(c, {row})", body)
        start = self.packed(self.starts(names, "uniform"), form) if names else "()"
        reverse = ", reverse=True" if backwards else ""
        self.line(f"c, {stacked} = lg.scan({step}, {start}, {table}{reverse}{self.budget(how)})")
        if names:
            self.unpack(names, form)
        self.line(f"{name} = {self.lane(name)} + lg.sum(lg.sin({stacked}) * ranks({count}), axis=0)")

    def choice(self, what: str, test: str, kind: str, branches: list[Block]) -> None:
        """Branches of the variables that any of them writes; `checkpoint` has one."""
        names = sorted({n for b in branches for n in written(b)})
        if not names:
            return
        self.count += 1
        functions = [f"branch{self.count}_{i}" for i in range(len(branches))]
        result = ", ".join(names) + ","
        for function, block in zip(functions, branches, strict=True):
            self.function(f"{function}({', '.join(names)})", lambda block=block: self.block(block) or f"({result})")
        operands = ", ".join(self.starts(names, kind))
        chosen = {
            "cond": f"lg.cond({test}, {', '.join(functions)}, {operands})",
            "switch": f"lg.switch({test}, [{', '.join(functions)}], {operands})",
            "checkpoint": f"lg.checkpoint({functions[0]})({operands})",
        }[what]
        self.line(f"({result}) = {chosen}")

    # ---- expressions

    def value(self, variable: Variable, tree: Tree) -> str:
        """An expression in the shape of its variable."""
        match variable.form:
            case "float":
                return f"full({self.float(tree)})"
            case "vector":
                return f"vec({self.vector(tree)})"
            case "matrix":
                return f"mat({self.matrix(tree)})"
            case "integer":
                return f"at(lg.astype(lg.asarray({self.integer(tree, variable.dtype)}), lg.{variable.dtype}))"
        return f"at({self.truth(tree)})"

    @staticmethod
    def apply(name: str, arguments: list[str]) -> str:
        text = _FUNCTIONS.get(name)
        return text.format(*[f"({a})" for a in arguments]) if text else f"lg.{name}({', '.join(arguments)})"

    def at(self, index: Tree) -> str:
        return f"at({self.integer(index)})"

    def float(self, tree: Tree) -> str:
        match tree:
            case ("c", number):
                return repr(number)
            case ("v", name):
                return name
            case ("x" | "e" | "s" as name,):
                return name
            case ("T", index):
                return f"T[{self.at(index)}]"
            case ("k", depth):
                return f"0.1 * lg.astype({self.counters[depth]}, F)" if depth < len(self.counters) else "0.0"
            case ("row", depth):
                name, vector = self.rows[depth] if depth < len(self.rows) else ("0.0", False)
                return f"{name}[0]" if vector else name
            case ("i", name):
                return f"0.1 * lg.astype({name}, F)"
            case ("b", name):
                return f"lg.astype({name}, F)"
            case ("where", condition, left, right):
                return f"lg.where({self.truth(condition)}, {self.float(left)}, {self.float(right)})"
            case ("dot", left, right):
                return f"lg.sum({self.vector(left)} * {self.vector(right)}, axis=-1)"
            case ("element", name, index):
                return f"{name}[(*own, {self.at(index)})]"
            case ("entry", name, i, j):
                return f"{name}[..., {i}, {j}]"
            case ("cell", name, index):
                return f"{name}[{self.at(index)}]"
            case ("total", name):
                return f"lg.sum(lg.sin({name}))"
            case ("crossed", how, name, depth):
                return f"lg.{how}(lg.tanh({name} * (1 + {self.float(('k', depth))})))"
            case ("mean", inner):
                return f"lg.mean(full({self.float(inner)}))"
        return self.apply(tree[0], [self.float(t) for t in tree[1:]])

    def vector(self, tree: Tree) -> str:
        match tree:
            case ("v", name):
                return name
            case ("c", number):
                return f"lg.asarray({number!r} * C)"
            case ("R", index):
                return f"R[{self.at(index)}]"
            case ("row", depth):
                name, vector = self.rows[depth] if depth < len(self.rows) else ("0.0", False)
                return name if vector else f"(col({name}) + lg.zeros((D,), dtype=F))"
            case ("cell", name, index):
                return f"{name}[{self.at(index)}]"
            case ("scale", factor, vector):
                return f"(col({self.float(factor)}) * {self.vector(vector)})"
            case ("times", name, vector):
                return f"lg.matmul({name}, lg.expand_dims({self.vector(vector)}, -1))[..., 0]"
        return f"({self.apply(tree[0], [self.vector(t) for t in tree[1:]])})"

    def matrix(self, tree: Tree) -> str:
        match tree:
            case ("v", name):
                return name
            case ("outer", left, right):
                return f"(lg.expand_dims({self.vector(left)}, -1) * lg.expand_dims({self.vector(right)}, -2))"
            case ("matmul", left, right):
                return f"lg.matmul({self.matrix(left)}, {self.matrix(right)})"
        return f"({self.apply(tree[0], [self.matrix(t) for t in tree[1:]])})"

    def integer(self, tree: Tree, dtype: str = "int64") -> str:
        cast = lambda text, own: text if own == dtype else f"lg.astype({text}, lg.{dtype})"
        match tree:
            case ("as", inner, argument):
                return cast(f"lg.asarray({self.integer(argument, inner)})", inner)
            case ("c", number):
                return f"lg.asarray({number}, dtype=lg.{dtype})"
            case ("v", name):
                return cast(name, self.program.variable(name).dtype)
            case ("k", depth):
                known = depth < len(self.counters)
                return f"lg.astype({self.counters[depth]}, lg.{dtype})" if known else f"lg.asarray(0, dtype=lg.{dtype})"
            case ("J", index):
                return cast(f"J[{self.at(index)}]", "int64")
            case ("cell", name, index):
                return cast(f"{name}[{self.at(index)}]", "int64")
            case ("floor", argument, scale):
                return f"lg.astype(lg.floor(({self.float(argument)}) * {scale}), lg.{dtype})"
            case ("where", condition, left, right):
                return f"lg.where({self.truth(condition)}, {self.integer(left, dtype)}, {self.integer(right, dtype)})"
            case ("add" | "mul" as word, left, right):
                second = str(right[1]) if right[0] == "c" else self.integer(right, dtype)
                return f"({self.integer(left, dtype)} {'+' if word == 'add' else '*'} {second})"
            case ("mod", left, right):
                return f"({self.integer(left, dtype)} % {right})"
        (name,) = tree
        return cast(name, dict(zip("nqpu", self.program.dtypes, strict=True))[name])

    def truth(self, tree: Tree) -> str:
        match tree:
            case ("less", left, right):
                return f"({self.float(left)} < {self.float(right)})"
            case ("fewer", left, right):
                return f"({self.integer(left)} < {self.integer(right)})"
            case ("odd", argument):
                return f"({self.integer(argument)} % 2 == 1)"
            case ("v", name):
                return name
            case ("not", argument):
                return f"lg.logical_not({self.truth(argument)})"
            case ("and", left, right):
                return f"lg.logical_and({self.truth(left)}, {self.truth(right)})"
        return f"lg.asarray({tree[1]})"


def text_of(program: Program) -> str:
    """The text of a module with `program(x, e, s, T, R, a, n, q, p, u, J)`, which gives (loss, results)."""
    return Writer(program).text()


def function_of(program: Program) -> Any:
    """The function of that text; its lines are known to tracebacks."""
    text, name = text_of(program), f"<random loop program {program.seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {}
    exec(compile(text, name, "exec"), namespace)  # the program's own text
    return namespace["program"]
