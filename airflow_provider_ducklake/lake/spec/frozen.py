"""Frozen lakes: one snapshot of a lake as a catalog of its own, in a file that nobody writes to."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from airflow_provider_ducklake.lake.errors import InvalidInputError

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_ducklake.lake.spec.commit_key import CommitKey
    from airflow_provider_ducklake.lake.spec.ids import SnapshotId

FROZEN = "airflow_ducklake_frozen"  # the key of the row of ``ducklake_metadata`` that says so
_OF_SQLITE = (".sqlite", ".sqlite3", ".db")


class ExportFormat(StrEnum):
    """What a frozen catalog is a file of."""

    DUCKDB = "duckdb"
    SQLITE = "sqlite"

    @classmethod
    def of(cls, path: str, word: str | None) -> ExportFormat:
        """Return the format that a user names, or that the name of the file does.

        >>> ExportFormat.of("/backup/q3.ducklake", None), ExportFormat.of("s3://b/q3.sqlite", None)
        (<ExportFormat.DUCKDB: 'duckdb'>, <ExportFormat.SQLITE: 'sqlite'>)

        Raises:
            InvalidInputError: there is no such format.
        """
        if word is None:
            return cls.SQLITE if path.lower().endswith(_OF_SQLITE) else cls.DUCKDB
        try:
            return cls(word)
        except ValueError:
            raise InvalidInputError(f"format is {word!r}; choose one of {', '.join(cls)}.") from None


@dataclass(frozen=True, slots=True)
class FrozenMark:
    """Of which lake and snapshot a frozen catalog is; by which task, if one made it."""

    lake_id: str
    snapshot_id: SnapshotId
    exported_at: str  # ISO, UTC
    commit_key: str | None = None
    generation: int | None = None

    @classmethod
    def of(cls, lake_id: str, snapshot_id: SnapshotId, now: datetime, key: CommitKey | None) -> Self:
        """Return the mark of an export."""
        made_by = (None, None) if key is None else (key.digest, key.generation)
        return cls(lake_id, snapshot_id, now.isoformat(timespec="seconds"), *made_by)

    @property
    def text(self) -> str:
        """Its form in the catalog."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return a mark that ``text`` reads; None: it is of another release."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A frozen catalog: where it is, of which snapshot, and what it has.

    ``data_path`` is where its readers find the data files, of which ``copied_bytes`` were copied for it;
    ``attach`` the statement by which DuckDB opens it. ``is_earlier``: an earlier try of the same task had
    made it, and nothing was written.
    """

    path: str
    format: ExportFormat
    snapshot_id: SnapshotId
    data_path: str
    attach: str
    tables: int = 0
    data_files: int = 0
    delete_files: int = 0
    inlined_rows: int = 0
    copied_files: int = 0
    copied_bytes: int = 0
    is_earlier: bool = False


def attach_statement(path: str, format_: ExportFormat) -> str:
    """Return how DuckDB attaches a frozen catalog.

    >>> attach_statement("https://host/q3.ducklake", ExportFormat.DUCKDB)
    "ATTACH 'ducklake:https://host/q3.ducklake' AS frozen (READ_ONLY)"
    """
    kind = "sqlite:" if format_ is ExportFormat.SQLITE else ""
    escaped = path.replace("'", "''")
    return f"ATTACH 'ducklake:{kind}{escaped}' AS frozen (READ_ONLY)"
