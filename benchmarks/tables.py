"""Rows as text: for a terminal while a run goes on, and in Markdown from the JSON that it wrote."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from benchmarks.harness import Row
from benchmarks.workload import Workload

Record = Mapping[str, Any]


def record(row: Row) -> dict[str, Any]:
    """A row without its rounds, which pytest-benchmark has; also what its JSON keeps beside them."""
    return {
        "name": row.name, "device": row.device, "status": row.status, "median": row.median,
        "waited_for": row.waited_for, "build_s": row.build_s, "first_s": row.first_s, "clock": row.clock,
        "moved": row.moved, "flops": row.flops, "error": row.error, "notes": row.notes,
    }  # fmt: skip


def records(results: Mapping[str, Any]) -> dict[str, list[Record]]:
    """The rows of each workload in a file that pytest-benchmark wrote."""
    found: dict[str, list[Record]] = {name: [] for name in results["workloads"]}
    for bench in results["benchmarks"]:
        found[bench["group"]].append({**bench["extra_info"], "median": bench["stats"]["median"]})
    for name, workload in results["workloads"].items():
        found[name] += workload["not timed"]
    return found


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _name(row: Record, devices: Sequence[str]) -> str:
    return f"{row['name']} [{row['device']}]" if len(devices) > 1 else str(row["name"])


def _prepared(rows: Sequence[Record]) -> tuple[list[str], float | None, list[Record]]:
    """The devices, our own figure on the first of them, and the rows from fast to slow."""
    devices = list(dict.fromkeys(str(row["device"]) for row in rows))
    own = next((row["median"] for row in rows if row["name"] == "loopgrad"), None)
    infinite = float("inf")
    return devices, own, sorted(rows, key=lambda row: t if (t := row["median"]) is not None else infinite)


HEAD: Final = ("first call", "waited for", "on device", "/ loopgrad", "GB/s", "GFlop/s", "error")


def _cells(row: Record, own: float | None) -> list[str]:
    time = row["median"]
    first = (row["build_s"] or 0.0) + (row["first_s"] or 0.0)
    rates = [f"{row[key] / time / 1e9:,.0f}" if row.get(key) else "" for key in ("moved", "flops")]
    return [
        duration(first), duration(row["waited_for"]), duration(time) if row["clock"] else "",
        f"{time / own:.2f}x" if own else "", *rates, f"{row['error']:.0e}" if row.get("error") is not None else "",
    ]  # fmt: skip


def text_table(title: str, rows: Sequence[Record]) -> str:
    """For a terminal, fastest first; ratios against loopgrad on the first device."""
    devices, own, ordered = _prepared(rows)
    width = max([24, *[len(_name(row, devices)) + 1 for row in rows]])
    lines = [title, f"  {'contender':<{width}}" + "".join(f"{h:>12}" for h in HEAD)]
    for row in ordered:
        name = f"  {_name(row, devices):<{width}}"
        if row["median"] is None:
            lines.append(f"{name}  {row['status']}")
            continue
        lines.append(name + "".join(f"{cell:>12}" for cell in _cells(row, own)))
        lines.extend(f"      {key}: {value}" for key, value in row["notes"].items())
    return "\n".join(lines)


class Ratios:
    """Best peer's time over ours, of the members of a family, on each device."""

    def __init__(self) -> None:
        self._logarithms: dict[str, list[float]] = {}

    def add(self, rows: Sequence[Record], device: str) -> float | None:
        """The ratio of this member; None where one of the two isn't there."""
        times = {row["name"]: row["median"] for row in rows if row["device"] == device and row["median"]}
        own = times.get("loopgrad")
        peers = [time for name, time in times.items() if name.split(":")[0] != "loopgrad"]
        if not own or not peers:
            return None
        self._logarithms.setdefault(device, []).append(math.log(min(peers) / own))
        return float(min(peers) / own)

    def summary(self) -> Iterable[str]:
        for device, logs in self._logarithms.items():
            mean, slow = math.exp(sum(logs) / len(logs)), sum(x < math.log(0.9) for x in logs)
            yield f"{device}: geometric mean {mean:.2f} of {len(logs)} members, {slow} below 0.9"


class Tables:
    """Writes each workload's table when it is done: a line for a member of a family, which share a head."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._family = ""
        self._contenders: list[str] = []
        self._ratios = Ratios()

    def add(self, workload: Workload, size: int, rows: Sequence[Record]) -> None:
        if workload.family != self._family:
            self.close()
        if not workload.family:
            self._write(text_table(f"{workload.title} ({size:,})", rows))
            return
        for name in dict.fromkeys(row["name"] for row in rows):
            if name not in self._contenders:
                self._contenders.append(name)
        if not self._family:
            self._family, self._ratios = workload.family, Ratios()
            head = "".join(f"{h:>12}" for h in (*self._contenders, "best/ours", "GB/s", "GFlop/s"))
            self._write(f"{workload.family:<34}{'size':>12}{head}")
        self._write(self._lines(workload, size, rows))

    def _lines(self, workload: Workload, size: int, rows: Sequence[Record]) -> str:
        devices, lines = list(dict.fromkeys(row["device"] for row in rows)), []
        for device in devices:
            here = {row["name"]: row for row in rows if row["device"] == device}
            times = [duration(here[name]["median"]) or "-" if name in here else "" for name in self._contenders]
            ratio, own = self._ratios.add(rows, device), here.get("loopgrad", {})
            rates = ["", ""]
            if own.get("median"):
                rates = [f"{own[k] / own['median'] / 1e9:,.0f}" if own.get(k) else "" for k in ("moved", "flops")]
            label = workload.name.partition(".")[2] + (f" [{device}]" if len(devices) > 1 else "")
            cells = (*times, f"{ratio:.2f}" if ratio else "", *rates)
            lines.append(f"{label:<34}{size:>12,}" + "".join(f"{cell:>12}" for cell in cells))
            lines += [f"    {name}: {row['status']}" for name, row in here.items() if row["median"] is None]
        return "\n".join(lines)

    def close(self) -> None:
        """The end of a family: how its members did together."""
        if self._family:
            self._write("\n".join(self._ratios.summary()))
        self._family, self._contenders = "", []


def markdown(results: Mapping[str, Any]) -> str:
    """All workloads of a file that pytest-benchmark wrote: a table each, and one for each family."""
    about = ", ".join(f"{key} {value}" for key, value in results["machine_info"].items() if isinstance(value, str))
    parts, found = [about], records(results)
    families: dict[str, dict[str, list[Record]]] = {}
    for name, rows in found.items():
        family, _, member = name.partition(".")
        if member:
            families.setdefault(family, {})[member] = rows
        else:
            parts.append(_table(name, results["workloads"][name], rows))
    return "\n\n".join([*parts, *(_family_table(name, members) for name, members in families.items())])


def _table(name: str, workload: Mapping[str, Any], rows: Sequence[Record]) -> str:
    devices, own, ordered = _prepared(rows)
    lines = [f"#### `{name}`: {workload['title']}; size {workload['size']:,}", ""]
    lines += [f"| contender | {' | '.join(HEAD)} | notes |", "|---" * (len(HEAD) + 2) + "|"]
    for row in ordered:
        label = _name(row, devices)
        if row["median"] is None:
            lines.append(f"| {label} |" + " |" * len(HEAD) + f" {_plain(row['status'])} |")
            continue
        notes = "; ".join(f"{key}: {value}" for key, value in row["notes"].items())
        lines.append(f"| {label} | {' | '.join(_cells(row, own))} | {_plain(notes)} |")
    return "\n".join(lines)


def _family_table(family: str, members: Mapping[str, Sequence[Record]]) -> str:
    columns = list(dict.fromkeys((row["name"], row["device"]) for rows in members.values() for row in rows))
    heads = [name if len({d for _, d in columns}) == 1 else f"{name} [{device}]" for name, device in columns]
    ratios = Ratios()
    lines = [f"#### `{family}`", "", f"| | {' | '.join(heads)} | best/ours |", "|---" * (len(heads) + 2) + "|"]
    for member, rows in members.items():
        times = {(row["name"], row["device"]): row["median"] for row in rows}
        found = [ratios.add(rows, device) for device in dict.fromkeys(device for _, device in columns)]
        cells = [*(duration(times.get(c)) for c in columns), ", ".join(f"{r:.2f}" if r else "-" for r in found)]
        lines.append(f"| `{member}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *ratios.summary()])


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
