"""What the array API standard's inspection says is so."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

FIRST = lg.ones(2)


def test_what_the_namespace_says_holds() -> None:
    info = lg.__array_namespace_info__()
    assert lg.__array_api_version__ == "2025.12"
    assert FIRST.__array_namespace__(api_version="2025.12") is lg
    with pytest.raises(ValueError, match=r"2021\.12"):
        FIRST.__array_namespace__(api_version="1999.12")
    assert info.default_device() in info.devices()
    for device in info.devices():
        assert lg.ones(1, device=device).device == device
        for name, dtype in info.dtypes(device=device, kind=("bool", "integral", "real floating")).items():
            assert lg.zeros(1, dtype=dtype, device=device).dtype == np.dtype(name)
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert info.default_dtypes()["real floating"] is lg.ones(()).dtype
    with lg.default_device("interpreter"):
        assert info.default_device() == "interpreter"
    most = info.capabilities()["max dimensions"]
    assert lg.sum(lg.ones((1,) * most) + 1.0).item() == 2.0
    with pytest.raises(ValueError, match="nowhere"):
        info.dtypes(device="nowhere")
    with pytest.raises(lg.DTypeError, match="isdtype"):
        info.dtypes(kind="odd")


def test_errors_of_the_standard() -> None:
    for call in (lambda: lg.expand_dims(FIRST, 3), lambda: lg.sum(FIRST, axis=1), lambda: lg.flip(FIRST, axis=-2)):
        for kind in (lg.AxisError, lg.ShapeError, IndexError, ValueError, np.exceptions.AxisError):
            with pytest.raises(kind, match="expected an axis"):
                call()


def test_masks_without_elements_choose_nothing() -> None:
    for shape, none in (((3, 4), (0, 4)), ((1,), (0,)), ((2, 3), (2, 0)), ((2, 3), (0,))):
        x, mask = np.ones(shape), np.zeros(none, bool)
        t = lg.asarray(x)
        assert t[lg.asarray(mask)].shape == x[mask].shape
        t[lg.asarray(mask)] = 5.0
        assert t.tolist() == x.tolist()
    with pytest.raises(IndexError):
        lg.ones(3)[lg.asarray([True, False])]


def test_memory_itself_by_the_old_protocol() -> None:
    """`copy=False` without a version, whose capsules can't say that they are to be read only."""

    class OldConsumer:
        def __init__(self, t: lg.Tensor) -> None:
            self.t = t

        def __dlpack__(self, **_: object) -> object:
            return self.t.__dlpack__(copy=False)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.t.__dlpack_device__()

    x = lg.arange(5.0) + 1.0
    got = np.from_dlpack(OldConsumer(x))
    assert got.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert got.ctypes.data == np.asarray(x).ctypes.data
    for empty in (lg.zeros((0, 3)), lg.asarray([True]), lg.asarray(1 + 2j)):
        empty.__dlpack__(copy=False)


def test_devices_by_keyword() -> None:
    there = FIRST.to_device("interpreter", stream=None)
    assert there.device == "interpreter"
    moved = lg.astype(FIRST, dtype=lg.float32, device="interpreter")
    assert (moved.device, moved.dtype, moved.tolist()) == ("interpreter", lg.float32, [1.0, 1.0])
    assert FIRST.astype(lg.int8, device="cpu").device == "cpu"
    assert lg.isdtype(dtype=lg.int8, kind="integral")
