"""Partitions by years, months, days and hours since 1970, as 1.1 has them: values, and what they prune."""

import datetime as dt
import random

import duckdb
import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidPartitionError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.partitioning import Transform, TransformKind, partition_value
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.format.versions import NEWEST, write_version
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from tests.interop.lakes import alone, by_duckdb
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase

UNITS = ("year", "month", "day", "hour")
DAY = 86_400
DRAWN = {"ci": 300, "full": 20_000}
TYPES = {  # the type, its units a second, the SQL that makes a TIMESTAMP of a value's number
    "date": (None, "DATE '1970-01-01' + {}::INTEGER"),
    "timestamp": (10**6, "make_timestamp({}::BIGINT)"),
    "timestamp_ms": (10**3, "make_timestamp({}::BIGINT * 1000)"),
    "timestamptz": (10**6, "make_timestamp({}::BIGINT)"),
    # whole microseconds below it: a timestamp has no nanoseconds
    "timestamp_ns": (10**9, "make_timestamp(({}::BIGINT - (({}::BIGINT % 1000) + 1000) % 1000) // 1000)"),
}
SPECIFIED = [  # the specification's and the reference's examples
    ("date", dt.date(1969, 1, 15), ("-1", "-12", "-351", "-8424")),
    ("date", dt.date(1969, 12, 31), ("-1", "-1", "-1", "-24")),
    ("date", dt.date(2020, 1, 1), ("50", "600", "18262", "438288")),
    ("date", dt.date(2024, 2, 10), ("54", "649", "19763", "474312")),
]


@pytest.mark.parametrize(("type_", "value", "wanted"), SPECIFIED)
def test_the_specified_values(type_, value, wanted):
    days = (value - dt.date(1970, 1, 1)).days

    assert tuple(text(f"epoch_{unit}", type_, days) for unit in UNITS) == wanted


def text(transform: str, type_: str, value: int | None) -> str | None:
    return partition_value(Transform.parse(transform), parse_type(type_), value)


@pytest.mark.parametrize("type_", TYPES)
def test_values_are_those_that_duckdb_counts(type_, seed, size):
    """The reference counts boundaries crossed: date_diff, of instants on the time line of UTC."""
    per_second, sql = TYPES[type_]
    draw = random.Random(f"epochs {seed} {type_}")
    numbers = [*range(-2, 3), *(drawn(draw, per_second) for _ in range(DRAWN[size]))]

    with duckdb.connect() as connection:
        connection.register("drawn", pa.table({"n": pa.array(numbers, pa.int64())}))
        moment = sql.replace("{}", "n")
        since = "date_diff('{}', TIMESTAMP '1970-01-01', ({})::TIMESTAMP)"
        parts = ", ".join(since.format(unit, moment) for unit in UNITS)
        counted = connection.sql(f"SELECT {parts} FROM drawn").fetchall()

    for number, row in zip(numbers, counted, strict=True):
        assert tuple(text(f"epoch_{unit}", type_, number) for unit in UNITS) == tuple(map(str, row)), number


def drawn(draw: random.Random, per_second: int | None) -> int:
    """Draw a moment: near 1970, near the turn of a unit, or anywhere from the year 1 to 9999."""
    days = draw.choice(
        [draw.randint(-3, 3), draw.randint(-719_162, 2_932_896), draw.randint(-40_000, 40_000)]
    )
    if per_second is None:
        return days
    seconds = days * DAY + draw.choice([0, 0, draw.randrange(DAY), 3600 * draw.randrange(24)])
    number = seconds * per_second + draw.choice([-1, 0, 1, draw.randrange(per_second)])
    return number if abs(number) < 2**63 - 1 else number % 2**60 * draw.choice([-1, 1])


@pytest.mark.parametrize("type_", ["timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "date"])
def test_what_is_infinite_has_no_unit(type_):
    infinity = parse_type(type_).facts.infinity

    assert [text("epoch_day", type_, value) for value in (infinity, -infinity, None)] == [None] * 3


def test_nanoseconds_are_rounded_down():
    assert [text(f"epoch_{unit}", "timestamp_ns", -1) for unit in UNITS] == ["-1"] * 4
    assert [text(f"epoch_{unit}", "timestamptz_ns", 0) for unit in UNITS] == ["0"] * 4


# --- lakes

INSTANTS = [
    None,
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    dt.datetime(2024, 2, 10, 5, 30, tzinfo=dt.UTC),
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
]
ROWS = pa.table({"i": pa.array(range(6), pa.int32()), "z": pa.array(INSTANTS, pa.timestamp("us", "UTC"))})
KEYS = [f"epoch_{unit}(z)" for unit in UNITS]


@pytest.fixture
def lake(catalog: CatalogDatabase):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as opened:
        opened.set_option("data_inlining_row_limit", 0)
        yield opened


def run(catalog: CatalogDatabase, statement: str) -> None:
    with sa.create_engine(catalog.sqlalchemy_url, poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text(statement))


def partition_values(catalog: CatalogDatabase) -> list[tuple[str | None, ...]]:
    found: dict[int, dict[int, str | None]] = {}
    for row in dump_catalog(catalog)["ducklake_file_partition_value"]:
        found.setdefault(row["data_file_id"], {})[row["partition_key_index"]] = row["partition_value"]
    return sorted((tuple(values[key] for key in sorted(values)) for values in found.values()), key=str)


def test_files_lie_where_ducklakepy_puts_them(lake, catalog, reference_catalog):
    alone(lake).create_table("t", {"i": "int32", "z": "timestamptz"}, partition_by=KEYS)
    lake.append_arrow("t", ROWS)
    with ducklakepy_lake.open_lake(reference_catalog) as theirs:
        theirs.set_option("data_inlining_row_limit", 0)
        theirs.create_table("t", {"i": "int32", "z": "timestamptz"})
        theirs.partition_by("t", *KEYS)
        theirs.insert("t", ROWS)

    def folders(of: CatalogDatabase) -> list[str]:
        return sorted(row["path"].rpartition("/")[0] for row in dump_catalog(of)["ducklake_data_file"])

    assert partition_values(catalog) == partition_values(reference_catalog)
    assert ("-1", "-1", "-1", "-1") in partition_values(catalog)
    assert ("49", "599", "18261", "438286") in partition_values(catalog)
    assert folders(catalog) == folders(reference_catalog)
    transforms = [row["transform"] for row in dump_catalog(catalog)["ducklake_partition_column"]]
    assert transforms == [f"epoch_{unit}" for unit in UNITS]
    with ducklakepy_lake.open_lake(catalog) as theirs:
        assert theirs.partition_keys("t") == [("z", f"epoch_{unit}") for unit in UNITS]
        assert sorted(theirs.read("t")["i"].to_pylist()) == list(range(6))
        assert theirs.read("t", where=[("z", ">=", INSTANTS[4])])["i"].to_pylist() == [4]


def test_the_judge_reads_them(lake, catalog, judge):
    alone(lake).create_table("t", {"i": "int32", "z": "timestamptz"}, partition_by=["epoch_day(z)"])
    lake.append_arrow("t", ROWS)
    assert by_duckdb(judge(catalog), "SELECT i FROM t ORDER BY i") == [(i,) for i in range(6)]


@pytest.mark.parametrize("unit", UNITS)
def test_no_row_is_left_out_that_a_filter_wants(lake, catalog, unit, seed):
    """With and without statistics of the file, in which case the partition alone speaks."""
    draw = random.Random(f"pruned {seed} {unit}")
    moments = [drawn(draw, 10**6) for _ in range(60)]
    alone(lake).create_table("t", {"z": "timestamp"}, partition_by=[f"epoch_{unit}(z)"])
    lake.append_arrow("t", pa.table({"z": pa.array([*moments, None], pa.timestamp("us"))}))
    run(catalog, "DELETE FROM ducklake_file_column_stats")

    for moment in draw.sample(moments, 12):
        shown = moment_text(moment)
        for operator, wanted in {
            "=": moments.count(moment),
            "<": sum(one < moment for one in moments),
            ">=": sum(one >= moment for one in moments),
        }.items():
            found = lake.read_arrow("t", filter=f"z {operator} TIMESTAMP '{shown}'")
            assert found.num_rows == wanted, (operator, shown)
    assert lake.read_arrow("t", filter="z IS NULL").num_rows == 1
    files = {file.path for file in lake.table_snapshot("t", with_files=True).files or ()}
    planned = lake.scan("t", filter=f"z = TIMESTAMP '{moment_text(moments[0])}'").files
    assert len(planned) <= 2 < len(files)  # and the one of NULLs, where infinite times would lie


def moment_text(micros: int) -> str:
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT make_timestamp({micros})::VARCHAR").fetchone()[0]


def test_a_value_that_is_no_number_leaves_nothing_out(lake, catalog):
    alone(lake).create_table("t", {"i": "int32", "z": "timestamptz"}, partition_by=["epoch_day(z)"])
    lake.append_arrow("t", ROWS.slice(4, 1))
    run(catalog, "UPDATE ducklake_file_partition_value SET partition_value = 'x'")

    assert lake.read_arrow("t", filter="z > TIMESTAMPTZ '2024-02-10 00:00:00+00'").num_rows == 1
    assert [finding.code for finding in lake.verify()] == ["partition-value-differs"]


def test_ddl_and_checks(lake):
    writer = write_version(NEWEST)
    with lake.transaction() as tx:
        apply_ddl(tx, parse_ddl("CREATE TABLE t (i INT, z TIMESTAMPTZ, s VARCHAR, c TIME)", writer))
        apply_ddl(tx, parse_ddl("ALTER TABLE t SET PARTITIONED BY (epoch_day(z), bucket(4, i))", writer))
    again = lake.current_snapshot().id
    with lake.transaction() as tx:
        apply_ddl(tx, parse_ddl("ALTER TABLE t SET PARTITIONED BY (epoch_day(z), bucket(4, i))", writer))
    assert lake.current_snapshot().id == again
    for key in ("epoch_day(s)", "epoch_hour(c)", "epoch_week(z)", "epoch_day(4, z)"):
        with pytest.raises(InvalidPartitionError), lake.transaction() as tx:
            tx.set_partitioned_by("t", [key])


@pytest.mark.parametrize("kind", [kind for kind in TransformKind if kind.feature])
def test_1_0_has_none_of_them(sqlite_catalog, kind):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        sentence = rf"DuckLake 1\.0 does not support the {kind} partition transform"
        with pytest.raises(UnsupportedFeatureError, match=sentence), lake.transaction() as tx:
            tx.create_table("t", {"z": "timestamp"}, partition_by=[f"{kind}(z)"])
        assert lake.current_snapshot().id == 0


@pytest.mark.parametrize(
    ("key", "says"),
    [
        *((f"{unit}(z)", f"{unit} needs a column of type .*, not timestamptz_ns") for unit in UNITS),
        ("n", "a column of type null cannot be a partition key"),
        ("bucket(3, n)", "a column of type null cannot be a partition key"),
    ],
)
def test_keys_by_which_the_reference_does_not_write_are_refused(sqlite_catalog, key, says):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        alone(lake).create_table("t", {"n": "null", "z": "timestamptz_ns"})
        with pytest.raises(InvalidPartitionError, match=says), lake.transaction() as tx:
            tx.set_partitioned_by("t", [key])
