"""Columns of VARIANT: inlined at 1.1 as bytes, in files; read as metadata and value."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal
from sqlalchemy import NullPool, create_engine, text

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.types.variants import Instant, decode_variant
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.lakes import alone
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_core import open_core
from tests.reference.duckdb_lake import open_lake

DOCUMENTS = (
    "5",
    "null",  # which DuckDB makes NULL
    '{"b": 1, "a": ["x", -2]}',
    "[]",
    "{}",
    "true",
    "1.5",
    '"' + "long " * 30 + '"',
    '{"": {"": [[[null]]]}}',
    '{"é": "ü", "z": 12345678901234}',
)
MANY_FIELDS = "{" + ", ".join(f'"field {n}": {n}' for n in range(300)) + "}"  # whose offsets take two bytes
VALUES = [5, "NULL", {"b": 1, "a": ["x", -2]}, [], {}, True, 1.5, "long " * 30, {"": {"": [[[None]]]}}]
VALUES += [{"é": "ü", "z": 12345678901234}, {f"field {n}": n for n in range(300)}]


@pytest.fixture
def variants(catalog):
    """A lake of 1.1 in which ducklakepy inlined a row for each of `VALUES`, with ids from 0, and a NULL."""
    with ducklakepy_lake.open_lake(catalog) as theirs, open_core() as core:
        theirs.set_option("data_inlining_row_limit", 100)
        theirs.create_table("t", {"id": "int64", "doc": "variant"})
        rows = ", ".join(f"({n}, '{document}')" for n, document in enumerate((*DOCUMENTS, MANY_FIELDS)))
        query = "SELECT id::BIGINT AS id, document::JSON::VARIANT AS doc FROM (VALUES {}) r(id, document)"
        theirs.insert("t", core.arrow(query.format(f"{rows}, (100, NULL)")))
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        yield lake


def python_values(rows: pa.Table) -> dict[int, object]:
    """Return the value of each row by its id; NULL is the text `NULL`."""
    return {
        row["id"]: "NULL"
        if row["doc"] is None
        else VariantVal(row["doc"]["value"], row["doc"]["metadata"]).toPython()
        for row in rows.select(["id", "doc"]).to_pylist()
    }


def test_inlined_variants_are_read(variants):
    assert python_values(variants.read_arrow("t")) == dict(enumerate(VALUES)) | {100: "NULL"}
    assert variants.read_arrow("t").schema.field("doc").type == pa.struct(
        [("metadata", pa.binary()), ("value", pa.binary())]
    )


def test_they_are_read_at_every_snapshot_and_in_the_change_feed(variants, catalog):
    before = variants.current_snapshot().id
    with ducklakepy_lake.open_lake(catalog) as theirs:
        theirs.delete("t", "id < 9")
        theirs.add_column("t", "late", "varchar", default="x")
    feed = variants.changes("t", before, variants.current_snapshot().id).read_arrow()
    then, now = (python_values(variants.read_arrow("t", at=at)) for at in (before, None))

    assert now == {9: VALUES[9], 10: VALUES[10], 100: "NULL"}
    assert then == dict(enumerate(VALUES)) | {100: "NULL"}
    kinds = feed["change_type"].to_pylist()
    assert (kinds.count("insert"), kinds.count("delete")) == (len(VALUES) + 1, 9)
    deleted = feed.filter(pa.compute.equal(feed["change_type"], "delete"))
    assert python_values(deleted) == dict(enumerate(VALUES[:9]))
    codes = {finding.code for finding in variants.verify()}
    assert codes == {FindingCode.FILE_COUNTER_STOOD}  # of ducklakepy, whose snapshots leave it


def test_what_duckdb_inlines_in_its_own_file_is_read_and_flushed(tmp_path):
    catalog = file_catalog("duckdb", tmp_path)
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t (i INTEGER, v VARIANT)")
        reference.sql("CREATE TABLE u (i INTEGER, v STRUCT(v VARIANT))")
        document = "{'a': i, 'd': DATE '2020-01-01' + i::INT, 'l': [i, NULL], 'é': 'ü'}"
        reference.sql(f"INSERT INTO t SELECT i, ({document})::VARIANT FROM range(4) r(i)")
        reference.sql("INSERT INTO t VALUES (4, NULL), (5, 5::VARIANT)")
        reference.sql("INSERT INTO u VALUES (1, {'v': 5::VARIANT})")
        assert reference.sql("SELECT count(*) FROM __ducklake_metadata_lake.ducklake_data_file") == [(0,)]
        expected = dict(reference.sql("SELECT i, v::VARCHAR FROM t"))

    def ours(lake):
        rows = lake.read_arrow("t").to_pylist()
        return {row["i"]: in_json(row["v"]) for row in rows}

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        before = ours(lake)
        assert before[3] == {"a": 3, "d": "2020-01-04", "l": [3, None], "é": "ü"}
        assert (before[4], before[5]) == (None, 5)
        with pytest.raises(errors.UnsupportedFeatureError, match="Variants inside struct"):
            lake.read_arrow("u")
        assert lake.read_arrow("u", columns=["i"]).to_pylist() == [{"i": 1}]
        lake.flush_inlined_data("t")
        assert ours(lake) == before
    with open_lake(catalog) as reference:
        assert dict(reference.sql("SELECT i, v::VARCHAR FROM t")) == expected
        assert reference.sql("SELECT count(*) FROM __ducklake_metadata_lake.ducklake_data_file") == [(1,)]


@pytest.mark.parametrize(
    ("bytes_", "problem"),
    [
        (b"", "version 1"),
        (b"\x02\x00\x00\x00", "version 1"),
        (b"\x01", "cut off"),
        (b"\x01\x00\x00", "cut off"),
        (b"\xc1\xff\xff\xff\x7f\x00", "cut off"),
        (b"\x01\x01\x00\xff\x61\x00", "cut off"),
    ],
    ids=["empty", "version", "header", "no value", "names", "offset"],
)
def test_damaged_bytes_are_named(variants, catalog, bytes_, problem):
    (registered,) = dump_catalog(catalog)["ducklake_inlined_data_tables"]
    with create_engine(catalog.sqlalchemy_url, poolclass=NullPool).begin() as connection:
        damage = text(f"UPDATE {registered['table_name']} SET doc = :doc WHERE id = 3")
        connection.execute(damage, {"doc": bytes_})

    with pytest.raises(errors.CatalogError, match=rf"does not fit column doc \(variant\): .*{problem}"):
        variants.read_arrow("t")
    assert variants.read_arrow("t", columns=["id"]).num_rows == len(VALUES) + 1


SHREDDED = {
    "objects": "{'a': i, 's': 'text ' || i, 'n': {'d': DATE '2020-01-01' + i::INT, 'f': i * 0.5}}::VARIANT",
    "arrays": "{'l': range(i % 5), 'o': [{'k': i, 'v': 'x' || i}, {'k': i * 2, 'v': NULL}]}::VARIANT",
    "partly shredded": """
        ('{"a": ' || i || ', "rare ' || i || '": [' || i || ', null, {"x": true}]}')::JSON::VARIANT
        """,
    "mixed": """
        CASE i % 4 WHEN 0 THEN i::VARIANT WHEN 1 THEN repeat('s', i::INT)::VARIANT WHEN 2 THEN [i]::VARIANT
        END
        """,
    "nulls": "NULL::VARIANT",
    "fields that are null": "{'a': CASE WHEN i % 2 = 0 THEN i END, 'b': NULL}::VARIANT",
    "missing fields": """
        CASE i % 3 WHEN 0 THEN '{"a": 1, "b": "x"}' WHEN 1 THEN '{"b": "y"}' ELSE '{}' END::JSON::VARIANT
        """,
    "types": """
        {'bo': i % 2 = 0, 'i1': (i % 100)::TINYINT, 'i2': i::SMALLINT, 'i4': i::INT, 'i8': i,
         'u8': i::UBIGINT, 'f': (i / 4)::FLOAT, 'd': i / 3::DOUBLE, 'de': (i / 4)::DECIMAL(5,2),
         'd18': (i / 4)::DECIMAL(18,2), 'd38': (i / 4)::DECIMAL(38,2), 'da': DATE '1969-12-01' + i::INT,
         'ti': TIME '01:02:03.5', 'ts': TIMESTAMP '2020-01-01 01:02:03.456',
         'u': '00000000-0000-0000-0000-0000000000ff'::UUID, 's': repeat('é', i::INT), 'nn': NULL}::VARIANT
        """,
    "names": """
        ('{"' || repeat('long', (i % 90 + 1)::INT) || '": 1, "A b.c": {"é": [[[null]]]}}')::JSON::VARIANT
        """,
}
INSTANTS = """
    {'z': TIMESTAMPTZ '2020-01-01 01:02:03.5+00', 'b': '\\xaa'::BLOB,
     'n': TIMESTAMP_NS '2020-01-01 01:02:03.123456789'}::VARIANT
"""


@pytest.mark.parametrize("name", SHREDDED)
def test_what_duckdb_shreds_is_read_as_duckdb_reads_it(sqlite_catalog, name):
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t (id BIGINT, doc VARIANT)")
        reference.sql(f"INSERT INTO t SELECT i, {SHREDDED[name]} FROM range(300) r(i)")
        theirs = dict(reference.sql("SELECT id, CASE WHEN doc IS NULL THEN NULL ELSE doc::JSON END FROM t"))
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        found = {row["id"]: row["doc"] for row in lake.read_arrow("t").to_pylist()}

    assert {id_: in_json(value) for id_, value in found.items()} == {
        id_: text and json.loads(text) for id_, text in theirs.items()
    }


def in_json(variant: dict[str, bytes] | None) -> object:
    """Return a variant as DuckDB's JSON of it."""
    if variant is None:
        return None
    return json.loads(json.dumps(decode_variant(variant["metadata"], variant["value"]), default=_text))


def _text(value: object) -> object:
    if isinstance(value, Decimal):
        return float(value)
    return str(value).rstrip("0") if isinstance(value, time | datetime) else str(value)


def test_types_of_shredded_values_stay(sqlite_catalog):
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t (id BIGINT, doc VARIANT)")
        reference.sql(f"INSERT INTO t SELECT i, {SHREDDED['types']} FROM range(1, 100) r(i)")
        reference.sql(f"INSERT INTO t SELECT i, {INSTANTS} FROM range(200, 300) r(i)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        rows = {row["id"]: row["doc"] for row in lake.read_arrow("t", filter="id IN (7, 200)").to_pylist()}

    first, second = (decode_variant(rows[id_]["metadata"], rows[id_]["value"]) for id_ in (7, 200))
    assert first == {
        "bo": False, "i1": 7, "i2": 7, "i4": 7, "i8": 7, "u8": 7, "f": 1.75, "d": 7 / 3,
        "de": Decimal("1.75"), "d18": Decimal("1.75"), "d38": Decimal("1.75"), "da": date(1969, 12, 8),
        "ti": time(1, 2, 3, 500_000), "ts": datetime.fromisoformat("2020-01-01 01:02:03.456"),
        "u": UUID(int=255), "s": "é" * 7, "nn": None,
    }  # fmt: skip
    assert second == {
        "z": datetime(2020, 1, 1, 1, 2, 3, 500_000, tzinfo=UTC),
        "b": b"\xaa",
        "n": Instant(1577840523123456789),
    }


def test_levels_that_arrow_does_not_read_are_refused_by_name(sqlite_catalog):
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t (id BIGINT, doc VARIANT)")
        document = '{"a":' * 60 + "1" + "}" * 60
        reference.sql(f"INSERT INTO t SELECT i, '{document}'::JSON::VARIANT FROM range(20) r(i)")
    with (
        Lake.connect(sqlite_catalog.sqlalchemy_url) as lake,
        pytest.raises(errors.StorageError, match=r"\.parquet of main\.t .*too deeply nested"),
    ):
        lake.read_arrow("t")


def test_null_variants_are_nulls_though_the_references_statistics_count_none(sqlite_catalog):
    """DuckDB sets such a column to NOT NULL (observed on 1.5.5): its statistics say that it has none."""
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (id BIGINT, doc VARIANT)")
        reference.sql("INSERT INTO t SELECT i, CASE WHEN i % 4 THEN i::VARIANT END FROM range(20) r(i)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with pytest.raises(errors.InvalidInputError, match="doc"), lake.transaction() as tx:
            tx.set_not_null("t", "doc")
        assert lake.read_arrow("t", filter="doc IS NULL").num_rows == 5
        alone(lake).truncate("t")
        alone(lake).set_not_null("t", "doc")
