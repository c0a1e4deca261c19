"""The records that the emulator's C code (machine.h) and Python share, and the library itself."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from ctypes import c_char, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path

ABSENT, VECTOR, SCALAR, CONSTANT, LITERAL, INLINE_FLOAT = range(6)
WHOLE, BYTE_0, BYTE_1, BYTE_2, BYTE_3, WORD_0, WORD_1 = range(7)
GLOBAL, SCRATCH, GROUP, SCALAR_MEMORY = range(4)
PLAIN, S8, U8, S16, U16, LOW_HALF, HIGH_HALF, LOW_S8, LOW_U8, HIGH_S8, HIGH_U8 = range(11)
ANY_ERROR = 2
OPTIONS = ("-O1", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")


class Operand(ctypes.Structure):
    _fields_ = [("kind", c_uint8), ("negative", c_uint8), ("absolute", c_uint8), ("sign_extended", c_uint8),
                ("part", c_uint8), ("preserved", c_uint8), ("number", c_uint16), ("count", c_uint32),
                ("value", c_uint64)]  # fmt: skip


class Inst(ctypes.Structure):
    _fields_ = [("row", c_void_p), ("to", Operand), ("also", Operand), ("source", Operand * 4), ("offset", c_int64),
                ("target", c_uint32), ("bytes", c_uint32), ("packed", c_uint8), ("clamp", c_uint8),
                ("output_scale", c_uint8), ("half", c_uint8), ("half_high", c_uint8), ("negative_low", c_uint8),
                ("negative_high", c_uint8), ("returns", c_uint8), ("space", c_uint8), ("form", c_uint8),
                ("second", c_void_p), ("text", c_char_p), ("address", c_uint64)]  # fmt: skip


class Range(ctypes.Structure):
    _fields_ = [("first", c_uint64), ("end", c_uint64)]


class Launch(ctypes.Structure):
    _fields_ = [("code", c_void_p), ("count", c_uint32), ("entry", c_uint32), ("lanes", c_uint32),
                ("group", c_uint32), ("groups", c_uint32), ("group_bytes", c_uint32), ("private_bytes", c_uint32),
                ("group_id_register", c_uint32), ("argument_register", c_uint32), ("arguments", c_uint64),
                ("mode", c_uint32), ("zeroes_high_half", c_uint32), ("ranges", c_void_p), ("range_count", c_uint64),
                ("error", c_int32), ("steps", c_uint64), ("message", c_char * 512), ("last_range", c_uint64),
                ("stop", c_uint8 * 512)]  # fmt: skip


def compiled() -> Path:
    """The interpreter, compiled for this computer; kept beside the code that tests compile, for other processes."""
    sources = sorted(Path(__file__).parent.glob("*.[ch]"))
    digest = hashlib.blake2b(b"".join(source.read_bytes() for source in sources), digest_size=8).hexdigest()
    folder = Path(os.environ.get("LOOPGRAD_CACHE_DIR") or tempfile.gettempdir())
    target = folder / f"emulator-{digest}.so"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}")
        files = [source for source in sources if source.suffix == ".c"]
        subprocess.run(["cc", *OPTIONS, "-o", part, *files, "-lm"], check=True)
        part.rename(target)
    return target


@cache
def library() -> ctypes.CDLL:
    """The interpreter's functions."""
    loaded = ctypes.CDLL(str(compiled()))
    loaded.find_row.restype = c_void_p
    loaded.find_row.argtypes = [c_char_p]
    for name in ("has_result", "has_second", "operands", "is_half"):
        getattr(loaded, name).argtypes = [c_void_p, *[ctypes.c_int] * (name == "is_half")]
    loaded.inst_size.restype = loaded.launch_size.restype = ctypes.c_ulong
    assert loaded.inst_size() == ctypes.sizeof(Inst)
    assert loaded.launch_size() <= ctypes.sizeof(Launch)
    return loaded
