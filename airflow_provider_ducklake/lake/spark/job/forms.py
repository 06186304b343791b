"""What ``codec`` has to know of the types that travel: which of them are written in another form, and how."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from airflow_provider_ducklake.lake.planning.reading import predicates, scan
from airflow_provider_ducklake.lake.planning.upkeep import compaction
from airflow_provider_ducklake.lake.planning.writing import write
from airflow_provider_ducklake.lake.planning.writing import write as row_changes
from airflow_provider_ducklake.lake.spark.job import request, results
from airflow_provider_ducklake.lake.spec import files, options, partitioning, schema, snapshots, sorting
from airflow_provider_ducklake.lake.spec import files as encryption
from airflow_provider_ducklake.lake.spec import files as stats
from airflow_provider_ducklake.lake.spec import snapshots as ids
from airflow_provider_ducklake.lake.spec.names import identifiers
from airflow_provider_ducklake.lake.spec.types import geometry
from airflow_provider_ducklake.lake.spec.types.ducklake_types import (
    DuckLakeType,
    Field,
    catalog_name,
    with_children,
)
from airflow_provider_ducklake.lake.spec.types.values import Physical
from airflow_provider_ducklake.lake.transaction import changes

if TYPE_CHECKING:
    from types import ModuleType

_MODULES: tuple[ModuleType, ...] = (
    *(predicates, scan, compaction, row_changes, write, request, results),
    *(encryption, files, ids, options, partitioning, schema, snapshots, sorting, stats, identifiers, changes),
    geometry,
)
# what annotations name; many modules import it for type checkers only
NAMES = {name: one for module in _MODULES for name, one in vars(module).items()}
NAMES |= {"Mapping": Mapping, "Sequence": Sequence, "datetime": datetime, "Any": Any}

AS_LIST = {
    *(snapshots.Snapshot, schema.Default, sorting.SortField),
    *(files.MappedColumn, stats.ColumnStats, row_changes.NewDeletes, changes.RewriteSource),
}
TAGS = {
    write.NewTable: "new",
    write.NewTableAndSchema: "new with its schema",
    results.ExistingTable: "existing",
    changes.MergedFile: "merged",
    changes.RewrittenFile: "rewritten",
}
# a job gives its files no mapping, and a plan names its files itself
LEFT_OUT = {(files.DataFile, "mapping"), (files.DataFile, "deletes"), (snapshots.TableSnapshot, "files")}
SHARED = {(files.LiveDataFile, "mapping"), (compaction.Bin, "schema")}
SHARES = {scan.ScanPlan, scan.ChangeFeedPlan, compaction.Compaction}


def _column(**fields: Any) -> schema.Column:  # noqa: ANN401
    """Return a column of which the type is the catalog's word: what a nested one has are its children."""
    below = tuple(Field(child.name, child.type) for child in fields["children"])
    return schema.Column(**fields | {"type": with_children(fields["type"], below)})


MADE_BY = {schema.Column: _column}


def _in_utc(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a time without its zone")
    return found


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError("no finite number")
    return found


def _qualified_name(parts: tuple[str, ...]) -> identifiers.QualifiedName:
    if len(parts) < 2:  # noqa: PLR2004 - schema and name
        raise ValueError("a name without a schema")
    return identifiers.QualifiedName.of(parts)


def _by_column(found: tuple[stats.ColumnStats, ...]) -> dict[ids.ColumnId, stats.ColumnStats]:
    keyed = {one.column_id: one for one in found}
    if len(keyed) != len(found):
        raise ValueError("a column has statistics twice")
    return keyed


# --- rows of the catalog, and values of filters

# JSON has strings, whole numbers, truth values and null; all else says what it is: {"type": string}
Cell: TypeAlias = str | int | bool | dict[str, str] | None
_MICROSECOND = timedelta(microseconds=1)
_TAGGED: tuple[tuple[Any, str, Callable[[Any], str], Callable[[str], Any]], ...] = (
    (float, "float", repr, float),
    ((bytes, memoryview, bytearray), "bytes", lambda value: b64encode(value).decode(), b64decode),
    (Decimal, "decimal", str, Decimal),
    (datetime, "datetime", datetime.isoformat, datetime.fromisoformat),  # before date, which it is too
    (date, "date", date.isoformat, date.fromisoformat),
    (time, "time", time.isoformat, time.fromisoformat),
    (timedelta, "micros", lambda value: str(value // _MICROSECOND), lambda text: int(text) * _MICROSECOND),
    (UUID, "uuid", str, UUID),
)
_PARSERS = {tag: parse for _, tag, _, parse in _TAGGED}


def encode_cell(value: object) -> Cell:
    """Return a value that a database driver gave, or one of a filter, as JSON.

    >>> encode_cell(1), encode_cell("1"), encode_cell(1.5), encode_cell(b"x")
    (1, '1', {'float': '1.5'}, {'bytes': 'eA=='})
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    for types, tag, text, _ in _TAGGED:
        if isinstance(value, types):
            return {tag: text(value)}
    raise TypeError(type(value))


def decode_cell(item: object) -> Any:  # noqa: ANN401 - whatever it was
    """Return the value; the inverse of ``encode_cell``.

    Raises:
        ValueError, LookupError, ArithmeticError: ``encode_cell`` makes no such JSON.
    """
    if item is None or isinstance(item, str | bool | int):
        return item
    if not isinstance(item, dict):
        raise ValueError(f"a {type(item).__name__}")  # noqa: TRY004 - of a document
    ((tag, text),) = item.items()
    value = _PARSERS[tag](text)
    if encode_cell(value) != item:
        raise ValueError(f"{tag} is written in another way")
    return value


Row: TypeAlias = Mapping[str, Any]
_Rows: TypeAlias = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]


def _with_names_once(rows: Sequence[Row]) -> _Rows:
    return tuple(rows[0]) if rows else (), tuple(tuple(row.values()) for row in rows)


def _rows(found: _Rows) -> tuple[Row, ...]:
    names, rows = found
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


WRITTEN_AS: dict[Any, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    Any: (object, encode_cell, decode_cell),
    Physical: (object, encode_cell, decode_cell),
    tuple[Row, ...]: (_Rows, _with_names_once, _rows),
    DuckLakeType: (str, catalog_name, str),
    datetime: (str, datetime.isoformat, _in_utc),
    float: (str, repr, _finite),
    identifiers.QualifiedName: (tuple[str, ...], attrgetter("parts"), _qualified_name),
    encryption.FileKey: (str, attrgetter("text"), encryption.FileKey),
    options.Options: (Mapping[str, str], lambda value: value.texts, options.Options),
    partitioning.Transform: (str, str, partitioning.Transform.parse),
    schema.TableSchema: (tuple[schema.Column, ...], lambda value: value.columns, schema.TableSchema),
    Mapping[ids.ColumnId, stats.ColumnStats]: (
        *(tuple[stats.ColumnStats, ...], lambda value: value.values(), _by_column),
    ),
}
