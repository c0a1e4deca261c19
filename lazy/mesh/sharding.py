"""`lg.shard` and what brings lanes together again.

Axis 0 of a sharded array are lanes; each process holds a range of them. Elementwise operations and loops of lanes keep
lanes where they are; reductions over them are made whole by collectives, which are the same wherever they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.placement.layout import ProcessPart
from loopgrad.lazy.mesh.meshes import Mesh, mesh_device
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, TensorLeaf, as_tensor, wrap
from loopgrad.lazy.tensor.evaluation import buffers_of, device_of, to_numpy
from loopgrad.lazy.tensor.trees import Tree, map_leaves
from loopgrad.runtime.mesh.device import MeshDevice

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "gather_all shard"


def shard(x: ArrayLike | Callable[[int, int], Tree], n: int | Mesh, mesh: Mesh | None = None) -> Any:
    """An array whose axis 0 are lanes that the processes of `mesh` share: `shard(x, mesh)` of what every process has,
    or can read its part of (`np.load(path, mmap_mode="r")`, an array of zarr or h5py), `shard(load, n, mesh)` of what
    each loads for itself.

    `load(start, stop)` gives the lanes from start to stop of n: an array of stop - start rows, or a tree of such. Parts
    are ranges, of which some may be longer than others, or empty: there may be fewer lanes than processes. The result
    has the shape and dtype of the whole, on `mesh.device`; what is computed from it runs there.

    Raises ShapeError for an array without axes, or of another number of rows than lanes; TypeError where there is no
    mesh. What one process raises, all do.

    >>> mesh = lg.mesh()
    >>> x = lg.shard(lg.arange(4.0), mesh)
    >>> y = lg.shard(lambda start, stop: lg.arange(start, stop) * 0.5, 4, mesh)
    >>> x.shape, lg.sum(x * y)
    ((4,), Tensor(7., dtype=float64))
    """
    whole = isinstance(n, Mesh) and mesh is None
    chosen = n if isinstance(n, Mesh) else mesh
    if not isinstance(chosen, Mesh) or (not whole and not isinstance(n, int | np.integer)):
        got = ", ".join(type(a).__name__ for a in (x, n, mesh))
        fix = "pass (x, mesh), or (load, n, mesh)"
        raise TypeError(explained("shard", "an array and a mesh, or a function, a number and a mesh", got, fix))
    device = mesh_device(chosen)
    if whole:
        with device.together(b"shard"):
            return _whole(x, device, ProcessPart(chosen.rank, chosen.size))
    assert isinstance(n, int | np.integer)
    n = int(n)
    if not callable(x):
        fix = "pass (x, mesh) to shard an array"
        raise TypeError(explained("shard", "a function of start and stop", type(x).__name__, fix))
    lanes = device.part.lanes(n)
    with device.together(b"shard"):
        return lanes_of(x(lanes.start, lanes.stop), n, device)


def _whole(x: Any, device: MeshDevice, part: ProcessPart) -> Tensor:
    if isinstance(x, TensorCore) and device_of(x) == device.name:
        return _sharded_again(x, device, part)
    if not isinstance(x, TensorCore) and hasattr(x, "shape") and len(x.shape) and hasattr(x, "__getitem__"):
        lanes = part.lanes(int(x.shape[0]))  # no more is read of what lies in a file
        return _leaf(_array(np.asarray(x[lanes.start : lanes.stop])), int(x.shape[0]), device)
    array = _array(x)
    lanes = part.lanes(len(array))
    return _leaf(array[lanes.start : lanes.stop], len(array), device)


def _sharded_again(x: TensorCore, device: MeshDevice, part: ProcessPart) -> Tensor:
    """Lanes of what is on the mesh already."""
    (buffer,) = buffers_of((x,))
    if getattr(buffer, "axis", None) == 0:
        return wrap(TensorLeaf(buffer.type, buffer, committed=True))
    array = device.get(buffer)
    if not array.ndim:
        _array(array)
    lanes = part.lanes(len(array))
    return _leaf(array[lanes.start : lanes.stop], len(array), device)


def _array(x: Any) -> np.ndarray[Any, Any]:
    array = to_numpy(as_tensor(x))
    if not array.ndim:
        raise ShapeError(explained("shard", "an array with an axis of lanes", "a scalar", "reshape it to (1,)"))
    return array


def lanes_of(own: Tree, n: int, device: MeshDevice) -> Tree:
    """Arrays of n lanes, of which these are this process' own."""
    return map_leaves(lambda part: _part(part, device.part.lanes(n), n, device), own)


def _part(part: Any, lanes: range, n: int, device: MeshDevice) -> Tensor:
    array = _array(part)
    if len(array) != len(lanes):
        got, fix = f"{len(array)} of them", "give what load(start, stop) is asked for"
        raise ShapeError(explained("shard", f"the {len(lanes)} rows from {lanes.start} to {lanes.stop}", got, fix))
    return _leaf(array, n, device)


def _leaf(own: np.ndarray[Any, Any], n: int, device: MeshDevice) -> Tensor:
    buffer = device.put_lanes(own, n)
    return wrap(TensorLeaf(buffer.type, buffer, committed=True))


def gather_all(x: ArrayLike) -> Tensor:
    """All lanes of `x`, on every process: for what moves lanes, as a sort does, or needs several of them.

    The same shape and dtype, and the same elements; of what isn't sharded, `x`. Its derivative is the identity: each
    process takes its own part of the cotangent, and nothing is sent.

    >>> x = lg.shard(lg.asarray([3.0, 1.0, 2.0]), lg.mesh())
    >>> lg.sort(lg.gather_all(x))
    Tensor([1., 2., 3.], dtype=float64)
    """
    t = as_tensor(x)
    return wrap(ops.gathered(t._value))
