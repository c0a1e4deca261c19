"""Lanes of a mesh in files: each process writes what it has beside the file of the tree, and reads what it is to have.

    fit.npz                                     the tree, and of each array with lanes which files have them
    fit.npz.parts/1f00ab12cd34ef56-3-0-500.npy  lanes 0 to 500 of array 3, as one process wrote them

The file of the tree is renamed to its place by one process when all parts are there, so the old tree with its parts or
the new one is found, whatever happens meanwhile. Parts that nothing names any more are removed then. How many processes
wrote is of no matter to those that read: `np.load` maps a part into memory, and each takes the rows that are its own.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from loopgrad.graph.placement.layout import ProcessPart
from loopgrad.graph.placement.sums import resized
from loopgrad.graph.types import dtype_named
from loopgrad.lazy.files.whole_files import write_at_once
from loopgrad.lazy.mesh.meshes import Mesh, mesh_device
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.mesh.buffers import MeshBuffer
from loopgrad.runtime.mesh.device import MeshDevice

FOLDER: Final = ".parts"
NAME: Final = re.compile(r"[0-9a-f]{16}-\d+-\d+-\d+\.npy")
BFLOAT16: Final = "bfloat16"
Array = np.ndarray[Any, Any]


def stored(array: Array) -> Array:
    """As an array is written: `.npy` knows no bfloat16."""
    return np.asarray(array.view(np.uint16) if array.dtype.name == BFLOAT16 else array, order="C")


def restored(array: Array, dtype: str) -> Array:
    if dtype == BFLOAT16 and array.dtype == np.uint16:
        from ml_dtypes import bfloat16  # late: heavy, and only these need it

        return array.view(bfloat16)
    return array


def shared_device(buffers: Sequence[Buffer]) -> MeshDevice | None:
    """The mesh that arrays are on, None where none of them is."""
    for buffer in buffers:
        if isinstance(buffer, MeshBuffer):
            found = get_device(buffer.device)
            assert isinstance(found, MeshDevice)
            return found
    return None


# ---- writing


def write_together(
    device: MeshDevice, path: str, buffers: Sequence[Buffer], write_tree: Callable[[dict[str, Any]], None]
) -> None:
    """Write this process' lanes, wait for the others, and have one process write the tree around them."""
    part = device.part
    with device.together(b"save") as call:
        own = np.frombuffer(secrets.token_bytes(8), np.uint8)
        (tokens,) = call.all_gather({"counts": ((1,) * part.size,), "final": False}, [own[None]])
        token: str = tokens[0].tobytes().hex()  # the first process'
        lanes = {
            str(i): _written(device, path, token, i, buffer)
            for i, buffer in enumerate(buffers)
            if isinstance(buffer, MeshBuffer) and buffer.axis is not None
        }
        call.wait(final=False)
        if part.rank == 0:
            write_tree(lanes)
            _remove_others(path + FOLDER, token)


def _written(device: MeshDevice, path: str, token: str, leaf: int, buffer: MeshBuffer) -> dict[str, Any]:
    """What the file of the tree says of an array, whose lanes of this process are written."""
    axis, shape = buffer.axis, buffer.type.shape
    assert axis is not None
    n = shape[axis]
    ranges = [device.part.of(rank).lanes(n) for rank in range(device.part.size)]
    names = [f"{token}-{leaf}-{lanes.start}-{lanes.stop}.npy" for lanes in ranges]
    own = ranges[device.part.rank]
    if own:
        os.makedirs(path + FOLDER, exist_ok=True)
        array = stored(device.inner.get(buffer.local))
        place = os.path.join(path + FOLDER, names[device.part.rank])
        write_at_once(place, lambda file: np.lib.format.write_array(file, array, allow_pickle=False))
    files = [[name, lanes.start, lanes.stop] for name, lanes in zip(names, ranges, strict=True) if lanes]
    return {"axis": axis, "shape": list(shape), "files": files}


def _remove_others(folder: str, token: str) -> None:
    """Remove what an older tree, or a job that ended before its tree was written, has left."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if NAME.fullmatch(name) and not name.startswith(token):
                with suppress(OSError):
                    os.unlink(os.path.join(folder, name))


def remove_parts(path: str) -> None:
    """Remove the parts of an older tree at this place."""
    if os.path.isdir(path + FOLDER):
        _remove_others(path + FOLDER, "none")
        with suppress(OSError):
            os.rmdir(path + FOLDER)


# ---- reading


class LaneFiles:
    """What the file of a tree says of an array with lanes. ValueError for what can't be."""

    def __init__(self, path: str, known: Mapping[str, Any], dtype: str) -> None:
        self._folder = os.path.realpath(path) + FOLDER
        self._files: list[tuple[str, int, int]] = [(str(f), int(a), int(b)) for f, a, b in known["files"]]
        self.axis, self.shape = int(known["axis"]), tuple([int(n) for n in known["shape"]])
        self._dtype = dtype
        if not 0 <= self.axis < len(self.shape) or min(self.shape) < 0:
            raise ValueError(f"lanes along axis {self.axis} of {self.shape}")
        at = 0
        for name, start, stop in self._files:
            if not NAME.fullmatch(name) or start != at or stop <= start:
                raise ValueError(f"{name} has the lanes from {start} to {stop}, where those from {at} on are missing")
            at = stop
        if at != self.shape[self.axis]:
            raise ValueError(f"{at} lanes in files of {self.shape[self.axis]}")

    def lanes(self, start: int, stop: int) -> Array:
        """The lanes from start to stop; no more is read."""
        pieces = [
            self._mapped(name, first, last)[(slice(None),) * self.axis + (slice(max(start - first, 0), stop - first),)]
            for name, first, last in self._files
            if first < stop and last > start
        ]
        if not pieces:
            dtype = np.dtype(np.uint16) if self._dtype == BFLOAT16 else dtype_named(self._dtype).dtype
            return restored(np.empty(resized(self.shape, self.axis, 0), dtype), self._dtype)
        return restored(np.ascontiguousarray(np.concatenate(pieces, axis=self.axis)), self._dtype)

    def _mapped(self, name: str, first: int, last: int) -> Array:
        place, shape = os.path.join(self._folder, name), resized(self.shape, self.axis, last - first)
        empty = 0 in shape
        found: Array = np.load(place, mmap_mode=None if empty else "r", allow_pickle=False)
        if found.shape != shape or found.dtype.name != (self._dtype if self._dtype != BFLOAT16 else "uint16"):
            raise ValueError(f"{name} holds {found.dtype}{list(found.shape)}, where the tree says {list(shape)}")
        return found

    def whole(self) -> Array:
        return self.lanes(0, self.shape[self.axis])

    def shared(self, mesh: Mesh) -> MeshBuffer:
        """This process' lanes."""
        own = ProcessPart(mesh.rank, mesh.size).lanes(self.shape[self.axis])
        n = self.shape[self.axis]
        return mesh_device(mesh).put_lanes(self.lanes(own.start, own.stop), n, self.axis)
