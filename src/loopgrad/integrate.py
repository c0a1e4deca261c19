"""`lg.integrate`: what is given by samples, by the names of `scipy.integrate`.

`integrate.pyi` lists what is offered, and `public_names` imports it when it is first used.
"""

from __future__ import annotations

from loopgrad.public_names import namespace

__all__, __getattr__, __dir__ = namespace(globals())
