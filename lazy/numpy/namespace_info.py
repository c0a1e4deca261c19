"""What the array API standard asks a namespace about itself (2025.12, "Inspection API").

Devices are those that can be used on this machine; dtypes are the standard's (tensors have float16 and bfloat16
besides).
"""

from __future__ import annotations

from typing import Any, Final

from loopgrad.graph.types import DTYPES, DType, int64
from loopgrad.lazy.numpy.shapes_and_dtypes import isdtype
from loopgrad.lazy.tensor.config import current
from loopgrad.runtime.devices import devices, get_device

PUBLIC: Final = "__array_namespace_info__=namespace_info"

_STANDARD: Final = tuple([d for d in DTYPES.values() if d.kind != "f" or d.bits > 16])
_MOST_AXES: Final = 64  # NumPy's, through which elements come and go


class NamespaceInfo:
    """What `__array_namespace_info__()` gives: four questions about this namespace."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """Whether masks as subscripts and shapes that depend on data are there, and how many axes at most.

        >>> lg.__array_namespace_info__().capabilities()["boolean indexing"]
        True
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": _MOST_AXES}

    def default_device(self) -> str:
        """The device on which new arrays are, unless told otherwise.

        >>> lg.__array_namespace_info__().default_device()
        'cpu'
        """
        return current().device

    def devices(self) -> tuple[str, ...]:
        """The devices that can be used here; `lg.devices()` says of the others why they can't.

        >>> "cpu" in lg.__array_namespace_info__().devices()
        True
        """
        return tuple([d.name for d in devices() if d.available])

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The dtypes of Python numbers and of indices, the same on all devices; ValueError for an unknown device.

        >>> lg.__array_namespace_info__().default_dtypes()["integral"]
        int64
        """
        _check(device)
        settings = current()
        return {
            "real floating": settings.dtype,
            "complex floating": settings.complex_dtype,
            "integral": int64,
            "indexing": int64,
        }

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes by name, of all kinds or of those that `kind` names, as in `isdtype`.

        Raises DTypeError for an unknown kind, ValueError for an unknown device.

        >>> list(lg.__array_namespace_info__().dtypes(kind="real floating"))
        ['float32', 'float64']
        """
        _check(device)
        return {d.name: d for d in _STANDARD if kind is None or isdtype(d, kind)}


def _check(device: str | None) -> None:
    if device is not None:
        get_device(device)


def namespace_info() -> NamespaceInfo:
    """What the array API standard's inspection asks: `capabilities default_device default_dtypes devices dtypes`.

    >>> lg.__array_namespace_info__().default_dtypes()["real floating"]
    float64
    """
    return NamespaceInfo()
