"""Statements of partition and sort keys. *Source:* rows the reference writes (docs/sources.md, DDL)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.dialects.effect import Effect, close, insert
from airflow_provider_ducklake.lake.catalog.effects.tables import new_schema_version
from airflow_provider_ducklake.lake.spec.partitioning import check_transform
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind, ChangeRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_ducklake.lake.catalog.database.tables import CatalogTables
    from airflow_provider_ducklake.lake.transaction.changes import SetPartitioning, SetSorting
    from airflow_provider_ducklake.lake.transaction.commit_state import CommitState


def set_partitioning(change: SetPartitioning, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the new partition keys; a table without any has a spec without keys.

    Keys that come back have their rows already, under their id.
    """
    for field in change.fields:
        check_transform(field.transform.kind, tables.writer)
    table_id, info = state.table_id(change.table), tables["partition_info"]
    partition_id = state.add_partition(table_id, change.partition_id)
    yield close(info, state, info.c.table_id == table_id)
    yield insert(
        info,
        {
            "partition_id": partition_id,
            "table_id": table_id,
            "begin_snapshot": state.snapshot_id,
            "end_snapshot": None,
        },
    )
    keys = [
        {
            "partition_id": partition_id,
            "table_id": table_id,
            "partition_key_index": index,
            "column_id": field.column_id,
            "transform": str(field.transform),
        }
        for index, field in enumerate(change.fields)
    ]
    if keys and change.partition_id is None:
        yield insert(tables["partition_column"], *keys)
    yield from new_schema_version(table_id, state, tables)
    state.record(ChangeRecord(ChangeKind.ALTERED_TABLE, table_id))


def set_sorting(change: SetSorting, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the new sort keys; a table without any has no row."""
    table_id, info = state.table_id(change.table), tables["sort_info"]
    yield close(info, state, info.c.table_id == table_id)
    if change.fields:
        sort_id = state.new_sort_id()
        yield insert(
            info,
            {
                "sort_id": sort_id,
                "table_id": table_id,
                "begin_snapshot": state.snapshot_id,
                "end_snapshot": None,
            },
        )
        keys = [
            {
                "sort_id": sort_id,
                "table_id": table_id,
                "sort_key_index": index,
                "expression": field.expression,
                "dialect": field.dialect,
                "sort_direction": field.direction,
                "null_order": field.null_order,
            }
            for index, field in enumerate(change.fields)
        ]
        yield insert(tables["sort_expression"], *keys)
    state.record(ChangeRecord(ChangeKind.ALTERED_TABLE, table_id))
