"""The oracles of 1.1 do what tests ask of them."""

import threading
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.reference import duckdb_lake, ducklakepy_lake
from tests.reference.duckdb_core import open_core
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
