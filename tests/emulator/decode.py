"""Text of instructions -> records that the C code runs.

An operand is a register, a constant or a keyword, with signs around it; what follows the last operand after
blanks are modifiers. An instruction without a meaning in the C code is refused by name.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence
from functools import cache
from typing import Final

from tests.emulator import layout
from tests.emulator.disassembler import EmulatorError, Line
from tests.emulator.layout import Inst, Operand
from tests.emulator.names import Access, access, plain

REGISTER: Final = re.compile(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])$")
NAMED: Final = {"vcc": (106, 2), "vcc_lo": (106, 1), "vcc_hi": (107, 1), "m0": (125, 1), "exec": (126, 2),
                "exec_lo": (126, 1), "exec_hi": (127, 1), "null": (124, 1), "off": (124, 1), "scc": (128, 1),
                "src_scc": (128, 1), "src_vccz": (129, 1)}  # fmt: skip
VCC: Final = "vcc"
ACCUMULATORS: Final = 256  # where registers a0, a1, ... begin among the vector registers
PARTS: Final = {"DWORD": layout.WHOLE, "BYTE_0": layout.BYTE_0, "BYTE_1": layout.BYTE_1, "BYTE_2": layout.BYTE_2,
                "BYTE_3": layout.BYTE_3, "WORD_0": layout.WORD_0, "WORD_1": layout.WORD_1}  # fmt: skip
SCALES: Final = {"mul:2": 1, "mul:4": 2, "div:2": 3}
SATURATING: Final = ("v_add_nc_", "v_sub_nc_", "v_subrev_nc_", "v_add_u", "v_sub_u", "v_subrev_u", "v_add_i", "v_sub_i")
HINTS: Final = frozenset(("glc", "slc", "dlc", "nt", "sc0", "sc1", "offen"))
WITHOUT_OPERANDS: Final = ("s_waitcnt", "s_delay_alu", "s_sendmsg", "s_nop", "s_clause", "s_sleep", "s_setprio",
                           "s_set_inst", "s_inst_prefetch", "s_endpgm", "s_barrier", "buffer_gl", "buffer_inv",
                           "buffer_wb", "s_icache", "s_dcache", "v_nop")  # fmt: skip


def split(text: str) -> tuple[list[str], list[str]]:
    """Operands and modifiers: split at commas, and behind the last at blanks, outside brackets."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    words = re.findall(r"(?:[^\s\[(]|\[[^\]]*\]|\([^)]*\))+", part)
    return [*parts, *words[:1]], words[1:]


def operand(text: str) -> Operand:
    found = Operand()
    if text.startswith("-") and not text[1:].replace(".", "", 1).isdigit():
        found.negative, text = 1, text[1:]
    for name, mark in (("|", "|"), ("abs(", ")"), ("neg(", ")"), ("sext(", ")")):
        if text.startswith(name) and text.endswith(mark):
            text = text[len(name) : -len(mark)]
            found.absolute |= name in ("|", "abs(")
            found.negative |= name == "neg("
            found.sign_extended |= name == "sext("
    if match := REGISTER.match(text):
        file, one, first, last = match.groups()
        number = int(one or first)
        found.kind = layout.SCALAR if file == "s" else layout.VECTOR
        found.number = number + (ACCUMULATORS if file == "a" else 0)
        found.count = 1 if one else int(last) - int(first) + 1
    elif text in NAMED:
        found.kind = layout.SCALAR
        found.number, found.count = NAMED[text]
    elif text.startswith("0x"):
        found.kind, found.value = layout.LITERAL, int(text, 16)
    elif re.fullmatch(r"-?\d+", text):
        found.kind, found.value = layout.CONSTANT, int(text) & 0xFFFFFFFFFFFFFFFF
    elif re.fullmatch(r"-?\d+\.\d+", text):
        value = 0.15915494309189532 if text.startswith("0.159") else float(text)
        found.kind, found.value = layout.INLINE_FLOAT, struct.unpack("<Q", struct.pack("<d", value))[0]
    else:
        raise EmulatorError(f"expected an operand, got {text!r}")
    return found


def number(text: str) -> int:
    return int(text, 0)


def bits(text: str) -> int:
    """[1,0,1] as the number with those bits, first the lowest."""
    return sum(int(bit) << i for i, bit in enumerate(text.strip("[]").split(",")))


@cache
def parsed(text: str, older: bool) -> tuple[Inst, bool]:
    """The record, and whether it branches: its target is then relative to the next instruction, in bytes.
    `older`: an architecture before RDNA."""
    first, _, second = text.partition(" :: ")
    inst, branches = _parsed(first, older)
    if second:
        inst.second = keep(_parsed(second.replace("v_dual_", "v_"), older)[0])
    return inst, branches


_kept: list[object] = []


def keep(thing: Inst) -> int:
    """Its address, for as long as the process lives."""
    _kept.append(thing)
    _kept.append(thing)
    return ctypes.addressof(thing)


def _parsed(text: str, older: bool) -> tuple[Inst, bool]:
    name, _, rest = text.partition(" ")
    dual = name.startswith("v_dual_")
    name = name.replace("v_dual_", "v_")
    operands, modifiers = split(rest)
    memory = access(name)
    row = memory.row if memory else plain(name)
    inst = Inst()
    inst.row = layout.library().find_row(row.encode())
    if not inst.row:
        raise EmulatorError(f"expected an instruction that the emulator has, got {text!r}")
    inst.text = text.encode()
    if name.startswith(WITHOUT_OPERANDS):
        return inst, False
    if name.startswith(("s_branch", "s_cbranch")):
        distance = number(operands[0]) & 0xFFFF
        inst.offset = 4 * (distance - 0x10000 if distance & 0x8000 else distance)
        return inst, True
    if memory is not None:
        _memory(inst, memory, name, operands, modifiers)
        return inst, False
    if name.startswith(("s_setreg", "s_getreg", "s_denorm_mode", "s_round_mode")):
        _mode(inst, name, operands)
        return inst, False
    _computing(inst, name, row, operands, older, dual)
    _modifiers(inst, name, modifiers)
    return inst, False


def _computing(inst: Inst, name: str, row: str, operands: list[str], older: bool, dual: bool) -> None:
    c = layout.library()
    count = c.operands(inst.row)
    if not count:  # its own function reads what it needs
        count, result, second = len(operands) - 1, True, False
    else:
        result, second = bool(c.has_result(inst.row)), bool(c.has_second(inst.row))
        if row.startswith("v_cmpx") and not older:
            result = False
    if "fmac" in name or name.startswith("v_mac_"):
        operands = [*operands, operands[0]]
    if row.startswith("v_div_fmas") or (row == "v_cndmask_b32" and (dual or len(operands) == 3)):
        operands = [*operands, VCC]
    if row in ("s_addk_i32", "s_mulk_i32"):
        operands = [operands[0], *operands]
    wanted = result + second + count
    if len(operands) != wanted:
        raise EmulatorError(f"expected {wanted} operands, got {inst.text.decode()!r}")
    places = [operand(text) for text in operands]
    if result:
        inst.to = places.pop(0)
    if second:
        inst.also = places.pop(0)
    for i, place in enumerate(places):
        inst.source[3 if row.startswith("v_div_fmas") and i == 3 else i] = place


def _modifiers(inst: Inst, name: str, modifiers: Sequence[str]) -> None:
    packed = name.startswith("v_pk_") and not name.startswith(("v_pk_mov",))
    mixed = name.startswith("v_fma_mix")
    if packed:
        inst.packed = 32 if name.endswith("f32") else 16
    if packed or mixed:
        inst.half_high = 0 if mixed else 7
    for modifier in modifiers:
        key, _, value = modifier.partition(":")
        if modifier == "clamp" and (name.startswith(SATURATING) or re.search(r"_f(16|32|64)\b", plain(name))):
            inst.clamp = 1
        elif modifier in SCALES:
            inst.output_scale = SCALES[modifier]
        elif key == "op_sel" and (packed or mixed or name.startswith("v_pk_mov")):
            inst.half = bits(value)
        elif key == "op_sel":
            _halves(inst, bits(value), value.count(",") + 1)
        elif key in ("op_sel_hi", "neg_lo", "neg_hi"):
            field = {"op_sel_hi": "half_high", "neg_lo": "negative_low", "neg_hi": "negative_high"}[key]
            setattr(inst, field, bits(value))
        elif key == "dst_sel":
            inst.to.part = PARTS[value]
        elif key == "dst_unused" and value in ("UNUSED_PAD", "UNUSED_PRESERVE"):
            inst.to.preserved = value == "UNUSED_PRESERVE"
        elif key in ("src0_sel", "src1_sel"):
            inst.source[int(key[3])].part = PARTS[value]
        else:
            raise EmulatorError(f"expected modifiers that the emulator has, got {inst.text.decode()!r}")
    if mixed:
        for i in range(3):
            inst.negative_low |= inst.source[i].negative << i
            inst.negative_high |= inst.source[i].absolute << i
            inst.source[i].negative = inst.source[i].absolute = 0
        if name == "v_fma_mixhi_f16":
            inst.to.part, inst.to.preserved = layout.WORD_1, 1
        elif name == "v_fma_mixlo_f16":
            inst.to.part, inst.to.preserved = layout.WORD_0, 1


def _halves(inst: Inst, chosen: int, count: int) -> None:
    """op_sel of an instruction on 16 bits: which half of each operand, and, last, of the result."""
    c = layout.library()
    for i in range(count - 1):
        if chosen >> i & 1:
            inst.source[i].part = layout.WORD_1
    if c.is_half(inst.row, -1) and inst.to.kind == layout.VECTOR:
        inst.to.part = layout.WORD_1 if chosen >> (count - 1) & 1 else layout.WORD_0
        inst.to.preserved = 1
    elif chosen >> (count - 1) & 1:
        raise EmulatorError(f"expected a result of 16 bits, got {inst.text.decode()!r}")


def _mode(inst: Inst, name: str, operands: list[str]) -> None:
    if name in ("s_denorm_mode", "s_round_mode"):
        inst.offset = number(operands[0])
        return
    reading = name == "s_getreg_b32"
    register, place = (operands[1], operands[0]) if reading else (operands[0], operands[1])
    found = re.fullmatch(r"hwreg\(HW_REG_MODE(?:, (\d+), (\d+))?\)", register)
    if found is None:
        raise EmulatorError(f"expected the register MODE, got {inst.text.decode()!r}")
    inst.offset, inst.bytes = int(found[1] or 0), int(found[2] or 32)
    if reading:
        inst.to = operand(place)
    else:
        inst.source[0] = operand(place)


def _memory(inst: Inst, memory: Access, name: str, operands: list[str], modifiers: list[str]) -> None:
    inst.space, inst.bytes, inst.form = memory.space, memory.bytes, memory.form
    inst.returns = memory.returns
    offsets = [0, 0]
    for modifier in modifiers:
        key, _, value = modifier.partition(":")
        if key in ("offset", "offset0", "offset1"):
            offsets[key == "offset1"] = number(value)
        elif modifier not in HINTS:
            raise EmulatorError(f"expected modifiers that the emulator has, got {inst.text.decode()!r}")
    unit = memory.bytes * memory.spread if memory.row.endswith("_two") else 1
    inst.offset, inst.target = offsets[0] * unit, offsets[1] * unit
    atomic = memory.row.startswith("atomic")
    if atomic and memory.space != layout.GROUP:
        inst.returns = bool({"glc", "sc0"} & set(modifiers))
    places = list(operands)
    if memory.row.startswith("load") or inst.returns:
        inst.to = operand(places.pop(0))
    if memory.space == layout.SCALAR_MEMORY:
        inst.source[0] = operand(places[0])
        if places[1].startswith("0x"):
            inst.offset += number(places[1])
        else:
            inst.source[1] = operand(places[1])
    elif memory.space == layout.GROUP:
        address, *data = [operand(text) for text in places]
        data = data[::-1] if memory.swapped else data
        inst.source[0] = address
        for i, one in enumerate(data):
            inst.source[2 + i] = one
    elif name.startswith("buffer"):
        _buffer(inst, places, "offen" in modifiers)
    else:
        inst.source[0] = operand(places.pop(0))
        if not memory.row.startswith("load"):
            inst.source[2] = operand(places.pop(0))
        if places:
            inst.source[1] = operand(places.pop(0))


def _buffer(inst: Inst, places: list[str], indexed: bool) -> None:
    """Private memory by the buffer of the wave: data, offset of the lane, buffer, offset of the wave."""
    if not inst.to.kind:
        inst.source[2] = operand(places.pop(0))
    lane, _, wave = [operand(text) for text in places]
    if indexed:
        inst.source[0] = lane
    if wave.kind == layout.SCALAR:
        inst.source[1] = wave
    else:
        inst.offset += wave.value


def decode(lines: Sequence[Line], older: bool) -> ctypes.Array[Inst]:
    """The records of a kernel, in order."""
    places = {line.address: i for i, line in enumerate(lines)}
    records = (Inst * len(lines))()
    for i, line in enumerate(lines):
        inst, branches = parsed(line.text, older)
        records[i] = inst
        records[i].address = line.address
        if branches:
            records[i].target = places[line.address + line.size + inst.offset]
    return records
