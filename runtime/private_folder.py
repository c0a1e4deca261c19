"""A folder whose files nobody but this user can have written.

`open` makes it (mode 0700) or looks at what is there. A folder that belongs to somebody else, that others may write
to, or that holds a link or another user's file is refused as a whole: what was put there may be forged, and changing
its mode afterwards wouldn't undo that. Files are opened without following links and without waiting (a pipe has no
end), and looked at again once they are open.
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
        for name, found in self.files():
            if stat.S_ISLNK(found.st_mode) or not _ours(found):
                kind = "a link" if stat.S_ISLNK(found.st_mode) else f"a file of user {found.st_uid}"
                raise UntrustedError(f"{name} in it is {kind}")
        self.remove_abandoned()

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """What is there; a link is not followed."""
        with os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process removes it now
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

    def remove_abandoned(self) -> None:
        """Remove files that nobody is writing any more."""
        latest = time.time() - ABANDONED_SECONDS
        for name, status in self.files():
            if name.startswith(TEMPORARY) and status.st_mtime < latest:
                self.remove(name)

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
