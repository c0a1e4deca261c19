"""The state of one running call: the words that compiled code reads and writes.

A context belongs to one call at a time. Between calls it waits in its executable with everything it
has learned: stack capacities, program stacks, its own stack heap.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from loopgrad.codegen.program import MatmulStep, RoutineStep
from loopgrad.codegen.targets.cpu.entry.call_context import (
    HEADER,
    INITIAL_CAPACITY,
    RESERVE_HEAP,
    RESERVE_STACK,
    stack_stride,
)
from loopgrad.codegen.targets.cpu.record import CpuProgramRecord
from loopgrad.graph.types import TensorType
from loopgrad.runtime.cpu import memory
from loopgrad.runtime.cpu.host_calls import bound, is_bindable, prepared
from loopgrad.runtime.cpu.native_pool import NativePool

RESERVE: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
HOST_CALL: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)

NO_LIMIT: Final = (1 << 63) - 1
MOST_BOUND: Final = 64  # library calls that a context keeps ready
MOST_ARRAYS: Final = 256  # views of memory, likewise
OWNED_ARENA_BYTES: Final = 1 << 14  # larger arenas are shared by all programs

_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def owns_arena(program: CpuProgramRecord) -> bool:
    """Whether each of a program's contexts has memory of its own for temporaries."""
    return program.layout.arena.size <= OWNED_ARENA_BYTES


class CallContext:
    """`words[HEADER[...]]` and the rest as laid out by codegen.targets.cpu.entry.call_context."""

    def __init__(self, program: CpuProgramRecord, pool: NativePool, constants: int, forced: int | None) -> None:
        self.program = program
        self.pool = pool
        self.words: Any = (ctypes.c_int64 * program.layout.words)()
        self.address = ctypes.addressof(self.words)
        self.refused: tuple[int, int] | None = None
        self.raised: BaseException | None = None
        self._callbacks = self._set_callbacks()
        self._bindable = [self._words_of(step) if is_bindable(step) else None for step in program.host_calls]
        self._calls = [prepared(step, pool) for step in program.host_calls]
        self._arrays: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
        self._bound: dict[tuple[int, ...], Callable[[], object]] = {}
        self.owns_arena = owns_arena(program)
        if self.owns_arena:
            self._arena = memory.HostBlock(program.layout.arena.size)
            self.words[HEADER["arena"]] = self._arena.address
        self._set_header(forced)
        for number, slot in enumerate(program.slots):
            if slot.constant is not None:
                self.words[program.layout.word(number)] = constants + slot.constant
        for control, kernel in zip(program.layout.controls, program.kernels, strict=True):
            for s, stack in enumerate(kernel.stacks):
                self.words[control + s] = INITIAL_CAPACITY if stack.depth_param is None else 0
        weakref.finalize(self, release, self.words, program.layout.stacks).atexit = False

    def _set_header(self, forced: int | None) -> None:
        words = self.words
        words[HEADER["pool_run"]] = self.pool.run
        words[HEADER["pool_run_short"]] = self.pool.run_short
        words[HEADER["serial_run"]] = self.pool.serial_run
        words[HEADER["launch"]] = self.pool.launch
        words[HEADER["poll"]] = self.pool.poll
        words[HEADER["attend"]] = self.pool.attend
        words[HEADER["forced_capacity"]] = -1 if forced is None else forced
        words[HEADER["heap_most"]] = NO_LIMIT
        if forced is None and any(kernel.stacks for kernel in self.program.kernels):
            self._look_up_memory()
        if any(isinstance(call, MatmulStep) for call in self.program.host_calls):
            products = self.pool.products(self.pool.threads)
            words[HEADER["product_f32"]], words[HEADER["product_f64"]] = products["float32"], products["float64"]

    def _set_callbacks(self) -> Sequence[Any]:
        """Native pointers to this context's own methods; a weak reference keeps it collectable."""
        this = weakref.ref(self)

        def reserve(_: int, kind: int, size: int) -> int:
            context = this()
            return 1 if context is None else context.reserve(kind, size)

        def host_call(_: int, number: int) -> int:
            context = this()
            return 1 if context is None else context.host_call(number)

        callbacks = (RESERVE(reserve), HOST_CALL(host_call))
        for name, callback in zip(("reserve", "host_call"), callbacks, strict=True):
            self.words[HEADER[name]] = ctypes.cast(callback, ctypes.c_void_p).value or 0
        return callbacks

    def reserve(self, kind: int, size: int) -> int:
        """0 where native code may allocate: `size` bytes of heap per worker, or `size` bytes in
        all for one program stack."""
        if kind == RESERVE_HEAP:
            self.refused = memory.refusal(size * self.pool.threads, self.pool.heap_bytes)
            self._look_up_memory()
        else:
            own, places = kind - RESERVE_STACK, self.program.layout.stacks
            held = self.words[places[own] + 2] * stack_stride(self.program.stacks[own].element)
            promised = sum(self._untouched(stack) for stack in range(len(places)) if stack != own)
            self.refused = memory.refusal(size + promised, lambda: held)
        return 0 if self.refused is None else 1

    def _look_up_memory(self) -> None:
        """Let kernels know how much their stacks could have, so that they needn't count to the end for nothing."""
        available = memory.available_bytes()
        if available is not None:
            most = (int(available * memory.HEADROOM) + self.pool.heap_bytes()) // self.pool.threads
            self.words[HEADER["heap_most"]] = max(most, memory.UNCHECKED_BYTES)

    def _untouched(self, stack: int) -> int:
        """Bytes that a program stack has and never used: allocated, but not yet taken from the system."""
        word = self.program.layout.stacks[stack]
        capacity, peak = self.words[word + 2], self.words[word + 3]
        return int(max(capacity - peak, 0) * stack_stride(self.program.stacks[stack].element))

    def host_call(self, number: int) -> int:
        """Run one library call on the slots' memory; 1 where it raised."""
        try:
            places = self._bindable[number]
            if places is None:
                self._calls[number](self.slot_array)
                return 0
            words, (given, result) = self.words, places
            key = number, words[given], words[result]
            bound_call = self._bound.get(key)
            if bound_call is None:
                bound_call = self._bind(key)
            bound_call()
        except BaseException as error:
            self.raised = error
            return 1
        return 0

    def _words_of(self, step: RoutineStep) -> tuple[int, int]:
        """Where the addresses of its operand and its result are."""
        (given,), (result,), slots = step.inputs, step.outputs, self.program.layout.slots
        return slots + given, slots + result

    def _bind(self, key: tuple[int, int, int]) -> Callable[[], object]:
        """What does a library call on the addresses that its slots have now: memory comes back soon, so it is kept."""
        if len(self._bound) >= MOST_BOUND:
            self._bound.clear()
        step = self.program.host_calls[key[0]]
        assert isinstance(step, RoutineStep), step
        found = self._bound[key] = bound(step, self.slot_array, self.pool)
        return found

    def raise_signal(self) -> None:
        """Raise what a signal handler raised while native code polled."""
        words = self.words
        raised = [ctypes.c_void_p(words[HEADER[f"raised_{part}"]]) for part in ("type", "value", "traceback")]
        ctypes.pythonapi.PyErr_Restore(*raised)  # takes the references over; ctypes then raises

    def slot_array(self, slot: int) -> np.ndarray[Any, Any]:
        """A view of a slot's memory during a call; kept, since making it takes longer than a small routine."""
        key = slot, self.words[self.program.layout.slots + slot]
        array = self._arrays.get(key)
        if array is None:
            if len(self._arrays) >= MOST_ARRAYS:
                self._arrays.clear()
            array = self._arrays[key] = _view(self.program.slots[slot].type, key[1])
        return array

    def rows(self, kernel: int) -> list[int]:
        """Rows that each stack had in the last launch. Lanes move in lockstep: where their loops are uneven a stack
        grows beyond the depth that one lane needs."""
        return [int(self.words[word]) for word in self._capacities(kernel)]

    def _capacities(self, kernel: int) -> range:
        first = self.program.layout.controls[kernel]
        return range(first, first + len(self.program.kernels[kernel].stacks))

    def learn(self, other: CallContext) -> None:
        """Take over the stack capacities of another context of the same program."""
        for kernel in range(len(self.program.kernels)):
            for word in self._capacities(kernel):
                self.words[word] = max(self.words[word], other.words[word])

    def heap_bytes(self) -> int:
        """Stack heap per worker that was approved so far."""
        return int(self.words[HEADER["heap_approved"]])

    def growths(self) -> int:
        return int(self.words[HEADER["growths"]])


def _view(type: TensorType, address: int) -> np.ndarray[Any, Any]:
    if type.nbytes == 0:
        return np.empty(type.shape, type.dtype.np)
    content: Any = (ctypes.c_char * type.nbytes).from_address(address)
    array: np.ndarray[Any, Any] = np.frombuffer(content, dtype=type.dtype.np)
    return array.reshape(type.shape)


def release(words: Any, stacks: Sequence[int]) -> None:
    """Free what native code allocated for a context; it starts small again, and learns anew."""
    for word in stacks:
        if words[word]:
            _libc.free(words[word])
            words[word] = words[word + 2] = words[word + 3] = 0
    if words[HEADER["heap_size"]]:
        _libc.munmap(words[HEADER["heap_base"]], words[HEADER["heap_size"]])
        words[HEADER["heap_base"]] = words[HEADER["heap_size"]] = 0
