"""Tables written by the reference, one Parquet file each, with what its catalog says of the files."""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from airflow_provider_ducklake.lake.format.files import ColumnStats, DataFile, LiveDataFile
from airflow_provider_ducklake.lake.format.schema import Column, TableSchema
from airflow_provider_ducklake.lake.format.snapshots import ColumnId, DataFileId, SnapshotId
from airflow_provider_ducklake.lake.format.types.ducklake_types import Field, children_of, parse_type
from tests.reference.catalog_dump import Dump, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake


@dataclass(frozen=True)
class WrittenTable:
    """`stats` are the reference's rows of `ducklake_file_column_stats`, sizes left out."""

    name: str
    schema: TableSchema
    file: LiveDataFile
    stats: dict[ColumnId, ColumnStats]
    shown: list[tuple[str, ...]]  # (type, text) of each value, in order


def schema_of(**types: str) -> TableSchema:
    """Build a table's first schema; also with types that we refuse to store."""
    ids = iter(range(1, 1000))

    def column(field: Field) -> Column:
        column_id = ColumnId(next(ids))
        children = tuple(column(child) for child in children_of(field.type))
        return Column(column_id, field.name, field.type, children=children)

    return TableSchema(tuple(column(Field(name, parse_type(text))) for name, text in types.items()))


def write_by_reference(
    catalog: CatalogDatabase, tables: Mapping[str, tuple[str, Iterable[str]]]
) -> dict[str, WrittenTable]:
    """Let the reference write tables with one column `c`: (type, one SQL expression for each row)."""
    names = {key: f"t{number}" for number, key in enumerate(tables)}
    with open_lake(catalog, data_inlining_row_limit=0) as lake:
        for key, (type_, values) in tables.items():
            rows = ", ".join(f"({value})" for value in values)
            lake.sql(f"CREATE TABLE {names[key]} (c {type_})")
            lake.sql(f"INSERT INTO {names[key]} VALUES {rows}")
        shown = {key: lake.sql(f"SELECT typeof(c), c::VARCHAR FROM {name}") for key, name in names.items()}
    dump = dump_catalog(catalog)
    return {
        key: WrittenTable(names[key], schema_of(c=type_), file, stats_of(dump, names[key]), shown[key])
        for key, (type_, _) in tables.items()
        for (file,) in [live_files(catalog, dump, names[key])]
    }


def _rows_of(dump: Dump, catalog_table: str, table: str) -> list[dict]:
    ids = {row["table_id"] for row in dump["ducklake_table"] if row["table_name"] == table}
    return [row for row in dump[catalog_table] if row["table_id"] in ids]


def live_files(catalog: CatalogDatabase, dump: Dump, table: str) -> list[LiveDataFile]:
    return [
        LiveDataFile(
            id=DataFileId(row["data_file_id"]),
            path=f"{catalog.data_path}main/{table}/{row['path']}",
            record_count=row["record_count"],
            file_size_bytes=row["file_size_bytes"],
            footer_size=row["footer_size"],
            row_id_start=row["row_id_start"],
            begin_snapshot=SnapshotId(row["begin_snapshot"]),
        )
        for row in _rows_of(dump, "ducklake_data_file", table)
        if row["end_snapshot"] is None
    ]


def stats_of(dump: Dump, table: str) -> dict[ColumnId, ColumnStats]:
    return {
        ColumnId(row["column_id"]): ColumnStats(
            ColumnId(row["column_id"]),
            row["value_count"],
            row["null_count"],
            row["min_value"],
            row["max_value"],
            None if row["contains_nan"] is None else bool(row["contains_nan"]),
            extra_stats=row["extra_stats"],
        )
        for row in _rows_of(dump, "ducklake_file_column_stats", table)
    }


def put_in_place(catalog: CatalogDatabase, files: Mapping[DataFileId, DataFile]) -> None:
    """Make the catalog name other files, with other statistics, instead of those the reference wrote."""
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        for file_id, file in files.items():
            connection.execute(
                "UPDATE ducklake_data_file SET path = ?, path_is_relative = 0, file_size_bytes = ?,"
                " footer_size = ? WHERE data_file_id = ?",
                (file.path, file.file_size_bytes, file.footer_size, file_id),
            )
            connection.executemany(
                "UPDATE ducklake_file_column_stats SET min_value = ?, max_value = ?, value_count = ?,"
                " null_count = ?, contains_nan = ? WHERE data_file_id = ? AND column_id = ?",
                [
                    (
                        s.min_value,
                        s.max_value,
                        s.value_count,
                        s.null_count,
                        s.contains_nan,
                        file_id,
                        column_id,
                    )
                    for column_id, s in file.column_stats.items()
                ],
            )
