"""The libraries of one driver: which there are, and who does a routine.

Each is loaded once, when a program may need it; one that isn't installed, or refuses this driver, is as if there were
none, and own kernels do what it would have done.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from loopgrad.graph.primitives import fourier
from loopgrad.runtime.gpu.driver import LibraryCall, RoutineTask
from loopgrad.runtime.gpu.streams import dense
from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.gpu.streams.dense import Dense
from loopgrad.runtime.gpu.streams.fourier import Fourier
from loopgrad.runtime.gpu.streams.vendor import Vendor, VendorLibrary

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.streams.driver import StreamDriver


class Libraries:
    """The device's lock is held while they are used."""

    def __init__(self, driver: StreamDriver, vendor: Vendor | None) -> None:
        self._driver, self._vendor = driver, vendor
        self._known: dict[str, Fourier | Dense | None] = {}  # by title

    def of(self, family: Container[str]) -> Mapping[str, str]:
        """The routines with which these operations are done by a library, and its name."""
        found: dict[str, str] = {}
        if self._vendor is not None:
            if "dft" in family and self._fourier(self._vendor) is not None:
                found.update(dict.fromkeys(fourier.ROWS, self._vendor.fourier.title))
            if "cholesky" in family and self._dense(self._vendor) is not None:
                found.update(dict.fromkeys(dense.ROUTINES, self._vendor.solver.title))
                found["trsm"] = self._vendor.blas.title
        return found

    def routine(self, task: RoutineTask) -> LibraryCall | None:
        assert self._vendor is not None
        library = self._fourier(self._vendor) if task.name in fourier.ROWS else self._dense(self._vendor)
        return None if library is None else library.routine(task)

    def _fourier(self, vendor: Vendor) -> Fourier | Dense | None:
        return self._made(vendor.fourier.title, lambda: Fourier(self._driver, vendor, loaded(vendor.fourier)))

    def _dense(self, vendor: Vendor) -> Fourier | Dense | None:
        def make() -> Dense:
            return Dense(self._driver, vendor, loaded(vendor.solver), loaded(vendor.blas))

        return self._made(vendor.solver.title, make)

    def _made(self, title: str, make: Callable[[], Fourier | Dense]) -> Fourier | Dense | None:
        if title not in self._known:
            try:
                self._known[title] = make()
            except (LibraryMissing, StreamFailure, AttributeError):  # the last two: one for other drivers than this
                self._known[title] = None
        return self._known[title]


class LibraryMissing(RuntimeError):
    """It isn't installed."""


def loaded(kind: VendorLibrary) -> Any:
    library = kind.load()
    if library is None:
        raise LibraryMissing(kind.title)
    return library
