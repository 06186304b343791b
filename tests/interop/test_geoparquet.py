"""Added files of GeoParquet and of GEOGRAPHY: filtered, changed and compacted by both clients, or refused."""

import struct

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.storage.parquet.modules import Items, ModuleKind, ThriftField
from tests.interop.added_types import POINTS, geo, geoparquet, logical, of
from tests.interop.comparison import multiset
from tests.interop.footers import BYTE_ARRAY, chunks_of, edited
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

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
