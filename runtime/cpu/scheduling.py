"""Parts of scheduling are imported when they are first needed, by whichever thread.

The package imports all of itself. A thread that imports one of its modules while another one is in the middle of the
package would wait for that one, which waits for the module: Python breaks such a circle off with an ImportError.
"""

from __future__ import annotations

from importlib import import_module


def await_scheduling() -> None:
    """Import all of scheduling, or wait for the thread that does; modules of it are there then."""
    import_module("loopgrad.codegen.schedule")
