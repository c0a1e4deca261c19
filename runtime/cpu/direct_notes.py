"""What was noted at the top level and that nobody has computed before runs at once, without a graph.

    y = x * 2.0 + lg.exp(x);  print(y)        a walk over three notes, three calls of functions

The usual way from notes to elements makes nodes, cuts a graph of them, and plans a program for it
(`runtime.cpu.direct`), which is worth while for what comes again. Here the planner decides about one operation after
the other as it does there, so that bits are the same, and what it decides about those that are alike is remembered.
Small arrays alone are computed so; for all else a graph is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import numpy as np

from loopgrad.codegen.options import Options
from loopgrad.graph.closed_calls import expanded
from loopgrad.graph.nodes import NO_ATTRS, CallAttributes, Graph, Leaf, Node, Noted, Value, noted_node
from loopgrad.graph.primitives.primitive import Attrs
from loopgrad.graph.structure import LeafOf
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.cpu.direct import (
    MANY_PIECES,
    DirectPrograms,
    NotDirect,
    NotPrepared,
    Planner,
)
from loopgrad.runtime.cpu.direct_constants import KEPT, constant_elements
from loopgrad.runtime.cpu.direct_program import DEVICE, dense
from loopgrad.runtime.cpu.left_by_passes import note_varying
from loopgrad.runtime.executable import CalledOften, NotedProgram

_NO_GRAPH: Final = Graph((), (), ())
_Step = tuple[Callable[..., Any], Attrs | None, tuple[int, ...], int]
"""Function and attributes as in `direct_program.Operation`, the places of its operands, and that of its result."""


class CpuNotedProgram(NotedProgram):
    """See the module."""

    def __init__(self, planner: _NotedPlanner) -> None:
        self.computed = planner.computed
        self.work = planner.work
        self.outline = tuple(planner.words)
        self.leaves = planner.leaves
        self.starts = planner.starts
        self._elements = planner.elements
        self._steps = planner.steps

    def run(self, wanted: Sequence[Noted]) -> list[Buffer]:
        found = self._elements
        with np.errstate(all="ignore"):
            for function, attrs, operands, place in self._steps:
                if attrs is not None:
                    found[place] = function(attrs, *[found[i] for i in operands])[0]
                elif len(operands) == 2:
                    i, j = operands
                    found[place] = function(found[i], found[j])
                else:
                    found[place] = function(*[found[i] for i in operands])
        return [dense(found[self.computed[v]], cast(TensorType, v.type)) for v in wanted]


def noted_program(
    programs: DirectPrograms, output: Noted, leaf_of: LeafOf, options: Options, together: bool
) -> CpuNotedProgram | None:
    """The program of a noted value; None where a graph is needed."""
    if options.fast_math:
        return None
    with np.errstate(all="ignore"), suppress(NotDirect, NotPrepared):
        return _NotedPlanner(programs, options, leaf_of, together).program(output)
    return None


class _Makers:
    """What makes noted values that are computed, or are constants, as nodes that nobody else sees."""

    def __init__(self, computed: Container[Value], called: Mapping[Value, Node]) -> None:
        self._computed = computed
        self._called = called

    def get(self, value: Value) -> Node | None:
        if value in self._called:
            return self._called[value]
        made = type(value) is Noted and (value in self._computed or not value.note[1])
        return noted_node(value) if made else None  # type: ignore[arg-type]


class _NotedPlanner(Planner):
    """One walk over notes. `elements` has leaves and constants at their places, `steps` give the others."""

    def __init__(self, programs: DirectPrograms, options: Options, leaf_of: LeafOf, together: bool) -> None:
        super().__init__(programs, _NO_GRAPH, options, prepared=False)
        self.leaf_of = leaf_of
        self.together = together
        self.output: Noted | None = None
        self.places: dict[Value, int] = {}
        self.elements: list[Any] = []
        self.steps: list[_Step] = []
        self.computed: dict[Noted, int] = {}
        self.met_functions: set[Graph] = set()  # that are called
        self.called: dict[Value, Node] = {}  # what makes values in calls, and their results
        self.words: list[Any] = []
        self.leaves: list[Leaf] = []
        self.starts: list[Leaf] = []
        self.sizes: dict[int, int] = {}  # by the identities of types
        self.numbers: dict[Hashable, int] = {}  # places of constants
        self.met: list[Value] = []
        self.noted_varying: tuple[int, set[Value]] = 0, set()

    @property
    def made(self) -> Any:
        return _Makers(self.computed, self.called)

    @property
    def varying(self) -> set[Value]:
        """Of what was met so far; few operations ask."""
        upto, found = self.noted_varying
        for v in self.met[upto:]:
            if v in self.called:
                note_varying(self.called[v], found)
                if self.called[v].results[0] in found:
                    found.add(v)
            elif v in self.computed:
                note_varying(noted_node(v), found)
            else:
                found.add(v)
        self.noted_varying = len(self.met), found
        return found

    def program(self, output: Noted) -> CpuNotedProgram:
        """Raises NotDirect, NotPrepared."""
        self.output = output
        places, pending = self.places, [cast(Value, output)]
        while pending:
            value = pending[-1]
            if value in places:
                pending.pop()
                continue
            noted = type(value) is Noted and (value.known is None or self.leaf_of(value) is None)
            if noted and (missing := [v for v in value.note[1] if type(v) is not float and v not in places]):  # type: ignore[attr-defined]
                pending += missing
                continue
            pending.pop()
            if noted:
                self._add(cast(Noted, value))
            else:
                self._add_leaf(value)
        if self.segments and (self.loops or len({lanes for lanes, _ in self.segments}) < len(self.segments)):
            raise NotDirect
        return CpuNotedProgram(self)

    def _size(self, type: Any) -> int:
        """How many elements; refuses what isn't small, and what is computed by its parts."""
        size = self.sizes.get(id(type))
        if size is None:
            if not isinstance(type, TensorType) or type.size > KEPT or type.dtype.kind == "c":
                raise NotDirect
            size = self.sizes[id(type)] = type.size if type.shape else 1
        return size

    def _add_leaf(self, value: Value) -> None:
        leaf = value if isinstance(value, Leaf) else self.leaf_of(value)
        if leaf is None or type(leaf.buffer) is not Buffer or leaf.buffer.device != DEVICE:
            raise NotDirect
        if not isinstance(leaf.type, TensorType) or leaf.type.dtype.kind == "c":
            raise NotDirect
        self.leaves.append(leaf)
        if leaf is not value:
            self.starts.append(leaf)
        self.words += (leaf.type.dtype, leaf.type.shape)
        self.met.append(value)
        self.places[value] = len(self.elements)
        self.elements.append(leaf.buffer.array)

    def _number(self, number: Any, type: TensorType) -> int:
        """The place of a constant."""
        key = id(type), number
        place = self.numbers.get(key) if number else None  # a zero has a sign
        if place is None:
            place = len(self.elements)
            self.numbers[key] = place
            self.elements.append(constant_elements({"value": number, "type": type}, type))
        return place

    def _add(self, value: Noted) -> None:
        op, operands, attrs = value.note[:3]
        size = self._size(value.type)
        if op == "const":
            self.met.append(value)
            self.places[value] = self.computed[value] = self._number(attrs["value"], cast(TensorType, value.type))
            self.words.append(op)
            return
        if type(attrs) is CallAttributes:
            self._add_called(value, attrs.function)
            return
        if (op == "alias" and attrs) or (len(operands) >= MANY_PIECES and value is not self.output):
            raise NotDirect  # tested by evaluations; worth computing as one array, which the output's pieces aren't
        known, taken = None, operands
        if attrs is NO_ATTRS:
            dtypes = [id(v.type.dtype) for v in operands if type(v) is not float]
            known = self.programs.alike.get((op, size, *(dtypes if len(dtypes) == len(operands) else 2 * dtypes)))
        if known is not None:
            function, work = known
            function_attrs: Attrs | None = None
            self.work += work
        else:
            function, function_attrs, taken = self._operation(noted_node(value), size)
        places = self.places
        at = tuple([places[v] if v in places else self._number_of(v, operands) for v in taken])
        self.computed[value] = self._added(value, op, function, function_attrs, at)

    def _added(
        self, value: Value, op: str, function: Callable[..., Any], attrs: Attrs | None, at: tuple[int, ...]
    ) -> int:
        """The place of what a function gives of the values at these places."""
        self.met.append(value)
        self.places[value] = place = len(self.elements)
        self.elements.append(None)
        self.steps.append((function, attrs, at, place))
        self.words += (op, at)
        return place

    def _add_called(self, value: Noted, called: Graph) -> None:
        """The nodes of a function that is called, as if they were noted. Raises CalledOften where many of its
        calls don't depend on each other."""
        if self.together and called not in self.met_functions:
            self.met_functions.add(called)
            alike = _first_calls(called, cast(Noted, self.output))
            if len(alike) >= MANY_PIECES:
                raise CalledOften(alike)
        nodes, result = expanded(called, value.note[1])
        for node in nodes:
            if node.regions or len(node.results) != 1:
                raise NotDirect
            (made,) = node.results
            size = self._size(made.type)
            self.called[made] = node
            if node.op == "const":
                self.met.append(made)
                self.places[made] = self._number(node.attrs["value"], cast(TensorType, made.type))
                continue
            function, attrs, operands = self._operation(node, size)
            self._added(made, node.op, function, attrs, tuple([self.places[v] for v in operands]))
        self.met.append(value)
        self.called[value] = self.called[result]
        self.places[value] = self.computed[value] = self.places[result]

    def _number_of(self, operand: Any, operands: Sequence[Any]) -> int:
        """The place of a number beside a value, whose type it has."""
        if type(operand) is float:
            (beside,) = [v.type for v in operands if type(v) is not float]
            return self._number(operand, beside)
        attrs = operand.note[2]
        return self._number(attrs["value"], attrs["type"])


def _first_calls(called: Graph, output: Noted) -> list[Noted]:
    """The closed calls of a function that lead to a value and depend on no other ones of it."""
    found: list[Noted] = []
    entered: set[Value] = set()
    behind: dict[Value, bool] = {}  # whether such a call leads to a value
    pending: list[Value] = [output]
    while pending:
        value = pending[-1]
        if value in behind or type(value) is not Noted or value.known is not None:
            pending.pop()
            continue
        operands = [v for v in value.note[1] if type(v) is not float]
        if value not in entered:
            entered.add(value)
            pending += operands
            continue
        pending.pop()
        behind[value] = dependent = any(behind.get(v, False) for v in operands)
        attrs = value.note[2]
        if type(attrs) is CallAttributes and attrs.function is called and not dependent:
            behind[value] = True
            found.append(value)
    return found
