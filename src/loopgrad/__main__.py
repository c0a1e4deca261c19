"""`python -m loopgrad`: commands for people."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

OBJECTS = """\
Run a program on the CPU and write every graph that it has compiled as object files for a target, with
descriptions (JSON) by which any harness or emulator can launch the kernels. docs/objects.md explains them.

targets:
  gfx90a, gfx942, gfx1100, gfx1201, ...   AMD code objects (.hsaco)
  sm_80, sm_90, sm_100, ...               PTX (.ptx)
  spirv                                   SPIR-V modules for Vulkan 1.2 (.spv)
  cpu                                     relocatable objects for this machine (.o)
"""


RUN = """\
Start several processes of a program, one device each, by the mpiexec that is there: the one beside this Python, or on
PATH. Cores are dealt out evenly (LOOPGRAD_NUM_THREADS says otherwise), and GPUs by lg.mesh("cuda").
docs/scale.md explains what the processes share. For several machines, call mpiexec or srun yourself:
    mpiexec -n 64 --hostfile hosts python -m mpi4py fit.py
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m loopgrad", description="Commands of loopgrad.")
    commands = made.add_subparsers(dest="command", required=True, metavar="command")
    objects = commands.add_parser(
        "objects",
        help="write a program's kernels as object files for a target",
        description=OBJECTS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    objects.add_argument("--target", required=True, help="what to generate code for, see above")
    objects.add_argument("--out", required=True, type=Path, metavar="DIR", help="the folder to write to")
    objects.add_argument("--data", action="store_true", help="write what the first run of each graph took and gave")
    objects.add_argument("program", type=Path, help="the Python file to run")
    objects.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    run = commands.add_parser(
        "run",
        help="start several processes of a program",
        description=RUN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("-n", required=True, type=int, metavar="COUNT", help="how many processes")
    run.add_argument("program", type=Path, help="the Python file to run")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    if given.command == "run":
        from loopgrad.runtime.mesh.start import StartError, run  # late: as below

        try:
            return run(given.n, given.program, given.arguments)
        except StartError as failed:
            return refuse(str(failed), "run")
    return objects(given.target, given.out, given.program, given.arguments, given.data)


def objects(target: str, out: Path, program: Path, arguments: Sequence[str], data: bool) -> int:
    from loopgrad.codegen.objects.formats import FORMATS  # late: LLVM's targets
    from loopgrad.runtime.objects import ProgramError, record, write  # late, as above

    if target not in FORMATS:
        return refuse(f"--target: expected one of {', '.join(FORMATS)}, got {target!r}")
    if not program.is_file():
        return refuse(f"expected a Python file to run, there is none at {program}")
    if out.exists() and not out.is_dir():
        return refuse(f"--out: expected a folder, {out} is a file")
    try:
        recorded = record(program, arguments, data)
    except ProgramError as failed:
        if failed.__cause__ is not None and not isinstance(failed.__cause__, SystemExit):
            traceback.print_exception(failed.__cause__)
        return refuse(str(failed))
    try:
        folders = write(recorded, target, out)
    except OSError as failed:
        return refuse(f"--out: {failed}")
    for folder in folders:
        files = sorted(path.name for path in folder.iterdir())
        sys.stdout.write(f"{folder}: {', '.join(files)}\n")
    return 0


def refuse(text: str, command: str = "objects") -> int:
    sys.stderr.write(f"python -m loopgrad {command}: {text}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
