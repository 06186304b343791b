"""What a sensor waits for; the one decision behind its pokes and its trigger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import InvalidInputError, SnapshotNotFoundError
from airflow_provider_ducklake.lake.planning.reading.watch import wanted_words
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.spec.tags import is_tag, tag_name
from airflow_provider_ducklake.lake.spec.types.texts import parse_time, require_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from airflow_provider_ducklake.lake.catalog.lake import Lake
    from airflow_provider_ducklake.lake.planning.reading.watch import TableChanges


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look at a lake showed: snapshots after ``start`` count, and ``newest`` was the newest."""

    start: int
    newest: int
    found: TableChanges | None

    @property
    def handed_on(self) -> dict[str, Any] | None:
        """The XCom of what was found, None if nothing was."""
        if self.found is None:
            return None
        return {
            "table": self.found.table,
            "from_snapshot": int(self.found.from_snapshot),
            "to_snapshot": int(self.found.to_snapshot),
            "changes": list(self.found.changes),
        }


@dataclass(frozen=True, slots=True)
class Watch:
    """Wait for some kinds of changes of a table, made after a snapshot, a time or a tag."""

    table: QualifiedName
    words: frozenset[str]
    since: int | datetime | str

    @classmethod
    def of(
        cls,
        table: str | tuple[str, ...],
        changes: Collection[str],
        since: int | datetime | str | None,
        otherwise: Callable[[], datetime] | None = None,
    ) -> Watch:
        """Check what a user gave; ``otherwise`` returns the time that a ``since`` of None means.

        Raises:
            InvalidInputError: names the argument, its value and what may be given.
        """
        return cls(QualifiedName.of(table), wanted_words(changes), _since(since, otherwise))

    def look(self, lake: Lake) -> Looked:
        """Look once."""
        start = start_of(lake, self.since)
        found = lake.table_changes(str(self.table), start, self.words)
        return Looked(start, found.to_snapshot if found else lake.current_snapshot().id, found)

    def said(self, looked: Looked) -> str:
        """Return the line for the log."""
        changes = looked.found.changes if looked.found else ()
        what = f"Found {' and '.join(changes)}" if changes else f"No {' or '.join(sorted(self.words))}"
        return f"{what} in {self.table} after snapshot {looked.start}, newest: {looked.newest}"

    def as_arguments(self) -> dict[str, Any]:
        """Return the arguments of ``of`` as JSON has them."""
        since = self.since.isoformat() if isinstance(self.since, datetime) else self.since
        return {"table": str(self.table), "changes": sorted(self.words), "since": since}


def _since(
    since: int | datetime | str | None, otherwise: Callable[[], datetime] | None
) -> int | datetime | str:
    """Return a snapshot id, an aware time or a tag."""
    match since:
        case None if otherwise is not None:
            return otherwise()
        case datetime():
            return require_offset(since)
        case str() if since.strip().isdecimal():
            return int(since)
        case str() if is_tag(since.strip()):
            tag_name(since.strip())
            return since.strip()
        case str():
            return parse_time(since)
        case int() if not isinstance(since, bool) and since >= 0:
            return since
    raise InvalidInputError(
        f"since is {since!r}. Give a snapshot id, an aware datetime, an ISO time with an offset, a tag, or "
        "None."
    )


def start_of(lake: Lake, since: int | datetime | str) -> int:
    """Return the snapshot after which changes count, by its id or tag, or the newest by a time."""
    if isinstance(since, int):
        return since
    try:
        return lake.snapshot_at(since).id
    except SnapshotNotFoundError as error:  # every snapshot there is came later
        return max(error.oldest - 1, 0)
