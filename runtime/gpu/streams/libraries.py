"""The libraries of one driver: which there are, and who does a routine.

Each is loaded once, when a program may need it; one that isn't installed, or refuses this driver, is as if there were
none, and own kernels do what it would have done.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from loopgrad.codegen.program import NO_LIBRARIES
from loopgrad.graph.primitives.fourier import ROWS
from loopgrad.runtime.gpu.driver import LibraryCall, RoutineTask
from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.gpu.streams.fourier import Fourier
from loopgrad.runtime.gpu.streams.vendor import Vendor

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.streams.driver import StreamDriver


class Libraries:
    """The device's lock is held while they are used."""

    def __init__(self, driver: StreamDriver, vendor: Vendor | None) -> None:
        self._driver, self._vendor = driver, vendor
        self._fourier: Fourier | None = None
        self._missing: set[str] = set()  # titles

    def of(self, family: Container[str]) -> Mapping[str, str]:
        """The routines with which these operations are done by a library, and its name."""
        if self._vendor is None or "dft" not in family or self._fourier_library() is None:
            return NO_LIBRARIES
        return dict.fromkeys(ROWS, self._vendor.fourier.title)

    def routine(self, task: RoutineTask) -> LibraryCall | None:
        library = self._fourier_library()
        return None if library is None else library.routine(task)

    def _fourier_library(self) -> Fourier | None:
        vendor = self._vendor
        if self._fourier is None and vendor is not None and vendor.fourier.title not in self._missing:
            try:
                library = vendor.fourier.load()
                if library is not None:
                    self._fourier = Fourier(self._driver, vendor, library)
            except (StreamFailure, AttributeError):  # a library for other drivers than this
                pass
            if self._fourier is None:
                self._missing.add(vendor.fourier.title)
        return self._fourier
