"""Tensor: conversion, evaluation, text, and what tracing forbids."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check


def test_attributes() -> None:
    x = lg.zeros((2, 3), dtype=lg.float32)
    assert (x.shape, x.ndim, x.size, x.nbytes, x.itemsize) == ((2, 3), 2, 6, 24, 4)
    assert x.dtype is lg.float32
    assert len(x) == 2
    assert x.__array_namespace__() is lg


def test_conversion(device: str) -> None:
    x = lg.arange(3.0) + 0.5
    assert x.tolist() == [0.5, 1.5, 2.5]
    assert np.asarray(x).tolist() == [0.5, 1.5, 2.5]
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    assert float(x[0]) == 0.5
    assert int(x[1]) == 1
    assert complex(x[1]) == 1.5
    assert bool(x[0] > 0)
    assert x.item(2) == 2.5
    assert [10, 20, 30][lg.asarray(1)] == 20
    assert [v.item() for v in x] == [0.5, 1.5, 2.5]
    assert x.device == device
    assert (2.5 in x) is True


def test_conversion_refuses(device: str) -> None:
    with pytest.raises(lg.DTypeError, match="one element"):
        float(lg.ones(3))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(lg.ones(3))
    with pytest.raises(TypeError):
        [1, 2][lg.asarray(0.5)]  # type: ignore[call-overload]
    for use in (len, iter):
        with pytest.raises(TypeError, match="axis"):
            use(lg.asarray(1.0))
    with pytest.raises(TypeError, match="asarray"):
        lg.Tensor([1, 2])
    with pytest.raises(TypeError):
        hash(lg.ones(1))


def test_evaluated_once(device: str) -> None:
    x = lg.ones(3) * 2
    first = x.numpy()
    assert x.numpy() is first
    assert not first.flags.writeable
    a, b = x + 1, x + 2
    lg.eval(a, {"b": [b, a]})
    assert a.tolist() == [3, 3, 3]
    assert b.tolist() == [4, 4, 4]


def test_text(device: str) -> None:
    x = lg.asarray([1.0, 2.0])
    assert repr(x) == "Tensor([1., 2.], dtype=float64)"
    assert str(x) == "[1. 2.]"
    assert f"{x[0]:.2f}" == "1.00"
    assert "Tensor" in x._repr_html_()
    assert "..." in repr(lg.zeros(5000))


def test_text_while_tracing() -> None:
    seen = []

    def body(i: Any, v: Any) -> Any:
        w = v * 2
        seen.extend([repr(v), str(w), w._repr_html_()])
        return w

    lg.fori_loop(0, 2, body, lg.ones(3))
    assert seen[0] == "Tensor(traced float64[3], an argument)"
    assert seen[1].startswith("Tensor(traced float64[3], made at ")
    assert "test_tensor.py" in seen[1]
    assert "float64[3]" in seen[2]


@pytest.mark.parametrize(
    ("use", "hint"),
    [(bool, "lg.cond"), (float, "tensor"), (int, "fori_loop"), (np.asarray, "NumPy"), (lambda v: v.tolist(), "return"),
     (lambda v: [1, 2][v.astype(lg.int64)], "index with the tensor")],
)  # fmt: skip
def test_elements_of_a_traced_tensor(use: Any, hint: str) -> None:
    def body(v: Any) -> Any:
        use(v)
        return v + 1

    with pytest.raises(lg.TracedValueError, match=rf"{hint}(.|\n)*test_tensor.py"):
        lg.while_loop(lambda v: v < 3, body, 0.0)


def test_values_that_leave_their_loop() -> None:
    kept = []

    def body(i: Any, v: Any) -> Any:
        kept.append(v * 2)
        return v

    lg.fori_loop(0, 2, body, lg.ones(2))
    with pytest.raises(lg.TracedValueError):
        kept[0].tolist()
    with pytest.raises(lg.LeakedValueError, match=r"test_tensor\.py"):
        kept[0] + 1


def test_copies_and_pickles(device: str) -> None:
    x = lg.arange(3.0)
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        check(y, x.numpy())
        assert y is not x


def test_numpy_on_the_left(device: str) -> None:
    result = np.arange(3.0) + lg.ones(3)
    assert isinstance(result, lg.Tensor)
    assert isinstance(np.float64(2.0) * lg.ones(2), lg.Tensor)


def test_devices() -> None:
    x = lg.asarray([1.0, 2.0], device="interpreter")
    assert x.device == "interpreter"
    assert (x * 2).device == "interpreter"
    assert (x * 2).tolist() == [2, 4]
    assert x.to_device("cpu").device == "cpu"
    for given in (np.arange(3.0), [0.0, lg.asarray(1.0), 2.0], [0.0, 1.0, 2.0]):  # as JAX's device_put
        moved = lg.to_device(given, "interpreter")
        assert (moved * 2).device == "interpreter"
        assert moved.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="expected one of the devices"), lg.default_device("gpu9"):
        pass
    with pytest.raises(ValueError, match="expected one of the devices"):
        lg.asarray(1.0, device="nowhere")


def test_settings_belong_to_their_task() -> None:
    async def task(device: str, turns: int) -> list[str]:
        with lg.default_device(device):
            seen = []
            for _ in range(turns):
                await asyncio.sleep(0)
                seen.append(lg.ones(2).device)
        return seen

    async def both() -> list[list[str]]:
        return await asyncio.gather(task("interpreter", 2), task("cpu", 3))

    assert asyncio.run(both()) == [["interpreter"] * 2, ["cpu"] * 3]


def test_options() -> None:
    with lg.options(stack_capacity=4) as chosen:
        assert chosen.stack_capacity == 4
    with pytest.raises(TypeError, match="stack_capacity"), lg.options(stack_size=4):
        pass


def test_graph_export() -> None:
    x = lg.fori_loop(0, 3, lambda _, v: v * 2, lg.ones(2))
    assert "digraph" in lg.to_dot(x)
    assert lg.to_networkx(x).number_of_nodes() > 2
    assert "for(" in lg.to_text(x)
