"""Dataclasses <-> JSON-able data, by the names and types of their fields. The disk cache holds programs so.

    frozen dataclass         {field: ...}; where a field may be one of several: {"class": name, field: ...}
    NamedTuple, tuple, list  [...]
    dict                     [[key, value], ...]
    frozenset                [...], sorted
    DType                    its name
    int, bool, str, None     themselves
    float                    itself; where it isn't finite its 64 bits as 16 hexadecimal digits
    object                   None, a number, a text, or a tuple of such

`decode(type, encode(type, x)) == x`, with the same bits. Both are strict: what isn't of the type is a CodecError that
says where it is, so damaged data gives no program. A type needs nothing but its annotations.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import repeat
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Final

from loopgrad.graph.types import DTYPES, DType

TAG: Final = "class"
BITS: Final = struct.Struct(">d")


class CodecError(ValueError):
    """`path`: fields and positions that lead to what is wrong."""

    def __init__(self, expected: str, got: object) -> None:
        self.expected, self.got = expected, got
        self.path: list[str] = []

    def __str__(self) -> str:
        place = "".join(reversed(self.path)).lstrip(".") or "the whole"
        return f"{place}: expected {self.expected}, got {repr(self.got)[:80]}"


def encode(kind: Any, value: Any) -> Any:
    """JSON-able data; CodecError where `value` holds what `kind` doesn't allow."""
    return _codec(kind).encode(value)


def decode(kind: Any, data: Any) -> Any:
    """The value; CodecError where `data` isn't that of a `kind`."""
    return _codec(kind).decode(data)


@dataclass(frozen=True, slots=True)
class _Codec:
    """`value`, `data`: the classes of what is encoded and of what it becomes; a union tells its members by them. Data
    of the classes `same` is the value. `decode` of a dataclass may be told how many fields there are beside its own."""

    value: type
    data: tuple[type, ...]
    encode: Callable[[Any], Any]
    decode: Callable[..., Any]
    same: frozenset[type] = frozenset()


@cache
def _codec(kind: Any) -> _Codec:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (UnionType, typing.Union):
        return _union(arguments)
    if origin is tuple:
        return _sequence(arguments[0]) if arguments[1:] == (...,) else _row(tuple, arguments)
    if origin is frozenset:
        return _set(arguments[0])
    if origin is dict:
        return _mapping(*arguments)
    if kind in _LEAVES:
        return _LEAVES[kind]
    if isinstance(kind, type) and is_dataclass(kind):
        return _record(kind)
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _row(kind, tuple(typing.get_type_hints(kind).values()))
    raise TypeError(f"expected a type that can be written as data, got {kind!r}")


# ---- leaves


def _plain(kind: type) -> _Codec:
    def same(value: Any) -> Any:
        if type(value) is not kind:
            raise CodecError(kind.__name__, value)
        return value

    return _Codec(kind, (kind,), same, same, frozenset([kind]))


def _encode_float(value: Any) -> Any:
    if type(value) is not float:
        raise CodecError("float", value)
    return value if isfinite(value) else BITS.pack(value).hex()


def _decode_float(data: Any) -> float:
    if type(data) is float and isfinite(data):
        return data
    if type(data) is str and len(data) == 2 * BITS.size:
        try:
            (value,) = BITS.unpack(bytes.fromhex(data))
        except ValueError:
            raise CodecError("float", data) from None
        return float(value)
    raise CodecError("float", data)


def _encode_dtype(value: Any) -> str:
    if type(value) is not DType:
        raise CodecError("DType", value)
    return value.name


def _decode_dtype(data: Any) -> DType:
    dtype = DTYPES.get(data) if type(data) is str else None
    if dtype is None:
        raise CodecError("the name of a dtype", data)
    return dtype


def _encode_object(value: Any) -> Any:
    if type(value) is tuple:
        return _each(repeat(_encode_object), value)
    if value is None or type(value) in (bool, int, str) or (type(value) is float and isfinite(value)):
        return value
    raise CodecError("None, a finite number, a text or a tuple of such", value)


def _decode_object(data: Any) -> Any:
    return tuple(_each(repeat(_decode_object), data)) if type(data) is list else _encode_object(data)


_LEAVES: Final[dict[Any, _Codec]] = {
    **{kind: _plain(kind) for kind in (int, bool, str, NoneType)},
    float: _Codec(float, (float, str), _encode_float, _decode_float),
    DType: _Codec(DType, (str,), _encode_dtype, _decode_dtype),
    object: _Codec(object, (object,), _encode_object, _decode_object),
}


# ---- what holds others; `decode` looks for the place of an error only when there is one


def _checked(kind: type, value: Any, length: int | None = None) -> Any:
    if type(value) is not kind or (length is not None and len(typing.cast(typing.Sized, value)) != length):
        raise CodecError(kind.__name__ if length is None else f"{kind.__name__} of {length}", value)
    return value


def _each(functions: Iterable[Callable[[Any], Any]], items: Iterable[Any]) -> list[Any]:
    done: list[Any] = []
    try:
        for function, item in zip(functions, items, strict=False):
            done.append(function(item))
    except CodecError as error:
        error.path.append(f"[{len(done)}]")
        raise
    return done


def _part(name: str, function: Callable[[Any], Any], item: Any) -> Any:
    try:
        return function(item)
    except CodecError as error:
        error.path.append(f".{name}")
        raise


def _sequence(member: Any) -> _Codec:
    inner = _codec(member)
    one = inner.decode

    def encode(value: Any) -> Any:
        return _each(repeat(inner.encode), _checked(tuple, value))

    def decode(data: Any) -> Any:
        if {*map(type, _checked(list, data))} <= inner.same:
            return tuple(data)
        try:
            return tuple([one(item) for item in data])
        except CodecError:
            return tuple(_each(repeat(one), data))

    return _Codec(tuple, (list,), encode, decode)


def _row(kind: type, members: Sequence[Any]) -> _Codec:
    inner = [_codec(member) for member in members]
    encoders, decoders = [codec.encode for codec in inner], [codec.decode for codec in inner]
    make = tuple if kind is tuple else kind._make  # type: ignore[attr-defined]

    def encode(value: Any) -> Any:
        return _each(encoders, _checked(kind, value, len(inner)))

    def decode(data: Any) -> Any:
        return make(_each(decoders, _checked(list, data, len(inner))))

    return _Codec(kind, (list,), encode, decode)


def _set(member: Any) -> _Codec:
    inner = _sequence(member)

    def encode(value: Any) -> Any:
        return inner.encode(tuple(sorted(_checked(frozenset, value))))

    return _Codec(frozenset, (list,), encode, lambda data: frozenset(inner.decode(data)))


def _mapping(key: Any, value: Any) -> _Codec:
    inner = _sequence(tuple[key, value])

    def encode(mapping: Any) -> Any:
        return inner.encode(tuple(_checked(dict, mapping).items()))

    return _Codec(dict, (list,), encode, lambda data: dict(inner.decode(data)))


def _record(kind: type) -> _Codec:
    """Field types are looked up at the first use: classes may refer to one another."""
    parts: list[tuple[str, frozenset[type], Callable[[Any], Any]]] = []
    encoders: dict[str, Callable[[Any], Any]] = {}

    def prepare() -> None:
        hints = typing.get_type_hints(kind)
        for name in [field.name for field in fields(kind)]:
            codec = _codec(hints[name])
            parts.append((name, codec.same, codec.decode))
            encoders[name] = codec.encode

    def encode(value: Any) -> Any:
        if not parts:
            prepare()
        _checked(kind, value)
        return {name: _part(name, one, getattr(value, name)) for name, one in encoders.items()}

    def decode(data: Any, more: int = 0) -> Any:
        if not parts:
            prepare()
        if type(data) is not dict or len(data) != len(parts) + more:
            raise CodecError(f"the {len(parts)} fields of {kind.__name__}", data)
        try:
            return kind(*[x if type(x := data[name]) in same else one(x) for name, same, one in parts])
        except KeyError as missing:
            raise CodecError(f"the field {missing.args[0]} of {kind.__name__}", data) from None
        except CodecError:
            return kind(*[_part(name, one, data[name]) for name, _, one in parts])

    return _Codec(kind, (dict,), encode, decode)


def _union(members: Sequence[Any]) -> _Codec:
    inner = [_codec(member) for member in members]
    records = {codec.value.__name__: codec for codec in inner if codec.data == (dict,)}
    by_value = {codec.value: codec for codec in inner}
    by_data = {data: codec for codec in inner for data in codec.data}
    if len(by_value) < len(inner) or len(by_data) < sum([len(c.data) for c in inner]) - max(len(records) - 1, 0):
        raise TypeError(f"expected types that data can tell apart, got {members!r}")
    expected = " or ".join([codec.value.__name__ for codec in inner])

    def member(found: dict[Any, _Codec], key: Any, whole: Any) -> _Codec:
        if key not in found:
            raise CodecError(expected, whole)
        return found[key]

    def encode(value: Any) -> Any:
        codec = member(by_value, type(value), value)
        data = codec.encode(value)
        return {TAG: codec.value.__name__, **data} if len(records) > 1 and codec.data == (dict,) else data

    def decode(data: Any) -> Any:
        one = decoders.get(type(data))
        if one is None:
            raise CodecError(expected, data)
        return one(data)

    def decode_tagged(data: dict[str, Any]) -> Any:
        name = data.get(TAG)
        return member(records, name if type(name) is str else "", data).decode(data, 1)

    decoders = {data: codec.decode for data, codec in by_data.items()}
    if len(records) > 1:
        decoders[dict] = decode_tagged
    return _Codec(object, tuple(by_data), encode, decode, frozenset().union(*[codec.same for codec in inner]))
