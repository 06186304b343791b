"""The oracles of 1.1 do what tests ask of them."""

import re
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from tests.reference import duckdb_lake, ducklakepy_lake
from tests.reference.catalog_dump import catalog_differences, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.containers import read_container
from tests.reference.duckdb_core import open_core
from tests.reference.ducklakepy_lake import DEVIATIONS
from tests.reference.next.process import OracleError, OracleProcess


def test_the_oracles_are_the_locked_ones():
    with open_core() as core:
        assert core.version() == "2.0.0"


def test_a_lake_is_made_written_and_read_at_every_snapshot(catalog):
    with ducklakepy_lake.open_lake(catalog) as lake:
        created = lake.create_table("t", {"i": "int32", "s": "varchar", "n": {"a": "int32", "l": ["int32"]}})
        inserted = lake.insert("t", [{"i": 1, "s": "one"}, {"i": 2, "n": {"a": 5, "l": [1, None]}}])
        updated = lake.update("t", {"s": "two"}, "i = 2")
        deleted = lake.delete("t", "i < 2")

        assert lake.version() == "1.1"
        assert lake.snapshots() == [0, created, inserted, updated, deleted]
        assert lake.columns("t") == {"i": "int32", "s": "varchar", "n": "struct(a int32, l int32[])"}
        assert lake.read("t", created).num_rows == 0
        assert lake.read_row_ids("t", inserted).to_pylist() == [
            {"rowid": 0, "i": 1, "s": "one", "n": None},
            {"rowid": 1, "i": 2, "s": None, "n": {"a": 5, "l": [1, None]}},
        ]
        assert lake.read("t").to_pylist() == [{"i": 2, "s": "two", "n": {"a": 5, "l": [1, None]}}]
        assert lake.read_row_ids("t")["rowid"].to_pylist() == [1]
        feed = lake.changes("t", updated, deleted).select(["snapshot_id", "rowid", "change_type"])
        assert sorted(feed.to_pylist(), key=str) == sorted(
            [
                {"snapshot_id": updated, "rowid": 1, "change_type": "update_preimage"},
                {"snapshot_id": updated, "rowid": 1, "change_type": "update_postimage"},
                {"snapshot_id": deleted, "rowid": 0, "change_type": "delete"},
            ],
            key=str,
        )


def test_a_table_without_rows_has_its_columns(sqlite_catalog):
    with ducklakepy_lake.open_lake(sqlite_catalog) as lake:
        lake.create_table("t", {"i": "int32", "x": "null"})

        assert lake.read_row_ids("t").schema.names == ["rowid", "i", "x"]


def test_what_is_written_together_is_one_snapshot_or_none(sqlite_catalog):
    with ducklakepy_lake.open_lake(sqlite_catalog) as lake:
        lake.create_table("t", {"i": "int64"})
        before = lake.head()
        with lake.transaction("both"):
            lake.insert("t", [{"i": 1}, {"i": 2}])
            lake.delete("t", "i = 1")
        with pytest.raises(OracleError, match="missing"):
            write_half(lake)

        assert lake.head() == before + 1
        assert lake.read("t").to_pylist() == [{"i": 2}]


def write_half(lake: ducklakepy_lake.DuckLakePyLake) -> None:
    with lake.transaction():
        lake.insert("t", [{"i": 3}])
        lake.delete("missing", "true")


def test_everything_of_1_1_can_be_asked_for(catalog):
    with ducklakepy_lake.open_lake(catalog) as lake:
        lake.create_schema("sales")
        lake.create_schema("sales.europe")
        lake.create_schema(("a.b",))
        columns = {"id": "int64", "ts": "timestamptz_ns", "nothing": "null", "doc": "variant"}
        lake.create_table("sales.europe.inlined", columns)
        with open_core() as core:
            rows = core.arrow("""
                SELECT 1::BIGINT AS id, TIMESTAMPTZ_NS '1969-12-31 23:59:59.999999999+00' AS ts,
                       NULL AS nothing, '{"a": [1, "x"]}'::JSON::VARIANT AS doc
            """)
        lake.insert("sales.europe.inlined", rows.cast(_plain(rows.schema)))
        lake.create_table("sales.europe.orders", {"id": "int64", "ts": "timestamp"})
        lake.set_option("data_inlining_row_limit", 0, table="sales.europe.orders")
        lake.set_option("write_deletion_vectors", "true")
        lake.partition_by("sales.europe.orders", "epoch_day(ts)", "bucket(2, id)")
        lake.sort_by("sales.europe.orders", "ts DESC", "id")
        moment = datetime(1969, 12, 31, 23)  # noqa: DTZ001 - a TIMESTAMP has no zone
        lake.insert("sales.europe.orders", [{"id": n, "ts": moment} for n in range(20)])
        first = lake.delete("sales.europe.orders", "id IN (3, 4)")
        lake.delete("sales.europe.orders", "id IN (5, 6)")
        lake.create_view("sales.europe.v", "SELECT id FROM sales.europe.orders", ["x"])
        lake.comment("sales.europe.v", "the view")
        lake.comment("sales.europe.v", "the column", column="id")

        assert lake.schemas() == [("main",), ("sales",), ("sales", "europe"), ("a.b",)]
        assert lake.tables() == [("sales", "europe", "inlined"), ("sales", "europe", "orders")]
        assert lake.views() == [("sales", "europe", "v")]
        assert lake.view("sales.europe.v") == {
            "sql": "SELECT id FROM sales.europe.orders",
            "aliases": ("x",),
            "comment": "the view",
            "column_comments": {"id": "the column"},
        }
        assert lake.partition_keys("sales.europe.orders") == [("ts", "epoch_day"), ("id", "bucket(2)")]
        assert lake.read("sales.europe.inlined")["doc"].to_pylist() == rows["doc"].to_pylist()
        assert lake.count("sales.europe.orders", first) == 18
        found = lake.read("sales.europe.orders", where=[("id", ">", 5), ("ts", "=", moment)])
        assert sorted(found["id"].to_pylist()) == list(range(7, 20))
        assert ("write_deletion_vectors", "true", "global", None) in lake.options()
        assert lake.expire(versions=[first]) == (first,)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Drop the extension types, which a reader that does not know them reads as what they are stored as."""
    kinds = {"nothing": pa.null(), "ts": pa.timestamp("ns", "UTC")}
    return pa.schema([pa.field(field.name, kinds.get(field.name, field.type)) for field in schema])


def test_what_an_oracle_refuses_is_raised_with_the_name_of_its_error(sqlite_catalog):
    with ducklakepy_lake.open_lake(sqlite_catalog, version="1.0") as lake:
        with pytest.raises(OracleError, match=r"^TableNotFoundError: main.t$") as refused:
            lake.read("t")
        assert refused.value.kind == "TableNotFoundError"
        assert lake.schemas() == [("main",)]


def test_the_reference_reads_a_1_0_lake_of_ducklakepy_and_it_reads_the_references(catalog):
    with ducklakepy_lake.open_lake(catalog, version="1.0") as lake:
        lake.create_table("t", {"i": "int32", "at": "timestamptz"})
        lake.insert("t", [{"i": 1, "at": datetime(2024, 1, 2, tzinfo=UTC)}])

    with duckdb_lake.open_lake(catalog) as reference:
        assert reference.sql("SELECT rowid, i FROM t") == [(0, 1)]
        reference.sql("INSERT INTO t SELECT i, NULL FROM range(2, 100) r(i)")

    with ducklakepy_lake.open_lake(catalog) as lake:
        assert lake.version() == "1.0"
        assert lake.read_row_ids("t")["rowid"].to_pylist() == list(range(99))


def test_two_clients_race_in_processes_of_their_own(postgres_catalog):
    with ducklakepy_lake.open_lake(postgres_catalog) as lake:
        lake.create_table("t", {"i": "int32"})
    processes = [OracleProcess(), OracleProcess()]

    def write(process: OracleProcess) -> None:
        with ducklakepy_lake.open_lake(postgres_catalog, process=process) as client:
            for n in range(5):
                client.insert("t", [{"i": n}])

    writers = [threading.Thread(target=write, args=(process,)) for process in processes]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for process in processes:
        process.stop()

    with ducklakepy_lake.open_lake(postgres_catalog) as lake:
        assert lake.read_row_ids("t")["rowid"].to_pylist() == list(range(10))


def test_the_core_says_what_its_parquet_writer_wrote(tmp_path):
    with open_core() as core:
        said = core.write_parquet("SELECT repeat('a', 300) AS s, 1 AS i", f"{tmp_path}/f.parquet")

        assert said["count"] == 1
        assert said["extra_info"] == {"row_group_count": 1}
        assert said["column_statistics"]['"i"']["min_is_exact"] == "true"
        assert said["column_statistics"]['"s"']["min_is_exact"] == "false"
        assert core.sql("SELECT i FROM read_parquet(?)", [f"{tmp_path}/f.parquet"]) == [(1,)]
        core.register("rows", pa.table({"x": [1, 2]}))
        assert core.arrow("SELECT sum(x)::BIGINT AS total FROM rows").to_pylist() == [{"total": 3}]


def test_columns_are_altered(sqlite_catalog):
    with ducklakepy_lake.open_lake(sqlite_catalog) as lake:
        lake.create_table("t", {"i": "int32", "s": {"a": "int32"}}, required=["i"], defaults={"i": "5"})
        lake.set_column_type("t", "i", "int64")
        lake.drop_not_null("t", "i")
        lake.drop_default("t", "i")
        lake.add_column("t", "s.b", ["varchar"])
        lake.rename_column("t", "s.a", "x")
        lake.insert("t", [{"s": {"x": 1, "b": ["y"]}}, {"i": 2}])
        lake.set_default("t", "i", 9)
        lake.upsert("t", [{"i": 2, "s": {"x": 3, "b": None}}, {"i": 4}], ["i"])
        lake.drop_column("t", "s.b")

        assert lake.columns("t") == {"i": "int64", "s": "struct(x int32)"}
        assert lake.read("t").sort_by("i").to_pylist() == [
            {"i": 2, "s": {"x": 3}},
            {"i": 4, "s": None},
            {"i": None, "s": {"x": 1}},
        ]


# Nested schemas as ducklakepy writes and reads them.


@pytest.fixture
def lake(sqlite_catalog):
    """A lake with `sales`.`europe`.`de`, a schema `a.b` beside `a`.`b`, and a table and a view below."""
    with ducklakepy_lake.open_lake(sqlite_catalog, inline_limit=0) as lake:
        for name in ("sales", "sales.europe", "sales.europe.de", ("a.b",), "a", ("a", "b")):
            lake.create_schema(name)
        lake.create_table("sales.europe.orders", {"i": "int64"})
        lake.insert("sales.europe.orders", [{"i": 1}])
        lake.create_view("sales.europe.de.v", "SELECT 1 AS x")
        yield lake


def rows_of(catalog, table: str) -> list[dict]:
    return dump_catalog(catalog)[table]


def execute(catalog, statement: str) -> None:
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        connection.execute(statement)


@pytest.mark.usefixtures("lake")
def test_a_schema_row_has_its_own_name_its_parent_and_a_folder_by_uuid(sqlite_catalog):
    rows = {row["schema_id"]: row for row in rows_of(sqlite_catalog, "ducklake_schema")}
    orders = rows_of(sqlite_catalog, "ducklake_table")[0]

    assert [(row["schema_name"], row["parent_schema_id"]) for row in rows.values()] == [
        ("main", None),
        ("sales", None),
        ("europe", 1),
        ("de", 2),
        ("a.b", None),
        ("a", None),
        ("b", 5),
    ]
    assert rows[1]["path"] == "sales/"
    for schema_id in (2, 3, 6):
        assert rows[schema_id]["path"].replace("-", "") == rows[schema_id]["schema_uuid"] + "/"
        assert rows[schema_id]["path_is_relative"] == 1
    assert (orders["schema_id"], orders["path"]) == (2, "orders/")
    assert rows_of(sqlite_catalog, "ducklake_schema_versions")[0]["table_id"] == orders["table_id"]


@pytest.mark.usefixtures("lake")
def test_files_lie_in_the_folder_of_the_innermost_schema(sqlite_catalog, tmp_path):
    (europe,) = (row for row in rows_of(sqlite_catalog, "ducklake_schema") if row["schema_name"] == "europe")

    (file,) = tmp_path.rglob("*.parquet")

    assert str(file.parent) + "/" == f"{sqlite_catalog.data_path}{europe['path']}orders/"


@pytest.mark.usefixtures("lake")
def test_names_in_the_changes_are_paths(sqlite_catalog):
    made = [row["changes_made"] for row in rows_of(sqlite_catalog, "ducklake_snapshot_changes")]

    assert made[1:] == [
        'created_schema:"sales"',
        'created_schema:"sales"."europe"',
        'created_schema:"sales"."europe"."de"',
        'created_schema:"a.b"',
        'created_schema:"a"',
        'created_schema:"a"."b"',
        'created_table:"sales"."europe"."orders"',
        "inserted_into_table:7",
        'created_view:"sales"."europe"."de"."v"',
    ]


def test_a_name_is_taken_below_its_parent_in_any_case(lake):
    lake.create_schema("sales.b")
    lake.create_schema("SALES.B.europe")

    with pytest.raises(OracleError, match="NamespaceAlreadyExistsError"):
        lake.create_schema("Sales.EUROPE")
    with pytest.raises(OracleError, match="NamespaceNotFoundError"):
        lake.create_schema("nope.x")
    assert lake.schemas()[-1] == ("sales", "b", "europe")


def test_a_schema_is_dropped_with_all_below_it_in_one_snapshot(sqlite_catalog, lake):
    before = lake.head()
    with pytest.raises(OracleError, match="NamespaceNotEmptyError"):
        lake.drop_schema("sales")

    dropped = lake.drop_schema("sales", cascade=True)

    assert dropped == before + 1
    assert lake.schemas() == [("main",), ("a.b",), ("a",), ("a", "b")]
    assert (lake.tables(), lake.views()) == ([], [])
    (changes,) = (
        row["changes_made"]
        for row in rows_of(sqlite_catalog, "ducklake_snapshot_changes")
        if row["snapshot_id"] == dropped
    )
    assert sorted(changes.split(",")) == [
        "dropped_schema:1",
        "dropped_schema:2",
        "dropped_schema:3",
        "dropped_table:7",
        "dropped_view:8",
    ]
    ended = [row["end_snapshot"] for row in rows_of(sqlite_catalog, "ducklake_schema")[1:4]]
    assert ended == [dropped] * 3
    assert lake.schemas(before)[:4] == [("main",), ("sales",), ("sales", "europe"), ("sales", "europe", "de")]
    assert lake.read("sales.europe.orders", before).to_pylist() == [{"i": 1}]


def test_below_an_ended_or_absent_parent_nothing_is_there(sqlite_catalog, lake):
    execute(sqlite_catalog, "UPDATE ducklake_schema SET end_snapshot = 8 WHERE schema_name = 'sales'")
    execute(sqlite_catalog, "UPDATE ducklake_schema SET parent_schema_id = 99 WHERE schema_name = 'b'")

    assert lake.schemas() == [("main",), ("a.b",), ("a",)]
    assert (lake.tables(), lake.views()) == ([], [])
    assert lake.tables(7) == [("sales", "europe", "orders")]


def test_a_cycle_of_parents_is_an_error_for_the_whole_lake(sqlite_catalog, lake):
    execute(sqlite_catalog, "UPDATE ducklake_schema SET parent_schema_id = 3 WHERE schema_name = 'sales'")

    with pytest.raises(OracleError, match="cyclic parent schema chain"):
        lake.schemas()


# Deletion vectors as ducklakepy writes and reads them: bare for one snapshot, a container for several.


TABLE = "CREATE TABLE t AS SELECT i FROM range(100) r(i)"


@pytest.fixture
def deleted(sqlite_catalog):
    """A lake whose table has 100 rows since snapshot 2 and lost three at each of 3, 4 and 5."""
    with ducklakepy_lake.open_lake(sqlite_catalog, inline_limit=0) as deleted:
        deleted.create_table("t", {"i": "int64"})
        deleted.set_option("write_deletion_vectors", "true")
        deleted.insert("t", [{"i": n} for n in range(100)])
        for first in (0, 10, 20):
            deleted.delete("t", f"i BETWEEN {first} AND {first + 2}")
        yield deleted


def delete_files(catalog) -> list[dict]:
    return dump_catalog(catalog)["ducklake_delete_file"]


def content_of(catalog, row: dict) -> bytes:
    return (Path(catalog.data_path) / "main" / "t" / row["path"]).read_bytes()


@pytest.mark.usefixtures("deleted")
def test_a_container_holds_a_cumulative_vector_for_each_snapshot(sqlite_catalog):
    (row,) = delete_files(sqlite_catalog)
    content = content_of(sqlite_catalog, row)

    assert (row["begin_snapshot"], row["end_snapshot"], row["partial_max"]) == (3, None, 5)
    assert (row["format"], row["delete_count"], row["row_group_count"]) == ("puffin", 9, None)
    assert row["file_size_bytes"] == len(content)
    assert content[len(content) - row["footer_size"] :][:4] == content[:4] == content[-4:] == b"PFA1"
    assert read_container(content) == {
        i: s for s, first in ((3, 0), (4, 10), (5, 20)) for i in range(first, first + 3)
    }


def test_each_snapshot_has_its_rows_and_the_feed_its_deletes(deleted):
    assert [deleted.count("t", snapshot) for snapshot in (2, 3, 4, 5)] == [100, 97, 94, 91]
    feed = deleted.changes("t", 3, 5).select(["snapshot_id", "rowid", "change_type"]).to_pylist()
    assert sorted((row["snapshot_id"], row["rowid"]) for row in feed) == [
        (s, i) for s, first in ((3, 0), (4, 10), (5, 20)) for i in range(first, first + 3)
    ]
    assert {row["change_type"] for row in feed} == {"delete"}


def test_the_vectors_outlive_a_snapshot_between_and_a_change_of_the_format(sqlite_catalog, deleted):
    assert deleted.expire(versions=[4]) == (4,)
    deleted.set_option("write_deletion_vectors", "false")
    deleted.delete("t", "i = 99")

    (row,) = delete_files(sqlite_catalog)
    assert (row["format"], row["row_group_count"], row["partial_max"]) == ("parquet", 1, 6)
    assert [deleted.count("t", snapshot) for snapshot in (2, 3, 5, 6)] == [100, 97, 91, 90]

    deleted.set_option("write_deletion_vectors", "true")
    deleted.delete("t", "i = 98")

    (row,) = delete_files(sqlite_catalog)
    assert row["format"] == "puffin"
    assert set(read_container(content_of(sqlite_catalog, row))) == {0, 1, 2, 10, 11, 12, 20, 21, 22, 98, 99}
    assert [deleted.count("t", snapshot) for snapshot in (2, 3, 5, 6, 7)] == [100, 97, 91, 90, 89]


def test_the_deletes_of_one_snapshot_are_the_same_bytes_from_both_writers(new_catalog):
    theirs, its = new_catalog("sqlite"), new_catalog("sqlite")
    with ducklakepy_lake.open_lake(theirs, inline_limit=0) as deleted:
        deleted.create_table("t", {"i": "int64"})
        deleted.set_option("write_deletion_vectors", "true")
        deleted.insert("t", [{"i": n} for n in range(100)])
        deleted.delete("t", "i < 3")
    with duckdb_lake.open_lake(its, data_inlining_row_limit=0) as reference:
        reference.sql("CALL lake.set_option('write_deletion_vectors', true)")
        reference.sql(TABLE)
        reference.sql("DELETE FROM t WHERE i < 3")

    rows = [delete_files(catalog)[0] for catalog in (theirs, its)]

    assert [row["footer_size"] for row in rows] == [0, 0]
    assert content_of(theirs, rows[0]) == content_of(its, rows[1])


def test_at_1_0_the_deletes_of_several_snapshots_are_a_parquet_file_that_the_reference_reads(sqlite_catalog):
    with ducklakepy_lake.open_lake(sqlite_catalog, version="1.0", inline_limit=0) as deleted:
        deleted.create_table("t", {"i": "int64"})
        deleted.set_option("write_deletion_vectors", "true")
        deleted.insert("t", [{"i": n} for n in range(100)])
        deleted.delete("t", "i < 3")
        assert [row["format"] for row in delete_files(sqlite_catalog)] == ["puffin"]
        deleted.delete("t", "i < 6")

    assert [row["format"] for row in delete_files(sqlite_catalog)] == ["parquet"]
    with duckdb_lake.open_lake(sqlite_catalog) as reference:
        counts = [reference.sql(f"SELECT count(i) FROM t AT (VERSION => {n})")[0][0] for n in (2, 3, 4)]
    assert counts == [100, 97, 94]


# Who opens which version of a lake: ducklakepy, which follows the rules of 1.1, and DuckDB 1.5.5.


RELEASED = ("1.0", "1.1")


@pytest.fixture
def lake_of(new_catalog):
    """Make a SQLite lake that says it is of a version, with a table of one row."""

    def make(version: str) -> CatalogDatabase:
        catalog = new_catalog("sqlite")
        with ducklakepy_lake.open_lake(catalog, version="1.1" if version > "1.0" else "1.0") as lake:
            lake.create_table("t", {"i": "int64"})
            lake.insert("t", [{"i": 1}])
        with closing(sqlite3.connect(catalog.location)) as connection, connection:
            connection.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'version'", [version])
        return catalog

    return make


def version_of(catalog: CatalogDatabase) -> str:
    rows = dump_catalog(catalog)["ducklake_metadata"]
    return next(row["value"] for row in rows if row["key"] == "version")


@pytest.mark.parametrize(
    ("request_", "made"), [({}, "1.1"), ({"version": "1.0"}, "1.0"), ({"version": "1.1"}, "1.1")]
)
def test_a_new_lake_is_of_the_newest_version_unless_asked_for_another(sqlite_catalog, request_, made):
    with ducklakepy_lake.open_lake(sqlite_catalog, **request_) as lake:
        assert lake.version() == made


@pytest.mark.parametrize(
    ("version", "request_", "opened"),
    [
        ("1.0", {}, "1.0"),
        ("1.1", {}, "1.1"),
        ("1.0", {"migrate": True}, "1.1"),
        ("1.0", {"version": "1.0"}, "1.0"),
        ("1.0", {"version": "1.0", "migrate": True}, "1.0"),
        ("1.0", {"version": "1.1", "migrate": True}, "1.1"),
        ("1.1", {"version": "1.1"}, "1.1"),
        ("1.1", {"migrate": True}, "1.1"),
    ],
)
def test_a_lake_is_opened_at_its_own_version_and_migrated_only_if_asked(lake_of, version, request_, opened):
    catalog = lake_of(version)

    with ducklakepy_lake.open_lake(catalog, **request_) as lake:
        assert lake.version() == opened
        lake.insert("t", [{"i": 2}])
        assert lake.count("t") == 2

    assert version_of(catalog) == opened


@pytest.mark.parametrize(
    ("version", "request_", "message"),
    [
        ("1.0", {"version": "1.1"}, "catalog is at DuckLake spec 1.0 but 1.1 was requested"),
        ("1.1", {"version": "1.0"}, "newer than the requested 1.0; a catalog cannot be downgraded"),
        ("1.1", {"version": "1.0", "migrate": True}, "a catalog cannot be downgraded"),
        ("0.4", {}, "which predates 1.0"),
        ("0.4", {"migrate": True}, "can only migrate from 1.0 onwards"),
        ("1.1-dev1", {}, "a development version that must be migrated to 1.1"),
        ("1.1-dev1", {"version": "1.0"}, "a catalog cannot be downgraded"),
        ("1.2", {}, "unknown DuckLake spec version '1.2'"),
        ("1.0", {"version": "0.4"}, "spec_version must be '1.0' or '1.1'"),
    ],
)
def test_what_a_client_of_1_1_refuses(lake_of, version, request_, message):
    catalog = lake_of(version)
    before = dump_catalog(catalog)

    with pytest.raises(OracleError) as refused:
        ducklakepy_lake.open_lake(catalog, **request_)

    assert message in str(refused.value)
    assert dump_catalog(catalog) == before


def test_a_development_version_is_migrated_if_asked(lake_of):
    catalog = lake_of("1.1-dev1")

    with ducklakepy_lake.open_lake(catalog, migrate=True) as lake:
        assert lake.version() == "1.1"
        assert lake.read("t").to_pylist() == [{"i": 1}]


@pytest.mark.parametrize("options", [{}, {"read_only": True}])
def test_a_client_of_1_0_refuses_a_lake_of_1_1_and_advises_to_migrate(lake_of, options):
    with pytest.raises(
        duckdb.Error, match=r"catalog version is 1\.1, but the extension requires version 1\.0"
    ):
        duckdb_lake.open_lake(lake_of("1.1"), **options)


def test_a_client_of_1_0_that_is_to_migrate_a_lake_of_1_1_names_what_it_supports(lake_of):
    catalog = lake_of("1.1")
    before = dump_catalog(catalog)

    with pytest.raises(duckdb.Error, match=r"Only DuckLake versions .*, 0\.4, 1\.0 are supported"):
        duckdb_lake.open_lake(catalog, automatic_migration=True)

    assert dump_catalog(catalog) == before


def test_a_client_of_1_0_on_renamed_inlined_tables_reads_nothing_at_all(lake_of):
    catalog = lake_of("1.0")
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        connection.execute(
            "ALTER TABLE ducklake_inlined_data_1_1 RENAME COLUMN begin_snapshot TO _ducklake_begin_snapshot"
        )

    with (
        duckdb_lake.open_lake(catalog) as lake,
        pytest.raises(duckdb.Error, match='column "begin_snapshot" not found'),
    ):
        lake.sql("FROM t")


@pytest.mark.parametrize(
    ("feature", "ask"),
    [
        ("nested schemas", lambda lake: lake.create_schema("a.b")),
        ("the epoch_year partition transform", lambda lake: lake.partition_by("t", "epoch_year(d)")),
        ("the epoch_month partition transform", lambda lake: lake.partition_by("t", "epoch_month(d)")),
        ("the epoch_day partition transform", lambda lake: lake.partition_by("t", "epoch_day(d)")),
        ("the epoch_hour partition transform", lambda lake: lake.partition_by("t", "epoch_hour(d)")),
        ("COMMENT ON COLUMN for views", lambda lake: lake.comment("v", "x", column="i")),
        ("the NULL type", lambda lake: lake.create_table("n", {"n": "null"})),
        ("the NULL type", lambda lake: lake.create_table("n", {"n": {"l": ["null"]}})),
    ],
)
def test_what_needs_1_1_is_refused_at_1_0(sqlite_catalog, feature, ask):
    with ducklakepy_lake.open_lake(sqlite_catalog, version="1.0") as lake:
        lake.create_schema("a")
        lake.create_table("t", {"i": "int64", "d": "timestamp"})
        lake.create_view("v", "SELECT i FROM main.t")
        head = lake.head()

        with pytest.raises(OracleError, match=f"DuckLake 1.0 does not support {feature} - ") as refused:
            ask(lake)

        assert refused.value.kind == "UnsupportedSpecVersionError"
        assert lake.head() == head


@pytest.mark.parametrize("version", RELEASED)
def test_which_column_names_are_reserved(sqlite_catalog, version):
    with ducklakepy_lake.open_lake(sqlite_catalog, version=version) as lake:
        taken = {"1.0": "row_id", "1.1": "_DuckLake_x"}[version]
        free = {"1.0": "_DuckLake_x", "1.1": "row_id"}[version]
        with pytest.raises(OracleError) as refused:
            lake.create_table("t", {taken: "int64"})
        lake.create_table("t", {free: "int64"})

    assert refused.value.kind == "ReservedColumnNameError"


# ducklakepy writes the rows that the reference writes in a lake of 1.0, but for known ones.


STATEMENTS = (
    "CREATE TABLE t (i BIGINT, s VARCHAR DEFAULT 'x', n STRUCT(a INTEGER), ts TIMESTAMPTZ, b BLOB)",
    "INSERT INTO t (i, s, b) SELECT n, repeat('a', 300), '\\x00\\xff'::BLOB FROM range(20) r(n)",
    "DELETE FROM t WHERE i = 3",
    "DELETE FROM t WHERE i BETWEEN 4 AND 15",
    "COMMENT ON TABLE t IS 'hello'",
    "COMMENT ON TABLE t IS NULL",
    "ALTER TABLE t ADD COLUMN late INTEGER",
    "ALTER TABLE t RENAME TO renamed",
    "CREATE SCHEMA s",
    "CREATE VIEW s.v AS SELECT 1 AS x",
    "CREATE TABLE small (i BIGINT, ts TIMESTAMPTZ)",
    "INSERT INTO small VALUES (7, NULL)",
    "DELETE FROM small WHERE i = 7",
    "DROP TABLE renamed",
)


def write_by_ducklakepy(catalog: CatalogDatabase) -> None:
    columns = {"i": "int64", "s": "varchar", "n": {"a": "int32"}, "ts": "timestamptz", "b": "blob"}
    with ducklakepy_lake.open_lake(catalog, version="1.0") as lake:
        lake.create_table("t", columns, defaults={"s": "x"})
        lake.insert("t", [{"i": n, "s": "a" * 300, "b": b"\x00\xff"} for n in range(20)])
        lake.delete("t", "i = 3")
        lake.delete("t", "i BETWEEN 4 AND 15")
        lake.comment("t", "hello")
        lake.comment("t", None)
        lake.add_column("t", "late", "int32")
        lake.rename_table("t", "renamed")
        lake.create_schema("s")
        lake.create_view("s.v", "SELECT 1 AS x")
        lake.create_table("small", {"i": "int64", "ts": "timestamptz"})
        lake.insert("small", [{"i": 7, "ts": None}])
        lake.delete("small", "i = 7")
        lake.drop_table("renamed")


def test_what_differs_is_known(sqlite_catalog, new_catalog):
    theirs = new_catalog("sqlite")
    write_by_ducklakepy(sqlite_catalog)
    with duckdb_lake.open_lake(theirs) as reference:
        for statement in STATEMENTS:
            reference.sql(statement)

    differences = list(catalog_differences(dump_catalog(sqlite_catalog), dump_catalog(theirs)))

    assert {_place(difference) for difference in differences} == DEVIATIONS.keys(), "\n".join(differences)


def _place(difference: str) -> str:
    """Name the column that differs, or the table if it is a whole row."""
    table, what, rest = re.match(r"(\w+)[^:]*: (\w+)(.*)", difference, re.DOTALL).groups()
    return f"{table}.{what}" if rest.startswith(":") else table
