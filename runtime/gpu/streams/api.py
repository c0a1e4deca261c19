"""What a stream-ordered driver is built from: CUDA's and HIP's calls with plain integers for addresses.

Handles (modules, functions, events, graphs, nodes) are the binding's own objects. One stream: every call that
starts work puts it at that stream's end. A refused call raises `StreamFailure`, a refused allocation
MemoryError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class StreamFailure(RuntimeError):
    """A call that the driver refused, or work that failed. The text is the driver's name for it."""


class StreamApi(Protocol):
    """One device, its context and its stream. `stream` is its handle, `group_limit` the most workgroups of
    one dispatch; a graph of `graph_size` commands or more costs the host less than these do by themselves."""

    name: str
    stream: int
    multiprocessors: int
    cache_bytes: int
    group_limit: int
    graph_size: int

    # context

    def enter(self) -> Any:
        """Make the device this thread's own; what was is given to `leave`."""
        ...

    def leave(self, before: Any) -> None: ...

    # memory

    def allocate(self, size: int) -> int: ...

    def free(self, address: int) -> None:
        """After all work that was started."""
        ...

    def available(self) -> int: ...

    def pin(self, size: int) -> int:
        """Host memory that the device reaches directly."""
        ...

    def unpin(self, address: int) -> None: ...

    # work on the stream

    def upload(self, target: int, source: int, size: int) -> None:
        """From the host. Pinned memory is read when the stream gets there, other memory before the return or
        then: wait before it changes."""
        ...

    def download(self, target: int, source: int, size: int) -> None:
        """To the host."""
        ...

    def copy(self, target: int, source: int, size: int) -> None: ...

    def fill(self, target: int, value: int, count: int) -> None:
        """`count` 32-bit words."""
        ...

    def launch(self, function: Any, groups: int, group: int, params: int) -> None:
        """`params` is the address of an array of pointers to the arguments, read before the return."""
        ...

    def idle(self) -> bool:
        """Whether all work is done; raises what it failed with."""
        ...

    def synchronize(self) -> None:
        """Wait, deaf to signals."""
        ...

    def make_event(self) -> Any: ...

    def record(self, event: Any, stream: int | None = None) -> None:
        """What the stream, or one of `make_stream`, has so far."""
        ...

    def wait(self, event: Any) -> None:
        """Until the work before the last `record` is done; at once where there was none."""
        ...

    def follow(self, event: Any) -> None:
        """What is put on the stream from now on waits for the work before the last `record`."""
        ...

    # other streams, by their handles: of this device, of other libraries

    def make_stream(self) -> int:
        """One whose kernels the device starts first, where those of the stream wait as well."""
        ...

    def order(self, before: int, after: int) -> None:
        """What is put on stream `after` from now on waits for what is on `before`."""
        ...

    def settle(self) -> None:
        """Wait for all streams of the device, those of other libraries too."""
        ...

    # code

    def load(self, image: bytes) -> Any:
        """A module."""
        ...

    def unload(self, module: Any) -> None: ...

    def function(self, module: Any, entry: str, asked: int) -> Any:
        """`asked`: bytes of a workgroup's memory that are asked for at its launches."""
        ...

    def occupancy(self, function: Any, group: int) -> int:
        """Workgroups of that size that fit on one multiprocessor."""
        ...

    # graphs: explicit nodes, each after the nodes named

    def make_graph(self) -> Any: ...

    def add_launch(
        self, graph: Any, after: Sequence[Any], function: Any, groups: int, group: int, params: int
    ) -> Any: ...

    def add_copy(self, graph: Any, after: Sequence[Any], target: int, source: int, size: int) -> Any:
        """From the device to the device."""
        ...

    def add_download(self, graph: Any, after: Sequence[Any], target: int, source: int, size: int) -> Any: ...

    def add_fill(self, graph: Any, after: Sequence[Any], target: int, value: int, count: int) -> Any: ...

    def instantiate(self, graph: Any) -> Any:
        """What can be launched; the graph itself may then go."""
        ...

    def launch_graph(self, executable: Any) -> None: ...

    def destroy_graph(self, graph: Any) -> None: ...

    def destroy_executable(self, executable: Any) -> None: ...
