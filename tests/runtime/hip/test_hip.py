"""The HIP runtime as far as it goes without an AMD GPU: refusals in one line, hip-python's calls against
Debian's library up to its "no device", and whole programs against a stand-in library.

Each test runs in a process of its own, since a library stays loaded.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from loopgrad.codegen.targets.amdgpu import elf
from loopgrad.codegen.targets.amdgpu.notes import kernel_notes
from loopgrad.codegen.targets.amdgpu.update import update_code_object
from loopgrad.codegen.targets.gpu.support.update_list import ENTRY
from loopgrad.runtime.gpu.streams.commands import Arguments

ROOT: Final = Path(__file__).parents[3]
LIBRARY: Final = "libamdhip64.so"
DEBIAN: Final = next((str(p) for p in sorted(Path("/usr/lib").glob(f"*/{LIBRARY}.*"))), None)
LLD: Final = shutil.which("ld.lld-19") or shutil.which("ld.lld")

needs_package = pytest.mark.skipif(importlib.util.find_spec("hip") is None, reason="hip-python is not installed")
needs_debian = pytest.mark.skipif(DEBIAN is None, reason=f"{LIBRARY} (Debian's libamdhip64-5) is not installed")
needs_lld = pytest.mark.skipif(LLD is None, reason="ld.lld-19 (Debian's lld-19) is not installed")


def run(script: str, *arguments: str, libraries: Path | None = None) -> str:
    """The output of a Python program; `libraries` comes first where the loader looks."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    if libraries is not None:
        environment["LD_LIBRARY_PATH"] = str(libraries)
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    """A folder where Debian's library has the name without a version, which its package leaves out."""
    assert DEBIAN is not None
    (tmp_path / LIBRARY).symlink_to(DEBIAN)
    return tmp_path


STATUS: Final = """
import loopgrad as lg
(status,) = [d for d in lg.devices() if d.kind == "hip"]
print(status)
try:
    lg.array([1.0], device="hip").device
except RuntimeError as refused:
    print(str(refused).splitlines()[0])
"""


def unversioned_library_is_there() -> bool:
    script = f"import ctypes; ctypes.CDLL({LIBRARY!r})"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(unversioned_library_is_there(), reason=f"{LIBRARY} is on this machine")
def test_without_the_library() -> None:
    listed, refused = run(STATUS).splitlines()
    assert listed == f"hip:0: {LIBRARY} (the AMD ROCm runtime) not found"
    assert refused.startswith(f"device 'hip:0' can't be used: {LIBRARY} (the AMD ROCm runtime) not found; use one of")


@needs_package
@pytest.mark.skipif(unversioned_library_is_there(), reason=f"{LIBRARY} is on this machine")
def test_what_hip_python_says_without_the_library() -> None:
    """It imports; its first call raises."""
    script = """
from hip import hip
from loopgrad.runtime.hip import found
try:
    found._with_a_device(hip)
except found.HipMissing as missing:
    print(missing)
"""
    assert run(script).startswith(f"hip-python can't use {LIBRARY}: failed to dlopen")


@needs_debian
def test_with_the_library_and_without_the_package(debian: Path) -> None:
    script = "import sys\nsys.modules['hip'] = None\n" + STATUS
    assert run(script, libraries=debian).splitlines()[0] == (
        "hip:0: the package 'hip-python' is not installed (pip install loopgrad[hip])"
    )


@needs_package
@needs_debian
def test_with_the_library_and_without_a_device(debian: Path) -> None:
    script = "from hip import hip\nprint(hip.hipGetDeviceCount()[0].name)\n" + STATUS
    error, listed, refused = run(script, libraries=debian).splitlines()
    assert error == "hipErrorNoDevice"
    assert listed == "hip:0: the AMD ROCm runtime finds no device"
    assert "the AMD ROCm runtime finds no device; use one of cpu, interpreter" in refused


@pytest.mark.parametrize("processor", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_a_launch_packs_what_the_metadata_note_asks_for(processor: str) -> None:
    """HIP copies argument i from where pointer i points to the note's offset, by the note's size."""
    code = update_code_object(processor)
    arguments = kernel_notes(elf.read(code))[ENTRY].arguments
    launch = (1 << 63, -2, 3, 4, 5, 1 << 40)
    packed = Arguments()
    pointers = (ctypes.c_void_p * len(launch)).from_address(packed.pack(3, launch))
    block = bytearray(8 * len(launch))
    for argument, pointer in zip(arguments, pointers, strict=True):
        block[argument.offset : argument.offset + argument.size] = ctypes.string_at(pointer, argument.size)
    assert struct.unpack("<Qqqqqq", block) == launch
    assert [argument.name for argument in arguments] == ["table", "across", "along", "first", "end", "lanes"]


EVERY_CALL: Final = """
import ctypes
from hip import hip
from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.hip.api import HipApi

api = object.__new__(HipApi)
api.hip, api.kind, api.position, api.processor, api._stream = hip, hip.hipMemcpyKind, 0, "gfx90a", None
api._images, api._ordering = {}, None
words = (ctypes.c_uint64 * 12)()
place = ctypes.addressof(words)
calls = {
    "enter": (), "allocate": (64,), "free": (place,), "available": (), "pin": (64,), "unpin": (place,),
    "upload": (place, place, 8), "download": (place, place, 8), "copy": (place, place, 8), "fill": (place, 7, 1),
    "launch": (None, 1, 256, place), "idle": (), "synchronize": (), "make_event": (), "record": (None,),
    "wait": (None,), "load": (b"\\x7fELF" + bytes(200),), "unload": (None,), "function": (None, "k0", 0),
    "occupancy": (None, 256), "make_graph": (), "add_launch": (None, (), 4096, 1, 256, place),
    "add_copy": (None, (), place, place, 8), "add_download": (None, (), place, place, 8),
    "add_fill": (None, (), place, 7, 1), "instantiate": (None,), "launch_graph": (None,), "destroy_graph": (None,),
    "destroy_executable": (None,), "order": (0, 0), "settle": (),
    "make_stream": (), "follow": (None,),
}
for name, arguments in calls.items():
    try:
        getattr(api, name)(*arguments)
    except StreamFailure as failure:
        print(str(failure).rpartition(": ")[2])
"""


@needs_package
@needs_debian
def test_every_call_of_the_runtime_reaches_the_library(debian: Path) -> None:
    """hip-python takes the arguments, and the library, having no device, refuses each call."""
    answers = run(EVERY_CALL, libraries=debian).splitlines()
    assert len(answers) == 33
    assert set(answers) <= {"hipErrorNoDevice", "hipErrorInvalidDevice"}


@needs_package
@needs_lld
def test_programs_on_a_stand_in(tmp_path: Path) -> None:
    """Listing, memory, code objects, launches, graphs and replays: all of the runtime but the GPU."""
    script = (Path(__file__).parent / "programs_on_stand_in.py").read_text()
    assert run(script, str(tmp_path), str(LLD)) == "every function was called"
