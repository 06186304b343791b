"""Several alterations of one table at once: by us in one transaction, by the reference one after another.

The reference forgets some of several in one transaction. One after another they take more snapshots and ids,
so what is compared is what the tables are in the end, as the reference sees them in both lakes.
"""

from collections import Counter
from typing import Any

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.differential.drawn_changes import Change, Changes
from tests.differential.drawn_lake import ID, Table
from tests.differential.free_changes import ALTERATIONS, APPENDS, FreeChanges
from tests.differential.twin import Twin
from tests.reference.catalog_dump import Row, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

TRANSACTIONS = 6  # of alterations, between two that add rows to every table

_COLUMNS = """
SELECT schema_name, table_name, column_name, data_type, is_nullable, column_default, comment
FROM duckdb_columns() WHERE database_name = 'lake' AND NOT internal
ORDER BY schema_name, table_name, column_index"""
_TABLES = """
SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE database_name = 'lake' AND NOT internal
ORDER BY schema_name, table_name"""


class Alterations:
    """Alters the tables that drawn changes left; ``counts`` and ``together`` say what was drawn."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.together: Counter[int] = Counter()

    def carry_out(self, history: Changes, twin: Twin) -> None:
        """Alter the tables in both lakes and compare them.

        Raises:
            AssertionError: they differ; it shows what was done.
        """
        free = FreeChanges(history.random, self.counts, self.together, inlining=True)
        free.lake, free.values, free.sizes = history.lake, history.values, (2, 4, 8)
        done = [_carried_out(twin, free.rows())]
        free.kinds = ALTERATIONS
        done += [_carried_out(twin, free.transaction()) for _ in range(TRANSACTIONS)]
        free.kinds = APPENDS
        done.append(_carried_out(twin, free.rows()))
        ours, theirs = (tables(one) for one in (twin.ours, twin.theirs))
        assert ours == theirs, "\n".join([*done, *differences(ours, theirs)])
        our_reader_agrees(twin, free.lake.tables)


def _carried_out(twin: Twin, changes: list[Change]) -> str:
    """Do the same in both lakes and return it as text."""
    if changes:
        twin.commit(changes)
    texts = [text for change in changes for text in change.sql]
    for text in texts:
        twin.reference.sql(text)
    return "\n".join(["--", *texts])


def tables(catalog: CatalogDatabase) -> list[tuple[Any, ...]]:
    """Return columns, comments, keys and rows of every table, as the reference shows them."""
    with open_lake(catalog.attach_string, read_only=True) as reference:
        shown = reference.sql(_TABLES)
        rows = [(schema, table, row) for schema, table, _ in shown for row in _rows(reference, schema, table)]
        return [*shown, *reference.sql(_COLUMNS), *keys(dump_catalog(catalog)), *rows]


def _rows(reference: DuckLakeConnection, schema: str, table: str) -> list[str]:
    names = ['"' + one.replace('"', '""') + '"' for one in (schema, table)]
    return sorted(map(repr, reference.sql(f"FROM {'.'.join(names)}")))


def our_reader_agrees(twin: Twin, tables: list[Table]) -> None:
    """Read every table of both lakes by our own reader: the same rows, and those that were drawn."""
    with Lake.connect(twin.theirs.sqlalchemy_url) as theirs:
        for table in tables:
            own, other = (lake.read_arrow(table.qualified).sort_by(ID) for lake in (twin.lake, theirs))
            assert own[ID].to_pylist() == sorted(table.live), table.sql
            assert own == other, table.sql


def keys(dump: dict[str, list[Row]]) -> list[tuple[Any, ...]]:
    """List the keys that tables have now, by the names of tables and columns."""
    live = {name: [row for row in rows if row.get("end_snapshot") is None] for name, rows in dump.items()}
    tables = {row["table_id"]: row["table_name"] for row in live["ducklake_table"]}
    columns = {(row["table_id"], row["column_id"]): row["column_name"] for row in live["ducklake_column"]}
    partitions = {row["partition_id"] for row in live["ducklake_partition_info"]}
    sortings = {row["sort_id"] for row in live["ducklake_sort_info"]}
    partitioned = [
        (tables[row["table_id"]], columns[row["table_id"], row["column_id"]], row["transform"])
        for row in live["ducklake_partition_column"]
        if row["partition_id"] in partitions and row["table_id"] in tables
    ]
    is_sorted = [
        (tables[row["table_id"]], *(row[one] for one in ("expression", "sort_direction", "null_order")))
        for row in live["ducklake_sort_expression"]
        if row["sort_id"] in sortings and row["table_id"] in tables
    ]
    return sorted(partitioned) + sorted(is_sorted)


def differences(ours: list[Any], theirs: list[Any]) -> list[str]:
    """List what only one of them has."""
    return [f"ours: {one}" for one in ours if one not in theirs] + [
        f"theirs: {one}" for one in theirs if one not in ours
    ]
