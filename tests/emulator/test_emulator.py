"""The emulator itself: whole programs on each GPU it plays, and what it refuses."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.amdgpu.flavour import AMDGPU
from loopgrad.codegen.targets.amdgpu.linker import link
from loopgrad.codegen.targets.amdgpu.target import relocatable
from loopgrad.runtime.devices import NUMBERED
from tests.emulator import device, disassembler
from tests.emulator.code_object import CodeObject, Kernel
from tests.emulator.decode import decode, parsed
from tests.emulator.disassembler import EmulatorError

pytestmark = pytest.mark.skipif(disassembler.library() is None, reason=device.found()[1])
WORDS = ", ".join(f"i64 %{name}" for name in ("table", "across", "along", "first", "end", "lanes"))


@pytest.fixture(params=range(len(device.PROCESSORS)), ids=device.PROCESSORS)
def emulated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(NUMBERED, "emulator", NUMBERED.get("emulator"))
    device.install()
    return f"emulator:{request.param}"


def kernel(body: str, processor: str, more: str = "") -> Kernel:
    """The kernel `k` of one lane's work; %p is the table's address. `more`: what stands beside it."""
    text = f"""target triple = "{AMDGPU.triple}"
{AMDGPU.declarations}
{more}
define amdgpu_kernel void @k({WORDS}) #1 {{
  %p = inttoptr i64 %table to ptr addrspace(1)
  %i = call i32 @llvm.amdgcn.workitem.id.x()
{body}
  ret void
}}
attributes #1 = {{ {AMDGPU.attributes.format(group=64)} }}
"""
    return CodeObject(link(relocatable(text, processor))).kernel("k")


def run(loaded: Kernel, array: np.ndarray, table: int | None = None) -> None:
    block = (ctypes.c_uint64 * 6)(array.ctypes.data if table is None else table)
    first = ctypes.addressof(block)
    held = [(array.ctypes.data, array.ctypes.data + array.nbytes), (first, first + 48)]
    loaded.launch(1, first, sorted(held))


def test_loops_and_their_gradients(emulated: str) -> None:
    with lg.default_device(emulated):
        x = lg.asarray([0.1, 0.2, 0.3, 0.4])
        trips = lg.asarray([3, 0, 64, 7])
        loss = lambda x: lg.sum(lg.fori_loop(0, trips, lambda _, v: lg.sin(v) + 0.1, x))  # noqa: E731
        value, slope = lg.value_and_grad(loss)(x)
    wanted, slopes = [], []
    for v, n in zip([0.1, 0.2, 0.3, 0.4], [3, 0, 64, 7], strict=True):
        factor = 1.0
        for _ in range(n):
            v, factor = np.sin(v) + 0.1, factor * np.cos(v)
        wanted.append(v)
        slopes.append(factor)
    np.testing.assert_allclose(value, sum(wanted), rtol=1e-14)
    np.testing.assert_allclose(slope, slopes, rtol=1e-13)


@pytest.mark.in_turns
def test_lanes_that_are_sorted(emulated: str) -> None:
    """By counters in memory of the workgroup, of which no address is a sum beyond 2**32."""
    generator = np.random.default_rng(0)
    x, trips = generator.uniform(0, 1, 1100), generator.integers(0, 20, 1100)
    with lg.default_device(emulated):
        start, bound = lg.asarray(x), lg.asarray(trips)
        got = np.asarray(lg.fori_loop(0, bound, lambda _, v: v * 0.5 + 1.0, start))
    wanted = x.copy()
    for n in range(20):
        wanted = np.where(n < trips, wanted * 0.5 + 1.0, wanted)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_angles_take_the_long_way_alone(emulated: str, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    launch = Kernel.launch
    monkeypatch.setattr(Kernel, "launch", lambda *given: steps.append(launch(*given)) or steps[-1])
    small = np.linspace(0, 6, 256).astype(dtype)
    taken = []
    for angles in (small, small * dtype(1e9)):
        with lg.default_device(emulated):
            np.testing.assert_allclose(lg.sin(lg.asarray(angles)), np.sin(angles), rtol=0, atol=np.finfo(dtype).eps)
        taken.append(sum(steps))
        steps.clear()
    assert 1.5 * taken[0] < taken[1]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_quotients_and_roots_are_rounded_right(emulated: str, dtype: type) -> None:
    """From approximations that the emulator makes as rough as hardware may, by an error that each operand has."""
    generator = np.random.default_rng(1)
    info = np.finfo(dtype)
    sizes = np.exp2(generator.uniform(info.minexp - info.nmant, info.maxexp, 500)).astype(dtype)
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, info.tiny, info.max, info.smallest_subnormal], dtype)
    x = np.concatenate([sizes, special.repeat(10)])
    signed = generator.permutation(sizes) * generator.choice([-1, 1], 500).astype(dtype)
    y = np.concatenate([signed, np.tile(special, 10)])
    with lg.default_device(emulated), np.errstate(all="ignore"):
        quotients, roots = lg.asarray(x) / lg.asarray(y), lg.sqrt(lg.asarray(x))
        np.testing.assert_array_equal(np.asarray(quotients), x / y)
        np.testing.assert_array_equal(np.asarray(roots), np.sqrt(x))


@pytest.mark.parametrize("processor", device.PROCESSORS)
def test_memory_that_nobody_allocated(processor: str) -> None:
    loaded = kernel("  store i32 %i, ptr addrspace(1) %p", processor)
    array = np.zeros(1, np.int32)
    run(loaded, array)
    assert array[0] == 63
    with pytest.raises(EmulatorError, match=r"kernel k: global_store_\w+ .* 4 bytes at .*, which nobody allocated"):
        run(loaded, array, array.ctypes.data + 1)


@pytest.mark.parametrize("processor", device.PROCESSORS)
def test_counts_of_the_lanes_below(processor: str) -> None:
    """Where a wave has 64 lanes, in two steps."""
    declared = "declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)\ndeclare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)"
    body = """  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %count = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)
  %place = getelementptr i32, ptr addrspace(1) %p, i32 %i
  store i32 %count, ptr addrspace(1) %place"""
    loaded = kernel(body, processor, declared)
    array = np.zeros(64, np.int32)
    run(loaded, array)
    np.testing.assert_array_equal(array, np.arange(64) % loaded.lanes)


@pytest.mark.parametrize("processor", device.PROCESSORS)
def test_an_address_in_a_workgroup_does_not_wrap_around(processor: str) -> None:
    """LLVM makes 4 * -i of this index, which is added to what the instruction adds for the 100."""
    body = """  %j = sub i32 100, %i
  %q = getelementptr i32, ptr addrspace(3) @here, i32 %j
  store volatile i32 %i, ptr addrspace(3) %q"""
    loaded = kernel(body, processor, "@here = internal addrspace(3) global [101 x i32] poison, align 16")
    with pytest.raises(EmulatorError, match=r"ds_\w+ .* offset:400 .* 4 bytes at 4294967\d+ of 404"):
        run(loaded, np.zeros(1, np.int32))


def made_up(*texts: str) -> Kernel:
    """A kernel of these instructions of gfx1100, each with its size before it, where its address comes in s[0:1]."""
    lines, address = [], 0x1000
    for text in texts:
        size, _, rest = text.partition(" ")
        lines.append(disassembler.Line(address, int(size), rest))
        address += int(size)
    return Kernel("k", decode(lines, False), 32, 32, 0, 0, 0, 2, 0xF0, False)


def test_far_branches() -> None:
    """As LLVM makes them where an offset of 16 bits is too short: by sums with the address of what follows."""
    loaded = made_up(
        "8 s_load_b64 s[4:5], s[0:1], 0x0",
        "4 v_mov_b32_e32 v0, 0",
        "4 v_mov_b32_e32 v1, 1",
        "4 s_getpc_b64 s[6:7]",
        "8 s_add_u32 s6, s6, 0x18",  # behind the next four
        "4 s_addc_u32 s7, s7, 0",
        "4 s_setpc_b64 s[6:7]",
        "4 v_mov_b32_e32 v1, 2",
        "4 s_setpc_b64 s[8:9]",
        "4 s_add_u32 s6, s6, -8",  # the one before the last
        "4 s_addc_u32 s7, s7, -1",
        "4 s_swappc_b64 s[8:9], s[6:7]",  # and back
        "8 global_store_b32 v0, v1, s[4:5]",
        "4 s_endpgm",
    )
    array = np.zeros(1, np.int32)
    run(loaded, array)
    assert array[0] == 2
    astray = made_up("4 s_getpc_b64 s[6:7]", "4 s_add_u32 s6, s6, 2", "4 s_setpc_b64 s[6:7]", "4 s_endpgm")
    with pytest.raises(EmulatorError, match=r"s_setpc_b64 .* to 0x1006, where no instruction begins"):
        run(astray, array)


@pytest.mark.parametrize("processor", device.PROCESSORS)
@pytest.mark.parametrize(("name", "expected"), [("add", 64), ("umax", 63), ("or", 63), ("sub", -64), ("xchg", 63)])
def test_atomics_of_all_lanes(name: str, expected: int, processor: str) -> None:
    value = "1" if name in ("add", "sub") else "%i"
    scope = 'syncscope("agent") monotonic'
    loaded = kernel(f"  %o = atomicrmw {name} ptr addrspace(1) %p, i32 {value} {scope}", processor)
    array = np.zeros(1, np.int32)
    run(loaded, array)
    assert array[0] == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("v_dot4_i32_iu8 v0, v1, v2, v3", "expected an instruction that the emulator has, got 'v_dot4_i32_iu8"),
        ("v_add_f32_dpp v0, v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf", "expected modifiers that the emulator has"),
        ("v_add_f32_e32 v0, v1, ttmp3", "expected an operand, got 'ttmp3'"),
        ("v_add_f32_e32 v0, v1", "expected 3 operands"),
        ("s_rfe_b64 s[0:1]", "expected an instruction that the emulator has"),
        ("v_mul_lo_u32 v0, v1, v2 clamp", "expected modifiers"),
    ],
)
def test_what_it_has_not_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(EmulatorError, match=reason):
        parsed(text, False)
