"""`python -m loopgrad objects`: what it writes is enough to run the kernels, and its refusals are clear."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopgrad.__main__ import main
from loopgrad.codegen.objects.formats import FORMATS
from loopgrad.codegen.targets.amdgpu import elf
from loopgrad.codegen.targets.amdgpu.notes import descriptor, kernel_notes
from loopgrad.runtime.cpu.loader import Code
from loopgrad.runtime.devices import NUMBERED, devices, get_device
from tests.emulator import device as emulator
from tests.runtime.objects_harness import Harness

# a kernel whose stack needs more rows in some lanes than in others
PROGRAM = """\
import sys
import loopgrad as lg

x = lg.array([2.0, 3.0, 40.0, 1000.0], dtype=lg.float64)

def count(x):
    return lg.sum(lg.while_loop(lambda y: y > 1.5, lambda y: y * y / (y + 1.0), x))

print(lg.grad(count)(x), sys.argv[1:])
"""
X = np.array([2.0, 3.0, 40.0, 1000.0])


def gradient() -> np.ndarray:
    """By the rule of products, step by step."""
    result = []
    for x in X:
        factor = 1.0
        while x > 1.5:
            factor *= (x * x + 2 * x) / (x + 1) ** 2
            x = x * x / (x + 1)
        result.append(factor)
    return np.array(result)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def written(program: Path, target: str) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    """The folder of the only graph, program.json, and the kernels' descriptions."""
    out = program.parent / "out"
    assert main(["objects", "--target", target, "--out", str(out), str(program)]) == 0
    (folder,) = out.iterdir()
    about = json.loads((folder / "program.json").read_text())
    return folder, about, [json.loads((folder / name).read_text()) for name in about["kernel_files"]]


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_amd_descriptions_say_what_the_code_object_says(program: Path, target: str) -> None:
    folder, about, kernels = written(program, target)
    assert about["target"] == target
    for kernel in kernels:
        file = elf.read((folder / kernel["code"]).read_bytes())
        note, found = kernel_notes(file)[kernel["entry"]], descriptor(file, kernel["entry"])
        places = [(a["name"], a["offset"], a["bytes"]) for a in kernel["arguments"]]
        assert places == [(a.name, a.offset, a.size) for a in note.arguments]
        assert kernel["amd"]["kernarg_bytes"] == found.arguments_size == 8 * len(places)
        assert kernel["workgroup_memory"] == found.group_memory
        assert kernel["launch"]["group"] == [note.largest_group, 1, 1]
        assert kernel["amd"]["descriptor"] in [s.name for s in file.dynamic]


@pytest.mark.in_turns
@pytest.mark.parametrize("target", [name for name in FORMATS if name.startswith("sm_")])
def test_ptx_of_every_compute_capability(program: Path, target: str) -> None:
    folder, _, kernels = written(program, target)
    for kernel in kernels:
        text = (folder / kernel["code"]).read_text()
        assert f".target {target}" in text
        assert f".entry {kernel['entry']}(" in text
        assert ".reqntid 256" in text


def test_every_slot_and_kernel_of_the_steps_is_there(program: Path) -> None:
    _, about, kernels = written(program, "spirv")
    launches = [step for step in about["steps"] if step["class"] == "LaunchStep"]
    assert launches
    for step in launches:
        described = kernels[about["kernels"][step["kernel"]]["module"]]
        assert not described["support"]
        assert [about["slots"][s]["type"]["dtype"] for s in step["slots"]] == [p["dtype"] for p in described["params"]]
        offsets = [word["offset"] for word in described["table"]]
        assert offsets == list(range(0, 8 * len(offsets), 8))


@pytest.fixture(params=[("spirv", "vulkan:0"), ("gfx1100", "emulator:0"), ("gfx942", "emulator:1")], ids=lambda p: p[0])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A target, and a device that runs its code."""
    target, device = request.param
    monkeypatch.setitem(NUMBERED, "emulator", NUMBERED.get("emulator"))
    emulator.install()
    missing = next((d.reason for d in devices() if d.name == device and not d.available), None)
    if missing or not any(d.name == device for d in devices()):
        pytest.skip(missing or f"no {device}")
    return target, device


def test_the_files_are_enough_to_run_a_kernel_on_a_gpu(program: Path, gpu: tuple[str, str]) -> None:
    """Stacks that are too small are told, and a second launch with what was asked for gives the gradient."""
    target, device = gpu
    folder, _, _ = written(program, target)
    harness = Harness(folder, device)
    (result,) = harness.run([X])
    np.testing.assert_allclose(result, gradient(), rtol=1e-12)
    assert harness.launches == 2


TILES = """\
import loopgrad as lg

def f(x, a, b):
    y = lg.while_loop(lambda y: y > 1.5, lambda y: y * 0.75, x)
    bins = lg.zeros(3, dtype=x.dtype).at[lg.astype(x, lg.int32) % 3].add(x)
    return lg.sum(y * y) + lg.sum(lg.matmul(a, b)) + lg.sum(bins)

def line(start, stop, *shape):
    size = shape[0] * shape[-1] if len(shape) > 1 else shape[0]
    return lg.reshape(lg.linspace(start, stop, size, dtype=lg.float64), shape)

x, a, b = line(0.5, 50.0, 3000), line(0.0, 1.0, 64, 80), line(1.0, 2.0, 80, 96)
print(lg.compile(f)(x, a, b), *lg.compile(lg.value_and_grad(f, argnums=(0, 1)))(x, a, b)[1])
"""


def test_the_files_are_enough_for_a_program_of_many_kernels(tmp_path: Path, gpu: tuple[str, str]) -> None:
    """Tiles, reductions, products and accumulations: all that needs no host."""
    target, device = gpu
    (tmp_path / "program.py").write_text(TILES)
    out = tmp_path / "out"
    assert main(["objects", "--target", target, "--out", str(out), "--data", str(tmp_path / "program.py")]) == 0
    x = np.linspace(0.5, 50.0, 3000)
    a, b = np.linspace(0.0, 1.0, 64 * 80).reshape(64, 80), np.linspace(1.0, 2.0, 80 * 96).reshape(80, 96)
    y, slope = x.copy(), np.ones(3000)
    while (y > 1.5).any():
        slope, y = np.where(y > 1.5, slope * 0.75, slope), np.where(y > 1.5, y * 0.75, y)
    value = (y * y).sum() + (a @ b).sum() + x.sum()
    expected = {(): value, (3000,): 2 * y * slope + 1.0, (64, 80): np.tile(b.sum(1), (64, 1))}
    seen = set()
    for folder in sorted(out.iterdir()):
        harness = Harness(folder, device)
        for result, wanted in zip(harness.run(harness.data("inputs")), harness.data("outputs"), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-11)
        if len(harness.about["inputs"]) != 3:
            continue
        given = {3000: x, 64 * 80: a, 80 * 96: b}
        inputs = [given[int(np.prod(harness.about["slots"][s]["type"]["shape"]))] for s in harness.about["inputs"]]
        for result in harness.run(inputs):
            np.testing.assert_allclose(result, expected[result.shape], rtol=1e-11)
            seen.add(result.shape)
        assert any(kernel["launch"]["items"] == "tiles" for kernel in harness.kernels)
    assert seen == set(expected)


def test_the_files_are_enough_to_run_a_kernel_on_the_cpu(program: Path) -> None:
    folder, about, kernels = written(program, "cpu")
    (kernel,) = [k for k in kernels if k["stacks"]]
    launch = kernel["launch"]
    code = Code((folder / kernel["code"]).read_bytes(), [kernel["entry"], about["entry"]])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(
        code.address(kernel["entry"])
    )
    fields = {field["name"]: field["offset"] // 8 for field in kernel["control"]["fields"]}
    rows = 2048  # a thousand steps at most
    heap = aligned(sum(-(-rows * s["row_bytes"] // 64) * 64 for s in kernel["stacks"]))
    arrays = [X.copy() if p["access"] == "read" else np.zeros(p["elements"], p["dtype"]) for p in kernel["params"]]
    scratch = [aligned(w["bytes"]) for w in kernel["table"] if w["kind"] == "address of scratch"]
    params = np.array([a.ctypes.data for a in (*arrays, *scratch)], np.uint64)
    worker = np.array([heap.ctypes.data, 0], np.uint64)
    control = np.zeros(kernel["control"]["bytes"] // 8, np.int64)
    for s in range(len(kernel["stacks"])):
        control[fields[f"rows of stack {s}"]] = rows
    context = np.zeros(kernel["context"]["bytes"] // 8, np.int64)
    goes_on = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(lambda _: 0)
    (attend,) = [field for field in kernel["context"]["fields"] if field["name"] == "attend"]
    context[attend["offset"] // 8] = ctypes.cast(goes_on, ctypes.c_void_p).value
    control[fields["address of context"]] = context.ctypes.data
    for chunk in range(launch["chunks"]):
        run(params.ctypes.data, chunk, worker.ctypes.data, control.ctypes.data)
    assert not any(control[fields[f"needed rows of stack {s}"]] for s in range(len(kernel["stacks"])))
    written_to = [a for a, p in zip(arrays, kernel["params"], strict=True) if p["access"] == "write"]
    assert any(np.allclose(r, gradient(), rtol=1e-12) for r in written_to if r.shape == X.shape)


def aligned(size: int) -> np.ndarray:
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def test_data_are_written_where_they_are_wanted(program: Path) -> None:
    folder, about, _ = written(program, "gfx90a")
    assert "data" not in about
    assert not list(folder.glob("input_*"))
    again = program.parent / "again"
    assert main(["objects", "--target", "gfx90a", "--out", str(again), "--data", str(program)]) == 0
    (folder,) = again.iterdir()
    np.testing.assert_array_equal(np.frombuffer((folder / "input_0.bin").read_bytes()), X)
    np.testing.assert_allclose(np.frombuffer((folder / "output_0.bin").read_bytes()), gradient(), rtol=1e-12)


def test_as_a_command(program: Path) -> None:
    """The program sees its own arguments, and the CPU's results are those of an ordinary run."""
    out = program.parent / "objects"
    command = [sys.executable, "-m", "loopgrad", "objects", "--target", "gfx942", "--out", str(out), str(program), "-v"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plain = subprocess.run([sys.executable, str(program), "-v"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(plain.stdout)
    assert done.stdout.splitlines()[-1].startswith(f"{out}/program_000: 00_")


def test_the_device_is_as_before(program: Path) -> None:
    before = get_device("cpu")
    written(program, "gfx942")
    assert get_device("cpu") is before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("1 / 0", "raised ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "expected it to end well, it ended with exit code 3"),
        ("x = 1", "it compiled nothing"),
        ("x = (", "raised SyntaxError"),
    ],
)
def test_programs_that_fail(content: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, out = tmp_path / "bad.py", tmp_path / "out"
    program.write_text(content)
    assert main(["objects", "--target", "spirv", "--out", str(out), str(program)]) == 2
    assert reason in capsys.readouterr().err
    assert not out.exists()


def test_an_error_is_shown_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "bad.py"
    program.write_text("import loopgrad as lg\nlg.array([1.0]).reshape(7)\n")
    assert main(["objects", "--target", "spirv", "--out", str(tmp_path / "out"), str(program)]) == 2
    assert 'bad.py", line 2' in capsys.readouterr().err


def test_bad_arguments(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["objects", "--target", "gfx1", "--out", out, str(program)]) == 2
    assert "--target: expected one of cpu, spirv, sm_80," in capsys.readouterr().err
    assert main(["objects", "--target", "cpu", "--out", out, str(tmp_path / "none.py")]) == 2
    assert "there is none at" in capsys.readouterr().err
    assert main(["objects", "--target", "cpu", "--out", str(program), str(program)]) == 2
    assert "is a file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["objects", "--help"])
    assert "AMD code objects (.hsaco)" in capsys.readouterr().out


def test_a_link_isnt_written_through(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither one in place of a file nor one in place of a program's folder."""
    place, outside = program.parent / "out" / "program_000", program.parent / "outside"
    place.mkdir(parents=True)
    outside.write_text("kept")
    for name in ("program.json", "code.ptx", ".program.json.new"):
        (place / name).symlink_to(outside)
    command = ["objects", "--target", "sm_80", "--out", str(place.parent), str(program)]
    assert main(command) == 0
    assert outside.read_text() == "kept"
    assert json.loads((place / "program.json").read_text())["target"] == "sm_80"
    assert not any(path.is_symlink() for path in place.iterdir())
    place.rename(program.parent / "elsewhere")
    place.symlink_to(program.parent / "elsewhere")
    assert main(command) == 2
    assert "it is a link" in capsys.readouterr().err
