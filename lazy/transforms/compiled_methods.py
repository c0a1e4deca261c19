"""Compiled functions that were defined in a class, as methods of an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopgrad.lazy.tensor.static_identity import BoundStanding

if TYPE_CHECKING:
    from loopgrad.lazy.transforms.captured_call import Replay
    from loopgrad.lazy.transforms.compile import Compiled
    from loopgrad.runtime.plan import Plan


class BoundCompiled(BoundStanding):
    """A compiled method of an instance, which is its first argument: a tree (`lg.register_pytree`, a dataclass) or
    static (`lg.register_static`)."""

    __func__: Compiled

    def __init__(self, compiled: Compiled, instance: Any) -> None:
        self.__func__ = compiled
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<bound {self.__func__!r} of {type(self.__self__).__name__}>"

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """`Compiled.plan` for these arguments."""
        return self.__func__.plan(self.__self__, *args, **kwargs)

    def text(self, stage: str = "graph", *args: Any, **kwargs: Any) -> str:
        """`Compiled.text` for these arguments or the last call's."""
        first = (self.__self__,) if args or kwargs else ()
        return self.__func__.text(stage, *first, *args, **kwargs)

    def capture(self, *args: Any, **kwargs: Any) -> Replay:
        """`Compiled.capture`; the instance is the first argument of a replay, too."""
        return self.__func__.capture(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """What doesn't depend on the instance: versions, explain, memory_stats, clear."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.__func__, name)
