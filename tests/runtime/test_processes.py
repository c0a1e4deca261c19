"""Forks and exits while other threads work, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from loopgrad.runtime.vulkan.api import device_count
from tests.started_programs import around

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

BUSY = """
    import faulthandler, os, random, signal, sys, threading, time
    import numpy as np
    import loopgrad as lg
    from loopgrad.codegen.targets.cpu import pieces

    pieces.PIECE = 3000  # several threads compile one program
    working = True

    def work(seed):
        rng = random.Random(seed)
        while working:
            x, c = lg.asarray(np.ones(rng.randrange(3, 9))), rng.random()
            np.asarray(lg.grad(lambda x: lg.sum(lg.fori_loop(0, 5, lambda i, v: lg.sin(v) * c, x)))(x))
            np.asarray(lg.compile(lambda x: lg.fori_loop(0, 50, lambda i, v: lg.sin(v) + c, x))(np.ones(40_000)))
            lg.memory_stats()

    def start(daemon):
        threads = [threading.Thread(target=work, args=(seed,), daemon=daemon) for seed in range(2)]
        for thread in threads:
            thread.start()
        return threads
"""

FORKS = """
    def child():
        faulthandler.dump_traceback_later(30)
        signal.alarm(40)
        c = random.random()
        x = np.full(30_000, 0.3)
        found = np.asarray(lg.compile(lambda x: lg.fori_loop(0, 3, lambda i, v: lg.sin(v) + c, x))(x))
        assert np.allclose(found, np.sin(np.sin(np.sin(x) + c) + c) + c)
        assert np.allclose(np.asarray(lg.asarray(x) * c + 1.5), x * c + 1.5)
        lg.memory_stats()
        lg.synchronize()

    threads = start(False)
    try:
        for _ in range(5):
            time.sleep(random.random() * 0.2)
            pid = os.fork()
            if pid == 0:
                try:
                    child()
                except BaseException as error:
                    print(repr(error), file=sys.stderr, flush=True)
                    os._exit(1)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        working = False
    for thread in threads:
        thread.join()
    print("done")
"""

FORKED_MEANWHILE = """
    signal.alarm(20)
    begun = threading.Event()
    sys.meta_path.insert(0, Slow())
    thread = threading.Thread(target=lambda: importlib.import_module("loopgrad.slow"))
    thread.start()
    begun.wait()
    pid = os.fork()
"""

IMPORTING = """
    import importlib.abc, importlib.util, os, signal, sys, threading, time
    import loopgrad
    import logging

    class Slow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path, target=None):
            return importlib.util.spec_from_loader(name, self) if name == "loopgrad.slow" else None

        def exec_module(self, module):
            begun.set()
            time.sleep(0.3)
            logging.getLogger("slow")
"""

IMPORTED = """
    if pid == 0:
        os._exit(0 if hasattr(loopgrad, "slow") else 1)
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    print("done")
"""

UNAWAITED = """
    import importlib.abc, importlib.util, os, signal, sys, threading, time
    import loopgrad
    from loopgrad.runtime import processes

    phase, parent, seen = sys.argv[1], os.getpid(), processes._being_imported
    # as where the import begins just before the process forks
    processes._being_imported = lambda: [] if os.getpid() == parent else seen()

    def slowly(now):
        if now == phase and os.getpid() == parent:
            begun.set()
            time.sleep(0.5)

    class Slow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path, target=None):
            if name in ("loopgrad.slow", "slow_stranger"):
                slowly("found")
                return importlib.util.spec_from_loader(name, self)

        def exec_module(self, module):
            if module.__name__ == "slow_stranger":
                slowly("wanted by ours")
                return
            module.first = 1
            importlib.import_module("slow_stranger")
            slowly("executed")
            module.last = 1
"""

UNAWAITED_CHILD = """
    if pid == 0:
        signal.alarm(10)
        os._exit(0 if importlib.import_module("loopgrad.slow").last else 1)
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    assert loopgrad.slow.last
    print("done")
"""

ENDS = """
    start(True)
    time.sleep(float(sys.argv[1]))
    print("done")
"""

LAST = """
    import atexit, threading, time

    calls = 0

    def look():
        time.sleep(0.05)
        before = calls
        time.sleep(0.1)
        print("done" if before and calls == before else f"{calls - before} calls meanwhile")

    atexit.register(look)

    import numpy as np
    import loopgrad as lg

    np.asarray(lg.asarray([1.0]) * 2)
    from llvmlite import binding

    def work():
        global calls
        while True:
            binding.create_context().close()
            calls += 1

    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.1)
"""

TREES = """
    import atexit, sys, threading, time

    def look():
        frames = list(sys._current_frames().values())
        time.sleep(0.05)
        again = list(sys._current_frames().values())
        print("done" if frames == again and len(frames) == 3 else "not at rest")

    atexit.register(look)

    from loopgrad.lazy.tensor.trees import flatten

    def work():
        tree = [{"a": (1, 2), "b": [3]}] * 100
        while True:
            flatten(tree)

    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.1)
"""

GPU = """
    import os
    import numpy as np
    import loopgrad as lg

    f = lg.compile(lambda x: x * 2, "vulkan:0")
    x = lg.asarray([1.0, 2.0], device="vulkan:0")
    f(x)

    def refused(function):
        try:
            function()
        except RuntimeError as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError("no error")

    pid = os.fork()
    if pid == 0:
        for function in (lambda: np.asarray(x), lambda: f(x), lambda: lg.asarray(1.0, device="vulkan:0")):
            refused(function)
        refused(lambda: lg.synchronize("vulkan:0"))
        assert [d.reason for d in lg.devices() if d.kind == "vulkan"][0].startswith("this process was forked")
        lg.synchronize()
        assert np.asarray(lg.asarray([1.0]) * 2 + 1).tolist() == [3.0]
        del f, x
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert np.asarray(f(x)).tolist() == [2.0, 4.0], "the parent keeps it"
    print("done")
"""


def done(*programs: tuple[str, ...]) -> None:
    """Each program, with its arguments, says that it is done: all at the same time, since they wait more than they
    compute."""
    environment = {**around(), "LOOPGRAD_CACHE_DIR": ""}
    running = []
    for program, *arguments in programs:
        command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
        pipe = subprocess.PIPE
        running.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment))
    for each, (_, *arguments) in zip(running, programs, strict=True):
        found, said = each.communicate(timeout=120)
        assert (each.returncode, found) == (0, "done\n"), (arguments, said[-3000:])


@forks
def test_children_of_a_process_whose_threads_compile_and_evaluate() -> None:
    done((BUSY + FORKS,))


@forks
def test_forks_while_a_thread_imports() -> None:
    """What wants a lock of the standard library; what another thread has just begun to import, in each phase, the
    child imports anew."""
    unawaited = UNAWAITED + FORKED_MEANWHILE + UNAWAITED_CHILD
    phases = ("found", "executed", "wanted by ours")
    done((IMPORTING + FORKED_MEANWHILE + IMPORTED,), *[(unawaited, phase) for phase in phases])


@forks
@pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")
def test_a_gpu_in_a_forked_child_is_an_error() -> None:
    done((GPU,))


def test_the_interpreter_ends_while_threads_compile() -> None:
    done((BUSY + ENDS, "0.7"))


def test_no_thread_is_inside_foreign_code_when_the_process_ends() -> None:
    """Inside LLVM: its destructors then destroy what it works on; this looks after our own last step. Inside an
    extension in C++: where the interpreter ends a thread there, the process is aborted."""
    done((LAST,), (TREES,))


def test_no_lock_is_made_without_a_child_in_mind() -> None:
    """Claims (lazy.tensor.evaluator) are dropped in children, GPUs' locks are replaced, LLVM's is held by who forks."""
    root = Path(__file__).parents[2]
    gpus = {"runtime/gpu/streams/driver.py", "runtime/vulkan/gpu.py"}
    allowed = {"lazy/tensor/evaluator.py", "runtime/processes.py", "codegen/targets/llvm_threads.py", *gpus}
    found = set()
    for layer in ("lazy", "graph", "autodiff", "codegen", "runtime"):
        for path in (root / layer).rglob("*.py"):
            text = path.read_text()
            if any(f"threading.{kind}(" in text for kind in ("Lock", "RLock", "Condition", "Event", "Semaphore")):
                found.add(str(path.relative_to(root)))
    assert found == allowed
