"""Files of old writers whose values DuckDB reads as others, or not at all, are not added."""

from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import SchemaMismatchError, UnsupportedFeatureError

VERSION, OLD_DATES, OLD_INT96 = (
    f"org.apache.spark.{one}" for one in ("version", "legacyDateTime", "legacyINT96")
)
SPARKS = {"Spark 2": {VERSION: "2.4.8"}, "Spark 3, old dates": {VERSION: "3.5.0", OLD_DATES: ""}}
FIRST = {
    "date": date(1582, 10, 15),
    "timestamp": datetime(1900, 1, 1),  # noqa: DTZ001
    "timestamptz": datetime(1900, 1, 1, tzinfo=UTC),
}
BEFORE = {
    "date": date(1582, 10, 14),
    "timestamp": datetime(1899, 12, 31),  # noqa: DTZ001
    "timestamptz": datetime(1899, 12, 31, tzinfo=UTC),
}
ARROW = {"date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC")}


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, foreign_files=True) as lake:
        yield lake


def given(folder, array, said, **options):
    rows = pa.table({"c": array}).replace_schema_metadata(said)
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    pq.write_table(rows, path, **options)
    return [str(path)]


def add(lake, type_, paths):
    with lake.transaction() as tx:
        tx.create_table("t", {"c": type_}, or_replace=True)
        tx.add_data_files("t", paths)
    return lake.read_arrow("t").num_rows


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("spark", SPARKS)
@pytest.mark.parametrize("type_", FIRST)
def test_values_of_the_old_calendar_are_not_added(lake, tmp_path, type_, spark, is_nested):
    arrow = pa.list_(ARROW[type_]) if is_nested else ARROW[type_]
    wanted = f"{type_}[]" if is_nested else type_

    def paths(value):
        values = [value, None, FIRST[type_]]
        return given(tmp_path, pa.array([values] if is_nested else values, arrow), SPARKS[spark])

    assert add(lake, wanted, paths(FIRST[type_]))
    assert add(lake, wanted, paths(None))
    with pytest.raises(
        SchemaMismatchError, match=rf"before {FIRST[type_]:%Y-%m-%d}.*insert the rows with Spark"
    ):
        add(lake, wanted, paths(BEFORE[type_]))


@pytest.mark.parametrize("said", [SPARKS["Spark 2"], {VERSION: "4.2.0", OLD_INT96: ""}])
def test_int96_of_the_old_calendar_has_its_values_read(lake, tmp_path, said):
    def paths(*values, said=said):
        array = pa.array(values, pa.timestamp("us"))
        return given(tmp_path, array, said, use_deprecated_int96_timestamps=True)

    assert add(lake, "timestamp", paths(datetime(1900, 1, 1), datetime(2024, 5, 1), None))  # noqa: DTZ001
    assert add(lake, "timestamp", paths(None))
    assert add(lake, "timestamp", paths(datetime(1, 1, 1), said={VERSION: "4.2.0"}))  # noqa: DTZ001
    with pytest.raises(SchemaMismatchError, match=r"before 1900-01-01 00:00:00 .0001-01-01"):
        add(lake, "timestamp", paths(datetime(2024, 5, 1), datetime(1, 1, 1)))  # noqa: DTZ001


@pytest.mark.parametrize("said", [{}, {VERSION: "3.5.0"}, {VERSION: "4.2.0", OLD_INT96: ""}])
def test_old_values_of_the_calendar_of_today_are_added(lake, tmp_path, said):
    for type_, value in BEFORE.items():
        assert add(lake, type_, given(tmp_path, pa.array([value], ARROW[type_]), said))


@pytest.mark.parametrize("codec", ["snappy", "zstd", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_a_wrong_flag_are_not_added(lake, tmp_path, codec, version):
    array = pa.array(range(1000), pa.int64())
    (path,) = given(tmp_path, array, None, data_page_version=version, compression=codec, use_dictionary=False)
    data = Path(path).read_bytes()
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    begin, writer = chunk.data_page_offset, pq.ParquetFile(path).metadata.created_by
    header = data[begin : begin + 40]
    if version == "2.0" and codec != "none":  # is_compressed, by the thrift of the header
        header = header.replace(b"\x15\x00\x11", b"\x15\x00\x12", 1)
        assert header != data[begin : begin + 40]
    data = data[:begin] + header + data[begin + 40 :]
    old = "parquet-cpp version 1.5.1-SNAPSHOT"[: len(writer)].ljust(len(writer), "T")
    Path(path).write_bytes(data.replace(writer.encode(), old.encode()))

    try:
        is_read = duckdb.sql(f"SELECT sum(c) FROM '{path}'").fetchall() == [(499500,)]
    except duckdb.Error:
        is_read = False
    if is_read:
        assert add(lake, "int64", [path]) == 1000
    else:
        with pytest.raises(UnsupportedFeatureError, match="its compressed pages say that they are not"):
            add(lake, "int64", [path])
    assert is_read == (version == "1.0" or codec == "none")
