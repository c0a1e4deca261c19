"""Evaluation by structure: what is compiled once, what again, what never."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from loopgrad.codegen.options import Options
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Graph, Leaf, Value
from loopgrad.graph.types import TensorType, float32, float64
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.executable import Executable
from loopgrad.runtime.interpreter import InterpreterDevice
from loopgrad.runtime.session import Session, evaluate, move


def leaf(array: np.ndarray, device: str = "interpreter") -> Leaf:
    buffer = get_device(device).put(array)
    return Leaf(buffer.type, buffer)


def scaled(x: Value, factor: float) -> Value:
    return ops.mul(x, ops.full(factor, x.type))


def graph_of(factor: float, shape: tuple[int, ...] = (3,)) -> Graph:
    return trace(lambda x: (scaled(x, factor),), [TensorType(shape, float64)])[0]


def test_values_are_computed_and_leaves_returned_as_they_are() -> None:
    x = leaf(np.arange(3.0))
    product, same, again = evaluate([scaled(x, 0.3), x, x], "interpreter")
    np.testing.assert_array_equal(product.array, np.arange(3.0) * 0.3)
    assert same is x.buffer
    assert again is x.buffer
    assert evaluate([x], "interpreter") == [x.buffer]
    assert evaluate([], "interpreter") == []


def test_a_structure_compiles_twice_at_most() -> None:
    session = Session()
    device = InterpreterDevice()
    options = Options()
    executables = []
    for factor in (0.3, 0.3, 0.7, 0.9, 0.3, 0.7):
        executable, constants = session.lookup(graph_of(factor), device, options)
        x = device.put(np.ones(3))
        np.testing.assert_array_equal(executable.run([x, *constants])[0].array, factor)
        executables.append(executable)
    assert session.compiled == 2
    assert executables[0] is executables[1] is executables[4]
    assert executables[2] is executables[3] is executables[5]


def test_what_was_decided_outlives_programs() -> None:
    """Numbers that are inputs stay inputs, and those in the code stay there, however little memory there is: on the
    CPU x**3.0 has other bits where 3.0 is an input."""

    def power(exponent: float, n: int) -> Graph:
        type = TensorType((n,), float64)
        return trace(lambda x: (ops.pow(x, ops.full(exponent, type)), ops.slice(x, (n - 2,), (n - 1,))), [type])[0]

    device, x = get_device("cpu"), np.linspace(0.1, 3.0, 200)
    found = []
    for leaving in (False, True):
        session, results = Session(), []
        for exponent, n in ((0.7, 200), (3.0, 200), (0.7, 200), (3.0, 100), (0.7, 100), (3.0, 200), (3.0, 100)):
            for direct in (True, False):
                graph = power(exponent, n)
                executable, constants = session.lookup(graph, device, Options(direct=direct))
                outputs = executable.run([device.put(x[:n]), *constants])
                results.append([len(constants), *[o.array.tobytes() for o in outputs]])
                for versions in list(session._versions.values()) if leaving else ():
                    versions.forget()
        found.append(results)
    assert found[0] == found[1]


def test_constants_keep_their_dtype() -> None:
    session = Session()
    graphs = [trace(lambda x, f=f: (scaled(x, f),), [TensorType((2,), float32)])[0] for f in (0.1, 0.7)]
    for graph in graphs:
        executable, constants = session.lookup(graph, InterpreterDevice(), Options())
    assert [c.type.dtype for c in constants] == [float32]
    assert executable.output_types[0].dtype is float32


def test_shapes_and_options_are_told_apart() -> None:
    session = Session()
    device = InterpreterDevice()
    for graph, options in (
        (graph_of(0.3), Options()),
        (graph_of(0.3, (4,)), Options()),
        (graph_of(0.3), Options(check_indices=True)),
    ):
        session.lookup(graph, device, options)
    assert session.compiled == 3
    session.clear()
    session.lookup(graph_of(0.3), device, Options())
    assert session.compiled == 4


def test_a_value_of_a_traced_function_is_refused() -> None:
    seen: list[Value] = []

    def function(x: Value) -> tuple[Value, ...]:
        seen.append(scaled(x, 0.3))
        return (x,)

    trace(function, [TensorType((2,), float64)])
    with pytest.raises(TypeError, match="depends on an argument"):
        evaluate(seen, "interpreter")


def test_leaves_move_between_devices() -> None:
    x = leaf(np.arange(3.0), "cpu")
    (y,) = evaluate([scaled(x, 2.5)], "interpreter")
    assert y.device == "interpreter"
    np.testing.assert_array_equal(y.array, np.arange(3.0) * 2.5)
    assert move(y, get_device("interpreter")) is y
    assert move(y, get_device("cpu")).device == "cpu"


def test_the_interpreter_replays_and_explains() -> None:
    device = get_device("interpreter")
    executable = device.compile(graph_of(2.5), Options())
    replay = executable.capture([device.put(np.ones(3))])
    np.testing.assert_array_equal(replay.replay()[0].array, 2.5)
    np.testing.assert_array_equal(replay.replay([device.put(np.full(3, 2.0))])[0].array, 5.0)
    assert replay.stats().replays == 2
    assert "interpreter" in str(executable.plan())
    assert executable.explain()
    assert "mul" in executable.text("graph")
    with pytest.raises(ValueError, match="expected the stage 'graph'"):
        executable.text("llvm")


@pytest.mark.parametrize("name", ["interpreter", "cpu"])
def test_what_is_compiled_does_not_hold_the_first_runs_elements(name: str) -> None:
    x = leaf(np.arange(7.0), name)
    elements = weakref.ref(x.buffer)
    evaluate([scaled(x, 0.5)], name)
    del x
    gc.collect()
    assert elements() is None


class SlowDevice(InterpreterDevice):
    """Says that it compiles, then waits."""

    def __init__(self) -> None:
        self.inside, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def compile(self, graph: Graph, options: Options) -> Executable:
        self.inside.release()
        assert self.go_on.acquire(timeout=20)
        return super().compile(graph, options)


def test_threads_compile_different_structures_side_by_side_and_each_once() -> None:
    session, device = Session(), SlowDevice()
    found: list[Executable] = []

    def look(*shape: int) -> None:
        found.append(session.lookup(graph_of(0.3, shape), device, Options())[0])

    threads = [threading.Thread(target=look, args=shape) for shape in ((3,), (3,), (4,))]
    for thread in threads:
        thread.start()
    assert device.inside.acquire(timeout=20)
    assert device.inside.acquire(timeout=20), "two are compiling"
    device.go_on.release(2)
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert session.compiled == 2
    assert len(set(map(id, found))) == 2
