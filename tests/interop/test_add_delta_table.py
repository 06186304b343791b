"""Delta tables become a lake's tables: DuckDB, deltalake and this library read the same rows."""

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, write_deltalake

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.foreign import source as metadata
from tests.interop.footers import CODEC, chunks_of, edited
from tests.interop.iceberg_source import plain
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

RECORDED = Path(__file__).parents[1] / "golden" / "delta_tables"


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        yield lake


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that copies a table that Spark wrote; a lake may delete its files."""
    return lambda name: str(shutil.copytree(RECORDED / name, tmp_path / "theirs" / name))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "theirs" / "orders")


def read_by_deltalake(folder: str, version: int | None = None) -> pa.Table:
    """Return the rows as deltalake reads them."""
    reader = QueryBuilder().register("t", DeltaTable(folder, version=version)).execute("SELECT * FROM t")
    return pa.table(reader.read_all())


@pytest.fixture
def agree(lake, sqlite_catalog):
    """Return a function that compares what deltalake reads with what DuckDB and we read of table t."""

    def check(folder: str, version: int | None = None) -> int:
        rows = read_by_deltalake(folder, version)
        read_alike(lake, sqlite_catalog, plain(rows))
        return rows.num_rows

    return check


def read_alike(lake: Lake, catalog, rows: list[str]) -> None:
    with open_lake(catalog) as duck:
        assert plain(duck.arrow("FROM t")) == rows
        assert duck.sql("SELECT count(*) FROM t") == [(len(rows),)]
    assert plain(lake.read_arrow("t")) == rows
    assert lake.verify() == []


def add(lake: Lake, source: str, **rules):
    return lake.add_table("t", source, "delta", **{"create_table": True, **rules})


def untouched(lake: Lake) -> bool:
    """Whether nothing was written: no table, no snapshot, no file."""
    folder = Path(lake.data_path)
    return lake.current_snapshot().id == 0 and not [one for one in folder.rglob("*") if one.is_file()]


def write(folder: str, **columns) -> None:
    write_deltalake(folder, pa.table(columns), mode="append")


def test_columns_of_every_type_are_created_and_read(lake, agree, folder):
    rows = {
        "b": pa.array([True, None]),
        "i8": pa.array([-128, None], pa.int8()),
        "i16": pa.array([2**15 - 1, None], pa.int16()),
        "i32": pa.array([1, None], pa.int32()),
        "i64": pa.array([2**63 - 1, None], pa.int64()),
        "f": pa.array([0.5, None], pa.float32()),
        "d": pa.array([0.25, None], pa.float64()),
        "dec": pa.array([Decimal("-1.50"), None], pa.decimal128(9, 2)),
        "day": pa.array([date(1, 1, 1), None]),
        "tz": pa.array([datetime(2024, 7, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "ts": pa.array([datetime(1969, 1, 1), None], pa.timestamp("us")),  # noqa: DTZ001 - without zone
        "s": pa.array(["é", None]),
        "bin": pa.array([b"\x00\xff", None]),
        "ls": pa.array([[1, None], None], pa.list_(pa.int64())),
        "st": pa.array([{"x": 1, "y": "z"}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])),
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
    write(folder, **rows)

    assert add(lake, folder) is not None

    assert agree(folder) == 2
    types = [str(column.type) for column in lake.table_snapshot("t").schema.columns]
    assert types == [
        *("boolean", "int8", "int16", "int32", "int64", "float32", "float64", "decimal(9,2)", "date"),
        *("timestamptz", "timestamp", "varchar", "blob", "int64[]", "struct(x int32, y varchar)"),
        "map(varchar, int64)",
    ]


def test_the_schema_of_a_new_table_is_created_too(lake, sqlite_catalog, folder):
    write(folder, i=[1, 2])

    lake.add_table("new.t", folder, "delta", create_table=True)

    assert by_duckdb(sqlite_catalog, "SELECT count(*) FROM new.t") == [(2,)]
    assert lake.current_snapshot().id == 1


def test_an_earlier_version_is_added(lake, agree, folder):
    write(folder, i=[1])
    write(folder, i=[2])
    DeltaTable(folder).delete("i = 1")

    add(lake, folder, version=1)

    assert agree(folder, version=1) == 2


def test_rows_that_deltalake_deleted_and_merged_stay_away(lake, agree, folder):
    write(folder, i=list(range(20)), s=["x"] * 20)
    DeltaTable(folder).delete("i < 5")
    DeltaTable(folder).update(updates={"s": "'new'"}, predicate="i > 15")
    DeltaTable(folder).optimize.compact()

    add(lake, folder)

    assert agree(folder) == 15


PARTITION_COLUMNS = {
    "s": pa.array(["a b/c%=é", "x", None]),
    "i": pa.array([1, -1, None], pa.int32()),
    "day": pa.array([date(2024, 2, 29), date(1, 1, 1), None]),
    "ok": pa.array([True, False, None]),
    "dec": pa.array([Decimal("1.50"), Decimal("0.01"), None], pa.decimal128(9, 2)),
    "ts": pa.array([datetime(2024, 1, 1, 10, 0, 0, 5), datetime(1969, 1, 1), None], pa.timestamp("us")),  # noqa: DTZ001
}


@pytest.mark.parametrize("name", PARTITION_COLUMNS)
def test_partition_columns_come_from_the_folders(lake, agree, folder, name):
    rows = pa.table({"id": [1, 2, 3], name: PARTITION_COLUMNS[name]})
    write_deltalake(folder, rows, partition_by=[name])

    add(lake, folder)

    assert agree(folder) == 3
    snapshot = lake.table_snapshot("t", with_files=True)
    assert [str(one.transform) for one in snapshot.partition_spec.fields] == ["identity"]
    assert len({one.partition_values for one in snapshot.files}) == 3


def test_instants_of_folders_depend_on_the_readers_zone_and_are_refused(lake, folder):
    at = pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    write_deltalake(folder, pa.table({"id": [1], "at": at}), partition_by=["at"])

    with pytest.raises(errors.UnsupportedFeatureError, match="partition column at"):
        add(lake, folder)
    assert untouched(lake)


def test_a_folder_that_says_something_else_is_not_believed(lake, folder):
    write_deltalake(folder, pa.table({"id": [1], "s": ["a"]}), partition_by=["s"])
    log = Path(folder) / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('"partitionValues":{"s":"a"}', '"partitionValues":{"s":"b"}'))

    with pytest.raises(errors.UnsupportedFeatureError, match="does not have the partition column s"):
        add(lake, folder)
    assert untouched(lake)


# Tables that Spark wrote


@pytest.mark.parametrize(
    ("name", "rows", "files"),
    [("vectors", 51, 2), ("parts", 2, 2), ("named", 3, 3), ("numbered", 2, 2), ("checkpoints", 3, 3)],
)
def test_tables_of_spark_are_added(lake, agree, recorded, name, rows, files):
    folder = recorded(name)

    added = alone(lake).add_table("t", folder, "delta", create_table=True)

    assert agree(folder) == rows == sum(file.live_count for file in added)
    assert len(added) == files


def test_a_version_before_a_vector_has_the_rows(lake, agree, recorded):
    folder = recorded("vectors")

    add(lake, folder, version=1)

    assert agree(folder, version=1) == 50


def test_rows_of_files_with_vectors_are_deleted_like_others(lake, recorded, sqlite_catalog):
    add(lake, recorded("vectors"))

    assert alone(lake).delete_rows("t", "id < 20") == 17

    assert by_duckdb(sqlite_catalog, "SELECT count(*), min(id) FROM t") == [(34, 20)]
    assert lake.verify() == []


def test_widened_columns_are_read_by_the_lake(lake, recorded, sqlite_catalog):
    """Deltalake does not read them itself."""
    add(lake, recorded("wide"))

    rows = pa.table({"id": [1, 5_000_000_000], "n": [1, 2], "f": [0.5, 0.25]})
    read_alike(lake, sqlite_catalog, plain(rows))


def test_instants_as_int96_go_into_a_timestamp_column_only(lake, recorded, sqlite_catalog):
    folder = recorded("instants")
    with pytest.raises(
        errors.SchemaMismatchError, match="at is timestamptz in the table; INT96, which is read as timestamp"
    ):
        add(lake, folder)
    assert untouched(lake)
    alone(lake).create_table("t", {"id": "int32", "at": "timestamp"})

    add(lake, folder)

    at = datetime(2024, 7, 1, 12, 0, 0, 123456)  # noqa: DTZ001 - without zone
    read_alike(lake, sqlite_catalog, plain(pa.table({"id": [1, 2], "at": [at, None]})))


# What cannot be carried over, and logs that lie


def with_protocol(folder: str, **protocol) -> None:
    """Commit another protocol, by hand."""
    version = DeltaTable(folder).version() + 1
    log = Path(folder) / "_delta_log" / f"{version:020d}.json"
    log.write_text(json.dumps({"protocol": protocol}))


def test_features_that_nobody_here_knows_are_named(lake, folder):
    write(folder, i=[1])
    with_protocol(
        folder,
        minReaderVersion=3,
        minWriterVersion=7,
        readerFeatures=["timestampNtz", "quantumRows"],
        writerFeatures=["timestampNtz", "quantumRows"],
    )

    with pytest.raises((errors.UnsupportedFeatureError, errors.StorageError), match="quantumRows"):
        add(lake, folder)
    assert untouched(lake)


def test_features_of_writers_change_no_row(lake, agree, folder):
    write_deltalake(
        folder,
        pa.table({"i": [1, 2]}),
        configuration={"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"},
        commit_properties=CommitProperties(custom_metadata={"by": "test"}),
    )
    DeltaTable(folder).alter.add_constraint({"positive": "i > 0"})

    add(lake, folder)

    assert agree(folder) == 2


def test_a_missing_file_is_named(lake, folder):
    write(folder, i=[1])
    (file,) = Path(folder).glob("*.parquet")
    file.unlink()

    with pytest.raises(errors.StorageError, match=file.name):
        add(lake, folder)
    assert untouched(lake)


def test_a_codec_that_duckdb_does_not_read_is_named(lake, folder):
    write(folder, id=[1], s=["a"])
    (file,) = Path(folder).glob("*.parquet")

    def in_lz4(footer) -> None:
        for chunk in chunks_of(footer):
            chunk[CODEC].value = 5

    file.write_bytes(edited(file.read_bytes(), in_lz4))  # of as many bytes

    with pytest.raises(
        errors.SchemaMismatchError, match="column id is compressed with LZ4, which DuckDB does not read"
    ):
        add(lake, folder, create_table=True)
    assert untouched(lake)


def test_another_file_in_its_place_is_named(lake, folder):
    write(folder, i=[1])
    (file,) = Path(folder).glob("*.parquet")
    pq.write_table(pa.table({"i": [1, 2]}), file)

    with pytest.raises(errors.InvalidInputError, match="has 2 rows, and 1 by the table's metadata"):
        add(lake, folder)
    assert untouched(lake)


def test_a_missing_vector_is_an_error(lake, recorded):
    folder = recorded("vectors")
    for path in Path(folder).glob("deletion_vector_*.bin"):
        path.unlink()

    with pytest.raises(errors.StorageError, match="Cannot read the log of"):
        add(lake, folder)
    assert untouched(lake)


@pytest.mark.parametrize("path", ["/elsewhere/a.parquet", "../a.parquet", "s3://other/a.parquet"])
def test_files_outside_the_tables_folder_are_refused(lake, folder, path):
    write(folder, i=[1])
    (name,) = [file.name for file in Path(folder).glob("*.parquet")]
    log = Path(folder) / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace(name, path))

    with pytest.raises((errors.UntrustedValueError, errors.StorageError)):
        add(lake, folder)
    assert untouched(lake)


def test_files_of_a_shallow_clone_need_a_permission(lake, agree, folder, tmp_path):
    write(folder, i=[1])
    (file,) = Path(folder).glob("*.parquet")
    other = Path(shutil.move(file, tmp_path / "with space.parquet"))
    log = Path(folder) / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace(file.name, f"file://{tmp_path}/with%20space.parquet"))

    with pytest.raises(errors.UntrustedValueError, match="allowed_paths"):
        add(lake, folder)
    assert untouched(lake)

    add(lake, folder, allowed_paths=[str(tmp_path)])
    assert agree(folder) == 1
    assert other.exists()


def test_a_table_is_not_added_twice(lake, folder):
    write(folder, i=[1])
    add(lake, folder)

    with pytest.raises(errors.InvalidInputError, match="is or was a data file of this lake"):
        add(lake, folder)


def test_sources_and_versions_that_are_none(lake, folder):
    with pytest.raises(errors.InvalidInputError, match="relative"):
        add(lake, "orders")
    with pytest.raises(errors.SourceNotFoundError, match="Delta table"):
        add(lake, folder)
    write(folder, i=[1])
    with pytest.raises(errors.InvalidInputError, match="version 7"):
        add(lake, folder, version=7)
    with pytest.raises(errors.InvalidInputError, match="snapshot_id does not go with the format delta"):
        add(lake, folder, snapshot_id=7)


# Vectors, and logs that have no end

SCHEMA = '{"type":"struct","fields":[{"name":"i","type":"long","nullable":true,"metadata":{}}]}'
WITH_VECTORS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors", "v2Checkpoint"],
    "writerFeatures": ["deletionVectors", "v2Checkpoint"],
}
ID = "ab^-aqEH.-t@S}K{vb[*k^"[2:]  # of a vector's file
ID_NAME = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def with_vector(folder: str, storage: str, text: str) -> Path:
    """Make a table of one file with a vector of one row, and return the folder of its log."""
    log = Path(folder) / "_delta_log"
    log.mkdir(parents=True)
    pq.write_table(pa.table({"i": [10, 20, 30]}), Path(folder) / "a.parquet")
    size = (Path(folder) / "a.parquet").stat().st_size
    vector = {
        "storageType": storage,
        "pathOrInlineDv": text,
        "offset": 1,
        "sizeInBytes": 34,
        "cardinality": 1,
    }
    metadata = {
        "id": "af23c9d7-fff1-4a5a-a2c8-55c59bd782aa",
        "format": {"provider": "parquet", "options": {}},
    }
    metadata |= {"schemaString": SCHEMA, "partitionColumns": [], "configuration": {}, "createdTime": 1}
    file = {
        "path": "a.parquet",
        "partitionValues": {},
        "size": size,
        "modificationTime": 1,
        "dataChange": True,
    }
    file |= {"stats": '{"numRecords":3}', "deletionVector": vector}
    actions = [{"protocol": WITH_VECTORS}, {"metaData": metadata}, {"add": file}]
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    return log


def vector_file(path: Path) -> None:
    """Write the vector that deletes the second row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    bitmap = struct.pack("<IQIIIHHIH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 1)
    content = b"\x01" + struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    path.write_bytes(content)


def test_a_vector_below_a_prefix_is_read(lake, folder):
    with_vector(folder, "u", f"aB{ID}")
    vector_file(Path(folder) / "aB" / ID_NAME)

    add(lake, folder)

    assert lake.read_arrow("t")["i"].to_pylist() == [10, 30]


def test_a_vector_that_is_no_longer_the_tables_may_be_gone(lake, folder):
    log = with_vector(folder, "u", ID)
    remove = {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": True}
    vector = json.loads((log / f"{0:020d}.json").read_text().splitlines()[2])["add"]["deletionVector"]
    (log / f"{1:020d}.json").write_text(json.dumps({"remove": remove | {"deletionVector": vector}}))

    add(lake, folder)

    assert lake.read_arrow("t").num_rows == 0


def test_a_fifo_in_the_log_ends_at_the_limit_of_time(lake, folder, monkeypatch):
    monkeypatch.setattr(metadata, "MOST_SECONDS", 5)
    write(folder, i=[1])
    os.mkfifo(Path(folder) / "_delta_log" / "_last_checkpoint")

    with pytest.raises(errors.StorageError, match=r"took more than 5 seconds.*its files are regular ones"):
        add(lake, folder)
    assert untouched(lake)


def test_a_log_that_needs_more_memory_than_the_limit_is_refused(lake, folder, monkeypatch):
    monkeypatch.setattr(metadata, "MOST_BYTES", 2**29)
    write(folder, i=[1])
    DeltaTable(folder).create_checkpoint()
    checkpoint = Path(folder) / "_delta_log" / f"{0:020d}.checkpoint.parquet"
    known = pq.read_table(checkpoint)
    is_file = known["add"].is_valid().to_pylist()
    rows = known.take([*(n for n, one in enumerate(is_file) if not one), *[is_file.index(True)] * 64])
    added = rows["add"].combine_chunks()
    one_text = pa.DictionaryArray.from_arrays(
        pa.array([0 if one.is_valid else None for one in added], pa.int32()), pa.array(["x" * 16_000_000])
    )
    names = [one.name for one in added.type]
    children = [one_text if name == "path" else added.field(name) for name in names]
    changed = pa.StructArray.from_arrays(children, names, mask=added.is_null())
    pq.write_table(rows.set_column(rows.column_names.index("add"), "add", changed), checkpoint)
    assert checkpoint.stat().st_size < 2**21

    with pytest.raises(errors.StorageError, match="needs more than 512 MiB of memory"):
        add(lake, folder)
    assert untouched(lake)


@pytest.mark.parametrize("text", ["", "wi5b=", "wi5b=000"])
def test_where_deltalake_breaks_down_is_an_error_of_ours(lake, folder, text):
    with_vector(folder, "i", text)

    with pytest.raises(errors.StorageError, match="Cannot read the log of"):
        add(lake, folder)
    assert untouched(lake)
