"""The `loopgrad.autodiff` layer; ARCHITECTURE.md says what it holds and what it deliberately lacks."""

if __name__ != "loopgrad.autodiff":
    raise ImportError(f"import this package as loopgrad.autodiff, not as {__name__!r} (see README.md, Development)")
