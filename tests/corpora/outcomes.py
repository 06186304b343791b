"""What becomes of a file at a door, and the report: a table, what is not the same, one percentage."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from airflow_provider_ducklake.lake.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError


class Outcome(StrEnum):
    """In the order of the table's columns."""

    SAME = "same rows"
    ARROW = "as pyarrow reads it"
    OTHER = "other"
    REFUSED = "refused by name"
    UNREADABLE = "reader or oracle cannot"
    RAW = "raw error"
    SHUT = "stored, shut to us"
    BAD = "stored, shut to DuckDB"
    ABORT = "abort"
    TIME = "time-out"


MEANINGS = {
    Outcome.SAME: "columns, types and rows are those that DuckDB reads of the file, by all three readers",
    Outcome.ARROW: "what append_arrow was given, by all three readers; pyarrow reads other types than DuckDB",
    Outcome.OTHER: "stored with other rows or types, or DuckDB cannot say which are right",
    Outcome.REFUSED: "one sentence of an error that a task does not retry",
    Outcome.UNREADABLE: "pyarrow cannot read what append_arrow is to get, or DuckDB the types of a text file",
    Outcome.RAW: "an error that is retried (StorageError, SparkJobError), of another library, or of Java",
    Outcome.SHUT: "stored, but read_arrow or LakeSession.read cannot read the table",
    Outcome.BAD: "stored, but DuckDB cannot read the table",
    Outcome.ABORT: "the process ended",
    Outcome.TIME: "no end within the time limit",
}
READ = frozenset({Outcome.SAME, Outcome.ARROW})
FAILURES = frozenset({Outcome.RAW, Outcome.SHUT, Outcome.BAD, Outcome.ABORT, Outcome.TIME})
_REFUSALS = (InvalidInputError, UnsupportedFeatureError, NotFoundError)
_JAVA = re.compile(r"\b(java|javax|scala|org\.apache|py4j)\.|Py4J|<<|\n\s*at ")


@dataclass(frozen=True)
class AtDoor:
    """What became of a file at one door; ``reason`` is empty where all is the same."""

    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    known: str = ""  # why a failure is none of ours


@dataclass
class FileReport:
    """One file: what DuckDB and pyarrow say of it, and what became of it at each door."""

    name: str
    kind: str  # parquet, or text: CSV and JSON
    sha256: str
    listed: str = ""  # project and path, of a file on the list
    duckdb: str = ""  # why it cannot read the file; empty: it can
    pyarrow: str = ""
    rows: int | None = None
    doors: dict[str, AtDoor] = field(default_factory=dict)

    @property
    def is_readable(self) -> bool:
        return not self.duckdb and not self.pyarrow

    @property
    def is_read_everywhere(self) -> bool:
        return all(one.outcome in READ for one in self.doors.values())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def of_error(error: Exception) -> tuple[Outcome, str]:
    """Return whether an error is a refusal, and its words."""
    text = str(error).strip()
    refused = isinstance(error, _REFUSALS) and not _JAVA.search(text)
    return Outcome.REFUSED if refused else Outcome.RAW, f"{type(error).__name__}: {text}"


def failures(reports: Sequence[FileReport]) -> list[tuple[str, str, AtDoor]]:
    """List what may not happen: file, door, what came; without what is known."""
    return [
        (report.name, door, one)
        for report in reports
        for door, one in report.doors.items()
        if one.outcome in FAILURES and not one.known
    ]


def summary(reports: Sequence[FileReport]) -> dict[str, Any]:
    """Return the totals that the table shows."""
    readable = [report for report in reports if report.is_readable]
    everywhere = [report for report in readable if report.is_read_everywhere]
    return {
        "files": len(reports),
        "read by DuckDB": sum(not report.duckdb for report in reports),
        "read by pyarrow": sum(not report.pyarrow for report in reports),
        "read by both": len(readable),
        "of these read by all doors": len(everywhere),
        "percent": round(100 * len(everywhere) / len(readable), 1) if readable else None,
        "failures": len(failures(reports)),
        "doors": {
            door: dict(Counter(report.doors[door].outcome for report in reports if door in report.doors))
            for door in _doors(reports)
        },
    }


def lines(reports: Sequence[FileReport]) -> Iterator[str]:
    """Yield the report: of Parquet files, and of text files."""
    for kind in dict.fromkeys(report.kind for report in reports):
        yield f"## {kind}"
        yield ""
        yield from _of_kind([report for report in reports if report.kind == kind])
        yield ""


def _of_kind(reports: Sequence[FileReport]) -> Iterator[str]:
    """Yield the table, each file that is not the same, by outcome, and the totals."""
    totals = summary(reports)
    yield "| door | " + " | ".join(Outcome) + " |"
    yield "|---" * (len(Outcome) + 1) + "|"
    for door, counts in totals["doors"].items():
        yield f"| {door} | " + " | ".join(str(counts.get(one, "-")) for one in Outcome) + " |"
    for outcome in Outcome:
        if outcome is not Outcome.SAME:
            yield from _section(outcome, reports)
    yield ""
    yield (
        f"{totals['files']} files; DuckDB reads {totals['read by DuckDB']}, "
        f"pyarrow {totals['read by pyarrow']}."
    )
    yield (
        f"Of the {totals['read by both']} files that DuckDB and pyarrow both read, "
        f"{totals['of these read by all doors']} are read by all doors: {totals['percent']} %."
    )
    known = sum(bool(one.known) for report in reports for one in report.doors.values())
    yield f"{totals['failures']} failures, and {known} that are known."


def _section(outcome: Outcome, reports: Sequence[FileReport]) -> Iterator[str]:
    found = [
        f"- {door}: {report.listed or report.name}: {_shown(one)}"
        for door in _doors(reports)
        for report in reports
        if (one := report.doors.get(door)) is not None and one.outcome is outcome
    ]
    if found:
        yield ""
        yield f"{outcome} ({len(found)}): {MEANINGS[outcome]}"
        yield from found


def _doors(reports: Sequence[FileReport]) -> list[str]:
    return list(dict.fromkeys(door for report in reports for door in report.doors))


_LONGEST = 400  # characters


def _shown(one: AtDoor) -> str:
    text = " ⏎ ".join(line.strip() for line in one.reason.splitlines() if line.strip())
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
    return f"{text} [known: {one.known}]" if one.known else text
