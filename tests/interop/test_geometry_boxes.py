"""Boxes of geometries that we write, by which DuckDB goes; texts of geometries as DuckDB reads them."""

import random
import struct
from collections.abc import Iterator
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.types.geometry import wkb_of_wkt
from tests.interop.lakes import alone, by_duckdb
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


@pytest.fixture
def lake(sqlite_catalog) -> Iterator[Lake]:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int32", "g": "geometry", "s": "struct(g geometry)"})
        yield lake


def copied(duckdb: DuckLakeConnection) -> DuckLakeConnection:
    """Return DuckDB with a copy of the table that has no statistics to go by."""
    duckdb.sql("CREATE OR REPLACE TEMP TABLE copied AS FROM t")
    return duckdb


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
            query = f"SELECT id FROM {{}} WHERE {where} ORDER BY id"
            assert duckdb.sql(query.format("t")) == duckdb.sql(query.format("copied")), where
    assert lake.verify(sample=1) == []
    by_duckdb(sqlite_catalog, "CALL ducklake_merge_adjacent_files('lake')")
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
def test_a_filter_that_compares_boxes_is_refused_by_name(lake, where):
    with pytest.raises(UnsupportedFeatureError, match=r"Filter on main\.t: .* has &&, .* ids that DuckDB"):
        lake.read_arrow("t", filter=where)
