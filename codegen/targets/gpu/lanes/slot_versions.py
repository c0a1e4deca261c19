"""A slot of its own for each array of a block of steps: one that serves again would keep launches apart.

    s0 = k0(); s1 = k1(s0); s0 = k2(s1)    ->    s0 = k0(); s1 = k1(s0); s2 = k2(s1)

Where the arrays lie is decided later, by when they are alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.program import ArraySlot, LaunchStep, MatmulStep, Step
from loopgrad.codegen.steps import named


def with_versions(
    steps: Sequence[Step], kernels: Sequence[Kernel], slots: list[ArraySlot], uses: Counter[int]
) -> list[Step]:
    """The block's steps. Slots of which other blocks or other kinds of steps know stay as they are. `slots` gets the
    new ones; `uses`, in how many steps of the program each is, is kept up to date."""
    here = Counter([slot for step in steps if isinstance(step, LaunchStep | MatmulStep) for slot in set(named(step))])
    current = {s: s for s, n in here.items() if n == uses[s] and slots[s].kind == "temp"}
    written: set[int] = set()
    found: list[Step] = []
    for step in steps:
        if not isinstance(step, LaunchStep | MatmulStep):
            found.append(step)
            continue
        for slot in begun(step, kernels) & current.keys():
            if slot in written:
                current[slot] = len(slots)
                slots.append(slots[slot])
            written.add(slot)
        found.append(renamed := _with_slots(step, current))
        uses.subtract(set(named(step)))
        uses.update(set(named(renamed)))
    return found


def begun(step: LaunchStep | MatmulStep, kernels: Sequence[Kernel]) -> set[int]:
    """Slots that the step writes anew."""
    if isinstance(step, MatmulStep):
        return {step.out}
    accesses: dict[int, set[str]] = {}
    for slot, param in zip(step.slots, kernels[step.kernel].params, strict=True):
        accesses.setdefault(slot, set()).add(param.access)
    sources = {start.source for _, start in step.initials}
    return {slot for slot, access in accesses.items() if access == {"write"} and slot not in sources}


def _with_slots(step: LaunchStep | MatmulStep, current: dict[int, int]) -> Step:
    if isinstance(step, MatmulStep):
        left, right, out = (current.get(slot, slot) for slot in (step.left, step.right, step.out))
        return replace(step, left=left, right=right, out=out)
    initials = [
        (i, start if start.source is None else replace(start, source=current.get(start.source, start.source)))
        for i, start in step.initials
    ]
    return replace(step, slots=tuple([current.get(slot, slot) for slot in step.slots]), initials=tuple(initials))
