"""Functions as data: they give what the functions give, here and elsewhere, and refuse what isn't theirs."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

STATE = {"x": np.array([0.5, 1.5, 2.0]), "steps": np.int64(3)}


@lg.custom_vjp
def tripled(x: Any) -> Any:
    """Its rule isn't its derivative, to be told from that."""
    return 3 * x


tripled.defvjp(lambda x: (tripled(x), x), lambda x, g: (7 * g * x,))


def program(state: Any, mode: str, scale: float = 1.0) -> Any:
    """Loops of both kinds, branches, rules, library routines, and arrays from around it."""
    weights = lg.asarray([1.0, -2.0, 0.5])
    x = lg.while_loop(lambda v: lg.sum(v * v) < 50.0, lambda v: tripled(v) + 0.25, state["x"] * scale)
    y = lg.fori_loop(0, state["steps"], lambda i, v: lg.where(v > 1.0, lg.sin(v), v * v) + i, x)
    z = lg.vmap(lambda v: lg.while_loop(lambda w: w < 9.0, lambda w: w * 1.5 + 1.0, v))(lg.abs(y))
    lifted = lg.checkpoint(lambda v: lg.exp(-v) @ lg.sort(weights))(z)
    return {
        "mode": mode,
        "z": z,
        "spectrum": lg.abs(lg.fft.fft(z)),
        "all": (lifted, lg.linalg.inv(lg.eye(3) + lg.outer(z, z))),
    }


def tensors(state: Any, mode: str, scale: float = 1.0) -> Any:
    return {name: x for name, x in program(state, mode, scale).items() if name != "mode"}


@pytest.fixture(scope="module")
def exported() -> lg.Exported:
    return lg.export(tensors, STATE, "plain", scale=1.0)


def same(a: Any, b: Any) -> None:
    left, right = lg.tree.leaves(a), lg.tree.leaves(b)
    assert lg.tree.structure(a) == lg.tree.structure(b)
    for x, y in zip(left, right, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def test_it_gives_what_the_function_gives(exported: lg.Exported) -> None:
    for scale in (1.0, 0.1, 2):
        other = {"x": lg.asarray([0.25, 3.0, -1.0]), "steps": 5}
        same(exported(other, "plain", scale=scale), lg.compile(tensors)(other, "plain", scale=scale))


def test_derivatives_and_batches_are_those_of_the_function(exported: lg.Exported) -> None:
    def loss(f: Any) -> Any:
        return lambda x: sum(lg.sum(leaf) for leaf in lg.tree.leaves(f({"x": x, "steps": 2}, "plain", scale=1.0)))

    x = lg.asarray([0.3, 0.7, 1.1])
    same(lg.compile(lg.grad(loss(exported)))(x), lg.compile(lg.grad(loss(tensors)))(x))
    twice = [lg.grad(lambda x, f=f: lg.sum(lg.grad(loss(f))(x) ** 2)) for f in (exported, tensors)]
    same(*[lg.compile(f)(x) for f in twice])
    rows = lg.asarray(np.linspace(0.1, 1.0, 6).reshape(2, 3))
    same(lg.compile(lg.vmap(loss(exported)))(rows), lg.compile(lg.vmap(loss(tensors)))(rows))


def test_another_process_calls_it_without_the_code(exported: lg.Exported, tmp_path: Path) -> None:
    path = tmp_path / "program"
    exported.save(path)
    (tmp_path / "pickled").write_bytes(pickle.dumps(exported))
    lg.save(tmp_path / "state", STATE)
    code = """
import pickle, sys
from pathlib import Path
import loopgrad as lg

folder = Path(sys.argv[1])
state = lg.load(folder / "state")
for f in (lg.load_exported(folder / "program"), pickle.loads((folder / "pickled").read_bytes())):
    lg.save(folder / "result", f(state, "plain", scale=0.5))
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    same(lg.load(tmp_path / "result"), exported(STATE, "plain", scale=0.5))


def test_every_dtype_and_shape_alone() -> None:
    shape = lg.ShapeDtypeStruct((0, 4), lg.bfloat16)
    nothing = lg.export(lambda x: (x + 1, lg.sum(x)), shape)
    assert nothing(lg.zeros((0, 4), lg.bfloat16))[0].shape == (0, 4)
    for dtype in (lg.bool_, lg.int8, lg.uint64, lg.float16, lg.complex64):
        around = lg.ones(2, dtype)
        f = pickle.loads(pickle.dumps(lg.export(lambda x, around=around: x * around, around)))
        assert f(around).dtype is dtype


@pytest.mark.parametrize(
    ("arguments", "error", "part"),
    [
        ((STATE, "other", 1.0), lg.StructureError, "scale"),
        (({"x": STATE["x"]}, "plain"), lg.StructureError, "expected arguments of the structure"),
    ],
)
def test_other_trees_are_refused(exported: lg.Exported, arguments: Any, error: type, part: str) -> None:
    with pytest.raises(error, match=part):
        exported(*arguments)


@pytest.mark.parametrize(
    ("change", "error", "part"),
    [
        ({"mode": "other"}, lg.StaticArgumentError, "expected 'plain' for argument 2, as when it was exported"),
        ({"x": np.ones(4)}, lg.ShapeError, r"expected float64\[3\] for input 1, .* got float64\[4\]"),
        ({"x": np.ones(3, np.float32)}, lg.DTypeError, "convert it with .astype"),
        ({"steps": 2.5}, lg.DTypeError, r"expected int64\[\]"),
    ],
)
def test_other_arguments_are_refused(exported: lg.Exported, change: Any, error: type, part: str) -> None:
    given = {"x": STATE["x"], "steps": 3, "mode": "plain", **change}
    with pytest.raises(error, match=part):
        exported({"x": given["x"], "steps": given["steps"]}, given["mode"], scale=1.0)


def test_python_numbers_never_wrap() -> None:
    narrow = lg.export(lambda x: x * 2, lg.ShapeDtypeStruct((), lg.int8))
    with pytest.raises(lg.DTypeError, match=r"pass lg\.int8"):
        narrow(300)
    limited = lg.export(lambda x, n: x + n, lg.ones(2, lg.int8), 3)
    with pytest.raises(OverflowError, match="from -128 to 127"):
        limited(lg.ones(2, lg.int8), 300)


def test_what_writes_to_its_arguments_is_refused() -> None:
    def writes(x: Any) -> Any:
        x[0] = 1.0
        return x

    with pytest.raises(ValueError, match="writes to none of its arguments"):
        lg.export(writes, lg.ones(2))


def test_other_files_are_refused(exported: lg.Exported, tmp_path: Path) -> None:
    lg.save(tmp_path / "tree", {"w": lg.ones(2)})
    with pytest.raises(lg.FileFormatError, match=r"Exported\.save"):
        lg.load_exported(tmp_path / "tree")
    exported.save(tmp_path / "program")
    parts = lg.load(tmp_path / "program")
    for damaged in (
        {**parts, "graph": parts["graph"].replace("return", "retrn")},
        {**parts, "captured": parts["captured"][1:]},
    ):
        lg.save(tmp_path / "damaged", damaged)
        with pytest.raises(lg.FileFormatError, match=r"Exported\.save"):
            lg.load_exported(tmp_path / "damaged")
