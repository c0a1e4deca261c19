"""A folder whose files nobody but this user can have written.

`open` makes it (mode 0700) or looks at what is there. A folder that belongs to somebody else, that others may write
to, or that holds a link is refused as a whole, as is one in which a file is met that belongs to another user: what was
put there may be forged, and changing its mode afterwards wouldn't undo that. Files are opened without following links
and without waiting (a pipe has no end), and looked at again once they are open: until then names do, since a full cache
has many files, and each process would ask the system about all of them.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

TEMPORARY: Final = ".writing-"
ABANDONED_SECONDS: Final = 3600.0  # a file that has been written for so long was left by a process that was killed
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_READ: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class UntrustedError(Exception):
    """Somebody else could have written what is there; the message says why."""


class PrivateFolder:
    """Files by name, read and replaced as a whole. OSError where the system refuses, UntrustedError as above."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        """Make the folder or check it, and remove what killed processes have left."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = self.path.stat()
        for one in (status, self.path.lstat()):
            if not _ours(one):
                raise UntrustedError(f"it belongs to user {one.st_uid}")
        if status.st_mode & _OTHERS_WRITE and os.name == "posix":
            raise UntrustedError(f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o})")
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise UntrustedError(f"{entry.name} in it is a link")
                if entry.name.startswith(TEMPORARY):
                    self._remove_abandoned(entry)

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """What is there; a link is not followed, and what killed processes have left goes."""
        with os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process removes it now
                    if not entry.name.startswith(TEMPORARY) or not self._remove_abandoned(entry):
                        yield entry.name, entry.stat(follow_symlinks=False)

    def read(self, name: str) -> bytes:
        """The content of a file; FileNotFoundError where there is none."""
        path = self.path / name
        try:
            descriptor = os.open(path, _READ)
        except FileNotFoundError:
            raise
        except OSError as error:
            if path.is_symlink():
                raise UntrustedError(f"{name} in it is a link") from error
            raise
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UntrustedError(f"{name} in it isn't a file")
            if not _ours(status):
                raise UntrustedError(f"{name} in it is a file of user {status.st_uid}")
            return file.read()

    def replace(self, name: str, data: bytes) -> None:
        """Write a file that appears as a whole, in place of the one there was."""
        temporary = self._written(data)
        try:
            os.replace(temporary, self.path / name)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def create(self, name: str, data: bytes) -> None:
        """Write a file that appears as a whole, unless another process has been first."""
        temporary = self._written(data)
        try:
            with suppress(FileExistsError):
                os.link(temporary, self.path / name)
        finally:
            os.unlink(temporary)

    def remove(self, name: str) -> None:
        """Remove a file, where it is there."""
        with suppress(OSError):
            os.unlink(self.path / name)

    def touch(self, name: str) -> None:
        """Note that a file was used now."""
        with suppress(OSError):
            os.utime(self.path / name, follow_symlinks=False)

    def _remove_abandoned(self, entry: os.DirEntry[str]) -> bool:
        """Remove a file that nobody is writing any more; whether it was one."""
        with suppress(FileNotFoundError):
            if entry.stat(follow_symlinks=False).st_mtime >= time.time() - ABANDONED_SECONDS:
                return False
        self.remove(entry.name)
        return True

    def _written(self, data: bytes) -> str:
        descriptor, temporary = tempfile.mkstemp(dir=self.path, prefix=TEMPORARY)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        return temporary


def _ours(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
