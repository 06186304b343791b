"""A frozen lake has the rows that the lake has at its snapshot: as DuckDB reads both, and as we do."""

import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.tags import ExportFormat, ExportResult
from airflow_provider_ducklake.lake.storage.moving import restored
from tests.interop.lakes import alone, by_duckdb
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, load_extension, open_lake
from tests.reference.http_server import served

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


# A frozen lake has the rows that the lake has at its snapshot: as DuckDB reads both, and as we do.


FORMATS = [one.value for one in ExportFormat]
SUFFIX = {"duckdb": "ducklake", "sqlite": "sqlite"}
NOW = timedelta(0)


def write_history(catalog: CatalogDatabase, history: tuple[str, ...] = HISTORY) -> None:
    external = Path(catalog.data_path).parent / "external.parquet"
    pq.write_table(pa.table({"i": pa.array(range(12), pa.int32())}), external)
    by_duckdb(catalog, *(statement.replace("{external}", str(external)) for statement in history))


def url_of(result: ExportResult) -> str:
    return f"{result.format}:///{result.path}"


@pytest.fixture
def duckdb_or_usual(new_catalog, request) -> CatalogDatabase:
    return new_catalog(request.param)


@pytest.mark.drawn(one_in=3)
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("duckdb_or_usual", ["sqlite", "postgres", "duckdb"], indirect=True)
def test_each_snapshot_can_be_frozen_with_all_that_it_shows(duckdb_or_usual, format_, tmp_path):
    """Of each database that DuckDB writes inlined rows to: every third snapshot, and the newest."""
    catalog = duckdb_or_usual
    write_history(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        newest = lake.current_snapshot().id
        results = [
            lake.export_catalog(f"{tmp_path}/{at}.{SUFFIX[format_]}", at)
            for at in sorted({*range(1, newest, 3), newest})
        ]
        found = {finding.code for finding in lake.verify()}
        tables = {one.snapshot_id: lake.tables(one.snapshot_id) for one in results}
        ours = {
            (one.snapshot_id, str(name)): lake.read_arrow(str(name), at=one.snapshot_id).num_rows
            for one in results
            for name in tables[one.snapshot_id]
        }
    with open_lake(catalog) as reference:
        newest_columns = columns_of(reference)
        expected = {at: all_rows(reference, names, at) for at, names in tables.items()}

    for one in results:
        with Lake.connect(url_of(one)) as frozen:
            assert frozen.is_frozen
            assert [s.id for s in frozen.snapshots()] == [one.snapshot_id]
            assert frozen.tables() == tables[one.snapshot_id]
            for name in frozen.tables():
                assert frozen.read_arrow(str(name)).num_rows == ours[one.snapshot_id, str(name)]
            assert {finding.code for finding in frozen.verify()} <= found  # of the reference's own making
        with attached(one) as reference:
            assert all_rows(reference, tables[one.snapshot_id]) == expected[one.snapshot_id]
            if one.snapshot_id == newest:
                assert columns_of(reference) == newest_columns
                assert reference.sql("FROM few(2)") == [(0,), (1,)]


def test_views_macros_comments_and_options_are_those_of_the_snapshot(catalog, tmp_path):
    write_history(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.set_option("parquet_compression", "zstd", table="sales.orders")
        lake.set_option("target_file_size", "1MB")
        result = lake.export_catalog(f"{tmp_path}/old.ducklake", 12)

    with attached(result) as reference:
        reference.sql("USE lake")
        assert len(reference.sql("FROM dear")) == 19
        assert reference.sql("SELECT plus(1)") == [(3,)]
        assert reference.sql("FROM few(1)") == [(0,)]
        comments = "SELECT comment FROM duckdb_tables() WHERE table_name = 'orders'"
        assert reference.sql(comments) == [("all of them",)]
        columns = [row[2:4] for row in columns_of(reference) if row[1] == "orders"]
        assert columns[:2] == [("id", "INTEGER"), ("region", "VARCHAR")]
        assert [name for name, _ in columns] == ["id", "region", "price", "tags"]
    with Lake.connect(url_of(result)) as frozen:
        assert frozen.reads.options(table="sales.orders").texts["parquet_compression"] == "zstd"
        assert (
            frozen.reads.options().texts["target_file_size"] == lake.reads.options().texts["target_file_size"]
        )


def test_filters_find_rows_although_newer_snapshots_changed_types_and_bounds(catalog, tmp_path):
    write_history(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        result = lake.export_catalog(f"{tmp_path}/old.ducklake", 8)

    with attached(result) as reference:
        assert reference.sql("SELECT count(*) FROM sales.orders WHERE id = 59 AND price = 14.75") == [(1,)]
        assert reference.sql("SELECT count(*), max(id) FROM sales.orders WHERE region = 'a'") == [(20, 1000)]
        assert reference.sql("SELECT min(id), max(id), count(*) FROM sales.orders") == [(0, 1000, 60)]


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
@pytest.mark.both_versions
@pytest.mark.parametrize("format_", FORMATS)
def test_a_lake_of_ours_is_frozen_from_every_catalog(catalog, format_, tmp_path):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        with lake.transaction() as tx:
            tx.create_schema("s")
            tx.create_table("s.t", {"i": "int64", "v": "varchar", "l": "int32[]"}, partition_by=["v"])
            tx.create_view("main.w", "SELECT 1 AS one", "duckdb")
            tx.comment_on_table("s.t", "ours")
        lake.append_arrow("s.t", pa.table({"i": [1, 2], "v": ["a", "b"], "l": [[1, None], None]}, SCHEMA))
        lake.append_arrow("s.t", pa.table({"i": range(50), "v": ["c"] * 50, "l": [[]] * 50}, SCHEMA))
        alone(lake).delete_rows("s.t", "i IN (2, 40)")
        lake.tag("kept")
        rows = lake.read_arrow("s.t").sort_by("i")
        alone(lake).drop_table("s.t")

        result = lake.export_catalog(f"{tmp_path}/x.{SUFFIX[format_]}", "tag:kept", copy_files=True)
        lake.untag("kept")
        lake.expire_snapshots(keep_last=1)
        lake.cleanup_old_files(older_than=NOW)

    with Lake.connect(url_of(result)) as frozen:
        assert frozen.version == lake.version
        assert frozen.read_arrow("s.t").sort_by("i") == rows
        assert frozen.verify() == []
    if catalog.spec_version == "1.0":
        with attached(result) as reference:
            assert reference.sql("SELECT count(*), sum(i) FROM s.t") == [(49, 1 + sum(range(50)) - 2 - 40)]
            assert reference.sql("FROM main.w") == [(1,)]


SCHEMA = pa.schema([("i", pa.int64()), ("v", pa.string()), ("l", pa.list_(pa.int32()))])

ODD = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "HUGEINT": ["170141183460469231731687303715884105727"],
    "UBIGINT": ["18446744073709551615"],
    "FLOAT": ["'nan'", "'inf'", "'-inf'", "1e-30", "-0.0", "0.1"],
    "DOUBLE": ["'nan'", "'inf'", "0.1", "1e300"],
    "DECIMAL(38,10)": ["9999999999999999999999999999.9999999999", "-0.0000000001"],
    "VARCHAR": ["''", "'it''s'", "chr(0)", "'NULL'", "'😀\n'", "'{\"a\"}'"],
    "BLOB": ["''::BLOB", "'\\x00\\xFF'::BLOB", "'abc'::BLOB"],
    "UUID": ["'6a8e1c1e-0000-4000-8000-000000000000'"],
    "JSON": ["'{\"a\": [1, null]}'", "'1'"],
    "DATE": ["'infinity'", "'-infinity'", "'0001-01-01'", "'2026-02-28'", "'9999-12-31'"],
    "TIME": ["'00:00:00'", "'23:59:59.999999'", "'24:00:00'"],
    "TIMETZ": ["'12:00:00+02'", "'00:00:00-15:59'"],
    "TIMESTAMP": ["'infinity'", "'2026-01-01 12:34:56.789012'", "'1500-01-01'"],
    "TIMESTAMP_S": ["'2026-01-01 12:34:56'"],
    "TIMESTAMP_MS": ["'2026-01-01 12:34:56.789'"],
    "TIMESTAMP_NS": ["'2026-01-01 12:34:56.789012345'"],
    "TIMESTAMPTZ": ["'2026-01-01 12:34:56+02'", "'-infinity'"],
    "INTERVAL": ["'1 month 2 days 03:04:05.678'", "'-1 day'"],
    "INTEGER[]": ["[]", "[1, NULL]", "[2147483647]"],
    "VARCHAR[]": ["['it''s', NULL, '', 'a, b', '[x]', 'null']"],
    'STRUCT(a VARCHAR, "b c" INTEGER[])': ["{'a': 'x''y', 'b c': [1]}", "{'a': NULL, 'b c': NULL}"],
    "MAP(VARCHAR, DOUBLE)": ["MAP {'k': 1.5::DOUBLE, 'l=m': 'nan'::DOUBLE}", "MAP {}"],
    "STRUCT(t TIMESTAMP, d DECIMAL(5,2))[]": ["[{'t': '2026-01-01', 'd': 1.25}]"],
}


@pytest.mark.drawn(one_in=3)
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("duckdb_or_usual", ["sqlite", "postgres", "duckdb"], indirect=True)
def test_inlined_values_of_each_type_come_over(duckdb_or_usual, format_, tmp_path):
    catalog = duckdb_or_usual
    with open_lake(catalog) as reference:
        for number, (type_, values) in enumerate(ODD.items()):
            reference.sql(f"CREATE TABLE t{number} (c {type_})")
            for value in [*values, "NULL"]:
                if "chr(0)" in value and catalog.kind == "postgres":
                    continue  # which DuckDB cannot store there
                reference.sql(f"INSERT INTO t{number} VALUES ({value})")
        as_text = {n: texts(reference, n) for n in range(len(ODD))}
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        result = lake.export_catalog(f"{tmp_path}/x.{SUFFIX[format_]}")

    assert (result.data_files, result.inlined_rows) == (0, sum(map(len, as_text.values())))
    with attached(result) as reference:
        for number, type_ in enumerate(ODD):
            assert texts(reference, number) == as_text[number], type_


def texts(reference, number: int) -> list[tuple[Any, ...]]:
    return reference.sql(f"SELECT rowid, c::VARCHAR, typeof(c) FROM t{number} ORDER BY rowid")


@pytest.mark.parametrize("format_", FORMATS)
def test_a_frozen_lake_is_read_over_http(sqlite_catalog, format_, tmp_path):
    write_history(sqlite_catalog)
    folder = tmp_path / "shared"
    folder.mkdir()
    with served(folder) as url, Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        at = lake.current_snapshot().id
        name = f"q3.{SUFFIX[format_]}"
        result = lake.export_catalog(
            f"{folder}/{name}", copy_files=True, files_path=f"{folder}/files", data_path=f"{url}files/"
        )
        tables = lake.tables()
        with open_lake(sqlite_catalog) as reference:
            expected = all_rows(reference, tables, at)

        assert result.data_path == f"{url}files/"
        with attached(result, path=f"{url}{name}") as reference:
            assert all_rows(reference, tables) == expected
        with Lake.connect(url_of(result)) as frozen:
            assert {one: frozen.read_arrow(one).num_rows for one in tables} == {
                one: len(expected[str(one)]) for one in tables
            }
            assert frozen.verify() == lake.verify()


def test_a_frozen_lake_in_a_bucket_is_read_from_there(sqlite_catalog, monkeypatch):
    with s3.bucket("frozen") as endpoint:
        options = s3.storage_options(endpoint, "fsspec", monkeypatch)
        secret = (
            f"CREATE SECRET (TYPE s3, KEY_ID 'id', SECRET '{s3.SECRET}', URL_STYLE 'path', USE_SSL false, "
            f"ENDPOINT '{endpoint.removeprefix('http://')}')"
        )
        with Lake.create(sqlite_catalog.sqlalchemy_url, "s3://frozen/lake/", storage_options=options) as lake:
            alone(lake).create_table("t", {"i": "int64"})
            lake.append_arrow("t", pa.table({"i": range(100)}))
            lake.append_arrow("t", pa.table({"i": [1000]}))

            there = lake.export_catalog("s3://frozen/exports/q3.ducklake")
            copied = lake.export_catalog("s3://frozen/exports/copy.ducklake", copy_files=True)
            with pytest.raises(errors.ExportExistsError):
                lake.export_catalog("s3://frozen/exports/q3.ducklake")
            again = lake.export_catalog("s3://frozen/exports/q3.ducklake", overwrite=True)

        assert (there.data_path, copied.copied_files) == ("s3://frozen/lake/", 1)
        for result in (there, copied, again):
            with attached(result, setup=secret) as reference:
                assert reference.sql("SELECT count(*), sum(i) FROM t") == [(101, 5950)]


def test_what_is_copied_stays_when_the_lake_is_gone(catalog, tmp_path):
    write_history(catalog)
    external = Path(catalog.data_path).parent / "external.parquet"
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        names = lake.tables()
        with open_lake(catalog) as reference:
            expected = all_rows(reference, names)
        result = lake.export_catalog(f"{tmp_path}/x.ducklake", copy_files=True)
    for path in [*Path(catalog.data_path).rglob("*.parquet"), external]:
        path.unlink()

    with Lake.connect(url_of(result)) as frozen:
        assert frozen.tables() == names
    with attached(result) as reference:
        assert all_rows(reference, names) == expected
    files = {str(path) for path in Path(f"{tmp_path}/x.ducklake.files").rglob("*") if path.is_file()}
    assert len(files) == result.copied_files == result.data_files + result.delete_files
    assert any(re.search(r"/added-[-0-9a-f]{36}-data-file-\d+\.parquet$", path) for path in files)


@pytest.mark.parametrize("type_", ["timestamptz_ns", "struct(a timestamptz_ns)", "variant"])
def test_inlined_types_that_a_duckdb_file_lacks_are_exported_once_they_are_flushed(
    sqlite_catalog, tmp_path, type_
):
    moments = pa.array([5], pa.timestamp("ns", "UTC"))
    values = {"timestamptz_ns": moments, "variant": None}.get(
        type_, pa.StructArray.from_arrays([moments], ["a"])
    )
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        alone(lake).create_table("t", {"i": "int64", "x": type_})
        lake.export_catalog(f"{tmp_path}/empty.ducklake")
        if values is not None:
            lake.append_arrow("t", pa.table({"i": pa.array([1], pa.int64()), "x": values}))
            with pytest.raises(errors.UnsupportedFeatureError, match=r"is of type .*timestamptz_ns.*Flush"):
                lake.export_catalog(f"{tmp_path}/rows.ducklake")
            lake.flush_inlined_data("t")
        lake.export_catalog(f"{tmp_path}/flushed.ducklake")
        with Lake.connect(f"duckdb:///{tmp_path}/flushed.ducklake") as frozen:
            assert frozen.read_arrow("t") == lake.read_arrow("t")


def test_a_link_to_the_data_path_is_no_folder_for_copies(sqlite_catalog, tmp_path):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        Path(sqlite_catalog.data_path).mkdir(exist_ok=True)
        (tmp_path / "link").symlink_to(sqlite_catalog.data_path)
        for folder in ("link", "link/x"):
            with pytest.raises(errors.InvalidInputError, match="lies below the data path"):
                lake.export_catalog(f"{tmp_path}/a", copy_files=True, files_path=f"{tmp_path}/{folder}/")


def test_a_file_that_came_during_the_export_is_not_replaced(sqlite_catalog, tmp_path, monkeypatch):
    path, publish = tmp_path / "a.ducklake", restored.publish

    def late(*given, **named):
        path.write_text("another's")
        return publish(*given, **named)

    monkeypatch.setattr(restored, "publish", late)
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake,
        pytest.raises(errors.ExportExistsError, match="nothing was replaced"),
    ):
        lake.export_catalog(str(path), overwrite=True)
    assert path.read_text() == "another's"


def test_lakes_that_share_a_folder_for_copies_keep_their_files(new_catalog, tmp_path):
    """Each added a file of one name and size to a table of one name."""
    exported = []
    for number in range(2):
        catalog = new_catalog("sqlite")
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
            alone(lake).create_table("t", {"i": "int64"})
            added = Path(catalog.data_path, "main", "t", "a.parquet")
            added.parent.mkdir(parents=True)
            pq.write_table(pa.table({"i": [number]}), added)
            alone(lake).add_data_files("t", [str(added)])
            path = f"{tmp_path}/{number}.ducklake"
            exported.append(lake.export_catalog(path, copy_files=True, files_path=f"{tmp_path}/files"))
    for number, result in enumerate(exported):
        with attached(result) as reference:
            assert reference.sql("FROM t") == [(number,)]


@pytest.mark.parametrize("format_", FORMATS)
def test_the_file_appears_once_complete_for_reading_only_and_replaces_nothing(
    sqlite_catalog, format_, tmp_path
):
    write_history(sqlite_catalog, HISTORY[:6])
    folder = tmp_path / "out"
    path = folder / f"x.{SUFFIX[format_]}"
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.export_catalog(str(path))
        made = path.read_bytes()

        with pytest.raises(errors.ExportExistsError, match="give overwrite=True"):
            lake.export_catalog(str(path))
        assert path.read_bytes() == made
        assert stat.S_IMODE(path.stat().st_mode) == 0o444
        lake.export_catalog(str(path), 3, overwrite=True)
        with Lake.connect(f"{format_}:///{path}") as frozen:
            assert frozen.current_snapshot().id == 3
    assert {one.name.removesuffix(".lock") for one in folder.iterdir()} == {path.name}


def test_files_in_hive_folders_and_deletion_vectors_are_copied(sqlite_catalog, tmp_path):
    file = tmp_path / "k=5" / "x.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"i": range(20)}), file)
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("write_deletion_vectors", "true")
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64", "k": "int32"})
            tx.add_data_files("t", [str(file)], hive_partitioning=True)
        by_duckdb(sqlite_catalog, "DELETE FROM t WHERE i % 2 = 0", data_inlining_row_limit=0)
        (live,) = lake.table_snapshot("t", with_files=True).files
        assert live.delete_file.format == "puffin"
        result = lake.export_catalog(f"{tmp_path}/x.ducklake", copy_files=True)
    file.unlink()
    with attached(result) as reference:
        assert reference.sql("SELECT count(*), min(i), max(k) FROM t") == [(10, 1, 5)]


def test_a_file_that_is_missing_leaves_no_catalog_behind(sqlite_catalog, tmp_path):
    write_history(sqlite_catalog, HISTORY[:6])
    victim = next(Path(sqlite_catalog.data_path).rglob("*.parquet"))
    content = victim.read_bytes()
    victim.unlink()
    path = tmp_path / "out" / "x.ducklake"
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with pytest.raises(errors.StorageError, match=victim.name):
            lake.export_catalog(str(path), copy_files=True)
        assert not path.exists()

        victim.write_bytes(content)
        result = lake.export_catalog(str(path), copy_files=True)  # what was copied before stays

    with attached(result) as reference:
        assert reference.sql("SELECT count(*) FROM sales.orders") == [(60,)]


def test_nothing_is_written_or_deleted_through_a_frozen_lake(sqlite_catalog, tmp_path):
    """Its files are the lake's: a clean-up of orphans would delete all newer ones."""
    write_history(sqlite_catalog)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        result = lake.export_catalog(f"{tmp_path}/x.sqlite", 8)
    files = {path: path.stat().st_mtime_ns for path in Path(sqlite_catalog.data_path).rglob("*")}
    acts: list[Callable[[Lake], object]] = [
        lambda frozen: frozen.delete_orphaned_files(older_than=NOW, sole_owner=True),
        lambda frozen: frozen.cleanup_old_files(older_than=NOW),
        lambda frozen: frozen.expire_snapshots(keep_last=1),
        lambda frozen: frozen.flush_inlined_data(),
        lambda frozen: frozen.append_arrow("sales.orders", frozen.read_arrow("sales.orders")),
        lambda frozen: frozen.transaction().__enter__(),
        lambda frozen: frozen.set_option("parquet_compression", "zstd"),
        lambda frozen: frozen.restore(at=8),
        lambda frozen: frozen.maintenance.plan_merge("sales.orders"),
        lambda frozen: frozen.tag("x"),
        lambda frozen: frozen.migrate("1.1"),
        lambda frozen: frozen.repair([]),
    ]
    with Lake.connect(url_of(result)) as frozen:
        for act in acts:
            with pytest.raises(errors.FrozenLakeError, match="is a frozen lake"):
                act(frozen)
        again = frozen.export_catalog(f"{tmp_path}/again.ducklake")
        assert again.snapshot_id == 8
    assert {path: path.stat().st_mtime_ns for path in Path(sqlite_catalog.data_path).rglob("*")} == files


def test_no_secret_gets_into_the_file(postgres_catalog, tmp_path):
    write_history(postgres_catalog, HISTORY[:8])
    url = parse_url(postgres_catalog.sqlalchemy_url).set(password="hunter2hunter2")
    with Lake.connect(url, storage_options={"secret": "swordfish99"}) as lake:
        results = [lake.export_catalog(f"{tmp_path}/x.{one}") for one in ("ducklake", "sqlite")]

    for result in results:
        content = Path(result.path).read_bytes()
        assert b"hunter2hunter2" not in content
        assert b"swordfish99" not in content
        assert b"postgres" not in content


def test_keys_of_encrypted_files_come_along(sqlite_catalog, tmp_path):
    with open_lake(sqlite_catalog, encrypted=True) as reference:
        reference.sql("CREATE TABLE t AS SELECT i FROM range(100) r(i)")
        reference.sql("DELETE FROM t WHERE i < 30")
        reference.sql("INSERT INTO t VALUES (1000)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        result = lake.export_catalog(f"{tmp_path}/x.ducklake", copy_files=True)

    assert (result.copied_files, result.delete_files, result.inlined_rows) == (2, 1, 1)
    with attached(result) as reference:
        assert reference.sql("SELECT count(*), max(i) FROM t") == [(71, 1000)]
    with Lake.connect(url_of(result)) as frozen:
        assert frozen.read_arrow("t").num_rows == 71


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "x.ducklake"}, "path='x.ducklake' is relative"),
        ({"path": "/backup/"}, "is a directory"),
        ({"path": "/x", "format": "parquet"}, "choose one of duckdb, sqlite"),
        ({"path": "/x", "files_path": "/y"}, "give copy_files=True"),
        ({"path": "/x", "data_path": "data/"}, "data_path='data/' is relative"),
    ],
)
def test_what_cannot_be_meant_is_refused(sqlite_catalog, arguments, said):
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake,
        pytest.raises(errors.InvalidInputError, match=said),
    ):
        lake.export_catalog(**arguments)


@pytest.mark.parametrize("arguments", [{}, {"path": "/backup/q3.db", "files_path": "{data}"}])
def test_files_are_not_copied_below_the_data_path(sqlite_catalog, arguments):
    """There the clean-up of orphaned files would take them for the lake's own."""
    data = sqlite_catalog.data_path
    given = {name: path.format(data=data) for name, path in ({"path": "{data}q3.db"} | arguments).items()}
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, data) as lake,
        pytest.raises(errors.InvalidInputError, match="lies below the data path of this lake"),
    ):
        lake.export_catalog(copy_files=True, **given)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("name", ["itself", "link"])
def test_the_catalog_of_the_lake_is_not_replaced(new_catalog, tmp_path, kind, name):
    catalog = new_catalog(kind)
    file = Path(catalog.location)
    path = {"itself": file, "link": tmp_path / "link"}[name]
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        if name == "link":
            path.symlink_to(file)
        with pytest.raises(errors.InvalidInputError, match="is the catalog of this lake"):
            lake.export_catalog(str(path), format=kind, overwrite=True)
        assert [int(one.id) for one in lake.snapshots()] == [0, 1]


@pytest.mark.parametrize("other", ["sqlite", "duckdb", "data file"])
def test_only_frozen_lakes_are_replaced(sqlite_catalog, tmp_path, other):
    """Not a live lake's catalog, nor a data file: a typing error of the path would lose it."""
    path = tmp_path / "other"
    if other == "data file":
        pq.write_table(pa.table({"i": [1]}), path)
    else:
        with Lake.create(f"{other}:///{path}", f"{tmp_path}/data/") as live, live.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
    there = path.read_bytes()
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake,
        pytest.raises(errors.ExportExistsError, match="remove that one: it is not a frozen lake's catalog"),
    ):
        lake.export_catalog(str(path), overwrite=True)
    assert path.read_bytes() == there


def test_a_snapshot_that_is_not_there_leaves_no_file(sqlite_catalog, tmp_path):
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake,
        pytest.raises(errors.SnapshotNotFoundError),
    ):
        lake.export_catalog(f"{tmp_path}/x.ducklake", 99)
    assert not Path(f"{tmp_path}/x.ducklake").exists()


def test_a_relative_data_path_is_refused(sqlite_catalog, tmp_path):
    Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path).close()
    engine = create_engine(sqlite_catalog.sqlalchemy_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE ducklake_metadata SET value = 'data/' WHERE key = 'data_path'"))
    engine.dispose()
    with (
        Lake.connect(sqlite_catalog.sqlalchemy_url) as lake,
        pytest.raises(errors.UnsupportedFeatureError, match="is relative"),
    ):
        lake.export_catalog(f"{tmp_path}/x.ducklake")


def test_one_can_attach_it_by_the_statement(sqlite_catalog, tmp_path):
    write_history(sqlite_catalog, HISTORY[:8])
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        result = lake.export_catalog(f"{tmp_path}/it's.ducklake")
    with attached(result) as reference:
        assert rows_at(reference, "sales.orders")
        reference.sql("USE memory")
        reference.sql("DETACH lake")
        reference.sql(result.attach)
        assert reference.sql("SELECT count(*) FROM frozen.sales.orders") == [(60,)]
        with pytest.raises(duckdb.Error):
            reference.sql("INSERT INTO frozen.sales.orders SELECT * FROM frozen.sales.orders")


@pytest.mark.parametrize("planted", ["row", "link", "folder"])
def test_only_files_of_a_lake_are_copied_and_only_into_the_folder(sqlite_catalog, tmp_path, planted):
    """A row of the catalog may name any file of the worker, and links may lie in the folder already."""
    secret, elsewhere = tmp_path / "airflow.cfg", tmp_path / "elsewhere"
    secret.write_text("[core]\nfernet_key = secret")
    elsewhere.mkdir()
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        lake.append_arrow("t", pa.table({"i": pa.array(range(100), pa.int64())}))
    (data,) = Path(sqlite_catalog.data_path).rglob("*.parquet")
    path = tmp_path / "share" / "frozen.sqlite"
    copy = path.with_name(f"{path.name}.files") / "main" / "t" / data.name
    if planted == "row":
        engine = create_engine(parse_url(sqlite_catalog.sqlalchemy_url))
        with engine.begin() as connection:
            named = "path = :path, path_is_relative = 0, file_size_bytes = :size"
            values = {"path": str(secret), "size": secret.stat().st_size}
            connection.execute(text(f"UPDATE ducklake_data_file SET {named}"), values)
        engine.dispose()
    elif planted == "link":
        copy.parent.mkdir(parents=True)
        copy.symlink_to(secret)
    else:
        copy.parent.parent.mkdir(parents=True)
        copy.parent.symlink_to(elsewhere)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        if planted == "link":
            lake.export_catalog(str(path), copy_files=True)
            assert copy.read_bytes() == data.read_bytes()
        else:
            with pytest.raises(errors.UntrustedValueError):
                lake.export_catalog(str(path), copy_files=True)

    assert secret.read_text() == "[core]\nfernet_key = secret"
    assert list(tmp_path.rglob("*.cfg")) == [secret]
    assert list(elsewhere.iterdir()) == []
