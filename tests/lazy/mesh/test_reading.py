"""What processes read of data that lie in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.mesh.meshes import Mesh
from loopgrad.lazy.mesh.sharding import _whole, shard
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.mesh.communicator import Alone
from loopgrad.runtime.mesh.device import MeshDevice


class Noting:
    """An array in a file, as zarr's and h5py's are: what is read is noted."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.read: list[Any] = []

    def __getitem__(self, key: Any) -> Any:
        self.read.append(key)
        return self._array[key]


class Second(Alone):
    rank, size = 1, 3


def test_a_process_reads_its_own_part(tmp_path: Path) -> None:
    rows = np.arange(60.0).reshape(20, 3)
    device = MeshDevice(get_device("cpu"), Second())
    stored = Noting(rows)
    part = _whole(stored, device, device.part)
    own = device.part.lanes(20)
    assert stored.read == [slice(own.start, own.stop)]
    assert part.shape == (20, 3)
    np.testing.assert_array_equal(part._value.buffer.local.array, rows[own.start : own.stop])
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    mesh = lg.mesh("cpu")
    assert float(lg.sum(shard(mapped, mesh))) == rows.sum()
    with pytest.raises(lg.ShapeError, match="a scalar"):
        shard(np.float64(1.0), mesh)
    assert isinstance(mesh, Mesh)


def test_batches_are_read_one_ahead() -> None:
    asked: list[tuple[int, int]] = []

    def load(start: int, stop: int) -> Any:
        asked.append((start, stop))
        if stop > 90:
            raise OSError("no more")
        return {"x": np.arange(start, stop), "y": (np.ones((stop - start, 2)),)}

    mesh = lg.mesh("cpu")
    batches = lg.shard_batches(load, 100, mesh, 40)
    first = next(batches)
    np.testing.assert_array_equal(np.asarray(lg.gather_all(first["x"])), np.arange(40))
    assert first["y"][0].shape == (40, 2)
    second = next(batches)
    assert asked[:2] == [(0, 40), (40, 80)]
    assert int(lg.sum(second["x"])) == sum(range(40, 80))
    with pytest.raises(OSError, match="no more"):
        next(batches)
    assert asked == [(0, 40), (40, 80), (80, 100)]
    assert list(lg.shard_batches(load, 0, mesh, 40)) == []
    with pytest.raises(lg.ShapeError, match="the 3 rows from 0 to 3"):
        next(lg.shard_batches(lambda *_: np.ones(2), 3, mesh, 4))
    with pytest.raises(ValueError, match="batches of 0"):
        lg.shard_batches(load, 3, mesh, 0)
    with pytest.raises(TypeError, match="a mesh"):
        lg.shard_batches(load, 3, 4, 4)
