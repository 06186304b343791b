"""Partition values of every transform and type that DuckDB takes, for drawn values: ours are DuckDB's."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, StringType

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidPartitionError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from airflow_provider_ducklake.lake.planning.writing.write import plan_append
from airflow_provider_ducklake.lake.storage.arrow.rows import partition_of_rows
from tests.interop.iceberg_source import append, new_table
from tests.interop.jobs import merge_adjacent, rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

MICROS = 10**6
DAY = 86_400
LEAST, MOST = -9_223_372_022_400 * MICROS, 2**63 - 2  # the first and the last finite timestamp
NEAR = 100 * 366 * DAY  # seconds
SPECIAL = (  # the ends of days, of hours, of the Julian calendar, of eras and of years with four digits
    *(0, -1, -3600, -DAY, DAY - 1, 951_782_400, -12_219_292_800, -12_219_292_801),
    *(-62_135_596_800, -62_135_596_801, -62_167_219_200, -62_167_219_201, 253_402_300_800),
)
BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
RANGES = {name: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in BITS.items()}
RANGES |= {f"U{name}": (0, 2**bits - 1) for name, bits in BITS.items()}


def seconds(random_: random.Random, count: int) -> list[int]:
    """Return seconds since 1970: what is special, and drawn ones near it and far off."""
    near = [random_.randint(-NEAR, NEAR) for _ in range(count)]
    hours = [random_.randint(-NEAR, NEAR) // 3600 * 3600 for _ in range(count // 2)]
    far = [random_.randint(LEAST // MICROS, MOST // MICROS) for _ in range(count // 2)]
    return [*SPECIAL, *near, *hours, *far]


def times(type_: str, drawn: list[int]) -> list[str]:
    infinite = [f"'infinity'::{type_}", f"'-infinity'::{type_}"]
    match type_:
        case "DATE":
            ends = ["'5877642-06-25 (BC)'::DATE", "'5881580-07-10'::DATE"]
            return [*(f"DATE '1970-01-01' + {value // DAY}" for value in drawn), *ends, *infinite]
        case "TIME":
            finite = [f"make_time({value // 3600 % 24}, {value % 60}, {value % 60}.25)" for value in drawn]
            return [*finite, "TIME '24:00:00'", "TIME '23:59:59.999999'"]
        case "TIMETZ":  # in UTC, and not 24:00:00: files lose another offset, and have midnight for that
            finite = [f"{value // 3600 % 24:02}:{value // 60 % 60:02}:{value % 60:02}.25" for value in drawn]
            return [f"'{clock}+00'::TIMETZ" for clock in (*finite, "23:59:59.999999")]
        case "TIMESTAMP_S":  # of which the reference writes no infinite ones
            return [f"make_timestamp({value * MICROS})::TIMESTAMP_S" for value in drawn]
        case "TIMESTAMP_MS":
            return [f"make_timestamp({value * MICROS + 1000})::TIMESTAMP_MS" for value in drawn] + infinite
        case "TIMESTAMP_NS":
            ends = [f"'{text}'::{type_}" for text in ("1677-09-22", "2262-04-11 23:47:16.854775806")]
            near = [value for value in drawn if abs(value) < NEAR]
            parts = [value * 10**9 + part for value in near for part in (7, -7)]
            return [*(f"make_timestamp_ns({part})" for part in parts), *ends, *infinite]
        case _:
            micros = [LEAST, MOST, *(value * MICROS + 3 for value in drawn)]
            make = "make_timestamptz" if type_ == "TIMESTAMPTZ" else "make_timestamp"
            return [*(f"{make}({value})" for value in micros), *infinite]


def others(type_: str, random_: random.Random, count: int) -> list[str]:
    match type_:
        case "BOOLEAN":
            return ["true", "false"]
        case "FLOAT" | "DOUBLE":
            # at most 7 digits: of a float32 with more the reference does not always take the shortest text
            finite = (random_.randint(-9999, 9999) / 16 for _ in range(count))
            drawn = ("nan", "inf", "-inf", "-0.0", *finite)
            return [f"'{value}'::{type_}" for value in drawn]
        case "VARCHAR" | "BLOB":
            drawn = ("".join(random_.choices("aé😀/=%# Z", k=random_.randrange(9))) for _ in range(count))
            return [f"encode('{text}')" if type_ == "BLOB" else f"'{text}'" for text in drawn]
        case "JSON":
            return [f"""'{{"a": {random_.randrange(9)}}}'::JSON""" for _ in range(3)]
        case "UUID":
            return [f"'{random_.randrange(2**128):032x}'::UUID" for _ in range(count)]
        case "DECIMAL(38,38)":
            return [f"'{random_.randint(-9999, 9999) / 10_000}'::{type_}" for _ in range(count)]
        case "DECIMAL(9,2)" | "DECIMAL(38,10)":
            return [f"'{random_.randint(-9999, 9999) / 100}'::{type_}" for _ in range(count)]
        case _:
            low, high = RANGES[type_]
            drawn = [low, high, *(random_.randint(low, high) for _ in range(count))]
            return [f"'{value}'::{type_}" for value in drawn]


CALENDAR = ("year", "month", "day", "hour")
TRANSFORMS = {
    "DATE": CALENDAR,
    "TIME": ("hour",),
    "TIMETZ": ("hour",),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ"), CALENDAR),
}
OTHERS = (
    *("BOOLEAN", *RANGES, "FLOAT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(38,10)", "DECIMAL(38,38)"),
    *("VARCHAR", "JSON", "BLOB", "UUID"),
)
OF_TIMES = [(type_, one) for type_, some in TRANSFORMS.items() for one in ("identity", *some, "bucket(50)")]
OF_OTHERS = [(type_, transform) for type_ in OTHERS for transform in ("identity", "bucket(50)")]


def test_every_transform_of_every_type_gives_the_references_value(sqlite_catalog, seed, size):
    others_taken = OF_OTHERS if size == "full" else random.Random(seed).sample(OF_OTHERS, 8)
    pairs, count = [*OF_TIMES, *others_taken], 200 if size == "full" else 8
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CALL lake.set_option('hive_file_pattern', false)")
        for number, (type_, transform) in enumerate(pairs):
            make_table(reference, f"t{number}", type_, transform, random.Random(seed + number), count)
        theirs = [reference_values(reference, f"t{number}") for number in range(len(pairs))]

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for number, (type_, transform) in enumerate(pairs):
            assert our_values(lake, f"t{number}") == theirs[number], (type_, transform)


def make_table(reference, name: str, type_: str, transform: str, random_: random.Random, count: int) -> None:
    drawn = times(type_, seconds(random_, count)) if type_ in TRANSFORMS else others(type_, random_, count)
    values = list(dict.fromkeys(["NULL", *drawn]))
    reference.sql(f"CREATE TABLE {name} (id INTEGER, x {type_})")
    reference.sql(f"ALTER TABLE {name} SET PARTITIONED BY ({expression(transform, 'x')})")
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
    reference.sql(f"INSERT INTO {name} VALUES {rows}")


def expression(transform: str, column: str) -> str:
    if transform == "identity":
        return column
    return transform.replace(")", f", {column})") if "(" in transform else f"{transform}({column})"


def reference_values(reference, name: str) -> dict[int, str | None]:
    files = reference.sql(
        f"""SELECT file.path, partition_value FROM __ducklake_metadata_lake.ducklake_data_file file
        JOIN __ducklake_metadata_lake.ducklake_file_partition_value USING (data_file_id, table_id)
        JOIN __ducklake_metadata_lake.ducklake_table USING (table_id) WHERE table_name = '{name}'"""
    )
    rows = dict(reference.sql(f"SELECT id, parse_filename(filename) FROM {name}"))
    values = {path.rpartition("/")[2]: value for path, value in files}
    return {row: values[file] for row, file in rows.items()}


def our_values(lake: Lake, name: str) -> dict[int, str | None]:
    table = lake.table_snapshot(name)
    rows = lake.read_arrow(name)
    found = partition_of_rows(rows, table.schema, table.partition_spec.fields)
    return {row: value for row, (value,) in zip(rows["id"].to_pylist(), found, strict=True)}


def test_infinite_seconds_in_a_bucket_are_found(sqlite_catalog):
    """The reference writes none, and reads those of files."""
    rows = pa.table({"x": pa.array([2**63 - 1, 1 - 2**63, 0, None], pa.int64()).cast(pa.timestamp("s"))})
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (x TIMESTAMP_S)")
        duck.sql("ALTER TABLE t SET PARTITIONED BY (bucket(1000, x))")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", rows)
        with open_lake(sqlite_catalog) as duck:
            for where, count in (
                ("x = 'infinity'", 1),
                ("x = '-infinity'", 1),
                ("x < 'infinity'", 2),
                ("x > '-infinity'", 2),
                ("x >= '-infinity'", 3),
            ):
                assert duck.sql(f"SELECT count(*) FROM t WHERE {where}") == [(count,)]
                assert lake.read_arrow("t", filter=where).num_rows == count


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("GEOMETRY", "'POINT(0 0)'::GEOMETRY"),
        ("VARIANT", "5"),
        ("INT[]", "[1]"),
        ("STRUCT(a INT)", "{'a': 1}"),
        ("MAP(INT, INT)", "MAP {1: 2}"),
    ],
)
def test_keys_that_only_duckdb_makes_are_refused_by_name(sqlite_catalog, type_, value):
    with open_lake(sqlite_catalog) as duck:
        duck.sql(f"CREATE TABLE s (x {type_}); INSERT INTO s SELECT {value}")
        duck.sql(f"CREATE TABLE t (x {type_}); ALTER TABLE t SET PARTITIONED BY (bucket(3, x))")
        duck.sql(f"INSERT INTO t SELECT {value}")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with pytest.raises(UnsupportedFeatureError, match=r"main\.t cannot be written: its partition key x"):
            lake.append_arrow("t", lake.read_arrow("s"))
        with pytest.raises(UnsupportedFeatureError, match="Partition it by other columns"):
            plan_append(lake.table_snapshot("t"), "any/")
        with (
            pytest.raises(InvalidPartitionError, match="cannot be a partition key"),
            lake.transaction() as tx,
        ):
            tx.set_partitioned_by("s", ["bucket(3, x)"])
        lake.flush_inlined_data()
        assert lake.read_arrow("t") == lake.read_arrow("s")


# Tables whose partition values DuckDB clients took in the time zones of their sessions: not trusted.


ZONES = ("Asia/Tokyo", "America/New_York", "Australia/Lord_Howe", "UTC")
CALENDAR_KEYS = ("year(ts)", "month(ts)", "day(ts)", "hour(ts)")
# around the ends of a year, of days, and of a night that has an hour twice; a row's id is its place
MOMENTS = (
    *("2023-12-31 20:00:00", "2024-01-01 02:00:00", "2024-05-04 20:00:00", "2024-05-05 01:00:00"),
    *("2024-05-05 20:00:00", "2024-11-03 05:30:00", "2024-11-03 06:30:00", "1969-12-31 23:30:00"),
    *("1500-01-01 00:30:00", "0044-03-15 (BC) 23:30:00"),
)
ENDLESS = "(100, NULL), (101, 'infinity'), (102, '-infinity')"


def make_in_zone(
    catalog,
    zone: str,
    keys: Sequence[str],
    *,
    at_once: bool,
    inlined: int = 0,
    moments: Sequence[str] = MOMENTS,
) -> None:
    """Make a table `t` of a client in that zone: each row a statement, or all of them one."""
    rows = [f"({number}, '{moment}+00')" for number, moment in enumerate(moments)]
    with open_lake(catalog, data_inlining_row_limit=inlined) as reference:
        reference.sql(f"SET TimeZone = '{zone}'")
        reference.sql("CREATE TABLE t (id INTEGER, ts TIMESTAMPTZ)")
        reference.sql(f"ALTER TABLE t SET PARTITIONED BY ({', '.join(keys)})")
        for values in [", ".join([*rows, ENDLESS])] if at_once else [*rows, ENDLESS]:
            reference.sql(f"INSERT INTO t VALUES {values}")


def ids(lake: Lake, where: str | None = None) -> list[int]:
    return sorted(lake.read_arrow("t", filter=where)["id"].to_pylist())


def deleted(lake: Lake, where: str) -> int:
    return alone(lake).delete_rows("t", where)


def assert_filters_find_all(lake: Lake) -> None:
    for number, moment in enumerate(MOMENTS):
        assert ids(lake, f"ts = TIMESTAMPTZ '{moment}+00'") == [number]
        assert ids(lake, f"ts <> TIMESTAMPTZ '{moment}+00'") == [
            one for one in (*range(len(MOMENTS)), 101, 102) if one != number
        ]
    assert ids(lake, "ts IS NULL") == [100]
    assert ids(lake, "ts > TIMESTAMPTZ '2025-01-01 00:00:00+00'") == [101]
    assert ids(lake, "ts < TIMESTAMPTZ '0044-01-01 (BC) 00:00:00+00'") == [102]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("zone", ZONES)
def test_filters_deletes_and_upkeep_see_every_row(sqlite_catalog, zone, at_once):
    make_in_zone(sqlite_catalog, zone, CALENDAR_KEYS, at_once=at_once)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert_filters_find_all(lake)
        made = lake.current_snapshot().id
        assert lake.verify() == []
        assert deleted(lake, "ts = TIMESTAMPTZ '2024-05-04 20:00:00+00'") == 1
        lake.append_arrow("t", lake.read_arrow("t", at=made, filter="id = 2"))
        merge_adjacent(lake)
        rewrite(lake)
        assert_filters_find_all(lake)
        assert deleted(lake, "ts IS NOT NULL") == len(MOMENTS) + 2
        assert ids(lake) == [100]
        lake.restore("t", at=made)
        assert_filters_find_all(lake)
        lake.expire_snapshots(keep_last=1)
        assert_filters_find_all(lake)
        assert lake.verify() == []


def test_rows_in_the_catalog_are_partitioned_in_utc_when_they_are_flushed(sqlite_catalog):
    make_in_zone(sqlite_catalog, "Asia/Tokyo", CALENDAR_KEYS, at_once=False, inlined=100)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.flush_inlined_data("t")
        assert_filters_find_all(lake)
        assert lake.verify() == []
        assert replaced(lake, 4)[0] == [4]


def replaced(lake: Lake, number: int) -> tuple[list[int], list[int]]:
    """Replace the partition, in UTC, of a row by nothing; return the ids that went, and those in it."""
    table, rows = lake.table_snapshot("t"), lake.read_arrow("t")
    values = partition_of_rows(rows, table.schema, table.partition_spec.fields)
    by_id = dict(zip(rows["id"].to_pylist(), values, strict=True))
    expected = sorted(one for one, value in by_id.items() if value == by_id[number])
    lake.committer.commit(
        table.snapshot.id, lake.writes.replacing_partitions(table, {by_id[number]}), CommitInfo()
    )
    return sorted(set(by_id) - set(ids(lake))), expected


KEYS = (
    CALENDAR_KEYS[:1],
    CALENDAR_KEYS[1:2],
    CALENDAR_KEYS[2:3],
    CALENDAR_KEYS[3:],
    CALENDAR_KEYS[:3],
    CALENDAR_KEYS,
)
CASES = [(zone, keys, at_once) for zone in ZONES for keys in KEYS for at_once in (True, False)]


def test_overwritten_partitions_are_those_of_utc_or_refused(new_catalog, seed, size):
    always = [("Asia/Tokyo", CALENDAR_KEYS[2:3], True), ("Asia/Tokyo", CALENDAR_KEYS[2:3], False)]
    drawn = CASES if size == "full" else random.Random(seed).sample(CASES, 4)
    for zone, keys, at_once in [*always, *drawn]:
        catalog = new_catalog("sqlite")
        make_in_zone(catalog, zone, keys, at_once=at_once)
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            made = lake.current_snapshot().id
            for number in (*range(len(MOMENTS)), 100):
                try:
                    gone, expected = replaced(lake, number)
                except UnsupportedFeatureError:
                    assert at_once, "a file of one row has one value"
                    continue
                assert gone == expected, (zone, keys, at_once)
                lake.restore("t", at=made)


def test_a_file_that_another_zone_put_together_is_refused_by_its_value_and_its_bounds(sqlite_catalog):
    make_in_zone(sqlite_catalog, "Asia/Tokyo", ["day(ts)"], at_once=True, moments=MOMENTS[2:5])

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with pytest.raises(UnsupportedFeatureError) as caught:
            replaced(lake, 2)  # 2024-05-05 20:00 in UTC, and the 6th in Tokyo
        assert "its day(ts) = '5' was computed in the time zone of the session that wrote it" in str(
            caught.value
        )
        assert "from 2024-05-04 20:00:00+00 to 2024-05-05 01:00:00+00" in str(caught.value)
        assert "overwrite_where" in str(caught.value)
        assert ids(lake, "id < 100") == [0, 1, 2]


def test_a_file_of_others_goes_to_the_day_of_utc_that_its_bounds_lie_in(sqlite_catalog, tmp_path):
    make_in_zone(sqlite_catalog, "Asia/Tokyo", ["day(ts)"], at_once=True)
    moments = [datetime(2024, 5, 4, hour, tzinfo=UTC) for hour in (14, 20)]
    file = tmp_path / "given.parquet"
    pq.write_table(pa.table({"id": pa.array([200, 201], pa.int32()), "ts": moments}), file)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, lake.transaction() as transaction:
        transaction.add_data_files("t", [str(file)])
    with open_lake(sqlite_catalog) as reference:
        assert reference.sql(
            "SELECT DISTINCT partition_value FROM __ducklake_metadata_lake.ducklake_file_partition_value "
            "JOIN __ducklake_metadata_lake.ducklake_data_file USING (data_file_id) WHERE path LIKE '%given%'"
        ) == [("4",)]


def test_rows_of_a_zone_that_has_an_hour_twice_are_split_by_moments(sqlite_catalog):
    night = [datetime(2024, 11, 3, hour, 30, tzinfo=UTC) for hour in (5, 6)]  # both 01:30 in New York
    rows = pa.table(
        {
            "id": pa.array(range(60), pa.int32()),
            "ts": pa.array(night * 30, pa.timestamp("us", "America/New_York")),
        }
    )
    make_in_zone(sqlite_catalog, "America/New_York", ["ts", "hour(ts)"], at_once=False, moments=())

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", rows)
        assert ids(lake, "ts = TIMESTAMPTZ '2024-11-03 06:30:00+00'") == [*range(1, 60, 2)]
        assert replaced(lake, 1)[0] == [*range(1, 60, 2)]
        assert lake.verify() == []
    with open_lake(sqlite_catalog) as reference:
        assert reference.sql(
            "SELECT DISTINCT partition_value FROM __ducklake_metadata_lake.ducklake_file_partition_value "
            "WHERE partition_value LIKE '2024%' ORDER BY ALL"
        ) == [("2024-11-03 05:30:00+00",), ("2024-11-03 06:30:00+00",)]


# Partitions by which DuckDB misses rows, or of which its compaction fails: avoided, warned of, noted.


BUCKETS, FOLDERS = FindingCode.BUCKET_VALUES_MISSING, FindingCode.PARTITION_FOLDERS_DIFFER
WAYS_TO_COMPACT = (
    "CALL ducklake_merge_adjacent_files('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "CHECKPOINT lake",
)


@pytest.fixture
def lake(sqlite_catalog):
    lake = Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, foreign_files=True)
    with lake:
        yield lake


def notes(lake):
    """Return the codes of all findings but that files lie elsewhere."""
    assert lake.verify() == []
    return {one.code for one in lake.verify(with_notes=True)} - {FindingCode.OUTSIDE_DATA_PATH}


def found_by_duckdb(catalog, values):
    """Return those of the values of column a that DuckDB finds one row of."""
    with open_lake(catalog) as duck:
        return [one for one in values if duck.sql(f"SELECT count(*) FROM t WHERE a = {one}") == [(1,)]]


# Buckets


BEFORE = {"no keys": (), "another column": ("b",), "other buckets": ("bucket(8, a)",)}


@pytest.mark.parametrize("keys", BEFORE.values(), ids=BEFORE)
def test_a_bucket_key_over_rows_is_warned_of_and_noted_until_they_are_written_again(
    lake, sqlite_catalog, warnings, keys
):
    alone(lake).create_table("t", {"a": "int64", "b": "int64"}, keys)
    lake.append_arrow("t", pa.table({"a": range(20), "b": [1] * 20}))
    assert notes(lake) == set()

    alone(lake).set_partitioned_by("t", ["bucket(4, a)"])

    assert [one for one in warnings if "partition key bucket(4) of column a" in one]
    assert len(found_by_duckdb(sqlite_catalog, range(20))) < 20
    assert notes(lake) == {BUCKETS}

    with lake.transaction() as tx:
        rows = lake.read_arrow("t")
        tx.truncate("t")
        tx.append_arrow("t", rows)

    assert found_by_duckdb(sqlite_catalog, range(20)) == list(range(20))
    assert notes(lake) == set()


def test_duckdbs_own_buckets_over_rows_are_noted_and_its_update_writes_them_again(lake, sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t AS SELECT i AS a FROM range(20) r(i)")
        duck.sql("ALTER TABLE t SET PARTITIONED BY (bucket(4, a))")
    assert (found_by_duckdb(sqlite_catalog, range(20)), notes(lake)) == ([], {BUCKETS})

    by_duckdb(sqlite_catalog, "UPDATE t SET a = a", data_inlining_row_limit=0)

    assert (found_by_duckdb(sqlite_catalog, range(20)), notes(lake)) == (list(range(20)), set())


def test_a_table_without_rows_or_with_the_same_key_is_not_warned_of(lake, sqlite_catalog, warnings):
    alone(lake).create_table("t", {"a": "int64", "b": "int64"}, ["b"])
    alone(lake).set_partitioned_by("t", ["bucket(4, a)"])
    lake.append_arrow("t", pa.table({"a": range(20), "b": [1] * 20}))
    alone(lake).set_partitioned_by("t", ["bucket(4, a)", "b"])

    assert not warnings
    assert found_by_duckdb(sqlite_catalog, range(20)) == list(range(20))
    assert notes(lake) == set()


@pytest.mark.parametrize("keys", [["bucket(4, a)"], ["bucket(4, a)", "p"]])
def test_added_files_of_several_buckets_are_refused(lake, tmp_path, keys):
    source = new_table(tmp_path / "ice", {"a": LongType(), "p": StringType()}, ["p"])
    append(source, a=list(range(8)), p=["x"] * 8)
    alone(lake).create_table("t", {"a": "int64", "p": "varchar"}, keys)
    before = lake.current_snapshot()

    with pytest.raises(InvalidPartitionError, match=r"several values of bucket\(4\) of column a.*insert the"):
        lake.add_table("t", source.metadata_location, "iceberg")

    assert lake.current_snapshot() == before


# Folders


def three_files(folder, keys):
    source = new_table(folder, {"a": LongType(), "p": StringType(), "s": StringType()}, keys)
    append(source, a=[1, 2, 3, 4], p=["a", "a", "b", "a"], s=["x1", "y1", "x2", "x3"])
    append(source, a=[5], p=["a"], s=["x1"])
    return source


def assert_duckdb_compacts(lake, catalog, count):
    by_duckdb(catalog, "DELETE FROM t WHERE a = 1", data_inlining_row_limit=0)
    for way in WAYS_TO_COMPACT:
        with open_lake(catalog, data_inlining_row_limit=0) as duck:
            duck.sql(way)
            assert duck.sql("SELECT count(*) FROM t") == [(count - 1,)]
    assert lake.verify() == []
    assert lake.read_arrow("t").num_rows == count - 1


SCATTERED = [
    (["p", "truncate[1](s)"], {(), ("b",)}),
    (["truncate[1](s)", "p"], {(), ("b",)}),
    (["p"], {("a",), ("b",)}),
    (["truncate[1](s)"], {()}),
]


@pytest.mark.parametrize(("keys", "values"), SCATTERED)
def test_duckdb_compacts_what_lies_in_more_folders_than_the_table_has_partitions(
    lake, sqlite_catalog, tmp_path, keys, values
):
    source = three_files(tmp_path / "ice", keys)

    lake.add_table("t", source.metadata_location, "iceberg", create_table=True)

    assert notes(lake) == set()
    assert {one.partition_values for one in lake.table_snapshot("t", with_files=True).files} == values
    assert_duckdb_compacts(lake, sqlite_catalog, 5)


def test_duckdb_compacts_files_of_two_partitionings(lake, sqlite_catalog, tmp_path):
    source = three_files(tmp_path / "ice", ["p", "truncate[1](s)"])
    with source.update_spec() as spec:
        spec.remove_field("key_1")
    append(source, a=[6, 7], p=["a", "b"], s=["x1", "z"])

    lake.add_table("t", source.metadata_location, "iceberg", create_table=True)

    assert notes(lake) == set()
    assert_duckdb_compacts(lake, sqlite_catalog, 7)


def test_duckdb_compacts_files_added_beside_those_of_the_table(lake, sqlite_catalog, tmp_path):
    source = three_files(tmp_path / "ice", ["p"])
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (a BIGINT, p VARCHAR, s VARCHAR); ALTER TABLE t SET PARTITIONED BY (p)")
        duck.sql("INSERT INTO t VALUES (10, 'a', 'q'), (11, 'c', 'q')")

    lake.add_table("t", source.metadata_location, "iceberg")

    assert notes(lake) == set()
    assert_duckdb_compacts(lake, sqlite_catalog, 7)


def test_buckets_in_several_folders_are_refused(lake, tmp_path):
    source = three_files(tmp_path / "ice", ["bucket[1](a)", "truncate[1](s)"])

    with pytest.raises(InvalidPartitionError, match=r"files in several folders \(.*Insert the rows instead"):
        lake.add_table("t", source.metadata_location, "iceberg", create_table=True)

    assert lake.current_snapshot().id == 0


def test_rows_beside_added_files_are_noted_where_duckdbs_compaction_fails(lake, sqlite_catalog, tmp_path):
    source = three_files(tmp_path / "ice", ["p"])
    lake.add_table("t", source.metadata_location, "iceberg", create_table=True)
    assert notes(lake) == set()

    lake.append_arrow("t", pa.table({"a": range(20), "p": ["a"] * 20, "s": ["q"] * 20}))

    assert notes(lake) == {FOLDERS}
    with (
        open_lake(sqlite_catalog) as duck,
        pytest.raises(duckdb.InternalException, match="different hive partition path"),
    ):
        duck.sql(WAYS_TO_COMPACT[0])


# The files of one append stand in the catalog in the order in which their partitions first appear.


ORDERED = ["hour(ts)", "day(ts)", "month(ts)", "year(ts)", "bucket(4, ts)", "ts"]


@pytest.mark.parametrize("partition_by", ORDERED)
def test_files_come_in_the_references_order(sqlite_catalog, seed, partition_by):
    values = _times(random.Random(seed))
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
        for name in ("ours", "theirs"):
            reference.sql(f"CREATE TABLE {name} (ts TIMESTAMP)")
            reference.sql(f"ALTER TABLE {name} SET PARTITIONED BY ({partition_by})")
        rows = ", ".join("(NULL)" if value is None else f"('{value}')" for value in values)
        reference.sql(f"INSERT INTO theirs VALUES {rows}")
        theirs = reference.sql(_FIRST_ROWS.format("theirs"))

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("ours", pa.table({"ts": pa.array(values).cast(pa.timestamp("us"))}))

    assert by_duckdb(sqlite_catalog, _FIRST_ROWS.format("ours")) == theirs


_FIRST_ROWS = "SELECT rowid, ts FROM {} ORDER BY rowid"


def _times(draw: random.Random) -> list[str | None]:
    hours = [draw.choice([None, *range(24)]) for _ in range(40)]
    return [
        None if hour is None else f"{2020 + hour % 3}-{1 + hour % 12:02}-{1 + hour:02} {hour:02}:00:00"
        for hour in hours
    ]
