"""What Spark reads of a lake: the same rows as the reader without Spark, which is proved on the reference."""

import os
import re
import sqlite3
from functools import reduce
from json import dumps, loads
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.reading.scan import ChangeFeedPlan
from airflow_provider_ducklake.lake.planning.writing.write import append_to_existing, plan_write
from airflow_provider_ducklake.lake.spark.job.codec import decode, encode
from airflow_provider_ducklake.lake.spark.job.request import job_directory
from airflow_provider_ducklake.lake.spark.jobs.insert import write
from airflow_provider_ducklake.lake.spark.read import read_changes, read_error, read_table
from airflow_provider_ducklake.lake.spark.reading.read_deletes import numbered, place
from airflow_provider_ducklake.lake.spark.reading.read_files import scan
from airflow_provider_ducklake.lake.spark.reading.read_layout import present_layout
from airflow_provider_ducklake.lake.spark.types.names import ReadNames
from tests.interop.comparison import multiset
from tests.interop.filtered_lake import COLUMNS, NOW, fill_by_the_reference
from tests.interop.lakes import alone, by_duckdb
from tests.interop.test_parquet_evolution import HISTORIES, write_history
from tests.interop.test_reads_at_every_snapshot import SCENARIOS, TABLE
from tests.interop.type_values import NULL_STRUCTS, TYPES
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.spark.reading import assert_same_at_every_snapshot, assert_same_rows, shown, types_of

VALUES = (
    TYPES
    | NULL_STRUCTS
    | {
        "interval": ("INTERVAL", ["INTERVAL '1 month 2 days 3.5 seconds'", "NULL"]),
        "timetz": ("TIMETZ", ["'12:00:00+02'", "NULL"]),
        "time_ns": ("TIME_NS", ["'12:00:00.123456789'", "'24:00:00'", "NULL"]),
        "timestamp_ms far": ("TIMESTAMP_MS", ["'infinity'", "'-infinity'", "'290000-01-01 00:00:00.001'"]),
        "timestamp_ms old": ("TIMESTAMP_MS", ["'0044-03-15 (BC) 01:02:03.004'", "'1969-12-31 23:59:59.999'"]),
        "list of timestamp_ms": ("TIMESTAMP_MS[]", ["['-infinity', NULL, '2020-01-01 00:00:00.5']"]),
        "geometry": ("GEOMETRY", ["'POINT(1 2)'", "NULL"]),
        "timestamp_ns far": (
            "TIMESTAMP_NS",
            ["'infinity'", "'-infinity'", "'1969-12-31 23:59:59.999999999'"],
        ),
    }
)
NEVER_IN_FILES = {"TIME_NS"}  # the reference's Parquet writer has none
NEVER_INLINED = {"GEOMETRY"}  # nor any table with such a column

# One of each column with an operator, and what Parquet's own bounds could get wrong.
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
FILTERS = [
    *(f"{NOW.get(name, name)} {OPERATORS[number % 6]} {values[number % len(values)]}"
      for number, (name, (_, _, values)) in enumerate(COLUMNS.items())),
    "f64 > 1", "f32 >= 'nan'", "f64 <> 0", "f32 = -0.0", "f64 NOT IN (0, 0.1)", "f64 IN (0, 'nan')",
    "s LIKE 'a_b'", "s NOT LIKE '%ü%'", "i32 IS NULL OR key IN (6, -1)", "i32 NOT IN (3, NULL)",
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rows_at_every_snapshot(sqlite_catalog, spark, scenario):
    with open_lake(sqlite_catalog) as duck:
        for statement in [TABLE, *SCENARIOS[scenario]]:
            duck.sql(statement)
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            assert assert_same_at_every_snapshot(spark, lake, duck) > 4


@pytest.mark.parametrize("inlining_limit", [0, 100], ids=["files", "inlined"])
def test_values_of_every_type(sqlite_catalog, spark, inlining_limit):
    """All in one table, padded with NULLs: a scan costs more than its columns."""
    elsewhere = NEVER_INLINED if inlining_limit else NEVER_IN_FILES
    values = [one for one in VALUES.values() if one[0] not in elsewhere]
    columns = {f"c{number}": value for number, value in enumerate(values)}
    with open_lake(sqlite_catalog, data_inlining_row_limit=inlining_limit) as duck:
        duck.sql(f"CREATE TABLE t ({', '.join(f'{name} {type_}' for name, (type_, _) in columns.items())})")
        for row in range(max(len(values) for _, values in columns.values())):
            cells = [values[row] if row < len(values) else "NULL" for _, values in columns.values()]
            duck.sql(f"INSERT INTO t VALUES ({', '.join(cells)})")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            natively = [name for name, (type_, _) in columns.items() if type_ != "INTERVAL"]
            assert bool(lake.scan("t").inlined_rows) == bool(inlining_limit)

            assert assert_same_rows(spark, lake, duck) > 4
            assert assert_same_rows(spark, lake, duck, columns=natively) > 4


@pytest.mark.parametrize("name", HISTORIES)
def test_files_older_than_the_columns(sqlite_catalog, spark, name):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        write_history(duck, *HISTORIES[name])
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            assert assert_same_at_every_snapshot(spark, lake, duck) > 2


@pytest.mark.parametrize("scenario", [*SCENARIOS][1:-1:2])
def test_changes_of_rows(sqlite_catalog, spark, scenario):
    with open_lake(sqlite_catalog) as duck:
        for statement in [TABLE, *SCENARIOS[scenario]]:
            duck.sql(statement)
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            end = lake.current_snapshot().id
            types = {"snapshot_id": "BIGINT", "rowid": "BIGINT", "change_type": "VARCHAR"}
            types |= types_of(duck, "t")
            found = 0
            for start, stop in ((0, end), (end // 2, end - 1)):
                feed = lake.changes("t", start, stop)
                plan = decode(loads(dumps(encode(feed.plan, ChangeFeedPlan))), ChangeFeedPlan)
                expected = feed.read_arrow()
                of_stop = {name: types.get(name, "VARCHAR") for name in expected.column_names}

                rows = read_changes(spark, plan).toArrow()

                assert rows.column_names == expected.column_names
                assert shown(duck, rows, of_stop) == shown(duck, expected, of_stop)
                found += rows.num_rows
            assert found > 8


def test_changes_of_rows_that_no_snapshot_shows(sqlite_catalog, spark):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (i INT)")
        duck.sql("BEGIN; INSERT INTO t FROM range(5); DELETE FROM t WHERE i IN (1, 3); COMMIT")
        feed = duck.sql(
            "SELECT snapshot_id, rowid, change_type, i FROM ducklake_table_changes('lake', 'main', 't', 2, 2)"
        )
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        plan = lake.changes("t", 2, 2).plan

    assert sorted(map(tuple, read_changes(spark, plan).collect())) == sorted(feed)
    seen = read_changes(spark, plan, only_seen=True).collect()
    assert sorted((row.change_type, row.i) for row in seen) == [("insert", one) for one in (0, 2, 4)]


def test_files_of_others_by_name_and_folder(sqlite_catalog, spark, tmp_path):
    folder = tmp_path / "given" / "region=north%20sea"
    folder.mkdir(parents=True)
    inner = pa.struct([("Z", pa.string()), ("y", pa.int16())])
    rows = {
        "B": pa.array([[{"Z": "q", "y": 1}], None], pa.list_(inner)),
        "J": pa.array([1, 2], pa.float32()),
        "extra": pa.array(["x", "y"]),
        "I": pa.array([3, None], pa.int64()),
    }
    pq.write_table(pa.table(rows), folder / "a.parquet")
    pq.write_table(pa.table(rows), folder / "_hidden.parquet")
    pq.write_table(pa.table(rows), folder / "at 10:30.parquet")
    pq.write_table(pa.table(rows), folder / "big.parquet", use_deprecated_int96_timestamps=True)
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql(
            "CREATE TABLE t (i BIGINT, late DATE DEFAULT '2024-01-01', j DOUBLE, region VARCHAR, "
            "b STRUCT(y INT, z VARCHAR)[])"
        )
        for name in ("a", "_hidden", "at 10:30", "big"):
            duck.sql(
                f"CALL ducklake_add_data_files('lake', 't', '{folder}/{name}.parquet', "
                "hive_partitioning => true, allow_missing => true, ignore_extra_columns => true)"
            )
        duck.sql("ALTER TABLE t RENAME COLUMN i TO key")
        duck.sql("DELETE FROM t WHERE key = 3")
        duck.sql("INSERT INTO t VALUES (1, NULL, 2, 'here', NULL)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            assert assert_same_rows(spark, lake, duck) == 5
            assert assert_same_rows(spark, lake, duck, filter="region = 'north sea' AND j < 2.5") == 4
            assert assert_same_rows(spark, lake, duck, columns=("region",)) == 5


def test_a_rewritten_file_keeps_the_columns_of_the_old_one(sqlite_catalog, spark):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (i INT, st STRUCT(a BIGINT, b INT))")
        duck.sql("INSERT INTO t SELECT x, {'a': x, 'b': x} FROM range(4) r(x)")
        duck.sql("ALTER TABLE t ADD COLUMN late INT DEFAULT 7")
        duck.sql("ALTER TABLE t RENAME COLUMN st.a TO old")
        duck.sql("ALTER TABLE t ADD COLUMN st.a VARCHAR")
        duck.sql("DELETE FROM t WHERE i = 2")
        duck.sql("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            assert assert_same_rows(spark, lake, duck) == 3


NAMES = ["plain", "a b%20c#d?e", "[x]{y}*", "ü漢\u00a0\u3000'+&=;@,!~^`|"]


@pytest.mark.parametrize("name", NAMES)
def test_deletes_are_applied_whatever_a_folder_is_called(spark, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    catalog = CatalogDatabase("sqlite", str(tmp_path / "catalog.sqlite"), f"{folder}/")
    with open_lake(catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t AS SELECT x AS i FROM range(200) r(x)")
        duck.sql("DELETE FROM t WHERE i % 3 = 0")
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            assert assert_same_rows(spark, lake, duck) == 133


def test_rows_of_a_file_that_is_not_known_are_never_taken_for_live(sqlite_catalog, spark):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t AS SELECT 1 AS i")
        reference.sql("INSERT INTO t VALUES (2)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        plan = lake.scan("t")
        columns, names = plan.table.schema.columns, ReadNames.beside(plan.columns)
        rows = scan(spark, [file.path for file in plan.files], present_layout(columns), columns)

        with pytest.raises(Exception, match=r"Spark returned the name of a data file of main\.t in a form"):
            numbered(rows.selectExpr(*place(names)), plan, plan.files[:1], lake.locate, names).collect()


def test_row_ids_and_positions(sqlite_catalog, spark):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        for statement in [TABLE, *SCENARIOS["updates and merges"]]:
            duck.sql(statement)
        duck.sql("CALL lake.set_option('data_inlining_row_limit', 10)")
        duck.sql("INSERT INTO t VALUES (1000, 'in the catalog', NULL, NULL)")
        duck.sql("UPDATE t SET s = 'there too' WHERE i IN (40, 41)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            plan = lake.scan("t", columns=("i",))
            found = read_table(spark, plan, row_ids=True, positions=True).collect()

            assert sorted((row.i, row._ducklake_row_id) for row in found) == sorted(
                duck.sql("SELECT i, rowid FROM t")
            )
            by_file = {file.id: pq.read_table(file.path)["i"].to_pylist() for file in plan.files}
            placed = [row for row in found if row._ducklake_file_id is not None]
            assert [by_file[row._ducklake_file_id][row._ducklake_position] for row in placed] == [
                row.i for row in placed
            ]
            assert sum(row._ducklake_position is None for row in found) == 3
            kept = read_table(spark, lake.scan("t", filter="i >= 40"), row_ids=True)
            assert sorted(
                row._ducklake_row_id for row in kept.select("_ducklake_row_id").collect()
            ) == sorted(one for (one,) in duck.sql("SELECT rowid FROM t WHERE i >= 40"))


def test_columns_with_the_names_of_those_that_a_read_adds(sqlite_catalog, spark):
    spark.conf.set("spark.sql.parser.quotedRegexColumnNames", "true")  # the read itself sets it back
    with open_lake(sqlite_catalog) as duck:
        duck.sql('CREATE TABLE t ("_Ducklake_Row_ID" BIGINT, "__ducklake_gone" BIGINT, _metadata BIGINT)')
        duck.sql('ALTER TABLE t ADD COLUMN "a.`b" STRUCT("c.d" UUID, _metadata INT)')
        duck.sql("INSERT INTO t SELECT x, x, x, {'c.d': uuid(), '_metadata': x} FROM range(50) r(x)")
        duck.sql('ALTER TABLE t RENAME COLUMN _metadata TO "i.d"')
        duck.sql("INSERT INTO t SELECT x, x, x, {'c.d': uuid(), '_metadata': x} FROM range(50, 90) r(x)")
        duck.sql("DELETE FROM t WHERE _ducklake_row_id = 3")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            assert assert_same_rows(spark, lake, duck) == 89
            assert assert_same_rows(spark, lake, duck, filter='"i.d" < 60', columns=("a.`b",)) == 59
            with pytest.raises(errors.InvalidInputError, match="_ducklake_row_id"):
                read_table(spark, lake.scan("t"), row_ids=True)
            assert read_table(spark, lake.scan("t"), positions=True).count() == 89
            duck.sql('ALTER TABLE t ADD COLUMN "__ducklake_Position" INT')
            assert assert_same_rows(spark, lake, duck) == 89
            named = read_table(spark, lake.scan("t"), row_ids=True, prefix="my_")
            assert named.where("my_row_id <> `_Ducklake_Row_ID`").count() == 0


def test_no_columns_and_no_rows(sqlite_catalog, spark):
    with open_lake(sqlite_catalog) as duck:
        duck.sql("CREATE TABLE t AS SELECT x AS i FROM range(50) r(x)")
        duck.sql("DELETE FROM t WHERE i = 3")
        duck.sql("CREATE TABLE empty (i INT, u UUID)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            assert read_table(spark, lake.scan("t", columns=())).count() == 49
            assert read_table(spark, lake.scan("t", columns=(), filter="i < 10")).count() == 9
            assert read_table(spark, lake.scan("empty")).collect() == []
            assert read_table(spark, lake.scan("t", filter="i > 100")).count() == 0


def test_what_cannot_be_read_is_said_before_anything_runs(sqlite_catalog, spark):
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS i, x AS h FROM range(0) r(x)")
        reference.sql("INSERT INTO t SELECT x, x FROM range(50) r(x)")
    with sqlite3.connect(sqlite_catalog.location) as catalog:
        catalog.execute("UPDATE ducklake_column SET column_type = 'unknown' WHERE column_name = 'h'")
    catalog.close()
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with pytest.raises(errors.UnsupportedFeatureError, match="Column h has type unknown"):
            read_table(spark, lake.scan("t"))
        assert read_table(spark, lake.scan("t", columns=("i",))).count() == 50
        (file,) = lake.scan("t", columns=("i",)).files
        Path(file.path).unlink()
        with pytest.raises(
            errors.StorageError, match=r"parquet of main\.t at snapshot 2: the file does not exist"
        ):
            read_table(spark, lake.scan("t", columns=("i",)))


@pytest.mark.classic_only("looks at the JVM's plan")
def test_two_columns_are_all_that_is_read_of_two(sqlite_catalog, spark):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS a, x AS b, x AS c, x AS d FROM range(50) r(x)")
        reference.sql("DELETE FROM t WHERE a = 3")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        df = read_table(spark, lake.scan("t", columns=("d",), filter="b < 40"))

        plan = df._jdf.queryExecution().executedPlan().toString()
        assert "FileScan parquet [d#" in plan
        assert re.search(r"ReadSchema: struct<d:bigint,b:bigint(,_tmp_metadata_row_index:bigint)?>", plan), (
            plan
        )
        assert "LessThan(b,40)" in plan
        assert df.count() == 39


def test_filters_mean_what_they_mean_without_spark(sqlite_catalog, spark, tmp_path):
    fill_by_the_reference(sqlite_catalog, tmp_path / "given")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        wanted, parts = [], []
        for number in range(0, len(FILTERS), 4):  # a scan costs more than a condition
            where = " OR ".join(f"({one})" for one in FILTERS[number : number + 4])
            ids = lake.read_arrow("t", columns=("id",), filter=where)["id"].to_pylist()
            wanted += [(number, one) for one in ids]
            df = read_table(spark, lake.scan("t", columns=("id",), filter=where))
            parts.append(df.select(f.lit(number), "id"))
        found = reduce(DataFrame.union, parts).collect()

    assert sorted(map(tuple, found)) == sorted(wanted)
    assert len(wanted) > 50


EARLY = ("= {0}", "<> {0}", "> {0}", "< {1}", "IN ({1}, {0})", "NOT IN ({0}, {1})")


def test_filters_find_times_that_the_julian_calendar_of_spark_has_not(sqlite_catalog, spark):
    firsts = {
        "d": ("'-infinity'", "'5877642-06-25 (BC)'"),
        "tz": ("'-infinity'", "'290309-12-22 (BC) 00:00:00+00'"),
    }
    wheres = [f"{name} {test.format(*values)}" for name, values in firsts.items() for test in EARLY]
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        rows = [*zip(*firsts.values(), strict=True), ("'2020-01-01'",) * 2, ("'infinity'",) * 2]
        values = ", ".join(f"({id_}, {d}, {tz})" for id_, (d, tz) in enumerate(rows))
        duck.sql("CREATE TABLE t (id INT, d DATE, tz TIMESTAMPTZ)")
        duck.sql(f"INSERT INTO t VALUES {values}")
        wanted = [(one, id_) for one in wheres for (id_,) in duck.sql(f"SELECT id FROM t WHERE {one}")]
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        parts = [read_table(spark, lake.scan("t", filter=one)).select(f.lit(one), "id") for one in wheres]
        found = reduce(DataFrame.union, parts).collect()

    assert sorted(map(tuple, found)) == sorted(wanted)


@pytest.mark.classic_only("looks at the JVM's plan")
def test_other_times_are_pushed_down(sqlite_catalog, spark):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql(
            "CREATE TABLE t AS SELECT DATE '2024-05-01' AS d, TIMESTAMPTZ '2024-05-01 00:00:00+00' AS tz"
        )
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for where, pushed in (
            ("d < 'infinity'", "LessThan(d,"),
            ("d IN ('2024-05-01', '0044-03-15')", "In(d,"),
            ("tz >= '2024-05-01 00:00:00+00'", "GreaterThanOrEqual(tz,"),
        ):
            df = read_table(spark, lake.scan("t", filter=where))
            assert pushed in df._jdf.queryExecution().executedPlan().toString()
            assert df.count() == 1


def test_long_filters_and_many_folders_make_no_deep_plan(sqlite_catalog, spark, tmp_path):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        paths = [tmp_path / "given" / f"day={day}" / "a.parquet" for day in range(60)]
        for number, path in enumerate(paths):
            path.parent.mkdir(parents=True)
            pq.write_table(pa.table({"price": [number / 2]}), path)
        with lake.transaction() as tx:
            tx.create_table("main.t", {"price": "float64", "day": "int32"})
            tx.add_data_files("main.t", [str(path) for path in paths], hive_partitioning=True)
        either = " OR ".join(f"(day = {day} AND price >= 0)" for day in range(1, 61))
        among = ", ".join(f"{number / 2}" for number in range(60))

        rows = read_table(spark, lake.scan("t", filter=f"({either}) AND price IN ({among})"))

        assert sorted(row.day for row in rows.collect()) == list(range(1, 60))


def without_ids(path: Path) -> None:
    pq.write_table(pa.table({"i": [1]}), path)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


FAILED = "FAILED_READ_FILE|PATH_NOT_FOUND"  # a server lists the files when the rows are asked for


@pytest.mark.parametrize(
    ("harm", "reason"),
    [(Path.unlink, "does not exist"), (cut_off, "Spark cannot read it"), (without_ids, "no field ids")],
)
def test_a_file_that_goes_bad_before_the_rows_are_asked_for_is_named(sqlite_catalog, spark, harm, reason):
    by_duckdb(
        sqlite_catalog, "CREATE TABLE t (i BIGINT)", "INSERT INTO t FROM range(50)", data_inlining_row_limit=0
    )
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        plan = lake.scan("t")
        df = read_table(spark, plan)
        harm(Path(plan.files[0].path))

        with pytest.raises(Exception, match=FAILED) as caught:
            df.collect()

    error = read_error(caught.value, [plan])
    assert isinstance(error, errors.StorageError)
    ours, spark_says = str(error).split(" Spark says: ")
    assert plan.files[0].path in ours
    assert "of main.t at snapshot 2: " in ours
    assert reason in ours
    assert re.search(FAILED, spark_says)


@pytest.mark.classic_only("makes an exception of Java")
@pytest.mark.drawn(one_in=1)
@pytest.mark.parametrize(
    "planted", ["empty file", "empty folder", "folder with files", "FIFO", "hidden", "slash"]
)
def test_no_file_is_left_out_without_a_word(sqlite_catalog, spark, planted):
    """Spark's listing leaves out what is empty, and files of some names; what lies in a folder it reads."""
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        for first in (0, 100):
            lake.append_arrow("t", pa.table({"i": pa.array(range(first, first + 50), pa.int64())}))
    path = Path(lake_file(sqlite_catalog))
    content, name = path.read_bytes(), path.name
    if planted in ("hidden", "slash"):
        name = f"{path.name}._COPYING_" if planted == "hidden" else path.name
        path.rename(path.with_name(name))
        with sqlite3.connect(sqlite_catalog.location) as connection:
            stored = name if planted == "hidden" else f"{name}/"
            connection.execute("UPDATE ducklake_data_file SET path = ? WHERE path = ?", (stored, path.name))
    else:
        path.unlink()
        if planted == "empty file":
            path.touch()
        elif planted == "FIFO":
            os.mkfifo(path)
        else:
            path.mkdir()
            for number in range(2 if planted == "folder with files" else 0):
                (path / f"{number}.parquet").write_bytes(content)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        if planted in ("hidden", "slash"):
            assert read_table(spark, lake.scan("t")).count() == 100
        else:
            with pytest.raises(errors.StorageError, match=re.escape(name)):
                read_table(spark, lake.scan("t")).collect()


def lake_file(catalog: CatalogDatabase) -> str:
    """Return the path of the first file."""
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return min(file.data_file for file in lake.files("t"))


@pytest.mark.classic_only("makes an error of Java")
def test_a_file_is_not_called_bad_for_what_ails_who_reads_it(sqlite_catalog, spark):
    by_duckdb(sqlite_catalog, "CREATE TABLE t AS SELECT 1 AS i", data_inlining_row_limit=0)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        plan = lake.scan("t")
    java = spark._jvm.java
    read = f"[FAILED_READ_FILE] Encountered error while reading file {plan.files[0].path}"
    failed = java.lang.RuntimeException(read, java.lang.OutOfMemoryError("Java heap space"))

    with pytest.raises(Py4JJavaError) as caught:
        java.util.concurrent.CompletableFuture.failedFuture(failed).join()

    error = read_error(caught.value, [plan])
    assert type(error) is errors.SparkJobError
    assert str(error).startswith("Spark ran out of memory.")


def test_what_is_read_can_be_inserted_as_it_is(sqlite_catalog, spark):
    """Every type that can be stored, with values that only the reference writes."""
    columns = {name: value for name, value in TYPES.items() if not UNLIKE & set(name.split())}
    types = [f"c{number} {type_}" for number, (type_, _) in enumerate(columns.values())]
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql(f"CREATE TABLE t ({', '.join(types)})")
        for row in range(4):
            cells = [values[row] if row < len(values) else "NULL" for _, values in columns.values()]
            duck.sql(f"INSERT INTO t VALUES ({', '.join(cells)})")
        duck.sql("CREATE TABLE copy AS FROM t LIMIT 0")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            copy = lake.table_snapshot("copy")
            directory = job_directory(copy.root, "0190f3c1-0000-7000-8000-000000000001")
            result = write(read_table(spark, lake.scan("t")), plan_write(copy, directory))
            lake.committer.commit(copy.snapshot.id, append_to_existing(copy, result), CommitInfo())

        texts = "SELECT COLUMNS(*)::VARCHAR FROM "
        assert sorted(duck.sql(f"{texts} copy"), key=repr) == sorted(duck.sql(f"{texts} t"), key=repr)


UNLIKE = {"far", "infinite"}  # times that pyarrow's writer or Spark's calendar may not hold


def test_one_line_reads_a_table_of_a_lake(spark, sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("orders", {"id": "int64", "price": "float64"})
        before = lake.append_arrow("orders", pa.table({"id": [1, 2], "price": [10.5, 20.5]}))
        lake.append_arrow("orders", pa.table({"id": [3], "price": [30.5]}))

        some = lake.read_spark(spark, "orders", columns=["id"], filter="price > 11")
        old = lake.read_spark(spark, "main.orders", at=before.id)
        lake.tag("two rows", before.id)
        tagged = lake.read_spark(spark, "main.orders", at="tag:two rows")

    assert some.columns == ["id"]
    assert sorted(row.id for row in some.collect()) == [2, 3]
    assert sorted(row.id for row in old.collect()) == [1, 2]
    assert sorted(row.id for row in tagged.collect()) == [1, 2]


def test_no_row_is_left_out_by_parquets_bounds_of_floats(spark, sqlite_catalog, tmp_path):
    """To them -0.0 is no 0.0, and no NaN is greater than a number."""
    nan = float("nan")
    values = [1.0, -0.0, nan] * 20
    zeros = pa.table({"g": [-0.0] * 20, "s": [{"h": -0.0, "n": 1}] * 20})
    mixed = pa.table({"g": values, "s": [{"h": one, "n": 1} for one in values]})
    pq.write_table(mixed, tmp_path / "added.parquet")
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"g": "float64", "s": "struct(h float64, n int64)"})
            tx.set_option("t", "data_inlining_row_limit", 0)
            tx.add_data_files("t", [str(tmp_path / "added.parquet")])
        for rows in (zeros, mixed):
            lake.append_arrow("t", rows)

        found = lake.read_spark(spark, "t")

        for column in ("g", "s.h"):
            counts = {"= 0": 60, "> 0.5": 80, ">= 0": 140, "IN (0, 5)": 60, "= double('NaN')": 40, "<= 0": 60}
            assert {one: found.where(f"{column} {one}").count() for one in counts} == counts
        assert found.where("s.n = 1").select("s.n").count() == 140


# --- restored tables, whose files may be older than their snapshots say ---

ALTERED = [
    "CREATE SCHEMA s",
    "USE lake.s",
    "CREATE TABLE t (i INT, s VARCHAR, n INT)",
    "INSERT INTO t SELECT i, 'a' || i, i FROM range(40) r(i)",  # a file of before, with other columns
    "ALTER TABLE t ADD COLUMN late INT DEFAULT 7",
    "ALTER TABLE t RENAME s TO text",
    "ALTER TABLE t ALTER n TYPE BIGINT",
    "INSERT INTO t SELECT i, 'b' || i, i, i FROM range(40, 60) r(i)",
]
SINCE = [
    "ALTER TABLE t DROP COLUMN late",
    "INSERT INTO t SELECT i, 'c', i FROM range(60, 90) r(i)",  # lacks a column that comes back
    "DELETE FROM t WHERE i < 60",
]

GONE = {"table": ["DROP TABLE t"], "schema": ["USE lake.main", "DROP SCHEMA s CASCADE"]}


@pytest.mark.parametrize("gone", [None, *GONE])
def test_columns_of_copies_are_those_that_their_files_have(spark, sqlite_catalog, gone):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        for statement in ALTERED:
            reference.sql(statement)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        then = lake.current_snapshot().id
        with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
            for statement in ["USE lake.s", *SINCE, *GONE.get(gone, ())]:
                reference.sql(statement)

        restored = lake.restore("s.t", at=then)

        assert restored.tables[0].files_copied == 2
        since = restored.committed.id if gone == "schema" else then  # it is another table
        feed = lake.changes("s.t", since, restored.committed.id)
        with open_lake(sqlite_catalog) as reference:
            assert assert_same_rows(spark, lake, reference, "s.t") == 60
        assert multiset(read_changes(spark, feed.plan).toArrow()) == multiset(feed.read_arrow())
