"""Policies of `checkpoint`: which values inside a function are saved instead of computed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PUBLIC: Final = "checkpoint_policies"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is saved, as `autodiff.loops.recompute.saves` reads it; None for everything."""

    save: tuple[str, ...] | None


class checkpoint_policies:  # JAX's name, of a namespace
    """What `lg.checkpoint(f, policy=...)` saves of what f computes, in its loops and branches too: of a loop, what each
    trip made goes onto a stack. Names are given by `lg.name`. Only what the derivative reads is saved. A checkpoint
    inside f has its own policy and keeps nothing for f's; so does a loop with a `memory_budget`."""

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
