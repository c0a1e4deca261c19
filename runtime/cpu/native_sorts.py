"""Sorts by digits: machine code made once per machine, loaded by a process when it first sorts many elements.

Rows are sorted by one call each thread. Of a row longer than threads' shares each thread takes a part: digits are
counted in all parts, then each part's elements are moved behind those of the parts before it. A stable order is one,
so no bit depends on how many threads there are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from loopgrad.codegen.targets.cpu.sorts.sorts_interface import DIGIT, VALUES, Keys, exports, keys_of
from loopgrad.runtime.cpu.loader import Code
from loopgrad.runtime.processes import child_safe_lock

Array = np.ndarray[Any, Any]
Each = Callable[[int, Callable[[int], None]], None]
"""Calls a function with every number below the first argument, by some threads at once."""

_lock = child_safe_lock()
_sorts: NativeSorts | None = None


class NativeSorts:
    """The module's functions, of arrays that lie densely."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._named = cache(self._function)

    def sort(self, x: Array, result: Array) -> None:
        """Rows along the last axis."""
        keys, order = keys_of(x.dtype)
        count = x.shape[-1]
        beside = np.empty(count, x.dtype)
        self._call("values", keys, x, result, beside, x.size // count, count, order)

    def argsort(self, x: Array, result: Array) -> None:
        """Positions (int64) that sort rows along the last axis."""
        keys, order = keys_of(x.dtype)
        count = x.shape[-1]
        beside, between = (np.empty((count, keys.record_bytes), np.uint8) for _ in range(2))
        self._call("positions", keys, x, result, beside, between, x.size // count, count, order)

    def sort_long(self, x: Array, result: Array, parts: int, each: Each) -> None:
        """A vector, by several threads."""
        _Parts(self, x, parts, each).sort(result)

    def argsort_long(self, x: Array, result: Array, parts: int, each: Each) -> None:
        """Its positions, by several threads."""
        _Parts(self, x, parts, each).argsort(result)

    def _function(self, name: str, keys: Keys) -> Any:
        return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)(self._code.address(f"lg_sort.{name}.{keys.suffix}"))

    def _call(self, name: str, keys: Keys, *arguments: Array | int) -> None:
        """Functions of fewer arguments don't look at the last ones."""
        words = [a if isinstance(a, int) else a.ctypes.data for a in arguments]
        self._named(name, keys)(*words, *[0] * (8 - len(words)))


class _Parts:
    """A vector in parts."""

    def __init__(self, sorts: NativeSorts, x: Array, parts: int, each: Each) -> None:
        self._sorts, self._x, self._each = sorts, x, each
        self._keys, self._order = keys_of(x.dtype)
        self._bounds = [x.size * part // parts for part in range(parts + 1)]
        self._parts = parts

    def sort(self, result: Array) -> None:
        totals, digits = self._digits()
        beside = np.empty_like(self._x) if len(digits) > 1 else result
        given = self._x
        for number, digit in enumerate(digits):
            target = result if (len(digits) - number) % 2 else beside
            self._pass(("raw", "raw"), given, target, digit, None if number else totals[:, digit])
            given = target
        if not digits:
            result[...] = self._x

    def argsort(self, result: Array) -> None:
        totals, digits = self._digits()
        records = [np.empty((self._x.size, self._keys.record_bytes), np.uint8) for _ in digits[1:3]]
        given, form = self._x, "raw"
        for number, digit in enumerate(digits):
            left = len(digits) - number - 1
            target, result_form = (records[(left - 1) % 2], "record") if left else (result, "position")
            self._pass((form, result_form), given, target, digit, None if number else totals[:, digit])
            given, form = target, result_form
        if not digits:
            result[...] = np.arange(self._x.size)

    def _digits(self) -> tuple[Array, list[int]]:
        """How often each part has which digit, and the digits that aren't the same everywhere."""
        totals = np.empty((self._parts, self._keys.digits, VALUES), np.int64)

        def count(part: int) -> None:
            first, last = self._bounds[part : part + 2]
            self._sorts._call("digits", self._keys, self._x[first:], last - first, self._order, totals[part])

        self._each(self._parts, count)
        most = totals.sum(axis=0).max(axis=1)
        return totals, [int(digit) for digit in np.flatnonzero(most < self._x.size)]

    def _pass(self, forms: tuple[str, str], given: Array, target: Array, digit: int, totals: Array | None) -> None:
        shift, keys, order, sorts = digit * DIGIT, self._keys, self._order, self._sorts
        if totals is None:
            counted = totals = np.empty((self._parts, VALUES), np.int64)

            def count(part: int) -> None:
                first, last = self._bounds[part : part + 2]
                sorts._call(f"digit.{forms[0]}", keys, given[first:], last - first, order, shift, counted[part])

            self._each(self._parts, count)
        ends = np.cumsum(totals.T).reshape(VALUES, self._parts).T
        places = np.ascontiguousarray(ends - totals)

        def move(part: int) -> None:
            first, last = self._bounds[part : part + 2]
            name, begin = f"move.{forms[0]}.{forms[1]}", places[part]
            sorts._call(name, keys, given[first:], last - first, first, order, shift, begin, target)

        self._each(self._parts, move)


class NativeLargest:
    """Where the few largest of rows are; a function for keys of each kind. `object_of(name, text)` gives machine code
    for a text, from a cache or the compiler."""

    def __init__(self, object_of: Callable[[str, Callable[[], str]], bytes]) -> None:
        self._object_of = object_of
        self._named: dict[Keys, Any] = {}

    def __call__(self, x: Array, result: Array) -> None:
        """As many of each row of x, which lies densely, as the rows of the result have: from the largest on, of equal
        ones the first; NaN is larger than every number."""
        keys, order = keys_of(x.dtype)
        (rows, count), most = x.shape, result.shape[1]
        beside = np.empty(most, np.dtype(f"u{x.dtype.itemsize}"))
        self._function(keys)(x.ctypes.data, result.ctypes.data, beside.ctypes.data, rows, count, most, order)

    def _function(self, keys: Keys) -> Any:
        if keys not in self._named:
            symbol = f"lg_largest.{keys.suffix}"
            with _lock:
                if keys not in self._named:
                    code = Code(self._object_of(f"largest_{keys.suffix}", lambda: _largest_text(keys)), [symbol])
                    code.keep()
                    self._named[keys] = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7)(code.address(symbol))
        return self._named[keys]


def _largest_text(keys: Keys) -> str:
    from loopgrad.codegen.targets.cpu.sorts.largest_module import largest_ir  # late: a warm cache needs no text

    return largest_ir(keys)


def native_sorts(object_of: Callable[[str, Callable[[], str]], bytes]) -> NativeSorts:
    """The functions. `object_of(name, text)` gives machine code for a text, from a cache or the compiler."""
    global _sorts
    if _sorts is None:
        with _lock:
            if _sorts is None:
                code = Code(object_of("sorts", _sorts_text), exports())
                code.keep()
                _sorts = NativeSorts(code)
    return _sorts


def _sorts_text() -> str:
    from loopgrad.codegen.targets.cpu.sorts.sorts_module import sorts_ir  # late: a warm cache needs no text

    return sorts_ir()
