"""Columns of VARIANT: inlined at 1.1 as bytes, in files; read as metadata and value, or refused by name."""

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal
from sqlalchemy import NullPool, create_engine, text

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.errors import CatalogError, UnsupportedFeatureError
from airflow_provider_ducklake.planning.upkeep.findings import FindingCode
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
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

    with pytest.raises(CatalogError, match=rf"does not fit column doc \(variant\): .*{problem}"):
        variants.read_arrow("t")
    assert variants.read_arrow("t", columns=["id"]).num_rows == len(VALUES) + 1


def test_shredded_files_are_refused_by_name_and_other_columns_read(sqlite_catalog):
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t (id BIGINT, doc VARIANT)")
        reference.sql("INSERT INTO t SELECT i, {'a': i}::VARIANT FROM range(100) r(i)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t", columns=["id"]).num_rows == 100
        with pytest.raises(UnsupportedFeatureError, match=r"\.parquet: column doc .* as variant: .*shredded"):
            lake.read_arrow("t")


def test_variants_in_duckdbs_own_type_are_refused_by_name(duckdb_catalog):
    with open_lake(duckdb_catalog) as reference:
        reference.sql("CREATE TABLE t (id BIGINT, doc VARIANT)")
        reference.sql("INSERT INTO t VALUES (1, 5::VARIANT)")
    with Lake.connect(duckdb_catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t", columns=["id"])["id"].to_pylist() == [1]
        with pytest.raises(UnsupportedFeatureError, match="flush the table with DuckDB"):
            lake.read_arrow("t")
