"""Tables and finance: groups, joins, ranks, rolling windows, options, paths, curves."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import Loss, at, loss, script

LINES = sizes(2**18, 100, 2**22)
OPTIONS = sizes(2**18, 100, 2**22)
DAYS = sizes(2**10, 64, 2**14)
PATHS = sizes(2**14, 50, 2**18)
GROUPS: Final = 1000


def sums(xp: Any, keys: Any, values: Any, count: int = GROUPS) -> Any:
    """Of each group."""
    return at(xp.zeros(count, dtype=values.dtype), keys).add(values)


def orders(n: int) -> Arrays:
    return named(keys=integers((n,), GROUPS), values=uniform((n,), high=100.0)[0])


def group_means(xp: Any, keys: Any, values: Any) -> Any:
    """With deviations and counts."""
    count = sums(xp, keys, xp.ones_like(values))
    mean = sums(xp, keys, values) / xp.maximum(count, 1)
    spread = sums(xp, keys, (values - mean[keys]) ** 2)
    return mean, xp.sqrt(spread / xp.maximum(count, 1)), count


def within_groups(xp: Any, keys: Any, values: Any) -> Any:
    """Values less the mean of their group."""
    mean = sums(xp, keys, values) / xp.maximum(sums(xp, keys, xp.ones_like(values)), 1)
    return values - mean[keys]


def group_extremes(xp: Any, keys: Any, values: Any) -> Any:
    """The least and greatest of each group, by sorting."""
    order = xp.lexsort((values, keys))
    k, v = keys[order], values[order]
    ids = xp.arange(GROUPS, dtype=k.dtype)
    first, last = xp.searchsorted(k, ids), xp.searchsorted(k, ids, side="right")
    top = v.shape[0] - 1
    full = last > first
    least, most = v[xp.minimum(first, top)], v[xp.maximum(last - 1, 0)]
    return xp.where(full, least, 0), xp.where(full, most, 0)


def pivot(xp: Any, rows: Any, columns: Any, values: Any) -> Any:
    """Sums by two keys, and each row's shares."""
    table = sums(xp, rows * 32 + columns, values, 64 * 32).reshape(64, 32)
    return table, table / xp.maximum(xp.sum(table, 1, keepdims=True), 1e-6)


def two_keys(n: int) -> Arrays:
    return named(rows=integers((n,), 64), columns=integers((n,), 32, seed=2), values=uniform((n,))[0])


def joined(xp: Any, keys: Any, amounts: Any, ids: Any, rates: Any) -> Any:
    """Amounts times the rate of their key, 0 where there is none, and how many have one."""
    place = xp.minimum(xp.searchsorted(ids, keys), ids.shape[0] - 1)
    found = ids[place] == keys
    return xp.where(found, amounts * rates[place], 0), xp.sum(found).astype(xp.int32)


def tables(n: int) -> Arrays:
    ids = np.unique(integers((n // 8,), 4 * n))
    amounts, rates = uniform((n,), (len(ids),))
    return named(keys=integers((n,), 4 * n, seed=3), amounts=amounts, ids=ids, rates=rates)


def as_of(xp: Any, times: Any, prices: Any, asked: Any) -> Any:
    """The last price at each time, and its age."""
    place = xp.searchsorted(times, asked, side="right") - 1
    known = place >= 0
    place = xp.maximum(place, 0)
    return xp.where(known, prices[place], 0), xp.where(known, asked - times[place], -1)


def quotes(n: int) -> Arrays:
    times, asked = uniform((n,), (n,), high=1000.0)
    return named(times=np.sort(times), prices=normal((n,))[0], asked=asked)


def distinct(xp: Any, keys: Any) -> Any:
    """A number for each distinct key in their order, for each line, and how many there are."""
    order = xp.argsort(keys)
    k = keys[order]
    new = xp.concatenate([xp.zeros(1, dtype=bool), k[1:] != k[:-1]])
    number = xp.cumsum(new.astype(xp.int32)).astype(xp.int32)
    return number[xp.argsort(order)], number[-1] + 1


def one_hot(xp: Any, a: Any, b: Any, w: Any) -> Any:
    """Two categories as columns, with their products by weights."""
    columns = xp.concatenate([(v[:, None] == xp.arange(16)).astype(w.dtype) for v in (a, b)], 1)
    return columns, columns @ w


def categories(n: int) -> Arrays:
    return named(a=integers((n,), 16), b=integers((n,), 16, seed=2), w=normal((32, 4))[0])


def filled(xp: Any, x: Any) -> Any:
    """The last number that is there, forward along rows."""
    place = xp.where(xp.isnan(x), 0, xp.arange(x.shape[1], dtype=xp.int32))
    return xp.nan_to_num(xp.take_along_axis(x, xp.maximum.accumulate(place, axis=1), 1))


def gaps(n: int) -> Arrays:
    x = normal((n, 256))[0]
    return named(x=np.where(uniform((n, 256), seed=4)[0] < 0.2, np.float32(np.nan), x))


def prices(n: int) -> Arrays:
    """Of `n` shares on 256 days."""
    steps = normal((n, 256))[0]
    return named(p=(100 * np.exp(np.cumsum(0.01 * steps, 1))).astype(np.float32))


def rolling(xp: Any, p: Any) -> Any:
    """Means, deviations and bands of 20 days."""
    zero = xp.zeros((p.shape[0], 1), dtype=p.dtype)
    first = p[:, :1]
    total = xp.concatenate([zero, xp.cumsum(p - first, 1)], 1)
    square = xp.concatenate([zero, xp.cumsum((p - first) ** 2, 1)], 1)
    mean = (total[:, 20:] - total[:, :-20]) / 20
    var = (square[:, 20:] - square[:, :-20]) / 20 - mean**2
    return mean + first, xp.sqrt(xp.maximum(var, 1e-4))


def highest(xp: Any, p: Any) -> Any:
    """Of the last 16 days, by doubling, as channels of breakouts."""
    high, low = p, p
    for by in (1, 2, 4, 8):
        high = xp.maximum(high[:, by:], high[:, :-by])
        low = xp.minimum(low[:, by:], low[:, :-by])
    return (p[:, 15:] - low) / xp.maximum(high - low, 1e-3)


def drawdown(xp: Any, p: Any) -> Any:
    """How far each price is below its highest, the worst, and how long."""
    peak = xp.maximum.accumulate(p, axis=1)
    below = 1 - p / peak
    return below, xp.max(below, 1), xp.argmax(below, 1).astype(xp.int32)


def smoothed(xp: Any, p: Any) -> Any:
    """Two exponential means by weights of the last 64 days, and their difference."""
    age = xp.arange(63, -1, -1).astype(p.dtype)
    made = []
    for rate in (2 / 13, 2 / 27):
        w = (1 - rate) ** age
        days = xp.arange(p.shape[1] - 63)[:, None] + xp.arange(64)
        made.append(p[:, days] @ (w / xp.sum(w)))
    return made[0] - made[1]


def strength(xp: Any, p: Any) -> Any:
    """Wilder's index of relative strength, over 14 days."""
    d = xp.diff(p)
    up, down = xp.cumsum(xp.maximum(d, 0), 1), xp.cumsum(xp.maximum(-d, 0), 1)
    up, down = up[:, 14:] - up[:, :-14], down[:, 14:] - down[:, :-14]
    return 100 * up / xp.maximum(up + down, 1e-3)


def correlations(xp: Any, p: Any) -> Any:
    return xp.corrcoef(xp.diff(xp.log(p)))


def returns(n: int) -> Arrays:
    return named(r=normal((n, 256))[0])


def ranked(xp: Any, r: Any) -> Any:
    """Each day's returns as ranks of shares, from -1 to 1."""
    rank = xp.argsort(xp.argsort(r, 0, stable=True), 0).astype(r.dtype)
    return 2 * rank / (r.shape[0] - 1) - 1


def movers(xp: Any, r: Any) -> Any:
    """The ten shares that won most each day."""
    r = r.T
    best = xp.argsort(-r, 1, stable=True)[:, :10]
    return best.astype(xp.int32), xp.take_along_axis(r, best, 1)


def normal_cdf(xp: Any, x: Any) -> Any:
    """By Zelen and Severo's polynomial."""
    k = 1 / (1 + 0.2316419 * xp.abs(x))
    poly = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    tail = xp.exp(-0.5 * x * x) * 0.3989422804 * poly
    return xp.where(x > 0, 1 - tail, tail)


def contracts(n: int) -> Arrays:
    spot, strike, years, vol = (uniform((n,), low=a, high=b, seed=k)[0]
                                for k, (a, b) in enumerate([(80, 120), (80, 120), (0.2, 2), (0.1, 0.6)]))  # fmt: skip
    return named(spot=spot, strike=strike, years=years, vol=vol)


def call_price(xp: Any, spot: Any, strike: Any, years: Any, vol: Any) -> Any:
    root = vol * xp.sqrt(years)
    d = (xp.log(spot / strike) + (0.02 + 0.5 * vol * vol) * years) / root
    return spot * normal_cdf(xp, d) - strike * xp.exp(-0.02 * years) * normal_cdf(xp, d - root)


def greeks(xp: Any, *contract: Any) -> Any:
    """The value of a book, whose derivatives are asked for."""
    return xp.mean(call_price(xp, *contract))


def implied(xp: Any, spot: Any, strike: Any, years: Any, vol: Any) -> Any:
    """Volatilities of prices, by six steps of Newton's."""
    price = call_price(xp, spot, strike, years, vol)
    v = xp.full(spot.shape, 0.3, dtype=spot.dtype)
    for _ in range(6):
        d = (xp.log(spot / strike) + (0.02 + 0.5 * v * v) * years) / (v * xp.sqrt(years))
        vega = spot * xp.sqrt(years) * xp.exp(-0.5 * d * d) * 0.3989422804
        v = xp.clip(v - (call_price(xp, spot, strike, years, v) - price) / xp.maximum(vega, 1), 0.01, 2)
    return call_price(xp, spot, strike, years, v) - price + v


def smile(xp: Any, spot: Any, strike: Any, years: Any, vol: Any) -> Any:
    """Hagan's approximation of SABR's volatility."""
    b, rho, nu = 0.5, -0.3, 0.4
    mid, ratio = (spot * strike) ** (0.5 * (1 - b)), xp.log(spot / strike)
    z = nu / vol * mid * ratio
    root = xp.sqrt(1 - 2 * rho * z + z * z)
    x = xp.log((root + z - rho) / (1 - rho))
    near = xp.abs(z) < 1e-3
    factor = xp.where(near, 1 - 0.5 * rho * z, z / xp.where(near, 1, x))
    terms = (1 - b) ** 2 / 24 * vol**2 / mid**2 + rho * b * nu * vol / (4 * mid) + (2 - 3 * rho**2) / 24 * nu**2
    return vol / (mid * (1 + (1 - b) ** 2 / 24 * ratio**2)) * factor * (1 + terms * years)


def noise(n: int) -> Arrays:
    return named(z=normal((n, 64))[0], spot=np.float32([100, 1]), vol=np.float32([0.2, 1]))


def asian(xp: Any, z: Any, spot: Any, vol: Any) -> Any:
    """A call on the mean of a path, by spot and volatility."""
    step = 1 / 64
    drift = (0.02 - 0.5 * vol[0] ** 2) * step
    path = spot[0] * xp.exp(xp.cumsum(drift + vol[0] * step**0.5 * z, 1))
    return xp.mean(xp.maximum(xp.mean(path, 1) - 100, 0)) * math.exp(-0.02)


def barrier(xp: Any, z: Any, spot: Any, vol: Any) -> Any:
    """A call that ends where a path falls to 85, with its error."""
    path = spot[0] * xp.exp(xp.cumsum((0.02 - 0.5 * vol[0] ** 2) / 64 + vol[0] / 8 * z, 1))
    paid = xp.where(xp.min(path, 1) > 85, xp.maximum(path[:, -1] - 100, 0), 0)
    return xp.mean(paid), xp.std(paid) / z.shape[0] ** 0.5


def heston(xp: Any, z: Any, w: Any) -> Any:
    """Paths of prices with a variance of their own, in 32 steps."""
    x, var = xp.zeros(z.shape[1], dtype=z.dtype), xp.full((z.shape[1],), 0.04, dtype=z.dtype)
    for a, b in zip(z, w, strict=True):
        root = xp.sqrt(xp.maximum(var, 0) / 32)
        x = x - 0.5 * xp.maximum(var, 0) / 32 + root * a
        var = var + 2 * (0.04 - xp.maximum(var, 0)) / 32 + 0.3 * root * (-0.7 * a + 0.714 * b)
    return xp.mean(xp.maximum(100 * xp.exp(x) - 100, 0))


def two_noises(n: int) -> Arrays:
    return dict(zip("zw", normal((32, n), (32, n)), strict=True))


def american(xp: Any, spot: Any, strike: Any, years: Any, vol: Any) -> Any:
    """Puts that may be exercised early, on a binomial tree of 32 steps."""
    dt = years / 32
    up = xp.exp(vol * xp.sqrt(dt))
    grow, rise = xp.exp(0.02 * dt), up[:, None]
    p = ((grow - 1 / up) / (up - 1 / up))[:, None]
    kept = (1 / grow)[:, None]
    powers = xp.arange(-32, 33, 2).astype(spot.dtype)
    ends = spot[:, None] * rise**powers
    value = xp.maximum(strike[:, None] - ends, 0)
    for k in range(31, -1, -1):
        now = ends[:, : k + 1] * rise ** (32 - k)
        value = xp.maximum(kept * (p * value[:, 1:] + (1 - p) * value[:, :-1]), strike[:, None] - now)
    return value[:, 0]


def bonds(n: int) -> Arrays:
    rates = np.linspace(0.01, 0.04, 12, dtype=np.float32)
    return named(times=uniform((n, 20), high=30.0)[0], coupons=uniform((n, 20), high=5.0)[0], rates=rates)


def discounted(xp: Any, times: Any, coupons: Any, rates: Any) -> Any:
    """Bonds' values by a curve between twelve knots, by the rates there."""
    knots = xp.asarray([0, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 25, 30], dtype=times.dtype)
    value = xp.sum(coupons * xp.exp(-xp.interp(times, knots, rates) * times), 1)
    return xp.mean(value**2)


def curve(xp: Any, t: Any, y: Any, w: Any) -> Any:
    """Errors of Svensson's curve, by its six numbers."""
    a, b = t / w[4], t / w[5]
    slope = (1 - xp.exp(-a)) / a
    guess = w[0] + w[1] * slope + w[2] * (slope - xp.exp(-a)) + w[3] * ((1 - xp.exp(-b)) / b - xp.exp(-b))
    return xp.mean((guess - y) ** 2)


def yields(n: int) -> Arrays:
    return named(t=uniform((n,), low=0.1, high=30.0)[0], y=uniform((n,), high=5.0)[0],
                 w=np.float32([3, -1, 1, 0.5, 2, 8]))  # fmt: skip


def risk(xp: Any, moves: Any, holdings: Any) -> Any:
    """Losses of portfolios in scenarios: the 99th percentile, and the mean beyond."""
    loss = -(moves @ holdings)
    limit = xp.quantile(loss, 0.99, axis=0)
    beyond = (loss >= limit).astype(loss.dtype)
    return limit, xp.sum(beyond * loss, 0) / xp.sum(beyond, 0)


def scenarios(n: int) -> Arrays:
    moves, holdings = normal((n, 64), (64, 8))
    return named(moves=moves / 100, holdings=holdings)


def least_variance(xp: Any, p: Any) -> Any:
    """Weights of a portfolio, with its ratio of return to risk."""
    r = p[:, 1:] / p[:, :-1] - 1
    c = xp.cov(r) + 1e-5 * xp.eye(p.shape[0], dtype=p.dtype)
    w = xp.linalg.solve(c, xp.ones(p.shape[0], dtype=p.dtype))
    w = w / xp.sum(w)
    return w, xp.sum(w * xp.mean(r, 1)) / xp.sqrt(w @ c @ w)


def documents(n: int) -> Arrays:
    return named(counts=np.maximum(integers((n, 512), 12) - 8, 0), query=integers((512,), 2).astype(np.float32))


def weighted_terms(xp: Any, counts: Any, query: Any) -> Any:
    """Documents by the rarity of their words, and how near each is to a query."""
    seen = xp.sum(counts > 0, 0).astype(query.dtype)
    w = counts.astype(query.dtype) * xp.log((1 + counts.shape[0]) / (1 + seen))
    w = w / xp.sqrt(xp.sum(w * w, 1, keepdims=True) + 1e-6)
    return w, w @ query


PROGRAMS: dict[str, Program | Loss] = {
    "group_means": script("means and deviations of 1,000 groups", LINES, orders, group_means),
    "within_groups": script("values less their group's mean", LINES, orders, within_groups),
    "group_extremes": script("the least and greatest of groups", LINES, orders, group_extremes),
    "pivot": script("sums by two keys", LINES, two_keys, pivot),
    "joined": script("amounts joined with rates", LINES, tables, joined),
    "as_of": script("the last price at times", LINES, quotes, as_of, tolerance=1e-3),
    "distinct": script("numbers of distinct keys", LINES, lambda n: named(keys=integers((n,), n // 4)), distinct),
    "one_hot": script("categories as columns", sizes(2**16, 50, 2**20), categories, one_hot),
    "filled": script("gaps filled forward", DAYS, gaps, filled),
    "rolling": script("bands of 20 days", DAYS, prices, rolling, tolerance=1e-2),
    "highest": script("channels of 16 days", DAYS, prices, highest, tolerance=1e-3),
    "drawdown": script("how far prices are below their highest", DAYS, prices, drawdown),
    "smoothed_prices": script(
        "a difference of exponential means", sizes(256, 16, 4096), prices, smoothed, tolerance=1e-2
    ),
    "strength": script("relative strength over 14 days", DAYS, prices, strength, tolerance=1e-2),
    "correlations": script("correlations of shares", sizes(512, 16, 2048), prices, correlations),
    "ranked": script("returns as ranks of shares", DAYS, returns, ranked),
    "movers": script("the ten that won most each day", DAYS, returns, movers),
    "greeks": loss("a book's value and its derivatives", OPTIONS, contracts, greeks, wrt=(0, 2, 3), tolerance=1e-3),
    "implied": script("implied volatilities", OPTIONS, contracts, implied, tolerance=1e-2),
    "smile": script("SABR's volatilities", OPTIONS, contracts, smile),
    "asian": loss("an Asian option, by spot and volatility", PATHS, noise, asian, wrt=(1, 2)),
    "barrier": script("an option with a barrier", PATHS, noise, barrier),
    "heston": script("paths with a variance of their own", PATHS, two_noises, heston),
    "american": script("puts exercised early", sizes(2**12, 20, 2**18), contracts, american, tolerance=1e-3),
    "discounted": loss("bonds, by the rates of a curve", PATHS, bonds, discounted, wrt=(2,)),
    "curve": loss("errors of a yield curve, by its numbers", LINES, yields, curve, wrt=(2,)),
    "risk": script("losses that 1 % of scenarios exceed", PATHS, scenarios, risk),
    "least_variance": script(
        "a portfolio of least variance", sizes(128, 16, 1024), prices, least_variance,
        tolerance=1e-2,
    ),
    "weighted_terms": script("documents by their rare words", sizes(2**11, 30, 2**16), documents, weighted_terms),
}  # fmt: skip
