"""Programs that are called often: Python code of their own, which does what `CpuExecutable.run` does for any program.

    two inputs, one result       def run(buffers):
                                     if len(buffers) != 2: check(types, buffers, "cpu")
                                     b0, b1, = buffers
                                     if b0._type is not t0 or b0.device != "cpu" or ...: check(types, buffers, "cpu")
                                     ...
                                     words[20] = b0.address or b0.locate()
                                     words[21] = b1.address or b1.locate()
                                     r0 = take0(); words[22] = r0.address
                                     status = entry(context.address)

A walk over the lists of inputs and results takes twice as long. Nothing but numbers of words gets into the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import CodeType
from typing import Any, Final

from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer, check_inputs
from loopgrad.runtime.cpu.context import CallContext
from loopgrad.runtime.cpu.memory import Spares

OFTEN: Final = 16  # calls before a program gets code of its own
MOST_BUFFERS: Final = 32  # inputs and results together

Run = Callable[[Sequence[Buffer]], list[Buffer]]


def call_code(
    inputs: Sequence[tuple[int, TensorType]], results: Sequence[tuple[Spares, int]], free: list[CallContext],
    new_context: Callable[[], CallContext], entry: Callable[[int], int],
    failed: Callable[[CallContext, int], None],
) -> Run:  # fmt: skip
    """The code of a program that owns its arena and all of whose results are computed. `inputs`: the word of each and
    its type; `results`: where the memory of each comes from, and its word."""
    types = tuple([type for _, type in inputs])
    known: dict[str, Any] = {
        "free": free, "new_context": new_context, "entry": entry, "failed": failed, "check": check_inputs,
        "types": types,
        **{f"t{i}": type for i, type in enumerate(types)}, **{f"take{i}": s.take for i, (s, _) in enumerate(results)},
    }  # fmt: skip
    exec(_code(tuple([word for word, _ in inputs]), tuple([word for _, word in results])), known)
    run: Run = known["run"]
    return run


@cache
def _code(inputs: tuple[int, ...], results: tuple[int, ...]) -> CodeType:
    """What defines `run` for programs with these words: many have the same."""
    names = [f"b{i}" for i in range(len(inputs))]
    text = ["def run(buffers):", f' if len(buffers) != {len(inputs)}: check(types, buffers, "cpu")']
    if inputs:
        differs = [f'{b}._type is not t{i} or {b}.device != "cpu"' for i, b in enumerate(names)]
        text += [f" {', '.join(names)}, = buffers", f' if {" or ".join(differs)}: check(types, buffers, "cpu")']
    text += [" try: context = free.pop()", " except IndexError: context = new_context()", " try:"]
    text.append("  words = context.words")
    text += [f"  words[{word}] = {b}.address or {b}.locate()" for b, word in zip(names, inputs, strict=True)]
    for i, word in enumerate(results):
        text += [f"  r{i} = take{i}()", f"  words[{word}] = r{i}.address"]
    text += ["  status = entry(context.address)", "  if status: failed(context, status)"]
    text += [" finally: free.append(context)", f" return [{', '.join([f'r{i}' for i in range(len(results))])}]"]
    return compile("\n".join(text), "<call>", "exec")
