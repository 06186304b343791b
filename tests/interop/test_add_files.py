"""Files that others wrote, added to a lake: the catalog is the reference's, and DuckDB reads their rows."""

import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

FLAT = {"i": "int32", "s": "varchar"}
INT32 = pa.int32()


@pytest.fixture
def files(tmp_path):
    """Return a function that writes a Parquet file below a folder of its own."""

    def write(name: str, rows: dict, **options: object) -> str:
        path = tmp_path / "theirs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(rows), path, **options)
        return str(path)

    return write


def new_lake(catalog, columns, partition_by=(), not_null=()) -> Lake:
    lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version)
    alone(lake).create_table("t", columns, partition_by, not_null)
    return lake


def add(lake: Lake, *paths: str, **rules: bool):
    with lake.transaction() as tx:
        tx.add_data_files("t", list(paths), **rules)
    return tx.committed


def refused(lake: Lake, path: str, **rules: bool) -> tuple[str, ...]:
    with pytest.raises(errors.SchemaMismatchError) as caught:
        add(lake, path, **rules)
    return caught.value.differences


def reference_adds(duck, path: str, rules: str = "") -> None:
    duck.sql(f"CALL ducklake_add_data_files('lake', 't', '{path}'{rules})")


def test_flat_files_leave_the_references_catalog(catalog, reference_catalog, files):
    narrow = files("narrow.parquet", {"S": ["x", None], "I": pa.array([1, 2], pa.int16())})
    turned = files("turned.parquet", {"I": pa.array([7], pa.int16()), "S": ["y"]})
    other = files("other.parquet", {"i": pa.array([5], INT32), "s": ["z"]})
    with new_lake(catalog, FLAT) as lake:
        add(lake, narrow)
        add(lake, turned)
        add(lake, other)
    with open_lake(reference_catalog) as duck:
        duck.sql("CREATE TABLE t (i INT, s VARCHAR)")
        for path in (narrow, turned, other):
            reference_adds(duck, path)

    ours = dump_catalog(catalog)
    assert_catalogs_equal(ours, dump_catalog(reference_catalog))
    assert [row["mapping_id"] for row in ours["ducklake_data_file"]] == [0, 0, 3]
    with open_lake(catalog) as duck:
        assert duck.sql("FROM t ORDER BY i") == [(1, "x"), (2, None), (5, "z"), (7, "y")]
        assert duck.sql("SELECT i FROM t WHERE s = 'y'") == [(7,)]
        assert duck.sql("SELECT i FROM t WHERE s IS NULL") == [(2,)]


NESTED = {
    "n": pa.array([1, 2, 3], INT32),
    "st": pa.array(
        [{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}],
        pa.struct([("a", INT32), ("b", pa.struct([("c", pa.string())]))]),
    ),
    "ls": pa.array([[{"a": 1, "b": "x"}], None, []], pa.list_(pa.struct([("a", INT32), ("b", pa.string())]))),
    "ll": pa.array([[[1], []], [], None], pa.list_(pa.list_(INT32))),
    "m": pa.array([[("k", {"q": 1})], [], None], pa.map_(pa.string(), pa.struct([("q", INT32)]))),
}
NESTED_SQL = (
    "CREATE TABLE t (n INT, st STRUCT(a INT, b STRUCT(c VARCHAR)), ls STRUCT(a INT, b VARCHAR)[], "
    "ll INT[][], m MAP(VARCHAR, STRUCT(q INT)))"
)


@pytest.mark.parametrize("compliant", [True, False])
def test_nested_files_leave_the_references_catalog(catalog, reference_catalog, files, compliant):
    path = files("nested.parquet", NESTED, use_compliant_nested_type=compliant)
    with new_lake(catalog, pa.table(NESTED).schema) as lake:
        add(lake, path)
    with open_lake(reference_catalog) as duck:
        duck.sql(NESTED_SQL)
        reference_adds(duck, path)
        expected = duck.sql("FROM t ORDER BY n")

    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog))
    with open_lake(catalog) as duck:
        assert duck.sql("FROM t ORDER BY n") == expected
        assert duck.sql("SELECT n FROM t WHERE st.b.c = 'x'") == [(1,)]


def test_hive_folders_leave_the_references_catalog(catalog, reference_catalog, files):
    one = {"i": pa.array([3], INT32)}
    files("year=2024/r=e%20u/f.parquet", one)
    last = files("year=2025/r=b/g.parquet", one)
    pattern = last.replace("year=2025/r=b/g.parquet", "*/*/*.parquet")
    with new_lake(catalog, {"i": "int32", "year": "int32", "r": "varchar"}) as lake:
        alone(lake).set_partitioned_by("t", ["year", "r"])
        add(lake, pattern, hive_partitioning=True)
    with open_lake(reference_catalog) as duck:
        duck.sql("CREATE TABLE t (i INT, year INT, r VARCHAR)")
        duck.sql("ALTER TABLE t SET PARTITIONED BY (year, r)")
        reference_adds(duck, pattern, ", hive_partitioning => true")

    ours, theirs = dump_catalog(catalog), dump_catalog(reference_catalog)
    for dump in (ours, theirs):  # the reference has the folders in the order of its hashes
        dump["ducklake_name_mapping"] = sorted(
            ({**row, "column_id": row["target_field_id"]} for row in dump["ducklake_name_mapping"]), key=str
        )
    assert_catalogs_equal(ours, theirs)
    with open_lake(catalog) as duck:
        assert duck.sql("FROM t ORDER BY r") == [(3, 2025, "b"), (3, 2024, "e u")]
        assert duck.sql("SELECT r FROM t WHERE year = 2024") == [("e u",)]
        assert duck.sql("SELECT year FROM t WHERE r = 'b'") == [(2025,)]


def test_folders_of_null_and_of_another_letter_case(catalog, files):
    one = {"i": pa.array([3], INT32)}
    null = files("R=__HIVE_DEFAULT_PARTITION__/f.parquet", one)
    text = files("R=x/f.parquet", one)
    with new_lake(catalog, {"i": "int32", "r": "varchar"}, ["r"]) as lake:
        add(lake, null, hive_partitioning=True)
        add(lake, text, hive_partitioning=True)

    with open_lake(catalog) as duck:
        assert duck.sql("FROM t ORDER BY r") == [(3, "x"), (3, None)]
        assert duck.sql("SELECT count(*) FROM t WHERE r = 'x'") == [(1,)]
        assert duck.sql("SELECT count(*) FROM t WHERE r IS NULL") == [(1,)]


FOLDERS = (
    "r=5/t/r=1",
    "R=5/r=1",
    "r=null",
    "r=%4E%55%4C%4C",
    "r=__HIVE_DEFAULT_PARTITION__",
    "r=a=b",
    "r=a?b",
    "r=a\nb",
    "r=a\\\\b",
    "r=",
    "=r=a",
    "r=%C3%A9 +",
    "r=%ff",
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_means_what_it_means_to_duckdb(catalog, reference_catalog, files, folder):
    path = files(f"{folder}/f.parquet", {"i": pa.array([3], INT32)})
    with open_lake(reference_catalog) as duck:
        duck.sql("CREATE TABLE t (i INT, r VARCHAR)")
        try:
            reference_adds(duck, path, ", hive_partitioning => true")
            theirs = duck.sql("FROM t")
        except duckdb.Error:
            theirs = None
    with new_lake(catalog, {"i": "int32", "r": "varchar"}) as lake:
        if theirs is None:
            with pytest.raises(errors.SchemaMismatchError, match="column r of the table is not in the file"):
                add(lake, path, hive_partitioning=True)
            return
        add(lake, path, hive_partitioning=True)
        assert [tuple(row.values()) for row in lake.read_arrow("t").to_pylist()] == theirs
        (value,) = theirs[0][1:]
        same = "r IS NULL" if value is None else f"r = '{value}'"
        assert lake.read_arrow("t", filter=same).num_rows == 1
        assert by_duckdb(catalog, f"FROM t WHERE {same}") == theirs


BEYOND = {  # what DuckDB does not read back from its text
    "timestamp": pa.array([-(2**63), 0], pa.int64()).view(pa.timestamp("us")),
    "timestamp_ns": pa.array([-(2**63), 0], pa.int64()).view(pa.timestamp("ns")),
    "date": pa.array([-(2**31), 0], pa.int32()).view(pa.date32()),
    "time": pa.array([-5, 2**63 - 1], pa.int64()).view(pa.time64("us")),
}


@pytest.mark.parametrize("type_", BEYOND)
def test_times_that_duckdb_does_not_read_back_are_not_written_and_leave_no_bounds(catalog, files, type_):
    with new_lake(catalog, {"i": "int64", "v": type_}) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        rows = {"i": pa.array([1, 2]), "v": BEYOND[type_]}
        with pytest.raises(
            errors.InvalidValueError, match=r"column v: [12] values? (is|are) not valid dates and times"
        ):
            lake.append_arrow("t", pa.table(rows))
        add(lake, files("beyond.parquet", rows))
        assert lake.verify() == []

    with open_lake(catalog) as duck:
        assert duck.sql("SELECT i FROM t WHERE v IS NOT NULL ORDER BY i") == [(1,), (2,)]
        duck.sql("INSERT INTO t VALUES (3, NULL)")
        assert duck.sql("SELECT count(*) FROM t") == [(3,)]


def test_a_folder_that_only_duckdb_reads_is_named(catalog, files):
    path = files("r=5.0/f.parquet", {"i": pa.array([3], INT32)})
    with new_lake(catalog, {"i": "int32", "r": "int32"}) as lake:
        with open_lake(catalog) as duck:
            reference_adds(duck, path, ", hive_partitioning => true")
            assert duck.sql("FROM t") == [(3, 5)]
        with pytest.raises(
            errors.UnsupportedFeatureError, match=r"column r has its value from the folder r=5\.0"
        ):
            lake.read_arrow("t")


def test_a_file_without_any_column_of_the_table_is_refused(catalog, files):
    path = files("other.parquet", {"x": [1]})
    with new_lake(catalog, FLAT) as lake:
        assert "no column of the table is in the file: its rows would be empty" in refused(
            lake, path, allow_missing=True, ignore_extra_columns=True
        )


def test_without_hive_partitioning_the_file_counts(catalog, files):
    path = files("i=9/f.parquet", {"i": pa.array([3], INT32)})
    with new_lake(catalog, {"i": "int32"}, ["i"]) as lake:
        add(lake, path)
        (file,) = lake.table_snapshot("t", with_files=True).files

    assert file.partition_values == ("3",)
    assert by_duckdb(catalog, "FROM t WHERE i = 3") == [(3,)]


def test_every_difference_is_named(catalog, files):
    path = files(
        "a.parquet",
        {
            "i": pa.array([2**40], pa.int64()),
            "st": pa.array([{"a": 1, "z": 1}]),
            "extra": [1],
            "d": pa.array([None], pa.string()),
        },
    )
    columns = {"i": "int32", "s": "varchar", "st": "struct(a int64, b int64)", "d": "varchar"}
    with new_lake(catalog, columns, not_null=["s", "d"]) as lake:
        before = lake.current_snapshot().id
        everything = refused(lake, path)
        few = refused(lake, path, allow_missing=True, ignore_extra_columns=True)
        assert lake.current_snapshot().id == before

    assert everything == (
        "column i is int32 in the table; int64 in the file does not fit",
        "column st.z of the file is not in the table",
        "column st.b of the table is not in the file",
        "column extra of the file is not in the table",
        "column s of the table is not in the file",
        "column d is NOT NULL but has 1 null value(s)",
    )
    assert few == (
        "column i is int32 in the table; int64 in the file does not fit",
        "column s is NOT NULL but not in the file",
        "column d is NOT NULL but has 1 null value(s)",
    )


def test_missing_and_extra_columns_by_permission(catalog, files):
    full = files("full.parquet", {"i": pa.array([1], INT32), "s": ["x"], "z": [1]})
    short = files("short.parquet", {"i": pa.array([2], INT32)})
    with new_lake(catalog, FLAT) as lake:
        add(lake, full, ignore_extra_columns=True)
        add(lake, short, allow_missing=True)
        alone(lake).add_column("t", "w", "int64", default=5)

    with open_lake(catalog) as duck:
        assert duck.sql("FROM t ORDER BY i") == [(1, "x", 5), (2, None, 5)]
        assert duck.sql("SELECT i FROM t WHERE s IS NULL") == [(2,)]
        assert duck.sql("SELECT i FROM t WHERE s = 'x' AND w = 5") == [(1,)]


def test_bounds_that_may_hide_nan_are_unknown(catalog, files):
    path = files("nan.parquet", {"f": [1.5, float("nan")]})
    with new_lake(catalog, {"f": "float64"}) as lake:
        add(lake, path)

    dump = dump_catalog(catalog)
    (stats,) = dump["ducklake_file_column_stats"]
    assert (stats["value_count"], stats["min_value"], stats["max_value"]) == (2, None, None)
    assert dump["ducklake_table_column_stats"] == []
    assert by_duckdb(catalog, "SELECT count(*) FROM t WHERE isnan(f)") == [(1,)]


def test_a_file_is_added_once(catalog, files):
    path = files("a.parquet", {"i": pa.array([1], INT32), "s": ["x"]})
    with new_lake(catalog, FLAT) as lake:
        with pytest.raises(errors.InvalidInputError, match="twice"):
            add(lake, path, path.replace("/theirs/", "//theirs/./"))
        add(lake, path)
        with pytest.raises(errors.InvalidInputError, match=r"a\.parquet is or was a data file"):
            add(lake, path)
        alone(lake).truncate("t")
        with pytest.raises(errors.InvalidInputError, match=r"a\.parquet is or was a data file"):
            add(lake, path)
        alone(lake).append_arrow("t", pa.table({"i": pa.array(range(20), INT32), "s": ["x"] * 20}))
        (own,) = lake.table_snapshot("t", with_files=True).files
        with pytest.raises(errors.InvalidInputError, match="is or was a data file"):
            add(lake, own.path)

    assert Path(path).exists()


def test_of_two_commits_at_once_one_adds_the_file(catalog, files):
    path = files("a.parquet", {"i": pa.array([1], INT32), "s": ["x"]})
    with new_lake(catalog, FLAT) as lake:
        late = lake.transaction()
        late.add_data_files("t", [path])
        add(lake, path)
        with pytest.raises(errors.TransactionConflictError, match=r"a\.parquet"), late:
            pass

    assert Path(path).exists()
    assert by_duckdb(catalog, "FROM t") == [(1, "x")]


def test_a_file_with_several_values_of_a_key_is_refused(catalog, files):
    path = files("a.parquet", {"i": pa.array([1, 2], INT32), "s": ["x", "y"]})
    with (
        new_lake(catalog, FLAT, ["s"]) as lake,
        pytest.raises(errors.InvalidPartitionError, match="several values of identity of column s"),
    ):
        add(lake, path)


def test_paths_that_mean_nothing(sqlite_catalog, files):
    empty = files("empty.parquet", {"i": pa.array([], INT32), "s": pa.array([], pa.string())})
    with new_lake(sqlite_catalog, FLAT) as lake:
        with pytest.raises(errors.InvalidInputError, match="relative"):
            add(lake, "a.parquet")
        with pytest.raises(errors.InvalidInputError, match="No file matches"):
            add(lake, empty.replace("empty", "x*"))
        with pytest.raises(errors.StorageError, match="no such file"):
            add(lake, empty.replace("empty", "gone"))
        assert add(lake, empty) is None


def test_a_file_with_row_ids_of_a_lake_is_refused(sqlite_catalog, tmp_path):
    """The reference adds it by ``ignore_extra_columns``, and cannot delete its rows (observed on 1.5.5)."""
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE s AS SELECT x AS i FROM range(10) r(x)")
        reference.sql("UPDATE s SET i = i + 100 WHERE i > 4")
        reference.sql("CREATE TABLE t (i BIGINT)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        *_, updated = lake.table_snapshot("s", with_files=True).files
        file = shutil.copy(updated.path, tmp_path / "copy.parquet")
        with pytest.raises(errors.UnsupportedFeatureError, match="_ducklake_internal_row_id, whose field id"):
            add(lake, str(file), ignore_extra_columns=True)
    with open_lake(sqlite_catalog) as reference:
        reference.sql(f"CALL ducklake_add_data_files('lake', 't', '{file}', ignore_extra_columns => true)")
        with pytest.raises(duckdb.InvalidInputException, match="2147483540"):
            reference.sql("DELETE FROM t WHERE i = 105")
