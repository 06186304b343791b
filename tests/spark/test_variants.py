"""Variants through every verb of Spark, which reads what DuckDB shreds and writes what DuckDB reads."""

import json

import pytest
from pyspark.sql.types import VariantType

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.interop.lakes import by_duckdb
from tests.interop.test_variants import SHREDDED, in_json
from tests.reference.duckdb_lake import open_lake
from tests.type_matrix import noted


@pytest.fixture
def lake(sqlite_catalog):
    """A table in which DuckDB shredded the variants of forty rows."""
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (i BIGINT, doc VARIANT)")
        document = "{'a': i, 'l': [i, NULL], 's': 'x' || i}::VARIANT"
        reference.sql(f"INSERT INTO t SELECT i, {document} FROM range(39) r(i)")
        reference.sql("INSERT INTO t VALUES (39, NULL)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield lake


def of_ours(lake, table="t"):
    return {row["i"]: in_json(row["doc"]) for row in lake.read_arrow(table).to_pylist()}


def of_duckdb(catalog, table="t"):
    with open_lake(catalog) as reference:
        query = f"SELECT i, CASE WHEN doc IS NULL THEN NULL ELSE doc::JSON END FROM {table}"
        return {i: text and json.loads(text) for i, text in reference.sql(query)}


def of_spark(session, table="t"):
    rows = session.read(table).selectExpr("i", "to_json(doc) AS doc").collect()
    return {row.i: row.doc and json.loads(row.doc) for row in rows}


def test_what_duckdb_shredded_is_read(session, lake, sqlite_catalog):
    rows = session.read("t")

    assert rows.schema["doc"].dataType == VariantType()
    assert of_spark(session) == of_ours(lake) == of_duckdb(sqlite_catalog)
    assert rows.where("doc IS NULL").count() == 1
    found = rows.where("variant_get(doc, '$.a', 'bigint') > 36")
    texts = found.selectExpr("variant_get(doc, '$.s', 'string') AS s").collect()
    assert {row.s for row in texts} == {"x37", "x38"}


def test_every_verb_writes_them(spark, session, lake, sqlite_catalog, record_property):
    noted(record_property, "variant", "arrow")
    documents = spark.sql("""
        SELECT id + 100 AS i, CASE WHEN id % 3 > 0
            THEN parse_json('{"a": ' || id || ', "n": {"k": [true, null]}}') END AS doc
        FROM range(30)
    """)
    session.insert("t", documents)
    session.update("t", {"doc": """parse_json('{"changed": "ü"}')"""}, "i IN (3, 39, 101)")
    session.delete("t", "variant_get(doc, '$.a', 'int') = 7")
    document = "to_variant_object(named_struct('merged', i))"
    source = spark.sql(f"SELECT i, {document} AS doc FROM VALUES (5L), (500L) r(i)")
    session.merge("t", source, ["i"], update_all=True, insert_all=True)
    session.sql("INSERT INTO t SELECT i + 1000, doc FROM t WHERE i = 6")
    where = "variant_get(doc, '$.s', 'string') = 'x8'"
    session.sql(f"INSERT INTO t SELECT 8L, parse_json('[1.5]') FROM t WHERE {where}")
    session.delete("t", "variant_get(doc, '$.a', 'int') = 8 AND i = 8")

    expected = {i: {"a": i, "l": [i, None], "s": f"x{i}"} for i in range(39) if i != 7} | {39: None}
    expected |= {100 + n: {"a": n, "n": {"k": [True, None]}} if n % 3 else None for n in range(30) if n != 7}
    expected |= {i: {"changed": "ü"} for i in (3, 39, 101)} | {8: [1.5], 1006: expected[6]}
    expected |= {5: {"merged": 5}, 500: {"merged": 500}}
    assert of_ours(lake) == expected
    assert of_duckdb(sqlite_catalog) == expected
    assert of_spark(session) == expected
    assert lake.verify() == []
    with open_lake(sqlite_catalog) as reference:
        assert reference.sql("SELECT i FROM t WHERE doc.merged = 500") == [(500,)]
        assert reference.sql("SELECT count(*) FROM t WHERE doc IS NULL") == [(10,)]


def test_a_table_is_created_of_a_variant(spark, session, lake, sqlite_catalog):
    rows = spark.sql("SELECT id AS i, parse_json('{\"a\": [' || id || ']}') AS doc FROM range(3)")

    session.insert("made", rows, create_table=True)

    assert of_ours(lake, "made") == of_duckdb(sqlite_catalog, "made") == {i: {"a": [i]} for i in range(3)}


def test_variants_in_other_columns_are_written_and_read(spark, session, lake):
    """Those that DuckDB 1.5 cannot write itself."""
    rows = spark.sql("""
        SELECT id AS i, array(parse_json('1'), parse_json('"x"')) AS l,
               named_struct('v', parse_json('{"a": 1}'), 's', 't') AS s, map('k', parse_json('[]')) AS m
        FROM range(2)
    """)
    session.insert("nested", rows, create_table=True)

    found = lake.read_arrow("nested").to_pylist()
    assert [[in_json(one) for one in row["l"]] for row in found] == [[1, "x"]] * 2
    assert [in_json(row["s"]["v"]) for row in found] == [{"a": 1}] * 2
    assert [[(key, in_json(one)) for key, one in row["m"]] for row in found] == [[("k", [])]] * 2
    read = session.read("nested").selectExpr(
        "to_json(l[1]) AS l", "to_json(s.v) AS s", "to_json(m['k']) AS m"
    )
    assert [tuple(row) for row in read.collect()] == [('"x"', '{"a":1}', "[]")] * 2


@pytest.mark.parametrize("name", SHREDDED)
def test_each_shredding_is_read_by_spark_itself_or_as_arrow_reads_it(spark, sqlite_catalog, name, capsys):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (i BIGINT, doc VARIANT)")
        reference.sql(f"INSERT INTO t SELECT i, {SHREDDED[name]} FROM range(300) r(i)")
        reference.sql("DELETE FROM t WHERE i = 299")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        rows = LakeSession(spark, lake).read("t")
        rows.explain()
        is_native = "MapInArrow" not in capsys.readouterr().out
        has_other_types = name == "types"  # a time of day and a UUID, which are none of Spark's variants

        assert is_native != has_other_types
        if has_other_types:
            assert rows.where("doc IS NOT NULL").count() == 299
            return
        assert of_spark(LakeSession(spark, lake)) == of_ours(lake)
        assert rows.where("doc IS NULL").count() == lake.read_arrow("t", filter="doc IS NULL").num_rows


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_spark_compacts_them_and_shows_their_changes(spark, sqlite_catalog, encrypted):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0, encrypted=encrypted) as reference:
        reference.sql("CREATE TABLE t (i BIGINT, doc VARIANT)")
        reference.sql("INSERT INTO t SELECT i, {'a': i, 'l': [i]}::VARIANT FROM range(40) r(i)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session = LakeSession(spark, lake)
        session.insert("t", spark.sql("SELECT 100L AS i, parse_json('{\"b\": null}') AS doc"))
        session.merge_adjacent_files("t")
        first = session.delete("t", "i = 3").id
        last = session.update("t", {"doc": "parse_json('7')"}, "i = 4").id
        session.rewrite_data_files("t", delete_threshold=0.0)

        expected = {i: {"a": i, "l": [i]} for i in range(40) if i != 3} | {4: 7, 100: {"b": None}}
        assert of_spark(session) == of_ours(lake) == expected
        found = dict(by_duckdb(sqlite_catalog, "SELECT i, doc::JSON FROM t", encrypted=encrypted))
        assert {i: json.loads(text) for i, text in found.items()} == expected
        feed = session.changes("t", first, last).selectExpr("change_type", "i", "to_json(doc)").collect()
        assert sorted(map(tuple, feed)) == [
            ("delete", 3, '{"a":3,"l":[3]}'),
            ("update_postimage", 4, "7"),
            ("update_preimage", 4, '{"a":4,"l":[4]}'),
        ]
        assert lake.verify() == []


def test_a_default_that_duckdb_gave_a_new_column_is_a_string(session, lake, sqlite_catalog):
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE d (i BIGINT); INSERT INTO d VALUES (1)")  # in the catalog
        reference.sql("CALL ducklake_flush_inlined_data('lake'); INSERT INTO d VALUES (2)")
        reference.sql("""ALTER TABLE d ADD COLUMN doc VARIANT DEFAULT '5 "é'""")
        reference.sql("INSERT INTO d (i) VALUES (3)")
        assert reference.sql("SELECT DISTINCT variant_typeof(doc), doc::VARCHAR FROM d") == [
            ("VARCHAR", '5 "é')
        ]

    wanted = dict.fromkeys([1, 2, 3], '5 "é')
    assert of_ours(lake, "d") == of_spark(session, "d") == wanted
    assert lake.read_arrow("d", filter="doc IS NULL").num_rows == 0
    assert lake.verify() == []
    lake.flush_inlined_data()
    assert of_ours(lake, "d") == wanted


@pytest.mark.parametrize("key", ["doc", "bucket(3, doc)"])
def test_a_table_that_duckdb_partitioned_by_a_variant_takes_deletes_alone(session, sqlite_catalog, key):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql(f"CREATE TABLE k (i BIGINT, doc VARIANT); ALTER TABLE k SET PARTITIONED BY ({key})")
        reference.sql("INSERT INTO k VALUES (1, 5), (2, 6)")

    with pytest.raises(UnsupportedFeatureError, match=r"main\.k cannot be written: its partition key doc"):
        session.update("k", set={"i": "i + 1"}, where="i = 1")
    session.delete("k", where="i = 1")
    assert by_duckdb(sqlite_catalog, "SELECT i FROM k") == [(2,)]
