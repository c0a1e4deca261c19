"""Targets: each turns a Program into an Artifact (machine code and what its runtime must know).

`codegen.pipeline.TARGETS` names them.
"""
