"""Fourier transforms by a library: cuFFT, or hipFFT with the same functions.

A plan is made for a length and a number of rows that lie one behind the other, and kept as long as somebody holds it or
it is among the latest. Its memory is ours: nothing is taken where a call is started, so that a graph may be made of it.
"""

from __future__ import annotations

from collections import OrderedDict
from ctypes import POINTER, byref, c_int, c_longlong, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.primitives.fourier import transform_length
from loopgrad.graph.types import DType, float32
from loopgrad.runtime.gpu.driver import LibraryCall, RoutineTask, Words
from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.gpu.streams.vendor import Functions, Vendor

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.streams.driver import StreamDriver

FORWARD, BACKWARD = -1, 1
KEPT: Final = 32  # plans
# what a routine is called in names of functions, for parts of 32 bits and of 64, and the number of that type of plan
FORMS: Final = {"dft": ("C2C", "Z2Z"), "real_dft": ("R2C", "D2Z"), "hermitian_dft": ("C2R", "Z2D")}
TYPES: Final = {"C2C": 0x29, "Z2Z": 0x69, "R2C": 0x2A, "D2Z": 0x6A, "C2R": 0x2C, "Z2D": 0x6C}


class FourierPlan:
    """One plan. `size`: bytes that it works in."""

    def __init__(self, library: Fourier, form: str, length: int, count: int) -> None:
        self._library, self._driver = library, library.driver
        kind, functions = library.vendor.plan, library.functions
        self._set_area = functions("SetWorkArea", kind, c_void_p)
        self._destroy = functions("Destroy", kind)
        self._area = 0
        self.handle = kind()
        functions("Create", POINTER(kind))(byref(self.handle))
        size = c_size_t()
        functions("SetAutoAllocation", kind, c_int)(self.handle, 0)
        lengths, none = (c_longlong * 1)(length), None
        nested = POINTER(c_longlong), c_longlong, c_longlong
        make = functions(
            "MakePlanMany64", kind, c_int, POINTER(c_longlong), *nested, *nested, c_int, c_longlong, POINTER(c_size_t)
        )
        make(self.handle, 1, lengths, none, 1, 0, none, 1, 0, TYPES[form], count, byref(size))
        functions("SetStream", kind, c_void_p)(self.handle, self._driver.api.stream)
        self.size = size.value

    def work_in(self, address: int) -> None:
        if address != self._area:
            self._set_area(self.handle, address)
            self._area = address

    def __del__(self) -> None:
        if getattr(self, "_destroy", None) is not None:
            self._driver.discard(self._destroy, self.handle)


class Fourier:
    """The library of one device, whose lock is held while it is used."""

    def __init__(self, driver: StreamDriver, vendor: Vendor, library: Any) -> None:
        self.driver, self.vendor = driver, vendor
        self.functions = Functions(vendor.fourier, library)
        self._plans: OrderedDict[tuple[str, DType, int, int], FourierPlan] = OrderedDict()

    def routine(self, task: RoutineTask) -> LibraryCall | None:
        """None where the library refuses it."""
        (source,), (target,) = task.operands, task.results
        length = transform_length(task.name, dict(task.attrs), source)
        reals = target if task.name == "hermitian_dft" else source
        count = reals.size // (2 * length if task.name == "dft" else length)
        form = FORMS[task.name][source.dtype is not float32]
        plan = self._plan((task.name, source.dtype, length, count), form)
        if plan is None:
            return None
        title, area = self.vendor.fourier.title, self.driver.areas.take(max(plan.size, 1))
        more = (c_int,) if task.name == "dft" else ()
        function = self.functions("Exec" + form, self.vendor.plan, c_void_p, c_void_p, *more)
        direction = (BACKWARD if dict(task.attrs)["inverse"] else FORWARD,) if task.name == "dft" else ()

        def start(words: Words) -> None:
            plan.work_in(area.address)
            function(plan.handle, int(words[0]), int(words[1]), *direction)

        return LibraryCall(f"{title} for {task.name}", start)

    def _plan(self, key: tuple[str, DType, int, int], form: str) -> FourierPlan | None:
        known = self._plans.get(key)
        if known is None:
            try:
                known = self._plans[key] = FourierPlan(self, form, *key[2:])
            except StreamFailure:
                return None
        self._plans.move_to_end(key)
        if len(self._plans) > KEPT:
            self._plans.popitem(last=False)
        return known
