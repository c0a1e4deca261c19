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
    """What `lg.checkpoint(f, policy=...)` saves of what f computes. Names are given by `lg.name`; they count where f
    itself gives them, not in its loops (there, checkpoint the body of the loop)."""

    nothing_saveable: Final = Policy(())
    """Nothing, as without a policy: f is computed again from its arguments."""

    everything_saveable: Final = Policy(None)
    """As if there were no checkpoint."""

    dots_saveable: Final = Policy(("dots",))
    """Results of matrix products."""

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
