"""Dataclasses <-> JSON-able data, by the names and types of their fields. The disk cache holds programs so.

    frozen dataclass         {field: ..., ...} in order; {"class": its name, field: ..., ...} where it is one of several
    NamedTuple, tuple, list  [...]
    dict                     [[key, value], ...]
    frozenset                [...], sorted
    DType                    its name
    int, bool, str, None     themselves
    float                    itself; where it isn't finite its 64 bits as 16 hexadecimal digits
    object                   None, a number, a text, or a tuple of such

`decode(type, encode(type, x)) == x`, with the same bits. Both are strict: what isn't of the type is a CodecError that
says where it is, so damaged data gives no program. A type needs nothing but its annotations.

Decoding is on the way of every program that a second process takes from the cache. So what is to be done to a row is
found out once for each sequence of classes that its items have: most are the value as they are.
"""

from __future__ import annotations

import builtins
import struct
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import repeat
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Final

from loopgrad.graph.types import DTYPES, DType

TAG: Final = "class"
BITS: Final = struct.Struct(">d")

Change = Callable[[Any], Any]


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
    codec = _codec(kind)
    change = codec.change(data)
    return data if change is None else change(data)


@dataclass(frozen=True, slots=True)
class _Codec:
    """`value`: the class of what is encoded; a union tells its members by it, and by the class of data. `changes`: from
    that class to what makes the value of data; None where data is the value. `tagged`: the same for a dataclass that is
    written with its name."""

    value: type
    expected: str
    encode: Change
    changes: Mapping[type, Change | None]
    tagged: Change | None = None

    def change(self, data: Any) -> Change | None:
        try:
            return self.changes[type(data)]
        except KeyError:
            raise CodecError(self.expected, data) from None


@cache
def _codec(kind: Any) -> _Codec:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (UnionType, typing.Union):
        return _union(arguments)
    if origin is tuple:
        return _sequence(arguments[0]) if arguments[1:] == (...,) else _tuple(tuple, lambda: arguments, len(arguments))
    if origin is frozenset:
        return _set(arguments[0])
    if origin is dict:
        return _mapping(*arguments)
    if kind in _LEAVES:
        return _LEAVES[kind]
    if isinstance(kind, type) and is_dataclass(kind):
        return _record(kind)
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
        return _tuple(kind, lambda: [_annotations(kind)[name] for name in names], len(names))
    raise TypeError(f"expected a type that can be written as data, got {kind!r}")


def _annotations(kind: type) -> dict[str, Any]:
    """As typing.get_type_hints, which evaluates each `int` again: that took longer than to decode a program."""
    given = [(base, vars(base).get("__annotations__", {})) for base in reversed(kind.__mro__)]
    return {name: _meant(written, base.__module__) for base, found in given for name, written in found.items()}


@cache
def _meant(written: Any, module: str) -> Any:
    if isinstance(written, typing.ForwardRef):  # of a NamedTuple
        written = written.__forward_arg__
    if not isinstance(written, str):
        return written
    names = vars(sys.modules[module])
    plain = names.get(written, vars(builtins).get(written))
    return eval(written, names) if plain is None else plain


# ---- leaves


def _plain(kind: type) -> _Codec:
    def same(value: Any) -> Any:
        if type(value) is not kind:
            raise CodecError(kind.__name__, value)
        return value

    return _Codec(kind, kind.__name__, same, {kind: None})


def _encode_float(value: Any) -> Any:
    if type(value) is not float:
        raise CodecError("float", value)
    return value if isfinite(value) else BITS.pack(value).hex()


def _finite(data: float) -> float:
    if not isfinite(data):
        raise CodecError("float", data)
    return data


def _from_bits(data: str) -> float:
    try:
        (value,) = BITS.unpack(bytes.fromhex(data) if len(data) == 2 * BITS.size else b"")
    except (ValueError, struct.error):
        raise CodecError("float", data) from None
    return float(value)


def _encode_dtype(value: Any) -> str:
    if type(value) is not DType:
        raise CodecError("DType", value)
    return value.name


def _decode_dtype(data: str) -> DType:
    dtype = DTYPES.get(data)
    if dtype is None:
        raise CodecError("the name of a dtype", data)
    return dtype


_OBJECT: Final = "None, a finite number, a text or a tuple of such"


def _encode_object(value: Any) -> Any:
    if type(value) is tuple:
        return _each(repeat(_encode_object), value)
    if value is None or type(value) in (bool, int, str) or (type(value) is float and isfinite(value)):
        return value
    raise CodecError(_OBJECT, value)


def _decode_object(data: Any) -> Any:
    return tuple(_each(repeat(_decode_object), data)) if type(data) is list else _encode_object(data)


_LEAVES: Final[dict[Any, _Codec]] = {
    **{kind: _plain(kind) for kind in (int, bool, str, NoneType)},
    float: _Codec(float, "float", _encode_float, {float: _finite, str: _from_bits}),
    DType: _Codec(DType, "the name of a dtype", _encode_dtype, {str: _decode_dtype}),
    object: _Codec(
        object, _OBJECT, _encode_object,
        {**dict.fromkeys((NoneType, bool, int, str)), float: _encode_object, list: _decode_object},
    ),
}  # fmt: skip


# ---- what holds others


def _checked(kind: type, value: Any, length: int | None = None) -> Any:
    if type(value) is not kind or (length is not None and len(typing.cast(typing.Sized, value)) != length):
        raise CodecError(kind.__name__ if length is None else f"{kind.__name__} of {length}", value)
    return value


def _each(functions: Iterable[Change], items: Iterable[Any]) -> list[Any]:
    done: list[Any] = []
    try:
        for function, item in zip(functions, items, strict=False):
            done.append(function(item))
    except CodecError as error:
        error.path.append(f"[{len(done)}]")
        raise
    return done


def _sequence(member: Any) -> _Codec:
    inner = _codec(member)
    changes, plain = inner.changes, {kind for kind, change in inner.changes.items() if change is None}

    def encode(value: Any) -> Any:
        return _each(repeat(inner.encode), _checked(tuple, value))

    def one(item: Any) -> Any:
        change = inner.change(item)
        return item if change is None else change(item)

    def decode(data: list[Any]) -> Any:
        if not data:
            return ()
        if plain.issuperset(map(type, data)):
            return tuple(data)
        try:
            return tuple([item if (c := changes[type(item)]) is None else c(item) for item in data])
        except (KeyError, CodecError):  # the place is looked for only where there is an error
            return tuple(_each(repeat(one), data))

    return _Codec(tuple, "list", encode, {list: decode})


def _row(
    make: Callable[..., Any], places: Callable[[int], str], members: Callable[[], list[_Codec]]
) -> tuple[Callable[[], list[_Codec]], Change]:
    """Items of one class each, in order, as codecs and as what makes the value of a list of them (which is used up).
    `members` are looked up at the first use: classes may refer to one another. `places`: how an error names an item."""
    known: list[_Codec] = []
    plans: dict[tuple[type, ...], list[tuple[int, Change]]] = {}  # the items that aren't the value yet

    def codecs() -> list[_Codec]:
        if not known:
            known[:] = members()  # other threads may do so at the same time
        return known

    def planned(items: list[Any]) -> list[tuple[int, Change]]:
        found = []
        for i, (codec, item) in enumerate(zip(codecs(), items, strict=True)):
            try:
                change = codec.change(item)
            except CodecError as error:
                error.path.append(places(i))
                raise
            if change is not None:
                found.append((i, change))
        return found

    def value(items: list[Any]) -> Any:
        kinds = tuple(map(type, items))
        plan = plans.get(kinds)
        if plan is None:
            plan = plans[kinds] = planned(items)
        i = 0
        try:
            for i, change in plan:
                items[i] = change(items[i])
        except CodecError as error:
            error.path.append(places(i))
            raise
        return make(*items)

    return codecs, value


def _tuple(kind: type, members: Callable[[], Sequence[Any]], length: int) -> _Codec:
    make = kind if kind is not tuple else lambda *items: items
    codecs, read = _row(make, lambda i: f"[{i}]", lambda: [_codec(member) for member in members()])

    def encode(value: Any) -> Any:
        return _each([codec.encode for codec in codecs()], _checked(kind, value, length))

    def decode(data: list[Any]) -> Any:
        if len(data) != length:
            raise CodecError(f"list of {length}", data)
        return read(data.copy())

    return _Codec(kind, "list", encode, {list: decode})


def _set(member: Any) -> _Codec:
    inner = _codec(tuple[member, ...])

    def encode(value: Any) -> Any:
        return inner.encode(tuple(sorted(_checked(frozenset, value))))

    read = inner.changes[list]
    assert read is not None
    return _Codec(frozenset, "list", encode, {list: lambda data: frozenset(read(data))})


def _mapping(key: Any, value: Any) -> _Codec:
    inner = _codec(tuple[tuple[key, value], ...])

    def encode(mapping: Any) -> Any:
        return inner.encode(tuple(_checked(dict, mapping).items()))

    read = inner.changes[list]
    assert read is not None
    return _Codec(dict, "list", encode, {list: lambda data: dict(read(data))})


def _record(kind: type) -> _Codec:
    names = tuple([field.name for field in fields(kind)])
    tagged = (TAG, *names)
    expected = f"the {len(names)} fields of {kind.__name__}"

    def wrong(data: dict[str, Any], wanted: Sequence[str]) -> CodecError:
        missing = [name for name in wanted if name not in data]
        one = f"the field {missing[0]} of {kind.__name__}" if missing and len(data) == len(wanted) else ""
        return CodecError(one or f"{expected} in their order", data)

    def members() -> list[_Codec]:
        hints = _annotations(kind)
        return [_codec(hints[name]) for name in names]

    codecs, read = _row(kind, lambda i: f".{names[i]}", members)

    def encode(value: Any) -> Any:
        _checked(kind, value)
        done = {}
        try:
            for name, codec in zip(names, codecs(), strict=True):
                done[name] = codec.encode(getattr(value, name))
        except CodecError as error:
            error.path.append(f".{names[len(done)]}")
            raise
        return done

    def decode(data: dict[str, Any]) -> Any:
        if tuple(data) != names:
            raise wrong(data, names)
        return read([*data.values()])

    def decode_tagged(data: dict[str, Any]) -> Any:
        if tuple(data) != tagged:
            raise wrong(data, tagged)
        _, *items = data.values()
        return read(items)

    return _Codec(kind, expected, encode, {dict: decode}, decode_tagged)


def _union(members: Sequence[Any]) -> _Codec:
    inner = [_codec(member) for member in members]
    records = {codec.value.__name__: codec.tagged for codec in inner if codec.tagged is not None}
    by_value = {codec.value: codec for codec in inner}
    changes = {kind: change for codec in inner for kind, change in codec.changes.items()}
    if len(by_value) < len(inner) or len(changes) < sum([len(c.changes) for c in inner]) - max(len(records) - 1, 0):
        raise TypeError(f"expected types that data can tell apart, got {members!r}")
    expected = " or ".join([codec.value.__name__ for codec in inner])

    def encode(value: Any) -> Any:
        codec = by_value.get(type(value))
        if codec is None:
            raise CodecError(expected, value)
        data = codec.encode(value)
        return {TAG: codec.value.__name__, **data} if len(records) > 1 and codec.tagged is not None else data

    def decode_tagged(data: dict[str, Any]) -> Any:
        name = data.get(TAG)
        if type(name) is not str or name not in records:
            raise CodecError(expected, data)
        return records[name](data)

    if len(records) > 1:
        changes[dict] = decode_tagged
    return _Codec(object, expected, encode, changes)
