"""K5, K8: compiled code on disk, across processes."""

from __future__ import annotations

import functools
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

PROGRAM = textwrap.dedent("""
    import sys
    import numpy as np
    import loopgrad as lg

    def loss(x, n):
        return lg.sum(lg.fori_loop(0, n, lambda _, v: lg.sin(v) + 0.1, x))

    with lg.default_device(DEVICE):
        for trips in ([3, 50], [8, 0]):
            print(np.asarray(lg.grad(loss)(lg.asarray([0.1, 0.5]), lg.asarray(trips))).tolist())
    compiler = [m for m in ("loopgrad.codegen.schedule", "loopgrad.codegen.targets.cpu.llvm") if m in sys.modules]
    print("compiled" if compiler else "nothing compiled")
""")


def run_in(folder, device):
    environment = {**os.environ, "LOOPGRAD_CACHE_DIR": str(folder)}
    command = [sys.executable, "-W", "default", "-c", PROGRAM.replace("DEVICE", repr(device))]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert run.returncode == 0, run.stderr
    return run


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """The folder that a first process left for a device, and what that printed: one for all tests, which copy it."""

    @functools.cache
    def fill(device):
        folder = tmp_path_factory.mktemp("cache") / "filled"
        return folder, run_in(folder, device).stdout

    return fill


@pytest.fixture
def first(filled, process_device, tmp_path):
    """What the first process printed; its folder is the test's."""
    folder, printed = filled(process_device)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return printed.splitlines()[:2]


def entries(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size > 200)


def test_a_second_process_compiles_nothing(process_device, first, tmp_path):
    written = {p: p.stat().st_mtime_ns for p in entries(tmp_path)}
    assert written
    second = run_in(tmp_path, process_device)
    assert second.stdout.splitlines() == [*first, "nothing compiled"]
    assert set(entries(tmp_path)) == set(written)


def test_the_folder_belongs_to_its_owner_alone(process_device, filled):
    folder, _ = filled(process_device)
    for path in [folder, *folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.costly
def test_a_damaged_entry_is_a_miss_and_one_warning(process_device, first, tmp_path):
    """One bit of each; tests/runtime/test_cache.py has other damage."""
    for path in entries(tmp_path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    second = run_in(tmp_path, process_device)
    assert second.stdout.splitlines()[:2] == first
    assert "damaged" in second.stderr
    third = run_in(tmp_path, process_device)
    assert "damaged" not in third.stderr  # a device may have a warning of its own


@pytest.mark.costly
def test_processes_that_start_together_share_a_folder(process_device, filled, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: run_in(tmp_path, process_device), range(3)))
    expected = filled(process_device)[1].splitlines()[:2]
    for run in runs:
        assert run.stdout.splitlines()[:2] == expected
        assert "damaged" not in run.stderr
    later = run_in(tmp_path, process_device)
    assert later.stdout.splitlines() == [*expected, "nothing compiled"]


def test_a_folder_that_cannot_be_used_is_no_obstacle(process_device, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert run_in(blocked / "below", process_device).stdout.count("[") == 2
