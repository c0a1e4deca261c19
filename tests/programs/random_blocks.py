"""Philox in Python's integers, as its paper has it, and its published answers (Random123, `kat_vectors`)."""

from __future__ import annotations

from collections.abc import Sequence

FACTORS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}
STEPS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}

ALL = 0xFFFFFFFFFFFFFFFF
PI = [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89]
KNOWN = {
    32: [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
    64: [
        ([0] * 4, [0] * 2, [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]),
        ([ALL] * 4, [ALL] * 2, [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0]),
        (
            PI,
            [0x452821E638D01377, 0xBE5466CF34E90C6C],
            [0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6],
        ),
    ],
}


def block(counter: Sequence[int], key: Sequence[int], bits: int = 32) -> list[int]:
    """The four words of a counter and a key."""
    (c0, c1, c2, c3), (k0, k1), mask = counter, key, (1 << bits) - 1
    for _ in range(10):
        first, second = c0 * FACTORS[bits][0], c2 * FACTORS[bits][1]
        c0, c1, c2, c3 = (second >> bits) ^ c1 ^ k0, second & mask, (first >> bits) ^ c3 ^ k1, first & mask
        k0, k1 = (k0 + STEPS[bits][0]) & mask, (k1 + STEPS[bits][1]) & mask
    return [c0, c1, c2, c3]


def words(key: int, lane: int, step: int, attempt: int = 0) -> list[int]:
    """Those that `lg.random` takes for a lane's step."""
    low = 0xFFFFFFFF
    counter = [lane & low, lane >> 32 | attempt << 8, step & low, step >> 32]
    return block(counter, [key & low, key >> 32])


def double(key: int, lane: int, step: int) -> float:
    """The float64 in [0, 1) of a lane's step."""
    upper, lower, *_ = words(key, lane, step)
    return ((upper >> 5) * 2**26 + (lower >> 6)) / 2**53
