"""Rows as text: for a terminal while a run goes on, and in Markdown from the JSON that it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def figure(row: Record) -> float | None:
    """What contenders are compared by: the device's time where there is one."""
    time: float | None = row.get("device_median") or row.get("median")
    return time if row["status"] == "ok" else None


def _name(row: Record, devices: Sequence[str]) -> str:
    return f"{row['name']} [{row['device']}]" if len(devices) > 1 else str(row["name"])


def _prepared(rows: Sequence[Record]) -> tuple[list[str], float | None, list[Record]]:
    """The devices, our own figure on the first of them, and the rows from fast to slow."""
    devices = list(dict.fromkeys(str(row["device"]) for row in rows))
    own = next((figure(row) for row in rows if row["name"] == "loopgrad"), None)
    infinite = float("inf")
    return devices, own, sorted(rows, key=lambda row: t if (t := figure(row)) is not None else infinite)


def _cells(row: Record, own: float | None) -> list[str]:
    time = figure(row)
    assert time is not None
    first = (row["build_s"] or 0.0) + (row["first_s"] or 0.0)
    return [
        duration(first), duration(row.get("median")), duration(row.get("device_median")),
        f"{time / own:.2f}x" if own else "", f"{row['moved'] / time / 1e9:,.0f}" if row.get("moved") else "",
        f"{row['error']:.0e}" if row.get("error") is not None else "",
    ]  # fmt: skip


HEAD = ("first call", "waited for", "on device", "/ loopgrad", "GB/s", "error")


def text_table(title: str, rows: Sequence[Record]) -> str:
    """For a terminal, fastest first; ratios against loopgrad on the first device."""
    devices, own, ordered = _prepared(rows)
    width = max([24, *[len(_name(row, devices)) + 1 for row in rows]])
    lines = [title, f"  {'contender':<{width}}" + "".join(f"{h:>12}" for h in HEAD)]
    for row in ordered:
        name = f"  {_name(row, devices):<{width}}"
        if figure(row) is None:
            lines.append(f"{name}  {row['status']}")
            continue
        lines.append(name + "".join(f"{cell:>12}" for cell in _cells(row, own)))
        lines.extend(f"      {key}: {value}" for key, value in row["notes"].items())
    return "\n".join(lines)


def markdown(record: Record) -> str:
    """All workloads of a file that `python -m benchmarks` wrote."""
    machine = record["machine"]
    about = ", ".join(f"{key} {value}" for key, value in machine.items() if value)
    parts = [about]
    for name, workload in record["workloads"].items():
        devices, own, ordered = _prepared(workload["rows"])
        lines = [f"#### `{name}`: {workload['title']}; size {workload['size']:,}", ""]
        lines += [f"| contender | {' | '.join(HEAD)} | notes |", "|---" * (len(HEAD) + 2) + "|"]
        for row in ordered:
            label = _name(row, devices)
            if figure(row) is None:
                lines.append(f"| {label} |" + " |" * len(HEAD) + f" {_plain(row['status'])} |")
                continue
            notes = "; ".join(f"{key}: {value}" for key, value in row["notes"].items())
            lines.append(f"| {label} | {' | '.join(_cells(row, own))} | {_plain(notes)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
