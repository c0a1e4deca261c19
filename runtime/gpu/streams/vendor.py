"""Libraries that work on a device's stream, as their vendor names things: CUDA's and ROCm's have the same functions
with the same arguments, but for prefixes, handles and the numbers of enumerations.

A driver says which there are (`Vendor`). They are loaded when a program may need them, and memory that they work in is
an area of the device's heap, one for all calls, which follow each other on the stream.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.streams.api import StreamFailure

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.streams.driver import StreamDriver


def opened(files: Iterable[str]) -> Any:
    """The first of these shared libraries that is installed; None where none is."""
    for file in files:
        try:
            return ctypes.CDLL(file)
        except OSError:
            continue
    return None


@dataclass(frozen=True, slots=True)
class VendorLibrary:
    """`title` is its name for people, `prefix` of its functions; `load` gives it where it is installed."""

    title: str
    prefix: str
    load: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Vendor:
    """`plan`: what a plan of Fourier transforms is, as an argument. `numbers`: of enumerations, by our names.
    `blas_version`: what names of functions that have older ones beside them end with."""

    fourier: VendorLibrary
    solver: VendorLibrary
    blas: VendorLibrary
    plan: type[Any]
    numbers: Mapping[str, int]
    blas_version: str


class Functions:
    """Those of a library that answer with a status. Needs the device's context while they are called."""

    def __init__(self, kind: VendorLibrary, library: Any) -> None:
        self._kind, self._library = kind, library

    def __call__(self, name: str, *types: Any) -> Callable[..., None]:
        """The function of that name without its prefix, which takes arguments of these types; AttributeError where
        there is none."""
        full = self._kind.prefix + name
        function = getattr(self._library, full)
        function.argtypes, function.restype = types, ctypes.c_int

        def call(*arguments: Any) -> None:
            status = function(*arguments)
            if status:
                raise StreamFailure(f"{full} answered status {status}")

        return call


class WorkAreas:
    """Memory that libraries work in: the largest one that somebody holds is everybody's."""

    def __init__(self, driver: StreamDriver) -> None:
        self._driver = driver
        self._latest: weakref.ref[Allocation] | None = None

    def take(self, size: int) -> Allocation:
        """At least so many bytes; who uses them holds what is returned."""
        known = None if self._latest is None else self._latest()
        if known is None or known.size < size:
            known = self._driver.take(size)
            self._latest = weakref.ref(known)
        return known
