"""The table of types and writers that a test run prints: checks passed, known gaps, not written so."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

COLUMNS = ("append_arrow", "job")  # our writers: the library's, and a Spark job's
_OUTCOMES = {"passed": "ok", "xfailed": "gap", "failed": "FAILED", "error": "FAILED"}


def noted(record_property, type_text: str, writer: str) -> None:
    """Note in a test's report which cell it fills."""
    record_property("type", type_text)
    record_property("writer", writer)


def lines(stats: dict[str, list[Any]]) -> Iterator[str]:
    """Yield the table for the reports of a run; nothing if no test noted a cell."""
    cells = _cells(stats)
    if not cells:
        return
    types = sorted({type_text for type_text, _ in cells}, key=lambda text: (not text.isidentifier(), text))
    width = max(map(len, types))
    yield f"{'type':<{width}}  " + "".join(f"{writer:<18}" for writer in COLUMNS)
    for type_text in types:
        shown = (_shown(cells.get((type_text, writer))) for writer in COLUMNS)
        yield f"{type_text:<{width}}  " + "".join(f"{text:<18}" for text in shown)


def _cells(stats: dict[str, list[Any]]) -> dict[tuple[str, str], Counter[str]]:
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for outcome, word in _OUTCOMES.items():
        for properties in _noted_in(stats.get(outcome, [])):
            cells[properties["type"], properties["writer"]][word] += 1
    return cells


def _noted_in(reports: Iterable[Any]) -> Iterator[dict[str, str]]:
    for report in reports:
        properties = dict(getattr(report, "user_properties", ()))
        if "writer" in properties:
            yield properties


def _shown(outcomes: Counter[str] | None) -> str:
    if outcomes is None:
        return "-"
    return ", ".join(f"{count} {word}" for word, count in outcomes.items())
