"""Columns without bounds in statistics, as the option skip_stats_columns asks, whoever writes the rows."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    InvalidOptionError,
    InvalidPartitionError,
    TransactionConflictError,
)
from tests.interop.jobs import merge_adjacent, rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

COLUMNS = {"id": "int64", "x": "float64", "s": "struct(a varchar, b struct(c int32))", "k": "varchar"}
ID, X, S, A, B, C, K = range(1, 8)
SKIPPED, KEPT = {X, A, C}, {ID, K}
BOUNDS = ("min_value", "max_value", "contains_nan", "min_is_exact", "max_is_exact")


def rows(*ids: int) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "x": [one / 2 for one in ids],
            "s": [{"a": f"t{one}", "b": {"c": one}} for one in ids],
            "k": [f"k{one % 2}" for one in ids],
        },
        schema=pa.schema(
            {
                "id": pa.int64(),
                "x": pa.float64(),
                "s": pa.struct({"a": pa.string(), "b": pa.struct({"c": pa.int32()})}),
                "k": pa.string(),
            }
        ),
    )


@pytest.fixture(params=["1.0", "1.1"])
def lake(request, catalog: CatalogDatabase):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=request.param) as opened:
        opened.set_option("data_inlining_row_limit", 0)
        alone(opened).create_table("t", COLUMNS)
        yield opened


def skip(lake: Lake) -> None:
    lake.set_option("skip_stats_columns", ["S", "x"], table="t")


def file_rows(catalog: CatalogDatabase) -> list[dict[str, object]]:
    return dump_catalog(catalog)["ducklake_file_column_stats"]


def check(lake: Lake, catalog: CatalogDatabase) -> None:
    """Every file's bounds are there or not as they should; counts and sizes always are."""
    found = file_rows(catalog)
    assert found
    for row in found:
        assert row["value_count"] is not None, row
        assert row["column_size_bytes"] is not None, row
        known = [name for name in BOUNDS[:2] if row[name] is not None]
        assert len(known) == (0 if row["column_id"] in SKIPPED else 2), row
        if row["column_id"] in SKIPPED:
            assert all(row.get(name) is None for name in BOUNDS), row
    assert {row["column_id"] for row in dump_catalog(catalog)["ducklake_table_column_stats"]} == KEPT
    assert lake.verify() == []


def append(lake: Lake, _folder) -> None:
    lake.append_arrow("t", rows(1, 2, 3))


def add_files(lake: Lake, folder) -> None:
    path = f"{folder}/given.parquet"
    pq.write_table(rows(1, 2, 3), path)
    alone(lake).add_data_files("t", [path])


def flush(lake: Lake, _folder) -> None:
    lake.set_option("data_inlining_row_limit", 100)
    lake.append_arrow("t", rows(1, 2, 3))
    lake.flush_inlined_data("t")


def restore(lake: Lake, _folder) -> None:
    lake.append_arrow("t", rows(1, 2, 3))
    before = lake.current_snapshot().id
    alone(lake).truncate("t")
    lake.restore("t", at=before)


def delete(lake: Lake, _folder) -> None:
    lake.append_arrow("t", rows(1, 2, 3))
    alone(lake).delete_rows("t", "x = 1.0")


def merge(lake: Lake, _folder) -> None:
    lake.append_arrow("t", rows(1, 2))
    lake.append_arrow("t", rows(3))
    assert merge_adjacent(lake) is not None


def rewrite_rows(lake: Lake, _folder) -> None:
    lake.append_arrow("t", rows(1, 2, 3, 4))
    alone(lake).delete_at("t", {0: [3]})
    assert rewrite(lake) is not None


WRITERS: dict[str, Callable[[Lake, object], None]] = {
    one.__name__: one for one in (append, add_files, flush, restore, delete, merge, rewrite_rows)
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_no_writer_says_bounds(lake, catalog, tmp_path, write):
    skip(lake)

    write(lake, tmp_path)

    check(lake, catalog)
    assert lake.read_arrow("t", filter="x > 1.0")["id"].to_pylist() == [3]
    assert lake.read_arrow("t", filter="k = 'k1'").num_rows == 2


def test_inlined_rows_make_the_table_unknown(lake, catalog):
    lake.set_option("data_inlining_row_limit", 100)
    lake.append_arrow("t", rows(1, 2))
    skip(lake)

    lake.append_arrow("t", rows(7))

    assert {row["column_id"] for row in dump_catalog(catalog)["ducklake_table_column_stats"]} == KEPT
    assert lake.verify() == []


def test_what_is_unknown_is_never_known_again(lake, catalog):
    lake.append_arrow("t", rows(1, 100))
    skip(lake)
    lake.append_arrow("t", rows(200))
    lake.reset_option("skip_stats_columns", "t")

    lake.append_arrow("t", rows(3))

    assert {row["column_id"] for row in dump_catalog(catalog)["ducklake_table_column_stats"]} == KEPT
    bounds = {(row["data_file_id"], row["min_value"]) for row in file_rows(catalog) if row["column_id"] == C}
    assert [low for _, low in sorted(bounds)] == ["1", None, "3"]
    assert lake.read_arrow("t", filter="x = 100.0").num_rows == 1
    assert lake.verify() == []


def test_an_option_of_the_same_transaction_holds(lake, catalog):
    with lake.transaction() as tx:
        tx.create_table("n", COLUMNS)
        tx.set_option("n", "skip_stats_columns", ["x", "s"])
        tx.append_arrow("n", rows(1))
        tx.set_option("t", "skip_stats_columns", ["x", "s"])
        tx.append_arrow("t", rows(1))

    assert len(file_rows(catalog)) == 2 * 5
    check_ids = [row["column_id"] for row in dump_catalog(catalog)["ducklake_table_column_stats"]]
    assert sorted(check_ids) == sorted([*KEPT, *KEPT])


def test_a_column_that_came_later_into_a_skipped_struct_is_skipped(lake, catalog):
    skip(lake)
    alone(lake).add_column("t", "s.b.d", "int32")

    with lake.transaction() as tx:
        values = rows(1)
        struct = values["s"].to_pylist()
        struct[0]["b"]["d"] = 9
        type_ = pa.struct({"a": pa.string(), "b": pa.struct({"c": pa.int32(), "d": pa.int32()})})
        tx.append_arrow("t", values.set_column(2, "s", pa.array(struct, type_)))

    late = [row for row in file_rows(catalog) if row["column_id"] > K]
    assert [(row["value_count"], row["min_value"]) for row in late] == [(1, None)]


@pytest.mark.parametrize(
    ("names", "stored_as"),
    [(["k", "S", "K"], f"{K},{S}"), ("x", f"{X}"), ([], ""), ("", "")],
    ids=["several", "one", "none", "an empty text"],
)
def test_the_row_is_ducklakepys(sqlite_catalog, names, stored_as):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        with lake.transaction() as tx:
            tx.create_table("ours", COLUMNS)
            tx.create_table("theirs", COLUMNS)
        lake.set_option("skip_stats_columns", names, table="ours")
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
        theirs.set_option("skip_stats_columns", names, table="theirs")

    found = dump_catalog(sqlite_catalog)["ducklake_metadata"]
    assert [row["value"] for row in found if row["key"] == "skip_stats_columns"] == [stored_as] * 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nope", "no top-level column"),
        ("s.a", "no top-level column"),
        ("p", "partitioned by it"),
        ("v", "variant"),
        ("n", "variant"),
        ("g", "geometry"),
    ],
)
def test_a_column_that_cannot_be_skipped_is_refused(sqlite_catalog, name, says):
    with open_lake(sqlite_catalog) as duck:
        duck.sql("CREATE TABLE w (id INT, p INT, s STRUCT(a INT), v VARIANT, n VARIANT[], g GEOMETRY)")
        duck.sql("ALTER TABLE w SET PARTITIONED BY (p)")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        refused = rf"skip_stats_columns of main\.w cannot name '{name}': .*{says}"
        with pytest.raises(InvalidOptionError, match=refused):
            lake.set_option("skip_stats_columns", ["id", name], table="w")
        lake.set_option("skip_stats_columns", ["id"], table="w")


@pytest.mark.parametrize("scope", [{}, {"schema": "main"}])
def test_it_is_of_tables_only(lake, scope):
    with pytest.raises(InvalidOptionError, match="set it for a table"):
        lake.set_option("skip_stats_columns", "id", **scope)


def test_a_skipped_column_cannot_become_a_partition_key(lake):
    lake.set_option("skip_stats_columns", ["id", "k"], table="t")

    listed = "'k': it is listed in the table's option skip_stats_columns"
    with pytest.raises(InvalidPartitionError, match=listed), lake.transaction() as tx:
        tx.set_partitioned_by("t", ["bucket(4, k)"])
    with lake.transaction() as tx:
        tx.reset_option("t", "skip_stats_columns")
        tx.set_partitioned_by("t", ["bucket(4, k)"])


def test_a_column_that_a_new_table_skips_cannot_become_its_partition_key(lake):
    with lake.transaction() as tx:
        tx.create_table("new", COLUMNS)
        tx.set_option("new", "skip_stats_columns", ["k"])
        with pytest.raises(InvalidPartitionError, match="'k': it is listed in the table's option"):
            tx.set_partitioned_by("new", ["bucket(4, k)"])


def test_a_column_skipped_since_cannot_become_a_partition_key(lake, catalog):
    """No snapshot tells of the option, so it is looked at when the keys are committed."""
    with (  # noqa: PT012 - the commit is what fails
        pytest.raises(TransactionConflictError, match="set its option skip_stats_columns to a key"),
        lake.transaction() as tx,
    ):
        tx.set_partitioned_by("t", ["bucket(4, k)"])
        with Lake.connect(catalog.sqlalchemy_url) as other:
            other.set_option("skip_stats_columns", ["id", "k"], table="t")

    with lake.transaction() as tx:
        tx.set_option("t", "skip_stats_columns", ["x"])
        tx.set_partitioned_by("t", ["bucket(4, k)"])
        with Lake.connect(catalog.sqlalchemy_url) as other:
            other.set_option("skip_stats_columns", ["s"], table="t")

    assert lake.reads.options("t").skipped_columns == {X}


def test_a_partition_key_set_since_cannot_be_skipped(lake, catalog):
    with (  # noqa: PT012 - the commit is what fails
        pytest.raises(TransactionConflictError, match="altered it"),
        lake.transaction() as tx,
    ):
        tx.set_option("t", "skip_stats_columns", ["k"])
        with Lake.connect(catalog.sqlalchemy_url) as other, other.transaction() as first:
            first.set_partitioned_by("t", ["bucket(4, k)"])

    assert lake.reads.options("t").skipped_columns == frozenset()


def test_duckdb_1_5_works_on_a_lake_with_the_option(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", COLUMNS)
        skip(lake)
        lake.append_arrow("t", rows(1, 2, 3))
    with open_lake(sqlite_catalog) as duck:
        assert duck.sql("SELECT count(*), min(x), max(s.b.c) FROM t WHERE x > 0.6") == [(2, 1.0, 3)]
        duck.sql("INSERT INTO t SELECT 100 + i, 1000, {a: 'z', b: {c: 7}}, 'z' FROM range(50) r(i)")
        assert duck.sql("SELECT count(*) FROM t WHERE x = 1.5 OR x = 1000") == [(51,)]
        assert duck.sql("SELECT min(x), max(x), max(s.a) FROM t") == [(0.5, 1000.0, "z")]
        duck.sql("UPDATE t SET x = 2000 WHERE id = 2")
        duck.sql("DELETE FROM t WHERE x = 0.5")
        duck.sql("CALL ducklake_merge_adjacent_files('lake')")
        assert duck.sql("SELECT count(*) FROM t WHERE x < 2001 AND s.b.c < 8") == [(52,)]
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", rows(500))
        assert lake.read_arrow("t", filter="x = 2000.0").num_rows == 1
        assert lake.verify() == []
    assert by_duckdb(sqlite_catalog, "SELECT count(*) FROM t WHERE x = 250 OR x = 1000") == [(51,)]


def test_ducklakepy_and_we_take_turns(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", COLUMNS)
        skip(lake)
        lake.append_arrow("t", rows(1, 2, 3))
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
        theirs.insert("t", rows(10, 11))
        assert sorted(theirs.read("t")["id"].to_pylist()) == [1, 2, 3, 10, 11]
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", rows(20))
        assert lake.verify() == []
        assert lake.read_arrow("t", filter="x >= 5.0")["id"].to_pylist() == [10, 11, 20]
    for row in file_rows(sqlite_catalog):
        assert (row["min_value"] is None) == (row["column_id"] in SKIPPED)


def test_a_row_that_cannot_be_read_is_ignored(lake, catalog):
    lake.set_option("skip_stats_columns", [], table="t")
    engine = create_engine(catalog.sqlalchemy_url)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE ducklake_metadata SET value = 'x, 2,,99' WHERE key = 'skip_stats_columns'")
        )
    engine.dispose()

    lake.append_arrow("t", rows(1))

    assert {row["column_id"] for row in file_rows(catalog) if row["min_value"] is None} == {X}
