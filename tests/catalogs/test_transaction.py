"""What a transaction accepts, refuses and leaves behind, on a real SQLite lake."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.files import DataFile
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName, SchemaPath
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

STRUCT = pa.struct([("y", pa.int32()), ("x", pa.int32())])
ONE = pa.table({"i": pa.array([1], pa.int32())})
ODD_NAMES = [
    'q"uote', "dot.ted", "com,ma", "a b", " ", "'", "select", "ä😀", "tab\t", "new\nline", ":", "%", "..",
    "x" * 200, 'created_table:"a"."b"', "\\",
]  # fmt: skip


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)  # every row in a file
        yield lake


@pytest.fixture
def lake_with_table(lake: Lake) -> Lake:
    alone(lake).create_table("t", {"i": "int32"})
    return lake


def parquet_files(lake: Lake) -> list[Path]:
    return sorted(Path(lake.data_path).rglob("*.parquet"))


def test_an_empty_transaction_makes_no_snapshot(lake):
    with lake.transaction(message="nothing") as tx:
        pass

    assert tx.committed is None
    assert lake.current_snapshot().id == 0


def test_an_append_without_rows_makes_no_snapshot(lake_with_table):
    with lake_with_table.transaction() as tx:
        tx.append_arrow("t", ONE.slice(0, 0))

    assert tx.committed is None
    assert parquet_files(lake_with_table) == []


def test_what_raises_inside_the_block_leaves_no_snapshot_and_no_file(lake_with_table):
    before = lake_with_table.current_snapshot()

    with pytest.raises(ZeroDivisionError), lake_with_table.transaction() as tx:  # noqa: PT012
        tx.create_schema("s")
        tx.append_arrow("t", ONE)
        assert len(parquet_files(lake_with_table)) == 1
        raise ZeroDivisionError

    assert lake_with_table.current_snapshot() == before
    assert parquet_files(lake_with_table) == []


def test_create_and_drop_in_one_transaction_leaves_nothing(lake):
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.create_table("s.t", {"i": "int32"})
        tx.append_arrow("s.t", ONE)
        tx.drop_table("s.t")
        tx.drop_schema("s")

    assert tx.committed is None
    assert lake.current_snapshot().id == 0
    assert parquet_files(lake) == []


def test_append_and_drop_in_one_transaction_keeps_only_the_drop(lake_with_table):
    with lake_with_table.transaction() as tx:
        tx.append_arrow("t", ONE)
        tx.drop_table("t")

    assert [record.kind for record in lake_with_table.snapshots()[-1].changes] == [ChangeKind.DROPPED_TABLE]
    assert parquet_files(lake_with_table) == []


def test_an_append_that_fails_leaves_no_file_although_the_block_goes_on(lake):
    with lake.transaction() as tx:
        tx.create_table("t", {"i": "int32"})
        with pytest.raises(errors.SchemaMismatchError):
            tx.append_arrow("t", pa.table({"other": ["x"]}))
        tx.append_arrow("t", ONE)

    assert len(parquet_files(lake)) == 1
    assert lake.read_arrow("t").num_rows == 1


def test_rows_go_to_the_table_they_were_meant_for_after_a_drop_among_creations(lake):
    with lake.transaction() as tx:
        tx.create_table("a", {"i": "int32"})
        tx.create_table("b", {"i": "int32"})
        tx.drop_table("a")
        tx.create_table("c", {"i": "int32"})
        tx.append_arrow("b", ONE)

    assert lake.read_arrow("b").num_rows == 1
    assert lake.read_arrow("c").num_rows == 0


def test_a_failing_replacement_does_not_drop_the_table(lake_with_table):
    with lake_with_table.transaction() as tx, pytest.raises(errors.InvalidTypeError):
        tx.create_table("t", {"i": "no such type"}, or_replace=True)

    assert lake_with_table.tables() == [QualifiedName.of(("main", "t"))]


def test_a_replaced_table_is_another_one_with_another_history(lake_with_table):
    alone(lake_with_table).append_arrow("t", ONE)
    old = lake_with_table.table_snapshot("t")

    with lake_with_table.transaction() as tx:
        tx.create_table("t", {"i": "int32"}, or_replace=True)
        tx.append_arrow("t", ONE)

    assert lake_with_table.table_snapshot("t").table_id != old.table_id
    assert lake_with_table.read_arrow("t").num_rows == 1
    assert lake_with_table.read_arrow("t", at=old.snapshot.id).num_rows == 1


def test_a_dropped_schema_can_be_made_again_in_the_same_transaction(sqlite_catalog, lake):
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.create_table("s.t", {"i": "int32"})
    with lake.transaction() as tx:
        tx.drop_schema("S", cascade=True)
        tx.create_schema("s")
        tx.create_table("s.t", {"j": "int32"})

    assert by_duckdb(sqlite_catalog, "SELECT column_name FROM (DESCRIBE s.t)") == [("j",)]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_odd_name_comes_back_from_the_reference(sqlite_catalog, lake, name):
    with lake.transaction() as tx:
        tx.create_schema((name,))
        tx.create_table((name, name), {name: "int32"}, partition_by=['"' + name.replace('"', '""') + '"'])
        tx.append_arrow((name, name), pa.table({name: pa.array([1], pa.int32())}))

    assert lake.tables() == [QualifiedName.of((name, name))]
    assert lake.read_arrow((name, name)).to_pydict() == {name: [1]}
    assert lake.snapshots()[-1].changes[0].name == SchemaPath((name,))
    with open_lake(sqlite_catalog) as reference:
        quoted = '"' + name.replace('"', '""') + '"'
        assert reference.sql(f"SELECT {quoted} FROM {quoted}.{quoted} WHERE {quoted} = 1") == [(1,)]


@pytest.mark.parametrize("name", ["", "a\0b", "a\ud800b"])
def test_a_name_that_no_catalog_can_hold_is_refused(lake, name):
    with lake.transaction() as tx:
        with pytest.raises(errors.InvalidNameError, match="name"):
            tx.create_schema(name)
        with pytest.raises(errors.InvalidNameError, match="name"):
            tx.create_table(("main", name), {"i": "int32"})
        with pytest.raises(errors.InvalidNameError, match="name"):
            tx.create_table("t", {name: "int32"})

    assert lake.current_snapshot().id == 0


@pytest.mark.parametrize("name", ['"a', 'a"b"', ".", "a.", ".a", ""])
def test_a_name_that_cannot_be_read_is_refused(lake, name):
    with pytest.raises(errors.InvalidNameError), lake.transaction() as tx:
        tx.create_table(name, {"i": "int32"})


def test_names_that_differ_in_case_alone_are_one_name(lake):
    with lake.transaction() as tx:
        tx.create_schema("Sales")
        tx.create_table("Sales.Orders", {"i": "int32"})
        with pytest.raises(errors.AlreadyExistsError, match="sales"):
            tx.create_schema("sales")
        with pytest.raises(errors.AlreadyExistsError, match=r"(?i)sales\.orders"):
            tx.create_table("SALES.ORDERS", {"i": "int32"})
    with lake.transaction() as tx:
        with pytest.raises(errors.AlreadyExistsError, match="SALES"):
            tx.create_schema("SALES")
        with pytest.raises(errors.AlreadyExistsError, match=r"(?i)sales\.orders"):
            tx.create_table("sales.orders", {"i": "int32"})
        with pytest.raises(errors.InvalidInputError, match="I"):
            tx.create_table("sales.x", {"i": "int32", "I": "int32"})


def test_letters_beyond_ascii_differ_in_case_as_they_do_to_the_reference(sqlite_catalog, lake):
    with lake.transaction() as tx:
        tx.create_table("ä", {"i": "int32"})
        tx.create_table("Ä", {"i": "int32"})
        tx.append_arrow("ä", ONE)

    with open_lake(sqlite_catalog) as reference:
        assert reference.sql('SELECT (SELECT count(*) FROM "ä"), (SELECT count(*) FROM "Ä")') == [(1, 0)]


def test_a_view_takes_its_name(sqlite_catalog, lake):
    by_duckdb(sqlite_catalog, "CREATE VIEW v AS SELECT 1")

    with lake.transaction() as tx:
        for replace in (False, True):
            with pytest.raises(errors.AlreadyExistsError, match=r"view named main\.v"):
                tx.create_table("V", {"i": "int32"}, or_replace=replace)
        with pytest.raises(errors.TableNotFoundError):
            tx.append_arrow("v", ONE)


def test_a_schema_with_contents_is_dropped_only_with_cascade(sqlite_catalog, lake):
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.create_table("s.t", {"i": "int32"})
    with lake.transaction() as tx, pytest.raises(errors.InvalidInputError, match=r"s\.t.*cascade=True"):
        tx.drop_schema("s")

    alone(lake).drop_schema("s", cascade=True)

    assert lake.reads.schema("s") is None
    with open_lake(sqlite_catalog) as reference, pytest.raises(Exception, match="does not exist"):
        reference.sql("FROM s.t")


@pytest.mark.parametrize(
    "creation", ["VIEW s.o AS SELECT 1", "MACRO s.o(a) AS a + 1", "MACRO s.o() AS TABLE SELECT 1"]
)
def test_views_and_macros_go_with_their_schema(sqlite_catalog, lake, creation):
    by_duckdb(sqlite_catalog, "CREATE SCHEMA s", f"CREATE {creation}")

    with lake.transaction() as tx:
        with pytest.raises(errors.InvalidInputError, match=r"(view|macro) s\.o.*cascade=True"):
            tx.drop_schema("s")
        tx.drop_schema("s", cascade=True)

    with open_lake(sqlite_catalog) as reference, pytest.raises(Exception, match="does not exist"):
        reference.sql(
            "SELECT s.o(1)" if "s.o(a)" in creation else "FROM s.o" if "VIEW" in creation else "FROM s.o()"
        )


def test_what_is_missing_is_named(lake):
    with lake.transaction() as tx:
        with pytest.raises(errors.SchemaNotFoundError, match="'nowhere'"):
            tx.create_table("nowhere.t", {"i": "int32"})
        with pytest.raises(errors.SchemaNotFoundError, match="'nowhere'"):
            tx.append_arrow("nowhere.t", ONE)
        with pytest.raises(errors.SchemaNotFoundError, match="'nowhere'"):
            tx.drop_schema("nowhere")
        with pytest.raises(errors.TableNotFoundError, match=r'main\."no table"'):
            tx.append_arrow(("main", "no table"), ONE)
        with pytest.raises(errors.TableNotFoundError, match=r"main\.nothing"):
            tx.drop_table("nothing")


@pytest.mark.parametrize(
    "type_", ["int33", "", "decimal(39,2)", "decimal(2,3)", "time_ns", "struct()", "enum('a')", "int32[3]"]
)
def test_a_type_that_cannot_be_stored_is_refused(lake, type_):
    with pytest.raises(errors.InvalidTypeError), lake.transaction() as tx:
        tx.create_table("t", {"i": type_})

    assert lake.current_snapshot().id == 0


@pytest.mark.parametrize(
    "key",
    [
        *("nope", "year(i)", "truncate(2, i)", "bucket(i)", "", "i,"),
        *("bucket(0, i)", "bucket(00, i)", "bucket(2147483648, i)"),  # which shut the lake to the reference
    ],
)
def test_a_partitioning_that_cannot_be_is_refused(lake, key):
    with pytest.raises((errors.InvalidInputError, errors.ColumnNotFoundError)), lake.transaction() as tx:
        tx.create_table("t", {"i": "int32"}, partition_by=[key])

    assert lake.current_snapshot().id == 0


def test_a_table_needs_a_column(lake):
    with pytest.raises(errors.InvalidInputError), lake.transaction() as tx:
        tx.create_table("t", {})

    assert lake.current_snapshot().id == 0


@pytest.mark.parametrize(("count", "values"), [(0, ()), (-1, ()), (1, ("x",))])
def test_a_file_that_does_not_fit_is_refused(lake_with_table, count, values):
    with pytest.raises(errors.InvalidInputError), lake_with_table.transaction() as tx:
        tx.append_files("t", [DataFile("f.parquet", count, 10, None, partition_values=values)])


def test_the_commit_information_is_in_the_snapshot(sqlite_catalog, lake):
    with lake.transaction("me", 'it\'s "it"', {"ü": [1, None]}) as tx:
        tx.create_schema("s")

    with open_lake(sqlite_catalog) as reference:
        row = reference.sql("SELECT author, commit_message, commit_extra_info FROM lake.snapshots()")[-1]
    assert row == ("me", 'it\'s "it"', '{"\\u00fc": [1, null]}')


def test_a_lake_that_requires_a_message_gets_one_or_no_commit(sqlite_catalog, lake_with_table):
    by_duckdb(sqlite_catalog, "CALL lake.set_option('require_commit_message', true)")

    with pytest.raises(errors.InvalidInputError, match="require_commit_message"):
        alone(lake_with_table).append_arrow("t", ONE)
    assert parquet_files(lake_with_table) == []
    with lake_with_table.transaction():
        pass
    with lake_with_table.transaction(message="here it is") as tx:
        tx.append_arrow("t", ONE)

    assert lake_with_table.snapshots()[-1].message == "here it is"


def test_a_snapshot_is_younger_than_the_one_before_whatever_the_clock_says(sqlite_catalog, lake_with_table):
    import sqlite3  # noqa: PLC0415

    with sqlite3.connect(sqlite_catalog.location) as connection:
        connection.execute("UPDATE ducklake_snapshot SET snapshot_time = '2999-01-01 00:00:00+00'")
    connection.close()

    alone(lake_with_table).append_arrow("t", ONE)

    assert lake_with_table.current_snapshot().time > datetime(2999, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["a\0b", "half \udc80"])
def test_texts_that_no_catalog_can_hold_are_refused(lake_with_table, text):
    for change in (
        lambda tx: tx.comment_on_table("t", text),
        lambda tx: tx.comment_on_column("t", "i", text),
        lambda tx: tx.create_view("v", f"SELECT '{text}'"),
    ):
        with pytest.raises(errors.InvalidInputError, match="surrogate"), lake_with_table.transaction() as tx:
            change(tx)
    for given in ({"message": text}, {"author": text}, {"commit_key": text}):
        with pytest.raises(errors.InvalidInputError, match="surrogate"):
            lake_with_table.transaction(**given)


def test_a_partition_value_with_nul_is_refused_by_name(lake):
    alone(lake).create_table("t", {"s": "varchar"}, partition_by=["s"])

    with pytest.raises(errors.InvalidPartitionError, match=r"main\.t"), lake.transaction() as tx:
        tx.append_arrow("t", pa.table({"s": ["a\0b"]}))

    assert parquet_files(lake) == []


# --- rows that the transaction itself has for the catalog ---

NESTED = pa.table({"i": pa.array([None], pa.int64()), "s": [{"a": 5, "b": "x"}]})


@pytest.fixture(params=[10, 0], ids=["inlined", "in a file"])
def nested(request, lake: Lake) -> Lake:
    lake.set_option("data_inlining_row_limit", request.param)
    alone(lake).create_table("t", {"i": "int64", "s": "struct(a int64, b varchar)"})
    return lake


def append_and(edit: Callable[[LakeTransaction], object], lake: Lake, rows: pa.Table = NESTED) -> None:
    with lake.transaction() as tx:
        tx.append_arrow("t", rows)
        edit(tx)


FIELDS = {
    "rename": (lambda tx: tx.rename_column("t", "s.a", "z"), {"z": 5, "b": "x"}),
    "drop": (lambda tx: tx.drop_column("t", "s.b"), {"a": 5}),
    "add": (lambda tx: tx.add_column("t", "s.c", "int32"), {"a": 5, "b": "x", "c": None}),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_change_behind_rows_of_the_transaction_only_where_they_can_be_read(
    sqlite_catalog, nested, name
):
    edit, read = FIELDS[name]
    if name != "add" and nested.table_snapshot("t").options.allows_inlining:
        with pytest.raises(errors.InvalidInputError, match=r"'s\..' before rows are added to main\.t"):
            append_and(edit, nested)
        assert nested.row_count("t") == 0
        return
    append_and(edit, nested)

    assert nested.read_arrow("t").to_pylist() == [{"i": None, "s": read}]
    assert by_duckdb(sqlite_catalog, "SELECT s FROM t") == [(read,)]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tx: tx.set_not_null("t", "i"), "may hold NULL"),
        (lambda tx: tx.add_column("t", "k", "int64", nullable=False), "existing rows would hold NULL"),
    ],
)
def test_rows_of_the_transaction_hold_no_null_in_a_column_that_allows_none(nested, edit, message):
    with pytest.raises(errors.InvalidInputError, match=message):
        append_and(edit, nested)

    append_and(
        lambda tx: tx.set_not_null("t", "i"), nested, NESTED.set_column(0, "i", pa.array([1], pa.int64()))
    )
    assert nested.row_count("t") == 1


def _replace_column(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.drop_column("t", "b")
        tx.add_column("t", "b", "varchar")


def _replace_field(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.drop_column("t", "s.x")
        tx.add_column("t", "s.x", "int32")


def _restore(lake: Lake) -> None:
    before = lake.current_snapshot().id
    alone(lake).drop_column("t", "b")
    alone(lake).add_column("t", "b", "varchar")
    lake.restore("t", at=before)


@pytest.mark.parametrize("edit", [_replace_column, _replace_field, _restore])
def test_a_column_in_the_place_of_another_of_its_name_and_type_keeps_its_values(sqlite_catalog, lake, edit):
    lake.set_option("data_inlining_row_limit", 10)
    rows = pa.table({"a": [1], "s": pa.array([{"y": 1, "x": 7}], STRUCT), "b": ["x"]})
    alone(lake).create_table("t", {"a": "int64", "s": "struct(y int32, x int32)", "b": "varchar"})
    lake.append_arrow("t", rows)

    edit(lake)
    lake.append_arrow("t", rows.set_column(0, "a", pa.array([2], pa.int64())))
    with open_lake(sqlite_catalog) as reference:
        reference.sql("INSERT INTO t VALUES (3, {'y': 1, 'x': 7}, 'x')")
        assert reference.sql("FROM t WHERE a > 1 ORDER BY a") == [
            (2, {"y": 1, "x": 7}, "x"),
            (3, {"y": 1, "x": 7}, "x"),
        ]
    written = [row for row in lake.read_arrow("t").to_pylist() if row["a"] > 1]
    assert [(row["b"], row["s"]["x"]) for row in written] == [("x", 7)] * 2
    lake.flush_inlined_data("t")
    assert sorted(row["a"] for row in lake.read_arrow("t").to_pylist() if row["b"] == "x")[-2:] == [2, 3]


def test_a_column_without_nulls_is_not_added_beside_rows_that_others_insert(lake_with_table, sqlite_catalog):
    def add(lake: Lake) -> None:
        with lake.transaction() as tx:
            tx.add_column("t", "k", "int64", nullable=False)
            with Lake.connect(sqlite_catalog.sqlalchemy_url) as other:
                other.append_arrow("t", ONE)

    with pytest.raises(errors.TransactionConflictError, match="forbid NULL"):
        add(lake_with_table)
    assert lake_with_table.table_snapshot("t").schema.names == ("i",)


def test_partition_keys_that_are_set_and_set_back_are_those_of_the_files(sqlite_catalog, lake):
    alone(lake).create_table("t", {"i": "int32"}, partition_by=["i"])
    for _ in range(2):
        with lake.transaction() as tx:
            tx.set_partitioned_by("t", [])
            tx.set_partitioned_by("t", ["i"])
            tx.append_arrow("t", pa.table({"i": pa.array([1, 2], pa.int32())}))

    assert lake.verify() == []
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CALL ducklake_merge_adjacent_files('lake')")
        assert reference.sql("SELECT i, count(*) FROM t GROUP BY i ORDER BY i") == [(1, 2), (2, 2)]


def test_a_replacement_that_is_refused_and_caught_drops_nothing(lake_with_table):
    lake_with_table.set_option("data_inlining_row_limit", 10)
    lake_with_table.append_arrow("t", ONE)
    alone(lake_with_table).create_view("v", "SELECT 1 AS i")

    with lake_with_table.transaction() as tx:
        with pytest.raises(errors.InvalidNameError):
            tx.create_table("t", {"row_id": "int64"}, or_replace=True)
        with pytest.raises(errors.InvalidNameError):
            tx.create_view("v", "SELECT 2 AS j", column_aliases=[""], or_replace=True)

    assert tx.committed is None
    assert lake_with_table.row_count("t") == 1
    assert lake_with_table.reads.view("v").sql == "SELECT 1 AS i"


def test_inlined_rows_of_the_transaction_are_not_altered_to_what_no_catalog_holds(nested):
    edit = partial(LakeTransaction.add_column, table="t", column="g", type_="geometry")
    if not nested.table_snapshot("t").options.allows_inlining:
        append_and(edit, nested)
        assert nested.row_count("t") == 1
        return
    with pytest.raises(
        errors.InvalidInputError, match=r"which are inlined: column g has type geometry\. Alter it"
    ):
        append_and(edit, nested)
    assert nested.row_count("t") == 0
