"""Nested schemas as ducklakepy writes and reads them."""

import sqlite3
from contextlib import closing

import pytest

from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.next.process import OracleError


@pytest.fixture
def lake(sqlite_catalog):
    """A lake with `sales`.`europe`.`de`, a schema `a.b` beside `a`.`b`, and a table and a view below."""
    with ducklakepy_lake.open_lake(sqlite_catalog, inline_limit=0) as lake:
        for name in ("sales", "sales.europe", "sales.europe.de", ("a.b",), "a", ("a", "b")):
            lake.create_schema(name)
        lake.create_table("sales.europe.orders", {"i": "int64"})
        lake.insert("sales.europe.orders", [{"i": 1}])
        lake.create_view("sales.europe.de.v", "SELECT 1 AS x")
        yield lake


def rows_of(catalog, table: str) -> list[dict]:
    return dump_catalog(catalog)[table]


def execute(catalog, statement: str) -> None:
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        connection.execute(statement)


@pytest.mark.usefixtures("lake")
def test_a_schema_row_has_its_own_name_its_parent_and_a_folder_by_uuid(sqlite_catalog):
    rows = {row["schema_id"]: row for row in rows_of(sqlite_catalog, "ducklake_schema")}
    orders = rows_of(sqlite_catalog, "ducklake_table")[0]

    assert [(row["schema_name"], row["parent_schema_id"]) for row in rows.values()] == [
        ("main", None),
        ("sales", None),
        ("europe", 1),
        ("de", 2),
        ("a.b", None),
        ("a", None),
        ("b", 5),
    ]
    assert rows[1]["path"] == "sales/"
    for schema_id in (2, 3, 6):
        assert rows[schema_id]["path"].replace("-", "") == rows[schema_id]["schema_uuid"] + "/"
        assert rows[schema_id]["path_is_relative"] == 1
    assert (orders["schema_id"], orders["path"]) == (2, "orders/")
    assert rows_of(sqlite_catalog, "ducklake_schema_versions")[0]["table_id"] == orders["table_id"]


@pytest.mark.usefixtures("lake")
def test_files_lie_in_the_folder_of_the_innermost_schema(sqlite_catalog, tmp_path):
    (europe,) = (row for row in rows_of(sqlite_catalog, "ducklake_schema") if row["schema_name"] == "europe")

    (file,) = tmp_path.rglob("*.parquet")

    assert str(file.parent) + "/" == f"{sqlite_catalog.data_path}{europe['path']}orders/"


@pytest.mark.usefixtures("lake")
def test_names_in_the_changes_are_paths(sqlite_catalog):
    made = [row["changes_made"] for row in rows_of(sqlite_catalog, "ducklake_snapshot_changes")]

    assert made[1:] == [
        'created_schema:"sales"',
        'created_schema:"sales"."europe"',
        'created_schema:"sales"."europe"."de"',
        'created_schema:"a.b"',
        'created_schema:"a"',
        'created_schema:"a"."b"',
        'created_table:"sales"."europe"."orders"',
        "inserted_into_table:7",
        'created_view:"sales"."europe"."de"."v"',
    ]


def test_a_name_is_taken_below_its_parent_in_any_case(lake):
    lake.create_schema("sales.b")
    lake.create_schema("SALES.B.europe")

    with pytest.raises(OracleError, match="NamespaceAlreadyExistsError"):
        lake.create_schema("Sales.EUROPE")
    with pytest.raises(OracleError, match="NamespaceNotFoundError"):
        lake.create_schema("nope.x")
    assert lake.schemas()[-1] == ("sales", "b", "europe")


def test_a_schema_is_dropped_with_all_below_it_in_one_snapshot(sqlite_catalog, lake):
    before = lake.head()
    with pytest.raises(OracleError, match="NamespaceNotEmptyError"):
        lake.drop_schema("sales")

    dropped = lake.drop_schema("sales", cascade=True)

    assert dropped == before + 1
    assert lake.schemas() == [("main",), ("a.b",), ("a",), ("a", "b")]
    assert (lake.tables(), lake.views()) == ([], [])
    (changes,) = (
        row["changes_made"]
        for row in rows_of(sqlite_catalog, "ducklake_snapshot_changes")
        if row["snapshot_id"] == dropped
    )
    assert sorted(changes.split(",")) == [
        "dropped_schema:1",
        "dropped_schema:2",
        "dropped_schema:3",
        "dropped_table:7",
        "dropped_view:8",
    ]
    ended = [row["end_snapshot"] for row in rows_of(sqlite_catalog, "ducklake_schema")[1:4]]
    assert ended == [dropped] * 3
    assert lake.schemas(before)[:4] == [("main",), ("sales",), ("sales", "europe"), ("sales", "europe", "de")]
    assert lake.read("sales.europe.orders", before).to_pylist() == [{"i": 1}]


def test_below_an_ended_or_absent_parent_nothing_is_there(sqlite_catalog, lake):
    execute(sqlite_catalog, "UPDATE ducklake_schema SET end_snapshot = 8 WHERE schema_name = 'sales'")
    execute(sqlite_catalog, "UPDATE ducklake_schema SET parent_schema_id = 99 WHERE schema_name = 'b'")

    assert lake.schemas() == [("main",), ("a.b",), ("a",)]
    assert (lake.tables(), lake.views()) == ([], [])
    assert lake.tables(7) == [("sales", "europe", "orders")]


def test_a_cycle_of_parents_is_an_error_for_the_whole_lake(sqlite_catalog, lake):
    execute(sqlite_catalog, "UPDATE ducklake_schema SET parent_schema_id = 3 WHERE schema_name = 'sales'")

    with pytest.raises(OracleError, match="cyclic parent schema chain"):
        lake.schemas()
