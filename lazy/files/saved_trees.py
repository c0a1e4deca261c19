"""`lg.save` and `lg.load`: trees of tensors in one file, which holds data only.

The file is a zip archive as NumPy's `savez` makes it: `leaf_0.npy`, ... are the arrays, which `np.load` reads too, and
`structure.json` is the tree around them. A node of the tree is a JSON object with one key, its kind: containers, named
tuples and classes with their children, and leaves that aren't arrays, whose types come back (a float is its hexadecimal
digits, an int its decimal ones). Nothing in a file is executed or imported: a class is found among those that the
caller names or has registered; a file that isn't of this form, or is damaged, is refused.

A file is written beside its place and renamed when it is complete, so there is always the old one or the new one.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import LoopgradError, explained
from loopgrad.lazy.files.structures import Decoder, UnknownClassError, encoded
from loopgrad.lazy.numpy.creation import asarray
from loopgrad.lazy.tensor.core import as_tensor
from loopgrad.lazy.tensor.evaluation import arrays_of

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "FileFormatError load save"
FORMAT: Final = "loopgrad tree"
VERSION: Final = 1
STRUCTURE: Final = "structure.json"
BFLOAT16: Final = "bfloat16"
Path = str | os.PathLike[str]


class FileFormatError(LoopgradError, ValueError):
    """A file that `lg.save` hasn't written, or that is damaged."""


def save(path: Path, tree: Any) -> None:
    """Write a tree to a file, which `lg.load` reads.

    Leaves are tensors, arrays and NumPy numbers of every dtype and shape, Python's numbers, strings, bytes and dtypes;
    nodes are those of trees (`lg.tree`), dataclasses and registered classes by their names. The file appears when it is
    complete, in place of an older one; the same tree gives the same bytes. `np.load` reads the arrays, too.

    Raises TypeError for a leaf of another kind, which the message names, OSError where the file can't be written.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "weights.npz")
    >>> lg.save(path, {"w": lg.asarray([1.0, 2.0]), "epoch": 3})
    >>> lg.load(path)
    {'w': Tensor([1., 2.], dtype=float64), 'epoch': 3}
    """
    leaves: list[Any] = []
    structure = encoded(tree, leaves)
    arrays = arrays_of([as_tensor(x) for x in leaves])
    dtypes = [a.dtype.name for a in arrays]
    text = json.dumps({"format": FORMAT, "version": VERSION, "dtypes": dtypes, "tree": structure}, allow_nan=False)

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            with _member(archive, STRUCTURE) as member:
                member.write(text.encode("ascii"))
            for i, array in enumerate(arrays):
                stored = array.view(np.uint16) if array.dtype.name == BFLOAT16 else array
                with _member(archive, f"leaf_{i}.npy") as member:
                    np.lib.format.write_array(member, np.asarray(stored, order="C"), allow_pickle=False)

    _write_at_once(os.path.realpath(os.fspath(path)), write)


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """A file in the archive; its date is no part of what is saved."""
    return archive.open(zipfile.ZipInfo(name), "w", force_zip64=True)


def _write_at_once(path: str, write: Callable[[IO[bytes]], None]) -> None:
    """The file is there with all that is written, or as it was before."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    with suppress(OSError):  # not every system opens folders
        opened = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(opened)  # so that the new name outlives a crash
        finally:
            os.close(opened)


def load(path: Path, classes: Iterable[type] = ()) -> Any:
    """The tree that `lg.save` wrote to a file: arrays and NumPy numbers are tensors, all else is what it was.

    Dataclasses, classes of attrs, named tuples and registered classes are made anew, without calling `__init__`, of
    those among `classes`, those of `lg.optim`, and those that this process has registered with `lg.register_pytree` or
    had in a tree. A file never names what is to be imported or called.

    Raises FileFormatError for a file that isn't whole or that `lg.save` hasn't written, LookupError for a class that
    nobody has named, FileNotFoundError. Shapes and dtypes are checked before memory is taken.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tree")
    >>> lg.save(path, (lg.ones(2, dtype=lg.bfloat16), [None, "text", 1.5]))
    >>> lg.load(path)
    (Tensor([1, 1], dtype=bfloat16), [None, 'text', 1.5])
    """
    place = os.fspath(path)
    try:
        with zipfile.ZipFile(place) as archive:
            known = _structure(archive)
            tensors = [_array(archive, i, dtype) for i, dtype in enumerate(known["dtypes"])]
        return Decoder(tensors, classes).tree(known["tree"])
    except Exception as error:  # whatever zipfile, NumPy and json make of bytes that somebody changed
        theirs = isinstance(error, UnknownClassError | MemoryError | OSError)
        if theirs and getattr(error, "errno", None) != errno.EINVAL:  # EINVAL: an offset that can't be
            raise
        raise _damaged(place, error) from error


def _damaged(place: str, error: Exception) -> FileFormatError:
    fix = "save it again; arrays alone are read by np.load"
    got = f"{place!r}: {type(error).__name__}: {error}"
    return FileFormatError(explained("load", "a whole file that lg.save has written", got, fix))


def _structure(archive: zipfile.ZipFile) -> Mapping[str, Any]:
    """What is written in the archive of the tree."""
    if STRUCTURE not in archive.namelist():
        raise ValueError(f"no {STRUCTURE} in it")
    known = json.loads(archive.read(STRUCTURE).decode("ascii"))
    if not isinstance(known, dict) or known.get("format") != FORMAT:
        raise ValueError(f"{STRUCTURE} isn't of the form {FORMAT!r}")
    if known.get("version") != VERSION:
        raise ValueError(f"version {known.get('version')!r} of the form, where this library knows {VERSION}")
    return known


def _array(archive: zipfile.ZipFile, position: int, dtype: str) -> Tensor:
    """An array of the archive, once its header fits the bytes that there are."""
    name = f"leaf_{position}.npy"
    with archive.open(name) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, stored = read(member)
        needed, there = stored.itemsize * _count(shape), archive.getinfo(name).file_size - member.tell()
        if stored.hasobject or needed != there:
            raise ValueError(f"{name} holds {there} bytes, where its header says {needed} of {stored}")
    with archive.open(name) as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
    tensor = asarray(array)
    if dtype == BFLOAT16 and array.dtype == np.uint16:
        from ml_dtypes import bfloat16  # late: heavy, and only these need it

        tensor = asarray(array.view(bfloat16))
    if tensor.dtype.name != dtype:
        raise ValueError(f"{name} is of dtype {array.dtype}, where the structure says {dtype}")
    return tensor


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        if extent < 0:
            raise ValueError(f"a shape of {shape}")
        count *= extent
    return count
