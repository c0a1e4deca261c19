"""The latest call of a compiled function, which the next one is held against first: most are like the one before.

    step(x, 0.1)      a float64[8] on the CPU, a float      the same again: their buffers, and the program runs

Kinds of arguments are compared one by one with what the program takes, without making a key of them. One tensor that is
to be computed first is; static arguments that are plain must be equal. A call in which anything is otherwise (other
settings, kinds or devices, arrays without axes, arguments that are written to) is looked at as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any, Final

import numpy as np

from loopgrad.lazy.tensor.config import Config, current
from loopgrad.lazy.tensor.core import PYTHON_SCALARS, TensorCore, TensorLeaf
from loopgrad.lazy.tensor.evaluation import buffer_of
from loopgrad.lazy.tensor.tree_patterns import TreePattern
from loopgrad.lazy.transforms.compiled_arguments import check_required
from loopgrad.lazy.transforms.compiled_version import Version
from loopgrad.lazy.transforms.static_arguments import StaticParameters
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import HOST_KINDS

_PLAIN: Final = frozenset({int, bool, str, NoneType})


class LatestCall:
    """`kinds`: of each argument its type, or the class of a Python number, and the type and dtype of NumPy's that the
    program has for it. `borrows`: whether arrays are read where they are, as inputs that `lend` makes of them, or
    buffers as they are. `pattern`: of trees; None where arguments are
    inputs themselves. `placed`: arguments that the user put on the device, of which there must be one, chose it.
    `static`: the parameters that are, and the arguments of the latest call."""

    __slots__ = ("_borrows", "_config", "_device", "_kinds", "_lend", "_pattern", "_placed", "_static", "version")

    def __init__(
        self, config: Config, placed: bool, version: Version, kinds: Sequence[Any], pattern: TreePattern | None,
        static: StaticCall | None,
    ) -> None:  # fmt: skip
        self.version = version
        self._static = static
        self._placed = placed
        self._pattern = pattern
        self._config = config
        self._device = version.device.name
        self._borrows = version.device.lent is not None and not version.returns_input
        self._lend = None if version.device.kind in HOST_KINDS else version.device.lent
        types = version.types
        self._kinds = [
            (kind if kind in PYTHON_SCALARS else type, type, type.dtype.np, kind == (type, True))
            for kind, type in zip(kinds, types, strict=True)
        ]

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Buffer] | None:
        """The program's inputs for arguments of the same kinds; None where more is to be looked at."""
        kinds, device, version, pattern = self._kinds, self._device, self.version, self._pattern
        if self._static is not None:
            if (others := _without_static(self._static, args, kwargs)) is None:
                return None
            args, kwargs = others
        leaves: Sequence[Any] | None = args
        if pattern is not None:
            leaves = pattern.leaves(args, kwargs)
        elif kwargs:
            return None
        if leaves is None or len(leaves) != len(kinds) or self._config is not current() or version.stale:
            return None
        found: list[Buffer] = []
        placed, waited, lend = False, False, self._lend
        for x, (kind, type_, dtype, weak) in zip(leaves, kinds):  # noqa: B905  # checked, and half the time
            if isinstance(x, TensorCore):
                leaf = x._value
                if x._weak is not weak:
                    return None
                if type(leaf) is not TensorLeaf:
                    if waited or leaf.type != type_ or leaf.scope is not None:
                        return None  # several are computed together
                    waited = True
                    del leaf  # whoever refers to it counts
                    buffer_of(x)
                    if type(leaf := x._value) is not TensorLeaf:
                        return None
                if leaf.committed:
                    placed = True
                if leaf.type is not type_:
                    if kind is not type_ or leaf.type != type_:
                        return None
                    leaf.type = type_  # equal: the next call sees it at once
                if not type_.shape and (x._view is not None or kind is not type_):
                    return None
                buffer = leaf.buffer
                if buffer.device != device:
                    return None
            elif type(x) is kind:
                if not self._borrows:
                    return None
                array = np.array(x, dtype)
                buffer = Buffer(array, device, type_) if lend is None else lend(array, type_)
            elif type(x) is np.ndarray:
                if x.dtype is not dtype or x.shape != type_.shape or not x.shape or kind is not type_:
                    return None
                if not self._borrows or not x.flags.carray:
                    return None
                buffer = Buffer(x, device, type_) if lend is None else lend(x, type_)
            else:
                return None
            found.append(buffer)
        if placed is not self._placed:
            return None
        if version.required:
            check_required(leaves, version.required)
        version.used = True
        return found if not version.captured else [*found, *version.captured]


StaticCall = tuple[StaticParameters, dict[int | str, Any]]


def _without_static(
    latest: StaticCall, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments that aren't static, where these are as they were."""
    parameters, expected = latest
    args, kwargs, static = parameters.split(args, kwargs)
    if len(static) != len(expected):
        return None
    for name, x in expected.items():
        other = static.get(name, latest)
        if type(other) is not type(x) or other != x:
            return None
    return args, kwargs


def latest_call(
    key: Sequence[Any], version: Version, pattern: TreePattern | None, static: StaticCall | None
) -> LatestCall | None:
    """Of the key that `Compiled` keeps a version by; None where calls are more than looking at kinds."""
    settings, structure, parts, *kinds = key
    config, place = settings if isinstance(settings, tuple) else (settings, None)
    if not isinstance(config, Config) or place not in (None, version.device.name):
        return None
    if version.written or (parts and static is None):
        return None
    if static is not None and not _PLAIN.issuperset(map(type, static[1].values())):
        return None
    if structure is not None and pattern is None:
        return None
    known = zip(kinds, version.types, strict=True)
    if any(kind not in PYTHON_SCALARS and kind not in (type_, (type_, True)) for kind, type_ in known):
        return None
    return LatestCall(config, place is not None, version, kinds, pattern, static)
