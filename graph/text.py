"""The text form of a Graph, and back.

`parse_graph(print_graph(g))` is a graph of the same structure, attributes and locations; printing is a
function of the graph alone, so equal graphs give equal text. Values are numbered in order of appearance;
locations trail as comments.

Circle: `graph/nodes.py` prints its graphs by this file when it is asked to.

    graph (%0: int64[], %1: float64[4]) {
      %2 = sin(%1) : float64[4]  # model.py:3 (step)
      %3 = for(%0, %2) {carries=1, lanes=0, memory_budget=None, name=None, reverse=False, shared=()} : float64[4]
        body (%4: int64[], %5: float64[4]) {
          %6 = mul(%5, %5) : float64[4]
          return %6
        }
      return %3
    }
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Mapping
from typing import Any, Final

from loopgrad.graph.errors import LoopgradError
from loopgrad.graph.nodes import NO_ATTRS, Graph, Location, Node, Value
from loopgrad.graph.primitives.control import region_labels
from loopgrad.graph.types import DTYPES, DType, StackType, TensorType, scalar_text

INDENT: Final = "  "


class GraphTextError(LoopgradError, ValueError):
    """Text that isn't the text of a graph."""


# ---- printing


def print_graph(graph: Graph) -> str:
    """The graph as text."""
    printer = _GraphPrinter()
    printer.graph(graph, "graph", 0)
    return "\n".join(printer.lines)


class _GraphPrinter:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def graph(self, graph: Graph, label: str, depth: int) -> None:
        names: dict[Value, str] = {}
        inputs = ", ".join([f"{self.name(v, names)}: {v.type}" for v in graph.inputs])
        self.lines.append(f"{INDENT * depth}{label} ({inputs}) {{")
        for node in graph.nodes:
            self.node(node, names, depth + 1)
        outputs = ", ".join([names.get(v, "%undefined") for v in graph.outputs])
        self.lines.append(f"{INDENT * (depth + 1)}return {outputs}".rstrip())
        self.lines.append(f"{INDENT * depth}}}")

    def name(self, value: Value, names: dict[Value, str]) -> str:
        names[value] = f"%{self.count}"
        self.count += 1
        return names[value]

    def node(self, node: Node, names: dict[Value, str], depth: int) -> None:
        operands = ", ".join([names.get(v, "%undefined") for v in node.operands])
        results = ", ".join([self.name(v, names) for v in node.results])
        types = ", ".join([str(r.type) for r in node.results])
        attrs = ", ".join([f"{k}={print_attribute(node.attrs[k])}" for k in sorted(node.attrs)])
        braces = f" {{{attrs}}}" if attrs else ""
        where = f"  # {node.loc} ({node.loc.function})" if node.loc is not None else ""
        self.lines.append(f"{INDENT * depth}{results} = {node.op}({operands}){braces} : {types}{where}")
        labels = region_labels(node.op, node.attrs) or ("branch",) * len(node.regions)
        for label, region in zip(labels, node.regions, strict=True):
            self.graph(region, label, depth + 1)


def print_attribute(value: Any) -> str:
    """One attribute value, as `parse_graph` reads it."""
    match value:
        case tuple():
            inner = ", ".join(map(print_attribute, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case complex():
            return f"complex({value.real!r}, {value.imag!r})"
        case None | bool() | str() | bytes():
            return repr(value)
        case int():
            return repr(int(value))  # NumPy's subclasses print their names
        case float():
            return scalar_text(float(value))
        case DType() | TensorType() | StackType():
            return str(value)
    raise GraphTextError(f"expected a number, string, bytes, type or tuple as an attribute, got {value!r}")


# ---- parsing

TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<value>%\d+)
      | (?P<number>-?(?:inf|nan|\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?!\w))
      | (?P<text>b?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign>[(){}\[\]<>=:,])
    )""",
    re.VERBOSE,
)
COMMENT: Final = re.compile(r"  # (?P<file>.*):(?P<line>\d+) \((?P<function>.*)\)$")


def parse_graph(text: str) -> Graph:
    """The graph that `text` prints; GraphTextError names the line that can't be read."""
    parser = _Parser([line for line in text.split("\n") if line.strip()])
    graph = parser.graph("graph")
    if parser.row != len(parser.rows):
        raise parser.error("the end of the text")
    return graph


class _Parser:
    """A cursor over rows (lines) and the tokens of the current row."""

    def __init__(self, rows: list[str]) -> None:
        self.rows = rows
        self.row = 0
        self.tokens: list[tuple[str, str]] = []

    def error(self, expected: str) -> GraphTextError:
        row = self.rows[self.row] if self.row < len(self.rows) else "(end)"
        rest = " ".join(text for _, text in reversed(self.tokens))
        return GraphTextError(f"expected {expected}, got {rest!r} in row {self.row + 1}: {row.strip()!r}")

    def scan(self) -> Location | None:
        """Split the current row into tokens (last first); its location comment is the result."""
        if self.row >= len(self.rows):
            raise self.error("another row")
        row = self.rows[self.row]
        loc = None
        self.tokens = []
        position = 0
        while position < len(row.rstrip()):
            comment = COMMENT.match(row, position)
            if comment is not None:
                loc = Location(comment["file"], int(comment["line"]), comment["function"])
                break
            token = TOKEN.match(row, position)
            if token is None or token.lastgroup is None:
                raise self.error(f"a token at column {position + 1}")
            self.tokens.append((token.lastgroup, token[token.lastgroup]))
            position = token.end()
        self.tokens.reverse()
        return loc

    def peek(self) -> str:
        return self.tokens[-1][1] if self.tokens else ""

    def take(self, kind: str) -> str:
        if not self.tokens or self.tokens[-1][0] != kind:
            raise self.error(f"a {kind}")
        return self.tokens.pop()[1]

    def expect(self, text: str) -> None:
        if self.peek() != text:
            raise self.error(repr(text))
        self.tokens.pop()

    def accept(self, text: str) -> bool:
        if self.peek() != text:
            return False
        self.tokens.pop()
        return True

    def listed(self, read: Callable[[], Any], end: str) -> list[Any]:
        """Items separated by commas (one may trail) up to `end`."""
        items = []
        while not self.accept(end):
            items.append(read())
            if not self.accept(","):
                self.expect(end)
                break
        return items

    def finish(self) -> None:
        if self.tokens:
            raise self.error("the end of the row")
        self.row += 1

    # ---- graphs and nodes

    def graph(self, label: str) -> Graph:
        self.scan()
        self.expect(label)
        self.expect("(")
        names: dict[str, Value] = {}
        inputs = tuple(self.listed(lambda: self.argument(names), ")"))
        self.expect("{")
        self.finish()
        nodes = []
        while True:
            loc = self.scan()
            if self.accept("return"):
                break
            nodes.append(self.node(names, loc))
        outputs = tuple([self.value(names) for _ in range(len([t for t in self.tokens if t[0] == "value"]))])
        self.finish()
        self.scan()
        self.expect("}")
        self.finish()
        return Graph(inputs, tuple(nodes), outputs)

    def argument(self, names: dict[str, Value]) -> Value:
        name = self.take("value")
        self.expect(":")
        names[name] = Value(self.type())
        return names[name]

    def value(self, names: dict[str, Value]) -> Value:
        name = self.take("value")
        if name not in names:
            raise self.error(f"a value defined above instead of {name}")
        self.accept(",")
        return names[name]

    def node(self, names: dict[str, Value], loc: Location | None) -> Node:
        results = self.listed(lambda: self.take("value"), "=")
        op = self.take("word")
        self.expect("(")
        operands = tuple(self.operands(names))
        attrs = dict(self.listed(self.attribute, "}")) if self.accept("{") else NO_ATTRS
        self.expect(":")
        types = []
        while self.tokens:
            types.append(self.type())
            self.accept(",")
        if len(types) != len(results):
            raise self.error(f"{len(results)} result types")
        self.finish()
        regions = tuple([self.graph(label) for label in self.labels(op, attrs)])
        node = Node(op, operands, tuple(types), attrs, regions, loc)
        names.update(zip(results, node.results, strict=True))
        return node

    def operands(self, names: dict[str, Value]) -> list[Value]:
        found = []
        while not self.accept(")"):
            found.append(self.value(names))
        return found

    def labels(self, op: str, attrs: Mapping[str, Any]) -> tuple[str, ...]:
        if op != "switch":
            return region_labels(op, attrs)
        depth = len(self.rows[self.row - 1]) - len(self.rows[self.row - 1].lstrip())
        opening = " " * depth + INDENT + "branch ("
        ahead = 0
        for row in self.rows[self.row :]:
            if len(row) - len(row.lstrip()) <= depth:
                break
            ahead += row.startswith(opening)
        return ("branch",) * ahead

    # ---- types and attributes

    def type(self) -> TensorType | StackType:
        name = self.take("word")
        if name == "stack":
            self.expect("<")
            element = self.type()
            self.expect(">")
            if not isinstance(element, TensorType):
                raise self.error("a tensor type in a stack")
            return StackType(element)
        if name not in DTYPES:
            raise self.error(f"a dtype instead of {name}")
        self.expect("[")
        shape = tuple(self.listed(lambda: int(self.take("number")), "]"))
        return TensorType(shape, DTYPES[name])

    def attribute(self) -> tuple[str, Any]:
        name = self.take("word")
        self.expect("=")
        return name, self.attribute_value()

    def attribute_value(self) -> Any:
        if not self.tokens:
            raise self.error("an attribute")
        kind, text = self.tokens[-1]
        match kind:
            case "number":
                self.tokens.pop()
                return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
            case "text":
                self.tokens.pop()
                return literal_eval(text)
            case "word":
                return self.word()
        self.expect("(")
        return tuple(self.listed(self.attribute_value, ")"))

    def word(self) -> Any:
        text = self.peek()
        if text in ("None", "True", "False"):
            self.tokens.pop()
            return literal_eval(text)
        if text == "complex":
            self.tokens.pop()
            self.expect("(")
            real, imag = self.listed(self.attribute_value, ")")
            return complex(real, imag)
        if text in DTYPES and (len(self.tokens) < 2 or self.tokens[-2][1] != "["):
            self.tokens.pop()
            return DTYPES[text]
        return self.type()
