"""What every Vulkan run of the tests is checked by besides its results: spirv-val and the validation layer.

The Khronos validation layer is switched on before the driver is loaded, and a test during which it says anything
fails. Every SPIR-V module that a test emits is kept once, and at the end of the run spirv-val sees those of them that
the layer, which validates by the same code, has not seen, and a sample of the others (LOOPGRAD_TEST_SAMPLE is its
share; with 1 all); one that it rejects fails the run. Each is left out where it isn't installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

SAMPLE = float(os.environ.get("LOOPGRAD_TEST_SAMPLE", 1 / 50))
LAYER = "VK_LAYER_KHRONOS_validation"
MANIFESTS = ("/usr/share", "/usr/local/share", "/etc")
MODULES_VARIABLE = "LOOPGRAD_TEST_SPIRV"  # where the workers of one run put modules
NEWER = re.compile(r"Invalid capability operand: (\d+)")
UNJUDGED = {"6022", "5116", "5118"}  # matrices of subgroups, of which validators before 2023.5 don't know
SETTINGS = """khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,perf
khronos_validation.log_filename = {log}
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
khronos_validation.validate_sync = true
"""


class Layer:
    """The validation layer of this process, writing to a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "messages"
        self.seen = 0
        (folder / "vk_layer_settings.txt").write_text(SETTINGS.format(log=self.log))
        os.environ["VK_LAYER_SETTINGS_PATH"] = str(folder)
        others = [name for name in os.environ.get("VK_INSTANCE_LAYERS", "").split(":") if name not in ("", LAYER)]
        os.environ["VK_INSTANCE_LAYERS"] = ":".join([LAYER, *others])

    def messages(self) -> str:
        """What it said since the last call."""
        size = self.log.stat().st_size if self.log.exists() else 0
        if size < self.seen:  # another process with the same settings began anew
            self.seen = 0
        if size == self.seen:
            return ""
        with self.log.open("rb") as file:
            file.seek(self.seen)
            said = file.read()
        self.seen += len(said)
        return said.replace(b"\0", b"").decode(errors="replace").strip()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        result = yield
        said = self.messages()
        if said:
            pytest.fail(f"the Vulkan validation layer was not silent:\n{said}", pytrace=False)
        return result


class Modules:
    """Modules in a folder that the workers of a run share, named by their content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: set[str] = set()
        self.loaded: set[str] = set()
        self.rejected: list[str] = []

    def watch(self, layer: bool) -> None:
        """Keep whatever is emitted from now on; where there is the layer, note what it sees."""
        from loopgrad.codegen.targets.spirv.assembler import SpirvAssembler  # late: only where there is a validator

        finish = SpirvAssembler.finish

        def kept(assembler: SpirvAssembler) -> bytes:
            code = finish(assembler)
            self.keep(code, assembler.name)
            return code

        SpirvAssembler.finish = kept  # type: ignore[method-assign]
        if layer:
            from loopgrad.runtime.vulkan.gpu import Gpu  # late, as above

            module = Gpu.module

            def noted(gpu: Gpu, code: bytes) -> Any:
                made = module(gpu, code)
                self.note(code)
                return made

            Gpu.module = noted  # type: ignore[method-assign]

    def note(self, code: bytes) -> None:
        """The layer has seen this one."""
        digest = digest_of(code)
        if digest not in self.loaded:
            self.loaded.add(digest)
            (self.folder / f"{digest}.loaded").touch()

    def left(self) -> list[Path]:
        """The modules for spirv-val."""
        modules = sorted(self.folder.glob("*.spv"))
        sampled = [int(path.stem[:8], 16) < SAMPLE * 2**32 for path in modules]
        return [p for p, also in zip(modules, sampled, strict=True) if also or not p.with_suffix(".loaded").exists()]

    def keep(self, code: bytes, name: str) -> None:
        digest = digest_of(code)
        if digest in self.known:
            return
        self.known.add(digest)
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        (self.folder / f"{digest}.txt").write_text(f"{name}, emitted by {test}")
        part = self.folder / f"{digest}.{os.getpid()}"
        part.write_bytes(code)
        part.rename(self.folder / f"{digest}.spv")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = pool.map(judged, self.left())
            self.rejected = [text for text in found if text]
        if self.rejected:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        count = len(list(self.folder.glob("*.spv")))
        if count:
            said = f"spirv-val: {len(self.left())} of {count} modules, {len(self.rejected)} rejected"
            terminalreporter.write_line(f"{said}; the validation layer has seen the others")
        for text in self.rejected:
            terminalreporter.write_line(text, red=True)


def digest_of(code: bytes) -> str:
    return hashlib.blake2b(code, digest_size=16).hexdigest()


def judged(module: Path) -> str:
    """What spirv-val has against the module, "" if nothing."""
    run = subprocess.run(["spirv-val", "--target-env", "vulkan1.2", module], capture_output=True, text=True)
    newer = NEWER.search(run.stderr)
    accepted = run.returncode == 0 or (newer is not None and newer[1] in UNJUDGED)
    return "" if accepted else f"{module.with_suffix('.txt').read_text()}: {run.stderr}{run.stdout}"


def installed(layer: str) -> bool:
    folders = [Path(root) / "vulkan/explicit_layer.d" for root in MANIFESTS]
    return any(layer in path.read_text() for folder in folders if folder.is_dir() for path in folder.glob("*.json"))


def start(config: pytest.Config) -> None:
    """Before anything loads the driver."""
    if shutil.which("spirv-val") is not None:
        if MODULES_VARIABLE not in os.environ:
            os.environ[MODULES_VARIABLE] = own_folder(config)
        modules = Modules(Path(os.environ[MODULES_VARIABLE]))
        modules.watch(layer=installed(LAYER))
        config.pluginmanager.register(modules)
    if installed(LAYER):
        config.pluginmanager.register(Layer(Path(own_folder(config))))


def own_folder(config: pytest.Config) -> str:
    """A temporary folder that goes when the run ends."""
    folder = tempfile.mkdtemp(prefix="loopgrad-vulkan-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder
