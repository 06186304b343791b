"""Partition values of every transform and type that DuckDB takes, for drawn values: ours are DuckDB's."""

import random

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidPartitionError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.planning.writing.write import plan_append
from airflow_provider_ducklake.lake.storage.arrow.rows import partition_of_rows
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
