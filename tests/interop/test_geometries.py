"""Geometries: written as the reference writes them, changed by both clients, refused where they are none."""

import random
import shutil
import struct
from collections.abc import Iterator
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.types.geometry import GeometryStats, wkb_of_wkt
from airflow_provider_ducklake.lake.storage.nested_values.geometries import check_geometries, first_invalid
from airflow_provider_ducklake.lake.storage.parquet.modules import Items, ModuleKind, ThriftField
from tests.interop.added_types import POINTS, geo, geoparquet, logical, of
from tests.interop.comparison import multiset
from tests.interop.footers import BYTE_ARRAY, chunks_of, edited
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

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


# Boxes of geometries that we write, by which DuckDB goes; texts of geometries as DuckDB reads them.


NAN, INF = float("nan"), float("inf")
SCHEMA = pa.schema([("id", pa.int32()), ("g", pa.binary()), ("s", pa.struct([("g", pa.binary())]))])
TYPES = (
    *("POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON"),
    "GEOMETRYCOLLECTION",
)
# near enough for edges to meet, and what six decimals round
OFFSETS = (0, 1, 2, 0.5, -1.5, 1e-7, 4.9e-7, -5.1e-7, 0.1, 1 / 3)


def line(*vertices: float) -> bytes:
    return struct.pack(f"<BII{len(vertices)}d", 1, 2, len(vertices) // 2, *vertices)


def given(*rows: tuple[int, bytes]) -> pa.Table:
    return pa.Table.from_pylist([{"id": id_, "g": value, "s": None} for id_, value in rows], SCHEMA)


class Drawn:
    """Geometries as text, those of a file near to each other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def near(self, x: float, y: float, dimensions: str = "") -> str:
        type_ = self.random.choice(TYPES)
        if self.random.random() < 0.1:
            return f"{type_} {dimensions} EMPTY"
        return f"{type_} {dimensions} {self._body(type_, x, y, dimensions)}"

    def _body(self, type_: str, x: float, y: float, dimensions: str) -> str:
        def vertex() -> str:
            more = " 7" * len(dimensions)
            return f"{x + self.random.choice(OFFSETS)!r} {y + self.random.choice(OFFSETS)!r}{more}"

        def several(one) -> str:
            return f"({', '.join(one() for _ in range(self.random.randint(1, 3)))})"

        def ring() -> str:
            return several(vertex)

        parts = {
            "POINT": lambda: f"({vertex()})",
            "LINESTRING": ring,
            "POLYGON": lambda: several(ring),
            "MULTIPOINT": lambda: several(lambda: self.random.choice([vertex(), f"({vertex()})", "EMPTY"])),
            "MULTILINESTRING": lambda: several(lambda: self.random.choice([ring(), "EMPTY"])),
            "MULTIPOLYGON": lambda: several(lambda: self.random.choice([several(ring), "EMPTY"])),
            "GEOMETRYCOLLECTION": lambda: several(lambda: self.near(x, y, dimensions)),
        }
        return parts[type_]()

    def place(self) -> tuple[float, float]:
        return self.random.choice([0.0, 3.0, -40.0, 1e6]), self.random.choice([0.0, 3.0, 1e-6])


@pytest.fixture
def boxes(sqlite_catalog) -> Iterator[Lake]:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as boxes:
        alone(boxes).create_table("t", {"id": "int32", "g": "geometry", "s": "struct(g geometry)"})
        yield boxes


def copied(duckdb: DuckLakeConnection) -> DuckLakeConnection:
    """Return DuckDB with a copy of the table that has no statistics to go by."""
    duckdb.sql("CREATE OR REPLACE TEMP TABLE copied AS FROM t")
    return duckdb


def test_duckdb_finds_what_we_wrote_at_the_edges_of_a_box(boxes, sqlite_catalog):
    """Sides are rounded outward, and no commit rounds those of the one before again."""
    places = [(0.0000004, -5e-7), (-0.00000049999, 8.4123456), (123456.1234567, 2.0**33 + 0.1), (1e22, -7.7)]
    texts = []
    for number, place in enumerate(places):
        boxes.append_arrow("t", given((number, point(*place))))
        with open_lake(sqlite_catalog) as duckdb:
            for found in range(number + 1):
                where = "g && 'POINT({!r} {!r})'::GEOMETRY".format(*places[found])
                assert duckdb.sql(f"SELECT id FROM t WHERE {where}") == [(found,)]
    for _ in range(3):
        boxes.append_arrow("t", given((9, point(1, 1))))
        with open_lake(sqlite_catalog) as duckdb:
            table = "__ducklake_metadata_lake.ducklake_table_column_stats"
            texts += duckdb.sql(f"SELECT extra_stats FROM {table} WHERE column_id = 2")
    assert len(set(texts)) == 1
    assert boxes.verify(sample=1) == []


@pytest.mark.parametrize("dimension", [0, 1])
def test_files_with_a_nan_or_an_infinity_have_no_box(boxes, sqlite_catalog, dimension):
    odd = [NAN, INF, -INF]
    vertices = [[one, 12.0] if dimension == 0 else [12.0, one] for one in odd]
    values = [*(point(*one) for one in vertices), *(line(*one, 3, 3) for one in vertices)]
    for number, value in enumerate(values):
        boxes.append_arrow("t", given((number, value), (number + 10, point(10, 10))))

    files = boxes.table_snapshot("t", with_files=True).files
    assert [file.column_stats[2].extra_stats for file in files] == [None] * len(values)
    with open_lake(sqlite_catalog) as duckdb:
        copied(duckdb)
        for where in ("g && 'POINT(12 12)'", "NOT g && 'POINT(12 12)'", "g && 'LINESTRING(500 -9, 600 99)'"):
            query = f"SELECT id FROM {{}} WHERE {where} ORDER BY id"
            assert duckdb.sql(query.format("t")) == duckdb.sql(query.format("copied")), where
    assert boxes.verify(sample=1) == []
    by_duckdb(sqlite_catalog, "CALL ducklake_merge_adjacent_files('lake')")
    assert boxes.read_arrow("t").num_rows == 2 * len(values)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_duckdb_finds_rows_with_a_nan_beside_a_file_with_a_box(boxes, sqlite_catalog, order):
    values = [(0, line(NAN, 0, 3, 4)), (1, point(1, 1))]
    for number in order:
        boxes.append_arrow("t", given(values[number]))
    with open_lake(sqlite_catalog) as duckdb:
        duckdb.sql("INSERT INTO t VALUES (2, 'POINT(2 2)', NULL)")
        copied(duckdb)
        for place in ("POINT(3 4)", "POINT(1 1)", "POINT(2 2)", "LINESTRING(0 0, 9 9)"):
            query = f"SELECT id FROM {{}} WHERE g && '{place}'::GEOMETRY ORDER BY id"
            assert duckdb.sql(query.format("t")) == duckdb.sql(query.format("copied")), place
    assert boxes.verify() == []


def test_a_text_that_is_read_is_the_same_geometry_for_duckdb(seed):
    drawn = Drawn(seed)
    pieces = ["(", ")", ",", " ", "1", "-2.5", ".5", "1e3", "+", "EMPTY", "POINT", "Z", "nan", "\n", ";", ""]
    read = 0
    with closing(duckdb.connect()) as reference:
        for _ in range(600):
            text = drawn.near(*drawn.place())
            if drawn.random.random() < 0.7:
                at = drawn.random.randrange(len(text))
                text = text[:at] + drawn.random.choice(pieces) + text[at + drawn.random.randint(0, 2) :]
            try:
                ours = wkb_of_wkt(text)
            except ValueError:
                continue
            read += 1
            ((wkb,),) = reference.execute("SELECT ST_AsWKB(CAST(? AS GEOMETRY))", [text]).fetchall()
            assert ours == wkb, text
    assert read > 150


@pytest.mark.parametrize("where", ["g && 'POINT(1 2)'::GEOMETRY", "id = 1 OR NOT 'POINT(1 2)' && s.g"])
def test_a_filter_that_compares_boxes_is_refused_by_name(boxes, where):
    with pytest.raises(UnsupportedFeatureError, match=r"Filter on main\.t: .* has &&, .* ids that DuckDB"):
        boxes.read_arrow("t", filter=where)


# Added files of GeoParquet and of GEOGRAPHY: filtered, changed and compacted by both clients, or refused.


GEOMETRY, GEOGRAPHY = 17, 18  # of LogicalType
GEO_STATISTICS = 17  # of ColumnMetaData
COUNT = "SELECT count(*) FROM t WHERE a && 'POINT({0} {0})'::GEOMETRY"


def added(catalog, folder, *files: bytes) -> None:
    by_duckdb(catalog, "CREATE TABLE t (a GEOMETRY)")
    paths = [folder / f"{place}.parquet" for place in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    with Lake.connect(catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.add_data_files("t", [str(path) for path in paths])


def of_type(number: int, box: tuple[float, ...] = ()) -> bytes:
    """Return a file of points of a logical type, whose footer has a box around them."""
    data = of(POINTS, pa.binary(), BYTE_ARRAY, logical=logical(number))

    def change(footer) -> None:
        sides = {
            place: ThriftField(ModuleKind.DOUBLE, struct.pack("<d", side))
            for place, side in enumerate(box, 1)
        }
        types = ThriftField(ModuleKind.LIST, Items(ModuleKind.I32, [1]))
        for chunk in chunks_of(footer):
            chunk[GEO_STATISTICS] = ThriftField(
                ModuleKind.STRUCT, {1: ThriftField(ModuleKind.STRUCT, sides), 2: types}
            )

    return edited(data, change) if box else data


WRAPPED = (170, -170, 0, 10)


@pytest.mark.parametrize(
    "data",
    [
        geoparquet(geo(bbox=[90, 90, 91, 91])),
        of_type(GEOGRAPHY),
        of_type(GEOGRAPHY, WRAPPED),
        of_type(GEOGRAPHY, (0, 6, 0, 6)),
        of_type(GEOMETRY, WRAPPED),
    ],
)
def test_filters_lose_no_geometry_beside_what_has_a_box(sqlite_catalog, tmp_path, data):
    added(sqlite_catalog, tmp_path, data)
    by_duckdb(sqlite_catalog, *(f"INSERT INTO t VALUES ('POINT({x} {x})'::GEOMETRY)" for x in (100, 200)))

    for _ in range(2):
        with open_lake(sqlite_catalog) as duck:
            for place, count in ((1, 1), (5, 1), (3, 0), (100, 1)):
                assert duck.sql(COUNT.format(place)) == [(count,)]
            duck.sql("CALL ducklake_merge_adjacent_files('lake')")


@pytest.mark.parametrize("data", [geoparquet(geo(), [*POINTS, None]), of_type(GEOGRAPHY)])
def test_rows_stay_through_deletes_and_compactions_of_duckdb(sqlite_catalog, tmp_path, data):
    added(sqlite_catalog, tmp_path, data, data)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with open_lake(sqlite_catalog) as duck:
            duck.sql("DELETE FROM t WHERE a && 'POINT(5 5)'::GEOMETRY")
            assert duck.sql("SELECT a::VARCHAR FROM t WHERE a IS NOT NULL") == [("POINT (1 1)",)] * 2
            duck.sql("UPDATE t SET a = 'POINT(7 7)'::GEOMETRY WHERE rowid = 0")
            expected = multiset(duck.arrow("FROM t"))
            duck.sql("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
            duck.sql("CALL ducklake_merge_adjacent_files('lake')")
            duck.sql("CHECKPOINT")
            assert multiset(duck.arrow("FROM t")) == expected
        assert multiset(lake.read_arrow("t")) == expected
        assert lake.verify() == []


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ([], "is no object"),
        ({"version": "3.0.0", "columns": {}}, r"is of version 3\.0\.0"),
        ({"schema_version": "0.1.0", "columns": {}}, "is of version None"),
        ({"version": "1.0.0"}, "has no columns"),
        ({"version": "1.0.0", "columns": {"a": 1}}, "has no object for column a"),
        (geo(encoding="WKT"), "has the encoding 'WKT' for column a"),
        (geo(encoding=[]), r"has the encoding \[\] for column a"),
        (geo(geometry_types=None), "has no geometry_types for column a"),
        (geo(crs="EPSG:4326"), "has a crs for column a"),
    ],
)
def test_metadata_over_which_duckdb_refuses_the_file_is_refused(sqlite_catalog, tmp_path, said, problem):
    path = tmp_path / "file.parquet"
    path.write_bytes(geoparquet(said))
    with duckdb.connect() as duck, pytest.raises(duckdb.Error, match="Geoparquet"):
        duck.execute(f"SELECT count(a) FROM '{path}'")

    with pytest.raises(UnsupportedFeatureError, match=f"0.parquet: GeoParquet's metadata {problem}"):
        added(sqlite_catalog, tmp_path, geoparquet(said))


@pytest.mark.parametrize("said", ["no json", '{"version": NaN}'])
def test_metadata_that_is_no_json_is_passed_over(sqlite_catalog, tmp_path, said):
    path = tmp_path / "file.parquet"
    path.write_bytes(geoparquet(said))
    with open_lake(sqlite_catalog) as duck, Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        duck.sql("CREATE TABLE t (a BLOB)")
        alone(lake).add_data_files("t", [str(path)])
        assert multiset(lake.read_arrow("t")) == multiset(duck.arrow("FROM t"))
