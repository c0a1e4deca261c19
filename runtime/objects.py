"""A user's program as object files: it runs on the CPU, and what is compiled there is compiled for a target
too and written, with descriptions for whoever wants to run it.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loopgrad.codegen.options import Options
from loopgrad.graph.key import key
from loopgrad.graph.nodes import Graph
from loopgrad.runtime import devices
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.cpu.executable import CpuExecutable
from loopgrad.runtime.session import SESSION

FORMAT: Final = 3

Run = Callable[[Sequence[Buffer]], list[Buffer]]


@dataclass(slots=True)
class CompiledGraph:
    """A graph that the program had compiled. `inputs` and `outputs`: the bytes of one run, where they are wanted
    and it ran."""

    graph: Graph
    options: Options
    inputs: list[bytes] | None = None
    outputs: list[bytes] | None = None


class ProgramError(Exception):
    """The user's program ended with the exception that is this one's cause, or compiled nothing."""


class RecordingDevice(CpuDevice):
    """The CPU, which notes each different graph that it compiles and, with `data`, what its first run takes and
    gives."""

    def __init__(self, data: bool) -> None:
        super().__init__()
        self.data = data
        self.recorded: dict[tuple[bytes, str], CompiledGraph] = {}

    def compile(self, graph: Graph, options: Options) -> CpuExecutable:
        one = self.recorded.setdefault((key(graph), options.key()), CompiledGraph(graph, options))
        executable = super().compile(graph, options)
        if self.data and one.inputs is None:
            executable.run = self._noted(executable.run, one)  # type: ignore[assignment,method-assign]
        return executable

    def direct(self, graph: Graph, options: Options) -> None:
        return None  # all code that a program may need is wanted

    def _noted(self, run: Run, one: CompiledGraph) -> Run:
        def noted(buffers: Sequence[Buffer]) -> list[Buffer]:
            if one.outputs is not None:
                return run(buffers)
            one.inputs = [self.get(buffer).tobytes() for buffer in buffers]
            results = run(buffers)
            one.outputs = [self.get(buffer).tobytes() for buffer in results]
            return results

        return noted


def record(program: Path, arguments: Sequence[str] = (), data: bool = False) -> list[CompiledGraph]:
    """Run the file as Python would; the graphs that it had compiled for the device `cpu`, with the `data` of one
    run each. ProgramError where it raises, ends with an exit code that isn't 0, or compiles nothing."""
    device = RecordingDevice(data)
    maker, made = devices.MAKERS["cpu"], devices._made.pop("cpu", None)
    devices.MAKERS["cpu"] = lambda: device
    SESSION.clear()  # what an earlier run had compiled must be compiled here
    saved = sys.argv, sys.path[:]
    sys.argv, sys.path[:] = [str(program), *arguments], [str(program.resolve().parent), *sys.path]
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise ProgramError(f"{program}: expected it to end well, it ended with exit code {ended.code!r}") from ended
    except Exception as raised:
        raise ProgramError(f"{program}: raised {type(raised).__name__}: {raised}") from raised
    finally:
        sys.argv, sys.path[:] = saved
        devices.MAKERS["cpu"] = maker
        devices._made.pop("cpu", None)
        if made is not None:
            devices._made["cpu"] = made
        SESSION.clear()
    if not device.recorded:
        raise ProgramError(
            f"{program}: expected it to evaluate something on the device 'cpu' (the default one), it compiled nothing"
        )
    return list(device.recorded.values())


def write(recorded: Sequence[CompiledGraph], target: str, folder: Path) -> list[Path]:
    """A folder for each program: code, constants.bin, a description of each kernel, program.json. The folders. A
    file that is there already is replaced, and so is a link to one; OSError where a folder can't be written to."""
    from loopgrad.codegen.objects.formats import FORMATS, compile_objects  # late: all targets, and LLVM
    from loopgrad.codegen.pipeline import build_program  # late, as above

    suffix, made = FORMATS[target].suffix, []
    for number, one in enumerate(recorded):
        form = FORMATS[target]
        memory = form.lane_bytes(target)
        program = build_program(one.graph, one.options, lane_bytes=memory, own_products=form.own_products)
        objects = compile_objects(program, one.options, target)
        place = folder / f"program_{number:03d}"
        _make_folder(place)
        for name, code in objects.images.items():
            _replace(place / f"{name}.{suffix}", code)
        _replace(place / "constants.bin", objects.constants)
        names = []
        for kernel in objects.kernels:
            names.append(f"{kernel['number']:02d}_{re.sub(r'[^A-Za-z0-9_-]', '_', kernel['kernel'])}.json")
            _dump(place / names[-1], {"format": FORMAT, **kernel, "code": f"{kernel['code']}.{suffix}"})
        about = {"format": FORMAT, "options": one.options.key(), "kernel_files": names, "constants": "constants.bin"}
        _dump(place / "program.json", {**about, **_data(place, one), **objects.program})
        made.append(place)
    return made


def _data(place: Path, one: CompiledGraph) -> dict[str, Any]:
    """Files with the elements of a run, where it is known: by the order of `inputs` and `outputs`."""
    if one.inputs is None or one.outputs is None:
        return {}
    names: dict[str, list[str]] = {}
    for kind, arrays in (("inputs", one.inputs), ("outputs", one.outputs)):
        names[kind] = [f"{kind[:-1]}_{i}.bin" for i in range(len(arrays))]
        for name, content in zip(names[kind], arrays, strict=True):
            _replace(place / name, content)
    return {"data": names}


def _dump(path: Path, data: dict[str, Any]) -> None:
    _replace(path, (json.dumps(data, indent=1) + "\n").encode())


def _make_folder(place: Path) -> None:
    """The folder of one program; a link in its place would lead out of the folder that was asked for."""
    if place.is_symlink():
        raise FileExistsError(f"expected {place} to be a folder or free, it is a link; remove it")
    place.mkdir(parents=True, exist_ok=True)


def _replace(path: Path, content: bytes) -> None:
    """Write a new file and give it the name: what a link of that name leads to stays as it is."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(new, "xb") as file:
        file.write(content)
    new.replace(path)
