"""A lake that the reference writes with a bit of everything, and what can be broken in it."""

# ruff: noqa: E501 - SQL

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.lakes import by_duckdb
from tests.interop.vectors import container, vector
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import open_lake

STATEMENTS = (
    "CALL lake.set_option('data_inlining_row_limit', 0)",
    "CREATE TABLE t (i INT, s VARCHAR, d DOUBLE DEFAULT 1.5, st STRUCT(a INT, b INT[]))",
    "INSERT INTO t SELECT x, 's' || x, x / 4, {'a': x, 'b': [x]} FROM range(10) r(x)",
    "INSERT INTO t SELECT x, NULL, x / 4, NULL FROM range(10, 20) r(x)",
    "DELETE FROM t WHERE i IN (2, 4, 6)",
    "CREATE TABLE p (k VARCHAR, y DATE, i INT)",
    "ALTER TABLE p SET PARTITIONED BY (k, year(y))",
    "INSERT INTO p SELECT 'k' || x % 2, DATE '2024-03-01', x FROM range(20) r(x)",
    "CREATE TABLE m (i INT)",
    "INSERT INTO m VALUES (1), (2)",
    "INSERT INTO m VALUES (3)",
    "CALL ducklake_merge_adjacent_files('lake', 'm')",
    "CALL lake.set_option('data_inlining_row_limit', 100)",
    "CREATE TABLE n (i INT, s VARCHAR)",
    "INSERT INTO n VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO n SELECT x, 'x' FROM range(200) r(x)",
    "DELETE FROM n WHERE i = 77",
    "CREATE TABLE r (i INT, d DOUBLE)",
    "INSERT INTO r VALUES (1, 0.5), (2, 'nan'), (3, NULL)",
    "CREATE TABLE e (i INT)",
    "CREATE TABLE gone AS SELECT x AS i FROM range(200) r(x)",
    "DROP TABLE gone",
    "CREATE VIEW v AS SELECT i FROM t",
    "CREATE MACRO f(a) AS a + 1",
)
TABLES = ("t", "p", "m", "n", "r", "e")


@dataclass(frozen=True)
class Planted:
    """A lake's copy, to be broken."""

    catalog: CatalogDatabase

    def sql(self, text: str) -> list[tuple]:
        with closing(sqlite3.connect(self.catalog.location)) as database, database:
            return database.execute(text).fetchall()

    def path(self, kind: str, table: str) -> Path:
        """Return the oldest data file or delete file of a table."""
        ((path,),) = self.sql(
            f"SELECT f.path FROM ducklake_{kind} f JOIN ducklake_table t USING (table_id) "
            f"WHERE t.table_name = '{table}' ORDER BY f.{kind}_id LIMIT 1"
        )
        return Path(self.catalog.data_path, "main", table, path)

    def layout(self, table: str) -> str:
        """Return the inlined table of a table."""
        ((name,),) = self.sql(
            "SELECT i.table_name FROM ducklake_inlined_data_tables i JOIN ducklake_table t USING (table_id) "
            f"WHERE t.table_name = '{table}'"
        )
        return name

    def rows(self) -> dict[str, list[str]]:
        """Return the rows of all tables as the reference reads them, as texts: NaN equals nothing."""
        with open_lake(self.catalog.attach_string) as reference:
            return {name: sorted(map(repr, reference.sql(f"FROM {name}"))) for name in TABLES}


def build(folder: Path) -> CatalogDatabase:
    catalog = file_catalog("sqlite", folder)
    by_duckdb(catalog, *STATEMENTS)
    return catalog


def copy(catalog: CatalogDatabase, folder: Path) -> Planted:
    shutil.copytree(Path(catalog.location).parent, folder)
    planted = Planted(
        CatalogDatabase("sqlite", str(folder / Path(catalog.location).name), f"{folder / 'data'}/")
    )
    planted.sql(f"UPDATE ducklake_metadata SET value = '{planted.catalog.data_path}' WHERE key = 'data_path'")
    return planted


@dataclass(frozen=True)
class Corruption:
    """What is done to a lake, by SQL or by code, and what has to be found; ``also`` may be found with it."""

    name: str
    code: FindingCode
    how: str | Callable[[Planted], object]
    also: frozenset[FindingCode] = frozenset()

    def plant(self, lake: Planted) -> None:
        if callable(self.how):
            self.how(lake)
            return
        for statement in self.how.split(";"):
            lake.sql(statement)


def _(name: str, code: FindingCode, how: str | Callable[[Planted], object], *also: FindingCode) -> Corruption:
    return Corruption(name, code, how, frozenset(also))


def _table(name: str) -> str:
    return f"(SELECT table_id FROM ducklake_table WHERE table_name = '{name}')"


def _first(table: str, what: str = "data_file") -> str:
    return f"{what}_id = (SELECT min({what}_id) FROM ducklake_{what} WHERE table_id = {_table(table)})"


def _column(table: str, name: str) -> str:
    return f"table_id = {_table(table)} AND column_id = (SELECT column_id FROM ducklake_column c WHERE c.table_id = {_table(table)} AND column_name = '{name}')"


def _rewrite(kind: str, table: str, change: Callable[[pa.Table], pa.Table]) -> Callable[[Planted], None]:
    """Return what puts a changed file in a file's place, and its true sizes into the catalog."""

    def rewrite(lake: Planted) -> None:
        path = lake.path(kind, table)
        pq.write_table(change(pq.read_table(path)), path, store_schema=False)
        size, footer = path.stat().st_size, int.from_bytes(path.read_bytes()[-8:-4], "little")
        lake.sql(
            f"UPDATE ducklake_{kind} SET file_size_bytes = {size}, footer_size = {footer} WHERE path = '{path.name}'"
        )

    return rewrite


def _as_container(lake: Planted) -> None:
    path = lake.path("delete_file", "t")
    positions = pq.read_table(path)["pos"].to_pylist()
    content = container(("1", vector(*positions)))
    path.write_bytes(content)
    footer = len(content) - content.index(b"PFA1", 4)
    lake.sql(
        f"UPDATE ducklake_delete_file SET format = 'puffin', file_size_bytes = {len(content)}, footer_size = {footer} "
        f"WHERE path = '{path.name}'"
    )


def _on_file(kind: str, table: str, change: Callable[[Path], object]) -> Callable[[Planted], None]:
    return lambda lake: change(lake.path(kind, table)) and None


def _without_ids(rows: pa.Table) -> pa.Table:
    return pa.table({name: rows[name].to_pylist() for name in rows.column_names})


def _with_row_ids(ids: list[int]) -> Callable[[pa.Table], pa.Table]:
    field = pa.field("_ducklake_internal_row_id", pa.int64(), metadata={"PARQUET:field_id": "2147483540"})
    return lambda rows: rows.append_column(field, pa.array(ids, pa.int64()))


def _positions(positions: list[int]) -> Callable[[pa.Table], pa.Table]:
    def changed(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index("pos")
        taken = rows.take([0] * len(positions))
        return taken.set_column(place, rows.schema.field(place), pa.array(positions, pa.int64()))

    return changed


def _same_path(lake: Planted) -> None:
    ((path,),) = lake.sql(f"SELECT path FROM ducklake_data_file WHERE {_first('m')}")
    lake.sql(f"UPDATE ducklake_data_file SET path = 'x', path_is_relative = 0 WHERE {_first('m')}")
    lake.sql(f"UPDATE ducklake_data_file SET path = '{path}' WHERE path = 'x'")


def _lost_tag(lake: Planted) -> None:
    """Expire a tagged snapshot as a client does that does not know tags."""
    with Lake.connect(lake.catalog.sqlalchemy_url) as opened:
        opened.tag("kept", 2)
    for table in ("ducklake_snapshot", "ducklake_snapshot_changes"):
        lake.sql(f"DELETE FROM {table} WHERE snapshot_id = 2")


def _absolute_twice(lake: Planted) -> None:
    """Register a file a second time, spelled from the root on."""
    lake.sql(
        "INSERT INTO ducklake_data_file SELECT 900, table_id, begin_snapshot, end_snapshot, file_order, "
        f"'{lake.path('data_file', 'm')}', 0, file_format, record_count, file_size_bytes, footer_size, 50, "
        f"partition_id, encryption_key, mapping_id, partial_max FROM ducklake_data_file WHERE {_first('m')}"
    )
    lake.sql("UPDATE ducklake_snapshot SET next_file_id = next_file_id + 901")


C = FindingCode
_HEAD = "(SELECT max(snapshot_id) FROM ducklake_snapshot)"
_SECOND_DELETES = (
    "INSERT INTO ducklake_delete_file SELECT 900, table_id, begin_snapshot, NULL, data_file_id, 'other-delete.parquet', 1, "
    f"format, delete_count, file_size_bytes, footer_size, NULL, NULL FROM ducklake_delete_file WHERE {_first('t', 'delete_file')};"
    "UPDATE ducklake_snapshot SET next_file_id = next_file_id + 901"
)


def _inlined(*statements: str) -> Callable[[Planted], None]:
    def change(lake: Planted) -> None:
        ((table_id,),) = lake.sql(f"SELECT {_table('n')}")
        for statement in statements:
            lake.sql(statement.format(rows=lake.layout("n"), marks=f"ducklake_inlined_delete_{table_id}"))

    return change


CORRUPTIONS = (
    # G1: counters that clients remember
    _("data changed, next_file_id did not", C.FILE_COUNTER_STOOD,
      "UPDATE ducklake_snapshot SET next_file_id = (SELECT max(next_file_id) FROM ducklake_snapshot)"),
    _("definitions changed, schema_version did not", C.SCHEMA_VERSION_STOOD,
      "UPDATE ducklake_snapshot SET schema_version = (SELECT max(schema_version) FROM ducklake_snapshot)"),
    _("a counter fell", C.COUNTER_FELL, f"UPDATE ducklake_snapshot SET schema_version = 0 WHERE snapshot_id = {_HEAD}",
      C.COUNTER_BEHIND),
    _("next_catalog_id behind", C.COUNTER_BEHIND,
      "UPDATE ducklake_snapshot SET next_catalog_id = 1"),
    _("next_file_id behind", C.COUNTER_BEHIND, "UPDATE ducklake_snapshot SET next_file_id = next_file_id - 5"),
    # G10
    _("an unknown word in changes_made", C.CHANGES_UNREADABLE,
      f"UPDATE ducklake_snapshot_changes SET changes_made = 'my_thing:1' WHERE snapshot_id = {_HEAD}"),
    _("changes_made that cannot be read", C.CHANGES_UNREADABLE,
      f"UPDATE ducklake_snapshot_changes SET changes_made = 'altered_table:\"' WHERE snapshot_id = {_HEAD}"),
    _("a snapshot without its changes", C.CHANGES_MISSING,
      f"DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = {_HEAD}"),
    _("changes without their snapshot", C.ROWS_OF_NOTHING,
      "INSERT INTO ducklake_snapshot_changes VALUES (900, 'altered_table:1', NULL, NULL, NULL)"),
    _("a tag of a snapshot that is gone", C.TAG_WITHOUT_SNAPSHOT, _lost_tag),
    # begin and end
    _("a data file that ends before it begins", C.ENDS_BEFORE_BEGIN,
      f"UPDATE ducklake_data_file SET end_snapshot = begin_snapshot - 1 WHERE {_first('t')}"),
    _("a column of the future", C.IN_THE_FUTURE,
      f"UPDATE ducklake_column SET end_snapshot = 900 WHERE {_column('p', 'i')}",
      C.TABLE_STATS_NARROW, C.INLINED_COLUMNS_DIFFER),
    _("two live rows of a table", C.TWO_AT_ONCE,
      "INSERT INTO ducklake_table SELECT table_id, table_uuid, begin_snapshot + 1, NULL, schema_id, 'other', path, path_is_relative "
      "FROM ducklake_table WHERE table_name = 'm'"),
    _("two live rows of a column", C.COLUMN_TWICE,
      f"INSERT INTO ducklake_column SELECT * FROM ducklake_column WHERE {_column('m', 'i')}"),
    _("a column whose former row goes on", C.COLUMN_TWICE,
      "INSERT INTO ducklake_column SELECT column_id, begin_snapshot - 1, end_snapshot, table_id, column_order, 'former', "
      "column_type, initial_default, default_value, nulls_allowed, parent_column, default_value_type, default_value_dialect "
      f"FROM ducklake_column WHERE {_column('m', 'i')}"),
    _("an inlined row without its id", C.VALUE_MISSING, _inlined("UPDATE {rows} SET row_id = NULL")),
    _("an inlined delete of no file", C.VALUE_MISSING, _inlined("UPDATE {marks} SET file_id = NULL")),
    _("two partitionings at once", C.TWO_AT_ONCE,
      "INSERT INTO ducklake_partition_info SELECT 5, table_id, begin_snapshot, NULL FROM ducklake_partition_info"),
    _("two tables of one name", C.NAME_TWICE, "UPDATE ducklake_table SET table_name = 'T' WHERE table_name = 'm'"),
    _("a view with a table's name", C.NAME_TWICE, "UPDATE ducklake_view SET view_name = 'M'"),
    _("two columns of one name", C.NAME_TWICE,
      f"UPDATE ducklake_column SET column_name = 'K' WHERE {_column('p', 'y')}", C.COLUMNS_UNREADABLE),
    _("columns of 1.1 in a lake of 1.0", C.COLUMNS_TOO_NEW,
      "ALTER TABLE ducklake_table_column_stats ADD COLUMN min_is_exact BOOLEAN"),
    _("a table of 1.1 in a lake of 1.0", C.COLUMNS_TOO_NEW,
      "CREATE TABLE ducklake_view_column_tag (view_id BIGINT, key VARCHAR)"),
    # G11: what keeps DuckDB from opening anything
    _("a table without columns", C.COLUMNS_UNREADABLE,
      f"DELETE FROM ducklake_column WHERE table_id = {_table('m')}"),
    _("a type nobody knows", C.COLUMNS_UNREADABLE, f"UPDATE ducklake_column SET column_type = 'weird' WHERE {_column('m', 'i')}"),
    _("a table in no schema", C.SCHEMA_MISSING, "UPDATE ducklake_table SET schema_id = 77 WHERE table_name = 'm'",
      C.FILE_MISSING),
    _("a field without its parent", C.COLUMNS_UNREADABLE,
      f"UPDATE ducklake_column SET parent_column = 77 WHERE {_column('t', 'a')}"),
    _("a list without its element", C.COLUMNS_UNREADABLE,
      f"UPDATE ducklake_column SET end_snapshot = begin_snapshot + 1 WHERE {_column('t', 'element')}"),
    _("a default that is none", C.COLUMNS_UNREADABLE,
      f"UPDATE ducklake_column SET initial_default = 'soon' WHERE {_column('t', 'd')}"),
    _("a partition key that is no column", C.PARTITION_KEY_UNKNOWN,
      "UPDATE ducklake_partition_column SET column_id = 77 WHERE partition_key_index = 1"),
    _("a transform nobody knows", C.PARTITION_KEY_UNKNOWN,
      "UPDATE ducklake_partition_column SET transform = 'week' WHERE partition_key_index = 1"),
    # G3
    _("no schema version of a table", C.SCHEMA_VERSION_MISSING,
      f"DELETE FROM ducklake_schema_versions WHERE table_id = {_table('t')}"),
    # rows of files
    _("a file of no table", C.TABLE_UNKNOWN, f"UPDATE ducklake_data_file SET table_id = 77 WHERE {_first('m')}",
      C.FILE_MISSING),
    _("a live file of a table that ended", C.TABLE_ENDED,
      f"UPDATE ducklake_data_file SET end_snapshot = NULL WHERE {_first('gone')}"),
    _("a delete file of no data file", C.DATA_FILE_UNKNOWN, "UPDATE ducklake_delete_file SET data_file_id = 77"),
    _("a delete file of another table's data file", C.DATA_FILE_UNKNOWN,
      f"UPDATE ducklake_delete_file SET data_file_id = (SELECT data_file_id FROM ducklake_data_file WHERE {_first('p')})"),
    # G7
    _("two live delete files of a data file", C.TWO_DELETE_FILES, _SECOND_DELETES, C.FILE_MISSING),
    _("a mapping that is not there", C.MAPPING_UNKNOWN, f"UPDATE ducklake_data_file SET mapping_id = 77 WHERE {_first('m')}"),
    _("a partitioning that is not there", C.PARTITION_UNKNOWN, f"UPDATE ducklake_data_file SET partition_id = 77 WHERE {_first('m')}"),
    _("a partition value too few", C.PARTITION_VALUES_MISSING,
      f"DELETE FROM ducklake_file_partition_value WHERE {_first('p')} AND partition_key_index = 1"),
    _("partition values of a file without partitioning", C.PARTITION_VALUES_MISSING,
      f"INSERT INTO ducklake_file_partition_value SELECT data_file_id, table_id, 0, 'x' FROM ducklake_data_file WHERE {_first('m')}"),
    _("more deletes than rows", C.COUNT_IMPOSSIBLE, "UPDATE ducklake_delete_file SET delete_count = 99", C.DELETE_COUNT_DIFFERS),
    _("fewer than no rows", C.COUNT_IMPOSSIBLE, f"UPDATE ducklake_data_file SET record_count = -1 WHERE {_first('m')}",
      C.RECORD_COUNT_DIFFERS),
    _("row ids at the end of all numbers", C.COUNT_IMPOSSIBLE,
      f"UPDATE ducklake_data_file SET row_id_start = 9223372036854775807 WHERE {_first('m')}"),
    _("more rows than there can be", C.COUNT_IMPOSSIBLE,
      f"UPDATE ducklake_data_file SET record_count = 9223372036854775807 WHERE {_first('m')}", C.RECORD_COUNT_DIFFERS),
    _("rows up to a snapshot before the file's", C.PARTIAL_MAX_WRONG,
      f"UPDATE ducklake_data_file SET partial_max = begin_snapshot - 1 WHERE {_first('m')}"),
    _("statistics of no file", C.ROWS_OF_NOTHING,
      "INSERT INTO ducklake_file_column_stats SELECT 900, table_id, 1, 1, 1, 0, '1', '1', NULL, NULL FROM ducklake_table WHERE table_name = 'm'"),
    _("row ids of two files", C.ROW_IDS_OVERLAP,
      f"UPDATE ducklake_data_file SET row_id_start = 3 WHERE table_id = {_table('t')}"),
    _("a row counter behind", C.ROW_COUNTER_BEHIND,
      f"UPDATE ducklake_table_stats SET next_row_id = 3 WHERE table_id = {_table('t')}"),
    # rows of any kind
    _("a column without a name", C.VALUE_MISSING,
      f"UPDATE ducklake_column SET column_name = NULL WHERE table_id = {_table('m')}"),
    # paths
    _("a path with a step up", C.PATH_MISLEADING,
      f"UPDATE ducklake_data_file SET path = '../../../' || path WHERE {_first('m')}"),
    _("a directory with an encoded step up", C.PATH_MISLEADING,
      "UPDATE ducklake_schema SET path = '%2E%2e/main/' WHERE schema_id = 0"),
    _("a file to be deleted elsewhere", C.PATH_MISLEADING,
      "INSERT INTO ducklake_files_scheduled_for_deletion VALUES (99, '../x', 1, '2026-01-01 00:00:00+00')"),
    _("a file to be deleted outside the data path", C.SCHEDULED_REFUSED,
      "INSERT INTO ducklake_files_scheduled_for_deletion VALUES (99, '/x/y.parquet', 0, '2026-01-01 00:00:00+00')"),
    _("a path in two rows", C.PATH_TWICE, _absolute_twice, C.ROW_COUNTER_BEHIND),
    _("a file that waits for deletion and is in use", C.SCHEDULED_IN_USE,
      lambda lake: lake.sql("INSERT INTO ducklake_files_scheduled_for_deletion SELECT data_file_id, 'main/m/' || path, 1, "
                            f"'2026-01-01 00:00:00+00' FROM ducklake_data_file WHERE {_first('m')}")),
    # statistics, as in G2
    _("no statistics of a table", C.TABLE_STATS_MISSING, f"DELETE FROM ducklake_table_stats WHERE table_id = {_table('t')}"),
    _("statistics without bounds", C.TABLE_STATS_NARROW,
      f"UPDATE ducklake_table_column_stats SET min_value = NULL, max_value = NULL WHERE {_column('t', 'i')}"),
    _("statistics that are too narrow", C.TABLE_STATS_NARROW,
      f"UPDATE ducklake_table_column_stats SET max_value = '9' WHERE {_column('t', 'i')}"),
    _("statistics of texts that are too narrow", C.TABLE_STATS_NARROW,
      f"UPDATE ducklake_table_column_stats SET min_value = 's1' WHERE {_column('t', 's')}"),
    _("nulls that statistics deny", C.TABLE_STATS_NARROW,
      f"UPDATE ducklake_table_column_stats SET contains_null = 0 WHERE {_column('t', 's')}"),
    _("NaN that statistics deny", C.TABLE_STATS_NARROW,
      f"UPDATE ducklake_file_column_stats SET contains_nan = 1 WHERE {_column('t', 'd')}"),
    _("statistics too narrow for rows in the catalog", C.TABLE_STATS_NARROW,
      f"UPDATE ducklake_table_column_stats SET min_value = '2' WHERE {_column('r', 'i')}"),
    _("a row counter behind rows in the catalog", C.ROW_COUNTER_BEHIND,
      f"UPDATE ducklake_table_stats SET next_row_id = 2 WHERE table_id = {_table('r')}"),
    _("no statistics of rows in the catalog", C.TABLE_STATS_MISSING,
      f"DELETE FROM ducklake_table_stats WHERE table_id = {_table('r')}"),
    _("a bound that is no number", C.BOUND_UNREADABLE,
      f"UPDATE ducklake_table_column_stats SET max_value = 'many' WHERE {_column('t', 'i')}"),
    _("bounds that cross", C.BOUNDS_CROSSED,
      f"UPDATE ducklake_file_column_stats SET min_value = '15' WHERE {_column('t', 'i')} AND {_first('t')}", C.FILE_STATS_NARROW),
    # rows in the catalog, G9
    _("an inlined table that is gone", C.INLINED_TABLE_MISSING,
      lambda lake: lake.sql(f"DROP TABLE {lake.layout('e')}")),
    _("an inlined table that nobody knows", C.INLINED_TABLE_UNREGISTERED,
      f"DELETE FROM ducklake_inlined_data_tables WHERE table_id = {_table('n')}"),
    _("an inlined table of another layout", C.INLINED_COLUMNS_DIFFER, _inlined("ALTER TABLE {rows} ADD COLUMN more INT")),
    _("an inlined table without rows of another layout", C.INLINED_COLUMNS_DIFFER,
      lambda lake: lake.sql(f"ALTER TABLE {lake.layout('e')} ADD COLUMN more INT")),
    _("a column without an inlined table that has it", C.INLINED_COLUMNS_DIFFER,
      f"INSERT INTO ducklake_column SELECT 3, {_HEAD}, NULL, table_id, 3, 'late', 'int32', NULL, 'NULL', 1, NULL, 'literal', 'duckdb' "
      f"FROM ducklake_column WHERE {_column('n', 'i')}"),
    _("an inlined row of the future", C.INLINED_ROWS_WRONG, _inlined("UPDATE {rows} SET begin_snapshot = 900 WHERE i = 1")),
    _("an inlined row twice", C.INLINED_ROWS_WRONG, _inlined("INSERT INTO {rows} SELECT * FROM {rows} WHERE i = 1")),
    _("an inlined value of another type, beside a row counter behind", C.INLINED_VALUE_UNREADABLE,
      _inlined("UPDATE {rows} SET i = 'no number'", "UPDATE ducklake_table_stats SET next_row_id = 0"), C.ROW_COUNTER_BEHIND),
    _("an inlined delete of a row that is not there", C.INLINED_DELETE_OUTSIDE, _inlined("UPDATE {marks} SET row_id = 5000")),
    # files: G4, G5, G6, G8
    _("a file that is gone", C.FILE_MISSING, _on_file("data_file", "m", Path.unlink)),
    _("a delete file that is gone", C.FILE_MISSING, _on_file("delete_file", "t", Path.unlink)),
    _("a file that is cut off", C.FILE_UNREADABLE, _on_file("data_file", "m", lambda path: path.write_bytes(path.read_bytes()[:-5]))),
    _("another size", C.FILE_SIZE_DIFFERS, f"UPDATE ducklake_data_file SET file_size_bytes = 1 WHERE {_first('m')}"),
    _("another footer size", C.FOOTER_SIZE_DIFFERS, f"UPDATE ducklake_data_file SET footer_size = 1 WHERE {_first('m')}"),
    _("another footer size of a delete file", C.FOOTER_SIZE_DIFFERS, "UPDATE ducklake_delete_file SET footer_size = 1"),
    _("too many rows", C.RECORD_COUNT_DIFFERS, f"UPDATE ducklake_data_file SET record_count = 11 WHERE {_first('t')}",
      C.ROW_IDS_OVERLAP),
    _("no field ids", C.FIELD_IDS_MISSING, _rewrite("data_file", "t", _without_ids)),
    _("no row ids", C.ROW_IDS_MISSING, f"UPDATE ducklake_data_file SET row_id_start = NULL WHERE {_first('t')}"),
    _("a row id twice in a file", C.ROW_ID_TWICE, _rewrite("data_file", "m", _with_row_ids([0, 1, 1]))),
    _("row ids of another file's rows", C.ROW_ID_TWICE, _rewrite("data_file", "t", _with_row_ids([*range(15, 25)]))),
    _("a row id of a file's row in the catalog", C.ROW_ID_TWICE, _inlined("UPDATE {rows} SET row_id = 50 WHERE i = 1")),
    _("no snapshot ids of a file of several snapshots", C.SNAPSHOT_IDS_MISSING,
      f"UPDATE ducklake_data_file SET partial_max = begin_snapshot + 1 WHERE {_first('t')}"),
    _("statistics of a file that are too narrow", C.FILE_STATS_NARROW,
      f"UPDATE ducklake_file_column_stats SET max_value = '5' WHERE {_column('t', 'i')} AND {_first('t')}"),
    _("other counts than the file's", C.FILE_STATS_COUNTS,
      f"UPDATE ducklake_file_column_stats SET null_count = 2 WHERE {_column('t', 'i')} AND {_first('t')}", C.TABLE_STATS_NARROW),
    _("a row of another partition", C.PARTITION_VALUE_DIFFERS,
      f"UPDATE ducklake_file_partition_value SET partition_value = 'k9' WHERE {_first('p')} AND partition_key_index = 0"),
    _("a row of another year", C.PARTITION_VALUE_DIFFERS,
      f"UPDATE ducklake_file_partition_value SET partition_value = '2023' WHERE {_first('p')} AND partition_key_index = 1"),
    _("other deletes than counted", C.DELETE_COUNT_DIFFERS, "UPDATE ducklake_delete_file SET delete_count = 4"),
    _("deletes out of order", C.DELETES_UNORDERED, _rewrite("delete_file", "t", _positions([4, 2, 6]))),
    _("a delete twice", C.DELETES_UNORDERED, _rewrite("delete_file", "t", _positions([2, 4, 4]))),
    _("vectors of several snapshots at 1.0", C.VECTORS_TOO_NEW, _as_container),
    _("a delete behind the last row", C.DELETE_OUTSIDE, _rewrite("delete_file", "t", _positions([2, 4, 10]))),
)  # fmt: skip
