"""Columns of VARIANT: inlined at 1.1 as bytes, in files; read as metadata and value."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import VariantVal
from sqlalchemy import NullPool, create_engine, text

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.schema import Column
from airflow_provider_ducklake.lake.format.snapshots import ColumnId
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.format.types.variants import Instant, decode_variant, encode_variant
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.moving.restored import write_stamped
from airflow_provider_ducklake.lake.storage.nested_values.shredding import VARIANT
from airflow_provider_ducklake.lake.storage.parquet.reader import in_schema
from tests.interop.jobs import merge_adjacent, rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_core import open_core
from tests.reference.duckdb_lake import open_lake
from tests.type_matrix import noted

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
DOCUMENTS = [5, "NULL", {"b": 1, "a": ["x", -2]}, [], {}, True, 1.5, "long " * 30, {"": {"": [[[None]]]}}]
DOCUMENTS += [{"é": "ü", "z": 12345678901234}, {f"field {n}": n for n in range(300)}]


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
    assert python_values(variants.read_arrow("t")) == dict(enumerate(DOCUMENTS)) | {100: "NULL"}
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

    assert now == {9: DOCUMENTS[9], 10: DOCUMENTS[10], 100: "NULL"}
    assert then == dict(enumerate(DOCUMENTS)) | {100: "NULL"}
    kinds = feed["change_type"].to_pylist()
    assert (kinds.count("insert"), kinds.count("delete")) == (len(DOCUMENTS) + 1, 9)
    deleted = feed.filter(pa.compute.equal(feed["change_type"], "delete"))
    assert python_values(deleted) == dict(enumerate(DOCUMENTS[:9]))
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
    assert variants.read_arrow("t", columns=["id"]).num_rows == len(DOCUMENTS) + 1


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


# Variants that we write: what DuckDB reads, filters, changes and compacts, and what the catalog says.


def documents(start=0, stop=50):
    return [
        (n, None if n % 5 == 0 else {"a": {"b": n}, "s": "x" * (n % 90), "l": [1, None]})
        for n in range(start, stop)
    ]


def variant(value):
    return None if value is None else dict(zip(("metadata", "value"), encode_variant(value), strict=True))


def rows(pairs, type_=VARIANT):
    docs = pa.array([variant(value) for _, value in pairs], VARIANT)
    return pa.table({"i": pa.array([i for i, _ in pairs], pa.int64()), "doc": docs.cast(type_)})


def values(lake, table="t", **how):
    return {row["i"]: in_json(row["doc"]) for row in lake.read_arrow(table, **how).to_pylist()}


def check_equal(catalog, lake, expected, **options):
    query = "SELECT i, CASE WHEN doc IS NULL THEN NULL ELSE doc::JSON END FROM t"
    assert {i: text and json.loads(text) for i, text in by_duckdb(catalog, query, **options)} == expected
    assert values(lake) == expected
    assert lake.verify() == []


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as made:
        made.set_option("data_inlining_row_limit", 0)
        alone(made).create_table("t", {"i": "int64", "doc": "variant"})
        yield made


def test_duckdb_reads_filters_changes_and_compacts_what_we_wrote(lake, sqlite_catalog):
    expected = dict(documents())
    lake.append_arrow("t", rows(documents()))
    check_equal(sqlite_catalog, lake, expected)

    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        assert reference.sql("SELECT count(*), sum(doc.a.b::INT) FROM t WHERE doc.a.b > 20") == [(24, 840)]
        assert reference.sql("SELECT i FROM t WHERE variant_extract(doc, 's') = 'xx'") == [(2,)]
        assert reference.sql("SELECT count(*) FROM t WHERE doc IS NULL") == [(10,)]
        reference.sql("UPDATE t SET doc = {'u': 1}::VARIANT WHERE i = 3")
        reference.sql("DELETE FROM t WHERE i = 4")
        reference.sql("INSERT INTO t SELECT i, {'a': i}::VARIANT FROM range(100, 120) r(i)")
        reference.sql("CALL ducklake_merge_adjacent_files('lake')")
        reference.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")

    expected |= {3: {"u": 1}} | {i: {"a": i} for i in range(100, 120)}
    del expected[4]
    check_equal(sqlite_catalog, lake, expected)


OTHERS = (
    {"a": {"b": 1}, "s": "x", "l": [{"k": 1}]},
    {"z": 1},
    {"a": {"b": 2, "c": None}, "z": {"y": [1]}},
    {"a": {"": 1}, "A": "a"},
    {"l": [{"k": 2, "j": [3]}, {"i": 4}, 5]},
    {},
    [{"a": 1}],
    "x",
    None,
    {f"n{n}": n for n in range(70)} | {"s": "y"},
)


def test_duckdb_reads_row_groups_of_whatever_shapes(lake, sqlite_catalog):
    lake.set_option("parquet_row_group_size", 1)
    expected = dict(enumerate(OTHERS))
    lake.append_arrow("t", rows(expected.items()))
    assert pq.read_metadata(_paths(sqlite_catalog)[0]).num_row_groups == len(OTHERS)
    check_equal(sqlite_catalog, lake, expected)


def test_a_group_is_a_variant_for_every_reader(lake, sqlite_catalog):
    lake.append_arrow("t", rows(documents()))
    (path,) = _paths(sqlite_catalog)
    text = str(pq.ParquetFile(path).schema)

    assert "optional group field_id=2 doc (Variant(1)) {" in text
    assert "required binary field_id=-1 metadata;" in text
    assert "required binary field_id=-1 value;" in text


def _paths(catalog):
    return [str(path) for path in Path(catalog.data_path).rglob("*.parquet")]


def test_statistics_have_counts_and_nothing_else(lake, sqlite_catalog):
    lake.append_arrow("t", rows([(n, {"a": n} if n % 5 else None) for n in range(50)]))
    lake.append_arrow("t", rows([(n, None) for n in range(50, 60)]))

    dump = dump_catalog(sqlite_catalog)
    in_files = [row for row in dump["ducklake_file_column_stats"] if row["column_id"] == 2]
    (of_table,) = [row for row in dump["ducklake_table_column_stats"] if row["column_id"] == 2]

    assert [(row["value_count"], row["null_count"]) for row in in_files] == [(40, 10), (0, 10)]
    bounds = ("min_value", "max_value", "contains_nan", "extra_stats")
    assert {row[name] for row in (*in_files, of_table) for name in bounds} == {None}
    assert dump["ducklake_file_variant_stats"] == []


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_table_with_a_file_of_ours_claims_nothing_of_paths(lake, sqlite_catalog, ours_first):
    """The reference merges what files say of a path: a file that says nothing ends that, for good."""
    insert = "INSERT INTO t SELECT i, {{'a': {{'b': i}}}}::VARIANT FROM range({}, {}) r(i)"
    if ours_first:
        lake.append_arrow("t", rows(documents()))
    by_duckdb(sqlite_catalog, insert.format(1000, 1020), data_inlining_row_limit=0)
    if not ours_first:
        assert _extra(sqlite_catalog) is not None
        lake.append_arrow("t", rows(documents()))
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql(insert.format(2000, 2020))
        found = reference.sql("SELECT count(*) FROM t WHERE doc.a.b < 20")

    assert found == [(16,)]
    assert _extra(sqlite_catalog) is None


def _extra(catalog):
    dump = dump_catalog(catalog)["ducklake_table_column_stats"]
    return next(row["extra_stats"] for row in dump if row["column_id"] == 2)


def test_duckdbs_counts_of_nulls_prune_nothing(lake, sqlite_catalog):
    """It counts a variant that is NULL as a value."""
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t SELECT i, NULL FROM range(20) r(i)")
        reference.sql("INSERT INTO t SELECT i, i::VARIANT FROM range(20, 40) r(i)")

    assert values(lake, filter="doc IS NULL") == dict.fromkeys(range(20))
    assert values(lake, filter="doc IS NOT NULL") == {i: i for i in range(20, 40)}


def test_we_compact_restore_and_rewrite(lake, sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t SELECT i, {'a': i, 'x': [i]}::VARIANT FROM range(100, 120) r(i)")
    lake.append_arrow("t", rows(documents()))
    before = lake.current_snapshot().id
    expected = dict(documents()) | {i: {"a": i, "x": [i]} for i in range(100, 120)}

    assert merge_adjacent(lake, "t") is not None
    check_equal(sqlite_catalog, lake, expected)
    alone(lake).delete_rows("t", filter="i < 10")
    assert rewrite(lake, "t", 0.01) is not None
    check_equal(sqlite_catalog, lake, {i: one for i, one in expected.items() if i >= 10})
    lake.restore("t", at=before)
    check_equal(sqlite_catalog, lake, expected)
    assert sum(map(_is_variant, _paths(sqlite_catalog))) == 5  # and a file of deletes


def _is_variant(path):
    return "doc (Variant(1))" in str(pq.ParquetFile(path).schema)


def test_a_copy_for_a_migration_keeps_the_mark(sqlite_catalog, tmp_path):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (i BIGINT, doc VARIANT)")
        reference.sql("INSERT INTO t SELECT i, {'a': i, 'x': [i]}::VARIANT FROM range(100) r(i)")
    (path,) = _paths(sqlite_catalog)
    copy = str(tmp_path / "copy.parquet")

    write_stamped(open_filesystem(path), open_filesystem(copy), [(2, 50), (3, 100)])

    assert _is_variant(copy)
    columns = (Column(ColumnId(2), "doc", parse_type("variant")),)
    read = [in_schema(pq.read_table(one).select(["doc"]), columns, one) for one in (path, copy)]
    assert read[0].equals(read[1])


def test_an_encrypted_lake_holds_them(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", {"i": "int64", "doc": "variant"})
        lake.append_arrow("t", rows(documents()))
        with open_lake(sqlite_catalog, encrypted=True, data_inlining_row_limit=0) as reference:
            reference.sql("INSERT INTO t SELECT i, {'a': i}::VARIANT FROM range(100, 120) r(i)")
        check_equal(
            sqlite_catalog, lake, dict(documents()) | {i: {"a": i} for i in range(100, 120)}, encrypted=True
        )
        assert merge_adjacent(lake, "t") is not None
        check_equal(
            sqlite_catalog, lake, dict(documents()) | {i: {"a": i} for i in range(100, 120)}, encrypted=True
        )


@pytest.mark.parametrize(
    "type_",
    [
        pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
        pa.struct([("metadata", pa.large_binary()), ("value", pa.large_binary())]),
    ],
    ids=["swapped", "large"],
)
def test_other_structs_of_the_two_are_taken(lake, sqlite_catalog, type_):
    pairs = [(1, {"a": 1}), (2, None)]
    docs = [variant(value) for _, value in pairs]

    lake.append_arrow("t", pa.table({"i": pa.array([1, 2], pa.int64()), "doc": pa.array(docs, type_)}))

    check_equal(sqlite_catalog, lake, dict(pairs))


def test_what_is_no_variant_is_refused(lake):
    def given(metadata, value):
        docs = pa.array([variant(1), {"metadata": metadata, "value": value}], VARIANT)
        return pa.table({"i": pa.array([1, 2], pa.int64()), "doc": docs})

    for damaged in ((b"", b""), (b"\x01\x00\x00", b""), (b"\x11\x00\x00", b"\x02\x01\x00\x00\x01\x00")):
        with pytest.raises(
            errors.InvalidValueError, match="column doc: 1 value is not valid Parquet variants"
        ):
            lake.append_arrow("t", given(*damaged))
    with pytest.raises(
        errors.SchemaMismatchError, match="column doc is variant in the table; int64 does not fit"
    ):
        lake.append_arrow("t", pa.table({"i": [1], "doc": [1]}))
    assert lake.read_arrow("t").num_rows == 0


def test_they_are_no_keys_have_no_defaults_and_compare_with_nothing(lake):
    with (
        pytest.raises(errors.InvalidPartitionError, match="variant cannot be a partition key"),
        lake.transaction() as tx,
    ):
        tx.set_partitioned_by("t", ["doc"])
    with pytest.raises(errors.InvalidInputError, match="cannot have a default"), lake.transaction() as tx:
        tx.add_column("t", "late", "variant", default="1")
    with pytest.raises(errors.InvalidInputError, match="only be tested with IS NULL"):
        lake.read_arrow("t", filter="doc = 5")
    refused = r"Filter on main\.t: 'doc\.a\.b' names a part of doc, a variant.*variant_get"
    with pytest.raises(errors.UnsupportedFeatureError, match=refused):
        lake.read_arrow("t", filter="i < 5 AND doc.a.b IS NULL")


def test_a_column_of_variants_is_added_and_dropped(lake, sqlite_catalog):
    lake.append_arrow("t", rows(documents()))
    alone(lake).add_column("t", "late", "variant")
    with lake.transaction() as tx:
        tx.drop_column("t", "doc")
        tx.rename_column("t", "late", "doc")
    lake.append_arrow("t", rows([(100, {"a": 1})]))

    check_equal(sqlite_catalog, lake, dict.fromkeys(range(50)) | {100: {"a": 1}})


def test_at_1_1_they_are_inlined_as_bytes_and_flushed(catalog):
    pairs = [(1, {"a": [1, "x"]}), (2, None), (3, 5)]
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as lake:
        alone(lake).create_table("t", {"i": "int64", "doc": "variant"})
        lake.append_arrow("t", rows(pairs))
        assert dump_catalog(catalog)["ducklake_data_file"] == []
        assert values(lake) == dict(pairs)
        with ducklakepy_lake.open_lake(catalog) as theirs, open_core() as core:
            theirs.insert("t", core.arrow("SELECT 4::BIGINT AS i, {'b': 1}::VARIANT AS doc"))
            read = theirs.read("t").sort_by("i")
        assert [one and one["value"] for one in read["doc"].to_pylist()][2:] == [
            b"\x0c\x05",
            b"\x02\x01\x00\x00\x05\x14\x01\x00\x00\x00",
        ]
        lake.flush_inlined_data()
        assert values(lake) == dict(pairs) | {4: {"b": 1}}
        assert len(dump_catalog(catalog)["ducklake_data_file"]) == 1
        with ducklakepy_lake.open_lake(catalog) as theirs:
            assert theirs.read("t").num_rows == 4


def test_nanoseconds_with_a_zone_are_never_inlined(catalog):
    """DuckDB 2.0 could not flush them."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as lake:
        alone(lake).create_table("t", {"i": "int64", "doc": "variant"})

        lake.append_arrow("t", rows([(1, [{"at": Instant(5, zoned=True)}])]))

        assert len(dump_catalog(catalog)["ducklake_data_file"]) == 1


def _of_paths(catalog):
    hidden = ("data_file_id", "table_id")
    rows = dump_catalog(catalog)["ducklake_file_variant_stats"]
    return sorted(str({name: value for name, value in row.items() if name not in hidden}) for row in rows)


def test_what_duckdb_says_of_paths_goes_with_its_files_and_copies_say_nothing(lake, sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        for start in (0, 20):
            reference.sql(
                f"INSERT INTO t SELECT i, {{'a': i}}::VARIANT FROM range({start}, {start + 20}) r(i)"
            )
    told, at = _of_paths(sqlite_catalog), lake.current_snapshot().id
    assert len(told) == 2
    alone(lake).drop_table("t")

    lake.restore("t", at=at)

    assert _of_paths(sqlite_catalog) == told
    assert _extra(sqlite_catalog) is None
    check_equal(sqlite_catalog, lake, {i: {"a": i} for i in range(40)})
    lake.maintenance.expire_snapshots(keep_last=1)
    assert _of_paths(sqlite_catalog) == []
    check_equal(sqlite_catalog, lake, {i: {"a": i} for i in range(40)})


@pytest.mark.parametrize("name", SHREDDED)
def test_what_duckdb_shredded_is_compacted_with_every_value_and_its_type(lake, sqlite_catalog, name):
    query = "SELECT i, doc, variant_typeof(doc) FROM t ORDER BY 1"
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        for start in (0, 100):
            rows_of = f"range({start}, {start + 100}) r(i)"
            reference.sql(f"INSERT INTO t SELECT i, {SHREDDED[name]} FROM {rows_of}")
        expected = reference.sql(query)

    assert merge_adjacent(lake, "t") is not None

    assert by_duckdb(sqlite_catalog, query) == expected
    (file,) = lake.table_snapshot("t", with_files=True).files
    assert "typed_value" not in str(pq.ParquetFile(file.path).schema)
    assert _of_paths(sqlite_catalog) == []
    assert lake.verify() == []


def test_what_a_restored_table_says_of_paths_is_true_for_later_rows(lake, sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("INSERT INTO t SELECT i, {'a': i}::VARIANT FROM range(20) r(i)")
    at = lake.current_snapshot().id
    alone(lake).drop_table("t")
    lake.restore("t", at=at)
    lake.append_arrow("t", rows([(100, {"a": 1000})]))

    with open_lake(sqlite_catalog) as reference:
        assert reference.sql("SELECT i FROM t WHERE doc.a > 500") == [(100,)]
        assert reference.sql("SELECT i FROM t WHERE doc.a = 7") == [(7,)]


VALUES = [
    (True, "true", "BOOL_TRUE"),
    (1, "1", "INT8"),
    (300, "300", "INT16"),
    (70_000, "70000", "INT32"),
    (2**40, "1099511627776", "INT64"),
    (1.5, "1.5", "DOUBLE"),
    (Decimal("1.25"), "1.25", "DECIMAL(3, 2)"),
    (Decimal("12345678901.25"), "12345678901.25", "DECIMAL(13, 2)"),
    (Decimal("0.50"), ".50", "DECIMAL(2, 2)"),  # which DuckDB 1.5.5 shows without its zero
    (10**30, "1" + "0" * 30, "DECIMAL(38, 0)"),
    (date(2020, 1, 1), "2020-01-01", "DATE"),
    (time(1, 2, 3, 4), "01:02:03.000004", "TIME_MICROS"),
    (datetime.fromisoformat("2020-01-01 01:02:03"), "2020-01-01 01:02:03", "TIMESTAMP_MICROS"),
    (datetime(2020, 1, 1, tzinfo=UTC), "2020-01-01 00:00:00+00", "TIMESTAMP_MICROS_TZ"),
    ("x" * 100, "x" * 100, "VARCHAR"),
    (b"\xaa", "\\xAA", "BLOB"),
    (UUID(int=7), str(UUID(int=7)), "UUID"),
    (Instant(1577840523123456789), "2020-01-01 01:02:03.123456789", "TIMESTAMP_NANOS"),
    ([], "[]", "ARRAY(0)"),
    ({}, "{}", "OBJECT()"),
    ([{"a": [None]}], "[{'a': [NULL]}]", "ARRAY(1)"),
]


@pytest.fixture(scope="module")
def each_value(tmp_path_factory):
    """A file of ours for each value, and what DuckDB reads in it."""
    catalog = file_catalog("sqlite", tmp_path_factory.mktemp("values"))
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", {"i": "int64", "doc": "variant"})
        for place, (value, *_) in enumerate(VALUES):
            lake.append_arrow("t", rows([(place, value)]))
    found = by_duckdb(catalog, "SELECT i, doc::VARCHAR, variant_typeof(doc) FROM t")
    return {place: (text, type_) for place, text, type_ in found}


@pytest.mark.parametrize("place", range(len(VALUES)), ids=lambda place: VALUES[place][2])
def test_duckdb_reads_values_of_each_type(each_value, place, record_property):
    noted(record_property, "variant", "append_arrow")

    assert each_value[place] == VALUES[place][1:]
