"""Files older than the table's schema are read as the reference reads them."""

from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.schema import Column, TableSchema, assemble
from airflow_provider_ducklake.lake.format.snapshots import ColumnId, SnapshotId
from airflow_provider_ducklake.lake.format.types.ducklake_types import (
    NOT_STORABLE,
    SCALARS,
    ScalarType,
    can_promote,
    parse_type,
)
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import arrow_schema
from airflow_provider_ducklake.lake.storage.parquet.reader import read_data_file
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from tests.interop.jobs import merge_adjacent, rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.interop.reference_table import live_files, put_in_place, schema_of
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

# (before the insert, after it)
HISTORIES = {
    "rename": ("i INTEGER, s VARCHAR", ["RENAME COLUMN i TO s2", "RENAME COLUMN s TO i"]),
    "integers": (
        "a TINYINT, b SMALLINT, c INTEGER, d UTINYINT, e USMALLINT, f UINTEGER",
        [
            *(f"ALTER COLUMN {name} SET DATA TYPE BIGINT" for name in "abcf"),
            "ALTER COLUMN d SET DATA TYPE UBIGINT",
            "ALTER COLUMN e SET DATA TYPE INTEGER",
        ],
    ),
    "floats and decimals": (
        "a FLOAT, b DECIMAL(5,2), c DECIMAL(9,2), d INTEGER, e INTEGER",
        [
            "ALTER COLUMN a SET DATA TYPE DOUBLE",
            "ALTER COLUMN b SET DATA TYPE DECIMAL(20,4)",
            "ALTER COLUMN c SET DATA TYPE DOUBLE",
            "ALTER COLUMN d SET DATA TYPE DOUBLE",
            "ALTER COLUMN e SET DATA TYPE DECIMAL(20,2)",
        ],
    ),
    "times": (
        "a DATE, b DATE, c TIMESTAMP_S, d TIMESTAMP_MS, e TIMESTAMP, f BOOLEAN",
        [
            "ALTER COLUMN a SET DATA TYPE TIMESTAMP",
            "ALTER COLUMN b SET DATA TYPE TIMESTAMPTZ",
            "ALTER COLUMN c SET DATA TYPE TIMESTAMP",
            "ALTER COLUMN d SET DATA TYPE TIMESTAMP_NS",
            "ALTER COLUMN e SET DATA TYPE TIMESTAMPTZ",
            "ALTER COLUMN f SET DATA TYPE INTEGER",
        ],
    ),
    "added with defaults": (
        "i INTEGER",
        [
            f"ADD COLUMN c{number} {type_} DEFAULT {default}"
            for number, (type_, default) in enumerate(
                [
                    ("BOOLEAN", "'true'"),
                    ("UBIGINT", "18446744073709551615"),
                    ("DOUBLE", "1e300"),
                    ("FLOAT", "'nan'"),
                    ("DECIMAL(10,2)", "1.5"),
                    ("DECIMAL(38,38)", "0.5"),
                    ("DATE", "'2020-01-02'"),
                    ("DATE", "'0044-03-15 (BC)'"),
                    ("TIME", "'01:02:03.5'"),
                    ("TIMESTAMP", "'1920-01-01 01:02:03.5'"),
                    ("TIMESTAMPTZ", "'2020-01-01 01:02:03.5+02'"),
                    ("TIMESTAMP_NS", "'2020-01-01 01:02:03.123456789'"),
                    ("TIMESTAMP_MS", "'2020-01-01 01:02:03.123'"),
                    ("TIMESTAMP_S", "'2020-01-01 01:02:03'"),
                    ("VARCHAR", "'x''y'"),
                    ("VARCHAR", "''"),
                    ("VARCHAR", "'NULL'"),
                    ("JSON", "'{\"a\": 1}'"),
                    ("BLOB", r"'\xDE\xADab'"),
                    ("UUID", "'00000000-0000-0000-0000-000000000001'"),
                    ("VARCHAR", "NULL"),
                ]
            )
        ],
    ),
    "added nested": (
        "i INTEGER",
        [
            "ADD COLUMN l INTEGER[]",
            "ADD COLUMN s STRUCT(a INTEGER, b VARCHAR)",
            "ADD COLUMN m MAP(INTEGER, DATE)",
        ],
    ),
    "dropped and added again": ("i INTEGER, s VARCHAR", ["DROP COLUMN s", "ADD COLUMN s VARCHAR"]),
    "inside a struct": (
        "s STRUCT(a TINYINT, b VARCHAR, c STRUCT(d FLOAT))",
        [
            "ADD COLUMN s.z INTEGER DEFAULT 5",
            "RENAME COLUMN s.a TO y",
            "DROP COLUMN s.b",
            "ADD COLUMN s.c.n DATE",
            "ALTER COLUMN s SET DATA TYPE STRUCT(y BIGINT, c STRUCT(d DOUBLE, n DATE), z INTEGER)",
        ],
    ),
    "infinite dates": (
        "s STRUCT(d DATE, l DATE[], m MAP(VARCHAR, DATE))",
        ["ALTER COLUMN s SET DATA TYPE STRUCT(d TIMESTAMP, l TIMESTAMP[], m MAP(VARCHAR, TIMESTAMP))"],
    ),
    "inside a list": (
        "l STRUCT(a INTEGER, b VARCHAR)[]",
        ["ADD COLUMN l.element.z INTEGER DEFAULT 6", "RENAME COLUMN l.element.a TO y"],
    ),
    "inside a map": (
        "m MAP(VARCHAR, STRUCT(a INTEGER, b VARCHAR))",
        ["ADD COLUMN m.value.z INTEGER", "DROP COLUMN m.value.b"],
    ),
}
VALUES = {
    "TINYINT": "-5",
    "SMALLINT": "300",
    "INTEGER": "70000",
    "UTINYINT": "255",
    "USMALLINT": "65535",
    "UINTEGER": "4294967295",
    "VARCHAR": "'text'",
    "FLOAT": "0.1",
    "BOOLEAN": "true",
    "DECIMAL(5,2)": "-123.45",
    "DECIMAL(9,2)": "-1234567.89",
    "DATE": "'1969-12-31'",
    "TIMESTAMP_S": "'1969-12-31 23:59:59'",
    "TIMESTAMP_MS": "'1969-12-31 23:59:59.5'",
    "TIMESTAMP": "'1969-12-31 23:59:59.999999'",
    "STRUCT(a TINYINT, b VARCHAR, c STRUCT(d FLOAT))": "{'a': 1, 'b': 'x', 'c': {'d': 0.1}}",
    "STRUCT(d DATE, l DATE[], m MAP(VARCHAR, DATE))": (
        "{'d': 'infinity', 'l': ['-infinity', NULL, '1969-12-31'], 'm': MAP {'k': 'infinity'}}"
    ),
    "STRUCT(a INTEGER, b VARCHAR)[]": "[{'a': 1, 'b': 'x'}, {'a': NULL, 'b': 'y'}, NULL]",
    "MAP(VARCHAR, STRUCT(a INTEGER, b VARCHAR))": "MAP {'k': {'a': 1, 'b': 'x'}, 'n': NULL}",
}
ROW_ID = Column(ColumnId(2147483540), "_ducklake_internal_row_id", ScalarType("int64"))


def schema_in(catalog: CatalogDatabase) -> TableSchema:
    rows = [row for row in dump_catalog(catalog)["ducklake_column"] if row["end_snapshot"] is None]
    return assemble(
        (
            Column(
                row["column_id"],
                row["column_name"],
                ScalarType("varchar"),
                initial_default=row["initial_default"],
            ),
            row["parent_column"],
            row["column_type"],
        )
        for row in sorted(rows, key=lambda row: row["column_order"])
    )


def fields_of(definition: str) -> list[str]:
    schema_types = [part for part in VALUES if definition.endswith(part) and " " in part]
    if schema_types:
        return schema_types[:1]
    parts = definition.replace("(5,2)", "(5;2)").replace("(9,2)", "(9;2)").split(", ")
    return [part.split(" ", 1)[1].replace(";", ",") for part in parts]


def write_history(lake: DuckLakeConnection, definition: str, alters: list[str]) -> None:
    values = [VALUES[type_] for type_ in fields_of(definition)]
    lake.sql(f"CREATE TABLE t ({definition})")
    lake.sql(f"INSERT INTO t VALUES ({', '.join(values)}), ({', '.join('NULL' for _ in values)})")
    for alter in alters:
        lake.sql(f"ALTER TABLE t {alter}")


@pytest.mark.parametrize("name", HISTORIES)
def test_an_old_file_is_read_in_the_schema_of_today(sqlite_catalog, name):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        write_history(lake, *HISTORIES[name])
        schema = schema_in(sqlite_catalog)
        (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

        rows = read_data_file(file, schema, table="main.t", snapshot_id=SnapshotId(9)).cast()

        rows.validate(full=True)
        assert rows.schema == arrow_schema(schema)
        lake.raw.register("rows", rows)
        shown = "SELECT COLUMNS(*)::VARCHAR FROM "
        assert lake.sql(f"{shown} rows") == lake.sql(f"{shown} t")
        assert rows.column_names == [column for column, *_ in lake.sql("DESCRIBE t")]


def test_a_promotion_we_cannot_follow_is_refused(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        write_history(lake, "d DATE", ["ALTER COLUMN d SET DATA TYPE JSON"])
    (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    with pytest.raises(UnsupportedFeatureError, match=r"column d is stored as date32\[day\].* as json"):
        read_data_file(file, schema_in(sqlite_catalog), table="main.t", snapshot_id=SnapshotId(9)).cast()


def test_columns_are_chosen_by_name_in_the_wanted_order(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        lake.sql('CREATE TABLE t ("a.b" INTEGER, a STRUCT(b INTEGER, c INTEGER), z VARCHAR)')
        lake.sql("INSERT INTO t VALUES (1, {'b': 2, 'c': 3}, 'x')")
        lake.sql("ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 7")
    schema = schema_in(sqlite_catalog)
    (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    def rows(*columns: str):
        return read_data_file(file, schema, table="main.t", snapshot_id=SnapshotId(9), columns=columns).cast()

    assert rows("Z", "a.b").to_pylist() == [{"z": "x", "a.b": 1}]
    assert rows("a").to_pylist() == [{"a": {"b": 2, "c": 3}}]
    assert rows("late").to_pylist() == [{"late": 7}]
    assert rows().num_rows == 1


def test_types_we_do_not_write_are_read(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        lake.sql("CREATE TABLE t (i INTERVAL, z TIMETZ)")
        lake.sql("INSERT INTO t VALUES (INTERVAL '1 month 2 days 3.5 seconds', '12:00:00+02'), (NULL, NULL)")
        expected = lake.sql("SELECT COLUMNS(*)::VARCHAR FROM t")
        (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

        rows = read_data_file(
            file, schema_of(i="interval", z="timetz"), table="main.t", snapshot_id=SnapshotId(9)
        ).cast()

        lake.raw.register("rows", rows)
        assert lake.sql("SELECT i::VARCHAR, z::VARCHAR || '+00' FROM rows") == expected


def test_a_row_id_column_is_null_in_files_without_one(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        write_history(lake, "i INTEGER", [])
    schema = TableSchema((*schema_in(sqlite_catalog).columns, ROW_ID))
    (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    rows = read_data_file(file, schema, table="main.t", snapshot_id=SnapshotId(9)).cast()

    assert rows.column("_ducklake_internal_row_id").to_pylist() == [None, None]


def test_the_row_ids_of_an_updated_row_are_read(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        lake.sql("CREATE TABLE t (i INTEGER)")
        lake.sql("INSERT INTO t SELECT range FROM range(5)")
        lake.sql("UPDATE t SET i = 30 WHERE i = 3")
    schema = TableSchema((*schema_in(sqlite_catalog).columns, ROW_ID))
    *_, newest = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    rows = read_data_file(newest, schema, table="main.t", snapshot_id=SnapshotId(9)).cast()

    assert rows.to_pylist() == [{"i": 30, "_ducklake_internal_row_id": 3}]


def test_a_file_whose_name_mapping_is_gone_is_refused(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        write_history(lake, "i INTEGER", [])
    (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    with pytest.raises(UnsupportedFeatureError, match="name mapping 1, which the catalog does not have"):
        read_data_file(
            replace(file, mapping_id=1), schema_in(sqlite_catalog), table="main.t", snapshot_id=SnapshotId(9)
        ).cast()


def test_row_ids_that_we_write_are_the_references(sqlite_catalog, tmp_path):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        write_history(lake, "i INTEGER", [])
    schema = TableSchema((*schema_in(sqlite_catalog).columns, ROW_ID))
    (file,) = live_files(sqlite_catalog, dump_catalog(sqlite_catalog), "t")

    with RollingWriter(schema, lambda: str(tmp_path / "ours.parquet")) as writer:
        writer.write(pa.table({"i": pa.array([7, 8], pa.int32()), "_ducklake_internal_row_id": [70, 80]}))
    put_in_place(sqlite_catalog, {file.id: writer.files[0]})

    assert set(writer.files[0].column_stats) == {1}
    assert by_duckdb(sqlite_catalog, "SELECT rowid, i FROM t") == [(70, 7), (80, 8)]


# Every promotion that we allow is one that the reference allows too.


TYPES = [
    *sorted(SCALARS.keys() - NOT_STORABLE),
    *("decimal(9,2)", "decimal(18,2)", "decimal(18,4)", "decimal(10,3)", "decimal(38,2)"),
]
OURS = [
    (old, new)
    for old in TYPES
    for new in TYPES
    if old != new and can_promote(parse_type(old), parse_type(new))
]
DUCKDB = {
    "timestamp_s": "TIMESTAMP_S",
    "timestamptz": "TIMESTAMPTZ",
    "float32": "FLOAT",
    "float64": "DOUBLE",
} | {
    f"{prefix}int{bits}": f"{prefix}{word}"
    for prefix in ("", "u")
    for bits, word in ((8, "tinyint"), (16, "smallint"), (32, "integer"), (64, "bigint"))
}


def test_the_reference_takes_each_of_our_promotions(sqlite_catalog):
    refused = []
    with open_lake(sqlite_catalog) as lake:
        for number, (old, new) in enumerate(OURS):
            lake.sql(f"CREATE TABLE t{number} (c {DUCKDB.get(old, old)})")
            try:
                lake.sql(f"ALTER TABLE t{number} ALTER COLUMN c SET DATA TYPE {DUCKDB.get(new, new)}")
            except duckdb.Error as error:
                refused.append((old, new, str(error)))

    assert refused == []
    assert len(OURS) > 20


@pytest.mark.parametrize(("old", "new"), [("int64", "int32"), ("varchar", "int64"), ("int64", "varchar")])
def test_what_both_refuse(sqlite_catalog, old, new):
    assert not can_promote(parse_type(old), parse_type(new))
    with open_lake(sqlite_catalog) as lake:
        lake.sql(f"CREATE TABLE t (c {DUCKDB.get(old, old)})")
        with pytest.raises(duckdb.Error, match="widening"):
            lake.sql(f"ALTER TABLE t ALTER COLUMN c SET DATA TYPE {DUCKDB.get(new, new)}")


# Column ids that files of ours may have are never given again.


def rows(**columns: int) -> pa.Table:
    made = {name: pa.array([value] * 20, pa.int32()) for name, value in columns.items()}
    return pa.table(made)


def test_a_column_filled_and_dropped_in_one_transaction_does_not_come_back(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("new", {"i": "int32", "gone": "int32"})
            tx.append_arrow("new", rows(i=1, gone=7))
            tx.drop_column("new", "gone")
            tx.create_table("old", {"i": "int32"})
        with lake.transaction() as tx:
            tx.add_column("old", "gone", "int32")
            tx.append_arrow("old", rows(i=1, gone=7))
            tx.drop_column("old", "gone")
        with lake.transaction() as tx:
            tx.add_column("new", "later", "int32")
            tx.add_column("old", "later", "int32")

    with open_lake(catalog) as duck:
        for table in ("new", "old"):
            assert duck.sql(f"SELECT DISTINCT i, later FROM {table}") == [(1, None)]


# Columns by whose older types DuckDB misreads conditions: warned of, noted, and cured by a merge.


# the old and the new type, values of the old, a value that only the new one has
WIDENED = [
    ("DATE", "TIMESTAMP", ("DATE '2024-05-01'", "DATE '2024-05-02'"), "'2024-05-01 12:00:00'"),
    ("FLOAT", "DOUBLE", ("0.1", "0.2"), "0.1"),
    ("DECIMAL(4,2)", "DECIMAL(9,4)", ("1.00", "1.01"), "1.005"),
]
UNHARMED = [
    ("SMALLINT", "BIGINT", ("1", "2"), "100000"),
    ("UINTEGER", "BIGINT", ("1", "2"), "-1"),
    ("DECIMAL(4,2)", "DECIMAL(9,2)", ("1.00", "1.01"), "12345.00"),
]
OPERATORS = ("<", "<=", "=", "<>", ">=", ">")


def wrong_filters(catalog, old, new, values, value):
    """Return the operators by which DuckDB finds other rows in the lake than among its own."""
    plain = duckdb.connect()
    rows = " UNION ALL ".join(f"SELECT CAST({one} AS {old})::{new} AS c" for one in values * 2)
    plain.execute(f"CREATE TABLE t AS {rows}")
    with open_lake(catalog) as duck:
        counts = {one: f"SELECT count(*) FROM t WHERE c {one} {value}" for one in OPERATORS}
        return [one for one, query in counts.items() if duck.sql(query) != plain.sql(query).fetchall()]


def notes(lake):
    assert lake.verify() == []
    return {one.code for one in lake.verify(with_notes=True)} - {FindingCode.OUTSIDE_DATA_PATH}


def filled(catalog, old, values, *more, inlined=0):
    with open_lake(catalog, data_inlining_row_limit=inlined) as duck:
        duck.sql(f"CREATE TABLE t (id INTEGER, c {old})")
        for statement in more:
            duck.sql(statement)
        for number in (0, 2):
            duck.sql(f"INSERT INTO t VALUES ({number}, {values[0]}), ({number + 1}, {values[1]})")


@pytest.mark.parametrize("inlined", [0, 10])
@pytest.mark.parametrize(("old", "new", "values", "value"), WIDENED + UNHARMED)
def test_a_widening_is_warned_of_and_noted_exactly_where_duckdb_misreads(
    sqlite_catalog, warnings, old, new, values, value, inlined
):
    filled(sqlite_catalog, old, values, inlined=inlined)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.set_column_type("t", "c", new)

    misread = wrong_filters(sqlite_catalog, old, new, values, value)

    assert bool(misread) == ((old, new, values, value) in WIDENED)
    assert bool(misread) == any("casts values of conditions" in one for one in warnings)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert notes(lake) == ({FindingCode.TYPE_NARROWER} if misread else set())


@pytest.mark.parametrize("is_duckdbs", [False, True])
@pytest.mark.parametrize(("old", "new", "values", "value"), WIDENED)
def test_a_merge_writes_the_current_type_for_every_snapshot(
    sqlite_catalog, is_duckdbs, old, new, values, value
):
    filled(sqlite_catalog, old, values, "ALTER TABLE t ADD COLUMN gone INTEGER", "ALTER TABLE t DROP gone")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        then = lake.current_snapshot().id
        before = lake.read_arrow("t")
        if is_duckdbs:
            by_duckdb(sqlite_catalog, f"ALTER TABLE t ALTER c TYPE {new}")
        else:
            alone(lake).set_column_type("t", "c", new)
        merge_adjacent(lake)

        assert wrong_filters(sqlite_catalog, old, new, values, value) == []
        assert notes(lake) == set()
        assert lake.read_arrow("t", at=then).equals(before)
        assert lake.read_arrow("t", at=then, filter=f"c >= {values[1]}").num_rows == 2
        assert by_duckdb(sqlite_catalog, f"SELECT c FROM t AT (VERSION => {then}) ORDER BY id") == [
            (one,) for one in before["c"].to_pylist()
        ]
        lake.restore("t", at=then)
        assert lake.read_arrow("t").equals(before)
        assert by_duckdb(sqlite_catalog, "SELECT count(*) FROM t WHERE c = (SELECT max(c) FROM t)") == [(2,)]


@pytest.mark.parametrize(("old", "new", "values", "value"), WIDENED[1:])
def test_added_files_of_such_types_are_warned_of_and_noted(
    sqlite_catalog, warnings, tmp_path, old, new, values, value
):
    path = tmp_path / "given.parquet"
    rows = duckdb.sql(f"SELECT 1 AS id, unnest([{', '.join(values * 2)}])::{old} AS c").to_arrow_table()
    pq.write_table(rows, path)
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, foreign_files=True) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int32", "c": new})
            tx.add_data_files("t", [str(path)])

        assert wrong_filters(sqlite_catalog, old, new, values, value)
        assert [one for one in warnings if f"column c ({parse_type(new.lower())} in the table) is" in one]
        assert notes(lake) == {FindingCode.TYPE_NARROWER}


def test_a_table_without_rows_is_not_warned_of(sqlite_catalog, warnings):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"c": "date"})
        alone(lake).set_column_type("t", "c", "timestamp")

    assert warnings == []


def test_a_rewritten_file_claims_no_bucket_of_a_columns_former_type(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (id INTEGER, c DECIMAL(4,2))")
        duck.sql("ALTER TABLE t SET PARTITIONED BY (bucket(4, c))")
        duck.sql("INSERT INTO t SELECT i, 1.00 FROM range(10) r(i)")
        duck.sql("ALTER TABLE t ALTER c TYPE DECIMAL(9,4)")
        duck.sql("DELETE FROM t WHERE id = 3")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        rewrite(lake)

        (file,) = lake.scan("t").files
        assert (file.partition_id, file.partition_values) == (None, ())
        assert lake.verify() == []
    assert by_duckdb(sqlite_catalog, "SELECT count(*) FROM t WHERE c = 1") == [(9,)]
