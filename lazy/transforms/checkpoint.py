"""`checkpoint`: a function whose inner values aren't kept for its reverse pass, but computed again.

The function is traced and becomes one region; `autodiff` saves its arguments and what it captured, and its
reverse computes the rest once more when the cotangents arrive. Values and derivatives are those of the
function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from loopgrad.autodiff.loops.recompute import recomputed
from loopgrad.graph.build import emit
from loopgrad.graph.errors import explained
from loopgrad.lazy.loops.traced_functions import kind_of, require_returned_generators, trace_tree
from loopgrad.lazy.tensor.core import as_tensor, is_scalar, wrap
from loopgrad.lazy.tensor.storage import private
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, is_dynamic, map_leaves, unflatten
from loopgrad.lazy.transforms.static_arguments import StaticParameters, with_static
from loopgrad.lazy.transforms.transformed import TransformedFunction

PUBLIC: Final = "checkpoint checkpoint_policies name"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is saved, as `autodiff.loops.saveable.marked_by` reads it; None for everything."""

    save: tuple[str, ...] | None


class checkpoint_policies:  # JAX's name, of a namespace
    """What `lg.checkpoint(f, policy=...)` saves of what f computes, in its loops and branches too: of a loop, what each
    trip made goes onto a stack. Names are given by `lg.name`. Only what the derivative reads is saved. A checkpoint
    inside f has its own policy and keeps nothing for f's. A loop with a `memory_budget` saves this besides."""

    nothing_saveable: Final = Policy(())
    """Nothing, as without a policy: f is computed again from its arguments."""

    everything_saveable: Final = Policy(None)
    """As if there were no checkpoint."""

    dots_saveable: Final = Policy(("dots",))
    """Results of matrix products."""

    dots_with_no_batch_dims_saveable: Final = Policy(("plain dots",))
    """Results of matrix products of vectors and matrices, not of stacks of them."""

    checkpoint_dots: Final = dots_saveable
    checkpoint_dots_with_no_batch_dims: Final = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_only_these_names(*names: str) -> Policy:
        """Values with one of these names."""
        return Policy(("only", *names))

    @staticmethod
    def save_any_names_but_these(*names: str) -> Policy:
        """Values with any other name."""
        return Policy(("except", *names))

    @staticmethod
    def save_from_both_policies(one: Policy, other: Policy) -> Policy:
        """What either policy saves."""
        if one.save is None or other.save is None:
            return Policy(None)
        return Policy((*one.save, "or", *other.save)) if one.save and other.save else Policy(one.save or other.save)


def checkpoint(
    fun: Callable[..., Any] | None = None, *, policy: Policy | None = None, static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (), prevent_cse: bool = True,
) -> Callable[..., Any]:  # fmt: skip
    """`fun`, rematerialised: differentiating it saves its arguments (trees of tensors) and captures, and of what it
    computes only what `policy` says, one of `lg.checkpoint_policies` (nothing without one).

    Its reverse pass runs `fun` once more; values and derivatives are those of `fun`. Python numbers and what can't be a
    tensor are handed on as they are, so the function may branch on them, and so are the arguments that `static_argnums`
    and `static_argnames` name (as for `lg.compile`). A generator from which it draws is returned beside the results,
    else TracedValueError is raised. `prevent_cse`, JAX's, changes nothing: what is computed again never becomes one
    with what was computed before. Without `fun` it is a decorator, `@lg.checkpoint(policy=...)`. TypeError where the
    policy isn't one.

    >>> lg.grad(lambda x: lg.checkpoint(lambda v: lg.sin(lg.sin(v)))(x))(0.0)
    Tensor(1., dtype=float64)
    """

    save = _saved(policy)
    again = partial(checkpoint, policy=policy, static_argnums=static_argnums, static_argnames=static_argnames)
    if fun is None:
        return again
    check_function("checkpoint", fun)
    chosen = StaticParameters(fun, static_argnums, static_argnames)

    def rematerialised(*args: Any, **kwargs: Any) -> Any:
        args, kwargs, static = chosen.split(args, kwargs) if chosen else (args, kwargs, {})
        leaves, structure = flatten((args, kwargs))
        moving = [i for i, x in enumerate(leaves) if is_dynamic(x) and not is_scalar(x)]
        tensors = [as_tensor(leaves[i]) for i in moving]

        def call(inner: Any) -> Any:
            given = list(leaves)
            for i, t in zip(moving, inner, strict=True):
                given[i] = t
            positional, named = with_static(unflatten(structure, given), static)
            return fun(*positional, **named)

        def traceable(inner: Any) -> Any:
            results = call(inner)
            require_returned_generators("checkpoint", results)
            return results

        if save is None:  # nothing is computed again: only the memory of arguments and results is the function's own
            return map_leaves(lambda x: private(as_tensor(x)), call([private(t) for t in tensors]))
        as_tuple = flatten(tuple(tensors))[1]
        traced = trace_tree("checkpoint", traceable, as_tuple, [kind_of(t) for t in tensors], leaves=tensors)
        values = recomputed(traced.graph, (*(t._value for t in tensors), *traced.captures), save)
        return unflatten(traced.structure, [wrap(v, w) for v, w in zip(values, traced.weak, strict=True)])

    return TransformedFunction(again, fun, rematerialised)


def _saved(policy: Policy | None) -> tuple[str, ...] | None:
    if policy is None:
        return ()
    if not isinstance(policy, Policy):
        fix = "for names: save_only_these_names('a', 'b')"
        raise TypeError(explained("checkpoint", "one of lg.checkpoint_policies", repr(policy), fix))
    return policy.save


def name(x: Tree, name: str) -> Tree:
    """`x`, a tensor or a tree of tensors, under a name by which a policy of `lg.checkpoint` can save it. It changes
    nothing else, in no mode. TypeError where the name isn't a string.

    >>> lg.name(lg.ones(2), "flux")
    Tensor([1., 1.], dtype=float64)
    """
    if not isinstance(name, str):
        raise TypeError(explained("name", "a string", repr(name), "write lg.name(x, 'flux')"))

    def named(leaf: Any) -> Any:
        t = as_tensor(leaf)
        return wrap(emit("alias", (t._value,), {"name": name})[0], t._weak)

    return map_leaves(named, x)
