"""JSON of reads: a scan plan and a change feed's, explicit both ways as in ``job_json``.

Partition values of files stay behind: they have done their work when the plan is made. Statistics are those
of the columns that the plan was asked for.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from airflow_provider_ducklake.planning.reading.change_feed import ChangeFeedPlan, FileHistory
from airflow_provider_ducklake.planning.reading.predicates import (
    AllOf,
    AnyOf,
    Comparison,
    Likeness,
    Membership,
    NullTest,
    Operator,
    Predicate,
)
from airflow_provider_ducklake.planning.reading.scan import InlinedRows, ScanPlan
from airflow_provider_ducklake.spark.job.schema_json import Json, decode_schema, encode_schema
from airflow_provider_ducklake.spark.job.snapshot_json import decode_snapshot, encode_snapshot
from airflow_provider_ducklake.spark.job.stats_json import decode_stats, encode_stats
from airflow_provider_ducklake.spec.files import LiveDataFile, LiveDeleteFile, MappedColumn, NameMapping
from airflow_provider_ducklake.spec.ids import (
    ColumnId,
    DataFileId,
    DeleteFileId,
    MappingId,
    SchemaId,
    SnapshotId,
    TableId,
)
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.spec.snapshots import TableSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def encode_read(plan: ScanPlan | ChangeFeedPlan) -> Json:
    """Return the plan of a read, of either kind, as JSON."""
    if isinstance(plan, ScanPlan):
        return {"kind": "scan", **encode_scan(plan)}
    return {"kind": "changes", **encode_changes(plan)}


def decode_read(item: Json) -> ScanPlan | ChangeFeedPlan:
    """Return the plan; the inverse of ``encode_read`` but for what that leaves behind."""
    return decode_scan(item) if item["kind"] == "scan" else decode_changes(item)


# --- scans


def encode_scan(plan: ScanPlan) -> Json:
    """Return a scan plan as JSON."""
    return {
        "table": encode_table(plan.table),
        "columns": list(plan.columns),
        "where": None if plan.where is None else encode_predicate(plan.where),
        "columns_since": list(plan.columns_since.items()),
        "files": encode_files(plan.files),
        "inlined_rows": _encode_inlined(plan.inlined_rows),
        "inlined_deletes": [[file_id, list(places)] for file_id, places in plan.inlined_deletes.items()],
    }


def decode_scan(item: Json) -> ScanPlan:
    """Return the scan plan; the inverse of ``encode_scan`` but for what that leaves behind."""
    files = decode_files(item["files"])
    return ScanPlan(
        table=decode_table(item["table"], files),
        files=files,
        columns=tuple(item["columns"]),
        inlined_rows=_decode_inlined(item["inlined_rows"]),
        inlined_deletes={DataFileId(file_id): tuple(places) for file_id, places in item["inlined_deletes"]},
        where=None if item["where"] is None else decode_predicate(item["where"]),
        columns_since=dict(item["columns_since"]),
    )


def encode_table(table: TableSnapshot) -> Json:
    """Return a table as JSON, without keys and options."""
    return {
        "snapshot": encode_snapshot(table.snapshot),
        "name": [table.name.schema, table.name.name],
        "id": table.table_id,
        "uuid": table.table_uuid,
        "schema_id": table.schema_id,
        "root": table.root,
        "schema": encode_schema(table.schema),
    }


def decode_table(item: Json, files: tuple[LiveDataFile, ...] | None = None) -> TableSnapshot:
    """Return the table as far as a read needs it: keys and options are left behind."""
    return TableSnapshot(
        snapshot=decode_snapshot(item["snapshot"]),
        table_id=TableId(item["id"]),
        table_uuid=item["uuid"],
        schema_id=SchemaId(item["schema_id"]),
        name=QualifiedName(*item["name"]),
        schema=decode_schema(item["schema"]),
        root=item["root"],
        files=files,
    )


# --- files


def encode_files(files: Iterable[LiveDataFile]) -> Json:
    """Return data files as JSON, each name mapping once."""
    files = list(files)
    mappings = {file.mapping_id: file.mapping for file in files if file.mapping is not None}
    return {
        "mappings": [[key, _encode_mapping(mapping)] for key, mapping in mappings.items()],
        "files": [_encode_file(file) for file in files],
    }


def decode_files(item: Json) -> tuple[LiveDataFile, ...]:
    """Return the files; the inverse of ``encode_files``."""
    mappings = {key: _decode_mapping(mapping) for key, mapping in item["mappings"]}
    return tuple(_decode_file(file, mappings) for file in item["files"])


def _encode_mapping(mapping: NameMapping) -> list[list[Any]]:
    return [[one.source_name, one.column_id, one.parent, one.is_partition] for one in mapping]


def _decode_mapping(items: list[list[Any]]) -> NameMapping:
    return tuple(
        MappedColumn(name, ColumnId(column), parent, is_partition)
        for name, column, parent, is_partition in items
    )


_FILE = (
    "id",
    "path",
    "record_count",
    "file_size_bytes",
    "footer_size",
    "row_id_start",
    "begin_snapshot",
    "mapping_id",
    "partial_max",
)
_DELETE_FILE = (
    "id",
    "path",
    "format",
    "delete_count",
    "file_size_bytes",
    "begin_snapshot",
    "partial_max",
    "footer_size",
)


def _encode_file(file: LiveDataFile) -> Json:
    return {
        **{name: getattr(file, name) for name in _FILE},
        "snapshot_counts": list(file.snapshot_counts),
        "delete_file": None if file.delete_file is None else _encode_delete_file(file.delete_file),
        "older_delete_files": [_encode_delete_file(one) for one in file.older_delete_files],
        "column_stats": [encode_stats(stats) for stats in file.column_stats.values()],
    }


def _decode_file(item: Json, mappings: Mapping[MappingId, NameMapping]) -> LiveDataFile:
    delete_file = item["delete_file"]
    stats = [decode_stats(one) for one in item["column_stats"]]
    return LiveDataFile(
        id=DataFileId(item["id"]),
        path=item["path"],
        record_count=item["record_count"],
        file_size_bytes=item["file_size_bytes"],
        footer_size=item["footer_size"],
        row_id_start=item["row_id_start"],
        begin_snapshot=SnapshotId(item["begin_snapshot"]),
        mapping_id=item["mapping_id"],
        mapping=mappings.get(item["mapping_id"]),
        partial_max=item["partial_max"],
        snapshot_counts=tuple((SnapshotId(snapshot), count) for snapshot, count in item["snapshot_counts"]),
        delete_file=None if delete_file is None else _decode_delete_file(delete_file),
        older_delete_files=tuple(_decode_delete_file(one) for one in item["older_delete_files"]),
        column_stats={one.column_id: one for one in stats},
    )


def _encode_delete_file(file: LiveDeleteFile) -> Json:
    return {name: getattr(file, name) for name in _DELETE_FILE}


def _decode_delete_file(item: Json) -> LiveDeleteFile:
    return LiveDeleteFile(
        **{**item, "id": DeleteFileId(item["id"]), "begin_snapshot": SnapshotId(item["begin_snapshot"])}
    )


# --- rows that lie in the catalog


def _encode_inlined(parts: Iterable[InlinedRows]) -> list[Json]:
    return [
        {
            "table_name": part.table_name,
            "schema": encode_schema(part.schema),
            "names": list(part.rows[0]) if part.rows else [],
            "rows": [[encode_cell(cell) for cell in row.values()] for row in part.rows],
        }
        for part in parts
    ]


def _decode_inlined(items: list[Json]) -> tuple[InlinedRows, ...]:
    return tuple(
        InlinedRows(
            item["table_name"],
            decode_schema(item["schema"]),
            tuple(dict(zip(item["names"], map(decode_cell, row), strict=True)) for row in item["rows"]),
        )
        for item in items
    )


# JSON has texts, whole numbers, truth values and null; all else says what it is: {"type": text}
Cell: TypeAlias = str | int | bool | dict[str, str] | None
_MICROSECOND = timedelta(microseconds=1)


def _in_micros(value: timedelta) -> str:
    return str(value // _MICROSECOND)


_TAGGED: tuple[tuple[type, str, Callable[[Any], str], Callable[[str], Any]], ...] = (
    (float, "float", repr, float),
    (bytes, "bytes", lambda value: b64encode(value).decode(), b64decode),
    (memoryview, "bytes", lambda value: b64encode(value).decode(), b64decode),
    (bytearray, "bytes", lambda value: b64encode(value).decode(), b64decode),
    (Decimal, "decimal", str, Decimal),
    (datetime, "datetime", datetime.isoformat, datetime.fromisoformat),  # before date, which it is too
    (date, "date", date.isoformat, date.fromisoformat),
    (time, "time", time.isoformat, time.fromisoformat),
    (
        timedelta,
        "microseconds",
        lambda value: str(value // _MICROSECOND),
        lambda text: int(text) * _MICROSECOND,
    ),
    (UUID, "uuid", str, UUID),
)
_MICROSECOND = timedelta(microseconds=1)
_PARSERS = {tag: parse for _, tag, _, parse in _TAGGED}


def encode_cell(value: object) -> Cell:
    """Return a value that a database driver gave, or one of a filter, as JSON.

    >>> encode_cell(1), encode_cell("1"), encode_cell(1.5), encode_cell(b"x")
    (1, '1', {'float': '1.5'}, {'bytes': 'eA=='})
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    for type_, tag, text, _ in _TAGGED:
        if isinstance(value, type_):
            return {tag: text(value)}
    raise TypeError(type(value))


def decode_cell(item: Cell) -> Any:  # noqa: ANN401 - whatever it was
    """Return the value; the inverse of ``encode_cell``."""
    if not isinstance(item, dict):
        return item
    ((tag, text),) = item.items()
    return _PARSERS[tag](text)


# --- filters


def encode_predicate(predicate: Predicate) -> Json:
    """Return a filter as JSON."""
    match predicate:
        case AllOf(parts):
            return {"all": [encode_predicate(part) for part in parts]}
        case AnyOf(parts):
            return {"any": [encode_predicate(part) for part in parts]}
        case NullTest(column, negated):
            return {"null": column, "negated": negated}
        case Likeness(column, pattern, negated):
            return {"like": column, "pattern": pattern, "negated": negated}
        case Membership(column, values, negated):
            return {"in": column, "values": [encode_cell(value) for value in values], "negated": negated}
        case Comparison(column, operator, value):
            return {"compare": column, "operator": operator.value, "value": encode_cell(value)}


def decode_predicate(item: Json) -> Predicate:
    """Return the filter; the inverse of ``encode_predicate``."""
    (kind, content), *_ = item.items()
    match kind:
        case "all":
            return AllOf(tuple(decode_predicate(part) for part in content))
        case "any":
            return AnyOf(tuple(decode_predicate(part) for part in content))
        case "null":
            return NullTest(ColumnId(content), item["negated"])
        case "like":
            return Likeness(ColumnId(content), item["pattern"], item["negated"])
        case "in":
            values = tuple(decode_cell(value) for value in item["values"])
            return Membership(ColumnId(content), values, item["negated"])
        case _:
            return Comparison(ColumnId(content), Operator(item["operator"]), decode_cell(item["value"]))


# --- change feeds


def encode_changes(plan: ChangeFeedPlan) -> Json:
    """Return the plan of a change feed as JSON."""
    return {
        "table": encode_table(plan.table),
        "start": plan.start,
        "end": plan.end,
        "files": encode_files(history.file for history in plan.files),
        "histories": [
            {
                "ended_by": history.ended_by,
                "delete_files": [_encode_delete_file(one) for one in history.delete_files],
                "marks": list(history.marks.items()),
            }
            for history in plan.files
        ],
        "inlined": _encode_inlined(plan.inlined),
        "rewrites": sorted(plan.rewrites),
        "columns_since": list(plan.columns_since.items()),
    }


def decode_changes(item: Json) -> ChangeFeedPlan:
    """Return the plan; the inverse of ``encode_changes`` but for what that leaves behind."""
    histories = [
        FileHistory(
            file,
            history["ended_by"],
            tuple(_decode_delete_file(one) for one in history["delete_files"]),
            dict(history["marks"]),
        )
        for file, history in zip(decode_files(item["files"]), item["histories"], strict=True)
    ]
    return ChangeFeedPlan(
        table=decode_table(item["table"]),
        start=item["start"],
        end=item["end"],
        files=tuple(histories),
        inlined=_decode_inlined(item["inlined"]),
        rewrites=frozenset(item["rewrites"]),
        columns_since=dict(item["columns_since"]),
    )
