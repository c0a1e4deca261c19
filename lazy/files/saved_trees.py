"""`lg.save` and `lg.load`: trees of tensors in one file, which holds data only.

The file is a zip archive as NumPy's `savez` makes it: `leaf_0.npy`, ... are the arrays, which `np.load` reads too, and
`structure.json` is the tree around them. A node of the tree is a JSON object with one key, its kind: containers, named
tuples and classes with their children, and leaves that aren't arrays, whose types come back (a float is its hexadecimal
digits, an int its decimal ones). Nothing in a file is executed or imported: a class is found among those that the
caller names or has registered; a file that isn't of this form, or is damaged, is refused.

A file is written beside its place and renamed when it is complete, so there is always the old one or the new one.
Lanes that processes share are in files of their own beside it (`lane_parts`), which its `lanes` names.
"""

from __future__ import annotations

import errno
import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, cast

import numpy as np

from loopgrad.graph.errors import LoopgradError, explained
from loopgrad.lazy.files.lane_parts import (
    LaneFiles,
    remove_parts,
    restored,
    shared_device,
    stored,
    write_together,
)
from loopgrad.lazy.files.structures import Decoder, UnknownClassError, encoded
from loopgrad.lazy.files.whole_files import write_at_once
from loopgrad.lazy.mesh.meshes import Mesh, mesh_device
from loopgrad.lazy.numpy.creation import asarray
from loopgrad.lazy.tensor.core import TensorLeaf, as_tensor, wrap
from loopgrad.lazy.tensor.evaluation import buffers_of
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import get_device

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "FileFormatError load save"
FORMAT: Final = "loopgrad tree"
VERSION: Final = 1
STRUCTURE: Final = "structure.json"
LANES: Final = "lanes"
Path = str | os.PathLike[str]
File = Path | IO[bytes]


class FileFormatError(LoopgradError, ValueError):
    """A file that `lg.save` hasn't written, or that is damaged."""


def save(path: File, tree: Any) -> None:
    """Write a tree to a file, which `lg.load` reads: to a path, or to a binary file that is open (`io.BytesIO`).

    Leaves are tensors, arrays and NumPy numbers of every dtype and shape, Python's numbers, strings, bytes and dtypes;
    nodes are those of trees (`lg.tree`), dataclasses and registered classes by their names. The file of a path appears
    when it is complete, in place of an older one; the same tree gives the same bytes. `np.load` reads the arrays, too.

    Of arrays of a mesh every process writes its own lanes, to a folder beside the file, which all processes must see:
    all call this at the same place of the program, one writes the file when all lanes are there.

    Raises TypeError for a leaf of another kind, which the message names, for what is no path or binary file, and for
    arrays of a mesh with an open file, OSError where the file can't be written (for
    arrays of a mesh on all processes).

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "weights.npz")
    >>> lg.save(path, {"w": lg.asarray([1.0, 2.0]), "epoch": 3})
    >>> lg.load(path)
    {'w': Tensor([1., 2.], dtype=float64), 'epoch': 3}
    """
    leaves: list[Any] = []
    structure = encoded(tree, leaves)
    buffers = buffers_of([as_tensor(x) for x in leaves])
    place = _place("save", path)
    head = {"format": FORMAT, "version": VERSION, "dtypes": [b.type.dtype.name for b in buffers], "tree": structure}
    device = shared_device(buffers)
    if not isinstance(place, str):
        if device is not None:
            raise TypeError(explained("save", "a path for arrays of a mesh", repr(path), "pass a file's name"))
        _write_archive(place, head, buffers)
    elif device is None:
        _write_tree(place, head, buffers)
        remove_parts(place)
    else:
        write_together(device, place, buffers, lambda lanes: _write_tree(place, {**head, LANES: lanes}, buffers))


def _place(what: str, path: File) -> str | IO[bytes]:
    """The real path of a file, or the open file."""
    needed = "write" if what == "save" else "read"
    if hasattr(path, needed) and not isinstance(path, io.TextIOBase):
        return cast(IO[bytes], path)
    try:
        return os.path.realpath(os.fsdecode(cast(Path, path)))
    except TypeError:
        fix = "open the file in binary mode, or pass its name"
        raise TypeError(explained(what, "a path, or an open binary file", repr(path), fix)) from None


def _write_tree(place: str, head: Mapping[str, Any], buffers: Sequence[Buffer]) -> None:
    """Write what isn't in parts: the tree and arrays that are whole here."""
    write_at_once(place, lambda file: _write_archive(file, head, buffers))


def _write_archive(file: IO[bytes], head: Mapping[str, Any], buffers: Sequence[Buffer]) -> None:
    text = json.dumps(head, allow_nan=False)
    with zipfile.ZipFile(file, "w") as archive:
        with _member(archive, STRUCTURE) as member:
            member.write(text.encode("ascii"))
        for i, buffer in enumerate(buffers):
            if str(i) not in head.get(LANES, ()):
                array = get_device(buffer.device).get(buffer)
                with _member(archive, f"leaf_{i}.npy") as member:
                    np.lib.format.write_array(member, stored(array), allow_pickle=False)


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """A file in the archive; its date is no part of what is saved."""
    return archive.open(zipfile.ZipInfo(name), "w", force_zip64=True)


def load(path: File, mesh: Mesh | None = None, *, classes: Iterable[type] = ()) -> Any:
    """The tree that `lg.save` wrote to a file, given by its path or open in binary mode: arrays and NumPy numbers are
    tensors, all else is what it was.

    With a `mesh`, what had lanes when it was saved has lanes again, of this mesh: each process reads its own, of which
    there may be other ones than wrote them; all call this at the same place of the program. Without, every array is
    read whole.

    Dataclasses, classes of attrs, named tuples and registered classes are made anew, without calling `__init__`, of
    those among `classes`, those of `lg.optim`, and those that this process has registered with `lg.register_pytree` or
    had in a tree. A file never names what is to be imported or called.

    Raises FileFormatError for a file that isn't whole or that `lg.save` hasn't written, LookupError for a class that
    nobody has named, FileNotFoundError; with a mesh, all processes raise what one of them fails with. Shapes and dtypes
    are checked before memory is taken.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tree")
    >>> lg.save(path, (lg.ones(2, dtype=lg.bfloat16), [None, "text", 1.5]))
    >>> lg.load(path)
    (Tensor([1, 1], dtype=bfloat16), [None, 'text', 1.5])
    """
    if mesh is not None and not isinstance(mesh, Mesh):
        got = type(mesh).__name__
        raise TypeError(explained("load", "a mesh of lg.mesh() behind the path", got, "pass classes=[...] by name"))
    place = _place("load", path)
    if mesh is None:
        return _loaded(place, mesh, classes)
    with mesh_device(mesh).together(b"load"):
        return _loaded(place, mesh, classes)


def _loaded(place: str | IO[bytes], mesh: Mesh | None, classes: Iterable[type]) -> Any:
    try:
        with zipfile.ZipFile(place) as archive:
            known = _structure(archive)
            lanes = known.get(LANES, {})
            if lanes and not isinstance(place, str):
                raise ValueError("its lanes are in files beside it: load it by its path")
            tensors = [
                _array(archive, i, dtype)
                if str(i) not in lanes
                else _lanes(LaneFiles(str(place), lanes[str(i)], dtype), mesh)
                for i, dtype in enumerate(known["dtypes"])
            ]
        return Decoder(tensors, classes).tree(known["tree"])
    except Exception as error:  # whatever zipfile, NumPy and json make of bytes that somebody changed
        theirs = isinstance(error, UnknownClassError | MemoryError | OSError)
        if theirs and getattr(error, "errno", None) != errno.EINVAL:  # EINVAL: an offset that can't be
            raise
        raise _damaged(place, error) from error


def _damaged(place: str | IO[bytes], error: Exception) -> FileFormatError:
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


def _lanes(files: LaneFiles, mesh: Mesh | None) -> Tensor:
    if mesh is None:
        return asarray(files.whole())
    buffer = files.shared(mesh)
    return wrap(TensorLeaf(buffer.type, buffer, committed=True))


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
    tensor = asarray(restored(array, dtype))
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
