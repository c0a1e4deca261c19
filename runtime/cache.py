"""The on-disk cache of compiled programs.

The folder belongs to the user alone (mode 0700): `LOOPGRAD_CACHE_DIR`, or the system's place for
caches. An entry is one file named by the hash of everything that shaped it; it holds JSON and machine
code, never a pickle, and ends with a keyed hash (blake2b; the key is a random file in the folder) over
name and content, checked before anything is used. Entries appear by renaming, so a reader sees all of
one or nothing. A damaged entry is a miss and one warning. The least recently used entries leave when
the folder exceeds its limit. `LOOPGRAD_CACHE_DIR=` (empty) switches the cache off.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
import stat
import struct
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from loopgrad.codegen.artifact import Artifact

FOLDER_VARIABLE: Final = "LOOPGRAD_CACHE_DIR"
LIMIT_BYTES: Final = 1 << 30
MAGIC: Final = b"loopgrad 1\n"
SUFFIX: Final = ".program"
HEADER: Final = struct.Struct("<QQQ")
MAC_BYTES: Final = 32
WRITES_BETWEEN_SWEEPS: Final = 16
KEPT_AFTER_SWEEP: Final = 0.8

_log = logging.getLogger("loopgrad.cache")


class CacheWarning(RuntimeWarning):
    """A cache entry that can't be trusted."""


class DiskCache:
    """Entries of one folder. Every method survives a folder that vanishes or can't be written."""

    def __init__(self, folder: Path, limit: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self._limit = limit
        self._secret: bytes | None = None
        self._usable: bool | None = None
        self._lock = threading.Lock()
        self._writes = 0
        self._warned = False

    def load(self, parts: Sequence[str]) -> Artifact | None:
        """The entry for these parts, or None."""
        if not self._ready():
            return None
        name = entry_name(parts)
        path = self.folder / name
        try:
            data = path.read_bytes()
        except OSError:
            return None
        artifact = self._decode(name, data)
        if artifact is None:
            self._warn(path)
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return artifact

    def store(self, parts: Sequence[str], artifact: Artifact) -> None:
        """Write an entry; a failure is logged and otherwise of no consequence."""
        if not self._ready():
            return
        name = entry_name(parts)
        try:
            self._replace(name, self._encode(name, artifact))
        except OSError as error:
            _log.warning("the cache entry could not be written: %s", error)
            return
        with self._lock:
            sweep = self._writes % WRITES_BETWEEN_SWEEPS == 0
            self._writes += 1
        if sweep:
            self._sweep()

    # files

    def _ready(self) -> bool:
        if self._usable is None:
            with self._lock:
                if self._usable is None:
                    try:
                        _own_folder(self.folder)
                        self._secret = _read_secret(self.folder)
                        self._usable = True
                    except OSError as error:
                        _log.warning("programs are compiled again in each process: %s", error)
                        self._usable = False
        return self._usable

    def _replace(self, name: str, data: bytes) -> None:
        descriptor, temporary = tempfile.mkstemp(dir=self.folder, prefix=".writing-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(temporary, self.folder / name)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _sweep(self) -> None:
        entries = []
        with suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                if file.name.endswith(SUFFIX):
                    with suppress(OSError):
                        status = file.stat()
                        entries.append((status.st_mtime_ns, status.st_size, file.path))
        total = sum(size for _, size, _ in entries)
        if total <= self._limit:
            return
        for _, size, path in sorted(entries):
            with suppress(OSError):
                os.unlink(path)
            total -= size
            if total <= self._limit * KEPT_AFTER_SWEEP:
                return

    def _warn(self, path: Path) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            warnings.warn(
                f"the cache entry {path} is damaged or not this user's; it is removed and the program compiled again",
                CacheWarning,
                stacklevel=2,
            )

    # content

    def _mac(self, name: str, body: bytes) -> bytes:
        assert self._secret is not None
        return blake2b(name.encode() + b"\0" + body, key=self._secret, digest_size=MAC_BYTES).digest()

    def _encode(self, name: str, artifact: Artifact) -> bytes:
        metadata = json.dumps(dict(artifact.metadata), separators=(",", ":")).encode()
        lengths = HEADER.pack(len(metadata), len(artifact.constants), len(artifact.code))
        body = b"".join((MAGIC, lengths, metadata, artifact.constants, artifact.code))
        return body + self._mac(name, body)

    def _decode(self, name: str, data: bytes) -> Artifact | None:
        body, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(name, body)) or not body.startswith(MAGIC):
            return None
        start = len(MAGIC) + HEADER.size
        metadata, constants, code = HEADER.unpack_from(body, len(MAGIC))
        first, second = start + metadata, start + metadata + constants
        return Artifact(json.loads(body[start:first]), body[first:second], body[second : second + code])


def entry_name(parts: Sequence[str]) -> str:
    """The file name for everything that shaped an entry."""
    text = "\0".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=20).hexdigest() + SUFFIX


def default_cache() -> DiskCache | None:
    """The cache that the environment asks for; None where it is switched off."""
    wanted = os.environ.get(FOLDER_VARIABLE)
    if wanted == "":
        return None
    if wanted is not None:
        return DiskCache(Path(wanted).expanduser())
    from platformdirs import user_cache_path  # late: 30 ms that LOOPGRAD_CACHE_DIR saves

    return DiskCache(user_cache_path("loopgrad"))


def kept_code(cache: DiskCache | None, parts: Sequence[str], make: Callable[[], bytes]) -> bytes:
    """Code that belongs to no program."""
    names = ("code", *parts, source_digest())
    known = cache.load(names) if cache is not None else None
    if known is not None:
        return known.code
    code = make()
    if cache is not None:
        cache.store(names, Artifact({}, b"", code, {}))
    return code


def source_digest() -> str:
    """A digest of the compiler's own sources (names, sizes, times), so that a changed compiler misses."""
    root = Path(__file__).resolve().parents[1]
    state = blake2b(digest_size=16)
    for layer in ("graph", "codegen"):
        folder = (Path(__file__).parents[1] / layer).resolve()
        base = folder if folder.is_dir() else root / layer
        for path in sorted(base.rglob("*.py")):
            status = path.stat()
            state.update(f"{path.relative_to(base)}:{status.st_size}:{status.st_mtime_ns};".encode())
    return state.hexdigest()


def _own_folder(folder: Path) -> None:
    """Make the folder, or make sure that it is this user's and nobody else's."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        raise PermissionError(f"the cache folder {folder} belongs to another user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)


def _read_secret(folder: Path) -> bytes:
    """The folder's key; made by whoever comes first."""
    path = folder / "key"
    for _ in range(2):
        with suppress(FileNotFoundError):
            secret = path.read_bytes()
            if len(secret) == MAC_BYTES:
                return secret
            path.unlink()
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".writing-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(MAC_BYTES))
        with suppress(FileExistsError):
            os.link(temporary, path)
        os.unlink(temporary)
    return path.read_bytes()
