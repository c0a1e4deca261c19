"""Structural keys: two graphs with equal keys compute the same thing from equal inputs.

Enters: a Graph. Leaves: a 16-byte blake2b digest over operations, attributes, input types and
topology, regions included. Result types follow from those, so they aren't read. Names and locations
don't change what is computed; they count only where asked for, and then only on operations that can
put them into an error message of the compiled program. Each list is preceded by its length or followed by a word
that is none of its members, so no encoding begins as another one does: different graphs are different words.

`abstract_key` also blanks out the numbers that `graph.lift` can make inputs, so that graphs which differ in a
learning rate, a trip count or in where a slice starts share a key. Those of closed calls stay.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final
from weakref import WeakKeyDictionary

from loopgrad.graph.closed_calls import is_closed_call
from loopgrad.graph.lift import NumberPlace, slots, without_slots
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import INDEXING, REGIONS, STACKS
from loopgrad.graph.regions import Region
from loopgrad.graph.types import StackType, TensorType, scalar_text

RAISING: Final = REGIONS | STACKS | INDEXING
"""Operations whose location or name can appear in an error of a compiled program."""

_END: Final = -1
_INTEGERS: Final = frozenset({int})
_KEYS: Final[tuple[WeakKeyDictionary[Graph, bytes], WeakKeyDictionary[Graph, bytes]]] = (
    WeakKeyDictionary(), WeakKeyDictionary(),
)  # fmt: skip


def key(graph: Graph, with_locations: bool = True) -> bytes:
    """The digest of `graph`; `with_locations`: also of the lines and names its errors would show. Remembered: regions
    inside each other are asked for once for each of them."""
    known = _KEYS[with_locations]
    digest = known.get(graph)
    if digest is None:
        encoder = _Encoder(with_locations, abstract=False)
        encoder.graph(graph)
        digest = known[graph] = encoder.digest()
    return digest


def abstract_key(
    graph: Graph, with_locations: bool = True
) -> tuple[bytes, tuple[float | int, ...], tuple[NumberPlace, ...]]:
    """The digest with what can be lifted blanked out, its values, and where they are, in order of visit."""
    encoder = _Encoder(with_locations, abstract=True)
    encoder.graph(graph)
    return encoder.digest(), tuple([slot.value for slot in encoder.slots]), tuple(encoder.slots)


class _Encoder:
    """Writes a graph as integers; strings, attributes and types are numbered at first sight."""

    def __init__(self, with_locations: bool, abstract: bool) -> None:
        self.with_locations = with_locations
        self.abstract = abstract
        self.words: list[int] = []
        self.strings: dict[str, int] = {}
        self.slots: list[NumberPlace] = []

    def digest(self) -> bytes:
        state = blake2b(array("q", [len(self.words), *self.words]).tobytes(), digest_size=16)
        state.update("\0".join(self.strings).encode(errors="surrogatepass"))
        return state.digest()

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def graph(self, graph: Graph) -> None:
        words, strings = self.words, self.strings
        numbers: dict[Value, int] = {}
        words.append(len(graph.inputs))
        for value in graph.inputs:
            numbers[value] = len(numbers)
            words.append(self.string(str(value.type)))
        for node in graph.nodes:
            op = node.op
            words.append(strings.setdefault(op, len(strings)))
            for operand in node.operands:
                words.append(numbers[operand])
            words.append(_END)
            words.append(self.attrs(node) if node.attrs else _END)
            closed = bool(node.regions) and is_closed_call(node)
            regions = Region.of(node).running if self.abstract and node.regions else node.regions
            words.append(len(regions))
            for region in regions:
                if self.abstract and not closed:
                    self.graph(region)
                else:
                    words.append(self.string(key(region, self.with_locations).hex()))
            if self.with_locations and op in RAISING and not closed:
                words.append(self.string(str(node.loc)))
            for result in node.results:
                numbers[result] = len(numbers)
        words.append(_END)
        words.append(len(graph.outputs))
        words.extend([numbers[v] for v in graph.outputs])

    def attrs(self, node: Node) -> int:
        attrs = node.attrs
        if self.abstract:
            found = slots(node)
            if found:
                self.slots += found
                attrs = without_slots(node, found)
        return self.string(encode_attrs(attrs, self.with_locations))


def encode_attrs(attrs: Mapping[str, Any], with_name: bool = True) -> str:
    """Attributes as text; equal texts mean equal attributes (0.0 and -0.0, 1 and True differ)."""
    if len(attrs) == 1:
        ((name, value),) = attrs.items()
        return f"{name}={encode_attr(value)}" if with_name or name != "name" else ""
    parts = [f"{name}={encode_attr(attrs[name])}" for name in sorted(attrs) if with_name or name != "name"]
    return ";".join(parts)


def encode_attr(value: Any) -> str:
    """One attribute's value, as above."""
    kind = type(value)
    if kind is int or kind is bool or kind is str:
        return repr(value)
    if kind is tuple:
        each = repr if _INTEGERS.issuperset(map(type, value)) else encode_attr
        return "(" + ",".join(map(each, value)) + ")"
    if kind is TensorType or kind is StackType:
        return str(value)
    return scalar_text(value)
