"""A lake of 1.1 in Spark: tables of nested schemas, and the types that 1.1 brought, through every verb."""

import random
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import VariantType, VariantVal

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.storage.arrow.rows import partition_of_rows
from airflow_provider_ducklake.lake.storage.nested_values.shredding import VARIANT
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.golden.lakes_1_1.recorded import NAMES, recorded_lake
from tests.interop.lakes import alone
from tests.interop.test_epoch_partitions import UNITS, drawn
from tests.interop.test_types_of_1_1 import COLUMNS, NANOSECONDS, ROWS
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_core import open_core

TABLE = "sales.europe.orders"


@pytest.fixture(params=[10, 0], ids=["inlined", "in files"])
def lake(request, sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as opened:
        opened.set_option("data_inlining_row_limit", request.param)
        with opened.transaction() as tx:
            tx.create_schema("sales")
            tx.create_schema("sales.europe")
            tx.create_table(TABLE, COLUMNS)
        opened.append_arrow(TABLE, ROWS)
        yield opened


def test_every_verb_writes_there(spark, lake, sqlite_catalog):
    session = LakeSession(spark, lake)
    before = lake.current_snapshot().id

    session.insert(TABLE, session.read(TABLE))
    assert lake.read_arrow(TABLE).sort_by("i").equals(pa.concat_tables([ROWS, ROWS]).sort_by("i"))
    session.update(TABLE, {"i": "i + 100"}, "z < '1970-01-01 00:00:00+00'")
    session.delete(TABLE, "i = 1")
    session.sql(f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE i = 3")
    session.merge(
        TABLE, session.read(TABLE, filter="i = 4").limit(1), ["i"], update_all=True, insert_all=True
    )

    assert sorted(lake.read_arrow(TABLE)["i"].to_pylist()) == [3, 3, 3, 3, 4, 4, 102, 102]
    assert lake.read_arrow(TABLE, at=before).equals(ROWS)
    assert lake.verify() == []
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
        read = theirs.read_row_ids(TABLE)
        assert read["rowid"].to_pylist() == sorted(set(read["rowid"].to_pylist()))
        assert sorted(read["i"].to_pylist()) == [3, 3, 3, 3, 4, 4, 102, 102]
    kinds = {
        row["change_type"] for row in session.changes(TABLE, before + 1, lake.current_snapshot().id).collect()
    }
    assert kinds == {"insert", "delete", "update_preimage", "update_postimage"}


@pytest.mark.parametrize(
    "maps",
    [
        ["map('x', null)", "null"],
        ["map('x', null, 'y', null, 'z', null)"],
        ["map()", "map('x', null)", "null"],
    ],
    ids=["more maps than keys", "more keys than maps", "an empty one"],
)
def test_maps_to_null_are_inserted(spark, sqlite_catalog, maps):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        alone(lake).create_table("t", {"m": "map(varchar, null)"})
        session = LakeSession(spark, lake)
        rows = spark.sql(" union all ".join(f"select {one} m" for one in maps)).coalesce(1)
        session.insert("t", rows)

        assert sorted(map(str, session.read("t").collect())) == sorted(map(str, rows.collect()))
        assert lake.verify() == []
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
        found = [None if one is None else dict(one) for one in theirs.read("t")["m"].to_pylist()]
        assert sorted(found, key=str) == sorted((row.m for row in rows.collect()), key=str)


def test_no_job_writes_bounds_of_skipped_columns(spark, sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int64", "note": "varchar", "s": "struct(x int32, y int32)"})
            tx.set_option("t", "skip_stats_columns", ["note", "s"])
        session = LakeSession(spark, lake)
        rows = spark.sql("SELECT id, 'n' || id AS note, struct(1 AS x, int(id) AS y) AS s FROM range(100)")
        session.insert("t", rows)
        session.update("t", {"note": "'other'"}, "id = 7")

        for kind in ("file", "table"):
            found = dump_catalog(sqlite_catalog)[f"ducklake_{kind}_column_stats"]
            assert {one["column_id"] for one in found if one["min_value"] is not None} == {1}, kind
        assert lake.read_arrow("t", filter="note = 'other'").num_rows == 1
        assert (lake.row_count("t"), lake.column_bounds("t", "note")) == (100, None)
        assert lake.verify() == []


def test_deletes_become_vectors_where_the_lake_wants_them(spark, sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        lake.set_option("data_inlining_row_limit", 0)
        lake.set_option("write_deletion_vectors", value=True)
        session = LakeSession(spark, lake)
        made = [session.insert("t", spark.range(1000).repartition(1), create_table=True).id]
        made += [session.delete("t", f"id % 10 = {number}").id for number in range(3)]
        made.append(session.update("t", {"id": "id + 5000"}, "id = 999").id)

        counts = [lake.read_arrow("t", at=one).num_rows for one in made]
        assert counts == [1000, 900, 800, 700, 700]
        (row,) = dump_catalog(sqlite_catalog)["ducklake_delete_file"]
        assert (row["format"], row["delete_count"], row["partial_max"]) == ("puffin", 301, made[-1])
        with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
            assert [theirs.count("t", one) for one in made] == counts
        assert session.read("t").count() == 700
        kinds = session.changes("t", made[1], made[3]).groupBy("snapshot_id").count().collect()
        assert {row["snapshot_id"]: row["count"] for row in kinds} == dict.fromkeys(made[1:4], 100)
        assert lake.verify() == []
        left = {path.name for path in Path(sqlite_catalog.data_path).rglob("*") if path.is_file()}
        dump = dump_catalog(sqlite_catalog)
        tables = ("ducklake_data_file", "ducklake_delete_file", "ducklake_files_scheduled_for_deletion")
        assert left == {Path(one["path"]).name for table in tables for one in dump[table]}


@pytest.fixture
def instants(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as opened:
        alone(opened).create_table("t", {"z": "timestamptz_ns"})
        yield opened


def stored(spark, instants: Lake, *values: object) -> list[int]:
    """Insert values into the column and return its nanoseconds since 1970."""
    kind = "string" if isinstance(values[0], str) else "timestamp"
    LakeSession(spark, instants).insert("t", spark.createDataFrame([(one,) for one in values], f"z {kind}"))
    return sorted(instants.read_arrow("t")["z"].cast(pa.int64()).to_pylist())


def test_instants_come_as_texts_with_their_offset(spark, instants):
    texts = ("1969-12-31 23:59:59.999999999+00", "1970-01-01T01:00:00.000000001+01:00")
    other = ("1969-12-31 18:30:00.00000001-05:30", "1970-01-01 00:00:00Z", "1970-01-01 01:00:00.5+0100")

    assert stored(spark, instants, *texts, *other) == [-1, 0, 1, 10, 500_000_000]


def test_instants_of_spark_keep_their_microseconds(spark, instants):
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)

    assert stored(spark, instants, moment) == [-1000]


FIRST, LAST = -9_223_286_400_000_000_000, 2**63 - 2  # what DuckDB takes
INFINITIES = [1 - 2**63, 2**63 - 1]


def test_the_first_and_the_last_instant_are_stored(spark, instants):
    firsts = ("1677-09-22 00:00:00+00", "1677-09-21 23:00:00-01", "1677-09-22 15:59:00+15:59")
    lasts = ("2262-04-11 23:47:16.854775806Z", "2262-04-12 15:46:16.854775806+1559")
    expected = [FIRST] * 3 + [LAST] * 2

    found = stored(spark, instants, "-infinity", *firsts, *lasts, "infinity")
    assert found == [INFINITIES[0], *expected, INFINITIES[1]]
    with open_core() as core:
        for text, value in zip((*firsts, *lasts), expected, strict=True):
            assert core.sql("SELECT epoch_ns(?::TIMESTAMPTZ_NS)", [text]) == [(value,)]


def test_the_first_and_the_last_instant_come_through_each_verb(spark, instants):
    ends = [INFINITIES[0], FIRST, LAST, INFINITIES[1]]
    instants.append_arrow("t", pa.table({"z": pa.array(ends, pa.int64()).cast(NANOSECONDS)}))
    session = LakeSession(spark, instants)
    alone(instants).add_column("t", "i", "int32")

    session.update("t", {"i": "1"}, "true")
    session.merge("t", session.read("t"), ["z"], update_all=True, insert_all=True)
    session.insert("t", session.read("t"))

    assert sorted(instants.read_arrow("t")["z"].cast(pa.int64()).to_pylist()) == sorted(ends * 2)
    assert instants.read_arrow("t")["i"].to_pylist() == [1] * 8


def test_the_first_moment_without_a_zone_may_be_a_date(spark, sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        alone(lake).create_table("t", {"z": "timestamp_ns"})
        assert stored(spark, lake, "1677-09-22", "2262-04-11 23:47:16.854775806") == [FIRST, LAST]


@pytest.mark.parametrize(
    "text",
    [
        *("1970-01-01 00:00:00", "1970-01-01 00:00:00+16", "2300-01-01 00:00:00Z"),
        *("1677-09-22 00:00:00+05:00", "1677-09-21 23:59:59.999999999Z"),
        *("2262-04-11 23:00:00-05:00", "2262-04-11 23:47:16.854775807+00", "9999-12-31 23:59:59-15"),
    ],
)
def test_what_is_no_instant_is_refused(spark, instants, text):
    with pytest.raises(InvalidInputError, match="does not fit timestamptz_ns"):
        stored(spark, instants, text)
    assert instants.read_arrow("t").num_rows == 0


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("type_", ["timestamptz", "timestamp", "timestamp_ns", "date"])
def test_partitions_since_1970_are_those_of_utc(spark, sqlite_catalog, zone, type_, seed):
    draw = random.Random(f"epochs {seed} {zone} {type_}")
    moments = [-1, 0, 1, *(drawn(draw, 10**6) for _ in range(20))]
    rows = spark.createDataFrame([(one,) for one in moments], "n bigint").selectExpr(f"{MADE[type_]} AS z")
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", {"z": type_}, partition_by=[f"epoch_{unit}(z)" for unit in UNITS])
        with session_zone(spark, zone):
            LakeSession(spark, lake).insert("t", rows)

        written = lake.read_arrow("t")
        assert written.num_rows == len(moments)
        assert lake.verify() == []
        fields = lake.table_snapshot("t").partition_spec.fields
        wanted = set(partition_of_rows(written, lake.table_snapshot("t").schema, fields))
        files = lake.table_snapshot("t", with_files=True).files or ()
        assert sorted(file.partition_values for file in files) == sorted(wanted)


_LOCAL = "timestamp_ntz'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, CAST({} AS DECIMAL(20,0)) / 1000000)"
MADE = {  # of microseconds since 1970
    "timestamptz": "timestamp_micros(n)",
    "timestamp": _LOCAL.format("n"),
    "timestamp_ns": _LOCAL.format("n % 5000000000000000"),
    "date": "date_add(date'1970-01-01', CAST(floor(n / 86400000000) AS INT))",
}


@contextmanager
def session_zone(spark, zone: str):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_inlined_variants_are_those_of_spark(spark, sqlite_catalog):
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs, open_core() as core:
        theirs.create_table("t", {"i": "int64", "doc": "variant"})
        documents = '(\'{"a": [1, "x"], "b": {}}\'), (\'5\'), (NULL)'
        query = f"SELECT row_number() OVER () AS i, d::JSON::VARIANT AS doc FROM (VALUES {documents}) r(d)"
        theirs.insert("t", core.arrow(query))
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session = LakeSession(spark, lake)
        rows = session.read("t")
        values = rows.selectExpr("i", "variant_get(doc, '$.a[1]', 'string') AS x", "to_json(doc) AS json")
        texts = {row.i: (row.x, row.json) for row in values.collect()}
        session.delete("t", "i = 2")
        feed = session.changes("t", 1, lake.current_snapshot().id).selectExpr("change_type", "to_json(doc)")

        assert rows.schema["doc"].dataType == VariantType()
        assert texts == {1: ("x", '{"a":[1,"x"],"b":{}}'), 2: (None, "5"), 3: (None, None)}
        assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [1, 3]
        assert ("delete", "5") in {tuple(row) for row in feed.collect()}


def test_recorded_lakes_are_read_as_without_spark(spark, tmp_path, seed, size):
    draw = random.Random(f"recorded lakes by Spark {seed}")
    for name in NAMES if size == "full" else draw.sample(NAMES, 1):
        recorded = recorded_lake(name, tmp_path / name)
        with Lake.connect(recorded.catalog.sqlalchemy_url) as lake:
            compare(LakeSession(spark, lake), lake, [int(one) for one in recorded.snapshots], draw)


def compare(session: LakeSession, lake: Lake, snapshots: list[int], draw: random.Random) -> None:
    for at in (draw.choice(snapshots[:-1]), snapshots[-1]):
        for table in lake.tables(at):
            ours, theirs = lake.read_arrow(table, at=at), of_spark(session.read(table, at=at))
            assert comparable(theirs) == comparable(ours), (table, at)
    for table in lake.tables():
        feed = of_spark(session.changes(table, 1, snapshots[-1]))
        assert comparable(feed) == comparable(lake.changes(table, 1, snapshots[-1]).read_arrow()), table


def of_spark(rows: DataFrame) -> pa.Table:
    """Collect rows, with variants as JSON: PySpark 4.2 cannot make an Arrow table of one that is NULL."""
    variants = [field.name for field in rows.schema if field.dataType == VariantType()]
    if variants:
        rows = rows.withColumns({name: f.to_json(name) for name in variants})
    return rows.toArrow()


def comparable(rows: pa.Table) -> list[str]:
    """Return the rows as texts, sorted; nanoseconds are texts in Spark."""
    columns = [_comparable(column) for column in rows.columns]
    return sorted(map(str, zip(*columns, strict=True)))


def _comparable(column: pa.ChunkedArray) -> list[object]:
    if column.type == pa.timestamp("ns", "UTC"):
        return [text and text.replace("Z", "+00") for text in column.cast(pa.string()).to_pylist()]
    values = column.to_pylist()
    if column.type == VARIANT:
        return [one and VariantVal(one["value"], one["metadata"]).toJson() for one in values]
    return values
