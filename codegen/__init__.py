"""The `loopgrad.codegen` layer; ARCHITECTURE.md says what it holds and what it deliberately lacks."""

if __name__ != "loopgrad.codegen":
    raise ImportError(f"import this package as loopgrad.codegen, not as {__name__!r} (see README.md, Development)")
