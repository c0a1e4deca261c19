"""`lg.nn`: what networks apply to each element or along an axis, by the names of `jax.nn`.

`nn.pyi` lists what is offered, and `public_names` imports it when it is first used.
"""

from __future__ import annotations

from loopgrad.lazy.numpy.not_offered import NN_ABSENT
from loopgrad.public_names import namespace

__all__, __getattr__, __dir__ = namespace(globals(), NN_ABSENT)
