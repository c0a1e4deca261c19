"""The on-disk cache of compiled programs.

The folder is this user's alone (see private_folder): `LOOPGRAD_CACHE_DIR`, or the system's place for caches. One that
isn't is not used, and one warning says why. An entry is one file named by the hash of everything that shaped it, the
content of the compiler among it; it holds JSON (codegen.codec) and machine code, never a pickle, and ends with a keyed
hash (blake2b; the key is a random file in the folder) over name and content, checked before anything is used. Entries
appear by renaming, so a reader sees all of one or nothing. A damaged entry is a miss and one warning. The least
recently used entries leave when the folder exceeds its limit. `LOOPGRAD_CACHE_DIR=` (empty) switches the cache off.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import NoneType
from typing import Final, TypeVar

import ml_dtypes
import numpy as np

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.codec import decode, encode
from loopgrad.runtime.private_folder import PrivateFolder, UntrustedError
from loopgrad.runtime.processes import child_safe_lock

FOLDER_VARIABLE: Final = "LOOPGRAD_CACHE_DIR"
LIMIT_BYTES: Final = 1 << 30
MAGIC: Final = b"loopgrad 2\n"
SUFFIX: Final = ".program"
HEADER: Final = struct.Struct("<QQQ")
MAC_BYTES: Final = 32
KEPT_AFTER_SWEEP: Final = 0.8
SHARE_OF_ROOM: Final = 8  # a process may write so much of the room that is left before it looks at all entries again
SHARE_AT_FIRST: Final = 256
"""A process may write up to so much of the limit before it looks for the first time, how much is drawn: most write
little, to a folder that has room, and looking at a full one takes as long as compiling several programs."""

R = TypeVar("R")
_log = logging.getLogger("loopgrad.cache")


class CacheWarning(RuntimeWarning):
    """A cache folder or entry that can't be trusted."""


class DiskCache:
    """Entries of one folder. Every method survives a folder that vanishes or can't be written."""

    def __init__(self, folder: Path, limit: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self._files = PrivateFolder(folder)
        self._limit = limit
        self._secret: bytes | None = None
        self._usable: bool | None = None
        self._lock = child_safe_lock()
        self._unswept = secrets.randbelow(limit // SHARE_AT_FIRST + 1)  # bytes that may be written before a look
        self._warned = False

    def load(self, parts: Sequence[str], kind: type[R]) -> Artifact[R] | None:
        """The entry for these parts, whose program is of that class, or None."""
        if not self._ready():
            return None
        name = entry_name(parts)
        try:
            data = self._files.read(name)
        except UntrustedError as error:
            self._refuse(error)
            return None
        except OSError:
            return None
        artifact = self._decode(name, data, kind)
        if artifact is None:
            self._warn(
                f"the cache entry {self.folder / name} is damaged or not this user's; it is removed and the program "
                "compiled again"
            )
            self._files.remove(name)
            return None
        self._files.touch(name)
        return artifact

    def store(self, parts: Sequence[str], artifact: Artifact[R]) -> None:
        """Write an entry; a failure is logged and otherwise of no consequence."""
        if not self._ready():
            return
        name = entry_name(parts)
        data = self._encode(name, artifact)
        try:
            self._files.replace(name, data)
        except OSError as error:
            _log.warning("the cache entry could not be written: %s", error)
            return
        with self._lock:
            self._unswept -= len(data)
            sweep = self._unswept < 0
        if sweep:
            with suppress(OSError):
                self._unswept = (self._limit - self._swept()) // SHARE_OF_ROOM

    # files

    def _ready(self) -> bool:
        if self._usable is None:
            with self._lock:
                if self._usable is None:
                    self._usable = self._opened()
        return self._usable

    def _opened(self) -> bool:
        try:
            self._files.open()
            self._secret = _read_secret(self._files)
        except UntrustedError as error:
            self._refuse(error)
        except OSError as error:
            _log.warning("programs are compiled again in each process: %s", error)
        return self._secret is not None

    def _refuse(self, error: UntrustedError) -> None:
        """Nothing of this folder is used from now on."""
        self._usable = False
        self._warn(
            f"the cache folder {self.folder} is not used: {error}, so its programs may be another user's. Programs are "
            f"compiled again in each process; remove the folder, or name one of your own by {FOLDER_VARIABLE}"
        )

    def _swept(self) -> int:
        """Remove what is too much; the bytes that are left. This looks at every file, so it is done rarely."""
        entries = [(f.st_mtime_ns, f.st_size, name) for name, f in self._files.files() if name.endswith(SUFFIX)]
        total = sum(size for _, size, _ in entries)
        if total <= self._limit:
            return total
        for _, size, name in sorted(entries):
            self._files.remove(name)
            total -= size
            if total <= self._limit * KEPT_AFTER_SWEEP:
                break
        return total

    def _warn(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(message, CacheWarning, stacklevel=3)

    # content

    def _mac(self, name: str, body: bytes) -> bytes:
        assert self._secret is not None
        return blake2b(name.encode() + b"\0" + body, key=self._secret, digest_size=MAC_BYTES).digest()

    def _encode(self, name: str, artifact: Artifact[R]) -> bytes:
        program = json.dumps(encode(type(artifact.program), artifact.program), separators=(",", ":")).encode()
        lengths = HEADER.pack(len(program), len(artifact.constants), len(artifact.code))
        body = b"".join((MAGIC, lengths, program, artifact.constants, artifact.code))
        return body + self._mac(name, body)

    def _decode(self, name: str, data: bytes, kind: type[R]) -> Artifact[R] | None:
        body, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(name, body)) or not body.startswith(MAGIC):
            return None
        start = len(MAGIC) + HEADER.size
        program, constants, code = HEADER.unpack_from(body, len(MAGIC))
        first, second = start + program, start + program + constants
        try:
            record = decode(kind, json.loads(body[start:first]))
        except ValueError as error:  # a CodecError, or no JSON
            _log.warning("the cache entry %s holds no %s: %s", name, kind.__name__, error)
            return None
        return Artifact(record, body[first:second], body[second : second + code])


def entry_name(parts: Sequence[str]) -> str:
    """The file name for everything that shaped an entry."""
    text = "\0".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=20).hexdigest() + SUFFIX


def default_cache() -> DiskCache | None:
    """The cache that the environment asks for; None where it is switched off, or names a user there isn't."""
    wanted = os.environ.get(FOLDER_VARIABLE)
    if wanted == "":
        return None
    if wanted is not None:
        try:
            return DiskCache(Path(wanted).expanduser())
        except RuntimeError as error:
            message = f"{FOLDER_VARIABLE}={wanted}: {error}; programs are compiled again in each process"
            warnings.warn(message, CacheWarning, stacklevel=2)
            return None
    from platformdirs import user_cache_path  # late: 30 ms that LOOPGRAD_CACHE_DIR saves

    return DiskCache(user_cache_path("loopgrad"))


def kept_code(cache: DiskCache | None, parts: Sequence[str], make: Callable[[], bytes]) -> bytes:
    """Code that belongs to no program."""
    names = ("code", *parts, compiler_digest())
    known = cache.load(names, NoneType) if cache is not None else None
    if known is not None:
        return known.code
    code = make()
    if cache is not None:
        cache.store(names, Artifact(None, b"", code))
    return code


@cache
def compiler_digest() -> str:
    """A digest of the compiler: the content of its sources (their times say nothing: builds and images fix them),
    and the libraries whose functions compute constants."""
    state = blake2b(f"numpy {np.__version__}, ml_dtypes {ml_dtypes.__version__}".encode(), digest_size=16)
    for layer in ("graph", "codegen"):
        for name, path in _sources(str(Path(__file__).parents[1] / layer), layer):
            with open(path, "rb", buffering=0) as file:
                content = file.read()
            state.update(f"\0{name}\0{len(content)}\0".encode())
            state.update(content)
    return state.hexdigest()


def _sources(folder: str, name: str) -> Iterator[tuple[str, str]]:
    """The Python files below a folder, in a fixed order: their names, and where they are."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            inner = f"{name}/{entry.name}"
            if entry.is_dir():
                yield from _sources(entry.path, inner)
            elif entry.name.endswith(".py"):
                yield inner, entry.path


def _read_secret(files: PrivateFolder) -> bytes:
    """The folder's key; made by whoever comes first."""
    for _ in range(2):
        with suppress(FileNotFoundError):
            secret = files.read("key")
            if len(secret) == MAC_BYTES:
                return secret
            files.remove("key")
        files.create("key", secrets.token_bytes(MAC_BYTES))
    return files.read("key")
