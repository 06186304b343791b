"""``&&`` in filters: DuckDB's rows by the same text, and files left out by the boxes of their geometries."""

import random
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.spec.types.geometry import box_of_wkb, box_of_wkt, wkb_of_wkt
from airflow_provider_ducklake.lake.storage.rows.filter import matching
from airflow_provider_ducklake.lake.storage.rows.table_reader import live_rows
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

NAN, INF = float("nan"), float("inf")
SCHEMA = pa.schema([("id", pa.int32()), ("g", pa.binary()), ("s", pa.struct([("g", pa.binary())]))])
TYPES = (
    *("POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON"),
    "GEOMETRYCOLLECTION",
)
# near enough for edges to meet, and what six decimals round
OFFSETS = (0, 1, 2, 0.5, -1.5, 1e-7, 4.9e-7, -5.1e-7, 0.1, 1 / 3)


def point(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


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

    def rows(self, first: int) -> str:
        """Return a file's rows as DuckDB's VALUES."""
        place, dimensions = self.place(), self.random.choice(["", "", "", "Z", "M", "ZM"])
        cells = [
            "NULL" if self.random.random() < 0.1 else f"'{self.near(*place, dimensions)}'" for _ in range(8)
        ]
        pairs = zip(cells[::2], cells[1::2], strict=True)
        return ", ".join(
            f"({first + number}, {one}, {{'g': {two}}})" for number, (one, two) in enumerate(pairs)
        )

    def condition(self) -> str:
        column = self.random.choice(["g", "g", "g", "s.g", "(G)"])
        text = f"'{self.near(*self.place())}'"
        given = self.random.choice(
            [f"{text}::GEOMETRY", f"CAST({text} AS GEOMETRY)", f"GEOMETRY {text}", text, f"({text})", "NULL"]
        )
        sides = [column, given] if self.random.random() < 0.8 else [given, column]
        found = " && ".join(sides)
        more = self.random.choice(
            ["{}", "{}", "{}", "NOT {}", "{} AND id % 2 = 0", "{} OR g IS NULL", "NOT ({})"]
        )
        return more.format(found).replace("id % 2 = 0", "id < 40")


@pytest.fixture
def lake(sqlite_catalog) -> Iterator[Lake]:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int32", "g": "geometry", "s": "struct(g geometry)"})
        yield lake


def copied(duckdb: DuckLakeConnection) -> DuckLakeConnection:
    """Return DuckDB with a copy of the table that has no statistics to go by."""
    duckdb.sql("CREATE OR REPLACE TEMP TABLE copied AS FROM t")
    return duckdb


def test_the_rows_are_duckdbs_and_no_file_with_one_is_left_out(lake, sqlite_catalog, seed):
    drawn = Drawn(seed)
    with open_lake(sqlite_catalog) as duckdb:
        for number in range(12):
            duckdb.sql(f"INSERT INTO t SELECT * FROM (VALUES {drawn.rows(4 * number)}) v(id, g, s)")
        theirs = duckdb.arrow(
            "SELECT id + 48 AS id, ST_AsWKB(g) AS g, {'g': ST_AsWKB(s.g)} AS s FROM t ORDER BY id"
        )
    for start in range(0, theirs.num_rows, 4):
        lake.append_arrow("t", theirs.slice(start, 4))

    everything = lake.scan("t")
    of_files = [(file.id, live_rows(everything, file, lake.locate)) for file in everything.files]
    rows = pa.concat_tables(
        one.append_column("file", pa.repeat(pa.scalar(file_id), len(one))) for file_id, one in of_files
    )
    left_out = 0
    with open_lake(sqlite_catalog) as duckdb:
        copied(duckdb)
        for _ in range(120):
            where = drawn.condition()
            plan = lake.scan("t", filter=where)
            left_out += len(of_files) - len(plan.files)
            found = matching(rows, plan.where, plan.table.schema)
            assert set(found["file"].to_pylist()) <= {file.id for file in plan.files}, where
            wanted = duckdb.sql(f"SELECT id FROM copied WHERE {where} ORDER BY id")
            assert sorted(found["id"].to_pylist()) == [id_ for (id_,) in wanted], where
    assert len(of_files) == 24
    assert left_out > 500  # of 2,880


def test_only_the_files_near_a_point_are_read(lake):
    for x in range(10):
        lake.append_arrow("t", given((x, point(x, x / 10))))

    plan = lake.scan("t", filter="g && 'LINESTRING(2 0, 4 0.3000001)'::GEOMETRY")

    assert [file.record_count for file in plan.files] == [1, 1]
    assert lake.read_arrow("t", filter="g && 'LINESTRING(2 0, 4 0.3)'")["id"].to_pylist() == [2, 3]
    (together,) = lake.maintenance.plan_merge("t", filter="g && 'LINESTRING(2 0, 4 0.3)'").bins
    assert [one.row_id_start for one in together.files] == [2, 3]
    assert lake.scan("t", filter="s.g && 'POINT(1 1)'").files == ()
    assert lake.scan("t", filter="g && 'POLYGON EMPTY' OR NOT g && NULL").files == ()


def test_values_that_the_catalog_rounds_away_from_are_found(lake, sqlite_catalog):
    """DuckDB's own lake loses these rows: its statistics of the table are rounded, too."""
    places = [(0.0000004, 5.0), (-0.00000049999, 5.0), (123456.1234567, 5.0)]
    with open_lake(sqlite_catalog) as duckdb:
        for number, (x, y) in enumerate(places):
            duckdb.sql(f"INSERT INTO t VALUES ({number}, 'POINT({x!r} {y})', NULL)")
        copied(duckdb)
        for number, (x, y) in enumerate(places):
            where = f"g && 'POINT({x!r} {y})'::GEOMETRY"
            assert lake.read_arrow("t", filter=where)["id"].to_pylist() == [number]
            assert duckdb.sql(f"SELECT id FROM copied WHERE {where}") == [(number,)]


def test_duckdb_finds_what_we_wrote_at_the_edges_of_a_box(lake, sqlite_catalog):
    """Sides are rounded outward, and no commit rounds those of the one before again."""
    places = [(0.0000004, -5e-7), (-0.00000049999, 8.4123456), (123456.1234567, 2.0**33 + 0.1), (1e22, -7.7)]
    texts = []
    for number, place in enumerate(places):
        lake.append_arrow("t", given((number, point(*place))))
        with open_lake(sqlite_catalog) as duckdb:
            for found in range(number + 1):
                where = "g && 'POINT({!r} {!r})'::GEOMETRY".format(*places[found])
                assert duckdb.sql(f"SELECT id FROM t WHERE {where}") == [(found,)]
                assert lake.read_arrow("t", filter=where)["id"].to_pylist() == [found]
    for _ in range(3):
        lake.append_arrow("t", given((9, point(1, 1))))
        with open_lake(sqlite_catalog) as duckdb:
            table = "__ducklake_metadata_lake.ducklake_table_column_stats"
            texts += duckdb.sql(f"SELECT extra_stats FROM {table} WHERE column_id = 2")
    assert len(set(texts)) == 1
    assert lake.verify(sample=1) == []


@pytest.mark.parametrize("dimension", [0, 1])
def test_files_with_a_nan_or_an_infinity_have_no_box(lake, sqlite_catalog, dimension):
    odd = [NAN, INF, -INF]
    vertices = [[one, 12.0] if dimension == 0 else [12.0, one] for one in odd]
    values = [*(point(*one) for one in vertices), *(line(*one, 3, 3) for one in vertices)]
    for number, value in enumerate(values):
        lake.append_arrow("t", given((number, value), (number + 10, point(10, 10))))

    files = lake.table_snapshot("t", with_files=True).files
    assert [file.column_stats[2].extra_stats for file in files] == [None] * len(values)
    with open_lake(sqlite_catalog) as duckdb:
        copied(duckdb)
        for where in ("g && 'POINT(12 12)'", "NOT g && 'POINT(12 12)'", "g && 'LINESTRING(500 -9, 600 99)'"):
            theirs = duckdb.sql(f"SELECT id FROM copied WHERE {where} ORDER BY id")
            assert sorted(lake.read_arrow("t", filter=where)["id"].to_pylist()) == [id_ for (id_,) in theirs]
    assert lake.verify(sample=1) == []
    with open_lake(sqlite_catalog) as duckdb:
        duckdb.sql("CALL ducklake_merge_adjacent_files('lake')")
    assert lake.read_arrow("t").num_rows == 2 * len(values)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_duckdb_finds_rows_with_a_nan_beside_a_file_with_a_box(lake, sqlite_catalog, order):
    values = [(0, line(NAN, 0, 3, 4)), (1, point(1, 1))]
    for number in order:
        lake.append_arrow("t", given(values[number]))
    with open_lake(sqlite_catalog) as duckdb:
        duckdb.sql("INSERT INTO t VALUES (2, 'POINT(2 2)', NULL)")
        copied(duckdb)
        for place in ("POINT(3 4)", "POINT(1 1)", "POINT(2 2)", "LINESTRING(0 0, 9 9)"):
            query = f"SELECT id FROM {{}} WHERE g && '{place}'::GEOMETRY ORDER BY id"
            assert duckdb.sql(query.format("t")) == duckdb.sql(query.format("copied")), place
    assert lake.verify() == []


def test_vertices_count_as_duckdb_counts_them(seed):
    """A NaN takes the place of what was before it; a point of NaNs only is empty, a vertex of them is not."""
    draw, values = random.Random(seed), [NAN, NAN, 0.0, 1.0, 2.0, -1.0, INF, -INF]
    with closing(duckdb.connect()) as reference:
        for _ in range(500):
            vertices = [draw.choice(values) for _ in range(2 * draw.randint(1, 4))]
            points = b"".join(point(*vertices[at : at + 2]) for at in range(0, len(vertices), 2))
            value = draw.choice(
                [
                    point(*vertices[:2]),
                    line(*vertices),
                    struct.pack("<BII", 1, 4, len(vertices) // 2) + points,
                    struct.pack(f">BII{len(vertices)}d", 0, 2, len(vertices) // 2, *vertices),
                ]
            )
            x, y = draw.choice([0.0, 1.0, 9.0]), draw.choice([-5.0, 0.0, 2.0])
            text = f"LINESTRING ({x} {y}, 3 3)"
            ours, other = box_of_wkb(value), box_of_wkt(text)
            ((theirs,),) = reference.execute(
                "SELECT ST_GeomFromWKB(?) && CAST(? AS GEOMETRY)", [value, text]
            ).fetchall()
            assert (ours is not None and ours.meets(other)) == theirs, (value, text)


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
                ours, box = wkb_of_wkt(text), box_of_wkt(text)
            except ValueError:
                continue
            read += 1
            ((wkb,),) = reference.execute("SELECT ST_AsWKB(CAST(? AS GEOMETRY))", [text]).fetchall()
            assert ours == wkb, text
            assert box_of_wkb(wkb) == box, text
    assert read > 150


BOX = """{{"bbox": {{"xmin": {}, "xmax": {}, "ymin": 0.0, "ymax": 0.0, "zmin": null, "zmax": null,
"mmin": null, "mmax": null}}, "types": ["point"]}}"""
ODD_SIDES = (
    *(("null", "null"), ("5.0", "4.0"), ("NaN", "4.0"), ("-inf", "inf"), ("0", "1" + "0" * 400)),
    *(('"a"', "4.0"), ("null", "4.0"), ("[]", "{}")),
)
ODD_TEXTS = (
    *(None, "", "x", "{}", "[]", "9" * 5000, "[" * 100_000, '{"bbox": null, "types": null}'),
    *('{"bbox": 1, "types": []}', '{"bbox": {}, "types": ["point"]}'),
)


def test_odd_boxes_leave_no_file_out(lake, sqlite_catalog):
    lake.append_arrow("t", given((1, point(9, 9))))
    with closing(sqlite3.connect(sqlite_catalog.location, isolation_level=None)) as catalog:
        for text in (*ODD_TEXTS, *(BOX.format(*sides) for sides in ODD_SIDES)):
            catalog.execute(
                "UPDATE ducklake_file_column_stats SET extra_stats = ? WHERE column_id = 2", [text]
            )
            assert lake.read_arrow("t", filter="g && 'POINT(9 9)'")["id"].to_pylist() == [1], text
        catalog.execute(
            "UPDATE ducklake_file_column_stats SET extra_stats = ? WHERE column_id = 2", [BOX.format(1, 2)]
        )
        assert lake.read_arrow("t", filter="g && 'POINT(9 9)'").num_rows == 0


def test_rows_are_deleted_and_replaced_by_the_text_that_duckdb_takes(lake, new_catalog):
    where = "g && 'POLYGON((1 1, 5 1, 5 5, 1 5, 1 1))'::GEOMETRY AND id <> 4"
    theirs = new_catalog("sqlite")
    values = ", ".join(f"({x}, 'POINT({x} {x})'::GEOMETRY, NULL)" for x in range(8))
    with open_lake(theirs) as duckdb:
        duckdb.sql("CREATE TABLE t (id INTEGER, g GEOMETRY, s STRUCT(g GEOMETRY))")
        duckdb.sql(f"INSERT INTO t VALUES {values}")
        copy = duckdb.arrow("SELECT id, ST_AsWKB(g) AS g, {'g': NULL::BLOB} AS s FROM t")
        duckdb.sql(f"DELETE FROM t WHERE {where}")
        wanted = duckdb.sql("SELECT id FROM t ORDER BY id")
    lake.append_arrow("t", copy)

    with lake.transaction() as tx:
        assert tx.delete_rows("t", where) == 4

    assert [(id_,) for id_ in lake.read_arrow("t")["id"].to_pylist()] == wanted


def test_a_file_whose_value_is_no_geometry_says_so(lake):
    lake.set_option("parquet_compression", "uncompressed")
    lake.append_arrow("t", given((1, line(1, 2, 3, 4))))
    (file,) = lake.table_snapshot("t", with_files=True).files
    path = Path(file.path)
    path.write_bytes(path.read_bytes().replace(line(1, 2, 3, 4), b"\x07" + line(1, 2, 3, 4)[1:]))

    with pytest.raises(StorageError, match="no geometry in WKB: byte 0 is 7"):
        lake.read_arrow("t", filter="g && 'LINESTRING(1 2, 3 4)'")
