"""The optimisations of the GPU targets, each with what takes its place where it is switched off.

A switch changes no meaning: programs give the same results without it, some of them in other bits (where sums are made
in another order). `benchmarks.tuning` times workloads with and without; what isn't worth 5 % of any is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from loopgrad.codegen.kernel.nodes import walk
from loopgrad.codegen.kernel.ranges import Ranges
from loopgrad.codegen.targets.gpu import compile
from loopgrad.codegen.targets.gpu.emit import context, control, exact_sum, instructions, joint_quotients, kernel, stacks
from loopgrad.codegen.targets.gpu.lanes import layout, plan, row_stages, stage_tiles, tiles
from loopgrad.codegen.targets.gpu.support import steps
from loopgrad.codegen.targets.gpu.support.support_kernels import copy_kernel
from loopgrad.codegen.targets.llvm_gpu import image
from loopgrad.codegen.targets.llvm_gpu.assembler import LlvmAssembler
from loopgrad.codegen.targets.nvptx import flavour, target
from loopgrad.codegen.targets.nvptx.assembler import NvptxAssembler
from loopgrad.runtime.cuda.api import CudaApi
from loopgrad.runtime.gpu import context as runs
from loopgrad.runtime.gpu import region_recorder
from loopgrad.runtime.gpu.host_driven import HostDriven
from loopgrad.runtime.gpu.streams import driver

Change = tuple[Any, str, Any]
"""An owner (a module or class), a name in it, and what it becomes."""

ENDLESS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Switch:
    """What is changed to switch it off, and the workloads and programs that it could matter for."""

    workloads: tuple[str, ...]
    changes: tuple[Change, ...]


def _none(*_: Any, **__: Any) -> None:
    """Nothing found, nothing done."""


def machine_code(**fields: Any) -> Change:
    """Other attributes of kernels for CUDA."""
    return (target, "NVPTX", replace(flavour.NVPTX, **fields))


_folded_tiles, _folds_together = plan.folded_tiles, plan.folds_together
_load, _trip_count = LlvmAssembler.load, kernel.trip_count


def _without_waiting_sums(*arguments: Any) -> Any:
    found = _folded_tiles(*arguments)
    return found and replace(found, spilled=False)


def _one_at_a_time(*arguments: Any) -> int:
    return min(_folds_together(*arguments), 1)


def _batches(given: Any, _: Any) -> list[list[int]]:
    return [[slot] for slot in range(len(given.reductions))]


def _load_plainly(self: Any, address: Any, type: str, invariant: bool = False) -> Any:
    return _load(self, address, type)


def _at(self: Any, base: Any, index: Any, size: int) -> Any:
    return self.offset(base, self.b.inst("IMul", "i64", index, self.b.const("i64", size)))


@contextmanager
def _popping(_: Any, __: Any, count: Any) -> Iterator[Any]:
    yield count


class _Constants(Ranges):
    """Knows dtypes and what is written down."""

    def _walk(self) -> None:
        assert self._found is not None
        for op in walk(self._kernel.body):
            if op.opcode == "const" and op.results[0].dtype.is_integer:
                self._found[op.results[0]] = (op.attrs["value"],) * 2


def _wide_digits(e: Any, number: Any, extents: tuple[int, ...]) -> list[Any]:
    found = []
    for extent in reversed(extents[1:]):
        number, digit = tiles.divided(e, number, max(extent, 1))
        found.append(digit)
    return [number, *reversed(found)] if extents else []


def _sorted_in_any_case(given: Any) -> Any:
    found = _trip_count(given)
    return found and replace(found, pays=0)


def _copy_by_element(self: Any, slot: int) -> int:
    type = self.slots[slot].type
    found: int = self.launch(self.support.add(copy_kernel(type.dtype.bits // 8 or 1)), type.size)
    return found


NEVER_LATER: Final = (runs.GpuContext, "deferrable", property(lambda _: False))
LOOPS: Final = ("ragged", "ragged_skewed")
WALKS: Final = ("newton", "sphere_trace")
SWITCHES: Final[Mapping[str, Switch]] = {
    # lanes with loops
    "sorted_lanes": Switch((*LOOPS, "unforeseen"), ((plan, "SORTED", ENDLESS),)),
    "measured_lanes": Switch(("unforeseen", *WALKS), ((plan, "measured_tiles", _none),)),
    "sampled_lanes": Switch(("newton", "unforeseen"), ((kernel, "trip_count", _sorted_in_any_case),)),
    "own_number_again": Switch(LOOPS, (machine_code(local_id_again=""),)),
    "registers_of_sorted": Switch(LOOPS, (machine_code(sorted_attributes=""),)),
    "registers_of_light_measured": Switch(("unforeseen", "newton"), ((image, "small", lambda _: False),)),
    "several_lanes_with_loops": Switch(WALKS, ((plan, "FEW_LANES", 1),)),
    # stacks
    "cached_stacks": Switch(LOOPS, ((driver, "CACHE_SHARE", ENDLESS), (driver, "MOST_STACKS", ENDLESS))),
    "few_stack_bytes": Switch(("ragged_skewed",), ((driver, "MOST_STACKS", ENDLESS),)),
    "unlooked_pops": Switch(("ragged", "ode", "ragged_skewed", "sphere_trace"), ((control, "popping", _popping),)),
    "one_look_after_pushes": Switch(("ragged", "ode"), ((stacks, "deepens", lambda *_: set()),)),
    # reductions
    "short_rows": Switch(("rows_of_400", "rows_of_100"), ((plan, "short_rows", _none),)),
    "parts_of_short_rows": Switch(("rows_of_100", "rows_of_400"), ((plan, "MOST_PARTS", 1),)),
    "waiting_sums": Switch(("sphere_trace",), ((plan, "folded_tiles", _without_waiting_sums),)),
    "many_sums": Switch(("sphere_trace",), ((plan, "FEW_SUMS", ENDLESS),)),
    "narrow_groups_of_many_sums": Switch(("sphere_trace",), (machine_code(summed_group=0),)),
    "registers_of_many_sums": Switch(("sphere_trace",), (machine_code(summed_attributes=""),)),
    "folds_together": Switch(("sphere_trace",), ((plan, "folds_together", _one_at_a_time),)),
    "folds_in_one_launch": Switch(("sphere_trace",), tuple((m, "batches", _batches) for m in (kernel, layout))),
    "folds_in_two_steps": Switch(("call", "value"), tuple((m, "fold_columns", lambda _: 1) for m in (plan, tiles))),
    # streams
    "lanes_at_once": Switch(("value", "axpy", "ratios"), ((plan, "most_unrolled", lambda _: 1),)),
    "shared_branches": Switch(("value", "ratios"), ((tiles, "for_all_lanes", _none),)),
    "vectors": Switch(
        ("axpy", "clipped", "standardised"),
        tuple((m, "lanes_side_by_side", lambda *_: 1) for m in (plan, stage_tiles)),
    ),
    "values_of_rows": Switch(("standardised",), ((row_stages, "keeps_row_elements", lambda *_: False),)),
    "registers_of_stages": Switch(("standardised",), (machine_code(staged_attributes=""),)),
    "boxes": Switch(("transposed",), ((layout, "boxed", _none),)),
    "chosen_reads": Switch(("joined",), ((compile, "chosen", lambda given: given),)),
    "loads_first": Switch(("value", "axpy"), ((tiles, "MOST_LOADED", 0),)),
    "short_numbers": Switch(
        ("axpy", "planes", "ragged", "newton", "value"),
        tuple((m, "short", lambda _, lane: lane) for m in (tiles, kernel)),
    ),
    "short_digits": Switch(("planes", "small_planes"), tuple((m, "digits", _wide_digits) for m in (tiles, kernel))),
    "known_distances": Switch(("axpy", "ratios", "value"), ((instructions.Instructions, "at", _at),)),
    "invariant_loads": Switch(
        ("axpy", "ode", "planes", "ragged", "ragged_skewed", "sphere_trace", "value"),
        ((LlvmAssembler, "load", _load_plainly),),
    ),
    "shared_results": Switch(("ragged",), ((instructions.Instructions, "once", lambda _, __, make: make()),)),
    "ranges": Switch(("indices", "wave", "hashes"), ((context, "Ranges", _Constants),)),
    # arithmetic
    "joint_quotients": Switch(WALKS, ((kernel, "with_joint_quotients", lambda ops, _: ops),)),
    "guards_of_quotients": Switch(WALKS, ((joint_quotients, "_asks_for", lambda *_: False),)),
    "own_quotients": Switch(
        ("newton", "ratios"), ((NvptxAssembler, "_division", _none), (NvptxAssembler, "corrected_quotients", ()))
    ),
    "own_root": Switch(("sphere_trace",), ((NvptxAssembler, "extended", LlvmAssembler.extended),)),
    # elements that lanes share
    "copies_of_exact_sums": Switch(("scattered", "tallied", "few_bins"), ((exact_sum, "MOST_COPIES", 1),)),
    "bounded_exact_sums": Switch(("scattered",), ((exact_sum, "contributions", _none),)),
    "private_copies": Switch(("multiplied",), ((layout, "COPY_ELEMENTS", 0),)),
    # products
    "rectangles": Switch(("products",), ((steps, "in_rectangles", _none),)),
    # runs
    "ledger": Switch(("ragged", "call"), (NEVER_LATER,)),
    "recordings": Switch(("call", "wave", "halves"), ((runs.GpuContext, "_suited", lambda _: HostDriven), NEVER_LATER)),
    "graphs": Switch(("small", "sphere_trace"), ((CudaApi, "graph_size", ENDLESS),)),
    "fewer_updates": Switch(("wave",), ((region_recorder, "tidy", lambda block, _: block),)),
    "widest_copies": Switch(("wave", "halves"), ((steps._Supported, "copy", _copy_by_element),)),
}


@contextmanager
def changed(changes: list[Change]) -> Iterator[None]:
    """Inside, the owners have these."""
    missing = object()
    before = [(owner, name, vars(owner).get(name, missing)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
