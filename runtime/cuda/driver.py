"""CUDA's driver: graphs with loops and branches, where driver and packages allow them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Final

from loopgrad.codegen.targets.gpu.support.update_list import ENTRY, GROUP
from loopgrad.runtime.cache import DiskCache, kept_code
from loopgrad.runtime.cpu.native_pool import wanted_threads
from loopgrad.runtime.cuda import libraries
from loopgrad.runtime.cuda.api import CudaApi
from loopgrad.runtime.cuda.blas import WORKSPACE_BYTES, Blas, worthwhile
from loopgrad.runtime.cuda.found import CudaMissing, capability
from loopgrad.runtime.cuda.linking import by_nvjitlink, check_driver, device_runtime, link, nvjitlink_version
from loopgrad.runtime.gpu.driver import LibraryCall, ProductTask, Shared, Work
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.gpu.streams.driver import StreamDriver, StreamImage
from loopgrad.runtime.gpu.streams.graph import StreamGraph

LONG: Final = 1 << 20  # bytes of PTX, which the driver takes some three seconds for


class CudaDriver(StreamDriver):
    """The first program with loops of its own finds out whether graphs can have them."""

    def __init__(self, api: CudaApi, cache: DiskCache | None) -> None:
        super().__init__(api, self._code, libraries.NVIDIA)
        self._cache = cache
        self._cuda_api = api
        self._host_decides: str | None = None
        self._linked = b""
        self._blas: Blas | None = None
        self._workspace: Allocation | None = None
        self._without_blas = False
        self._captures = True
        self._assembles = True

    @property
    def host_decides(self) -> str:
        if self._host_decides is None:
            self._host_decides = self._link()
        return self._host_decides

    def _link(self) -> str:
        """Why graphs have no loops here; empty where they do."""
        api = self._cuda_api
        try:
            check_driver(api.cuda)
            library, target = device_runtime(), capability(api.cuda, api.device)
            parts = ("linked update kernel", library, *map(str, target))
            with self.lock:
                self._linked = kept_code(self._cache, parts, lambda: link(api.cuda, ptx(True), library, target))
        except CudaMissing as missing:
            return str(missing)
        return ""

    def _code(self) -> tuple[bytes, str, int]:
        if not self.host_decides:
            return self._linked, ENTRY, GROUP
        return kept_code(self._cache, ("update kernel", "ptx"), lambda: ptx(False)), ENTRY, GROUP

    def images(self, codes: Sequence[bytes]) -> Sequence[StreamImage]:
        """The driver assembles one piece of PTX at a time, and nvJitLink several; but its code takes up to 1.2 times as
        long (an H200, CUDA 13.0), so it is asked where the driver would take seconds."""
        if sum(map(len, codes)) >= LONG and len(codes) > 1 and self._assembles:
            try:
                return super().images(self._assembled(codes))
            except (CudaMissing, StreamFailure):  # nvJitLink isn't there, or is one for other drivers than this
                self._assembles = False
        return super().images(codes)

    def _assembled(self, codes: Sequence[bytes]) -> Sequence[bytes]:
        target = capability(self._cuda_api.cuda, self._cuda_api.device)
        parts = ("assembled", *map(str, nvjitlink_version()), *map(str, target))

        def assembled(code: bytes) -> bytes:
            return kept_code(self._cache, (*parts, sha256(code).hexdigest()), lambda: by_nvjitlink(code, None, target))

        with ThreadPoolExecutor(min(wanted_threads(), len(codes))) as threads:
            return list(threads.map(assembled, codes))

    def product(self, task: ProductTask) -> LibraryCall | None:
        if self._without_blas or not worthwhile(task):
            return None
        if self._blas is None:
            self._blas = self._load_blas()
            self._without_blas = self._blas is None
        return None if self._blas is None else self._blas.product(task)

    def _load_blas(self) -> Blas | None:
        library = libraries.load("cublas")
        if library is None:
            return None
        self._workspace = self.take(WORKSPACE_BYTES)
        try:
            with self.lock:
                return Blas(library, self._cuda_api.stream, self._workspace.address)
        except StreamFailure:  # a library for other drivers than this
            self._workspace = None
            return None

    def captured(self, work: Callable[[], None]) -> Any | None:
        if not self._captures:
            return None
        try:
            return self._cuda_api.capture(work)
        except StreamFailure:  # such a library is called again and again instead
            self._captures = False
            return None

    def graph(self, items: Sequence[Any], report: Shared, stop: int) -> Work | None:
        if self.host_decides:
            return None
        try:
            return StreamGraph(self, self._cuda_api, items, report, stop)
        except StreamFailure as failure:
            self._host_decides, self._update = f"the driver refused a graph with loops: {failure}", None
            return None


def ptx(conditional: bool) -> bytes:
    from loopgrad.codegen.targets.nvptx.update import update_ptx  # late: a warm cache needs no emitter

    return update_ptx(conditional)
