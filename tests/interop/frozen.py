"""Frozen lakes beside the lakes that they are of, as DuckDB and we read both."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.tags import ExportFormat, ExportResult
from tests.reference.duckdb_lake import DuckLakeConnection, load_extension

HISTORY = (
    "CREATE SCHEMA sales",
    "CREATE TABLE sales.orders (id INTEGER, region VARCHAR, price DECIMAL(9,2), tags VARCHAR[])",
    "COMMENT ON TABLE sales.orders IS 'all of them'",
    "COMMENT ON COLUMN sales.orders.price IS 'in euros'",
    "ALTER TABLE sales.orders SET PARTITIONED BY (region)",
    "INSERT INTO sales.orders SELECT i, chr((97 + i % 3)::INTEGER), i / 4, ['x', 'y'] FROM range(60) r(i)",
    "INSERT INTO sales.orders VALUES (1000, 'a', 1.5, ['it''s']), (1001, NULL, NULL, NULL)",
    "DELETE FROM sales.orders WHERE id IN (3, 1001)",  # one in a file, one inlined
    "CREATE TABLE gone AS SELECT i::INTEGER AS i FROM range(20) r(i)",
    "CREATE VIEW dear AS SELECT id, price FROM lake.sales.orders WHERE price > 10",
    "CREATE MACRO plus(a, b := 2) AS a + b",
    "CREATE MACRO few(n) AS TABLE SELECT * FROM range(n) r(i)",
    "DELETE FROM sales.orders WHERE id < 20",
    "INSERT INTO sales.orders SELECT i, 'a', 1, NULL FROM range(60, 90) r(i)",
    "CALL ducklake_flush_inlined_data('lake')",  # this and the next fail where types were promoted since
    "CALL ducklake_rewrite_data_files('lake', 'orders', schema => 'sales', delete_threshold => 0)",
    "CALL ducklake_merge_adjacent_files('lake')",
    "ALTER TABLE sales.orders ADD COLUMN note VARCHAR DEFAULT 'none'",
    "ALTER TABLE sales.orders RENAME COLUMN price TO amount",
    "ALTER TABLE sales.orders ALTER COLUMN id TYPE BIGINT",
    "INSERT INTO sales.orders VALUES (5000000000, 'b', 2.5, [], 'new')",
    "UPDATE sales.orders SET amount = amount + 1 WHERE id = 1000",
    "ALTER TABLE sales.orders RESET PARTITIONED BY",
    "ALTER TABLE sales.orders SET SORTED BY (id)",
    "INSERT INTO sales.orders SELECT i, 'z', 0, NULL, NULL FROM range(100, 140) r(i)",
    "DROP VIEW dear",
    "DROP MACRO plus",
    "DROP TABLE gone",
    "CREATE TABLE sales.added (i INTEGER)",
    "CALL ducklake_add_data_files('lake', 'added', '{external}', schema => 'sales')",
    "INSERT INTO sales.orders VALUES (9, 'c', 9, ['last'], NULL)",
)


@contextmanager
def attached(
    result: ExportResult, *, path: str | None = None, setup: str = ""
) -> Iterator[DuckLakeConnection]:
    """Attach a frozen lake as whoever got the file does, from another address if it has one."""
    kind = "sqlite:" if result.format is ExportFormat.SQLITE else ""
    address = f"ducklake:{kind}{path or result.path}"
    options: dict[str, object] = {"read_only": True}
    with _Reader(address, options, setup) as connection:
        yield connection


class _Reader(DuckLakeConnection):
    def __init__(self, address: str, options: dict[str, object], setup: str) -> None:
        self._setup = setup
        super().__init__(address, options)

    def _attach(self, attach_string: str, options: dict[str, object]) -> None:
        load_extension(self.raw, "httpfs")
        if self._setup:
            self.raw.execute(self._setup)
        super()._attach(attach_string, options)


def rows_at(reference: DuckLakeConnection, table: str, version: int | None = None) -> list[str]:
    """Return the rows of a table with their row ids, as texts, in order."""
    at = "" if version is None else f" AT (VERSION => {version})"
    return sorted(map(repr, reference.sql(f"SELECT rowid, * FROM {table}{at}")))


def all_rows(
    reference: DuckLakeConnection, tables: Iterable[QualifiedName], version: int | None = None
) -> dict[str, list[str]]:
    """Return the rows of tables, at a snapshot if one is given."""
    return {str(name): rows_at(reference, str(name), version) for name in tables}


def columns_of(reference: DuckLakeConnection) -> list[Any]:
    """Return what DuckDB says of the columns of the tables: names, types, defaults, comments."""
    return reference.sql(
        "SELECT schema_name, table_name, column_name, data_type, column_default, comment"
        " FROM duckdb_columns() WHERE database_name = 'lake' AND NOT internal"
        " ORDER BY schema_name, table_name, column_index"
    )
