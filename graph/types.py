"""Types of graph values: dtypes, tensor types and stack types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import copysign, frexp, isnan, prod
from typing import Any, Final

import numpy
import numpy as np

PUBLIC: Final = (
    "bfloat16 bool_ bool=bool_ complex128 complex64 DType float16 float32 float64 int16 int32 int64 int8 uint16 uint32 "
    "uint64 uint8 half=float16 single=float32 double=float64 csingle=complex64 cdouble=complex128 byte=int8 "
    "ubyte=uint8 short=int16 ushort=uint16 intc=int32 uintc=uint32 int_=int64 intp=int64 long=int64 longlong=int64 "
    "uint=uint64 uintp=uint64 ulong=uint64 ulonglong=uint64"
)


class DType:
    """An element type; compare with ``is``. ``kind`` is one of ``b i u f c`` as in NumPy.

    Equal to NumPy's dtype, its scalar type and their name as well; NumPy takes it where it takes a dtype.
    """

    __slots__ = ("_hash", "_np", "bits", "kind", "name")

    def __init__(self, name: str, kind: str, bits: int) -> None:
        self.name = name
        self.kind = kind
        self.bits = bits
        self._np: np.dtype[Any] | None = None
        self._hash: int | None = None

    def __hash__(self) -> int:
        """That of NumPy's dtype, which is equal."""
        if self._hash is None:
            self._hash = hash(self.np)
        return self._hash

    @property
    def np(self) -> np.dtype[Any]:
        """The NumPy dtype (from ml_dtypes where NumPy has none)."""
        if self._np is None:
            if self.name == "bfloat16":
                import ml_dtypes  # late: only bfloat16 needs it

                self._np = np.dtype(ml_dtypes.bfloat16)
            else:
                self._np = np.dtype(self.name)
        return self._np

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """As `np`: by this attribute NumPy's functions take a DType for a dtype."""
        return self.np

    @property
    def type(self) -> Any:
        """The class of NumPy's scalars of this dtype: libraries that ask NumPy's dtypes for it ask these."""
        return self.np.type

    @property
    def char(self) -> str:
        """NumPy's letter for this dtype, as `type` for libraries that ask for it."""
        return self.np.char

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType) or other is None:
            return self is other
        if not isinstance(other, np.dtype | type | str):
            return NotImplemented
        try:
            return self.np == np.dtype(other)
        except Exception:  # a text that is no dtype's name: NumPy parses it, and raises what it likes
            return False

    def __call__(self, value: Any = 0, /) -> Any:
        """`value` as NumPy's scalar of this dtype (an array for sequences), which keeps its dtype beside tensors; of a
        tensor `value.astype`."""
        if hasattr(value, "astype") and not isinstance(value, np.ndarray | np.generic):
            return value.astype(self)
        if self.name == "bfloat16":  # ml_dtypes' class takes no sequences, and text ends the process
            return np.asarray(value, np.float64).astype(self.np)[()]
        return self.np.type(value)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory (a bool takes one)."""
        return max(self.bits // 8, 1)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def part(self) -> DType:
        """The dtype of the real and the imaginary part of a complex number; of a real one its own."""
        if self.kind != "c":
            return self
        return float32 if self.bits == 64 else float64

    def pattern(self, value: complex) -> int:
        """The bits of an element as one integer: so generated code holds elements that it only moves."""
        return int.from_bytes(np.asarray(value, self.np).tobytes(), "little")

    @property
    def differentiable(self) -> bool:
        """Whether a cotangent can flow through values of this dtype."""
        return self.kind in "fc"

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return (dtype_named, (self.name,))


bool_: Final = DType("bool", "b", 1)
int8: Final = DType("int8", "i", 8)
int16: Final = DType("int16", "i", 16)
int32: Final = DType("int32", "i", 32)
int64: Final = DType("int64", "i", 64)
uint8: Final = DType("uint8", "u", 8)
uint16: Final = DType("uint16", "u", 16)
uint32: Final = DType("uint32", "u", 32)
uint64: Final = DType("uint64", "u", 64)
float16: Final = DType("float16", "f", 16)
bfloat16: Final = DType("bfloat16", "f", 16)
float32: Final = DType("float32", "f", 32)
float64: Final = DType("float64", "f", 64)
complex64: Final = DType("complex64", "c", 64)
complex128: Final = DType("complex128", "c", 128)

DTYPES: Final[dict[str, DType]] = {
    d.name: d
    for d in (
        bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
        float16, bfloat16, float32, float64, complex64, complex128,
    )
}  # fmt: skip


def complex_dtype_of(part: DType) -> DType:
    """The complex dtype whose parts are float32 or float64."""
    return complex64 if part is float32 else complex128


def sum_dtype(dtype: DType) -> DType:
    """What elements are added up in: adding up takes more digits than 16-bit floats have."""
    return float32 if dtype.is_float and dtype.bits == 16 else dtype


def scalar_text(value: Any) -> str:
    """A Python scalar as text that differs where bits of it differ: Python writes NaN without its sign."""
    if isinstance(value, float) and value == value:
        return repr(value)
    if isinstance(value, complex):
        return f"complex({scalar_text(value.real)},{scalar_text(value.imag)})"
    if isinstance(value, float) and isnan(value) and copysign(1.0, value) < 0:
        return "-nan"
    return repr(value)


def integer(value: Any) -> int:
    """A number as an int; what is one already (codegen.extents has ints of its own) stays as it is."""
    return +value if isinstance(value, int) else int(value)


def floating(value: Any) -> float:
    """A number as a float; what is one already (codegen.extents has floats of its own) stays as it is."""
    return value if isinstance(value, float) and not isinstance(value, np.floating) else float(value)


def rounded(value: float, bits: int) -> float:
    """A number rounded to a float of 32 or 64 bits; one of codegen.extents does so itself."""
    own = None if type(value) is float else getattr(value, "rounded", None)
    if own is not None:
        return own(bits)  # type: ignore[no-any-return]
    with np.errstate(over="ignore"):  # a number beyond the type's range is infinity
        return float(np.float32(value)) if bits == 32 else float(value)


def power_of_two(value: float) -> bool:
    """Whether a number's size is a power of two; one of codegen.extents says so itself."""
    own = getattr(value, "power_of_two", None)
    return bool(abs(frexp(value)[0]) == 0.5 if own is None else own())


def dtype_named(name: str) -> DType:
    """The dtype of that name; KeyError where there is none."""
    return DTYPES[name]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense array: static shape and dtype."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def part(self) -> TensorType:
        """The type of the real and the imaginary part; itself where the elements are real."""
        return TensorType(self.shape, self.dtype.part) if self.dtype.kind == "c" else self

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class StackType:
    """A last-in first-out store of tensors of one type, threaded through the graph as a value."""

    element: TensorType

    def __str__(self) -> str:
        return f"stack<{self.element}>"
