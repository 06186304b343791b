"""Intervals and times with a zone: what DuckDB keeps of them in files, and what it does with ours."""

import random
from itertools import product

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.jobs import merge_adjacent, rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import USUAL_KINDS, file_catalog
from tests.reference.duckdb_lake import open_lake

INTERVALS = pa.month_day_nano_interval()
COLUMNS = {
    "id": "int64",
    "v": "interval",
    "z": "timetz",
    "l": "interval[]",
    "s": "struct(v interval, z timetz)",
}
TABLE = "CREATE TABLE t (id BIGINT, v INTERVAL, z TIMETZ, l INTERVAL[], s STRUCT(v INTERVAL, z TIMETZ))"
# as SQL, of which files hold each in full
SQL = [
    "(1, '1 month 2 days 3 seconds', '12:30:00.5+00', ['1 day', NULL], {'v': '5 days', 'z': '01:00:00+00'})",
    "(2, NULL, NULL, NULL, NULL)",
    "(3, '400 days', '00:00:00+00', [], {'v': NULL, 'z': NULL})",
    "(4, '0 days', '23:59:59.999999+00', ['14 months 00:00:00.001'], {'v': '00:00:00', 'z': NULL})",
    "(5, '2147483647 months 2147483647 days 1193:02:47.295', '00:00:00.000001+00', [NULL], NULL)",
]


def interval(months: int = 0, days: int = 0, nanoseconds: int = 0) -> pa.MonthDayNano:
    return pa.MonthDayNano([months, days, nanoseconds])


DAY_MICROS = 86_400 * 10**6
LAST = (2**31 - 1, 2**31 - 1, (2**32 - 1) * 10**6)
ROWS = pa.table(
    {
        "id": pa.array(range(1, 6), pa.int64()),
        "v": pa.array([interval(1, 2, 3 * 10**9), None, interval(0, 400), interval(), interval(*LAST)]),
        "z": pa.array([45_000_500_000, None, 0, DAY_MICROS - 1, 1], pa.time64("us")),
        "l": pa.array(
            [[interval(0, 1), None], None, [], [interval(14, 0, 10**6)], [None]], pa.list_(INTERVALS)
        ),
        "s": pa.array(
            [{"v": interval(0, 5), "z": 3600 * 10**6}, None, {}, {"v": interval(), "z": None}, None],
            pa.struct([("v", INTERVALS), ("z", pa.time64("us"))]),
        ),
    }
)
TEXTS = "SELECT id, v::VARCHAR, z::VARCHAR, l::VARCHAR, s::VARCHAR FROM t ORDER BY ALL"
FILTERS = [
    *(f"v {one} INTERVAL '1 month 2 days 3 seconds'" for one in ("=", "<", ">", "IS DISTINCT FROM")),
    *(f"z {one} '12:30:00.5+00'" for one in ("=", "<", ">", "IS DISTINCT FROM")),
    *("v = INTERVAL '0 days'", "z = '23:59:59.999999+00'", "z > '14:30:00.5+02'", "s.z <> '00:00:00+00'"),
    *("v IS NULL", "z IS NOT NULL", "s.v IS NULL"),
]


def ours(catalog, limit=0, **options) -> Lake:
    lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path, **options)
    lake.set_option("data_inlining_row_limit", limit)
    alone(lake).create_table("t", COLUMNS)
    return lake


def written_by_them(catalog, limit=0) -> None:
    with open_lake(catalog, data_inlining_row_limit=limit) as reference:
        reference.sql(TABLE)
        for values in SQL:  # a file each
            reference.sql(f"INSERT INTO t VALUES {values}")


def answers(catalog) -> list[object]:
    with open_lake(catalog) as reference:
        queries = [TEXTS, *(f"SELECT id FROM t WHERE {one} ORDER BY id" for one in FILTERS)]
        queries.append("SELECT count(v), count(z), count(*), min(z)::VARCHAR, max(v)::VARCHAR FROM t")
        return [reference.sql(query) for query in queries]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A lake of DuckDB's."""
    catalog = file_catalog("sqlite", tmp_path_factory.mktemp("theirs"))
    written_by_them(catalog)
    return catalog


@pytest.fixture(scope="module")
def their_answers(theirs):
    return answers(theirs)


@pytest.mark.parametrize(("kind", "limit"), [("sqlite", 0), ("sqlite", 100), ("postgres", 100)])
def test_duckdb_answers_from_our_rows_as_from_its_own(new_catalog, their_answers, kind, limit):
    catalog = new_catalog(kind)
    with ours(catalog, limit) as lake:
        lake.append_arrow("t", ROWS)

        assert lake.read_arrow("t").sort_by("id").to_pylist() == ROWS.to_pylist()
        assert lake.verify() == []
    assert answers(catalog) == their_answers


def test_what_duckdb_wrote_is_read_and_written_again(sqlite_catalog):
    catalog = sqlite_catalog
    written_by_them(catalog, 0)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").sort_by("id").to_pylist() == ROWS.to_pylist()
        lake.append_arrow("t", lake.read_arrow("t"))
        rows = by_duckdb(catalog, TEXTS)
        assert rows[::2] == rows[1::2]
        lake.flush_inlined_data("t")
        assert merge_adjacent(lake) is not None
        alone(lake).delete_rows("t", "id = 3")
        rewrite(lake)
        assert lake.verify() == []
    assert by_duckdb(catalog, TEXTS) == [row for row in rows if row[0] != 3]


def test_duckdb_changes_and_compacts_our_files(sqlite_catalog):
    catalog = sqlite_catalog
    with ours(catalog) as lake:
        for place in range(5):
            lake.append_arrow("t", ROWS.slice(place, 1))
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        before = reference.sql(TEXTS)
        reference.sql("UPDATE t SET id = id + 10, v = v + INTERVAL '1 day' WHERE id = 1")
        reference.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
        reference.sql("CALL ducklake_merge_adjacent_files('lake', 't')")

        assert reference.sql("SELECT v::VARCHAR FROM t WHERE id = 11") == [("1 month 3 days 00:00:03",)]
        assert reference.sql(TEXTS)[:4] == before[1:]
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").sort_by("id").to_pylist()[:4] == ROWS.to_pylist()[1:]
        assert lake.verify() == []


def columns_of_a_file(catalog) -> tuple[list[tuple], list[dict]]:
    """Return what the footer of the first file says of both types, and the catalog's statistics of them."""
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        path = lake.table_snapshot("t", with_files=True).files[0].path
    with duckdb.connect() as connection:
        said = "SELECT name, type, converted_type, logical_type, field_id FROM parquet_schema(?)"
        elements = connection.execute(said, [path]).fetchall()
    statistics = dump_catalog(catalog)["ducklake_file_column_stats"]
    return [row for row in elements if row[0] in ("v", "z", "element")], [
        {key: value for key, value in row.items() if key not in ("data_file_id", "column_size_bytes")}
        for row in statistics
        if row["data_file_id"] == 0 and row["column_id"] > 1
    ]


def test_files_say_of_columns_what_those_of_duckdb_say(sqlite_catalog, theirs):
    with ours(sqlite_catalog) as lake:
        lake.append_arrow("t", ROWS)

    elements, statistics = columns_of_a_file(sqlite_catalog)

    their_elements, their_statistics = columns_of_a_file(theirs)
    assert elements == their_elements
    assert statistics == [one | {"value_count": None, "null_count": None} for one in their_statistics]
    assert {(one["value_count"], one["null_count"]) for one in their_statistics} == {(0, 0)}  # as it says


def test_columns_of_which_nothing_is_counted_may_hold_null(theirs):
    with Lake.connect(theirs.sqlalchemy_url) as lake:
        for column in ("v", "z"):
            with pytest.raises(errors.InvalidInputError, match=column), lake.transaction() as tx:
                tx.set_not_null("t", column)
        assert sorted(lake.read_arrow("t", filter="v IS NULL")["id"].to_pylist()) == [2]
        assert sorted(lake.read_arrow("t", filter="z IS NOT NULL")["id"].to_pylist()) == [1, 3, 4, 5]
        with pytest.raises(errors.InvalidInputError, match="IS NULL"):
            lake.read_arrow("t", filter="z = '00:00:00+00'")


def test_times_of_any_offset_become_those_that_duckdb_writes(new_catalog, seed):
    draw = random.Random(f"offsets {seed}")
    times = [
        f"{hour:02}:{minute:02}:{second:02}.{micros:06}{sign}{zone_hour:02}:{zone_minute:02}:{zone_second:02}"
        for hour, minute, second, micros, sign, zone_hour, zone_minute, zone_second in (
            (*map(draw.randrange, (24, 60, 60, 10**6)), draw.choice("+-"), *map(draw.randrange, (16, 60, 60)))
            for _ in range(60)
        )
    ]
    values = [f"('{one}')" for one in (*times, "24:00:00-01", "24:00:00+00")]
    catalog, by_us = new_catalog("sqlite"), new_catalog("sqlite")
    for one in (catalog, by_us):
        with open_lake(one, data_inlining_row_limit=100) as reference:
            reference.sql(f"CREATE TABLE t (z TIMETZ); INSERT INTO t VALUES {', '.join(values)}")
    with Lake.connect(by_us.sqlalchemy_url) as lake:
        inlined = lake.read_arrow("t")
        lake.flush_inlined_data("t")
        assert lake.read_arrow("t").equals(inlined)
    texts = "SELECT z::VARCHAR FROM t ORDER BY rowid"
    with open_lake(catalog) as theirs, open_lake(by_us) as reference:
        theirs.sql("CALL ducklake_flush_inlined_data('lake')")
        assert reference.sql(texts) == theirs.sql(texts)


REFUSED = {  # by DuckDB's text
    "-1 month": interval(-1),
    "00:00:00.0015": interval(0, 0, 1_500_000),
    "1193:02:47.296": interval(0, 0, 2**32 * 10**6),
    "1 month -1 day": interval(1, -1),
}


@pytest.mark.parametrize("kind", USUAL_KINDS)
def test_intervals_that_files_do_not_hold_are_refused_with_their_row(new_catalog, kind):
    catalog = new_catalog(kind)
    texts = "SELECT id, v::VARCHAR FROM t ORDER BY id"
    with open_lake(catalog, data_inlining_row_limit=100) as reference:
        reference.sql("CREATE TABLE t (id BIGINT, v INTERVAL); INSERT INTO t VALUES (0, INTERVAL '1 day')")
        for id_, text in enumerate(REFUSED, 1):
            reference.sql(f"INSERT INTO t VALUES ({id_}, INTERVAL '{text}')")
        before = reference.sql(texts)
        reference.sql("CREATE TABLE o (v INTERVAL); INSERT INTO o VALUES (INTERVAL '1 day')")
    assert before == [(0, "1 day"), *enumerate(REFUSED, 1)]
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t")["v"].to_pylist() == [interval(0, 1), *REFUSED.values()]
        for limit, (text, value) in product((0, 10), REFUSED.items()):
            lake.set_option("data_inlining_row_limit", limit)
            bad = pa.table({"id": pa.array([1, 2]), "v": pa.array([None, value], INTERVALS)})
            with pytest.raises(errors.InvalidValueError, match=f"column v: 1 value .*'{text}' in row 2 of"):
                lake.append_arrow("t", bad)
        with pytest.raises(errors.CatalogError, match=r"1 tables could not be flushed, snapshot .* 1 others"):
            lake.flush_inlined_data()
        assert len(lake.files("o")) == 1
        with pytest.raises(errors.InvalidValueError, match=r"column v: 4 values .*'-1 month' of row id 1"):
            lake.flush_inlined_data("t")
        assert lake.verify() == []
    with open_lake(catalog) as reference:
        assert reference.sql(texts) == before
        reference.sql("DELETE FROM t WHERE id > 0")
        with pytest.raises(duckdb.IOException, match="negative intervals"):  # rows of older snapshots
            reference.sql("CALL ducklake_flush_inlined_data('lake')")
    with (
        Lake.connect(catalog.sqlalchemy_url) as lake,
        pytest.raises(errors.InvalidValueError, match="row id 1"),
    ):
        lake.flush_inlined_data("t")


def test_intervals_longer_than_arrow_s_are_named(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=100) as reference:
        reference.sql("CREATE TABLE t (id BIGINT, v INTERVAL)")
        reference.sql("INSERT INTO t VALUES (1, INTERVAL '3000000 hours')")
        reference.sql("CREATE TABLE d (id BIGINT); INSERT INTO d VALUES (1)")
        reference.sql("ALTER TABLE d ADD COLUMN v INTERVAL DEFAULT '3000000 hours'")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for table, error in {"t": errors.CatalogError, "d": errors.UnsupportedFeatureError}.items():
            with pytest.raises(error, match=r"column v.*nanoseconds, and has none of 3000000:00:00"):
                lake.read_arrow(table)
            assert lake.read_arrow(table, columns=["id"]).num_rows == 1


def test_columns_come_and_go_and_their_defaults_are_duckdb_s(sqlite_catalog):
    with ours(sqlite_catalog) as lake:
        lake.append_arrow("t", ROWS)
        with lake.transaction() as tx:
            tx.add_column("t", "n", "interval")
            tx.add_column("t", "o", "timetz")
            tx.drop_column("t", "v")
        for type_, default in {"interval": "1 day", "timetz": "01:00:00+02"}.items():
            with (
                pytest.raises(errors.InvalidInputError, match="cannot have a default"),
                lake.transaction() as tx,
            ):
                tx.add_column("t", "x", type_, default=default)
        with (
            pytest.raises(errors.InvalidPartitionError, match="type interval cannot"),
            lake.transaction() as tx,
        ):
            tx.set_partitioned_by("t", ["n"])
        with pytest.raises(errors.SchemaMismatchError, match="z is timetz in the table; string does not fit"):
            lake.append_arrow("t", ROWS.select(["id"]).append_column("z", pa.array(["01:00:00+02"] * 5)))
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("ALTER TABLE t ADD COLUMN v INTERVAL DEFAULT '1 month 1 day'")
        reference.sql("ALTER TABLE t ADD COLUMN p TIMETZ DEFAULT '01:00:00+02'")
        shown = reference.sql("SELECT v::VARCHAR, n::VARCHAR, o::VARCHAR FROM t LIMIT 1")
    assert shown == [("1 month 1 day", None, None)]
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        found = lake.read_arrow("t")
        assert set(found["v"].to_pylist()) == {interval(1, 1)}
        assert set(found["p"].cast(pa.int64()).to_pylist()) == {23 * 3600 * 10**6}
        lake.append_arrow("t", found)
        assert lake.read_arrow("t")["v"].to_pylist() == [interval(1, 1)] * 10
        assert lake.verify() == []


@pytest.mark.parametrize("encrypted", [False, True])
def test_rows_come_back_from_files_that_had_lost_them(sqlite_catalog, encrypted):
    with ours(sqlite_catalog, encrypted=encrypted) as lake:
        lake.append_arrow("t", ROWS.slice(0, 3))
        lake.append_arrow("t", ROWS.slice(3))
        then = lake.current_snapshot().id
        alone(lake).delete_rows("t", "id IN (1, 4)")
        merge_adjacent(lake)
        rewrite(lake)
        lake.restore("t", at=then)
        assert lake.read_arrow("t").sort_by("id").to_pylist() == ROWS.to_pylist()
        assert lake.verify() == []
    assert [row[:3] for row in by_duckdb(sqlite_catalog, TEXTS, encrypted=encrypted)][:2] == [
        (1, "1 month 2 days 00:00:03", "12:30:00.5+00"),
        (2, None, None),
    ]
