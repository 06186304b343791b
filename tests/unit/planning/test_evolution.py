"""A table takes a result with other columns only where they continue its own."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from airflow_provider_ducklake.lake.errors import TransactionConflictError
from airflow_provider_ducklake.lake.format.files import DataFile
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.schema import TableSchema, new_columns
from airflow_provider_ducklake.lake.format.snapshots import Snapshot, TableSnapshot
from airflow_provider_ducklake.lake.planning.writing.evolution import evolve_and_append
from airflow_provider_ducklake.lake.planning.writing.write import WriteResult
from airflow_provider_ducklake.lake.transaction.changes import AppendFiles, ChangeColumns, RegisterLayout

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
