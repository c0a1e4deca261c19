"""Kernels of the CPU target, described: the interface of codegen.targets.cpu with each kernel's numbers."""

from __future__ import annotations

from typing import Any, Final

from loopgrad.codegen.codec import encode
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.objects.objects import Objects
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.cpu.entry.call_context import HEADER, HEADER_WORDS
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface
from loopgrad.codegen.targets.cpu.module import emit_kernels
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord
from loopgrad.codegen.targets.cpu.target import compile_program

ARGUMENTS: Final = {"params": "address", "chunk": "i64", "worker": "address", "control": "address"}
CONTROL_END: Final = ("lane of overflow", "failed check", "lane of check", "detail of check")


def describe_cpu(program: Program, options: Options, target: str) -> Objects:
    """The object holds the kernels and the function `entry`, which runs the program's steps."""
    machine = host_machine()
    artifact = compile_program(program, options)
    _, interfaces = emit_kernels(program.kernels, machine, options)
    kernels = []
    for number, (kernel, interface) in enumerate(zip(program.kernels, interfaces, strict=True)):
        kernels.append({"target": target, "code": "code", "number": number, **_kernel(kernel, interface)})
    rest = encode(CpuProgramRecord, artifact.program)
    del rest["kernels"], rest["residuals"]
    about = {"target": target, "triple": machine.triple, "processor": machine.cpu, "features": machine.features}
    return Objects({"code": artifact.code}, artifact.constants, tuple(kernels), {**about, "entry": "entry", **rest})


def _kernel(kernel: Kernel, interface: CpuKernelInterface) -> dict[str, Any]:
    stacks = len(interface.stacks)
    names = [f"rows of stack {s}" for s in range(stacks)] + [f"needed rows of stack {s}" for s in range(stacks)]
    names += [*CONTROL_END, "address of context"]
    return {
        "kernel": kernel.name,
        "support": False,
        "entry": interface.symbol,
        "arguments": [
            {"name": name, "offset": 8 * i, "bytes": 8, "kind": kind}
            for i, (name, kind) in enumerate(ARGUMENTS.items())
        ],
        "passing": "the C calling convention; returns nothing",
        "params": [
            {"dtype": p.dtype.name, "elements": p.size, "itemsize": p.dtype.itemsize, "access": p.access}
            for p in kernel.params
        ],
        "table": [
            *[{"offset": 8 * i, "kind": "address of param", "param": i} for i in range(len(kernel.params))],
            *[
                {"offset": 8 * (len(kernel.params) + i), "kind": "address of scratch", "scratch": i, "bytes": size}
                for i, size in enumerate(interface.scratch)
            ],
        ],
        "launch": {
            "grid": f"one call for each chunk in [0, {interface.chunks})"
            + (", one after the other" if interface.serial else ", in any order, on any thread"),
            "chunks": interface.chunks,
            "lanes_of_a_chunk": interface.chunk_lanes,
            "lanes_in_flight": interface.lanes_in_flight,
            "finish": interface.finish,
            "worker": [{"offset": 0, "kind": "address of the stacks"}, {"offset": 8, "kind": "number of the thread"}],
        },
        "workgroup_memory": 0,
        "stacks": [
            {
                "name": slot.name,
                "row_bytes": stack.row_bytes,
                "layout": "[row][lane in flight], each stack's bytes rounded up to 64, one after the other",
                "depth_param": stack.depth_param,
            }
            for slot, stack in zip(kernel.stacks, interface.stacks, strict=True)
        ],
        "control": {
            "bytes": 8 * len(names),
            "fields": [{"name": n, "offset": 8 * i, "type": "i64"} for i, n in enumerate(names)],
        },
        "context": context() if interface.interruptible else None,
        "checks": [{"kind": e.kind, "message": e.message, "loc": e.loc and list(e.loc)} for e in kernel.errors],
    }


def context() -> dict[str, Any]:
    """What a kernel with loops that need not end looks at now and then."""
    return {
        "bytes": 8 * HEADER_WORDS,
        "fields": [
            {"name": "stop", "offset": 8 * HEADER["stop"], "type": "i64", "meaning": "not 0: end early"},
            {
                "name": "attend",
                "offset": 8 * HEADER["attend"],
                "type": "address",
                "meaning": "of a function i32 (address of context), called by thread 0: not 0 to end early",
            },
        ],
    }
