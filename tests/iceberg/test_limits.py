"""What Iceberg does not take: its own words for each line of the guide, and that `register` refuses it."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tests.iceberg.comparing import loaded, wrong_columns
from tests.reference.duckdb_lake import open_lake

TEN = pa.table({"id": pa.array(range(10), pa.int64())})


@pytest.fixture
def reference(catalog, lake):  # noqa: ARG001 - which makes the catalog
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        yield reference


@pytest.fixture
def ten(lake):
    """A table of ten rows in one file."""
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64"})
    lake.append_arrow("t", TEN)
    return lake


def force(spark, guide, lake, table, location, *, version=2, types=None):
    """Register a table's files unchecked; `types` are Iceberg's for types that the guide leaves out."""
    plan = lake.scan(table)
    name = f"ice.db.{location.name}"
    guide.TYPES.update(types or {})
    try:
        metadata = guide.table_metadata(plan.table, [], str(location)) | {"format-version": version}
    finally:
        for one in types or {}:
            del guide.TYPES[one]
    guide.create(spark, name, metadata | ({"next-row-id": 0} if version == 3 else {}))
    target, iceberg = loaded(spark, name), spark._jvm.org.apache.iceberg
    delta = target.newRowDelta()
    for file in plan.files:
        data = guide.described(iceberg, iceberg.DataFiles.builder(target.spec()), file)
        delta = delta.addRows(data.withRecordCount(file.record_count).build())
        if file.delete_file is not None:
            deletes = iceberg.FileMetadata.deleteFileBuilder(target.spec()).ofPositionDeletes()
            deletes = guide.described(iceberg, deletes, file.delete_file).withReferencedDataFile(file.path)
            if file.delete_file.format == "puffin":
                deletes = deletes.withFormat(iceberg.FileFormat.PUFFIN).withContentOffset(0)
                deletes = deletes.withContentSizeInBytes(file.delete_file.file_size_bytes)
            delta = delta.addDeletes(deletes.withRecordCount(file.delete_file.delete_count).build())
    delta.commit()
    return spark.table(name)


def ids(frame) -> list[int]:
    return sorted(row.id for row in frame.collect())


def test_rows_and_deletes_in_the_catalog_are_refused(ten, register):
    ten.set_option("data_inlining_row_limit", 10)
    with ten.transaction() as tx:
        tx.delete_rows("t", "id = 1")

    with pytest.raises(ValueError, match="flush them first"):
        register(ten, "t")

    with ten.transaction() as tx:
        tx.create_table("few", {"id": "int64"})
    ten.append_arrow("few", TEN)
    with pytest.raises(ValueError, match="flush them first"):
        register(ten, "few")


def test_iceberg_finds_no_columns_in_the_references_delete_files(
    spark, ten, reference, register, guide, tmp_path
):
    reference.sql("DELETE FROM t WHERE id < 3")

    with pytest.raises(ValueError, match="column ids of DuckDB's delete files"):
        register(ten, "t")
    with pytest.raises(Py4JError, match="Missing required field: file_path"):
        force(spark, guide, ten, "t", tmp_path / "theirs").collect()

    with ten.transaction() as tx:
        tx.delete_rows("t", "id = 5")
    assert ids(spark.table(register(ten, "t"))) == [3, 4, 6, 7, 8, 9]


def test_iceberg_reads_deletion_vectors_by_format_version_3(spark, ten, reference, register, guide, tmp_path):
    reference.sql("CALL lake.set_option('write_deletion_vectors', true)")
    reference.sql("DELETE FROM t WHERE id < 3")

    with pytest.raises(ValueError, match="are a deletion vector"):
        register(ten, "t")

    assert ids(force(spark, guide, ten, "t", tmp_path / "vectors", version=3)) == list(range(3, 10))


def test_delete_files_need_format_version_2(spark, ten, guide, tmp_path):
    with ten.transaction() as tx:
        tx.delete_rows("t", "id = 1")

    with pytest.raises(PySparkException, match="Must use DVs for position deletes in V3"):
        force(spark, guide, ten, "t", tmp_path / "third", version=3)


def test_deletes_that_name_a_moved_file_are_refused(ten, register):
    with ten.transaction() as tx:
        tx.delete_rows("t", "id = 1")
    (file,) = ten.scan("t").files
    rows = pq.read_table(file.delete_file.path)
    moved = pa.array(["/elsewhere/data.parquet"])
    pq.write_table(rows.set_column(0, rows.schema.field(0), moved), file.delete_file.path)

    with pytest.raises(ValueError, match=r"calls .* /elsewhere/data\.parquet"):
        register(ten, "t")


def test_row_ids_and_snapshots_of_merged_files_are_icebergs(spark, ten, reference, guide, tmp_path):
    ten.append_arrow("t", pa.table({"id": pa.array([100], pa.int64())}))
    reference.sql("CALL ducklake_merge_adjacent_files('lake', 't')")

    rows = force(spark, guide, ten, "t", tmp_path / "merged", version=3)

    found = rows.select("id", "_row_id", "_last_updated_sequence_number").where("id >= 9").orderBy("id")
    changes = (
        ten.changes("t", 0, ten.current_snapshot().id).read_arrow().select(["id", "rowid", "snapshot_id"])
    )
    expected = [tuple(one.values()) for one in changes.sort_by("id").to_pylist() if one["id"] >= 9]
    assert [tuple(row) for row in found.collect()] == expected


def test_added_files_are_refused_since_they_have_no_ids(spark, lake, reference, register, guide, tmp_path):
    pq.write_table(pa.table({"b": ["x"], "a": ["y"]}), tmp_path / "added.parquet")
    reference.sql("CREATE TABLE t (a VARCHAR, b VARCHAR)")
    reference.sql(f"CALL ducklake_add_data_files('lake', 't', '{tmp_path}/added.parquet')")

    with pytest.raises(ValueError, match="was added and has no field ids"):
        register(lake, "t")

    assert force(spark, guide, lake, "t", tmp_path / "added").collect() == [("x", "y")]  # by position


def test_columns_with_a_default_that_older_files_lack_are_refused(spark, ten, register, guide, tmp_path):
    with ten.transaction() as tx:
        tx.add_column("t", "later", "varchar", default="x")

    with pytest.raises(ValueError, match="column later is missing and has a default"):
        register(ten, "t")

    assert {row.later for row in force(spark, guide, ten, "t", tmp_path / "defaults").collect()} == {None}


def test_decimals_that_got_digits_after_the_point_are_refused(spark, ten, register, guide, tmp_path):
    with ten.transaction() as tx:
        tx.create_table("money", {"amount": "decimal(9,2)"})
    ten.append_arrow("money", pa.table({"amount": pa.array([150], pa.decimal128(9, 2))}))
    with ten.transaction() as tx:
        tx.set_column_type("money", "amount", "decimal(30,4)")

    with pytest.raises(ValueError, match="column amount has 2 digits after the point"):
        register(ten, "money")

    (row,) = force(spark, guide, ten, "money", tmp_path / "money").collect()
    assert row.amount * 100 == 150


def test_dates_that_became_timestamps_are_refused(spark, lake, reference, register, guide, tmp_path):
    reference.sql("CREATE TABLE t AS SELECT DATE '2024-01-31' AS day")
    reference.sql("ALTER TABLE t ALTER day TYPE TIMESTAMP")

    with pytest.raises(ValueError, match="column day is a date"):
        register(lake, "t")
    with pytest.raises(Py4JError, match="ClassCastException"):
        force(spark, guide, lake, "t", tmp_path / "dates").collect()


def test_infinite_times_in_partitions_are_refused(spark, lake, reference, register):
    reference.sql("CREATE TABLE t (id BIGINT, day DATE)")
    reference.sql("INSERT INTO t VALUES (0, 'infinity'), (1, NULL), (2, '2024-01-31')")
    assert spark.table(register(lake, "t")).where("day > '2024-02-01'").count() == 1
    reference.sql("ALTER TABLE t SET PARTITIONED BY (year(day))")
    reference.sql("INSERT INTO t VALUES (0, 'infinity'), (1, NULL), (2, '2024-01-31')")

    with pytest.raises(ValueError, match="has infinite times"):
        register(lake, "t")


LEFT_OUT = {
    "uint8": ("UTINYINT", "255", "int", "Unsupported logical type: UINT_8"),
    "uint16": ("USMALLINT", "65535", "int", "Unsupported logical type: UINT_16"),
    "uint32": ("UINTEGER", "4294967295", "long", "UINT_?32"),
    "uint64": ("UBIGINT", "18446744073709551615", "long", "UINT_?64"),
    "time": ("TIME", "'12:30:00'", "time", "Spark does not support time fields"),
    "timestamp_ns": ("TIMESTAMP_NS", "'2024-01-31 12:30:00'", "timestamp_ns", "timestamp_ns"),
}


@pytest.mark.parametrize("type_", LEFT_OUT)
def test_columns_of_types_that_iceberg_does_not_take_are_left_out(
    type_, spark, lake, reference, register, guide, tmp_path
):
    sql_type, value, theirs, words = LEFT_OUT[type_]
    reference.sql(f"CREATE TABLE flat AS SELECT 1::BIGINT AS id, {value}::{sql_type} AS odd")
    reference.sql("CREATE TABLE nested AS SELECT ['a'] AS tags, * FROM flat")

    name = register(lake, "flat")

    assert spark.table(name).columns == ["id"]
    assert wrong_columns(spark, name, lake, "flat") == []
    if type_ == "timestamp_ns":
        assert wrong_columns(spark, register(lake, "nested"), lake, "nested") == []
    else:
        with pytest.raises(ValueError, match="row by row"):
            register(lake, "nested")
    version = 3 if type_ == "timestamp_ns" else 2
    with pytest.raises((Py4JError, PySparkException), match=words):
        force(
            spark, guide, lake, "nested", tmp_path / type_, version=version, types={type_: theirs}
        ).collect()


def test_uuids_are_bytes_for_iceberg_compares_them_wrong(spark, lake, reference, guide, tmp_path):
    reference.sql("CREATE TABLE t AS SELECT md5(range::VARCHAR)::UUID AS id FROM range(100)")
    one = spark.sql("SELECT md5('7') AS text").collect()[0].text
    dashed = f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}"

    rows = force(spark, guide, lake, "t", tmp_path / "uuids")
    assert rows.where(f"id = X'{one}'").count() == 1

    metadata = guide.TYPES["uuid"]
    guide.TYPES["uuid"] = "uuid"
    try:
        plain = force(spark, guide, lake, "t", tmp_path / "plain")
    finally:
        guide.TYPES["uuid"] = metadata
    assert plain.where(f.concat("id", f.lit("")) == dashed).count() == 1
    assert plain.where(f"id = '{dashed}'").count() == 0


BUCKETS = {
    "int8": ("TINYINT", "r::TINYINT", True),
    "int32": ("INTEGER", "r::INTEGER", True),
    "int64": ("BIGINT", "r * 1000000007", True),
    "date": ("DATE", "DATE '1960-01-01' + r::INT * 100", True),
    "timestamp": ("TIMESTAMP", "TIMESTAMP '1960-01-01' + to_seconds(r * 1000007)", True),
    "timestamptz": ("TIMESTAMPTZ", "(TIMESTAMP '1960-01-01' + to_seconds(r * 1000007))::TIMESTAMPTZ", True),
    "varchar": ("VARCHAR", "'ä' || r", True),
    "json": ("JSON", "('[' || r || ']')::JSON", True),
    "blob": ("BLOB", "encode('ä' || r)", True),
    "timestamp_s": ("TIMESTAMP_S", "(TIMESTAMP '1960-01-01' + to_seconds(r * 1000007))::TIMESTAMP_S", False),
    "timestamp_ms": (
        "TIMESTAMP_MS",
        "(TIMESTAMP '1960-01-01' + to_seconds(r * 1000007))::TIMESTAMP_MS",
        False,
    ),
    "decimal(9,2)": ("DECIMAL(9, 2)", "(r / 7)::DECIMAL(9, 2)", False),
}


@pytest.mark.parametrize("type_", BUCKETS)
def test_buckets_are_icebergs_for_some_types(type_, spark, lake, reference, register, guide):
    sql_type, value, is_alike = BUCKETS[type_]
    reference.sql(f"CREATE TABLE t (v {sql_type}); ALTER TABLE t SET PARTITIONED BY (bucket(8, v))")
    reference.sql(f"INSERT INTO t SELECT {value} FROM range(100) rows(r)")
    plan = lake.scan("t")

    rows = spark.table(register(lake, "t"))

    theirs = {tuple(row) for row in rows.selectExpr("_file", "ice.system.bucket(8, v)").distinct().collect()}
    ours = {(file.path, int(file.partition_values[0])) for file in plan.files}
    assert len(ours) == 8
    assert (theirs == ours) is is_alike
    assert (guide.partition_keys(plan.table) != []) is is_alike


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "zstd", "lz4", "lz4_raw", "brotli"])
@pytest.mark.parametrize("version", ["V1", "V2"])
def test_codecs_and_pages(codec, version, spark, lake, reference, register):
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "text": "varchar", "ok": "boolean", "at": "timestamp"})
    lake.set_option("parquet_compression", codec, table="t")
    lake.set_option("parquet_version", version, table="t")
    columns = "r AS id, 'text ' || r AS text, r % 3 = 0 AS ok, TIMESTAMP '2024-01-31' + to_days(r::INT) AS at"
    lake.append_arrow("t", reference.arrow(f"SELECT {columns} FROM range(3000) rows(r)"))

    name = register(lake, "t")

    if codec == "brotli":
        with pytest.raises(Py4JError, match="BrotliCodec was not found"):
            spark.table(name).collect()
    else:
        assert wrong_columns(spark, name, lake, "t") == []


def test_iceberg_does_not_delete_the_lakes_files(spark, ten, register):
    name = register(ten, "t")

    with pytest.raises((Py4JError, PySparkException), match="GC is disabled"):
        spark.sql(f"DROP TABLE {name} PURGE")
    with pytest.raises((Py4JError, PySparkException), match="GC is disabled"):
        spark.sql(f"CALL ice.system.expire_snapshots(table => '{name.removeprefix('ice.')}')")

    assert ids(spark.table(name)) == list(range(10))
