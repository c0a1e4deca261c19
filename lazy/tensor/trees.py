"""Trees of tensors: tuples, lists, dicts, named tuples, dataclasses and classes of attrs, None, and classes that were
registered; everything else is a leaf.

optree does the work. It is imported at the first use: it costs a quarter of this package's import.
Dataclasses and classes of attrs become nodes when they are first met; fields whose metadata say `"static": True` aren't
children but part of the structure.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

from loopgrad.graph.errors import explained
from loopgrad.lazy.tensor.core import TensorCore
from loopgrad.lazy.tensor.errors import StructureError
from loopgrad.lazy.tensor.static_identity import STATIC_CLASSES, RefusedError, fields_of, identity
from loopgrad.runtime.processes import ENDING


class NodeClass(NamedTuple):
    """How instances of a registered class come apart, into children and anything else, and are put together. `fields`:
    the names of a dataclass' or an attrs class' fields, those of children before static ones."""

    parts: Callable[[Any], tuple[Sequence[Any], Any]]
    rebuild: Callable[[Any, Sequence[Any]], Any]
    fields: tuple[str, ...] | None


NAMESPACE: Final = "loopgrad"
Tree: TypeAlias = Any
CONTAINERS: Final = (tuple, list, dict, OrderedDict, defaultdict, deque)
_registered: dict[type, NodeClass] = {}
_modules: list[ModuleType] = []


ENDING.calls_extensions(__file__)


def _optree() -> ModuleType:
    if ENDING.begun:
        ENDING.stop_if_ending()
    if not _modules:
        import optree  # late: 25 ms that scripts without trees don't pay

        _modules.append(optree)
    return _modules[0]


def flatten(tree: Tree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """The leaves in order, and the structure; what `is_leaf` is true of isn't looked into."""
    optree = _optree()
    leaves, structure = optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)
    classes = {*map(type, leaves)}
    fresh = [c for c in classes if not issubclass(c, TensorCore) and has_fields(c) and not is_node(c)]
    if fresh:
        for cls in fresh:
            register_fields(cls)
        return flatten(tree, is_leaf)
    return leaves, structure


def has_fields(cls: type) -> bool:
    """Whether instances of a class are nodes because of the fields that it declares."""
    return (hasattr(cls, "__dataclass_fields__") or hasattr(cls, "__attrs_attrs__")) and cls not in STATIC_CLASSES


def unflatten(structure: Any, leaves: Iterable[Any]) -> Tree:
    """The tree of that structure with these leaves."""
    return _optree().tree_unflatten(structure, leaves)


def map_leaves(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """`function` applied to every tensor or number; other leaves stay."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [function(x) if is_dynamic(x) else x for x in leaves])


def matching(what: str, structure: Any, tree: Tree) -> list[Any]:
    """The leaves of `tree`, which must have that structure."""
    leaves, got = flatten(tree)
    if got != structure:
        raise structure_error(what, structure, got)
    return leaves


def leaves_or_none(what: str, structure: Any, tree: Tree) -> list[Any]:
    """The leaves of `tree`, which must have that structure, but may have None for any part of it: so many None."""
    if tree is None or not structure.num_leaves:
        return [None] * structure.num_leaves
    if structure.is_leaf():
        return [tree]
    try:
        parts = structure.one_level().flatten_up_to(tree)
    except ValueError as error:
        raise structure_error(what, structure, flatten(tree)[1]) from error
    children = zip(structure.children(), parts, strict=True)
    return [leaf for child, part in children for leaf in leaves_or_none(what, child, part)]


def structure_error(
    what: str, expected: Any, got: Any, fix: str = "return the same nesting and keys"
) -> StructureError:  # fmt: skip
    """Two structures that should be equal."""
    return StructureError(explained(what, f"the structure {show(expected)}", show(got), fix))


def check_function(what: str, function: object) -> None:
    """Refuse what can't be called where a function is expected."""
    if not callable(function):
        raise TypeError(explained(what, "a function", repr(function), "pass the function itself, not its result"))


def show(structure: Any) -> str:
    """A structure without optree's decoration: `*` stands for a leaf."""
    text = str(structure)
    if not text.startswith("PyTreeSpec("):
        return text
    return text.removeprefix("PyTreeSpec(").removesuffix(")").split(", namespace=")[0]


def leaf_names(structure: Any, root: str) -> list[str]:
    """How each leaf is reached from `root`: `carry[0]['x'].field`."""
    return [a.codify(root) for a in _optree().treespec_accessors(structure)]


def prefix_leaves(what: str, prefix: Tree, structure: Any, tree: Tree) -> list[Any]:
    """One entry of `prefix` per leaf of `tree`; an entry above a subtree stands for all its leaves.

    None is an entry of a prefix, but no leaf of a tree: an entry above it stands for nothing.
    """
    how: dict[str, Any] = {"none_is_leaf": True, "namespace": NAMESPACE}
    fix = "give an int or None for each *, or one for a whole subtree"
    try:
        without = _optree().tree_map(lambda x: () if x is None else x, tree, **how)
        spread = _optree().tree_broadcast_prefix(prefix, without, **how)
    except ValueError as error:
        raise structure_error(what, structure, repr(prefix), fix) from error
    leaves = _optree().tree_leaves(spread, **how)
    if len(leaves) != structure.num_leaves:
        raise structure_error(what, structure, repr(prefix), fix)
    return leaves  # type: ignore[no-any-return]


def with_paths(tree: Tree, is_leaf: Callable[[Any], bool] | None) -> tuple[list[tuple[Any, ...]], list[Any], Any]:
    """How each leaf is reached, as positions, keys and names; the leaves; and the structure."""
    flatten(tree, is_leaf)  # registers what is met for the first time
    accessors, leaves, structure = _optree().tree_flatten_with_accessor(tree, is_leaf, namespace=NAMESPACE)
    return [tuple([getattr(e, "field", e.entry) for e in a]) for a in accessors], leaves, structure


def spread(what: str, prefix: Tree, tree: Tree, is_leaf: Callable[[Any], bool] | None) -> Tree:
    """`tree` with the leaves of `prefix`, each in place of all that is below it."""
    structure, whole = flatten(prefix, is_leaf)[1], flatten(tree)[1]
    try:
        return _optree().tree_broadcast_prefix(prefix, tree, is_leaf, namespace=NAMESPACE)
    except ValueError as error:
        raise structure_error(what, whole, structure) from error


def is_dynamic(leaf: Any) -> bool:
    """Whether a leaf can become a tensor (others are static: strings, functions, modules)."""
    if isinstance(leaf, TensorCore | bool | int | float | complex):
        return True
    return hasattr(leaf, "__array__") and not isinstance(leaf, type)


def is_node(cls: type) -> bool:
    """Whether instances of a class are nodes of trees."""
    if cls in _registered:
        return True
    return cls in CONTAINERS or bool(_optree().is_namedtuple_class(cls) or _optree().is_structseq_class(cls))


class _Auxiliary:
    """What a registered class keeps beside its children: equal where no program can tell it apart."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any, key: Hashable) -> None:
        self.value, self.key = value, key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Auxiliary) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return repr(self.value)


def register_node(
    cls: type, parts: Callable[[Any], tuple[Sequence[Any], Any]], rebuild: Callable[[Any, Sequence[Any]], Any],
    key: Callable[[Any], Hashable], attributes: bool,
) -> None:  # fmt: skip
    """Make instances of `cls` nodes: `parts` gives their children and anything else, which `key` compares.
    `attributes`: what is beside the children are their names."""
    optree = _optree()

    def taken(instance: Any) -> tuple[Sequence[Any], _Auxiliary, Sequence[Any] | None]:
        children, auxiliary = parts(instance)
        return children, _Auxiliary(auxiliary, key(auxiliary)), auxiliary if attributes else None

    def rebuilt(auxiliary: _Auxiliary, children: Sequence[Any]) -> Any:
        return rebuild(auxiliary.value, children)

    entry = optree.GetAttrEntry if attributes else optree.AutoEntry
    optree.register_pytree_node(cls, taken, rebuilt, path_entry_type=entry, namespace=NAMESPACE)
    _registered[cls] = NodeClass(parts, rebuild, None)


def odd_keys(structure: Any) -> tuple[Hashable, ...]:
    """What tells structures apart that compare equal: keys of dicts that aren't strings, with their types."""
    found: list[Hashable] = []
    pending = [structure]
    while pending:
        node = pending.pop()
        if node.type is not None and issubclass(node.type, dict):
            odd = [k for k in node.entries() if type(k) is not str]
            found.extend([(type(k), repr(k) if isinstance(k, float) else k) for k in odd])
        pending.extend(node.children())
    return tuple(found)


def auxiliary_key(cls: type, what: str) -> Callable[[Any], Hashable]:
    """What instances of `cls` are compared by beside their children; `what` names it in errors."""

    def key(auxiliary: Any) -> Hashable:
        try:
            return identity(auxiliary)
        except RefusedError as refused:
            raise refused.explained(auxiliary, what.format(cls.__name__), cls.__name__) from None

    return key


def register_fields(cls: type) -> None:
    """Make instances of a dataclass, or of a class of attrs, nodes: fields are children, static ones auxiliary."""
    optree = _optree()
    fields = fields_of(cls) or {}
    names = tuple([name for name, static in fields.items() if not static])
    static_names = [name for name, static in fields.items() if static]
    key = auxiliary_key(cls, "the static fields of {}")

    def parts(instance: Any) -> tuple[Sequence[Any], Any]:
        values = tuple([getattr(instance, name) for name in static_names])
        return [getattr(instance, name) for name in names], values

    def rebuild(values: Any, children: Sequence[Any]) -> Any:
        instance: Any = object.__new__(cls)  # not __init__: __post_init__ may check what a trace can't answer
        for name, value in zip((*names, *static_names), (*children, *values), strict=True):
            object.__setattr__(instance, name, value)
        return instance

    def taken(instance: Any) -> tuple[Sequence[Any], _Auxiliary | None, tuple[str, ...]]:
        children, values = parts(instance)
        return children, _Auxiliary(values, key(values)) if static_names else None, names

    def rebuilt(auxiliary: _Auxiliary | None, children: Sequence[Any]) -> Any:
        return rebuild(() if auxiliary is None else auxiliary.value, children)

    entry = optree.DataclassEntry if dataclasses.is_dataclass(cls) else optree.GetAttrEntry
    with suppress(ValueError):  # where another thread has done it meanwhile
        optree.register_pytree_node(cls, taken, rebuilt, path_entry_type=entry, namespace=NAMESPACE)
    _registered[cls] = NodeClass(parts, rebuild, (*names, *static_names))


def node_class(cls: type) -> NodeClass | None:
    """How instances of a class with fields, or of a registered one, come apart; None for others."""
    if cls not in _registered and has_fields(cls):
        register_fields(cls)
    return _registered.get(cls)


def known_classes() -> tuple[type, ...]:
    """The classes that were registered or met."""
    return tuple(_registered)
