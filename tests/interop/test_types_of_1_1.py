"""The types that 1.1 brought, `null` and `timestamptz_ns`: stored, and read by others, at every depth."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    InvalidStatementError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.format.versions import write_version
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from tests.golden.lakes_1_1.recorded import recorded_lake, rows_of
from tests.interop.lakes import alone
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_core import open_core
from tests.reference.duckdb_lake import open_lake
from tests.reference.next.process import OracleError

COLUMNS = {
    "i": "int32",
    "n": "null",
    "z": "timestamptz_ns",
    "s": "struct(a null, b int32[])",
    "l": "null[]",
    "m": "map(varchar, timestamptz_ns)",
}
NANOSECONDS = pa.timestamp("ns", "UTC")
ROWS = pa.table(
    {
        "i": pa.array([1, 2, 3, 4], pa.int32()),
        "n": pa.nulls(4),
        "z": pa.array([0, -1, None, 1_700_000_000_123_456_789], NANOSECONDS),
        "s": pa.array(
            [{"a": None, "b": [1]}, None, {"a": None, "b": None}, {"a": None, "b": []}],
            pa.struct([("a", pa.null()), ("b", pa.list_(pa.int32()))]),
        ),
        "l": pa.array([[None], [], None, [None, None]], pa.list_(pa.null())),
        "m": pa.array([[("k", 5)], [], None, [("k", None)]], pa.map_(pa.string(), NANOSECONDS)),
    }
)


@pytest.fixture(params=[10, 0], ids=["inlined", "in files"])
def lake(request, catalog: CatalogDatabase):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as opened:
        opened.set_option("data_inlining_row_limit", request.param)
        alone(opened).create_table("t", COLUMNS)
        opened.append_arrow("t", ROWS)
        yield opened


def test_they_come_back_as_they_were(lake):
    assert lake.read_arrow("t").equals(ROWS)
    assert lake.read_arrow("t").schema.equals(ROWS.schema)
    assert lake.verify() == []


@pytest.mark.usefixtures("lake")
def test_others_read_them(catalog, judge):
    with ducklakepy_lake.open_lake(catalog) as theirs:
        read = theirs.read("t").sort_by("i")
        assert read["z"].cast(pa.int64()).to_pylist() == ROWS["z"].cast(pa.int64()).to_pylist()
        assert read.select(["i", "n", "s", "l"]).to_pylist() == ROWS.select(["i", "n", "s", "l"]).to_pylist()
    with open_lake(judge(catalog)) as reference:
        assert reference.sql("SELECT i, n FROM t ORDER BY i") == [(1, None), (2, None), (3, None), (4, None)]


def test_filters_look_at_nanoseconds(lake):
    def found(where: str) -> list[int]:
        return lake.read_arrow("t", filter=where)["i"].to_pylist()

    assert found("z < TIMESTAMPTZ '1970-01-01 00:00:00+00'") == [2]
    assert found("z >= TIMESTAMPTZ '1970-01-01 00:00:00+00'") == [1, 4]
    assert found("z > TIMESTAMPTZ '2023-11-14 22:13:20.123456+00'") == [4]
    assert found("n IS NULL") == [1, 2, 3, 4]
    assert found("n IS NOT NULL") == []


@pytest.mark.usefixtures("lake")
def test_what_the_catalog_says_of_them(catalog):
    of_table = {row["column_id"]: row for row in dump_catalog(catalog)["ducklake_table_column_stats"]}
    of_file = {row["column_id"]: row for row in dump_catalog(catalog)["ducklake_file_column_stats"]}

    assert (of_table[2]["min_value"], bool(of_table[2]["contains_null"])) == (None, True)
    assert of_table[3]["min_value"] == "1969-12-31 23:59:59.999999999+00"
    assert of_table[3]["max_value"] == "2023-11-14 22:13:20.123456789+00"
    if of_file:
        assert (of_file[2]["value_count"], of_file[2]["null_count"], of_file[2]["min_is_exact"]) == (
            0,
            4,
            None,
        )


@pytest.mark.usefixtures("lake")
def test_duckdb_2_0_has_the_same_column_in_a_file(catalog):
    with open_core() as core:
        for row in dump_catalog(catalog)["ducklake_data_file"]:
            path = f"{catalog.data_path}main/t/{row['path']}"
            schema = core.sql("SELECT name, type, logical_type FROM parquet_schema(?)", [path])
            assert [one[1:] for one in schema if one[0] == "n"] == [("INT32", "NullType()")]
            values = core.sql("SELECT i, n, epoch_ns(z) FROM read_parquet(?) ORDER BY i", [path])
            assert values == [
                (1, None, 0),
                (2, None, -1),
                (3, None, None),
                (4, None, 1_700_000_000_123_456_789),
            ]


def added(lake: Lake, catalog: CatalogDatabase, columns: dict[str, str], path: str) -> list[bool]:
    """Add a file to one table by us, and to another by ducklakepy; return who took it."""
    with lake.transaction() as tx:
        tx.create_table("ours", columns)
        tx.create_table("theirs", columns)
    took = [True, True]
    try:
        alone(lake).add_data_files("ours", [path])
    except SchemaMismatchError:
        took[0] = False
    with ducklakepy_lake.open_lake(catalog) as theirs:
        try:
            theirs.add_files("theirs", [path])
        except OracleError:
            took[1] = False
    return took


def test_files_of_others_are_added_and_described_as_ducklakepy_does(sqlite_catalog, tmp_path):
    path = str(tmp_path / "theirs.parquet")
    pq.write_table(ROWS, path)
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        assert added(lake, sqlite_catalog, COLUMNS, path) == [True, True]
        assert lake.read_arrow("ours").equals(ROWS)
        assert lake.read_arrow("theirs").equals(ROWS)
        late = lake.read_arrow("ours", filter="z > TIMESTAMPTZ '1970-01-01 00:00:00+00'")
        assert late["i"].to_pylist() == [4]
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
        assert theirs.read("ours").to_pylist() == ROWS.to_pylist()

    described: dict[int, list[tuple]] = {1: [], 2: []}
    for row in dump_catalog(sqlite_catalog)["ducklake_file_column_stats"]:
        facts = ("column_id", "value_count", "null_count", "min_value", "max_value")
        described[row["table_id"]].append(tuple(row[fact] for fact in facts))
    assert described[1] == described[2] != []


@pytest.mark.parametrize(
    ("type_", "values", "old", "is_taken"),
    [
        ("timestamptz_ns", pa.array([1, None], pa.timestamp("ns", "Europe/Berlin")), False, True),
        ("timestamptz_ns", pa.array([1, None], NANOSECONDS), True, False),  # INT96
        ("timestamptz_ns", pa.array([1, None], pa.timestamp("ns")), False, False),
        ("timestamptz_ns", pa.array([1, None], pa.timestamp("us", "UTC")), False, False),
        ("timestamptz_ns", pa.nulls(2), False, False),
        ("null", pa.nulls(2), False, True),
        ("null", pa.nulls(2, pa.int32()), False, False),
        ("null", pa.nulls(2, pa.string()), False, False),
        ("varchar", pa.nulls(2), False, False),
    ],
)
def test_those_files_are_added_that_ducklakepy_adds(sqlite_catalog, tmp_path, type_, values, old, is_taken):
    path = str(tmp_path / "theirs.parquet")
    pq.write_table(pa.table({"v": values}), path, use_deprecated_int96_timestamps=old)
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        assert added(lake, sqlite_catalog, {"v": type_}, path) == [is_taken] * 2


def test_no_digit_is_lost_on_the_way(lake):
    alone(lake).create_table("u", {"z": "timestamptz"})
    with pytest.raises(SchemaMismatchError, match="z"):
        lake.append_arrow("u", pa.table({"z": pa.array([1], NANOSECONDS)}))


@pytest.mark.parametrize("type_", ["varchar", "json", "int64"])
def test_a_null_column_that_the_reference_widened_has_nulls(lake, catalog, type_):
    for name in ("n", "s.a"):
        with ducklakepy_lake.open_lake(catalog) as other:
            other.set_column_type("t", name, type_)
        found = lake.read_arrow("t")
        assert found["n"].null_count == ROWS.num_rows
        assert found["s"].to_pylist() == ROWS["s"].to_pylist()
    with pytest.raises(
        UnsupportedFeatureError, match=r"column n had type null .* which no reader casts back"
    ):
        lake.restore("t", at=2)


MAPS = [[("x", None)], None, [], [("x", None), ("y", None), ("z", None)]]


@pytest.mark.parametrize("limit", [10, 0], ids=["inlined", "in files"])
@pytest.mark.parametrize("part", [slice(0, 2), slice(2, 4), slice(3, 4), slice(1, 2)], ids=str)
def test_maps_to_null_lie_beside_types_of_extensions(sqlite_catalog, limit, part):
    rows = pa.table({"m": pa.array(MAPS[part], pa.map_(pa.string(), pa.null()))})
    named = pa.array([bytes(16)] * len(rows), pa.binary(16)).cast(pa.uuid())
    struct = pa.StructArray.from_arrays([named, rows["m"].combine_chunks()], ["u", "m"])
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        lake.set_option("data_inlining_row_limit", limit)
        alone(lake).create_table("t", {"s": "struct(u uuid, m map(varchar, null))"})
        lake.append_arrow("t", pa.table({"s": struct}))

        assert lake.read_arrow("t")["s"].to_pylist() == struct.to_pylist()
        assert lake.verify() == []
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
        assert [one["m"] for one in theirs.read("t")["s"].to_pylist()] == MAPS[part]


def test_sql_names_them_as_duckdb_does(sqlite_catalog):
    table = 'CREATE TABLE t (i INT, n "NULL", s STRUCT(a "null", b INT), l "NULL"[], z TIMESTAMPTZ_NS)'
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        with lake.transaction() as tx:
            apply_ddl(tx, parse_ddl(table, write_version(lake.version)))
        types = [str(one.type) for one in lake.table_snapshot("t").schema.columns]
        with open_core() as core:
            core.sql(table.replace("TABLE", "TEMP TABLE", 1))
        with pytest.raises(InvalidStatementError, match='has quotes: "NULL"'):
            parse_ddl(table.replace('"NULL"', "NULL"), write_version(lake.version))

    assert types == ["int32", "null", "struct(a null, b int32)", "null[]", "timestamptz_ns"]
    with (
        Lake.create(f"{sqlite_catalog.sqlalchemy_url}.1_0", sqlite_catalog.data_path) as older,
        pytest.raises(UnsupportedFeatureError, match="does not support the NULL type"),
        older.transaction() as tx,
    ):
        apply_ddl(tx, parse_ddl(table))


@pytest.mark.parametrize("type_", ["null", "timestamptz_ns", "struct(a null)", "timestamptz_ns[]"])
def test_1_0_has_none_of_them(sqlite_catalog, type_):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        sentence = r"Column .*DuckLake 1\.0 does not support"
        with pytest.raises(UnsupportedFeatureError, match=sentence), lake.transaction() as tx:
            tx.create_table("t", {"x": type_})
        assert lake.current_snapshot().id == 0


@pytest.mark.parametrize("name", ["nested", "migrated"])
def test_a_recorded_lake_reads_as_it_was_recorded(tmp_path, name):
    recorded = recorded_lake(name, tmp_path / "lake")
    with Lake.connect(recorded.catalog.sqlalchemy_url) as lake:
        for snapshot, expected in recorded.snapshots.items():
            names = {".".join(f'"{part}"' for part in one.parts) for one in lake.tables(int(snapshot))}
            assert names == set(expected["tables"]), snapshot
            for table, was in expected["tables"].items():
                rows = [{key: value for key, value in row.items() if key != "rowid"} for row in was["rows"]]
                found = rows_of(lake.read_arrow(table, at=int(snapshot)))
                assert sorted(found, key=str) == sorted(rows, key=str), (snapshot, table)
