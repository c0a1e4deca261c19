"""Settings of the lazy layer: default dtype, default device, options of compilation.

A `Config` is immutable; `current()` is the one in force in this thread or asynchronous task, and `with` blocks
replace it. Whoever caches compiled code puts the parts it read into its key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from loopgrad.codegen.options import DEFAULT_OPTIONS, Options
from loopgrad.graph.errors import DTypeError, explained
from loopgrad.graph.types import DType, complex64, complex128, float64
from loopgrad.runtime.devices import get_device

PUBLIC: Final = "default_device default_dtype options set_default_dtype"
HOST_DEVICE: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Config:
    """`dtype` is what Python floats, and integers that meet a float function, become."""

    dtype: DType = float64
    device: str = HOST_DEVICE
    options: Options = DEFAULT_OPTIONS

    @property
    def complex_dtype(self) -> DType:
        return complex128 if self.dtype is float64 else complex64


_DEFAULT: Final = Config()
_current: Final[ContextVar[Config]] = ContextVar("loopgrad settings", default=_DEFAULT)


current: Final = _current.get
"""The settings in force: without a function around it in a third of the time, which each line of a script takes."""


def default_dtype() -> DType:
    """The dtype that Python floats become in this thread: float64, unless `set_default_dtype` chose another.

    >>> lg.default_dtype()
    float64
    """
    return _current.get().dtype


def set_default_dtype(dtype: DType) -> None:
    """Make `dtype` (a float dtype) what Python floats become, from now on in this thread or task.

    Raises DTypeError for anything else.

    >>> lg.set_default_dtype(lg.float32)
    >>> lg.zeros(2)
    Tensor([0., 0.], dtype=float32)
    >>> lg.set_default_dtype(lg.float64)
    """
    if not isinstance(dtype, DType) or not dtype.is_float:
        raise DTypeError(explained("set_default_dtype", "a float dtype such as lg.float32", repr(dtype), "pass one"))
    _current.set(replace(_current.get(), dtype=dtype))


@contextmanager
def _using(config: Config) -> Iterator[None]:
    previous = _current.get()
    _current.set(config)
    try:
        yield
    finally:
        _current.set(previous)


@contextmanager
def default_device(name: str) -> Iterator[None]:
    """Inside the block, tensors without a device of their own live and are computed on `name`.

    `lg.devices()` lists the names: "cpu", "interpreter", "cuda:0", ... Shapes and dtypes are the same on all of them.
    Raises ValueError for an unknown device, RuntimeError with the reason for one that can't be used.

    >>> with lg.default_device("interpreter"):
    ...     lg.ones(2).device
    'interpreter'
    """
    get_device(name)  # an unknown or unusable device says so here
    with _using(replace(_current.get(), device=name)):
        yield


@contextmanager
def options(**changes: Any) -> Iterator[Options]:
    """Inside the block, graphs are compiled with these options: the fields of `Options`, ints and bools.

    Raises TypeError for an unknown name or a value of another type.

    >>> with lg.options(check_indices=True) as chosen:
    ...     chosen.check_indices
    True
    """
    known = [f.name for f in fields(Options)]
    for name in changes:
        if name not in known:
            raise TypeError(explained("options", f"names among {', '.join(known)}", name, "check the spelling"))
    chosen = replace(_current.get().options, **changes)
    chosen.check()
    with _using(replace(_current.get(), options=chosen)):
        yield chosen
