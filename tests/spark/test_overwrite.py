"""Inserts that replace rows: which files end, which rows are deleted, and what is a conflict."""

from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.catalog.drafting import overwrite
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    TransactionConflictError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice, InsertMode
from tests.interop.lakes import by_duckdb
from tests.spark.inserting import insert, new_lake, rows_of

PARTITIONS = InsertChoice(InsertMode.OVERWRITE_PARTITIONS)
OVERWRITE = InsertChoice(InsertMode.OVERWRITE)
ORDERS = (
    "CREATE TABLE t (id INT, region VARCHAR, day DATE)",
    "ALTER TABLE t SET PARTITIONED BY (region, year(day))",
    "INSERT INTO t VALUES (1, 'eu', '2024-05-01'), (2, 'eu', '2025-05-01'), (3, NULL, '2024-01-01')",
    "INSERT INTO t VALUES (4, 'us', '2024-05-01'), (5, 'eu', '2024-06-01')",
)


def orders(spark, *rows: tuple[int, str | None, str]):
    return spark.createDataFrame(rows, "id INT, region STRING, day STRING").selectExpr(
        "id", "region", "CAST(day AS DATE) AS day"
    )


def ids(catalog) -> list[int]:
    return [row[0] for row in rows_of(catalog, "SELECT id FROM t ORDER BY id")]


@pytest.mark.parametrize("inlined", [0, 10])
def test_partitions_of_the_new_rows_are_replaced_wherever_their_rows_lie(spark, sqlite_catalog, inlined):
    with new_lake(sqlite_catalog, *ORDERS, data_inlining_row_limit=inlined) as lake:
        before = lake.current_snapshot().id
        insert(lake, orders(spark, (10, "eu", "2024-12-31"), (11, None, "2024-02-02")), PARTITIONS)

        assert lake.current_snapshot().id == before + 1
    assert ids(sqlite_catalog) == [2, 4, 10, 11]
    assert rows_of(sqlite_catalog, f"SELECT count(*) FROM t AT (VERSION => {before})") == [(5,)]


def test_no_rows_replace_no_partition(spark, sqlite_catalog):
    with new_lake(sqlite_catalog, *ORDERS) as lake:
        assert insert(lake, orders(spark), PARTITIONS)[1] is None
    assert ids(sqlite_catalog) == [1, 2, 3, 4, 5]


def test_files_of_older_keys_are_replaced_where_their_values_decide(spark, sqlite_catalog):
    with new_lake(
        sqlite_catalog, *ORDERS, "ALTER TABLE t SET PARTITIONED BY (region)", data_inlining_row_limit=0
    ) as lake:
        insert(lake, orders(spark, (10, "eu", "2020-01-01")), PARTITIONS)

    assert ids(sqlite_catalog) == [3, 4, 10]


def test_a_file_of_older_keys_that_may_hold_such_rows_is_named(spark, sqlite_catalog):
    older = (
        "CREATE TABLE t (id INT, region VARCHAR, day DATE)",
        "INSERT INTO t VALUES (1, 'ca', '2024-05-01'), (2, 'eu', '2025-05-01')",
        "ALTER TABLE t SET PARTITIONED BY (region)",
        "INSERT INTO t VALUES (3, 'us', '2024-05-01')",
    )
    with new_lake(sqlite_catalog, *older, data_inlining_row_limit=0) as lake:
        with pytest.raises(UnsupportedFeatureError, match=r"\.parquet may hold rows"):
            insert(lake, orders(spark, (10, "da", "2020-01-01")), PARTITIONS)
        insert(lake, orders(spark, (11, "us", "2020-01-01")), PARTITIONS)  # beyond the file's bounds

    assert ids(sqlite_catalog) == [1, 2, 11]


@pytest.mark.parametrize(
    ("choice", "statement"),
    [
        (PARTITIONS, "INSERT INTO t VALUES (9, 'eu', '2024-01-01')"),
        (OVERWRITE, "INSERT INTO t VALUES (9, 'xx', '2000-01-01')"),
        (InsertChoice(where="id = 10"), "INSERT INTO t VALUES (10, 'xx', '2000-01-01')"),
        (OVERWRITE, "ALTER TABLE t ADD COLUMN more INT"),
    ],
)
def test_what_others_do_to_the_rows_meanwhile_is_a_conflict(spark, sqlite_catalog, choice, statement):
    def meanwhile() -> None:
        by_duckdb(sqlite_catalog, statement, data_inlining_row_limit=0)

    with (
        new_lake(sqlite_catalog, *ORDERS, data_inlining_row_limit=0) as lake,
        pytest.raises(TransactionConflictError),
    ):
        insert(lake, orders(spark, (10, "eu", "2024-12-31")), choice, meanwhile=meanwhile)


@pytest.mark.parametrize(("choice", "left"), [(OVERWRITE, [10]), (PARTITIONS, [2, 3, 4, 10])])
def test_rows_that_go_meanwhile_are_no_conflict_of_an_overwrite(spark, sqlite_catalog, choice, left):
    def meanwhile() -> None:
        by_duckdb(sqlite_catalog, "DELETE FROM t WHERE id = 1", data_inlining_row_limit=0)

    with new_lake(sqlite_catalog, *ORDERS, data_inlining_row_limit=0) as lake:
        insert(lake, orders(spark, (10, "eu", "2024-12-31")), choice, meanwhile=meanwhile)

    assert ids(sqlite_catalog) == left


def test_two_overwrites_at_a_time_are_a_conflict_also_of_an_empty_table(spark, sqlite_catalog):
    with new_lake(sqlite_catalog, *ORDERS[:2]) as lake:
        rows = orders(spark, (10, "new", "2024-12-31"))
        for choice in (OVERWRITE, PARTITIONS, InsertChoice(where="id = 10")):
            before = ids(sqlite_catalog)
            with pytest.raises(TransactionConflictError):
                insert(lake, rows, choice, meanwhile=lambda chosen=choice: insert(lake, rows, chosen))
            assert ids(sqlite_catalog) == sorted({*before, 10})
            insert(lake, rows.limit(0), OVERWRITE)


def test_all_rows_are_replaced_and_none_may_come(spark, sqlite_catalog):
    with new_lake(sqlite_catalog, *ORDERS) as lake:
        insert(lake, orders(spark, (10, "eu", "2024-12-31")), OVERWRITE)
        assert ids(sqlite_catalog) == [10]

        insert(lake, orders(spark), OVERWRITE)
        assert ids(sqlite_catalog) == []
        assert insert(lake, orders(spark), OVERWRITE)[1] is None  # empty already


@pytest.mark.parametrize("inlined", [0, 10])
def test_rows_of_a_condition_are_replaced_in_files_and_in_the_catalog(spark, sqlite_catalog, inlined):
    delete = ("DELETE FROM t WHERE id = 5",)
    with new_lake(sqlite_catalog, *ORDERS, *delete, data_inlining_row_limit=inlined) as lake:
        choice = InsertChoice(where="day >= DATE '2024-05-01' AND day < DATE '2025-01-01'")
        insert(lake, orders(spark, (10, "eu", "2024-12-31"), (11, "xx", "2024-05-01")), choice)

    assert ids(sqlite_catalog) == [2, 3, 10, 11]


@pytest.fixture
def found_by_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no file be small enough for the process that commits."""
    monkeypatch.setattr(overwrite, "MOST_BYTES_READ", 0)


@pytest.mark.usefixtures("found_by_the_job")
@pytest.mark.parametrize("inlined", [0, 10])
@pytest.mark.parametrize("gone_before", ["id = 5", "id = 2000"])
def test_the_job_finds_the_rows_of_a_condition_in_large_files(spark, sqlite_catalog, inlined, gone_before):
    large = "INSERT INTO t SELECT range, 'eu', DATE '2024-01-01' + (range % 700)::INT FROM range(1000, 4000)"
    statements = (*ORDERS, large, f"DELETE FROM t WHERE {gone_before}")
    condition = "day >= DATE '2024-05-01' AND day < DATE '2025-01-01'"
    with new_lake(sqlite_catalog, *statements, data_inlining_row_limit=inlined) as lake:
        kept = rows_of(sqlite_catalog, f"SELECT rowid, * FROM t WHERE NOT ({condition}) ORDER BY ALL")
        before = lake.current_snapshot().id
        new = orders(spark, (10, "eu", "2024-12-31"), (11, "xx", "2024-05-01"))
        insert(lake, new, InsertChoice(where=condition))

        assert lake.current_snapshot().id == before + 1
        assert not lake.verify()
        named = {
            file.delete_file.path
            for file in lake.table_snapshot("t", with_files=True).files
            if file.delete_file
        }
        lying = {str(path) for path in Path(sqlite_catalog.data_path).rglob("ducklake-*/deletes/*")}
        assert lying <= named, "a delete file that was replaced at the commit stays"
    assert len(kept) > 1000
    assert rows_of(sqlite_catalog, "SELECT rowid, * FROM t WHERE id NOT IN (10, 11) ORDER BY ALL") == kept
    assert rows_of(sqlite_catalog, f"SELECT id FROM t WHERE {condition} ORDER BY ALL") == [(10,), (11,)]


@pytest.mark.usefixtures("found_by_the_job")
@pytest.mark.parametrize(
    "statement", ["DELETE FROM t WHERE id = 1001", "INSERT INTO t VALUES (9, 'x', NULL)"]
)
def test_rows_that_the_job_found_and_others_changed_are_a_conflict(spark, sqlite_catalog, statement):
    def meanwhile() -> None:
        by_duckdb(sqlite_catalog, statement, data_inlining_row_limit=0)

    large = "INSERT INTO t SELECT range, 'eu', DATE '2024-01-01' + (range % 700)::INT FROM range(1000, 4000)"
    choice = InsertChoice(where="id < 2000")
    with (
        new_lake(sqlite_catalog, *ORDERS[:1], large, data_inlining_row_limit=0) as lake,
        pytest.raises(TransactionConflictError),
    ):
        insert(lake, orders(spark, (10, "new", "2024-12-31")), choice, meanwhile=meanwhile)


@pytest.mark.usefixtures("found_by_the_job")
def test_the_job_finds_nan_as_the_reference_does(spark, sqlite_catalog):
    statements = (
        "CREATE TABLE t (id INT, x DOUBLE)",
        "INSERT INTO t SELECT range, if(range % 3 = 0, 'nan'::DOUBLE, range) FROM range(100)",
    )
    with new_lake(sqlite_catalog, *statements, data_inlining_row_limit=0) as lake:
        expected = rows_of(sqlite_catalog, "SELECT id FROM t WHERE NOT x > 50 ORDER BY ALL")
        none = spark.createDataFrame([], "id INT, x DOUBLE")
        insert(lake, none, InsertChoice(where="x > 50"))

    assert rows_of(sqlite_catalog, "SELECT id FROM t ORDER BY ALL") == expected


def test_files_that_a_condition_covers_are_ended_unread(spark, sqlite_catalog):
    values = "range AS id, 'eu' AS region, DATE '2024-01-01' AS day FROM range"
    statements = (*ORDERS[:1], *(f"INSERT INTO t SELECT {values}({n}, {n} + 100)" for n in (0, 100, 200)))
    with new_lake(sqlite_catalog, *statements) as lake:
        covered = [
            file
            for file in lake.table_snapshot("t", with_files=True).files
            if int(file.column_stats[1].min_value) >= 100
        ]
        for file in covered:
            Path(file.path).write_bytes(b"")
        insert(lake, orders(spark, (1000, "eu", "2024-12-31")), InsertChoice(where="id >= 50"))

    assert rows_of(sqlite_catalog, "SELECT count(*), max(id), max(id) FILTER (id < 1000) FROM t") == [
        (51, 1000, 49)
    ]


def test_without_new_rows_a_condition_only_deletes(spark, sqlite_catalog):
    with new_lake(sqlite_catalog, *ORDERS) as lake:
        assert insert(lake, orders(spark), InsertChoice(where="id > 100"))[1] is None
        insert(lake, orders(spark), InsertChoice(where="region IS NULL OR id = 1"))

    assert ids(sqlite_catalog) == [2, 4, 5]


def test_a_new_row_that_a_condition_does_not_cover_fails_the_job_and_is_named(spark, sqlite_catalog):
    with new_lake(sqlite_catalog, *ORDERS) as lake:
        for row in ((77, "eu", "2024-12-31"), (77, None, "2024-12-31")):
            with pytest.raises(Exception, match=r'overwrite_where: \{"id":77') as raised:
                insert(lake, orders(spark, (1, "us", "2024-12-31"), row), InsertChoice(where="region = 'us'"))
            assert isinstance(typed(raised.value), InvalidInputError)
    assert ids(sqlite_catalog) == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("found_by_the_job")
@pytest.mark.parametrize("who", ["ours", "theirs"])
def test_rows_that_a_flush_moved_while_the_job_looked_are_a_conflict(spark, sqlite_catalog, who):
    def meanwhile() -> None:
        if who == "ours":
            with Lake.connect(sqlite_catalog.sqlalchemy_url) as other:
                assert other.flush_inlined_data()
        else:
            rows_of(sqlite_catalog, "CALL ducklake_flush_inlined_data('lake')")

    statements = (
        "CREATE TABLE t (id INT)",
        "INSERT INTO t FROM range(200)",
        "INSERT INTO t VALUES (120), (7)",
    )
    with new_lake(sqlite_catalog, *statements, data_inlining_row_limit=10) as lake:
        rows = spark.createDataFrame([(110,)], "id INT")
        choice = InsertChoice(where="id > 100 AND id < 150")
        with pytest.raises(TransactionConflictError, match="moved rows to data file"):
            insert(lake, rows, choice, meanwhile=meanwhile)
        insert(lake, rows, choice)
    assert rows_of(sqlite_catalog, "FROM t WHERE id > 100 AND id < 150") == [(110,)]


def test_a_condition_whose_snapshot_expires_meanwhile_is_planned_again(spark, sqlite_catalog):
    def meanwhile() -> None:
        rows_of(sqlite_catalog, "INSERT INTO t VALUES (9, 'x', NULL)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as other:
            assert other.expire_snapshots(keep_last=1).snapshots

    choice = InsertChoice(where="id = 5")
    with new_lake(sqlite_catalog, *ORDERS) as lake:
        insert(lake, orders(spark, (5, "new", "2024-12-31")), choice, meanwhile=meanwhile)
    assert ids(sqlite_catalog) == [1, 2, 3, 4, 5, 9]


@pytest.mark.parametrize("by_duckdb", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "is_trusted"),
    [
        ("DECIMAL(4,2)", "DECIMAL(9,4)", False),
        ("UINTEGER", "BIGINT", False),
        ("DATE", "TIMESTAMP", False),
        ("SMALLINT", "BIGINT", True),
    ],
)
def test_buckets_of_a_column_that_had_another_type_are_not_compared(
    spark, sqlite_catalog, old, new, is_trusted, by_duckdb
):
    value = "DATE '2024-05-01'" if old == "DATE" else "1"
    older = (f"CREATE TABLE t (id INT, c {old})", "ALTER TABLE t SET PARTITIONED BY (bucket(4, c))")
    widened = (f"ALTER TABLE t ALTER c TYPE {new}",)
    if not by_duckdb:  # as our refusal to change the type of a key advises
        widened = ("ALTER TABLE t RESET PARTITIONED BY", *widened, older[1])
    filled = (f"INSERT INTO t SELECT i, CAST({value} AS {old}) FROM range(2) r(i)", *widened)
    with new_lake(sqlite_catalog, *older, *filled, data_inlining_row_limit=0) as lake:
        rows = spark.sql(f"SELECT 7 AS id, CAST({value} AS {new.replace('TIMESTAMP', 'TIMESTAMP_NTZ')}) AS c")
        if not is_trusted:
            with pytest.raises(UnsupportedFeatureError, match="may hold rows of several partitions"):
                insert(lake, rows, PARTITIONS)
            insert(lake, rows, OVERWRITE)
        insert(lake, rows, PARTITIONS)

    assert ids(sqlite_catalog) == [7]
