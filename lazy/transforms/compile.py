"""`lg.compile`: a Python function traced once per kind of arguments and kept as an executable.

Tensors, NumPy arrays and Python numbers are inputs (values may change from call to call); everything else (strings,
functions, None, and the arguments named static) is part of the key (`lazy.transforms.static_arguments`). Two calls
share an executable when tree structure, shapes, dtypes, static values, device and options agree. What a function reads
from around it is read when it is traced; a tensor there that is written to later has it traced again
(`lazy.tensor.staleness`).

Circle: what a `Compiled` makes, the recorded calls of `lazy/transforms/captured_call.py` and the methods of
`lazy/transforms/compiled_methods.py`, hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload
from weakref import WeakMethod

import numpy as np

from loopgrad.graph.build import enter, trace
from loopgrad.graph.errors import explained
from loopgrad.graph.nodes import Leaf, Value
from loopgrad.lazy.loops.traced_functions import as_result
from loopgrad.lazy.tensor.config import Config, current
from loopgrad.lazy.tensor.core import PYTHON_SCALARS, TensorCore, TensorLeaf, tracing, wrap
from loopgrad.lazy.tensor.device_choice import common, place_of_arguments
from loopgrad.lazy.tensor.evaluation import buffers_of
from loopgrad.lazy.tensor.ongoing_derivations import derivation, deriving
from loopgrad.lazy.tensor.promotion import scalar_dtype
from loopgrad.lazy.tensor.staleness import read_by
from loopgrad.lazy.tensor.static_identity import Standing
from loopgrad.lazy.tensor.tree_patterns import TreePattern, builder, pattern_of
from loopgrad.lazy.tensor.trees import check_function, flatten, odd_keys, unflatten
from loopgrad.lazy.transforms.captured_call import Replay
from loopgrad.lazy.transforms.compiled_arguments import (
    ARRAY,
    argument,
    check_required,
    is_weak,
    kind_of_input,
    number_requirements,
    type_of,
    weak_ones,
    writes,
)
from loopgrad.lazy.transforms.compiled_methods import BoundCompiled
from loopgrad.lazy.transforms.compiled_version import Version
from loopgrad.lazy.transforms.inlined_call import inlined
from loopgrad.lazy.transforms.input_buffers import borrowed, input_buffers
from loopgrad.lazy.transforms.latest_call import LatestCall, latest_call
from loopgrad.lazy.transforms.static_arguments import (
    StaticParameters,
    argument_names,
    fixed_identities,
    is_static,
    static_identities,
    text_of,
    with_static,
)
from loopgrad.lazy.transforms.transformed import where_found
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.complex_arrays import compiled
from loopgrad.runtime.devices import get_device, tell_others
from loopgrad.runtime.program_memory import PROGRAMS, graph_bytes
from loopgrad.runtime.rare_collection import RARE_COLLECTION
from loopgrad.runtime.session import move

if TYPE_CHECKING:
    from loopgrad.runtime.executable import Executable
    from loopgrad.runtime.plan import MemoryStats, Plan

PUBLIC: Final = "compile Compiled"
Key = tuple[Any, ...]


class BoundArguments(NamedTuple):
    """The arguments of one call as leaves: those in the positions `fixed` are part of the program, as are the `static`
    ones, which were taken out of the tree by position or name. `parts`: what these are compared by."""

    leaves: list[Any]
    fixed: list[int]
    structure: Any
    static: dict[int | str, Any]
    parts: tuple[Any, ...]

    def inputs(self) -> list[Any]:
        """The other leaves."""
        if not self.fixed:
            return self.leaves
        fixed = frozenset(self.fixed)
        return [x for i, x in enumerate(self.leaves) if i not in fixed]


class BoundVersion(NamedTuple):
    """What runs for one call: a version, the arguments that are its inputs, and their buffers."""

    version: Version
    leaves: Sequence[Any]
    inputs: list[Buffer]


class Compiled(Standing):
    """What `lg.compile` returns; call it like the function."""

    def __init__(
        self,
        fun: Callable[..., Any],
        device: str | None = None,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
    ) -> None:
        update_wrapper(self, fun)
        self._fun = fun
        self._device = device
        self._named = (static_argnums, static_argnames)  # as given, for copies
        self._static = StaticParameters(fun, static_argnums, static_argnames)
        self._versions: dict[Key, Version] = {}
        self._last: tuple[Key, Version] | None = None
        self._latest: LatestCall | None = None
        self._pattern: TreePattern | None = None  # of the arguments of the last call, where they are trees
        self._plain: dict[Any, bool] = {}  # structure -> whether its equality tells all apart

    def __repr__(self) -> str:
        name = getattr(self._fun, "__qualname__", repr(self._fun))
        place = f" on {self._device}" if self._device else ""
        return f"<compiled {name}{place}: {len(self._versions)} programs>"

    def __get__(self, instance: Any, owner: type | None = None) -> Compiled | BoundCompiled:
        return self if instance is None else BoundCompiled(self, instance)

    # executables belong to this process and this object: copies compile for themselves

    def __copy__(self) -> Compiled:
        return Compiled(self._fun, self._device, *self._named)

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        return Compiled(deepcopy(self._fun, memo), self._device, *self._named)

    def __reduce__(self) -> Any:
        return where_found(self) or (Compiled, (self._fun, self._device, *self._named))

    # ---- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results, computed."""
        if tracing() or deriving():
            return inlined(self._fun, self._static, args, kwargs)  # that program is compiled
        if (latest := self._latest) is not None and (given := latest.inputs(args, kwargs)) is not None:
            return latest.version.results(latest.version.executable.run(given))
        found = None
        if not self._static:
            if kwargs or self._pattern is not None:
                found = self._known_tree(args, kwargs)
            if found is None and not kwargs:
                found = self._known(args, None)
        if found is None:
            version, leaves, inputs = self._version(args, kwargs)
            return version.call(leaves, inputs)
        version, leaves, inputs = found
        if version.written:
            return version.call(leaves, inputs)
        return version.results(version.executable.run([*inputs, *version.captured]))

    def _known_tree(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundVersion | None:
        """As `_known`, for trees of the structure of the last call."""
        last, pattern = self._last, self._pattern
        if last is None:
            return None
        if pattern is not None:
            found = pattern.leaves(args, kwargs)
            return None if found is None else self._known(found, pattern.structure)
        expected = last[0][1]
        if expected is None or type(expected) is tuple:
            return None
        leaves, structure = flatten((args, kwargs))
        return self._known(leaves, expected) if structure == expected else None

    def _known(self, leaves: Sequence[Any], structure: Any) -> BoundVersion | None:
        """The version for these arguments, which are all inputs, and their buffers, where they are evaluated tensors,
        arrays and numbers of the kinds of an earlier call; None where more is to be looked at."""
        last = self._last
        if last is None:
            return None
        config, version = current(), last[1]
        key: list[Any] = [config, structure, ()]  # as `_version` makes it, which one function for both would slow down
        inputs: list[Buffer] = []
        device = version.device
        name = device.name
        placed = False
        for x in leaves:
            kind = type(x)
            if isinstance(x, TensorCore):
                value = x._value
                if not isinstance(value, Leaf):
                    return None
                buffer = value.buffer
                key.append(kind_of_input(x) if x._weak or x._view is not None else value.type)
                committed = isinstance(value, TensorLeaf) and value.committed
                if buffer.device != name:
                    taken = None if committed else device.taken(buffer)
                    if taken is None:
                        return None
                    buffer = taken
                placed = placed or committed
            elif kind is np.ndarray:
                buffer = borrowed(x, version)
                key.append(buffer.type if x.shape else (buffer.type, ARRAY))
            elif kind in PYTHON_SCALARS:
                buffer = borrowed(np.array(x, scalar_dtype(x).np), version)
                key.append(kind)
            else:
                return None
            inputs.append(buffer)
        if placed and self._device is None:
            key[0] = (config, name)
        found = tuple(key)
        if last[0] != found:
            other = self._versions.get(found)
            if other is None or other.device is not device or other.returns_input is not version.returns_input:
                return None  # arrays are borrowed as this version's, or copied
            version = other
            self._last, self._latest = (found, other), None
        if version.stale:
            return None
        if version.required:
            check_required(leaves, version.required)
        return BoundVersion(version, leaves, inputs)

    def _version(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundVersion:
        """The executable for these arguments (traced where there is none yet), those that are inputs, and these."""
        config = current()
        call = self._call(args, kwargs)
        leaves = call.leaves
        flat = not kwargs and len(leaves) == len(args) and all(x is y for x, y in zip(leaves, args, strict=True))
        place = None if self._device else place_of_arguments(leaves, "compile")
        settings = config if place is None else (config, place)
        structure = None if flat and not call.parts else self._told_apart(call.structure)
        inputs = call.inputs()
        key: Key = (settings, structure, call.parts, *map(kind_of_input, inputs))
        version = self._versions.get(key)
        if version is None or version.stale:
            reason = self._reason(key)
            self._versions.pop(key, None)
            try:
                made = self._trace(config, place, call, reason)
            except Exception as error:
                tell_others(self._device or place or config.device, error)
                raise
            version = self._versions.setdefault(key, made)  # or another thread's
            PROGRAMS.add(version, version.size)
        else:
            version.used = True
        self._last = (key, version)
        told_apart = structure is None or type(structure) is tuple
        args, kwargs, static = self._static.split(args, kwargs) if self._static else (args, kwargs, None)
        self._pattern = None if told_apart or call.fixed else pattern_of(args, kwargs, structure)
        named = None if static is None else (self._static, static)
        self._latest = None if call.fixed else latest_call(key, version, self._pattern, named)
        return BoundVersion(version, inputs, input_buffers(inputs, version))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundArguments:
        static: dict[int | str, Any] = {}
        if self._static:
            args, kwargs, static = self._static.split(args, kwargs)
        leaves, structure = flatten((args, kwargs))
        fixed = [i for i, x in enumerate(leaves) if not isinstance(x, TensorCore) and is_static(x)]
        parts: tuple[Any, ...] = ()
        if fixed:
            parts = fixed_identities(fixed, leaves, lambda: argument_names(structure, self._fun))
        if static:
            parts += static_identities(static)
        return BoundArguments(leaves, fixed, structure, static, parts)

    def _told_apart(self, structure: Any) -> Any:
        """The structure as a part of the key: `{1: x}` and `{True: x}` differ."""
        plain = self._plain.get(structure)
        odd = () if plain else odd_keys(structure)
        if plain is None:
            self._plain[structure] = not odd
        return (structure, odd) if odd else structure

    @RARE_COLLECTION
    def _trace(self, config: Config, place: str | None, call: BoundArguments, reason: str) -> Version:
        dynamic = [i for i in range(len(call.leaves)) if i not in call.fixed]
        leaves = [call.leaves[i] for i in dynamic]
        found: list[Any] = []
        reads: list[Value] = []

        def run(*values: Value) -> list[Value]:
            arguments = list(call.leaves)
            given = [argument(x, v, is_weak(x)) for x, v in zip(leaves, values, strict=True)]
            for i, t in zip(dynamic, given, strict=True):
                arguments[i] = t
            args, kwargs = with_static(unflatten(call.structure, arguments), call.static)
            result = self._fun(*args, **kwargs)
            outputs, out_structure = flatten(result)
            written = writes(leaves, given, values)
            tensors = [as_result("compile", x) for x in outputs]
            required, weak = number_requirements(tensors, values), weak_ones(tensors)
            single = len(outputs) == 1 and result is outputs[0]
            put = None if single else builder(result, out_structure)
            found.extend((put, written, required, weak))
            return [*(t._value for t in tensors), *(given[j]._value for j in written)]

        types = [type_of(x) for x in leaves]
        with derivation(reads=reads):
            graph, captures = trace(run, types)
        closed_over = [wrap(v) for v in captures]
        chosen = self._device or common([place, place_of_arguments(closed_over, "compile")], "compile")
        device = get_device(chosen or config.device)
        captured = [move(b, device) for b in buffers_of(closed_over)]
        with enter(None):
            executable = compiled(device, graph, config.options)
        returned = any(v in graph.inputs for v in graph.outputs)
        put, written, required, weak = found
        placed, parts = chosen is not None, call.parts
        size = executable.host_bytes + graph_bytes(graph)
        version = Version(
            executable, device, types, captured, put, placed, returned, written, parts, required, weak, reason,
            size, WeakMethod(self._forget),
        )  # fmt: skip
        read_by(version, [*captures, *reads])
        return version

    def _reason(self, key: Key) -> str:
        """Why a new version was needed, in comparison with the last one."""
        if not (known := list(self._versions)):
            return "first call"
        if key in known:
            return "a tensor that it reads from around it was written to"
        old = known[-1]
        if old[0] != key[0]:
            return f"settings changed: {old[0]} -> {key[0]}"
        if old[1] != key[1] or len(old) != len(key) or len(old[2]) != len(key[2]):
            return "the structure of the arguments changed"
        pairs = [(f"static argument {a[0]}", a[1], b[1]) for a, b in zip(old[2], key[2], strict=True)]
        pairs += [(f"input {i}", a, b) for i, (a, b) in enumerate(zip(old[3:], key[3:], strict=True))]
        return "; ".join([f"{name}: {text_of(a)} -> {text_of(b)}" for name, a, b in pairs if a != b])

    # ---- looking inside

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """Kernels, buffers and saved values of the program for these arguments: a `Plan`, which prints as a table.

        Compiles where that hasn't been done, and runs nothing; raises what a call would.

        >>> plan = lg.compile(lambda x: lg.sum(lg.exp(x))).plan(lg.ones(8))
        >>> plan.device, len(plan.kernels)
        ('cpu', 1)
        """
        return self._expecting(args, kwargs).plan()

    def explain(self) -> str:
        """One paragraph per version: shapes and dtypes of its inputs, its device, why it was compiled, announcements.

        >>> double = lg.compile(lambda x: 2.0 * x)
        >>> double(lg.ones(3)), double(lg.ones(4))
        (Tensor([2., 2., 2.], dtype=float64), Tensor([2., 2., 2., 2.], dtype=float64))
        >>> [line for line in double.explain().splitlines() if line.startswith("version 1")]
        ['version 1 (float64[4]) on cpu: input 0: float64[3] -> float64[4]']
        """
        if not self._versions:
            return "not called yet: nothing is compiled"
        lines = []
        for i, version in enumerate(list(self._versions.values())):
            types = ", ".join(map(str, version.types)) or "no arguments"
            lines.append(f"version {i} ({types}) on {version.device.name}: {version.reason}")
            lines.extend(f"  {note}" for note in version.executable.explain())
        return "\n".join(lines)

    def text(self, stage: str = "graph", *args: Any, **kwargs: Any) -> str:
        """The program at a stage, for these arguments or the last call's.

        Stages are "graph" (with shapes and dtypes), "kernel", and what the device has, as "llvm". Raises ValueError for
        another stage, and without arguments before the first call.

        >>> lg.compile(lambda x: 2.0 * x).text("graph", lg.ones(3)).count("mul")
        1
        """
        if args or kwargs:
            return self._expecting(args, kwargs).text(stage)
        return self._called("text", "call it, or pass arguments").text(stage)

    def _expecting(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Executable:
        """The program for these arguments, which knows where they are."""
        version, _, inputs = self._version(args, kwargs)
        version.executable.expect([*inputs, *version.captured])
        return version.executable

    def capture(self, *args: Any, **kwargs: Any) -> Replay:
        """Run once and record: the `Replay` that this gives runs again at the least cost.

        Values may be others then, shapes and dtypes not. What the function writes to its arguments is written by
        replays, not by the capture. Raises what a call would.

        >>> double = lg.compile(lambda x: 2.0 * x).capture(lg.ones(2))
        >>> double.replay(lg.asarray([3.0, 4.0]))
        Tensor([6., 8.], dtype=float64)
        """
        version, leaves, inputs = self._version(args, kwargs)
        pattern = None if version.parts else pattern_of(args, kwargs, None)
        return Replay(self, version, version.executable.capture([*inputs, *version.captured]), leaves, pattern)

    def memory_stats(self) -> MemoryStats:
        """Bytes held by the last called version, and their peaks: a `MemoryStats`, all integers.

        Raises ValueError before the first call.

        >>> double = lg.compile(lambda x: 2.0 * x)
        >>> double(lg.ones(2)), double.memory_stats().program_stack_bytes
        (Tensor([2., 2.], dtype=float64), 0)
        """
        return self._called("memory_stats", "call it first").memory_stats()

    def _called(self, what: str, fix: str) -> Executable:
        if (last := self._last) is None:
            raise ValueError(explained(what, "a function that was called", "no call yet", fix))
        return last[1].executable

    @property
    def versions(self) -> int:
        """How many programs were compiled."""
        return len(self._versions)

    def clear(self) -> None:
        """Forget every compiled version: the next call traces again, whatever the shapes and dtypes.

        >>> double = lg.compile(lambda x: 2.0 * x)
        >>> double(lg.ones(2)), double.clear(), double.versions
        (Tensor([2., 2.], dtype=float64), None, 0)
        """
        self._versions.clear()
        self._last = self._latest = None

    def _forget(self, version: Version) -> None:
        """One of them, which other programs need the memory of."""
        last = self._last
        if last is not None and last[1] is version:
            self._last = self._latest = None
        for key in [key for key, other in list(self._versions.items()) if other is version]:
            self._versions.pop(key, None)


@overload
def compile(
    fun: Callable[..., Any],
    device: str | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Compiled: ...
@overload
def compile(
    fun: None = None,
    device: str | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Compiled]: ...
def compile(
    fun: Callable[..., Any] | None = None,
    device: str | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Compiled | Callable[[Callable[..., Any]], Compiled]:
    """Compile a function; also a decorator, with or without arguments, of methods as well.

    `static_argnums` (positions, negative ones from the end) and `static_argnames` name parameters whose values are part
    of the program: it is traced again for each. Such values are compared by type and value: numbers, strings, enum
    members, functions, None, dtypes, containers and dataclasses of these, and instances of classes that were given to
    `lg.register_static`.

    Arguments are tensors, NumPy arrays, Python numbers, and trees of them; a program is kept for each combination of
    structures, shapes, dtypes, static values, device and options. `device` is where it runs (the default device, or
    where its arguments are, unless given).

    Raises StaticArgumentError for an argument that can neither be an input nor be compared, TracedValueError where the
    function asks for elements while it is traced.

    >>> step = lg.compile(lg.value_and_grad(lambda x: lg.sum(x**2)))
    >>> step(lg.asarray([1.0, 2.0]))
    (Tensor(5., dtype=float64), Tensor([2., 4.], dtype=float64))
    """
    if fun is None:
        return lambda f: compile(f, device, static_argnums=static_argnums, static_argnames=static_argnames)
    check_function("compile", fun)
    return Compiled(fun, device, static_argnums, static_argnames)
