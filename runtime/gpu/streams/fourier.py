"""Fourier transforms by a library: cuFFT, or hipFFT with the same functions.

A plan is made for lengths of one to three axes and a number of such arrays, one behind the other or side by side. It is
kept as long as somebody holds it or it is among the latest. Its memory is ours: nothing is taken where a call is
started, so that a graph may be made of it.
"""

from __future__ import annotations

from collections import OrderedDict
from ctypes import POINTER, byref, c_int, c_longlong, c_size_t, c_void_p
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.primitives.fourier import axes_of, spectrum_shape, transform_length
from loopgrad.graph.types import float32
from loopgrad.runtime.gpu.driver import LibraryCall, RoutineTask, Words
from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.gpu.streams.vendor import Functions, Vendor

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.streams.driver import StreamDriver

FORWARD, BACKWARD = -1, 1
KEPT: Final = 32  # plans
# what a routine is called in names of functions, for parts of 32 bits and of 64, and the number of that type of plan
FORMS: Final = {
    "dft": ("C2C", "Z2Z"), "dft_along": ("C2C", "Z2Z"), "real_dft": ("R2C", "D2Z"), "real_dft_along": ("R2C", "D2Z"),
    "hermitian_dft": ("C2R", "Z2D"), "hermitian_dft_along": ("C2R", "Z2D"),
}  # fmt: skip
TYPES: Final = {"C2C": 0x29, "Z2Z": 0x69, "R2C": 0x2A, "D2Z": 0x6A, "C2R": 0x2C, "Z2D": 0x6C}


@dataclass(frozen=True, slots=True)
class Extents:
    """What a plan is about: `count` arrays with these lengths of what is transformed, whose numbers are `apart` places
    from each other: 1, or as many as there are arrays, which lie side by side."""

    lengths: tuple[int, ...]
    count: int
    apart: int = 1


class FourierPlan:
    """One plan. `size`: bytes that it works in."""

    def __init__(self, library: Fourier, form: str, extents: Extents) -> None:
        self._library, self._driver = library, library.driver
        kind, functions = library.vendor.plan, library.functions
        self._set_area = functions("SetWorkArea", kind, c_void_p)
        self._destroy = functions("Destroy", kind)
        self._area = 0
        self.handle = kind()
        functions("Create", POINTER(kind))(byref(self.handle))
        size = c_size_t()
        functions("SetAutoAllocation", kind, c_int)(self.handle, 0)
        rank = len(extents.lengths)
        lengths = (c_longlong * rank)(*extents.lengths)
        sides = [_side(extents, form, letter) for letter in (form[0], form[2])]
        nested = POINTER(c_longlong), c_longlong, c_longlong
        make = functions(
            "MakePlanMany64", kind, c_int, POINTER(c_longlong), *nested, *nested, c_int, c_longlong, POINTER(c_size_t)
        )
        make(self.handle, rank, lengths, *sides[0], *sides[1], TYPES[form], extents.count, byref(size))
        functions("SetStream", kind, c_void_p)(self.handle, self._driver.api.stream)
        self.size = size.value

    def work_in(self, address: int) -> None:
        if address != self._area:
            self._set_area(self.handle, address)
            self._area = address

    def __del__(self) -> None:
        if getattr(self, "_destroy", None) is not None:
            self._driver.discard(self._destroy, self.handle)


def _side(extents: Extents, form: str, letter: str) -> tuple[Any, int, int]:
    """How the numbers of that letter of the form lie: lengths of what surrounds them, how far it is from one number to
    the next, and from one array."""
    halved = form[0] != form[2] and letter in "CZ"
    *others, last = extents.lengths
    there = (*others, last // 2 + 1 if halved else last)
    pitch = prod(there) if extents.apart == 1 else 1
    return (c_longlong * len(there))(*there), extents.apart, pitch


def _extents(task: RoutineTask) -> Extents:
    """Of what a routine transforms."""
    (source,), attrs = task.operands, dict(task.attrs)
    if "axes" not in attrs:
        length = transform_length(task.name, attrs, source)
        reals = task.results[0] if task.name == "hermitian_dft" else source
        return Extents((length,), reals.size // (2 * length if task.name == "dft" else length))
    axes, shape = axes_of(attrs), spectrum_shape(task.name, source, task.results[0])
    lengths, behind = tuple([shape[axis] for axis in axes]), prod(shape[axes[-1] + 1 :])
    assert behind == 1 or prod(shape[: axes[0]]) == 1, "a plan has arrays one behind the other, or side by side"
    return Extents(lengths, prod(shape) // prod(lengths), behind)


class Fourier:
    """The library of one device, whose lock is held while it is used."""

    def __init__(self, driver: StreamDriver, vendor: Vendor, library: Any) -> None:
        self.driver, self.vendor = driver, vendor
        self.functions = Functions(vendor.fourier, library)
        self._plans: OrderedDict[tuple[str, Extents], FourierPlan] = OrderedDict()

    def routine(self, task: RoutineTask) -> LibraryCall | None:
        """None where the library refuses it."""
        form = FORMS[task.name][task.operands[0].dtype is not float32]
        plan = self._plan(form, _extents(task))
        if plan is None:
            return None
        title, area = self.vendor.fourier.title, self.driver.areas.take(max(plan.size, 1))
        turns = form[0] == form[2]
        function = self.functions("Exec" + form, self.vendor.plan, c_void_p, c_void_p, *[c_int] * turns)
        direction = (BACKWARD if dict(task.attrs)["inverse"] else FORWARD,) if turns else ()

        def start(words: Words) -> None:
            plan.work_in(area.address)
            function(plan.handle, int(words[0]), int(words[1]), *direction)

        return LibraryCall(f"{title} for {task.name}", start)

    def _plan(self, form: str, extents: Extents) -> FourierPlan | None:
        key = form, extents
        known = self._plans.get(key)
        if known is None:
            try:
                known = self._plans[key] = FourierPlan(self, form, extents)
            except StreamFailure:
                return None
        self._plans.move_to_end(key)
        if len(self._plans) > KEPT:
            self._plans.popitem(last=False)
        return known
