"""What people train: layers, losses, steps of optimisers, attention, quantised weights, normalising flows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import Loss, loss, script

BATCH = sizes(1024, 16, 4096)
TOKENS = sizes(2048, 24, 8192)
IMAGES = sizes(16, 2, 64)
KINKS: Final = 5e-2  # differences of what has many kinks are only near its derivatives
LEVELS: Final = np.array(
    [-1, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0, 0.0796, 0.1609, 0.2461, 0.3379,
     0.4407, 0.5626, 0.723, 1],
    np.float32,
)  # fmt: skip
"""Sixteen quantiles of a normal distribution (Dettmers et al. 2023)."""


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, -1, keepdims=True))
    return e / xp.sum(e, -1, keepdims=True)


def log_softmax(xp: Any, x: Any) -> Any:
    x = x - xp.max(x, -1, keepdims=True)
    return x - xp.log(xp.sum(xp.exp(x), -1, keepdims=True))


def sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


def gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + xp.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def picked(xp: Any, x: Any, labels: Any) -> Any:
    return xp.take_along_axis(x, labels[:, None], 1)[:, 0]


def digits(n: int) -> Arrays:
    x, w, b, v, c = normal((n, 784), (784, 256), (256,), (256, 10), (10,))
    return named(x=x, labels=integers((n,), 10), w=w / 28, b=b, v=v / 16, c=c)


def classifier(xp: Any, x: Any, labels: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    hidden = xp.maximum(x @ w + b, 0)
    return -xp.mean(picked(xp, log_softmax(xp, hidden @ v + c), labels))


def smoothed(xp: Any, logits: Any, labels: Any) -> Any:
    """Cross entropy with smoothed labels; those of 0 are padding."""
    logp = log_softmax(xp, logits)
    loss = -0.9 * picked(xp, logp, labels) - 0.1 * xp.mean(logp, -1)
    known = (labels > 0).astype(loss.dtype)
    return xp.sum(known * loss) / xp.sum(known)


def focal(xp: Any, logits: Any, y: Any) -> Any:
    """Of Lin et al. (2017), for detection."""
    p = sigmoid(xp, logits)
    right = xp.where(y > 0, p, 1 - p)
    return xp.mean(-xp.where(y > 0, 0.25, 0.75) * (1 - right) ** 2 * xp.log(xp.clip(right, 1e-6, 1)))


def parameters(n: int) -> Arrays:
    shapes = [(n, n), (n,), (n, 4 * n), (4 * n, n), (n,)]
    made = [array for kind in range(4) for array in normal(*shapes, seed=kind)]
    return {f"a{k}": abs(a) if k >= 15 else a for k, a in enumerate(made)}


def adam(xp: Any, *arrays: Any) -> Any:
    """A step of Adam for each parameter, gradients clipped by their common norm."""
    weights, grads, means, squares = (arrays[5 * k : 5 * k + 5] for k in range(4))
    norm = xp.sqrt(sum(xp.sum(g * g) for g in grads))
    scale = xp.minimum(1.0, 1.0 / norm)
    made = []
    for w, g, m, s in zip(weights, grads, means, squares, strict=True):
        g = g * scale
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
        made += [w - 1e-3 * (m / 0.1 / (xp.sqrt(s / 0.001) + 1e-8) + 0.01 * w), m, s]
    return tuple(made)


def bags(n: int) -> Arrays:
    table, v = normal((20000, 64), (64,))
    return named(table=table, v=v, words=integers((n, 32), 20000), y=integers((n,), 2).astype(np.float32))


def bagged(xp: Any, table: Any, v: Any, words: Any, y: Any) -> Any:
    """Means of the words' vectors, then a logistic regression."""
    z = xp.mean(table[words], 1) @ v
    return xp.mean(xp.maximum(z, 0) - z * y + xp.log1p(xp.exp(-xp.abs(z))))


def heads(n: int) -> Arrays:
    q, k, v = normal((4, 8, n, 64), (4, 8, n, 64), (4, 8, n, 64))
    return named(q=q, k=k, v=v)


def biased_attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    """Causal attention whose scores fall with distance, by a slope for each head (Press et al. 2021)."""
    at = xp.arange(q.shape[2])
    apart = (at[None] - at[:, None]).astype(q.dtype)
    slopes = 2.0 ** -xp.arange(1, 9).astype(q.dtype)
    scores = q @ xp.swapaxes(k, -1, -2) / 8 + slopes[:, None, None] * apart
    return softmax(xp, xp.where(apart <= 0, scores, -1e9)) @ v


def rotated(xp: Any, x: Any) -> Any:
    """Rotary positions (Su et al. 2021)."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-xp.arange(half).astype(x.dtype) / half)
    angles = xp.arange(x.shape[-2]).astype(x.dtype)[:, None] * rates
    c, s, a, b = xp.cos(angles), xp.sin(angles), x[..., :half], x[..., half:]
    return xp.concatenate([a * c - b * s, a * s + b * c], -1)


def rotary_scores(xp: Any, q: Any, k: Any) -> Any:
    return rotated(xp, q) @ xp.swapaxes(rotated(xp, k), -1, -2)


def linear_attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    """By features in place of a softmax (Katharopoulos et al. 2020)."""
    q, k = (xp.where(x > 0, x + 1, xp.exp(xp.minimum(x, 0))) for x in (q, k))
    sums = xp.swapaxes(k, -1, -2) @ v
    total = q @ xp.sum(k, -2)[..., None]
    return xp.mean((q @ sums / total) ** 2)


def pictures(n: int) -> Arrays:
    x, w, v, u = normal((n, 32, 32, 3), (3, 3, 3, 16), (3, 3, 16, 32), (8 * 8 * 32, 10))
    return named(x=x, labels=integers((n,), 10), w=w / 5, v=v / 12, u=u / 45)


def convolved(xp: Any, x: Any, w: Any) -> Any:
    p, n, m = xp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), x.shape[1], x.shape[2]
    return sum(p[:, i : i + n, j : j + m] @ w[i, j] for i in range(3) for j in range(3))


def pooled(xp: Any, x: Any) -> Any:
    n, h, w, c = x.shape
    return xp.max(x.reshape(n, h // 2, 2, w // 2, 2, c), (2, 4))


def small_net(xp: Any, x: Any, labels: Any, w: Any, v: Any, u: Any) -> Any:
    """Two convolutions with pooling, and a layer."""
    x = pooled(xp, xp.maximum(convolved(xp, x, w), 0))
    x = pooled(xp, xp.maximum(convolved(xp, x, v), 0))
    return -xp.mean(picked(xp, log_softmax(xp, x.reshape(x.shape[0], -1) @ u), labels))


def block(n: int) -> Arrays:
    x, g, w, v = normal((n, 256), (256,), (256, 1024), (512, 256))
    return named(x=x, g=g, w=w / 16, v=v / 22)


def gated_block(xp: Any, x: Any, g: Any, w: Any, v: Any) -> Any:
    """Normed, through a gated unit, and added (Shazeer 2020)."""
    y = x * g / xp.sqrt(xp.mean(x * x, -1, keepdims=True) + 1e-6) @ w
    return x + gelu(xp, y[:, :512]) * y[:, 512:] @ v


def batch_norm(xp: Any, x: Any, g: Any, b: Any, mean: Any, var: Any) -> Any:
    """With the running statistics that a step of training leaves."""
    m, v = xp.mean(x, (0, 1, 2)), xp.var(x, (0, 1, 2))
    y = (x - m) / xp.sqrt(v + 1e-5) * g + b
    return xp.maximum(y, 0), 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v


def maps(n: int) -> Arrays:
    x, g, b, mean, var = normal((n, 28, 28, 64), (64,), (64,), (64,), (64,))
    return named(x=x, g=g, b=b, mean=mean, var=abs(var))


def group_norm(xp: Any, x: Any, g: Any, b: Any) -> Any:
    n, h, w, c = x.shape
    y = x.reshape(n, h * w, 8, c // 8)
    y = (y - xp.mean(y, (1, 3), keepdims=True)) / xp.sqrt(xp.var(y, (1, 3), keepdims=True) + 1e-5)
    return xp.mean((y.reshape(x.shape) * g + b) ** 4)


def contrastive(xp: Any, a: Any, b: Any) -> Any:
    """Of pairs of pictures and texts, both ways (Radford et al. 2021)."""
    a, b = (x / xp.sqrt(xp.sum(x * x, -1, keepdims=True)) for x in (a, b))
    scores = a @ b.T / 0.07
    return -(xp.mean(xp.diagonal(log_softmax(xp, scores))) + xp.mean(xp.diagonal(log_softmax(xp, scores.T)))) / 2


def triplets(xp: Any, table: Any, anchors: Any, near: Any, far: Any) -> Any:
    """Hinge of distances to one that belongs and one that doesn't (Schroff et al. 2015)."""
    a = table[anchors]
    nearer, farther = (xp.sum((a - table[i]) ** 2, -1) for i in (near, far))
    return xp.mean(xp.maximum(nearer - farther + 1, 0))


def triples(n: int) -> Arrays:
    i = integers((3, n), 5000)
    return named(table=normal((5000, 64))[0], anchors=i[0], near=i[1], far=i[2])


def pair_ranking(xp: Any, scores: Any, relevance: Any) -> Any:
    """Logistic losses of all pairs of a query's documents in the wrong order (Burges et al. 2005)."""
    apart = scores[:, :, None] - scores[:, None]
    better = (relevance[:, :, None] > relevance[:, None]).astype(scores.dtype)
    loss = xp.maximum(-apart, 0) + xp.log1p(xp.exp(-xp.abs(apart)))
    return xp.sum(better * loss) / xp.sum(better)


def nf4(xp: Any, w: Any) -> Any:
    """Four bits a weight, two in a byte, with a scale for 64."""
    rows = w.reshape(-1, 64)
    scale = xp.max(xp.abs(rows), -1, keepdims=True)
    levels = xp.asarray(LEVELS, dtype=w.dtype)
    codes = xp.searchsorted((levels[1:] + levels[:-1]) / 2, (rows / scale).reshape(-1)).astype(xp.uint8)
    return codes[0::2] << 4 | codes[1::2], scale[:, 0]


def from_nf4(xp: Any, packed: Any, scale: Any, x: Any) -> Any:
    """A layer of weights of four bits."""
    codes = xp.stack([packed >> 4, packed & 15], -1).reshape(-1, 64)
    w = xp.asarray(LEVELS, dtype=x.dtype)[codes] * scale[:, None]
    return x @ w.reshape(x.shape[1], -1)


def packed_weights(n: int) -> Arrays:
    packed = integers((n * 256 // 2,), 256).astype(np.uint8)
    return named(packed=packed, scale=uniform((n * 256 // 64,))[0], x=normal((32, 256))[0])


def rounded_rows(xp: Any, x: Any) -> Any:
    """Eight bits an element, with a scale for each row, and what is lost."""
    scale = xp.max(xp.abs(x), 1, keepdims=True) / 127
    q = xp.clip(xp.round(x / scale), -127, 127).astype(xp.int8)
    return q, scale, xp.mean((q.astype(x.dtype) * scale - x) ** 2, 1)


def residual(xp: Any, x: Any, y: Any, keep: Any, g: Any, b: Any) -> Any:
    """Dropout, the way round it, and a layer norm."""
    x = x + xp.where(keep > 0, y / 0.9, 0)
    x = x - xp.mean(x, -1, keepdims=True)
    return xp.mean((x / xp.sqrt(xp.mean(x * x, -1, keepdims=True) + 1e-5) * g + b) ** 3)


def dropped(n: int) -> Arrays:
    x, y, g, b = normal((n, 512), (n, 512), (512,), (512,))
    return named(x=x, y=y, keep=(integers((n, 512), 10) > 0).astype(np.uint8), g=g, b=b)


def evidence(xp: Any, x: Any, noise: Any, enc: Any, dec: Any) -> Any:
    """The bound that a variational autoencoder of two layers maximises (Kingma and Welling 2013)."""
    code = x @ enc
    mean, logvar = code[:, :16], code[:, 16:]
    logits = (mean + xp.exp(0.5 * logvar) * noise) @ dec
    lost = xp.sum(xp.maximum(logits, 0) - logits * x + xp.log1p(xp.exp(-xp.abs(logits))), -1)
    return xp.mean(lost - 0.5 * xp.sum(1 + logvar - mean**2 - xp.exp(logvar), -1))


def coded(n: int) -> Arrays:
    noise, enc, dec = normal((n, 16), (784, 32), (16, 784))
    return named(x=uniform((n, 784))[0], noise=noise, enc=enc / 60, dec=dec / 8)


def flow(xp: Any, x: Any, w: Any, v: Any) -> Any:
    """Likelihood under four affine couplings (Dinh et al. 2016)."""
    total = 0.0
    for k in range(4):
        a, b = x[:, :8], x[:, 8:]
        made = xp.tanh(a @ w[k]) @ v[k]
        s, t = xp.tanh(made[:, :8]), made[:, 8:]
        x = xp.concatenate([b * xp.exp(s) + t, a], 1)
        total = total + xp.sum(s, 1)
    return -xp.mean(total - 0.5 * xp.sum(x * x, 1))


def couplings(n: int) -> Arrays:
    x, w, v = normal((n, 16), (4, 8, 32), (4, 32, 16))
    return named(x=x, w=w / 3, v=v / 6)


def gated_steps(xp: Any, x: Any, w: Any, u: Any) -> Any:
    """A GRU over 16 steps (Cho et al. 2014)."""
    h = xp.zeros((x.shape[1], u.shape[0]), dtype=x.dtype)
    n = u.shape[0]
    for row in x:
        a, b = row @ w, h @ u
        r, z = sigmoid(xp, a[:, :n] + b[:, :n]), sigmoid(xp, a[:, n : 2 * n] + b[:, n : 2 * n])
        h = (1 - z) * xp.tanh(a[:, 2 * n :] + r * b[:, 2 * n :]) + z * h
    return xp.mean(h * h)


def sequences(n: int) -> Arrays:
    x, w, u = normal((16, n, 32), (32, 192), (64, 192))
    return named(x=x, w=w / 6, u=u / 8)


def experts(xp: Any, x: Any, gate: Any, w: Any) -> Any:
    """Each token's best two of eight experts, of which all are computed."""
    p = softmax(xp, x @ gate)
    second = xp.sort(p, -1)[:, -2:-1]
    p = xp.where(p >= second, p, 0)
    p = p / xp.sum(p, -1, keepdims=True)
    return xp.einsum("te,ted->td", p, xp.maximum(xp.einsum("td,edf->tef", x, w), 0))


def mixed(n: int) -> Arrays:
    x, gate, w = normal((n, 128), (128, 8), (8, 128, 128))
    return named(x=x, gate=gate, w=w / 11)


def adapted(xp: Any, x: Any, w: Any, a: Any, b: Any, y: Any) -> Any:
    """A frozen layer with one of low rank beside it (Hu et al. 2021)."""
    return xp.mean((x @ w + (x @ a) @ b * 2 - y) ** 2)


def ranks(n: int) -> Arrays:
    x, w, a, b, y = normal((n, 512), (512, 512), (512, 8), (8, 512), (n, 512))
    return named(x=x, w=w / 22, a=a / 22, b=b / 3, y=y)


def distilled(xp: Any, student: Any, teacher: Any) -> Any:
    """Between softened distributions (Hinton et al. 2015)."""
    p, q = log_softmax(xp, teacher / 4), log_softmax(xp, student / 4)
    return 16 * xp.mean(xp.sum(xp.exp(p) * (p - q), -1))


def dice(xp: Any, logits: Any, y: Any) -> Any:
    """The overlap of two segmentations, for each class of each picture (Milletari et al. 2016)."""
    p = softmax(xp, logits)
    truth = (y[..., None] == xp.arange(logits.shape[-1])).astype(logits.dtype)
    both, total = xp.sum(p * truth, (1, 2)), xp.sum(p + truth, (1, 2))
    return 1 - xp.mean((2 * both + 1) / (total + 1))


def segments(n: int) -> Arrays:
    return named(logits=normal((n, 128, 128, 5))[0], y=integers((n, 128, 128), 5))


def photos(n: int) -> Arrays:
    return named(x=integers((n, 224, 224, 3), 256).astype(np.uint8))


def normed_photos(xp: Any, x: Any) -> Any:
    """Bytes to numbers, less the mean of each channel, over its deviation, channels first."""
    mean, std = xp.asarray([0.485, 0.456, 0.406]), xp.asarray([0.229, 0.224, 0.225])
    y = (x.astype(xp.float32) / 255 - mean.astype(xp.float32)) / std.astype(xp.float32)
    return xp.transpose(y, (0, 3, 1, 2))


def own_norms(xp: Any, x: Any) -> Any:
    """Each picture's channels by their own mean and deviation."""
    y = x.astype(xp.float32) / 255
    return (y - xp.mean(y, (1, 2), keepdims=True)) / (xp.std(y, (1, 2), keepdims=True) + 1e-3)


def flipped(xp: Any, x: Any) -> Any:
    """Every other picture mirrored, the middle cut out."""
    mirror = (xp.arange(x.shape[0]) % 2 == 0)[:, None, None, None]
    y = xp.where(mirror, x[:, :, ::-1], x)[:, 16:208, 16:208]
    return y.astype(xp.float32) / 255


def grouped_softmax(xp: Any, x: Any) -> Any:
    """Softmaxes of groups of eight, as a router of many heads has them."""
    return softmax(xp, x.reshape(x.shape[0], -1, 8)).reshape(x.shape)


def denoised(xp: Any, x: Any, noise: Any, step: Any, w: Any) -> Any:
    """A step of training a diffusion model: noised pictures through a layer with their time (Ho et al. 2020)."""
    keep = xp.cos(step.astype(x.dtype) / 1000 * 1.5)[:, None]
    noised = keep * x + xp.sqrt(1 - keep * keep) * noise
    rates = xp.exp(-xp.arange(16).astype(x.dtype) / 2)
    angles = step.astype(x.dtype)[:, None] * rates
    guess = xp.tanh(xp.concatenate([noised, xp.sin(angles), xp.cos(angles)], 1) @ w)
    return xp.mean((guess - noise) ** 2)


def noisy(n: int) -> Arrays:
    x, noise, w = normal((n, 256), (n, 256), (288, 256))
    return named(x=x, noise=noise, step=integers((n,), 1000), w=w / 17)


def rows_of(columns: int) -> Any:
    return lambda n: named(x=normal((n, columns))[0])


PROGRAMS: dict[str, Program | Loss] = {
    "classifier": loss(
        "a classifier of digits, by its weights", BATCH, digits, classifier, wrt=(2, 3, 4, 5), tolerance=KINKS,
    ),
    "smoothed": loss(
        "cross entropy of smoothed labels", TOKENS,
        lambda n: named(logits=normal((n, 1000))[0], labels=integers((n,), 1000)), smoothed, wrt=(0,),
    ),
    "focal": loss(
        "focal losses of boxes", sizes(2**18, 100, 2**22),
        lambda n: named(logits=normal((n,))[0] * 3, y=integers((n,), 2)), focal, wrt=(0,),
    ),
    "adam": script("a step of Adam for 5 arrays, gradients clipped", sizes(256, 8, 1024), parameters, adam),
    "bagged": loss("means of 32 words' vectors, by the vectors", BATCH, bags, bagged, wrt=(0, 1)),
    "biased_attention": script("causal attention with slopes", sizes(256, 12, 1024), heads, biased_attention),
    "rotary_scores": script(
        "scores with rotary positions", sizes(256, 12, 1024),
        lambda n: {name: a for name, a in heads(n).items() if name != "v"}, rotary_scores,
    ),
    "linear_attention": loss(
        "linear attention, by its inputs", sizes(512, 12, 4096), heads, linear_attention, wrt=(0, 1, 2),
    ),
    "small_net": loss(
        "two convolutions and a layer, by weights", IMAGES, pictures, small_net, wrt=(2, 3, 4), tolerance=KINKS,
    ),
    "gated_block": script("a gated block of a transformer", TOKENS, block, gated_block),
    "batch_norm": script("batch norm with running statistics", IMAGES, maps, batch_norm),
    "group_norm": loss(
        "group norm, by its inputs", IMAGES, lambda n: dict(list(maps(n).items())[:3]), group_norm, wrt=(0, 1, 2),
    ),
    "contrastive": loss(
        "a contrastive loss of pairs, by both", sizes(512, 16, 2048),
        lambda n: dict(zip("ab", normal((n, 128), (n, 128)), strict=True)), contrastive, wrt=(0, 1),
    ),
    "triplets": loss("losses of triplets, by a table", sizes(2**13, 20, 2**17), triples, triplets, wrt=(0,)),
    "pair_ranking": loss(
        "losses of all pairs of 64 documents", sizes(256, 6, 4096),
        lambda n: named(scores=normal((n, 64))[0], relevance=integers((n, 64), 5)), pair_ranking, wrt=(0,),
    ),
    "nf4": script(
        "weights in four bits by quantiles", sizes(512, 4, 4096), lambda n: named(w=normal((n, 512))[0]), nf4
    ),
    "from_nf4": script("a layer of weights of four bits", sizes(2048, 16, 16384), packed_weights, from_nf4),
    "rounded_rows": script("rows in eight bits and what is lost", TOKENS, rows_of(512), rounded_rows, tolerance=1e-2),
    "residual": loss("dropout, the way round it, a norm", TOKENS, dropped, residual, wrt=(0, 1, 3, 4)),
    "evidence": loss("a variational autoencoder, by its weights", BATCH, coded, evidence, wrt=(2, 3)),
    "flow": loss("four affine couplings, by their weights", sizes(2**14, 20, 2**18), couplings, flow, wrt=(1, 2)),
    "gated_steps": loss("a GRU over 16 steps, by its weights", BATCH, sequences, gated_steps, wrt=(1, 2)),
    "experts": script("the best two of eight experts", sizes(512, 16, 4096), mixed, experts),
    "adapted": loss("a layer of low rank beside a frozen one", BATCH, ranks, adapted, wrt=(2, 3)),
    "distilled": loss(
        "losses to a teacher's distribution", TOKENS,
        lambda n: dict(zip(("student", "teacher"), normal((n, 512), (n, 512)), strict=True)), distilled, wrt=(0,),
    ),
    "dice": loss("overlaps of segmentations, by the logits", IMAGES, segments, dice, wrt=(0,)),
    "normed_photos": script("photos normed by channel, channels first", IMAGES, photos, normed_photos),
    "own_norms": script("photos normed by themselves", IMAGES, photos, own_norms),
    "flipped": script("photos mirrored and cut", IMAGES, photos, flipped),
    "grouped_softmax": script("softmaxes of groups of eight", TOKENS, rows_of(512), grouped_softmax),
    "denoised": loss("a step of a diffusion model, by its weights", BATCH, noisy, denoised, wrt=(3,)),
}  # fmt: skip
