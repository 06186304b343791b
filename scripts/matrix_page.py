"""What came of the cells, kept in a file, and the page of the documentation that shows it."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.matrix_cells import AXES, CELLS, LOWEST, NAMES, NOT_RUN, cells_with, why_not
from scripts.matrix_environment import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripts.matrix_cells import Cell

RESULTS = Path(__file__).with_name("matrix_results.json")
PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"
START, END = "<!-- matrix -->\n", "<!-- end -->\n"


def read_results() -> dict[str, Outcome]:
    """Return what came of each cell that has been run."""
    if not RESULTS.exists():
        return {}
    return {name: Outcome(**outcome) for name, outcome in json.loads(RESULTS.read_text()).items()}


def keep(cell: Cell, outcome: Outcome) -> None:
    """Note what came of a cell, in the order of the cells."""
    known = {**read_results(), cell.name: outcome}
    kept = {one.name: known[one.name].as_json() for one in CELLS if one.name in known}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def result_of(outcome: Outcome | None) -> str:
    """Return the word for what came of a cell."""
    if outcome is None:
        return "not run"
    if outcome.failures:
        return f"**{len(outcome.failures)} failed**: {'; '.join(outcome.failures)}"
    return f"{outcome.passed} passed"


def write_page() -> None:
    """Write what is between the marks of the page."""
    before, _, rest = PAGE.read_text().partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}\n{rendered()}\n{END}{after}")


def rendered() -> str:
    """Return the generated part of the page."""
    parts = (_cells(), _resolved(), _not_run(), *_grids())
    return "\n".join(parts)


def _cells() -> str:
    known = read_results()
    heads = [NAMES[axis] for axis in AXES]
    lines = [
        "## Cells\n",
        f"| # | {' | '.join(heads)} | Result | Seconds | Date |",
        f"|{'---|' * (len(heads) + 4)}",
    ]
    for number, cell in enumerate(CELLS, 1):
        outcome = known.get(cell.name)
        values = " | ".join(_shown(getattr(cell, axis)) for axis in AXES)
        took = f"{outcome.seconds} | {outcome.date}" if outcome else " | "
        lines.append(f"| {_number(number, cell)} | {values} | {result_of(outcome)} | {took} |")
    return "\n".join(lines) + "\n"


def _number(number: int, cell: Cell) -> str:
    return f"{number}, lowest" if cell.name == LOWEST else str(number)


def _shown(value: str) -> str:
    return NAMES.get(value, value)


def _resolved() -> str:
    """List what uv chose of other packages: from the lowest to the highest of all cells."""
    known = {name: one for name, one in read_results().items() if one.versions}
    names = sorted({name for one in known.values() for name in one.versions})
    lines = ["## Versions of other packages\n", "| Package | In the cells | In the lowest |", "|---|---|---|"]
    lowest = known[LOWEST].versions if LOWEST in known else {}
    for name in names:
        found = {one.versions[name] for key, one in known.items() if key != LOWEST and name in one.versions}
        lines.append(f"| `{name}` | {', '.join(sorted(found, key=_key))} | {lowest.get(name, '')} |")
    return "\n".join(lines) + "\n"


def _key(version: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdigit() else -1, part) for part in version.split(".")]


def _not_run() -> str:
    lines = ["## Not run\n", "| | Reason |", "|---|---|"]
    lines += [f"| {NAMES[axis]} {value} | {reason} |" for (axis, value), reason in NOT_RUN.items()]
    return "\n".join(lines) + "\n"


def _grids() -> Iterator[str]:
    """Yield a table for each pair of axes: the numbers of the cells that have the pair of values."""
    yield "## Pairs\n\nThe cells that have both versions; *no* with its reason.\n"
    for row, column in combinations(AXES, 2):
        lines = [
            f"| {NAMES[row]} \\ {NAMES[column]} | {' | '.join(map(_shown, AXES[column]))} |",
            f"|{'---|' * (len(AXES[column]) + 1)}",
        ]
        for value in AXES[row]:
            answers = (_answer((row, value), (column, other)) for other in AXES[column])
            lines.append(f"| {_shown(value)} | {' | '.join(answers)} |")
        yield "\n".join(lines) + "\n"
    yield ""


def _answer(*values: tuple[str, str]) -> str:
    reason = why_not(*values)
    return (
        f"no: {reason}" if reason else ", ".join(str(CELLS.index(cell) + 1) for cell in cells_with(*values))
    )
