"""`python -m benchmarks --workload ragged --device cuda:0`: one table a workload, and pytest-benchmark's JSON.

Other options go to pytest: `--benchmark-autosave`, `--benchmark-compare` and so on.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.arguments import OPTIONS, given
from benchmarks.tables import markdown

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    for flag, about in OPTIONS.items():
        parser.add_argument(flag, **about)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/results.json"), help="the JSON file")
    parser.add_argument("--table", type=Path, help="print the tables of such a file as Markdown, and run nothing")
    chosen, others = parser.parse_known_args()
    if chosen.table:
        print(markdown(json.loads(chosen.table.read_text())))
        return 0
    try:
        import pytest
        import pytest_benchmark  # noqa: F401 - missing, it would be an unknown option's fault
    except ModuleNotFoundError as error:
        print(f"expected {error.name} to be installed: pip install -e '.[bench]'", file=sys.stderr)
        return 2
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    command = [
        str(ROOT / "benchmarks"), "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider",
        "-p", "no:xdist", "-q", "--no-header", "--tb=short", f"--benchmark-json={chosen.out}",
        *([] if chosen.quick else ["--full"]), *given(chosen),
    ]  # fmt: skip
    if not any(word.startswith("--benchmark") for word in others):
        command.append("--benchmark-quiet")  # its table would repeat ours
    return int(pytest.main([*command, *others]))


if __name__ == "__main__":
    sys.exit(main())
