"""Trees of tensors: tuples, lists, dicts, named tuples, dataclasses, None, and classes that were registered; everything
else is a leaf.

optree does the work. It is imported at the first use: it costs a quarter of this package's import.
Dataclasses become nodes when they are first met.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import ModuleType
from typing import Any, Final, TypeAlias

from loopgrad.graph.errors import explained
from loopgrad.lazy.tensor.core import TensorCore
from loopgrad.lazy.tensor.errors import StructureError
from loopgrad.runtime.processes import ENDING

NAMESPACE: Final = "loopgrad"
Tree: TypeAlias = Any
STATIC_CLASSES: Final[set[type]] = set()  # registered as parts of programs: never nodes
_registered: set[type] = set()
_modules: list[ModuleType] = []


ENDING.calls_extensions(__file__)


def _optree() -> ModuleType:
    if ENDING.begun:
        ENDING.stop_if_ending()
    if not _modules:
        import optree  # late: 25 ms that scripts without trees don't pay

        _modules.append(optree)
    return _modules[0]


def flatten(tree: Tree) -> tuple[list[Any], Any]:
    """The leaves in order, and the structure."""
    optree = _optree()
    leaves, structure = optree.tree_flatten(tree, namespace=NAMESPACE)
    fresh = {type(x) for x in leaves if dataclasses.is_dataclass(x) and not isinstance(x, type)} - STATIC_CLASSES
    if fresh:
        for cls in fresh:
            _register(cls)
        return flatten(tree)
    return leaves, structure


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


def structure_error(what: str, expected: Any, got: Any) -> StructureError:
    """Two structures that should be equal."""
    return StructureError(
        explained(what, f"the structure {show(expected)}", show(got), "return the same nesting and keys")
    )


def check_function(what: str, function: object) -> None:
    """Refuse what can't be called where a function is expected."""
    if not callable(function):
        raise TypeError(explained(what, "a function", repr(function), "pass the function itself, not its result"))


def show(structure: Any) -> str:
    """A structure without optree's decoration: `*` stands for a leaf."""
    return str(structure).removeprefix("PyTreeSpec(").removesuffix(")").split(", namespace=")[0]


def leaf_names(structure: Any, root: str) -> list[str]:
    """How each leaf is reached from `root`: `carry[0]['x'].field`."""
    return [a.codify(root) for a in _optree().treespec_accessors(structure)]


def prefix_leaves(what: str, prefix: Tree, structure: Any, tree: Tree) -> list[Any]:
    """One entry of `prefix` per leaf of `tree`; an entry above a subtree stands for all its leaves."""
    try:
        spread = _optree().tree_broadcast_prefix(prefix, tree, none_is_leaf=True, namespace=NAMESPACE)
    except ValueError as error:
        raise structure_error(what, structure, repr(prefix)) from error
    leaves = _optree().tree_leaves(spread, none_is_leaf=True, namespace=NAMESPACE)
    if len(leaves) != structure.num_leaves:
        raise structure_error(what, structure, repr(prefix))
    return leaves  # type: ignore[no-any-return]


def is_dynamic(leaf: Any) -> bool:
    """Whether a leaf can become a tensor (others are static: strings, functions, modules)."""
    if isinstance(leaf, TensorCore | bool | int | float | complex):
        return True
    return hasattr(leaf, "__array__") and not isinstance(leaf, type)


def is_node(cls: type) -> bool:
    """Whether instances of a class are nodes of trees."""
    if cls in _registered:
        return True
    return cls in (tuple, list, dict) or bool(_optree().is_namedtuple_class(cls) or _optree().is_structseq_class(cls))


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
    _registered.add(cls)


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


def _register(cls: type) -> None:
    if cls in _registered:
        return
    _registered.add(cls)
    optree = _optree()
    names = tuple([f.name for f in dataclasses.fields(cls)])

    def parts(instance: Any) -> tuple[Sequence[Any], None, tuple[str, ...]]:
        return [getattr(instance, name) for name in names], None, names

    def rebuild(_: None, children: Sequence[Any]) -> Any:
        instance: Any = object.__new__(cls)  # not __init__: __post_init__ may check what a trace can't answer
        for name, child in zip(names, children, strict=True):
            object.__setattr__(instance, name, child)
        return instance

    optree.register_pytree_node(cls, parts, rebuild, path_entry_type=optree.DataclassEntry, namespace=NAMESPACE)
