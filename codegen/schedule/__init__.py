"""Scheduling: a Graph becomes a Program of kernels, calls and loops over steps."""

from __future__ import annotations

from loopgrad.codegen.schedule.schedule import schedule

__all__ = ["schedule"]
