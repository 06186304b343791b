"""Tags: names of snapshots that keep them from expiring.

Ours, not the format's: its table ``ducklake_tag`` holds comments.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from ..errors import InvalidInputError, InvalidNameError
from .names.identifiers import QualifiedName, is_storable, quote

if TYPE_CHECKING:
    from .snapshots import CommitKey, SnapshotId


TAG_PREFIX = "tag:"  # of a tag where a snapshot is named
LONGEST_NAME = 255  # characters: of four bytes each they fit the index of every catalog database
_UNPRINTED = {"Cc", "Zl", "Zp"}  # categories of Unicode: control characters, ends of lines and paragraphs


@dataclass(frozen=True, slots=True)
class Tag:
    """A name of a snapshot; times are aware UTC.

    ``is_lost``: there is no such snapshot (any more): a client that ignores tags has expired it.
    """

    name: str
    snapshot_id: SnapshotId
    snapshot_time: datetime
    tagged_at: datetime
    author: str | None = None
    message: str | None = None
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class TagResult:
    """The result of a tagging: the snapshot that the tag names, or named before it was removed.

    ``moved_from`` is the snapshot that it named before; ``is_earlier``: nothing was changed, as it was so
    already or an earlier try of the same task had done it.
    """

    name: str
    snapshot_id: SnapshotId
    moved_from: SnapshotId | None = None
    is_earlier: bool = False


def check_tag_name(name: object) -> str:
    """Return a name that a tag can have."""
    if not isinstance(name, str):
        raise InvalidNameError(f"{name!r} cannot name a tag: give a string.")
    if problem := _problem(name):
        raise InvalidNameError(f"{name[:LONGEST_NAME]!r} cannot name a tag: {problem}.")
    return name


def _problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if len(name) > LONGEST_NAME:
        return f"it has {len(name)} characters, and at most {LONGEST_NAME} are allowed"
    if not is_storable(name) or any(unicodedata.category(one) in _UNPRINTED for one in name):
        return "it holds a control character, an end of a line or an unpaired surrogate"
    if name != name.strip():
        return "it begins or ends with a space"
    if name.startswith(TAG_PREFIX):
        return f"leave out {TAG_PREFIX!r}, which stands before it only where a snapshot is named"
    return None


def is_tag(at: object) -> bool:
    """Return True if what names a snapshot names a tag.

    >>> is_tag("tag:q3-close"), is_tag(7)
    (True, False)
    """
    return isinstance(at, str) and at.startswith(TAG_PREFIX)


def tag_name(at: str) -> str:
    """Return the name of the tag in ``at``.

    >>> tag_name("tag:q3-close")
    'q3-close'
    """
    if not is_tag(at):
        raise InvalidInputError(
            f"at={at!r}: give a snapshot id, an aware datetime, or a tag such as 'tag:q3-close'."
        )
    return check_tag_name(at.removeprefix(TAG_PREFIX))


# Views: the SQL they stand for, in a dialect, and the names they give its columns.


_ALIAS = re.compile(r'"((?:[^"]|"")*)"')


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """The definition of a view."""

    sql: str
    dialect: str = "duckdb"
    column_aliases: tuple[str, ...] = ()


def format_aliases(names: tuple[str, ...]) -> str:
    """Return the text of ``column_aliases``.

    >>> format_aliases(("p", "q r"))
    '"p","q r"'
    """
    return ",".join(map(quote, names))


def parse_aliases(text: str | None) -> tuple[str, ...]:
    """Return the names in a ``column_aliases`` text."""
    return tuple(name.replace('""', '"') for name in _ALIAS.findall(text or ""))


# Macros: expressions and queries with parameters, as the catalog keeps them.
#
# *Source:* ``ducklake_macro``, ``ducklake_macro_impl`` and ``ducklake_macro_parameters``, as the reference
# fills them (docs/sources.md, DDL).


SCALAR, TABLE = "scalar", "table"  # the type of an implementation
DIALECT = "duckdb"  # of bodies
EXPRESSION = "expression"  # the type of a default that is SQL, since 1.1
_UNKNOWN, _NO_DEFAULT = "unknown", "NULL"


@dataclass(frozen=True, slots=True)
class MacroDefault:
    """The default of a parameter: a value's text and its DuckLake type, or SQL and ``expression``."""

    text: str
    type: str


@dataclass(frozen=True, slots=True)
class MacroParameter:
    """A parameter; a type is a DuckLake type, or if it is nested DuckDB's text of it; None: any."""

    name: str
    type: str | None = None
    default: MacroDefault | None = None

    @classmethod
    def of_row(
        cls, name: str, type_: str | None, default: str | None, default_type: str | None
    ) -> MacroParameter:
        """Parse a row of ``ducklake_macro_parameters``."""
        known = default_type not in (None, _UNKNOWN)
        return cls(
            name,
            None if type_ in (None, _UNKNOWN) else type_,
            MacroDefault(default or "", default_type or "") if known else None,
        )

    @property
    def columns(self) -> dict[str, str]:
        """The columns of its row that say so."""
        return {
            "parameter_name": self.name,
            "parameter_type": self.type or _UNKNOWN,
            "default_value": self.default.text if self.default else _NO_DEFAULT,
            "default_value_type": self.default.type if self.default else _UNKNOWN,
        }


@dataclass(frozen=True, slots=True)
class MacroOverload:
    """One body of a macro: an expression, or the query of a table macro."""

    sql: str
    parameters: tuple[MacroParameter, ...] = ()
    dialect: str = DIALECT


@dataclass(frozen=True, slots=True)
class MacroDefinition:
    """The definition of a macro; a call takes the overload that its arguments fit."""

    overloads: tuple[MacroOverload, ...]
    is_table: bool = False


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro of a lake. A scalar macro and a table macro of one schema can have the same name."""

    name: QualifiedName
    definition: MacroDefinition


# Frozen lakes: one snapshot of a lake as a separate catalog, in a file that is never written to.


FROZEN = "airflow_ducklake_frozen"  # the key of the row of ``ducklake_metadata`` that says so
_OF_SQLITE = (".sqlite", ".sqlite3", ".db")


class ExportFormat(StrEnum):
    """The database of a frozen catalog's file."""

    DUCKDB = "duckdb"
    SQLITE = "sqlite"

    @classmethod
    def of(cls, path: str, word: str | None) -> ExportFormat:
        """Return the format that a user names, or that the name of the file does.

        >>> ExportFormat.of("/backup/q3.ducklake", None), ExportFormat.of("s3://b/q3.sqlite", None)
        (<ExportFormat.DUCKDB: 'duckdb'>, <ExportFormat.SQLITE: 'sqlite'>)
        """
        if word is None:
            return cls.SQLITE if path.lower().endswith(_OF_SQLITE) else cls.DUCKDB
        try:
            return cls(word)
        except ValueError:
            raise InvalidInputError(f"format is {word!r}; choose one of {', '.join(cls)}.") from None


@dataclass(frozen=True, slots=True)
class FrozenMark:
    """The lake and snapshot of a frozen catalog, and the task that made it, if one did."""

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

    def is_of(self, lake_id: str, key: CommitKey | None) -> bool:
        """Return True if the task of a key made it, in the same run, of that lake."""
        return key is not None and (self.lake_id, self.commit_key) == (lake_id, key.digest)

    @property
    def text(self) -> str:
        """Its form in the catalog."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return a mark that ``text`` reads, without what a newer release adds; None: it cannot be read."""
        try:
            found = json.loads(text)
            return cls(**{one.name: found[one.name] for one in fields(cls) if one.name in found})
        except (TypeError, ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A frozen catalog: where it is, of which snapshot, and what it has.

    ``data_path`` is where its readers find the data files; ``copied_bytes`` of them were copied for it;
    ``attach`` is the statement that opens it in DuckDB. ``is_earlier``: an earlier try of the same task had
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
    """Build the statement that attaches a frozen catalog in DuckDB.

    >>> attach_statement("https://host/q3.ducklake", ExportFormat.DUCKDB)
    "ATTACH 'ducklake:https://host/q3.ducklake' AS frozen (READ_ONLY)"
    """
    kind = "sqlite:" if format_ is ExportFormat.SQLITE else ""
    escaped = path.replace("'", "''")
    return f"ATTACH 'ducklake:{kind}{escaped}' AS frozen (READ_ONLY)"
