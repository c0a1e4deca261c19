"""Write where the public names are found, from the statements `PUBLIC = "..."` beside the functions.

`python -m tests.architecture.public_stub` writes `src/loopgrad/__init__.pyi`, which type checkers read and by which the
package imports names when they are first used, `linalg.pyi` beside it from the statements `PUBLIC_LINALG`, and the
tables of docs/numpy.md between its two marks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Final

from loopgrad.lazy.numpy.not_offered import (
    ABSENT,
    JAX_ABSENT,
    LINALG_ABSENT,
    NN_ABSENT,
    SPECIAL_ABSENT,
    STATS_ABSENT,
    TENSOR_ABSENT,
    TREE_ABSENT,
)
from loopgrad.public_names import NAMESPACES, Origin
from tests.architecture.sources import ROOT, SOURCES, parsed

PACKAGE: Final = ROOT / "src" / "loopgrad"
STUB: Final = PACKAGE / "__init__.pyi"
PAGE: Final = ROOT / "docs" / "numpy.md"
BEGIN: Final = "<!-- python -m tests.architecture.public_stub writes this table -->\n"
END: Final = "<!-- end of the table -->\n"

# title of a row -> beginnings of the modules whose names stand in it; the first row that fits
ROWS: Final = {
    "Making arrays": (
        "lazy.numpy.creation", "lazy.numpy.reading", "lazy.numpy.spaced_numbers", "lazy.numpy.windows"),
    "Element by element": (
        "lazy.numpy.complex_functions", "lazy.numpy.elementwise", "lazy.numpy.elementwise_compositions",
        "lazy.numpy.float_bits", "lazy.numpy.smooth_functions", "lazy.numpy.special_values",
    ),
    "Reductions, order": (
        "lazy.numpy.reduction", "lazy.numpy.running_totals", "lazy.numpy.sorting", "lazy.numpy.statistics",
        "lazy.numpy.histograms", "lazy.numpy.quantiles", "lazy.numpy.set_operations", "lazy.numpy.unique",
    ),
    "Shape, joining, splitting": (
        "lazy.numpy.joining", "lazy.numpy.movement", "lazy.numpy.padding", "lazy.numpy.rearranging",
        "lazy.numpy.repetition",
    ),
    "Writing": ("lazy.numpy.writes",),
    "Positions": (
        "lazy.numpy.dynamic_slices", "lazy.numpy.found_positions", "lazy.numpy.index_builders", "lazy.numpy.indexing",
    ),
    "Products, norms": ("lazy.numpy.einsum", "lazy.numpy.matrix_products", "lazy.numpy.norms"),
    "Samples, polynomials": (
        "lazy.numpy.polynomial_roots", "lazy.numpy.polynomials", "lazy.numpy.sampled_functions",
    ),
    "Text, walks": ("lazy.numpy.text",),
    "Shapes, dtypes": ("lazy.numpy.namespace_info", "lazy.numpy.shapes_and_dtypes", "lazy.tensor.promotion"),
    "Windows, general forms": (
        "lazy.numpy.convolution", "lazy.numpy.general_products", "lazy.numpy.window_reductions",
    ),
    "Networks": ("lazy.networks",),
    "Loops, branches": ("lazy.loops",),
    "Derivatives, batching": (
        "lazy.transforms.apply_functions", "lazy.transforms.checkpoint", "lazy.transforms.derivatives",
        "lazy.transforms.gradients_of_tensors", "lazy.transforms.own_rules", "lazy.transforms.policies",
        "lazy.transforms.vectorize", "lazy.transforms.vmap",
    ),
    "Dtypes, constants": ("graph.types", "lazy.numpy.constants"),
    "Compiling, devices, settings": ("",),
}  # fmt: skip
CLASSES: Final = "Classes, errors"


def statements(statement_name: str) -> dict[str, list[str]]:
    """Module -> the entries of its statement: `absolute`, `abs=absolute`."""
    return {
        "loopgrad." + ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.literal_eval(statement.value).split()
        for path in SOURCES
        for statement in parsed(path)[1].body
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == statement_name and statement.value
    }


def origins(namespace: str = "") -> dict[str, Origin]:
    """The names of the package, or of one of its namespaces."""
    found = {} if namespace else {name: Origin("loopgrad", name) for name in NAMESPACES}
    for module, entries in statements(f"PUBLIC_{namespace.upper()}" if namespace else "PUBLIC").items():
        for entry in entries:
            public, _, name = entry.partition("=")
            if public in found:
                raise ValueError(f"{public} is stated in {found[public].module} and in {module}")
            found[public] = Origin(module, name or public)
    return found


def stub(names: dict[str, Origin]) -> str:
    """`import x as x` hands a name on; what has another name in its module is assigned."""
    imports, assignments = [], ["__version__: str"] if "linalg" in names else []
    for public, origin in names.items():
        if public == origin.name:
            imports.append(f"from {origin.module} import {public} as {public}")
        else:
            assignments.append(f"{public} = {origin.name}")
            if origin.name not in names:
                imports.append(f"from {origin.module} import {origin.name}")
    head = "# written by `python -m tests.architecture.public_stub` from the statements PUBLIC"
    return "\n".join([head, *imports, *(["", *assignments] if assignments else []), ""])


def tables(names: dict[str, Origin]) -> str:
    """The rows of the page for users of NumPy."""
    rows: dict[str, list[str]] = {title: [] for title in (*ROWS, CLASSES)}
    for public, origin in names.items():
        if public not in NAMESPACES:
            module = origin.module.removeprefix("loopgrad.") + "."
            title = next(t for t, parts in ROWS.items() if any(module.startswith(f"{p}." if p else "") for p in parts))
            rows[CLASSES if origin.name[0].isupper() else title].append(public)
    for namespace in NAMESPACES:
        rows[f"`{namespace}`"] = list(origins(namespace))
    return "\n".join(["| | |", "|---|---|", *(f"| {title} | {_words(held)} |" for title, held in rows.items()), ""])


def refusals() -> str:
    """The tables of what isn't offered and what to do instead."""
    of_numpy = {name: text for name, text in ABSENT.items() if name not in JAX_ABSENT}
    parts = [_refused("name", of_numpy), _refused("name of JAX's", JAX_ABSENT)]
    rooms = {"linalg": LINALG_ABSENT, "nn": NN_ABSENT, "special": SPECIAL_ABSENT, "stats": STATS_ABSENT}
    rooms["tree"] = TREE_ABSENT
    parts += [_refused(f"`{room}`", table) for room, table in rooms.items()]
    return "\n".join([*parts, _refused("attribute of arrays", TENSOR_ABSENT)])


def _refused(title: str, table: dict[str, str]) -> str:
    """A row for each text, in which NAME stands for the row's names."""
    general = [instead.replace(f".{name}(", ".NAME(") for name, instead in table.items()]
    rows: dict[str, list[str]] = {}
    for (name, instead), text in zip(table.items(), general, strict=True):
        rows.setdefault(text if general.count(text) > 1 else instead, []).append(name)
    lines = [f"| {' '.join(f'`{n}`' for n in names)} | {text} |" for text, names in rows.items()]
    return "\n".join([f"| {title} | instead |", "|---|---|", *lines, ""])


def _words(names: Iterable[str]) -> str:
    """In alphabetical order, with numbers in theirs."""
    return " ".join(f"`{name}`" for name in sorted(names, key=_natural))


def _natural(name: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def page(names: dict[str, Origin], text: str) -> str:
    """The text of docs/numpy.md with the tables as they should be."""
    for made in (tables(names), refusals()):
        before, begin, rest = text.rpartition(BEGIN) if made.startswith("| name") else text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"{PAGE.name} lacks the marks around its table: {BEGIN}... {END}")
        text = before + begin + made + end + after
    return text


if __name__ == "__main__":
    STUB.write_text(stub(origins()))
    for namespace in NAMESPACES:
        (PACKAGE / f"{namespace}.pyi").write_text(stub(origins(namespace)))
    PAGE.write_text(page(origins(), PAGE.read_text()))
