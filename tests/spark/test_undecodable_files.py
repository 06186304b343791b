"""Files that Spark's own reader cannot decode, or could read wrongly, through Spark's verbs."""

import base64
import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.storage.parquet.reader import naming_file
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.comparison import multiset
from tests.interop.lakes import alone, by_duckdb
from tests.interop.test_added_types import VALUES, write_int96
from tests.reference.duckdb_lake import open_lake
from tests.spark.test_codings import UNREAD


def rows_of(catalog, table="t"):
    with open_lake(catalog) as duck:
        return multiset(duck.arrow(f"FROM {table}"))


def same(session, lake, catalog):
    """Compare rows as both readers have them with the reference's."""
    expected = rows_of(catalog)
    assert multiset(lake.read_arrow("t")) == expected
    assert multiset(session.read("t").toArrow()) == expected
    return len(expected)


CODINGS = {
    "parquet_version = 2": ("parquet_version", "2", "column x is encoded as BYTE_STREAM_SPLIT"),
    "brotli": ("parquet_compression", "'brotli'", "column id is compressed with BROTLI"),
}


@pytest.mark.classic_only("makes an exception of Java")
@pytest.mark.parametrize("name", CODINGS)
def test_a_file_that_nothing_hints_at_is_named_with_the_way_out(spark, sqlite_catalog, name):
    """Another client may write so; and DuckDB removes an option of a table, since DuckLake 1.1."""
    option, value, problem = CODINGS[name]
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
        reference.sql(f"CALL lake.set_option('{option}', {value})")
        reference.sql("CREATE TABLE t (id BIGINT, x DOUBLE)")
        reference.sql("INSERT INTO t SELECT i, i / 7.0 FROM range(3000) r(i)")
    with sqlite3.connect(sqlite_catalog.location) as connection:
        connection.execute("DELETE FROM ducklake_metadata WHERE key = ?", (option,))
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session, plan = LakeSession(spark, lake), lake.scan("t")

        with pytest.raises(UnsupportedFeatureError, match=problem) as raised:
            session.sql("CREATE TABLE main.u AS SELECT sum(id + x) AS v FROM main.t")
        assert plan.files[0].path in str(raised.value)
        assert "of main.t at snapshot" in str(raised.value)
        with pytest.raises(UnsupportedFeatureError, match=problem), session.translated():
            session.read("t").collect()

        lake.set_option("parquet_version", 1, table="t")
        assert session.delete("t", "x > 400") is not None
        assert same(session, lake, sqlite_catalog) == 2801


def test_int96_of_all_years_goes_through_every_verb(spark, sqlite_catalog, tmp_path):
    path = tmp_path / "a.parquet"
    write_int96(path, VALUES * 10)
    by_duckdb(sqlite_catalog, 'CREATE TABLE t (id BIGINT, "at" TIMESTAMP)')
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session = LakeSession(spark, lake)
        alone(lake).add_data_files("t", [str(path)])

        assert same(session, lake, sqlite_catalog) == 40
        session.delete("t", "at < '1700-01-01' AND id < 20")
        assert same(session, lake, sqlite_catalog) == 35
        session.update("t", {"id": "id + 100"}, "at > '9999-01-01'")
        assert same(session, lake, sqlite_catalog) == 35
        session.rewrite_data_files("t", delete_threshold=0)
        assert same(session, lake, sqlite_catalog) == 35
        assert lake.verify() == []


@pytest.mark.parametrize("name", UNREAD)
def test_added_files_that_spark_cannot_open_are_read_by_every_reader(spark, sqlite_catalog, tmp_path, name):
    path = tmp_path / "x.parquet"
    rows = UNREAD[name][0](path)
    by_duckdb(sqlite_catalog, f"CREATE TABLE t AS FROM read_parquet('{path}') LIMIT 0")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session = LakeSession(spark, lake)
        alone(lake).add_data_files("t", [str(path)])

        assert same(session, lake, sqlite_catalog) > 0
        session.insert("u", str(path), create_table=True)
        assert lake.read_arrow("u").sort_by("x").column("x") == rows.sort_by("x").column("x")


def test_gone_rows_that_no_longer_fit_are_not_cast(spark, sqlite_catalog):
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t (id BIGINT, c INTEGER, n DECIMAL(4, 2))")
        reference.sql("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session, then = LakeSession(spark, lake), lake.current_snapshot().id
        with open_lake(sqlite_catalog) as reference:
            reference.sql("ALTER TABLE t ALTER c TYPE BIGINT")
            reference.sql("ALTER TABLE t ALTER n TYPE DECIMAL(18, 2)")
            reference.sql("INSERT INTO t SELECT i, 4611686018427387904, 12345678.25 FROM range(3, 9) r(i)")
        lake.restore("t", at=then)
        by_duckdb(
            sqlite_catalog, "CALL ducklake_flush_inlined_data('lake')", "INSERT INTO t VALUES (9, 9, 9)"
        )

        assert same(session, lake, sqlite_catalog) == 3
        session.update("t", {"c": "c + 10"}, "n >= 2")
        assert same(session, lake, sqlite_catalog) == 3
        session.delete("t", "c = 1")
        assert same(session, lake, sqlite_catalog) == 2
        before = lake.current_snapshot().id
        session.rewrite_data_files("t", delete_threshold=0)
        session.merge_adjacent_files("t")
        assert same(session, lake, sqlite_catalog) == 2
        end = lake.current_snapshot().id
        assert multiset(session.changes("t", before - 1, end).toArrow()) == multiset(
            lake.changes("t", before - 1, end).read_arrow()
        )


class Keys(pe.KmsClient):
    def __init__(self, _config):
        super().__init__()

    def wrap_key(self, key, _name):
        return base64.b64encode(key)


@pytest.mark.parametrize("option", [None, "parquet_version"])
def test_encrypted_columns_behind_a_plain_footer_do_not_end_the_process(
    spark, sqlite_catalog, tmp_path, option
):
    path, rows = tmp_path / "a.parquet", pa.table({"id": [1, 2], "x": [3.0, 4.0]})
    pq.write_table(rows, path)
    by_duckdb(sqlite_catalog, "CREATE TABLE t (id BIGINT, x DOUBLE)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        if option is not None:
            lake.set_option(option, 1)
        alone(lake).add_data_files("t", [str(path)])
        config = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["x"]}, plaintext_footer=True)
        properties = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), config)
        with pq.ParquetWriter(path, rows.schema, encryption_properties=properties) as writer:
            writer.write_table(rows)

        with pytest.raises(UnsupportedFeatureError, match="encrypted columns behind a plain footer"):
            LakeSession(spark, lake).read("t").collect()


NESTED = {
    "list": "[repeat('x', 18500)]",
    "struct": "{'a': repeat('x', 18500)}",
    "map": "MAP {i: repeat('x', 18500)}",
}


@pytest.mark.soak
@pytest.mark.parametrize("nested", NESTED)
def test_nested_text_of_more_than_2_gib_in_a_row_group(spark, sqlite_catalog, nested):
    """It needs some 5 GB of memory."""
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
        reference.sql(f"CREATE TABLE t AS SELECT i, {NESTED[nested]} AS l FROM range(122880) r(i)")
        reference.sql("DELETE FROM t WHERE i = 7")
        reference.sql("CALL lake.set_option('parquet_compression', 'brotli')")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session = LakeSession(spark, lake)
        assert lake.read_arrow("t", filter="i = 5")["i"].to_pylist() == [5]
        rows = lake.read_arrow("t")
        assert (rows.num_rows, rows.nbytes > 2**31) == (122879, True)
        del rows
        session.rewrite_data_files("t", delete_threshold=0)
        assert session.read("t").selectExpr("count(l)").first()[0] == 122879
        assert lake.verify() == []
    assert by_duckdb(sqlite_catalog, "SELECT count(l) FROM t") == [(122879,)]


def test_a_limit_of_pyarrow_is_not_called_damage(sqlite_catalog):
    """A column with more values than 32 bits count is as good a file as others."""
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
        reference.sql("CREATE TABLE t AS SELECT 1 AS i")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        (file,) = lake.scan("t").files

    for error in (
        pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs"),
        pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes"),
        pa.ArrowInvalid("offset overflow while concatenating arrays"),
        pa.ArrowMemoryError("malloc of size 4 failed"),
    ):
        with pytest.raises(UnsupportedFeatureError) as raised, naming_file(file, "main.t", 2):
            raise error
        assert file.path in str(raised.value)
        assert "backup" not in str(raised.value)
