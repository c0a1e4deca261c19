"""Programs of lines that are known (`lazy.tensor.repeated_lines`), run on leaves and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loopgrad.graph.nodes import Value
from loopgrad.graph.structure import Numbers
from loopgrad.lazy.tensor.walk import walked
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.executable import DirectProgram, Executable, Outgrown
from loopgrad.runtime.session import SESSION, evaluate_graph, placed

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.repeated_lines import Line, Lines


def run_anew(values: Sequence[Value], lines: Lines) -> list[Buffer]:
    """What a line gives whose program is to be made, each value once."""
    outputs = tuple(dict.fromkeys(values))
    graph, given = walked(outputs).cut(outputs)
    return evaluate_graph(graph, given, lines.config.device, lines.config.options)


def run_line(line: Line, leaves: Sequence[Any], constants: Numbers, lines: Lines) -> list[Buffer] | None:
    """What the program of a line gives for these leaves and numbers; None where it has none."""
    found = ready(line, constants, lines)
    if found is None:
        return None
    (program, extra), name = found, lines.name
    inputs = [b if (b := leaf.buffer).device == name else placed(leaf, lines.device) for leaf in leaves]
    try:
        return program.run([*inputs, *extra] if extra else inputs)
    except Outgrown:
        if (versions := line.versions()) is not None:
            SESSION.outgrew(versions)
        return None


def ready(line: Line, constants: Numbers, lines: Lines) -> tuple[Executable | DirectProgram, Sequence[Buffer]] | None:
    """The program of a line with these numbers, and the inputs that it takes at the end."""
    versions = line.versions()
    if versions is None:
        return None
    program = versions.known(constants, line.nodes)
    if program is not None:
        return program, ()
    return SESSION.ready(versions, constants, line.nodes, lines.device, lines.config.options)
