"""What `plan()` and `memory_stats()` report, as data and as a readable table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loopgrad.graph.nodes import Location

if TYPE_CHECKING:
    from loopgrad.codegen.program import Residual, RoutineRow  # importing loopgrad needs reports, but no programs

PUBLIC: Final = "MemoryStats Plan"


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel: its lane domain, the chunks that threads share, lanes in flight, its stacks, and in how many steps
    of the program it is launched."""

    name: str
    domain: tuple[int, ...]
    chunks: int
    width: int
    stacks: int
    launches: int = 1
    loc: Location | None = None


@dataclass(frozen=True, slots=True)
class BufferRow:
    """One slot: input, output, temp or constant."""

    slot: int
    kind: str
    type: str
    bytes: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class ResidualRow:
    """One saved value: `depth` is how many rows its stacks have, `bytes` what all of them take (None and 0 before
    the first run). A stack of whole tensors has as many rows as were in it at most."""

    name: str
    type: str
    formula: str
    depth: int | None
    bytes: int
    place: str
    reason: str
    loc: Location | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What an executable will do. `str(plan)` is a table for people."""

    device: str
    kernels: tuple[KernelRow, ...]
    buffers: tuple[BufferRow, ...]
    residuals: tuple[ResidualRow, ...]
    notes: tuple[str, ...]
    arena_bytes: int
    stack_bytes: int
    routines: tuple[RoutineRow, ...] = ()

    def __str__(self) -> str:
        sections = [
            f"plan for {self.device}: {len(self.kernels)} kernels, arena {self.arena_bytes:,} bytes, "
            f"stacks {self.stack_bytes:,} bytes",
            _table(
                "kernels",
                ("name", "domain", "chunks", "lanes", "stacks", "launches"),
                [_kernel_cells(k) for k in self.kernels],
            ),
            _table("buffers", ("slot", "kind", "type", "bytes", "offset"), [_buffer_cells(b) for b in self.buffers]),
            _table(
                "saved values",
                ("name", "type", "size", "depth", "bytes", "where", "line", "reason"),
                [_residual_cells(r) for r in self.residuals],
            ),
        ]
        if self.routines:
            cells = [(row.name, row.operands, row.provider, row.reason) for row in self.routines]
            sections.append(_table("routines", ("name", "operands", "by", "reason"), cells))
        if self.notes:
            sections.append("notes\n" + "\n".join(f"  {note}" for note in self.notes))
        return "\n".join(section for section in sections if section)


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes held now and at their peak by one executable or device, beside the arrays that the user holds.

    `arena`: temporaries of a call. `heap`: stacks of lanes inside kernels. `program_stack`: stacks of
    whole tensors. `spare`: results that nobody holds any more, kept to be written again.
    """

    arena_bytes: int = 0
    heap_bytes: int = 0
    heap_peak_bytes: int = 0
    program_stack_bytes: int = 0
    program_stack_peak_bytes: int = 0
    spare_bytes: int = 0


class Held:
    """What stacks hold: (rows, bytes) of each residual. A kernel has one stack for each scalar of a lane; kernels
    use the same memory one after the other, so the largest counts."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int | None, int]] = {}

    def add_concurrent(self, stacks: Iterable[tuple[int, int | None, int]]) -> None:
        """Stacks (residual, rows, bytes) that exist at the same time."""
        sums: dict[int, tuple[int | None, int]] = {}
        for residual, rows, size in stacks:
            depth, total = sums.get(residual, (None, 0))
            sums[residual] = (rows if depth is None or rows is None else max(depth, rows), total + size)
        for residual, entry in sums.items():
            if residual not in self._found or entry[1] >= self._found[residual][1]:
                self._found[residual] = entry

    def rows(self, records: Sequence[Residual]) -> tuple[ResidualRow, ...]:
        """Rows of the plan: of what some stack saves."""
        return tuple(
            [
                ResidualRow(r.name, str(r.element), r.formula, *self._found[i], r.place, r.reason, r.loc)
                for i, r in enumerate(records)
                if i in self._found
            ]
        )


def _kernel_cells(row: KernelRow) -> tuple[str, ...]:
    domain = "x".join(map(str, row.domain)) or "scalar"
    return (row.name, domain, str(row.chunks), str(row.width), str(row.stacks), str(row.launches))


def _buffer_cells(row: BufferRow) -> tuple[str, ...]:
    return (str(row.slot), row.kind, row.type, f"{row.bytes:,}", "" if row.offset is None else str(row.offset))


def _residual_cells(row: ResidualRow) -> tuple[str, ...]:
    depth = "not run" if row.depth is None else str(row.depth)
    line = str(row.loc) if row.loc is not None else ""
    return (row.name, row.type, row.formula, depth, f"{row.bytes:,}", row.place, line, row.reason)


def _table(title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    return "\n".join([title, *(_line(row, widths) for row in (header, *rows))])


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    return "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
