"""Names of instructions: what older architectures call those of RDNA 3, and what memory instructions' names say."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.emulator import layout

ENCODINGS = ("_e32", "_e64", "_sdwa", "_dpp", "_e64_dpp")

OLDER = {
    "v_add_u32": "v_add_nc_u32", "v_sub_u32": "v_sub_nc_u32", "v_subrev_u32": "v_subrev_nc_u32",
    "v_add_i32": "v_add_nc_i32", "v_sub_i32": "v_sub_nc_i32", "v_add_u16": "v_add_nc_u16",
    "v_sub_u16": "v_sub_nc_u16", "v_subrev_u16": "v_subrev_nc_u16", "v_addc_co_u32": "v_add_co_ci_u32",
    "v_subb_co_u32": "v_sub_co_ci_u32", "v_subbrev_co_u32": "v_subrev_co_ci_u32", "v_ffbh_u32": "v_clz_i32_u32",
    "v_ffbh_i32": "v_cls_i32", "v_ffbl_b32": "v_ctz_i32_b32", "v_mul_legacy_f32": "v_mul_legacy_f32",
    "v_mul_dx9_zero_f32": "v_mul_legacy_f32", "v_cvt_rpi_i32_f32": "v_cvt_nearest_i32_f32",
    "v_cvt_flr_i32_f32": "v_cvt_floor_i32_f32", "v_cvt_pkrtz_f16_f32": "v_cvt_pk_rtz_f16_f32",
    "v_mad_legacy_u16": "v_mad_u16", "v_fma_legacy_f16": "v_fma_f16", "v_accvgpr_read": "v_accvgpr_read_b32",
    "v_accvgpr_write": "v_accvgpr_write_b32", "v_fmac_legacy_f32": "v_fmac_dx9_zero_f32",
    "s_andn2_b32": "s_and_not1_b32", "s_andn2_b64": "s_and_not1_b64", "s_orn2_b32": "s_or_not1_b32",
    "s_orn2_b64": "s_or_not1_b64", "s_andn2_saveexec_b64": "s_and_not1_saveexec_b64",
    "s_orn2_saveexec_b64": "s_or_not1_saveexec_b64", "s_ff1_i32_b32": "s_ctz_i32_b32",
    "s_ff1_i32_b64": "s_ctz_i32_b64", "s_flbit_i32_b32": "s_clz_i32_u32", "s_flbit_i32_b64": "s_clz_i32_u64",
    "s_flbit_i32": "s_cls_i32", "s_flbit_i32_i64": "s_cls_i32_i64",
}  # fmt: skip
FUSED = ("v_fmaak_", "v_fmamk_", "v_fmac_", "v_madak_", "v_madmk_", "v_mac_")  # forms of fma (of mad), in its order

SIZES = {
    "dword": (4, layout.PLAIN), "dwordx2": (8, layout.PLAIN), "dwordx3": (12, layout.PLAIN),
    "dwordx4": (16, layout.PLAIN), "b32": (4, layout.PLAIN), "b64": (8, layout.PLAIN), "b96": (12, layout.PLAIN),
    "b128": (16, layout.PLAIN), "ubyte": (1, layout.U8), "u8": (1, layout.U8), "sbyte": (1, layout.S8),
    "i8": (1, layout.S8), "ushort": (2, layout.U16), "u16": (2, layout.U16), "sshort": (2, layout.S16),
    "i16": (2, layout.S16), "byte": (1, layout.U8), "b8": (1, layout.U8), "short": (2, layout.U16),
    "b16": (2, layout.U16), "byte_d16_hi": (1, layout.HIGH_HALF), "short_d16_hi": (2, layout.HIGH_HALF),
    "d16_hi_b8": (1, layout.HIGH_HALF), "d16_hi_b16": (2, layout.HIGH_HALF), "short_d16": (2, layout.LOW_HALF),
    "d16_b16": (2, layout.LOW_HALF), "ubyte_d16": (1, layout.LOW_U8), "d16_u8": (1, layout.LOW_U8),
    "sbyte_d16": (1, layout.LOW_S8), "d16_i8": (1, layout.LOW_S8), "ubyte_d16_hi": (1, layout.HIGH_U8),
    "d16_hi_u8": (1, layout.HIGH_U8), "sbyte_d16_hi": (1, layout.HIGH_S8), "d16_hi_i8": (1, layout.HIGH_S8),
    "u8_d16": (1, layout.LOW_U8), "i8_d16": (1, layout.LOW_S8), "u16_d16": (2, layout.LOW_HALF),
    "u8_d16_hi": (1, layout.HIGH_U8), "i8_d16_hi": (1, layout.HIGH_S8), "u16_d16_hi": (2, layout.HIGH_HALF),
    "b8_d16_hi": (1, layout.HIGH_HALF), "b16_d16_hi": (2, layout.HIGH_HALF),
}  # fmt: skip
SPACES = {"global": layout.GLOBAL, "flat": layout.GLOBAL, "scratch": layout.SCRATCH, "buffer": layout.SCRATCH,
          "ds": layout.GROUP}  # fmt: skip
SCALAR_LOAD = re.compile(r"s_load_(dword|b)(x?\d*)$")
WAYS = {"read": "load", "write": "store", "load": "load", "store": "store"}
TWO = re.compile(r"(read|write|load|store)_?2(?:addr)?(_stride64|st64)?_b(32|64)$")
ATOMIC = re.compile(
    r"(?:atomic_)?(add|sub|and|or|xor|[su]?min|[su]?max|swap|cmpswap|wrxchg|storexchg|cmpst|cmpstore)"
    r"(_rtn)?(?:_([biuf]))?(32|64)?(_x2)?$"
)
EXCHANGES = {"wrxchg": "swap", "storexchg": "swap", "cmpst": "cmpswap", "cmpstore": "cmpswap"}


@dataclass(frozen=True, slots=True)
class Access:
    """A memory instruction. `row`: its name in the C code; `bytes` of a lane (of each part where there are two);
    `swapped`: of a compare and swap, the new value comes first. `spread`: elements between units of two offsets."""

    row: str
    space: int
    bytes: int
    form: int = layout.PLAIN
    returns: bool = False
    swapped: bool = False
    spread: int = 1


def plain(name: str) -> str:
    """Without the encoding, as RDNA 3 calls it."""
    for encoding in ENCODINGS:
        name = name.removesuffix(encoding)
    name = OLDER.get(name, name)
    for form in FUSED:
        if name.startswith(form):
            name = name.replace(form, "v_fma_" if form[2] == "f" else "v_mad_")
    return name


def access(name: str) -> Access | None:
    """What a memory instruction does; None where the name isn't one's."""
    if found := SCALAR_LOAD.match(name):
        unit, count = found.groups()
        words = int(count.removeprefix("x") or 1) if unit == "dword" else int(count) // 32
        return Access("load_scalar", layout.SCALAR_MEMORY, 4 * words)
    head, _, rest = name.partition("_")
    if head not in SPACES:
        return None
    space = SPACES[head]
    way, _, size = rest.partition("_")
    if space == layout.GROUP:
        if two := TWO.match(rest):
            return Access(f"{WAYS[two[1]]}_two", space, int(two[3]) // 8, spread=64 if two[2] else 1)
        way = WAYS.get(way, way)
    if way in ("load", "store") and size in SIZES:
        return Access(way, space, *SIZES[size])
    found = ATOMIC.match(rest)
    return None if found is None else _atomic(space, *found.groups())


def _atomic(space: int, how: str, returns: str, kind: str, bits: str, doubled: str) -> Access:
    width = 64 if doubled else int(bits or 32)
    swapped = how == "cmpstore"
    how = EXCHANGES.get(how, how)
    if how.endswith(("min", "max")):
        kind = how[0].replace("s", "i") if how[0] in "su" else kind
        row = f"atomic_{how[-3:]}_{kind}_{width}"
    else:
        row = f"atomic_{how}_{'f' if kind == 'f' else ''}{width}"
    return Access(row, space, width // 8, returns=bool(returns), swapped=swapped)
