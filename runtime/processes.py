"""What must hold when the process forks or ends while other threads are at work.

A forked child has the thread that forked and no other. Our locks are free in it (`child_safe_lock`), whoever held
them, and what else counts the work of threads starts anew (`renewed_in_children`): what they guard is whole after each
single step. LLVM's state isn't, so its lock is held while the process forks; and it is taken for good when the
interpreter ends (`Ending`), since the process then destroys what a thread inside LLVM works on. Modules that we import
late and that another thread is importing are awaited, or the child would wait for them for ever; what a thread begins
to import between that and the fork, the child imports anew. GPUs don't survive a fork: see `lost_in_children`.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from loopgrad.runtime.alive import Alive

FORKED: Final = (
    "this process was forked after its parent had opened the driver, and no GPU survives that; "
    "start processes with multiprocessing's method 'spawn' or 'forkserver', or open the GPU in the children only"
)
LATE_PACKAGES: Final = {"loopgrad", "llvmlite", "optree", "platformdirs", "networkx", "vulkan", "cuda", "hip"}
IMPORTS: Final = "_frozen_importlib"
LLVM: Final = "llvmlite.binding.ffi"
THREADS_IN_LLVM: Final = "loopgrad.codegen.targets.llvm_threads"  # not imported where nothing is compiled
LONGEST_WAIT: Final = 0.5  # seconds


_locks: Final[Alive[Any]] = Alive()
_devices: Final[Alive[Any]] = Alive()


def renewed_in_children(renew: Callable[[], None]) -> None:
    """Call `renew` in every forked child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)


def child_safe_lock() -> Any:
    """A reentrant lock that is free in forked children, whoever held it."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def lost_in_children(device: Any) -> None:
    """In forked children `device.lock`, under which it does everything, raises RuntimeError."""
    _devices.add(device)


class NoDevice:
    """The lock of a device that isn't there any more."""

    def __enter__(self) -> NoReturn:
        raise RuntimeError(f"the device can't be used: {FORKED}")

    def __exit__(self, *failure: object) -> None:
        """Never entered."""


class _Llvm:
    """LLVM's lock as llvmlite has it, and before it that of threads which are inside without. `_held`: what is to be
    released after a fork."""

    def __init__(self) -> None:
        self._held: list[list[Any]] = []

    def acquire(self) -> None:
        """Wait until no thread is inside LLVM, and let none in."""
        threads, ffi = sys.modules.get(THREADS_IN_LLVM), sys.modules.get(LLVM)
        found = getattr(threads, "COMPILING", None), getattr(getattr(ffi, "lib", None), "_lock", None)
        locks = [lock for lock in found if lock is not None]
        for lock in locks:
            lock.__enter__()
        self._held.append(locks)

    def release(self) -> None:
        for lock in reversed(self._held.pop() if self._held else []):
            lock.__exit__(None, None, None)


_llvm: Final = _Llvm()


def _unfinished(name: str) -> bool:
    """Whether some thread is importing that module now."""
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _being_imported() -> list[str]:
    """Modules that we import when they are first needed, and that some thread is importing now."""
    return [name for name in list(sys.modules) if name.partition(".")[0] in LATE_PACKAGES and _unfinished(name)]


def _before_fork() -> None:
    awaited: set[str] = set()
    while True:
        _llvm.acquire()
        names = [name for name in _being_imported() if name not in awaited]
        if not names:
            return
        _llvm.release()
        for name in names:  # once: what is unfinished then, this thread itself is importing
            awaited.add(name)
            with suppress(Exception):  # whoever imports it is told
                importlib.import_module(name)


def _forget_unfinished_imports() -> None:
    """What the parent's other threads were importing is imported anew: here nobody ends it, nor lets go of its lock. So
    is what is not ours, since ours may want it."""
    me = threading.get_ident()
    locks: dict[str, Callable[[], Any]] = getattr(sys.modules.get(IMPORTS), "_module_locks", {})
    owners = {name: getattr(lock(), "owner", None) for name, lock in list(locks.items())}
    lost = [name for name, owner in owners.items() if owner not in (None, me)]
    for name in lost:
        locks.pop(name, None)
    for name in (*_being_imported(), *filter(_unfinished, lost)):
        if owners.get(name) != me:
            sys.modules.pop(name, None)


def _in_child() -> None:
    _forget_unfinished_imports()
    for lock in _locks.members():
        lock._at_fork_reinit()
    for device in _devices.members():
        device.lock = NoDevice()
    _llvm.release()


# What is registered last is called first before a fork. These two take locks there, which a module that another thread
# is importing may want: they are imported first, so that it is awaited before their locks are taken.
BEFORE_US: Final = (logging, concurrent.futures.thread)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_llvm.release, after_in_child=_in_child)


class Ending:
    """Whether the interpreter ends. Before 3.14 it ends a daemon thread where that next runs Python code; inside a C++
    extension this ends the process with an error. So at the end nobody enters the extensions that we call, and those
    inside are awaited."""

    def __init__(self) -> None:
        self.begun = False
        self._callers: set[str] = set()
        self._stopped: set[int] = set()  # threads

    def calls_extensions(self, file: str) -> None:
        """The functions of this file call such an extension, each after `stop_if_ending`."""
        self._callers.add(file)

    def stop_if_ending(self) -> None:
        """A daemon thread stays here for ever once the end has begun."""
        if self.begun and threading.current_thread() is not threading.main_thread():
            self._stopped.add(threading.get_ident())
            threading.Event().wait()

    def begin(self) -> None:
        self.begun = True
        _llvm.acquire()
        patience = time.monotonic() + LONGEST_WAIT
        while self._inside() and time.monotonic() < patience:
            time.sleep(1e-3)

    def _inside(self) -> bool:
        apart = {threading.get_ident(), *self._stopped.copy()}
        for thread, top in sys._current_frames().items():
            frame = None if thread in apart else top
            while frame is not None:
                if frame.f_code.co_filename in self._callers:
                    return True
                frame = frame.f_back
        return False


ENDING: Final = Ending()
atexit.register(ENDING.begin)
