"""Signals and text: windows, filters, transforms, wavelets, bits, hashes, distances of words."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import Loss, at, loss, script

SIGNAL = sizes(2**18, 4096, 2**22)
BYTES = sizes(2**20, 4096, 2**24)
WORDS = sizes(2**18, 100, 2**23)
FRAME: Final = 512
LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
DAUBECHIES: Final = (0.48296291, 0.83651630, 0.22414387, -0.12940952)


def signal(n: int) -> Arrays:
    return named(x=normal((n,))[0])


def frames(xp: Any, x: Any, step: int = FRAME // 2) -> Any:
    """Those that overlap by half, through Hann's window."""
    places = xp.arange((x.shape[0] - FRAME) // step + 1)[:, None] * step + xp.arange(FRAME)
    return x[places] * xp.hanning(FRAME).astype(x.dtype)


def spectrogram(xp: Any, x: Any) -> Any:
    spectrum = xp.fft.rfft(frames(xp, x))
    return xp.log(xp.real(spectrum) ** 2 + xp.imag(spectrum) ** 2 + 1e-6)


def bands(xp: Any, x: Any, filters: Any) -> Any:
    """Energies of bands, their logarithms through a cosine transform: what speech is recognised by."""
    energy = xp.log(xp.abs(xp.fft.rfft(frames(xp, x))) ** 2 @ filters + 1e-3)
    k = xp.arange(13)[:, None] * (2 * xp.arange(40) + 1)
    return energy @ xp.cos(math.pi / 80 * k).astype(x.dtype).T


def spectral_loss(xp: Any, x: Any, y: Any) -> Any:
    a, b = (xp.fft.rfft(frames(xp, v)) for v in (x, y))
    a, b = (xp.sqrt(xp.real(s) ** 2 + xp.imag(s) ** 2 + 1e-3) for s in (a, b))
    return xp.mean(xp.abs(a - b)) + xp.mean((xp.log(a) - xp.log(b)) ** 2)


def frame_features(xp: Any, x: Any) -> Any:
    """Loudness, crossings of zero and crest of each frame."""
    f = x.reshape(-1, FRAME)
    loud = xp.sqrt(xp.mean(f * f, 1))
    crossings = xp.sum((f[:, 1:] > 0) != (f[:, :-1] > 0), 1).astype(x.dtype)
    return loud, crossings, xp.max(xp.abs(f), 1) / loud


def haar(xp: Any, x: Any) -> Any:
    """Four levels of Haar's wavelet."""
    made = []
    for _ in range(4):
        made.append((x[0::2] - x[1::2]) * 0.70710678)
        x = (x[0::2] + x[1::2]) * 0.70710678
    return xp.concatenate([x, *made[::-1]])


def daubechies(xp: Any, x: Any) -> Any:
    """Three levels of a wavelet of four taps, small details removed, and back."""
    h, kept = DAUBECHIES, []
    for _ in range(3):
        rolled = [xp.roll(x, -k) for k in range(4)]
        kept.append(sum((-1) ** k * h[3 - k] * r for k, r in enumerate(rolled))[::2])
        x = sum(h[k] * r for k, r in enumerate(rolled))[::2]
    for d in kept[::-1]:
        d = xp.sign(d) * xp.maximum(xp.abs(d) - 0.5, 0)
        even = h[0] * x + h[2] * xp.roll(x, 1) + h[3] * d + h[1] * xp.roll(d, 1)
        odd = h[1] * x + h[3] * xp.roll(x, 1) - h[2] * d - h[0] * xp.roll(d, 1)
        x = xp.stack([even, odd], 1).reshape(-1)
    return x


def autocorrelation(xp: Any, x: Any) -> Any:
    x = x - xp.mean(x)
    s = xp.fft.rfft(x, 2 * x.shape[0])
    r = xp.fft.irfft(s * xp.conj(s))[:1024]
    return r / r[0]


def band_pass(xp: Any, x: Any) -> Any:
    """A convolution with 65 taps, a sinc in Hamming's window."""
    t = xp.arange(-32, 33).astype(x.dtype)
    taps = (0.4 * xp.sinc(0.4 * t) - 0.1 * xp.sinc(0.1 * t)) * xp.hamming(65).astype(x.dtype)
    return xp.convolve(x, taps, mode="same")


def middle_of_five(xp: Any, x: Any) -> Any:
    return xp.median(xp.stack([x[k : x.shape[0] - 4 + k] for k in range(5)]), axis=0)


def companded(xp: Any, x: Any) -> Any:
    """To eight bits by the mu law and back, with the ratio of signal to noise."""
    x = xp.clip(x / 4, -1, 1)
    y = xp.sign(x) * xp.log1p(255 * xp.abs(x)) / math.log(256)
    code = xp.floor((y + 1) * 127.5 + 0.5).astype(xp.uint8)
    y = code.astype(x.dtype) / 127.5 - 1
    back = xp.sign(y) * (256.0 ** xp.abs(y) - 1) / 255
    return code, 10 * xp.log10(xp.mean(x * x) / xp.mean((back - x) ** 2))


def resampled(xp: Any, x: Any) -> Any:
    """By 44.1 over 48, between neighbours."""
    places = xp.arange(int(x.shape[0] / 1.0884354) - 1).astype(xp.float32) * 1.0884354
    low = xp.floor(places).astype(xp.int32)
    part = places - low.astype(xp.float32)
    return x[low] * (1 - part) + x[low + 1] * part


def phases(n: int) -> Arrays:
    x, y = normal((64, n // 64), (64, n // 64))
    return named(x=np.cumsum(x, 1), y=y)


def frequencies(xp: Any, x: Any, y: Any) -> Any:
    """Of signals by their phases: unwrapped, then differences."""
    angle = xp.unwrap(xp.arctan2(xp.sin(x), xp.cos(x)))
    return xp.diff(angle) / (2 * math.pi), xp.mean(xp.hypot(x, y), 1)


def blocks(n: int) -> Arrays:
    return named(x=integers((n, n), 256).astype(np.uint8), q=uniform((8, 8), low=4, high=60)[0])


def quantised_blocks(xp: Any, x: Any, q: Any) -> Any:
    """Cosine transforms of blocks of 8 x 8, quantised, as a JPEG has them."""
    k = xp.arange(8)
    c = xp.cos(math.pi / 16 * (2 * k + 1) * k[:, None]) * xp.where(k > 0, 0.5, 8**-0.5)[:, None]
    c, n = c.astype(q.dtype), x.shape[0] // 8
    tiles = xp.swapaxes((x.astype(q.dtype) - 128).reshape(n, 8, n, 8), 1, 2)
    return xp.round(c @ tiles @ c.T / q).astype(xp.int16)


def words(n: int) -> Arrays:
    return named(x=np.random.default_rng(0).integers(0, 2**32, n, dtype=np.uint32))


def bit_counts(xp: Any, x: Any) -> Any:
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).astype(xp.uint8)


def parities(xp: Any, x: Any) -> Any:
    for by in (16, 8, 4, 2, 1):
        x = x ^ (x >> by)
    return (x & 1).astype(xp.uint8)


def reversed_bits(xp: Any, x: Any) -> Any:
    for by, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        x = ((x >> by) & mask) | ((x & mask) << by)
    return (x >> 16) | (x << 16)


def murmur(xp: Any, x: Any) -> Any:
    """Hashes as numbers from 0 to below 1."""
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    x = x ^ (x >> 16)
    return (x >> 8).astype(xp.float32) * 2.0**-24


def xorshift(xp: Any, x: Any) -> Any:
    """Eight steps of Marsaglia's generator."""
    total = xp.zeros(x.shape, dtype=xp.float32)
    for _ in range(8):
        x = x ^ (x << 13)
        x = x ^ (x >> 17)
        x = x ^ (x << 5)
        total = total + (x >> 8).astype(xp.float32) * 2.0**-24
    return x, total


def interleaved(xp: Any, x: Any, y: Any) -> Any:
    """Morton's codes of pairs of 16 bits."""

    def spread(v: Any) -> Any:
        for by, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
            v = (v | (v << by)) & mask
        return v

    return spread(x & 0xFFFF) | (spread(y & 0xFFFF) << 1)


def gray(xp: Any, x: Any) -> Any:
    """Gray's code and back, which is the exclusive or of all higher bits."""
    code = x ^ (x >> 1)
    back = code
    for by in (1, 2, 4, 8, 16):
        back = back ^ (back >> by)
    return code, back


def flags(n: int) -> Arrays:
    return named(x=integers((n // 8, 8), 2).astype(np.uint8))


def packed(xp: Any, x: Any) -> Any:
    """Eight flags a byte, by shifts."""
    return xp.sum(x << xp.arange(8).astype(xp.uint8), 1).astype(xp.uint8)


def unpacked(xp: Any, x: Any) -> Any:
    return (x[:, None] >> xp.arange(8).astype(xp.uint8)) & 1


def mask_of(xp: Any, x: Any) -> Any:
    """Bits of what exceeds a limit, and how many there are in each byte."""
    bits = xp.packbits(x > 0.5)
    return bits, xp.sum(xp.unpackbits(bits).reshape(-1, 8), 1).astype(xp.uint8)


def text(n: int) -> Arrays:
    letters = np.frombuffer(b"the quick Brown fox Jumps over 12 lazy dogs, ", np.uint8)
    return named(x=letters[integers((n,), len(letters))])


def word_starts(xp: Any, x: Any) -> Any:
    """Text in lower case, and how many words, digits and commas there are."""
    capital = (x >= 65) & (x <= 90)
    small = xp.where(capital, x + 32, x).astype(xp.uint8)
    letter = (small >= 97) & (small <= 122)
    starts = letter[1:] & ~letter[:-1]
    counts = [xp.sum(v) for v in (starts, (x >= 48) & (x <= 57), x == 44)]
    return small, xp.stack(counts).astype(xp.int32)


def byte_counts(xp: Any, x: Any) -> Any:
    """How often each byte comes, and the entropy."""
    counts = at(xp.zeros(256, dtype=xp.int32), x).add(1)
    p = counts.astype(xp.float32) / x.shape[0]
    return counts, -xp.sum(xp.where(p > 0, p * xp.log2(xp.maximum(p, 1e-12)), 0))


def base64(xp: Any, x: Any) -> Any:
    letters = xp.asarray(np.frombuffer(LETTERS, np.uint8))
    a, b, c = (x[k : 3 * (x.shape[0] // 3) : 3] for k in range(3))
    codes = [a >> 2, (a & 3) << 4 | b >> 4, (b & 15) << 2 | c >> 6, c & 63]
    return letters[xp.stack(codes, 1)].reshape(-1)


def lines(n: int) -> Arrays:
    return named(x=text(n * 16)["x"].reshape(n, 16))


def fnv(xp: Any, x: Any) -> Any:
    """Hashes of words of 16 bytes (Fowler, Noll, Vo)."""
    h = xp.full((x.shape[0],), 2166136261, dtype=xp.uint32)
    for k in range(16):
        h = (h ^ x[:, k].astype(xp.uint32)) * 16777619
    return h


def checksums(xp: Any, x: Any, table: Any) -> Any:
    """CRC-32 of words of 16 bytes, by a table."""
    crc = xp.full((x.shape[0],), 0xFFFFFFFF, dtype=xp.uint32)
    for k in range(16):
        crc = (crc >> 8) ^ table[(crc ^ x[:, k]) & 255]
    return ~crc


def crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, 0xEDB88320 ^ (table >> 1), table >> 1).astype(np.uint32)
    return table


def edit_distance(xp: Any, a: Any, b: Any) -> Any:
    """Of pairs of words of eight letters (Levenshtein 1966)."""
    row = [xp.full((a.shape[0],), j, dtype=xp.int32) for j in range(9)]
    for i in range(8):
        made = [row[0] + 1]
        for j in range(8):
            change = row[j] + (a[:, i] != b[:, j])
            made.append(xp.minimum(change, xp.minimum(row[j + 1], made[j]) + 1).astype(xp.int32))
        row = made
    return row[8]


def word_pairs(n: int) -> Arrays:
    return named(a=integers((n, 8), 6).astype(np.uint8), b=integers((n, 8), 6, seed=2).astype(np.uint8))


def hamming(xp: Any, a: Any, b: Any) -> Any:
    """The nearest of 64 codes of 64 bits for each, by bits that differ."""
    apart = xp.sum(xp.bitwise_count(a[:, None] ^ b).astype(xp.int32), -1)
    return xp.argmin(apart, 1).astype(xp.int32), xp.min(apart, 1).astype(xp.int32)


def codes(n: int) -> Arrays:
    generator = np.random.default_rng(0)
    return {name: generator.integers(0, 2**32, (m, 2), dtype=np.uint32) for name, m in (("a", n), ("b", 64))}


def run_lengths(xp: Any, x: Any) -> Any:
    """How far each place is from where its run of equal bytes began."""
    places = xp.arange(x.shape[0], dtype=xp.int32)
    new = xp.concatenate([xp.ones(1, dtype=bool), x[1:] != x[:-1]])
    return places - xp.maximum.accumulate(xp.where(new, places, 0))


PROGRAMS: dict[str, Program | Loss] = {
    "spectrogram": script("a spectrogram in decibels", SIGNAL, signal, spectrogram, tolerance=1e-3),
    "bands": script(
        "cepstral coefficients of 40 bands", SIGNAL,
        lambda n: signal(n) | named(filters=uniform((FRAME // 2 + 1, 40))[0]), bands,
    ),
    "spectral_loss": loss(
        "a loss of two signals' spectra", SIGNAL,
        lambda n: dict(zip("xy", normal((n,), (n,)), strict=True)), spectral_loss, wrt=(0,),
    ),
    "frame_features": script("loudness and crossings of frames", SIGNAL, signal, frame_features),
    "haar": script("four levels of Haar's wavelet", SIGNAL, signal, haar),
    "daubechies": script("a signal without small details", SIGNAL, signal, daubechies),
    "daubechies_loss": loss(
        "what that changes, by the signal", SIGNAL, signal, lambda xp, x: xp.sum(daubechies(xp, x) ** 2) / 100,
        wrt=(0,),
    ),
    "autocorrelation": script("the first 1,024 of an autocorrelation", SIGNAL, signal, autocorrelation),
    "band_pass": script("a filter of 65 taps", SIGNAL, signal, band_pass),
    "middle_of_five": script("medians of five neighbours", SIGNAL, signal, middle_of_five),
    "companded": script("the mu law there and back", SIGNAL, signal, companded),
    "resampled_signal": script("a signal at another rate", SIGNAL, signal, resampled, tolerance=1e-2),
    "frequencies": script("frequencies by unwrapped phases", SIGNAL, phases, frequencies, tolerance=1e-3),
    "quantised_blocks": script("blocks of a JPEG", sizes(512, 32, 2048), blocks, quantised_blocks),
    "bit_counts": script("set bits by shifts and masks", WORDS, words, bit_counts),
    "parities": script("parities of words", WORDS, words, parities),
    "reversed_bits": script("words' bits the other way round", WORDS, words, reversed_bits),
    "murmur": script("hashes as numbers below 1", WORDS, words, murmur),
    "xorshift": script("eight steps of a generator", WORDS, words, xorshift),
    "interleaved": script(
        "codes along Morton's curve", WORDS,
        lambda n: named(x=words(n)["x"], y=words(n)["x"][::-1].copy()), interleaved,
    ),
    "gray": script("Gray's code and back", WORDS, words, gray),
    "packed": script("eight flags a byte", BYTES, flags, packed),
    "unpacked": script(
        "flags of bytes", sizes(2**17, 100, 2**22),
        lambda n: named(x=integers((n,), 256).astype(np.uint8)), unpacked,
    ),
    "mask_of": script("bits of what exceeds a limit", BYTES, lambda n: named(x=uniform((n,))[0]), mask_of),
    "word_starts": script("lower case, and words counted", BYTES, text, word_starts),
    "byte_counts": script("how often each byte comes", BYTES, text, byte_counts),
    "base64": script("bytes as letters", BYTES, text, base64),
    "fnv": script("hashes of words of 16 bytes", sizes(2**16, 50, 2**20), lines, fnv),
    "checksums": script(
        "checksums of words of 16 bytes", sizes(2**16, 50, 2**20), lambda n: lines(n) | named(table=crc_table()),
        checksums,
    ),
    "edit_distance": script("edits between words of 8 letters", sizes(2**14, 30, 2**20), word_pairs, edit_distance),
    "hamming": script("the nearest of 64 codes", sizes(2**14, 30, 2**18), codes, hamming),
    "run_lengths": script(
        "places within runs", BYTES, lambda n: named(x=integers((n,), 3).astype(np.uint8)), run_lengths
    ),
}  # fmt: skip
