"""ROCm's own linker, libamd_comgr, through ctypes: for an object that ours refuses, where ROCm is installed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64
from typing import Any, Final

LIBRARIES: Final = ("libamd_comgr.so", "libamd_comgr.so.3", "libamd_comgr.so.2")
RELOCATABLE, EXECUTABLE = 7, 8  # kinds of data
FEWER_ACTIONS: Final = 3  # the major version that renumbered the actions


class ComgrError(RuntimeError):
    """comgr isn't here, or refused."""


class Comgr:
    """One loaded library. Handles are 64-bit numbers."""

    def __init__(self) -> None:
        self._library = _load()
        major, minor = c_size_t(), c_size_t()
        self._library.amd_comgr_get_version.restype = None
        self._library.amd_comgr_get_version(byref(major), byref(minor))
        self.version = f"{major.value}.{minor.value}"
        self._action = 7 if major.value >= FEWER_ACTIONS else 9

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, f"amd_comgr_{name}")
        function.restype = c_int
        status = function(*arguments)
        if status:
            raise ComgrError(f"amd_comgr_{name} answered {status}")

    def _make(self, name: str, *arguments: Any) -> c_uint64:
        made = c_uint64()
        self._call(name, *arguments, byref(made))
        return made

    def link(self, data: bytes, cpu: str) -> bytes:
        """The code object of a relocatable one."""
        ends: list[Callable[[], None]] = []

        def handle(made: c_uint64, end: str) -> c_uint64:
            ends.append(lambda: self._call(end, made))
            return made

        try:
            source = handle(self._make("create_data", c_int(RELOCATABLE)), "release_data")
            self._call("set_data", source, c_size_t(len(data)), c_char_p(data))
            self._call("set_data_name", source, c_char_p(b"kernels.o"))
            given = handle(self._make("create_data_set"), "destroy_data_set")
            made = handle(self._make("create_data_set"), "destroy_data_set")
            self._call("data_set_add", given, source)
            action = handle(self._make("create_action_info"), "destroy_action_info")
            isa = f"amdgcn-amd-amdhsa--{cpu}".encode()
            self._call("action_info_set_isa_name", action, c_char_p(isa))
            self._call("do_action", c_int(self._action), action, given, made)
            get = self._make("action_data_get_data", made, c_int(EXECUTABLE), c_size_t(0))
            return self._content(handle(get, "release_data"))
        finally:
            for end in reversed(ends):
                end()

    def _content(self, data: c_uint64) -> bytes:
        size = c_size_t()
        self._call("get_data", data, byref(size), None)
        content = ctypes.create_string_buffer(size.value)
        self._call("get_data", data, byref(size), content)
        return content.raw[: size.value]


def _load() -> ctypes.CDLL:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise ComgrError("libamd_comgr (of ROCm) not found")
