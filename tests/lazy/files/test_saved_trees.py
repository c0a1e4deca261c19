"""`lg.save` and `lg.load`: what is written comes back, and what wasn't written so is refused."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import loopgrad as lg

Pair = namedtuple("Pair", "a b")
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "bfloat16",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layer:
    w: Any
    kind: str = field(default="linear", metadata={"static": True})

    def __post_init__(self) -> None:
        assert self.kind == "linear", "not called by load"


class Attributes:
    def __init__(self) -> None:
        self.x = lg.ones(2)


class Scaled:
    def __init__(self, x: Any, by: Any) -> None:
        self.x, self.by = x, by


lg.register_pytree(Attributes)
lg.register_pytree(Scaled, lambda s: ((s.x,), {"by": s.by}), lambda by, children: Scaled(children[0], by["by"]))


def again(path: Path, tree: Any, **options: Any) -> Any:
    lg.save(path, tree)
    return lg.load(path, **options)


def test_arrays_of_every_dtype(tmp_path: Path, device: str) -> None:
    for name in DTYPES:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        for shape in ((), (0,), (3,), (2, 0, 3), (2, 1, 2)):
            array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5).astype(dtype)
            for given in (array, lg.asarray(array), lg.asarray(array).T):
                got = again(tmp_path / "x", given)
                assert isinstance(got, lg.Tensor)
                assert (got.dtype, got.shape) == (lg.asarray(given).dtype, given.shape)
                assert np.asarray(got).tobytes() == np.ascontiguousarray(given).tobytes()
    odd = np.array([np.nan, -0.0, np.inf, 5e-324])
    assert np.asarray(again(tmp_path / "x", {"a": odd})["a"]).tobytes() == odd.tobytes()
    lazy = lg.asarray([1.0, 2.0])
    got = again(tmp_path / "x", {"product": lazy * 2, "sum": lg.sum(lazy), "scalar": np.float32(2.5)})
    assert [x.tolist() for x in got.values()] == [[2.0, 4.0], 3.0, 2.5]
    assert got["scalar"].dtype == lg.float32
    with np.load(tmp_path / "x") as numpys:
        assert numpys["leaf_0.npy"].tolist() == [2.0, 4.0]


TREES: list[Any] = [
    None, True, 7, -(2**100), 0.1, float("inf"), -0.0, 2.0 - 0.0j, "", "ünïcödé \ud800 \0", b"\x00\xff", lg.bfloat16,
    (), [], {}, ((1,), [2, [None]]), Pair((1, 2), "b"),
    {"é": 1, 1: 2, (1, "a"): 3, None: 4, 2.5: 5, b"k": 6, False: 7},
    OrderedDict(z=1, a=2), defaultdict(list, a=[1]), defaultdict(None, b=2), deque([1, 2], maxlen=3),
]  # fmt: skip


def test_what_holds_arrays(tmp_path: Path) -> None:
    for tree in TREES:
        got = again(tmp_path / "x", tree, classes=[Pair])
        assert type(got) is type(tree)
        assert repr(got) == repr(tree)
    kept = again(tmp_path / "x", [deque([1], maxlen=3), defaultdict(dict)])
    assert (kept[0].maxlen, kept[1].default_factory) == (3, dict)


def test_classes_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x"
    broken = lg.tree.map(lambda x: x, Layer(lg.ones(2)))
    object.__setattr__(broken, "kind", "what __post_init__ refuses")
    got = again(path, {"layer": broken, "attributes": Attributes(), "scaled": Scaled(lg.zeros(1), (2, "by"))})
    assert (got["layer"].kind, got["layer"].w.tolist()) == (broken.kind, [1.0, 1.0])
    assert got["attributes"].x.tolist() == [1.0, 1.0]
    assert (got["scaled"].by, got["scaled"].x.tolist()) == ((2, "by"), [0.0])
    optimizer = lg.optim.adam(lg.optim.constant_schedule(0.1))
    state = optimizer.init({"w": lg.ones(2)})
    assert lg.tree.structure(again(path, state)) == lg.tree.structure(state)

    @dataclass
    class Local:
        x: int

    lg.save(path, Local(3))
    text = path.read_bytes()
    assert lg.load(path, classes=[Local]).x == 3
    path.write_bytes(text.replace(b"test_saved_trees", b"test_other_trees"))  # and its checksum is wrong then
    with pytest.raises(lg.FileFormatError, match="CRC"):
        lg.load(path)
    lg.save(path, Pair(1, 2))
    with pytest.raises(LookupError, match=r"test_saved_trees:Pair.*classes=\[Pair\]"):
        lg.load(path)
    other = namedtuple("Pair", "b a")
    other.__module__ = Pair.__module__
    with pytest.raises(lg.FileFormatError, match="has the fields"):
        lg.load(path, classes=[other])


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "x"
    lg.save(path, 1)
    for tree, where in (
        ({"a": [object()]}, r"tree\['a'\]\[0\]"), (print, "builtin_function"), ({1, 2}, "set"), (type, "type"),
        (defaultdict(lambda: 0), "factory"), ({np.int64(1): 2}, "keys"), ([np.array(["x"])], "numbers"),
        (Scaled(1.0, object()), "beside the children"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=where):
            lg.save(path, tree)
    with pytest.raises(lg.TracedValueError):
        lg.vmap(lambda x: lg.save(path, x))(lg.ones(2))
    with pytest.raises(FileNotFoundError):
        lg.save(tmp_path / "nowhere" / "x", 1)
    assert lg.load(path) == 1
    assert os.listdir(tmp_path) == ["x"]


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "x", tmp_path / "link"
    lg.save(path, "old")
    link.symlink_to(path)

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            lg.save(path, "new")
    assert lg.load(path) == "old"
    assert sorted(os.listdir(tmp_path)) == ["link", "x"]
    lg.save(link, "new")
    assert link.is_symlink()
    assert lg.load(path) == "new"
    first = path.read_bytes()
    lg.save(path, "new")
    assert path.read_bytes() == first


class Evil:
    def __reduce__(self) -> Any:
        return os.abort, ()


def archive(structure: Any, **members: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("structure.json", structure if isinstance(structure, str) else json.dumps(structure))
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def form(tree: Any, *dtypes: str) -> dict[str, Any]:
    return {"format": "loopgrad tree", "version": 1, "dtypes": list(dtypes), "tree": tree}


HUGE = npy(np.zeros(2)).replace(b"(2,), }" + b" " * 12, b"(2000000000000,), }")
ARRAY = {"array": 0}
NO_TREE = {"class": {"name": "builtins:int", "fields": None, "children": [], "auxiliary": None}}
FOREIGN = {
    "nothing": b"", "text": b"hello", "pickle": pickle.dumps(Evil()), "npy": npy(np.ones(2)),
    "npz": archive("")[:-5], "no structure": (lambda f: (np.savez(f, x=1), f.getvalue())[1])(io.BytesIO()),
    "other json": archive({"a": 1}), "no json": archive("{"), "list": archive([1]),
    "newer": archive({**form(None), "version": 2}), "unknown kind": archive(form({"os.system": "true"})),
    "two kinds": archive(form({"int": "1", "str": "x"})), "bad int": archive(form({"int": "x"})),
    "deep": archive('{"format": "loopgrad tree", "version": 1, "dtypes": [], "tree": ' + '{"list": [' * 9999),
    "no such array": archive(form({"array": -1})), "beyond": archive(form({"array": 7}, "float64"), leaf_0=npy(1.0)),
    "missing": archive(form(ARRAY, "float64")), "other dtype": archive(form(ARRAY, "float32"), leaf_0=npy(1.0)),
    "objects": archive(form(ARRAY, "float64"), leaf_0=npy(np.array([Evil()], object), allow_pickle=True)),
    "more than there is": archive(form(ARRAY, "float64"), leaf_0=HUGE),
    "no node": archive(form("text")), "no tree": archive(form(NO_TREE)),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_files_that_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(FOREIGN[name])
    with pytest.raises(LookupError if name == "no tree" else lg.FileFormatError, match=r"load: expected"):
        lg.load(path)


def test_damage_is_seen(tmp_path: Path) -> None:
    """Every byte of a file changed, and every beginning: refused, or, where the byte means nothing, the same tree."""
    path = tmp_path / "x"
    tree = {"w": lg.arange(3.0), "n": 1}
    lg.save(path, tree)
    whole, wrong = path.read_bytes(), 0
    for i in range(0, len(whole), 3):
        for damaged in (whole[:i], whole[:i] + bytes([whole[i] ^ 0x15]) + whole[i + 1 :]):
            path.write_bytes(damaged)
            try:
                got = lg.load(path)
            except lg.FileFormatError:
                wrong += 1
            else:
                assert got["n"] == 1
                assert got["w"].tolist() == [0.0, 1.0, 2.0]
    assert wrong > len(whole) / 3


def test_pickles(device: str) -> None:
    for name in DTYPES:
        x = lg.asarray(np.arange(3).astype(np.dtype(getattr(ml_dtypes, name, name))))
        for tensor in (x, x[0], lg.zeros((0, 2), dtype=x.dtype), x[::2] + x[:1]):
            copy = pickle.loads(pickle.dumps(tensor))
            assert (copy.dtype, copy.shape, str(copy)) == (tensor.dtype, tensor.shape, str(tensor))
    f = pickle.loads(pickle.dumps(lg.compile(lg.sin)))
    assert f(0.0).item() == 0.0
    state = lg.optim.adam(0.1).init(lg.ones(2))
    assert lg.tree.structure(pickle.loads(pickle.dumps(state))) == lg.tree.structure(state)


def test_open_files_are_written_and_read(tmp_path: Path) -> None:
    tree = {"w": lg.asarray([1.0, 2.0]), "half": lg.ones(3, dtype=lg.bfloat16), "epoch": 3}
    memory = io.BytesIO()
    lg.save(memory, tree)
    lg.save(tmp_path / "tree", tree)
    assert memory.getvalue() == (tmp_path / "tree").read_bytes()
    memory.seek(0)
    np.testing.assert_array_equal(np.load(memory)["leaf_0"], [1.0, 2.0])
    memory.seek(0)
    with open(tmp_path / "tree", "rb") as file:
        for read in (lg.load(memory), lg.load(file)):
            assert repr(read) == repr(tree)
    with pytest.raises(lg.FileFormatError, match="BytesIO"):
        lg.load(io.BytesIO(b"no archive"))
    exported = io.BytesIO()
    lg.export(lambda x: 2.0 * x, lg.ones(2)).save(exported)
    np.testing.assert_array_equal(lg.load_exported(exported)(lg.asarray([1.0, 3.0])), [2.0, 6.0])
    for call in (lambda: lg.save(io.StringIO(), tree), lambda: lg.load(io.StringIO()), lambda: lg.save(3, tree)):
        with pytest.raises(TypeError, match="expected a path, or an open binary file"):
            call()


def test_what_numpy_saves_of_a_tensor_is_numpys(tmp_path: Path) -> None:
    for place in (tmp_path / "rows.npy", io.BytesIO()):
        np.save(place, lg.asarray([[1, 2], [3, 4]]))
        if isinstance(place, io.BytesIO):
            place.seek(0)
        np.testing.assert_array_equal(np.load(place), [[1, 2], [3, 4]])
