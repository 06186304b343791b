"""What a table's columns and files become: continued by a result, or without some of their rows."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from airflow_provider_ducklake.lake.errors import InvalidInputError, TransactionConflictError
from airflow_provider_ducklake.lake.format.files import DataFile, LiveDataFile, LiveDeleteFile
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.schema import TableSchema, new_columns
from airflow_provider_ducklake.lake.format.snapshots import (
    DataFileId,
    DeleteFileId,
    Snapshot,
    SnapshotId,
    TableSnapshot,
)
from airflow_provider_ducklake.lake.planning.writing.evolution import evolve_and_append
from airflow_provider_ducklake.lake.planning.writing.write import LostRows, WriteResult, plan_row_deletes
from airflow_provider_ducklake.lake.transaction.changes import (
    AppendFiles,
    ChangeColumns,
    PositionsFile,
    RegisterLayout,
)

SCHEMA = new_columns({"id": "int32", "s": "struct(x int32)"})
TABLE = TableSnapshot(
    Snapshot(7, 2, 5, 5, datetime(2026, 1, 1, tzinfo=UTC)),
    1,
    "u",
    0,
    QualifiedName.of(("main", "t")),
    SCHEMA,
    "/l/t/",
)


def result(schema: TableSchema, *, files: int = 1) -> WriteResult:
    return WriteResult(schema, (), (DataFile("/l/t/a.parquet", 1, 1, 1),) * files, files, {})


def with_top(schema: TableSchema, number: int, **changed) -> TableSchema:
    columns = list(schema.columns)
    columns[number] = replace(columns[number], **changed)
    return TableSchema(tuple(columns))


WIDER = new_columns({"id": "int64", "s": "struct(x int64)", "more": "varchar"})


def test_wider_and_more_columns_come_with_their_rows():
    changes = evolve_and_append(TABLE, result(WIDER), 4)

    assert [type(change) for change in changes] == [ChangeColumns, RegisterLayout, AppendFiles]
    assert (changes[0].ended, [row.column.id for row in changes[0].begun]) == ((1, 3), [1, 3, 4])


def test_nothing_becomes_of_the_columns_without_rows():
    assert evolve_and_append(TABLE, result(WIDER, files=0), 4) == ()


@pytest.mark.parametrize(
    ("schema", "next_column_id"),
    [
        (WIDER, 5),  # somebody else took the id meanwhile
        (new_columns({"id": "int16", "s": "struct(x int32)"}), 4),
        (new_columns({"id": "varchar", "s": "struct(x int32)"}), 4),
        (new_columns({"id": "int32", "s": "int32[]"}), 4),
        (new_columns({"ID": "int32", "s": "struct(x int32)"}), 4),
        (new_columns({"id": "int32"}), 4),
        (with_top(WIDER, 0, nullable=False), 4),
    ],
)
def test_columns_that_do_not_continue_the_table_s_are_a_conflict(schema, next_column_id):
    with pytest.raises(TransactionConflictError, match="other columns or partition keys"):
        evolve_and_append(TABLE, result(schema), next_column_id)


# --- rows that are deleted ---

DELETE_FILE = LiveDeleteFile(DeleteFileId(9), "/d", "parquet", 5, 1, SnapshotId(2), None)


def loss(count: int, dead: int = 0, *, in_file: bool = False, marks: bool = False) -> LostRows:
    """Return what a file of 20 rows loses."""
    delete_file = DELETE_FILE if in_file else None
    file = LiveDataFile(DataFileId(1), "/f", 20, 1, None, 0, SnapshotId(1), delete_file=delete_file)
    return LostRows(file, PositionsFile("/p", count, 1, 1), dead, has_marks=marks)


@pytest.mark.parametrize(
    ("given", "fate"),
    [
        (loss(20), "ended"),
        (loss(15, 5, in_file=True), "ended"),
        (loss(15, 5, marks=True), "in_delete_files"),
        (loss(10, 10, marks=True), "marked"),
        (loss(10), "marked"),
        (loss(11), "in_delete_files"),
        (loss(1, 5, in_file=True), "in_delete_files"),
        (loss(0), None),
    ],
)
def test_each_file_has_one_fate(given, fate):
    plan = plan_row_deletes([given], mark_limit=10)

    assert {name: getattr(plan, name) for name in ("ended", "marked", "in_delete_files")} == {
        name: (given,) if name == fate else () for name in ("ended", "marked", "in_delete_files")
    }


def test_a_file_cannot_lose_more_rows_than_it_has():
    with pytest.raises(InvalidInputError, match="has 15 rows left, so 16 cannot be deleted"):
        plan_row_deletes([loss(16, 5)], mark_limit=10)
