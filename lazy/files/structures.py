"""Trees as JSON: each node and each leaf an object with one key, its kind.

    {"tuple": [...]}  {"list": [...]}  {"dict": [[key, node], ...]}  {"class": {"name": ..., "children": [...], ...}}
    {"array": 3}  {"int": "7"}  {"float": "0x1.8p+0"}  {"str": "text"}  null is None

Classes are written as "module:name" with the names of their fields; what is beside the children of a registered class
(its static fields) is a tree of such leaves, too.
"""

from __future__ import annotations

import base64
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import LoopgradError, explained
from loopgrad.graph.types import DType, dtype_named
from loopgrad.lazy.optim.states import STATES
from loopgrad.lazy.tensor.core import TensorCore
from loopgrad.lazy.tensor.trees import NodeClass, known_classes, node_class

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

FACTORIES: Final[dict[str, Any]] = {"list": list, "dict": dict, "int": int, "float": float, "set": set, "str": str}
TEXTS: Final[dict[type, Callable[[Any], Any]]] = {
    bool: bool,
    int: str,
    float: float.hex,
    complex: lambda x: [x.real.hex(), x.imag.hex()],
    str: str,
    bytes: lambda x: base64.b64encode(x).decode("ascii"),
    DType: lambda x: x.name,
}
READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "bool": lambda x: {True: True, False: False}[x],
    "int": int,
    "float": float.fromhex,
    "complex": lambda x: complex(float.fromhex(x[0]), float.fromhex(x[1])),
    "str": "".join,
    "bytes": lambda x: base64.b64decode(x, validate=True),
    "DType": dtype_named,
}


class UnknownClassError(LoopgradError, LookupError):
    """A class in a file that nobody has named."""


def class_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def encoded(tree: Any, arrays: list[Any], where: str = "tree") -> Any:
    """A tree as JSON; its arrays are added to a list. TypeError, with the place, for what can't be written."""
    cls = type(tree)
    if tree is None:
        return None
    if cls in TEXTS:
        return {cls.__name__: TEXTS[cls](tree)}
    if cls in (tuple, list):
        return {cls.__name__: _parts(tree, arrays, where)}
    if cls in (dict, OrderedDict, defaultdict):
        return _mapping(tree, arrays, where)
    if cls is deque:
        return {"deque": {"items": _parts(tree, arrays, where), "maxlen": tree.maxlen}}
    if isinstance(tree, TensorCore | np.ndarray | np.generic) or (hasattr(tree, "__array__") and cls is not type):
        arrays.append(tree)
        return {"array": len(arrays) - 1}
    if _is_named_tuple(cls):
        items = _parts(tree, arrays, where)
        return {"named tuple": {"name": class_name(cls), "fields": list(cls._fields), "children": items}}
    node = node_class(cls)
    if node is None:
        expected = "arrays, numbers, strings, bytes, dtypes, None, and trees of them"
        fix = "convert it, or make its class a tree with lg.register_pytree"
        raise TypeError(explained("save", expected, f"an instance of {class_name(cls)} at {where}", fix))
    children, auxiliary = node.parts(tree)
    return {
        "class": {
            "name": class_name(cls),
            "fields": None if node.fields is None else list(node.fields),
            "children": _parts(children, arrays, where),
            "auxiliary": encoded(auxiliary, arrays, f"what is beside the children of {where}"),
        }
    }


def _parts(items: Iterable[Any], arrays: list[Any], where: str) -> list[Any]:
    return [encoded(x, arrays, f"{where}[{i}]") for i, x in enumerate(items)]


def _mapping(tree: dict[Any, Any], arrays: list[Any], where: str) -> Any:
    entries = []
    for key, value in tree.items():
        if isinstance(key, np.generic):
            raise TypeError(explained("save", "keys of Python's types", f"{key!r} at {where}", "use .item() of it"))
        entries.append([encoded(key, arrays, f"a key of {where}"), encoded(value, arrays, f"{where}[{key!r}]")])
    if isinstance(tree, defaultdict):
        named = {factory: name for name, factory in FACTORIES.items()}
        factory = tree.default_factory
        if factory is not None and factory not in named:
            expected = f"a default factory among {', '.join(FACTORIES)}"
            raise TypeError(explained("save", expected, f"{factory!r} at {where}", "pass dict(x)"))
        return {"defaultdict": {"factory": None if factory is None else named[factory], "entries": entries}}
    return {type(tree).__name__: entries}


class Decoder:
    """Trees of JSON and arrays. `classes` are those that the caller names."""

    def __init__(self, arrays: list[Tensor], classes: Iterable[type]) -> None:
        self._arrays = arrays
        self._named = {class_name(c): c for c in (*known_classes(), *STATES)}
        for c in classes:
            self._named[class_name(c)] = c
            self._named.setdefault(c.__qualname__, c)  # a script's class is in __main__ at one time

    def tree(self, node: Any) -> Any:
        """What a node stands for; ValueError, TypeError or KeyError where it is none."""
        if node is None:
            return None
        ((kind, content),) = node.items()
        if kind == "array":
            return self._arrays[range(len(self._arrays))[content]]
        if kind in READERS:
            return READERS[kind](content)
        if kind in ("tuple", "list"):
            return (tuple if kind == "tuple" else list)([self.tree(x) for x in content])
        if kind in ("dict", "OrderedDict"):
            return (dict if kind == "dict" else OrderedDict)(self._entries(content))
        if kind == "defaultdict":
            factory = content["factory"]
            return defaultdict(None if factory is None else FACTORIES[factory], self._entries(content["entries"]))
        if kind == "deque":
            return deque([self.tree(x) for x in content["items"]], content["maxlen"])
        if kind == "named tuple":
            return self._named_tuple(content)
        if kind == "class":
            return self._instance(content)
        raise ValueError(f"an unknown kind of node, {kind!r}")

    def _entries(self, entries: Any) -> list[tuple[Any, Any]]:
        return [(self.tree(key), self.tree(value)) for key, value in entries]

    def _class(self, content: Any) -> type:
        name: str = content["name"]
        found = self._named.get(name) or self._named.get(name.partition(":")[2])
        if found is None:
            fix = f"import it and pass it: lg.load(path, classes=[{name.rpartition('.')[2].rpartition(':')[2]}])"
            raise UnknownClassError(
                explained("load", f"to know the class {name} of the file", "nobody has named it", fix)
            )
        return found

    def _named_tuple(self, content: Any) -> Any:
        cls: Any = self._class(content)
        if not _is_named_tuple(cls):
            raise ValueError(f"{class_name(cls)} is no named tuple")
        _check_fields(cls, content["fields"], cls._fields)
        children = [self.tree(x) for x in content["children"]]
        return tuple.__new__(cls, dict(zip(content["fields"], children, strict=True)).values())

    def _instance(self, content: Any) -> Any:
        cls = self._class(content)
        node: NodeClass | None = node_class(cls)
        if node is None:
            raise ValueError(f"{class_name(cls)} is no class of trees")
        _check_fields(cls, content["fields"], node.fields)
        children = [self.tree(x) for x in content["children"]]
        return node.rebuild(self.tree(content["auxiliary"]), children)


def _check_fields(cls: type, written: Any, fields: Any) -> None:
    if (None if written is None else list(written)) != (None if fields is None else list(fields)):
        raise ValueError(f"{class_name(cls)} has the fields {fields} now, and had {written}")
