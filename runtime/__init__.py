"""The `loopgrad.runtime` layer; ARCHITECTURE.md says what it holds and what it deliberately lacks."""

if __name__ != "loopgrad.runtime":
    raise ImportError(f"import this package as loopgrad.runtime, not as {__name__!r} (see README.md, Development)")
