"""How rows that a workgroup takes through stages lie in memory, and which elements of them lanes touch.

The elements of a row lie side by side, or `beside` of them lie between one and the next: then rows are columns of an
array (before, length, beside), and so many neighbours begin side by side. Lanes of a stage are numbered row by row in
either case, so a kernel whose lanes are numbered as the elements lie gets the dims of its domain in another order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from loopgrad.codegen.kernel.linear_index import Linear, linear
from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.targets.gpu.lanes.plan import reduced_rows
from loopgrad.graph.types import int64


@dataclass(frozen=True, slots=True)
class RowLayout:
    """See the module's text."""

    rows: int
    length: int
    beside: int = 1

    @property
    def before(self) -> int:
        return self.rows // self.beside

    @property
    def lanes(self) -> int:
        return self.rows * self.length


class _WithDims(Rebuilder):
    """The kernel over a domain with these extents, of which its own dims are products of neighbours; `order` says which
    of them comes where. What it reduces is all lanes."""

    def __init__(self, kernel: Kernel, extents: Sequence[int], order: Sequence[int]) -> None:
        super().__init__(kernel)
        self.extents, self.order = extents, order

    def run(self) -> Kernel:
        indices = [KValue(int64) for _ in self.extents]
        left = list(zip(self.extents, indices, strict=True))
        for argument, extent in zip(self.kernel.body.arguments, self.kernel.domain, strict=True):
            (count, index) = left.pop(0)
            while count < extent:
                each, inner = left.pop(0)
                size = self._op("const", value=each)
                index = self._op("add", self._op("mul", index, size), inner)
                count *= each
            self.env[argument] = index
        self.body(self.kernel.body)
        body = Block(tuple([indices[d] for d in self.order]), self.out)
        domain = tuple([self.extents[d] for d in self.order])
        whole = [replace(r, rank=len(domain)) for r in self.kernel.reductions]
        return replace(self.kernel, domain=domain, body=body, reductions=tuple(whole), order_key=None)

    def _op(self, opcode: str, *operands: KValue, **attrs: int) -> KValue:
        self.out.append(KOp(opcode, operands, (int64,), attrs))
        return self.out[-1].results[0]


def with_rows(kernel: Kernel, rows: int, length: int) -> Kernel | None:
    """The kernel, with dims of its domain that number the rows."""
    if rows in [prod(kernel.domain[:cut]) for cut in range(len(kernel.domain) + 1)]:
        return kernel
    return _WithDims(kernel, (rows, length), (0, 1)).run() if len(kernel.domain) == 1 else None


def in_layout(kernel: Kernel, layout: RowLayout) -> Kernel | None:
    """The kernel, whose lanes are numbered as the elements lie, or, where it reduces rows, row by row, with lanes that
    are numbered row by row."""
    in_rows = with_rows(kernel, layout.rows, layout.length)
    if layout.beside == 1 or (kernel.reductions and reduced_rows(kernel) == (layout.rows, layout.length)):
        return in_rows
    if in_rows is not None and beside(in_rows, layout.rows, layout.length) == layout.beside:
        return in_rows  # what it reads is the transposed of what it numbers
    sizes = {prod(kernel.domain[d:]) for d in range(len(kernel.domain) + 1)}
    ordered = sorted(sizes | {1, layout.beside, layout.beside * layout.length, layout.lanes}, reverse=True)
    if any(above % below for above, below in pairwise(ordered)):
        return None
    extents = [above // below for above, below in pairwise(ordered)]
    steps = ordered[1:]  # elements from one index of each dim to the next
    outer = [d for d, step in enumerate(steps) if step >= layout.beside * layout.length]
    inner = [d for d, step in enumerate(steps) if step < layout.beside]
    middle = [d for d in range(len(steps)) if d not in (*outer, *inner)]
    return _WithDims(kernel, extents, [*outer, *inner, *middle]).run()


def beside(kernel: Kernel, rows: int, length: int) -> int:
    """How many elements lie between one of a row and the next in the arrays of all elements that a kernel whose lanes
    are numbered row by row reads; 1 where some are read in order."""
    domain, found = kernel.domain, 1
    read = {n for n, param in enumerate(kernel.params) if param.size == rows * length and param.access == "read"}
    for form in indices(kernel, read):
        step = form.factors[-1] if form is not None and domain[-1] > 1 else 1
        if step < 1 or rows % step or form != lane_element(domain, RowLayout(rows, length, step)):
            continue
        if step == 1:
            return 1
        found = step
    return found


def row_dims(domain: Sequence[int], rows: int) -> int:
    """How many leading dims number the rows."""
    return next(cut for cut in range(len(domain) + 1) if prod(domain[:cut]) == rows)


def own_element(domain: Sequence[int]) -> Linear:
    """A lane's number."""
    return Linear(tuple([prod(domain[d + 1 :]) if n > 1 else 0 for d, n in enumerate(domain)]), 0)


def lane_element(domain: Sequence[int], layout: RowLayout) -> Linear | None:
    """Where the element of a lane lies, by dims that number rows and elements; None where no dims number the rows that
    lie side by side."""
    if layout.beside == 1:
        return own_element(domain)
    end = row_dims(domain, layout.rows)
    sizes = [prod(domain[:cut]) for cut in range(end + 1)]
    if layout.before not in sizes:
        return None
    first = sizes.index(layout.before)
    steps = [
        prod(domain[d + 1 : first]) * layout.beside * layout.length
        if d < first
        else prod(domain[d + 1 : end])
        if d < end
        else prod(domain[d + 1 :]) * layout.beside
        for d in range(len(domain))
    ]
    return Linear(tuple([step if n > 1 else 0 for step, n in zip(steps, domain, strict=True)]), 0)


def row_element(domain: Sequence[int], rows: int) -> Linear:
    """A row's number, by the lane's indices."""
    cut = row_dims(domain, rows)
    return Linear((*own_element(domain[:cut]).factors, *[0] * (len(domain) - cut)), 0)


def indices(kernel: Kernel, params: Collection[int]) -> list[Linear | None]:
    """Of every load and store of these parameters."""
    forms = linear(kernel)
    return [forms.get(op.operands[0]) for op in walk(kernel.body) if op.attrs.get("param") in params]
