"""Names where Spark parses them, and those of columns that we add beside users' own, which may have any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

from ...errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from ...format.schema import Column


def quoted(name: str) -> str:
    """Return a column's name in backticks: dots and spaces are part of it.

    >>> quoted("a.b"), quoted("a`b")
    ('`a.b`', '`a``b`')
    """
    return f"`{name.replace('`', '``')}`"


def refuse_equal_names(columns: Sequence[Column], table: object) -> None:
    """Refuse columns, or fields of one struct, that are the same for Spark: it ignores case.

    *Source:* Java's ``equalsIgnoreCase``, by which Spark finds columns.
    """
    seen: dict[str, str] = {}
    for column in columns:
        one = seen.setdefault("".join(map(_without_case, column.name)), column.name)
        if one != column.name:
            raise UnsupportedFeatureError(
                f"{table}: Spark takes the columns {one!r} and {column.name!r} for the same: it ignores "
                "the case of every letter, and DuckLake that of ASCII letters only. Rename one of them, or "
                "use lake.read_arrow, lake.append_arrow or DuckDB."
            )
        refuse_equal_names(column.children, table)


def _without_case(letter: str) -> str:
    upper = letter.upper()
    return (upper if len(upper) == 1 else letter).lower()[0]


def free_prefix(names: Iterable[str]) -> str:
    """Return the beginning of names for columns of ours beside those of users: none of theirs begins so.

    >>> free_prefix(["id"]), free_prefix(["_Ducklake_key_0"])
    ('_ducklake_', '__ducklake_')
    """
    taken = [name.lower() for name in names]
    prefix = "_ducklake_"
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    return prefix


@dataclass(frozen=True, slots=True)
class _OwnNames:
    prefix: str

    @classmethod
    def beside(cls, names: Iterable[str]) -> Self:
        """Return names that differ from all of ``names``, whatever their case."""
        prefix = free_prefix(names)
        named = {field.name: prefix + field.name for field in fields(cls)}
        return cls(**{**named, "prefix": prefix})


@dataclass(frozen=True, slots=True)
class ReadNames(_OwnNames):
    """Names of a read: a row's position, facts of its file, and the snapshots of its insert and delete."""

    row_id: str
    file_id: str
    position: str
    row_id_start: str
    file_key: str
    gone: str
    inserted: str
    deleted: str
    event: str
    snapshot_id: str
    kind: str
    change_type: str

    @property
    def numbers(self) -> tuple[str, str, str]:
        """Those that a numbered read has behind its columns."""
        return self.row_id, self.file_id, self.position

    @property
    def life(self) -> tuple[str, str, str]:
        """Those of a row's coming and going."""
        return self.inserted, self.deleted, self.row_id


@dataclass(frozen=True, slots=True)
class MatchNames(_OwnNames):
    """Names of a row change: places of rows of the table, rows of the source, and the clause that applies.

    Those that begin with ``found_`` are of a row found, beside the row itself.
    """

    row_id: str
    file_id: str
    position: str
    source_id: str
    clause: str
    times: str
    found_file: str
    found_place: str
    found_row: str
    found_source: str

    @property
    def place(self) -> tuple[str, str, str]:
        """Where a row of the table lies."""
        return self.file_id, self.position, self.row_id
