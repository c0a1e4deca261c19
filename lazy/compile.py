"""`lg.compile`: a Python function traced once per kind of arguments and kept as an executable.

Tensors, NumPy arrays and Python numbers are inputs (values may change from call to call); everything
else (strings, functions, None, and the arguments named static) is part of the key. Two calls share an
executable when tree structure, shapes, dtypes, static values, device and options agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from loopgrad.graph.build import enter, trace
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Leaf, Value
from loopgrad.graph.types import TensorType
from loopgrad.lazy.carries import as_result
from loopgrad.lazy.config import Config, current
from loopgrad.lazy.core import TensorCore, TensorLeaf, tracing, wrap
from loopgrad.lazy.evaluation import buffers_of, derivation, deriving
from loopgrad.lazy.placement import common, place_of, place_of_arguments
from loopgrad.lazy.promotion import scalar_dtype
from loopgrad.lazy.trees import Tree, check_function, flatten, is_dynamic, leaf_names, unflatten
from loopgrad.runtime.buffers import Buffer, dtype_of
from loopgrad.runtime.devices import Device, get_device
from loopgrad.runtime.session import move

if TYPE_CHECKING:
    from loopgrad.runtime.executable import Executable
    from loopgrad.runtime.plan import MemoryStats, Plan
    from loopgrad.runtime.replay import Replay as DeviceReplay
    from loopgrad.runtime.replay import ReplayStats

Key = tuple[Any, ...]
_NUMBERS: Final = frozenset({bool, int, float, complex})
_HOST_KINDS: Final = ("cpu", "interpreter")
_TYPES_LIMIT: Final = 4096  # remembered array types


@dataclass(slots=True, eq=False)
class Version:
    """One executable: `captured` are the buffers of closed-over tensors, appended to the inputs."""

    executable: Executable
    device: Device
    types: list[TensorType]
    captured: list[Buffer]
    structure: Any
    form: str  # single, tuple, tree: how results are put together
    chosen: bool  # whether the user chose the device
    returns_input: bool  # then arrays are copied: the caller may write to them later
    reason: str

    def results(self, buffers: Sequence[Buffer]) -> Any:
        """The caller's tree of tensors."""
        tensors = [wrap(TensorLeaf(b.type, b, computed=True, committed=self.chosen)) for b in buffers]
        if self.form == "single":
            return tensors[0]
        return tuple(tensors) if self.form == "tuple" else unflatten(self.structure, tensors)


class Compiled:
    """What `lg.compile` returns; call it like the function."""

    def __init__(self, fun: Callable[..., Any], device: str | None, static_argnums: Sequence[int]) -> None:
        update_wrapper(self, fun)
        self._fun = fun
        self._device = device
        self._static = frozenset(static_argnums)
        self._versions: dict[Key, Version] = {}
        self._last: tuple[Key, Version] | None = None

    def __repr__(self) -> str:
        name = getattr(self._fun, "__qualname__", repr(self._fun))
        place = f" on {self._device}" if self._device else ""
        return f"<compiled {name}{place}: {len(self._versions)} programs>"

    # ---- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results, computed."""
        if tracing() or deriving():
            return self._fun(*args, **kwargs)  # part of a larger program: that one is compiled
        if not kwargs and not self._static:
            fast = self._fast(args)
            if fast is not None:
                return fast
        version, inputs = self._version(args, kwargs)
        return version.results(version.executable.run([*inputs, *version.captured]))

    def _fast(self, args: tuple[Any, ...]) -> Any:
        """The result where all arguments are evaluated tensors or arrays of the kinds of the last call."""
        last = self._last
        if last is None:
            return None
        config = current()
        key: list[Any] = [config, None]
        inputs: list[Buffer] = []
        version = last[1]
        device = version.device
        placed = False
        for x in args:
            kind = type(x)
            if kind is np.ndarray:
                buffer = _borrowed(x, version)
                key.append(buffer.type)
            elif isinstance(x, TensorCore) and not x._weak and isinstance(x._value, Leaf):
                buffer = x._value.buffer
                key.append(x._value.type)
                if buffer.device != device.name:
                    return None
                placed = placed or place_of(x._value) is not None
            elif kind is float:
                buffer = _borrowed(np.array(x, config.dtype.np), version)
                key.append(float)
            else:
                return None
            inputs.append(buffer)
        if placed and self._device is None:
            key[0] = (config, device.name)
        if last[0] != tuple(key):
            found = self._versions.get(tuple(key))
            if found is None or found.device is not device:
                return None
            version = found
            self._last = (tuple(key), found)
        return version.results(version.executable.run([*inputs, *version.captured]))

    def _version(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Version, list[Buffer]]:
        """The executable for these arguments (traced where there is none yet) and its inputs."""
        config = current()
        leaves, structure = flatten((args, kwargs))
        static = self._static_leaves(leaves, structure)
        flat = not kwargs and len(leaves) == len(args) and all(x is y for x, y in zip(leaves, args, strict=True))
        dynamic = [x for x, s in zip(leaves, static, strict=True) if not s]
        kinds = [x if s else _kind(x) for x, s in zip(leaves, static, strict=True)]
        place = None if self._device else place_of_arguments(leaves, "compile")
        settings = config if place is None else (config, place)
        key: Key = (settings, None if flat and not any(static) else structure, *kinds)
        try:
            version = self._versions.get(key)
        except TypeError:
            names = leaf_names(structure, "arguments")
            text = ", ".join(n for n, s, x in zip(names, static, leaves, strict=True) if s and not _hashable(x))
            message = explained("compile", "hashable static arguments", text, "pass arrays, or hashable values")
            raise DTypeError(message) from None
        if version is None:
            version = self._trace(config, place, leaves, static, structure, key)
            self._versions[key] = version
        self._last = (key, version)
        return version, _inputs(dynamic, version)

    def _static_leaves(self, leaves: list[Any], structure: Any) -> list[bool]:
        if not self._static:
            return [not is_dynamic(x) for x in leaves]
        positions: list[bool] = []
        for i, child in enumerate(structure.child(0).children()):
            positions.extend([i in self._static] * child.num_leaves)
        positions.extend([False] * (len(leaves) - len(positions)))
        return [s or not is_dynamic(x) for s, x in zip(positions, leaves, strict=True)]

    def _trace(
        self, config: Config, place: str | None, leaves: list[Any], static: list[bool], structure: Any, key: Key
    ) -> Version:
        dynamic = [(i, _type_of(x), _is_weak(x)) for i, (x, s) in enumerate(zip(leaves, static, strict=True)) if not s]
        found: list[Any] = []

        def run(*values: Value) -> list[Value]:
            arguments = list(leaves)
            for v, (i, _, weak) in zip(values, dynamic, strict=True):
                arguments[i] = wrap(v, weak)
            args, kwargs = unflatten(structure, arguments)
            result = self._fun(*args, **kwargs)
            outputs, out_structure = flatten(result)
            found.extend((out_structure, _form_of(result, outputs)))
            return [as_result("compile", x)._value for x in outputs]

        types = [t for _, t, _ in dynamic]
        with derivation():
            graph, captures = trace(run, types)
        closed_over = [wrap(v) for v in captures]
        chosen = self._device or common([place, place_of_arguments(closed_over, "compile")], "compile")
        device = get_device(chosen or config.device)
        captured = [move(b, device) for b in buffers_of(closed_over)]
        with enter(None):
            executable = device.compile(graph, config.options)
        returned = any(v in graph.inputs for v in graph.outputs)
        reason = self._reason(key)
        return Version(executable, device, types, captured, found[0], found[1], chosen is not None, returned, reason)

    def _reason(self, key: Key) -> str:
        """Why a new version was needed, in comparison with the last one."""
        if not self._versions:
            return "first call"
        old = next(reversed(self._versions))
        if old[0] != key[0]:
            return f"settings changed: {old[0]} -> {key[0]}"
        if old[1] != key[1] or len(old) != len(key):
            return "the structure of the arguments changed"
        changes = [
            f"argument leaf {i}: {_text(a)} -> {_text(b)}"
            for i, (a, b) in enumerate(zip(old[2:], key[2:], strict=True))
            if a != b
        ]
        return "; ".join(changes)

    # ---- looking inside

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """Kernels, buffers and saved values of the program for these arguments."""
        return self._version(args, kwargs)[0].executable.plan()

    def explain(self) -> str:
        """One paragraph per version: why it was compiled, and what the compiler announces."""
        if not self._versions:
            return "not called yet: nothing is compiled"
        lines = []
        for i, version in enumerate(self._versions.values()):
            types = ", ".join(map(str, version.types)) or "no arguments"
            lines.append(f"version {i} ({types}) on {version.device.name}: {version.reason}")
            lines.extend(f"  {note}" for note in version.executable.explain())
        return "\n".join(lines)

    def text(self, stage: str = "graph", *args: Any, **kwargs: Any) -> str:
        """The program at a stage (graph, kernel, llvm, ...), for these arguments or the last call's."""
        if args or kwargs:
            return self._version(args, kwargs)[0].executable.text(stage)
        if self._last is None:
            fix = "call it, or pass arguments"
            raise ValueError(explained("text", "a function that was called", "no call yet", fix))
        return self._last[1].executable.text(stage)

    def capture(self, *args: Any, **kwargs: Any) -> Replay:
        """Run once and record, so that `replay` runs again at the least cost."""
        version, inputs = self._version(args, kwargs)
        return Replay(version, version.executable.capture([*inputs, *version.captured]))

    def memory_stats(self) -> MemoryStats:
        """Bytes held by the last called version, and their peaks."""
        if self._last is None:
            raise ValueError(explained("memory_stats", "a function that was called", "no call yet", "call it first"))
        return self._last[1].executable.memory_stats()

    @property
    def versions(self) -> int:
        """How many programs were compiled."""
        return len(self._versions)

    def clear(self) -> None:
        """Forget every compiled version."""
        self._versions.clear()
        self._last = None


class Replay:
    """A recorded call. Values and trip counts may change between replays; shapes and dtypes may not."""

    def __init__(self, version: Version, recorded: DeviceReplay) -> None:
        self._version = version
        self._recorded = recorded

    def replay(self, *args: Any, **kwargs: Any) -> Any:
        """Run again; without arguments, on the last ones."""
        version = self._version
        if not args and not kwargs:
            return version.results(self._recorded.replay(None))
        leaves = list(args) if not kwargs and all(type(x) is not dict for x in args) else None
        if leaves is None or any(isinstance(x, tuple | list) or not is_dynamic(x) for x in leaves):
            leaves = [x for x in flatten((args, kwargs))[0] if is_dynamic(x)]
        return version.results(self._recorded.replay([*_checked_inputs(leaves, version), *version.captured]))

    __call__ = replay

    def __repr__(self) -> str:
        types = ", ".join(map(str, self._version.types)) or "no arguments"
        return f"<captured call of ({types}) on {self._version.device.name}>"

    def stats(self) -> ReplayStats:
        """Captures, replays, and how often a stack heap grew."""
        return self._recorded.stats()


def _checked_inputs(leaves: Sequence[Any], version: Version) -> list[Buffer]:
    if len(leaves) != len(version.types):
        fix = "pass the arguments of the capture"
        raise ShapeError(explained("replay", f"{len(version.types)} arrays", len(leaves), fix))
    for i, (x, expected) in enumerate(zip(leaves, version.types, strict=True)):
        got = _type_of(x)
        if got != expected and not (type(x) in _NUMBERS and not expected.shape):
            error = ShapeError if got.shape != expected.shape else DTypeError
            raise error(explained("replay", f"argument {i} of type {expected}", got, "capture again for another type"))
    return _inputs(leaves, version)


def _inputs(leaves: Sequence[Any], version: Version) -> list[Buffer]:
    pending = [x for x in leaves if isinstance(x, TensorCore) and not isinstance(x._value, Leaf)]
    if pending:
        buffers_of(pending)
    return [_input(x, t, version) for x, t in zip(leaves, version.types, strict=True)]


def _input(x: Any, type: TensorType, version: Version) -> Buffer:
    if isinstance(x, TensorCore):
        value = x._value
        buffer = value.buffer if isinstance(value, Leaf) else buffers_of((x,))[0]
        return buffer if buffer.device == version.device.name else move(buffer, version.device)
    return _borrowed(np.asarray(x, type.dtype.np), version)


_types: dict[tuple[np.dtype[Any], tuple[int, ...]], TensorType] = {}


def _borrowed(array: np.ndarray[Any, Any], version: Version) -> Buffer:
    """The caller's array as an input for the time of one call, without a copy where that is possible."""
    device = version.device
    if version.returns_input or device.kind not in _HOST_KINDS or not array.flags.carray or not array.dtype.isnative:
        return device.put(array, version.returns_input)
    place = (array.dtype, array.shape)
    type_ = _types.get(place)
    if type_ is None:
        if len(_types) >= _TYPES_LIMIT:
            _types.clear()
        type_ = _types[place] = TensorType(array.shape, dtype_of(array.dtype))
    return Buffer(array, device.name, type_)


def _kind(x: Any) -> Any:
    """The part of the key that an input contributes."""
    if isinstance(x, TensorCore):
        return (x._value.type, True) if x._weak else x._value.type
    return type(x) if type(x) in _NUMBERS else _type_of(x)


def _type_of(x: Any) -> TensorType:
    if isinstance(x, TensorCore):
        type_ = x._value.type
        assert isinstance(type_, TensorType)
        return type_
    if type(x) in _NUMBERS:
        return TensorType((), scalar_dtype(x))
    array = np.asarray(x)
    return TensorType(array.shape, dtype_of(array.dtype))


def _is_weak(x: Any) -> bool:
    return x._weak if isinstance(x, TensorCore) else type(x) in _NUMBERS


def _form_of(result: Tree, outputs: Sequence[Any]) -> str:
    if len(outputs) == 1 and result is outputs[0]:
        return "single"
    flat = type(result) is tuple and len(result) == len(outputs)
    return "tuple" if flat and all(a is b for a, b in zip(result, outputs, strict=True)) else "tree"


def _hashable(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


def _text(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


@overload
def compile(
    fun: Callable[..., Any], device: str | None = None, *, static_argnums: int | Sequence[int] = ()
) -> Compiled: ...
@overload
def compile(
    fun: None = None, device: str | None = None, *, static_argnums: int | Sequence[int] = ()
) -> Callable[[Callable[..., Any]], Compiled]: ...
def compile(
    fun: Callable[..., Any] | None = None, device: str | None = None, *, static_argnums: int | Sequence[int] = ()
) -> Compiled | Callable[[Callable[..., Any]], Compiled]:
    """Compile a function; also a decorator, with or without arguments.

    `static_argnums`: positional arguments whose (hashable) values are part of the program.
    """
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    if fun is None:
        return lambda f: compile(f, device, static_argnums=static)
    check_function("compile", fun)
    return Compiled(fun, device, static)
