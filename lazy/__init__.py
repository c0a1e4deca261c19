"""The `loopgrad.lazy` layer; ARCHITECTURE.md says what it holds and what it deliberately lacks."""

if __name__ != "loopgrad.lazy":
    raise ImportError(f"import this package as loopgrad.lazy, not as {__name__!r} (see README.md, Development)")
