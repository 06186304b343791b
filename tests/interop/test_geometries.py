"""Geometries: written as the reference writes them, changed by both clients, refused where they are none."""

import random
import shutil
import struct

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.types.geometry import GeometryStats
from airflow_provider_ducklake.lake.storage.nested_values.geometries import check_geometries, first_invalid
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

STATS = "SELECT extra_stats FROM __ducklake_metadata_lake.ducklake_{}_column_stats WHERE column_id = 2"


def point(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


LINE = struct.pack("<BIIdddd", 1, 2, 2, 0, 0, 1, 1)
HIGH_POINT = struct.pack("<BIddd", 1, 1001, 1, 2, 3)


def members(type_: int, *geometries: bytes) -> bytes:
    return struct.pack("<BII", 1, type_, len(geometries)) + b"".join(geometries)


def rows(*points: tuple[float, float] | None, start: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(start, start + len(points)), pa.int64()),
            "g": pa.array([None if one is None else point(*one) for one in points], pa.binary()),
        }
    )


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int64", "g": "geometry"})
        yield lake


def test_a_history_of_both_clients_keeps_rows_and_boxes(lake, sqlite_catalog):
    lake.append_arrow("t", rows((1, 2), None, (-3, 5.5)))
    lake.append_arrow("t", rows((100, -7), start=3))
    with open_lake(sqlite_catalog) as duckdb:
        duckdb.sql("INSERT INTO t VALUES (9, 'LINESTRING Z (0 0 1, 5 5 2)'::GEOMETRY)")
        duckdb.sql("UPDATE t SET g = 'POINT(0 0)'::GEOMETRY WHERE id = 0")
    alone(lake).delete_rows("t", "id = 2")
    lake.append_arrow("t", rows((50, 50), start=20))

    with open_lake(sqlite_catalog) as duckdb:
        ((text,),) = duckdb.sql(STATS.format("table"))
        assert GeometryStats.of_text(text) == GeometryStats(
            ((-3.0, 100.0), (-7.0, 50.0), (1.0, 2.0), None), frozenset({"point", "linestring_z"})
        )
        assert duckdb.sql("SELECT id, g::VARCHAR FROM t ORDER BY id") == [
            (0, "POINT (0 0)"),
            (1, None),
            (3, "POINT (100 -7)"),
            (9, "LINESTRING Z (0 0 1, 5 5 2)"),
            (20, "POINT (50 50)"),
        ]
        query = "SELECT id FROM t WHERE g && 'LINESTRING(40 40, 120 60)'::GEOMETRY ORDER BY id"
        assert duckdb.sql(query) == [(20,)]
        duckdb.sql("CALL ducklake_merge_adjacent_files('lake')")
    assert [row["id"] for row in lake.read_arrow("t").sort_by("id").to_pylist()] == [0, 1, 3, 9, 20]
    assert lake.verify() == []


def test_a_restore_and_a_compaction_rewrite_geometries(lake, sqlite_catalog):
    for start in range(3):
        lake.append_arrow("t", rows((start, start), start=start))
    then = lake.current_snapshot().id
    alone(lake).delete_rows("t", "id = 1")

    lake.restore("t", at=then)

    with open_lake(sqlite_catalog) as duckdb:
        shown = [(start, f"POINT ({start} {start})") for start in range(3)]
        assert duckdb.sql("SELECT id, g::VARCHAR FROM t ORDER BY id") == shown
    assert lake.verify() == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "it is cut off"),
        (b"\x01\x01", "it is cut off"),
        (point(1, 2)[:-1], "it is cut off"),
        (point(1, 2) + b"\0", "1 bytes follow its end"),
        (b"\x02" + point(1, 2)[1:], "byte 0 is 2, which is no byte order"),
        (struct.pack("<BIIdd", 1, 0x20000001, 4326, 1, 2), "EWKB"),
        (struct.pack("<BIdd", 1, 17, 1, 2), "0x11 is no type of WKB"),
        (struct.pack("<BII", 1, 2, 2**31), "it is cut off"),
        (struct.pack("<BII", 1, 7, 1) * 200, "it is cut off|nested too deeply"),
        (b"POINT(1 2)", "byte 0 is 80"),
        (members(4, LINE), "a multipoint has a linestring at byte 9, which DuckDB refuses"),
        (members(6, members(4)), "a multipolygon has a multipoint at byte 9"),
        (members(7, HIGH_POINT), "a geometrycollection has a point_z at byte 9"),
        (members(1007, point(1, 2)), "a geometrycollection_z has a point at byte 9"),
        (members(7, members(7, members(5, point(1, 2)))), "a multilinestring has a point at byte 27"),
        (struct.pack("<BII", 1, 7, 1) * 16 + point(1, 2), "nested too deeply"),
    ],
)
def test_what_is_no_wkb_is_refused_by_row_and_reason(lake, value, problem):
    before = lake.current_snapshot()
    given = pa.table({"id": pa.array([1, 2], pa.int64()), "g": pa.array([point(0, 0), value], pa.binary())})

    with pytest.raises(InvalidInputError, match=rf"(?s)Column g: .*row 2 .*({problem})"):
        lake.append_arrow("t", given)

    assert lake.current_snapshot() == before


def test_bytes_that_were_changed_by_chance_are_refused_or_read_equal(lake, seed, sqlite_catalog):
    draw = random.Random(seed)
    whole = struct.pack("<BII", 1, 7, 2) + point(1, 2) + struct.pack("<BIIdddd", 1, 2, 2, 0, 0, 1, 1)
    for number in range(100):
        content = bytearray(whole)
        content[draw.randrange(len(content))] = draw.randrange(256)
        given = pa.table({"id": pa.array([number], pa.int64()), "g": pa.array([bytes(content)], pa.binary())})
        try:
            lake.append_arrow("t", given)
        except InvalidInputError:
            assert first_invalid([bytes(content)]) is not None
    theirs = by_duckdb(sqlite_catalog, "SELECT id, g::VARCHAR IS NOT NULL FROM t ORDER BY id")
    assert theirs == [(row["id"], True) for row in lake.read_arrow("t").sort_by("id").to_pylist()]


def drawn(draw: random.Random, depth: int = 0, within: int = 7, dimensions: int | None = None) -> bytes:
    """Draw a geometry; one in twenty has another type or other dimensions than the one around it."""
    if dimensions is None or draw.random() < 0.05:
        dimensions = draw.choice((0, 0, 1, 2, 3))
    type_ = within - 3
    if within == 7 or draw.random() < 0.05:
        type_ = draw.randrange(1, 8 if depth < 4 else 4)
    order = draw.choice("<<>")
    coordinates = (2, 3, 3, 4)[dimensions]

    def points(count: int) -> bytes:
        numbers = (draw.choice((0.0, 1.5, -7e300, float("nan"))) for _ in range(count * coordinates))
        return struct.pack(f"{order}{count * coordinates}d", *numbers)

    def counted(parts: list[bytes]) -> bytes:
        return struct.pack(f"{order}I", len(parts)) + b"".join(parts)

    count = draw.randrange(4)
    match type_:
        case 1:
            content = points(1)
        case 2:
            content = counted([points(1) for _ in range(count)])
        case 3:
            content = counted([counted([points(1) for _ in range(4)]) for _ in range(count)])
        case _:
            content = counted([drawn(draw, depth + 1, type_, dimensions) for _ in range(count)])
    return struct.pack(f"{order}BI", order == "<", dimensions * 1000 + type_) + content


def test_what_the_reference_refuses_is_refused(seed):
    draw = random.Random(seed)
    connection = duckdb.connect()
    refused = 0
    for number in range(600):
        geometry = drawn(draw)
        theirs = takes(connection, geometry)
        refused += not theirs

        assert is_taken(geometry) == theirs, f"geometry {number}: {geometry.hex()}"
    assert refused > 20


def takes(connection: duckdb.DuckDBPyConnection, geometry: bytes) -> bool:
    try:
        connection.execute("SELECT ST_GeomFromWKB(?::BLOB)::VARCHAR", [geometry]).fetchall()
    except duckdb.InvalidInputException:
        return False
    return True


def is_taken(geometry: bytes) -> bool:
    try:
        check_geometries(pa.chunked_array([pa.array([geometry], pa.binary())]), "g")
    except InvalidInputError:
        return False
    return True


def test_a_file_of_geometries_is_added_as_the_reference_adds_it(new_catalog, tmp_path):
    ours, theirs = new_catalog("sqlite"), new_catalog("sqlite")
    with open_lake(ours, data_inlining_row_limit=0) as duckdb:
        duckdb.sql("CREATE TABLE made (id BIGINT, g GEOMETRY, l GEOMETRY[])")
        duckdb.sql("INSERT INTO made VALUES (1, 'POINT (1 2)', ['POINT Z (3 4 5)']), (2, NULL, NULL)")
    with Lake.connect(ours.sqlalchemy_url) as lake:
        (made,) = lake.table_snapshot("made", with_files=True).files
    file = shutil.copy(made.path, tmp_path / "geometries.parquet")
    for catalog in (ours, theirs):
        by_duckdb(catalog, "DROP TABLE IF EXISTS made; CREATE TABLE t (id BIGINT, g GEOMETRY, l GEOMETRY[])")
    with Lake.connect(ours.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.add_data_files("t", [str(file)])
    by_duckdb(theirs, f"CALL ducklake_add_data_files('lake', 't', '{file}')")

    found = []
    for catalog in (ours, theirs):
        with open_lake(catalog) as duckdb:
            rows_ = duckdb.sql("SELECT id, g::VARCHAR, l::VARCHAR FROM t ORDER BY id")
            found.append(
                (rows_, duckdb.sql(STATS.format("file"))[-1:], duckdb.sql(STATS.format("table"))[-1:])
            )
    assert found[0] == found[1]
    with Lake.connect(ours.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").num_rows == 2
        assert lake.verify() == []


DEFAULTS = (
    "POINT(0 1)",
    "POINT Z (0 1 2)",
    "POINT EMPTY",
    "LINESTRING EMPTY",
    "POLYGON((0 0, 1.5 1, 1 -1e300, 0 0), (0 0, .1 0, 0 .3, 0 0))",
    "MULTIPOINT M (1 2 3, (4 5 6), EMPTY)",
    "MULTIPOLYGON(((0 0, 1 1, 1 0, 0 0)), EMPTY)",
    "MULTILINESTRING ZM((1 2 3 4, 5 6 7 8))",
    "LINESTRING(inf nan, -inf 1e400)",
    "GEOMETRYCOLLECTION ZM(POINT ZM (1 2 3 4), MULTIPOINT ZM((1 2 3 4)))",
)


def test_the_reference_adds_columns_with_defaults_that_are_geometries(sqlite_catalog):
    """The catalog has them as texts, the only geometries that it has so."""
    columns = [f"g{number}" for number in range(len(DEFAULTS))]
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (1)")
        for column, value in zip(columns, DEFAULTS, strict=True):
            reference.sql(f"ALTER TABLE t ADD COLUMN {column} GEOMETRY DEFAULT '{value}'")
        (theirs,) = reference.sql(f"SELECT {', '.join(columns)} FROM t")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        (ours,) = lake.read_arrow("t", columns=columns).to_pylist()
        assert lake.verify() == []
    assert tuple(ours.values()) == theirs
