"""`lg.tree`: functions over trees of arrays, by the names of `jax.tree`.

`tree.pyi` lists what is offered, and `public_names` imports it when it is first used.
"""

from __future__ import annotations

from loopgrad.lazy.numpy.not_offered import TREE_ABSENT
from loopgrad.public_names import namespace

__all__, __getattr__, __dir__ = namespace(globals(), TREE_ABSENT)
