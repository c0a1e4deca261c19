"""The `loopgrad.graph` layer; ARCHITECTURE.md says what it holds and what it deliberately lacks."""

if __name__ != "loopgrad.graph":
    raise ImportError(f"import this package as loopgrad.graph, not as {__name__!r} (see README.md, Development)")
