"""What NVIDIA's assembler makes of our kernels, counted: registers, spills, and the instructions of every loop.

    python -m benchmarks.sass newton stream stream:gradient --tools DIR

No GPU is needed, but ptxas and nvdisasm: on PATH, in DIR, or from PyPI (nvidia-cuda-nvcc, nvidia-cuda-nvdisasm). A
workload is a name, or name:contender of ours; its first program is compiled for its size on GPUs. A loop's
instructions are those of the shortest way round it, which leaves out what branches jump over (large angles, operands
of unusual size, inner loops); one way round may do several elements, or several trips of the source's loop.
"""

from __future__ import annotations

import argparse
import heapq
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import peers, place
from benchmarks.registry import load
from loopgrad.codegen.options import Options
from loopgrad.codegen.pipeline import build_program
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.nvptx.target import nvptx_image
from loopgrad.graph.nodes import Graph
from loopgrad.runtime import devices
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.executable import Executable

CLASSES: Final = {  # by how the name of an instruction begins; the others compute with integers and addresses
    "float": ("FFMA", "FADD", "FMUL", "FSEL", "FMNMX"),
    "double": ("DFMA", "DADD", "DMUL", "DSETP", "F2F"),
    "special": ("MUFU",),
    "test": ("FSETP", "ISETP", "PLOP3", "VOTE"),
    "convert": ("F2I", "I2F", "FRND"),
    "memory": ("LD", "ST", "ATOM", "RED"),
    "branch": ("BRA", "BSSY", "BSYNC", "CALL", "RET", "EXIT", "WARPSYNC", "BAR"),
}
SHORTEST: Final = 5  # shorter loops aren't shown
USED: Final = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.S
)


class _CompiledError(Exception):
    """A graph came to be compiled: nothing need run."""

    def __init__(self, graph: Graph, options: Options) -> None:
        super().__init__("compiled")
        self.graph, self.options = graph, options


class _Recorder(CpuDevice):
    def compile(self, graph: Graph, options: Options) -> Executable:
        raise _CompiledError(graph, options)


def ptx_of(workload: str, size: int | None = None) -> str:
    """PTX of the first program that a contender of ours compiles."""
    name, _, contender = workload.partition(":")
    chosen = load(name)
    build = chosen.gpu_contenders[f"loopgrad:{contender}" if contender else "loopgrad"]
    arrays = chosen.inputs(size or chosen.size(gpu=True))
    devices.MAKERS["cpu"] = _Recorder
    devices._made.pop("cpu", None)
    try:
        build(arrays).run()
    except _CompiledError as found:
        program = build_program(found.graph, found.options)
        return compile_for(program, found.options, nvptx_image()).code.decode()
    finally:
        peers.forget_options()
    raise SystemExit(f"{workload}: expected it to compile a program, it compiled none")


@dataclass(slots=True)
class Function:
    """`targets`: label -> position among the instructions."""

    name: str
    instructions: list[str] = field(default_factory=list)
    targets: dict[str, int] = field(default_factory=dict)


def parsed(listing: str) -> list[Function]:
    """The functions of nvdisasm's listing."""
    functions: list[Function] = []
    for line in listing.splitlines():
        if found := re.match(r"\.text\.(\S+):", line):
            functions.append(Function(found[1]))
        elif not functions:
            continue
        elif found := re.match(r"(\.L_\S+):", line):
            functions[-1].targets[found[1]] = len(functions[-1].instructions)
        elif found := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", line):
            functions[-1].instructions.append(found[1])
    return functions


def opcode(text: str) -> str:
    """Without the predicate before it."""
    return re.sub(r"^@\S+\s+", "", text).split()[0]


def kind(text: str) -> str:
    return next((name for name, begins in CLASSES.items() if opcode(text).startswith(begins)), "integer")


def successors(function: Function) -> list[list[int]]:
    """Where each instruction may lead."""
    after, count = [], len(function.instructions)
    for i, text in enumerate(function.instructions):
        name = opcode(text).split(".")[0]
        found = re.search(r"`\((\.L_\S+)\)", text) if name == "BRA" else None
        nexts = [function.targets[found[1]]] if found else []
        # a branch has its condition before it, behind it, or both
        conditional = text.startswith("@") or bool(re.match(r"BRA\S* !?U?P\d", text))
        if conditional or name not in ("BRA", "EXIT", "RET"):
            nexts.append(i + 1)
        after.append([n for n in nexts if n < count])
    return after


def loops(function: Function) -> Iterator[list[int]]:
    """Of each backward branch, the shortest way (Dijkstra's) from its target to it."""
    after = successors(function)
    for last, nexts in enumerate(after):
        for head in nexts:
            if head < last:
                way = _shortest(after, head, last)
                if way is not None:
                    yield way


def _shortest(after: list[list[int]], head: int, last: int) -> list[int] | None:
    best, before, queue = {head: 0}, {head: -1}, [(0, head)]
    while queue:
        length, at = heapq.heappop(queue)
        for to in after[at]:
            if to >= head and length + 1 < best.get(to, sys.maxsize):
                best[to], before[to] = length + 1, at
                heapq.heappush(queue, (length + 1, to))
    if last not in best:
        return None
    way = [last]
    while before[way[-1]] >= 0:
        way.append(before[way[-1]])
    return way[::-1]


def tool(name: str, folder: str | None) -> str:
    """Where it is; SystemExit says how to get it."""
    places = [Path(folder)] if folder else [p for root in sys.path for p in Path(root).glob("nvidia/*/bin")]
    found = [str(p / name) for p in places if (p / name).exists()]
    path = found[-1] if found else shutil.which(name)
    if path is None:
        raise SystemExit(f"expected {name} on PATH or in --tools; PyPI has it: nvidia-cuda-nvcc, nvidia-cuda-nvdisasm")
    return path


def table(ptx: str, architecture: str, folder: str | None) -> Iterator[str]:
    """A line for each kernel and each of its loops."""
    with tempfile.TemporaryDirectory() as made:
        source, code = Path(made) / "kernels.ptx", Path(made) / "kernels.cubin"
        source.write_text(ptx)
        command = [tool("ptxas", folder), "-v", f"-arch={architecture}", str(source), "-o", str(code)]
        said = subprocess.run(command, capture_output=True, text=True)
        if said.returncode:
            raise SystemExit(said.stderr)
        command = [tool("nvdisasm", folder), "-c", str(code)]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = {m[1]: m for m in USED.finditer(said.stderr + said.stdout)}
    for function in sorted(parsed(listing), key=lambda f: f.name):
        m = used[function.name]
        size = len(function.instructions)
        yield f"{function.name}: {size} instructions, {m[4]} registers, spills {m[2]} bytes stored, {m[3]} loaded"
        for way in sorted(loops(function)):
            if len(way) >= SHORTEST:
                kinds = Counter(kind(function.instructions[i]) for i in way)
                counts = ", ".join(f"{name} {count}" for name, count in kinds.most_common())
                yield f"  loop of {way[-1] - way[0] + 1}, shortest way {len(way)}: {counts}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sass", description=__doc__)
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--size", type=int, help="instead of the workload's own for GPUs")
    parser.add_argument("--tools", help="the folder with ptxas and nvdisasm")
    parser.add_argument("--ptx", action="store_true", help="print the PTX, and no more")
    given = parser.parse_args()
    os.environ[place.VARIABLE] = "cpu"
    for workload in given.workloads:
        ptx = ptx_of(workload, given.size)
        print(ptx if given.ptx else "\n".join([workload, *table(ptx, given.architecture, given.tools)]))


if __name__ == "__main__":
    main()
