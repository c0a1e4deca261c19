"""What running a program asks of a driver: memory, images, lists of commands, and how wide a launch should be.

Vulkan, CUDA and HIP implement `Driver`. Work is done in the order in which it was started, so memory that
nobody holds may be used again by later work.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from loopgrad.codegen.options import FULL_PRECISION
from loopgrad.codegen.program import ArraySlot, MatmulStep
from loopgrad.graph.types import DType, TensorType
from loopgrad.runtime.gpu.memory import Allocation, Bytes

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.ledger import Ledger

Words = np.ndarray[Any, np.dtype[np.uint64]]
Push = tuple[int, int, int, int, int, int]  # table, across, along, first, end, lanes


class ProductTask(NamedTuple):
    """`batch` products of `m` x `k` and `k` x `n` matrices, row-major; a flag says that the operand is stored
    transposed. 16-bit `factors` are added up in float32, which the `result` may be.
    `precision`: of the factors, where they are of float32 (see Options)."""

    batch: int
    m: int
    k: int
    n: int
    transpose_left: bool
    transpose_right: bool
    factors: DType
    result: DType
    precision: str = FULL_PRECISION


def product_task(step: MatmulStep, slots: Sequence[ArraySlot], precision: str = FULL_PRECISION) -> ProductTask:
    factors, result = (slots[slot].type.dtype for slot in (step.left, step.out))
    turned = (step.transpose_left, step.transpose_right)
    return ProductTask(step.batch, step.m, step.k, step.n, *turned, factors, result, precision)


class RoutineTask(NamedTuple):
    """A routine by the name of its primitive, for operands and results of these types."""

    name: str
    attrs: tuple[tuple[str, object], ...]
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """Work of a library. `start` puts it behind what was started, given the addresses of its arrays, and keeps what it
    needs; `label` names it in messages. `captures`: it may become part of a graph. `long`: it takes the host longer
    than starting a graph does."""

    label: str
    start: Callable[[Words], None]
    captures: bool = True
    long: bool = False


class Shared(Protocol):
    """Words that the host writes or reads between runs: address tables and control blocks. `address` is
    theirs on the device; they begin as zeros."""

    @property
    def address(self) -> int: ...

    @property
    def words(self) -> Words: ...

    def clear(self) -> None:
        """Zero them, on the host and for the work that is started next."""
        ...


class Pipeline(Protocol):
    """A kernel that can be launched. `group`: invocations of one workgroup."""

    @property
    def group(self) -> int: ...


class Image(Protocol):
    """Loaded code; gone with the last reference."""

    def pipeline(self, name: str, entry: str, group: int, asked: int) -> Pipeline:
        """The function `entry`; `name` is the kernel's, for messages; `asked`: bytes of a workgroup's memory that its
        launches ask for."""
        ...


class Work(Protocol):
    """Something recorded, to be run any number of times."""

    def run(self, uploads: Sequence[tuple[Shared, int]], report: Shared | None) -> None:
        """Send the first words of each upload, do the work, and fetch the report. Waits where there is a
        report; else may return as soon as the work is started. Signal handlers run while it waits; what they
        raise comes out when the device is idle. RuntimeError where a kernel or the device failed."""
        ...


class Commands(Work, Protocol):
    """A list of work, done in order between `barrier`s. `count`: how many commands it has so far."""

    count: int

    def begin(self) -> None:
        """Forget what was recorded."""
        ...

    def dispatch(self, pipeline: Any, groups: int, push: Push) -> None: ...

    def barrier(self) -> None:
        """What comes after sees all that came before."""
        ...

    def copy(self, source: Allocation, target: Allocation, size: int) -> None: ...

    def write(self, target: Allocation, data: bytes) -> None:
        """A few bytes that are known while recording; a multiple of 4."""
        ...

    def call(self, call: LibraryCall, words: Words) -> None:
        """A library's work. The words hold the addresses of its arrays whenever the commands run."""
        ...

    def end(self, again: bool) -> None:
        """Nothing more is recorded. `again`: it is worth making ready for many runs."""
        ...

    def repeat(self) -> None:
        """As `run` of what has run before, with nothing to send and nothing to report; the device's lock is held."""
        ...


class Driver(Protocol):
    """One device. `lock` is reentrant and guards everything. `endless_loops`: loops in kernels run to their
    own end, however long. `code_growth`: about how many bytes of the host's memory the driver takes for a byte of
    code that is ready to be launched."""

    @property
    def name(self) -> str: ...

    @property
    def endless_loops(self) -> bool: ...

    @property
    def code_growth(self) -> int: ...

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    @property
    def ledger(self) -> Ledger | None:
        """Calls that save values and aren't waited for; None where all are."""
        ...

    def finish(self) -> None:
        """Wait until all work that was started is done."""
        ...

    # memory

    @property
    def held(self) -> int:
        """Bytes taken from the driver for arrays."""
        ...

    def available(self) -> int:
        """Bytes that may still be taken from the driver."""
        ...

    def take(self, size: int) -> Allocation: ...

    def take_each(self, pieces: Sequence[int]) -> list[Allocation]:
        """Allocations of these sizes, each as of `runtime.gpu.memory.piece`; the device's lock is held."""
        ...

    def ready(self, size: int) -> bool:
        """Whether `take` would find a piece that was used before."""
        ...

    def write(self, allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
        """Copy a dense array to the device, after the work that was started; the array may change on return."""
        ...

    def made(self, allocation: Allocation) -> None:
        """The work that was started last makes its final content."""
        ...

    def fetch(self, allocation: Allocation, size: int) -> Bytes:
        """A copy on the host, after the work that was started, or after what makes its content, where that is
        known. Raises why there is none."""
        ...

    def shared(self, words: int) -> Shared: ...

    # work

    def images(self, codes: Sequence[bytes]) -> Sequence[Image]:
        """The parts of one program's code."""
        ...

    def commands(self) -> Commands: ...

    def start(self, work: Sequence[Any], uploads: Sequence[tuple[Shared, int]], report: Shared | None) -> Any:
        """As `Commands.run` of all these lists, one after the other; one may be there several times, and there may be
        none."""
        ...

    def update(self) -> Pipeline:
        """The update kernel (codegen.targets.gpu.support.update_kernel); it tells its decisions as `graph` needs it."""
        ...

    @property
    def host_decides(self) -> str:
        """Why the host reads the decisions on recorded loops and branches; empty where the device acts on them."""
        ...

    def graph(self, items: Sequence[Any], report: Shared, stop: int) -> Work | None:
        """Recorded items (runtime.gpu.control_flow), loops and branches among them, as one piece of work that reports
        these words; None where `host_decides` says why not. Where a wait is broken off, `stop` is the address of a word
        that ends the loops."""
        ...

    def product(self, task: ProductTask) -> LibraryCall | None:
        """Such a product of left and right by a library; None where none has it."""
        ...

    def libraries(self, family: Container[str]) -> Mapping[str, str]:
        """The routines with which a library does these operations, and its name."""
        ...

    def routine(self, task: RoutineTask) -> LibraryCall | None:
        """That routine by a library, from its operands to its results; None where none does it."""
        ...

    def filling(self, pipeline: Any, streams: bool = False) -> int:
        """The most workgroups of a kernel without stacks that one dispatch should have. `streams`: its lanes only read,
        compute and write, or its tiles take unlike times."""
        ...

    def resident(self, pipeline: Any, row_bytes: int) -> int:
        """The most workgroups in flight of a kernel whose invocations have `row_bytes` of stacks each."""
        ...


def put(driver: Driver, array: np.ndarray[Any, Any]) -> Allocation:
    """The array's elements in memory of their own."""
    allocation = driver.take(array.nbytes)
    driver.write(allocation, array)
    return allocation


def read(driver: Driver, allocation: Allocation, type: TensorType) -> np.ndarray[Any, Any]:
    """The elements as an array on the host."""
    return driver.fetch(allocation, type.nbytes).view(type.dtype.np).reshape(type.shape)
