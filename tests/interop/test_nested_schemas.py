"""Schemas in schemas, at 1.1: names, rows, visibility and conflicts, against ducklakepy and the judge."""

import re

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName, SchemaPath
from airflow_provider_ducklake.lake.format.versions import NEWEST, write_version
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from tests.interop.lakes import alone
from tests.reference import ducklakepy_lake
from tests.reference.as_1_0 import as_1_0
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

TREE = ("sales", "sales.europe", "sales.asia", "sales.europe.de", "Europe", ("a.b",), "a", "a.b")
ROWS = pa.table({"i": pa.array(range(20), pa.int32())})
ALL = [("main",), ("sales",), ("sales", "europe"), ("sales", "asia"), ("sales", "europe", "de")]
ALL += [("Europe",), ("a.b",), ("a",), ("a", "b")]


@pytest.fixture
def lake(catalog: CatalogDatabase):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as opened:
        yield opened


def planted(lake: Lake) -> Lake:
    """Create the tree, and a table and a view in each of two schemas of it."""
    with lake.transaction() as tx:
        for name in TREE:
            tx.create_schema(name)
    for schema in ("sales.europe", "sales.europe.de"):
        with lake.transaction() as tx:
            tx.create_table(f"{schema}.orders", {"i": "int32"})
            tx.append_arrow(f"{schema}.orders", ROWS)
        alone(lake).create_view(f"{schema}.v", "SELECT i FROM orders")
    return lake


def schema_rows(catalog: CatalogDatabase) -> list[tuple[object, ...]]:
    """Return the rows of schemas but for their uuids, which nested ones have as their directories."""
    names = ("schema_id", "begin_snapshot", "end_snapshot", "schema_name", "parent_schema_id")
    found = []
    for row in dump_catalog(catalog)["ducklake_schema"]:
        path = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/", "<uuid>/", row["path"])
        found.append((*(row[name] for name in names), path))
    return sorted(found)


def changes_of(catalog: CatalogDatabase) -> list[str]:
    rows = dump_catalog(catalog)["ducklake_snapshot_changes"]
    return [row["changes_made"] for row in sorted(rows, key=lambda row: row["snapshot_id"])]


def run(catalog: CatalogDatabase, statement: str) -> None:
    engine = sa.create_engine(catalog.sqlalchemy_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text(statement))


def test_ours_are_those_of_ducklakepy(catalog, reference_catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as ours:
        for name in TREE:
            alone(ours).create_schema(name)
        alone(ours).create_table("sales.europe.orders", {"i": "int32"})
        alone(ours).drop_schema("sales.europe.de")
    with ducklakepy_lake.open_lake(reference_catalog) as theirs:
        for name in TREE:
            theirs.create_schema(name)
        theirs.create_table("sales.europe.orders", {"i": "int32"})
        theirs.drop_schema("sales.europe.de")

    assert schema_rows(catalog) == schema_rows(reference_catalog)
    assert changes_of(catalog) == changes_of(reference_catalog)


def test_others_read_what_we_wrote_there(lake, catalog, reference_catalog):
    planted(lake)

    with ducklakepy_lake.open_lake(catalog) as theirs:
        assert theirs.schemas() == ALL
        assert theirs.tables() == [("sales", "europe", "orders"), ("sales", "europe", "de", "orders")]
        assert theirs.views() == [("sales", "europe", "v"), ("sales", "europe", "de", "v")]
        assert theirs.read("sales.europe.de.orders").num_rows == 20
    with open_lake(as_1_0(catalog, reference_catalog)) as judge:
        assert judge.sql('SELECT sum(i) FROM "sales/europe/de".orders') == [(190,)]
        judge.sql("FROM ducklake_table_info('lake')")


def test_we_read_what_others_wrote_there(catalog):
    with ducklakepy_lake.open_lake(catalog) as theirs:
        for name in TREE:
            theirs.create_schema(name)
        theirs.create_table("sales.europe.orders", {"i": "int32"})
        inserted = theirs.insert("sales.europe.orders", ROWS)
        theirs.create_view("sales.europe.v", "SELECT i FROM orders")
        theirs.drop_schema("sales", cascade=True)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.tables() == []
        assert lake.tables(inserted) == [QualifiedName.of("sales.europe.orders")]
        assert lake.read_arrow("SALES.Europe.orders", at=inserted).sort_by("i") == ROWS
        assert lake.reads.view("sales.europe.v", inserted + 1).sql == "SELECT i FROM orders"
        with pytest.raises(
            errors.SchemaNotFoundError, match=r"'sales.europe' does not exist .* leave it out"
        ):
            lake.read_arrow("sales.europe.orders")


def test_names_with_dots_are_no_paths(lake):
    planted(lake)
    with lake.transaction() as tx:
        tx.create_table('"a.b".t', {"i": "int32"})
        tx.create_table("a.b.t", {"j": "int32"})

    assert lake.table_snapshot(("a.b", "t")).schema.names == ("i",)
    assert lake.table_snapshot(("a", "b", "t")).schema.names == ("j",)
    assert lake.reads.schema("a.b").name == SchemaPath(("a", "b"))
    assert [str(name) for name in lake.tables()][:2] == ["a.b.t", '"a.b".t']
    with pytest.raises(errors.TableNotFoundError, match=r"a\.b\.orders"):
        lake.read_arrow("a.b.orders")


def test_a_schema_is_one_of_its_parent(lake):
    planted(lake)

    with lake.transaction() as tx:
        with pytest.raises(errors.AlreadyExistsError, match="SALES"):
            tx.create_schema("SALES.EUROPE")
        with pytest.raises(errors.SchemaNotFoundError, match="nope"):
            tx.create_schema("nope.x")
        tx.create_schema("Sales.africa")
        tx.create_schema("sales.africa.eg")
        tx.create_table("sales.africa.eg.t", {"i": "int32"})

    assert lake.reads.schema("sales.africa.eg").name.parts == ("sales", "africa", "eg")


def test_a_schema_goes_with_all_that_lies_in_it(lake, catalog):
    planted(lake)
    before = lake.current_snapshot().id
    with (
        pytest.raises(errors.InvalidInputError, match=r"schema sales.europe, schema sales.asia\. Drop"),
        lake.transaction() as tx,
    ):
        tx.drop_schema("sales")

    alone(lake).drop_schema("sales", cascade=True)

    assert lake.tables() == []
    assert [name.schema.parts for name in lake.tables(before)] == [
        ("sales", "europe"),
        ("sales", "europe", "de"),
    ]
    ids = {row["schema_name"]: row["schema_id"] for row in dump_catalog(catalog)["ducklake_schema"]}
    records = {record.object_id for record in lake.snapshots()[-1].changes if record.kind == "dropped_schema"}
    assert records == {ids[name] for name in ("sales", "europe", "asia", "de")}
    with ducklakepy_lake.open_lake(catalog) as theirs:
        assert theirs.schemas() == [("main",), ("Europe",), ("a.b",), ("a",), ("a", "b")]


def test_what_lies_in_a_dropped_schema_is_dropped(lake, catalog):
    planted(lake)
    run(catalog, "UPDATE ducklake_schema SET end_snapshot = 5 WHERE schema_name = 'sales'")

    with Lake.connect(catalog.sqlalchemy_url) as again, ducklakepy_lake.open_lake(catalog) as theirs:
        assert again.tables() == []
        assert len(again.tables(4)) == 2
        alone(again).create_schema("sales")
        assert theirs.tables() == []


def test_a_parent_that_is_not_there_hides_what_lies_in_it(lake, catalog):
    planted(lake)
    run(catalog, "UPDATE ducklake_schema SET parent_schema_id = 99 WHERE schema_name = 'europe'")

    with Lake.connect(catalog.sqlalchemy_url) as again, ducklakepy_lake.open_lake(catalog) as theirs:
        assert again.tables() == theirs.tables() == []
        assert again.reads.schema("sales.asia") is not None
        hidden = [one for one in again.verify() if one.code == "schema-missing"]
        assert [(one.objects["kind"], one.objects["schema_id"]) for one in hidden] == [("schema", 99)]


def test_schemas_that_lie_in_each_other_are_an_error_that_names_one(lake, catalog):
    planted(lake)
    run(
        catalog,
        "UPDATE ducklake_schema SET parent_schema_id = (SELECT max(schema_id) FROM ducklake_schema "
        "WHERE schema_name = 'de') WHERE schema_name = 'sales'",
    )

    with (
        Lake.connect(catalog.sqlalchemy_url) as again,
        pytest.raises(errors.CatalogError, match="lies in itself"),
    ):
        again.tables()
    with Lake.connect(catalog.sqlalchemy_url) as again:
        (found,) = again.verify()
        assert found.code is FindingCode.SCHEMA_CIRCLE
        assert re.fullmatch(
            r"The schemas ('\w+' \(id \d+\)(, )?){3} lie in each other: .* in a circle\.", found.sentence
        )


def test_1_0_has_none(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        sentence = r"DuckLake 1\.0 does not support nested schemas.*to_version='1\.1'"
        with pytest.raises(errors.UnsupportedFeatureError, match=sentence), lake.transaction() as tx:
            tx.create_schema("main.europe")
        alone(lake).create_schema('"main.europe"')

        assert lake.reads.schema(("main.europe",)) is not None


@pytest.mark.parametrize(
    ("ours", "theirs", "is_conflict"),
    [
        (("create", "sales.africa"), ("create", "SALES.Africa"), True),
        (("create", "sales.africa"), ("create", "sales.usa"), False),
        (("create", "sales.africa"), ("drop", "sales"), True),
        (("create", "sales.europe.fr"), ("drop", "sales"), True),
        (("create", "a.b.c"), ("drop", "sales"), False),
        (("drop", "sales"), ("create", "sales.africa"), True),
        (("drop", "sales"), ("create", "sales.europe.fr"), True),
        (("drop", "sales"), ("table", "sales.europe.de.new"), True),
        (("drop", "sales"), ("table", "a.b.new"), False),
        (("drop", "Europe"), ("table", "sales.europe.new"), False),
        (("table", "sales.europe.de.t"), ("drop", "sales"), True),
        (("table", "sales.europe.de.t"), ("table", "sales.europe.t"), False),
        (("drop", "sales"), ("drop", "sales.asia"), True),
    ],
)
def test_what_conflicts_with_what(lake, catalog, ours, theirs, is_conflict):
    planted(lake)

    def done(tx, what: tuple[str, str]) -> None:
        match what:
            case ("create", name):
                tx.create_schema(name)
            case ("drop", name):
                tx.drop_schema(name, cascade=True)
            case (_, name):
                tx.create_table(name, {"i": "int32"})

    def both() -> None:
        with lake.transaction() as tx:
            done(tx, ours)
            with Lake.connect(catalog.sqlalchemy_url) as other, other.transaction() as first:
                done(first, theirs)

    if is_conflict:
        with pytest.raises(errors.TransactionConflictError):
            both()
    else:
        both()


def test_restored_with_the_schemas_they_lay_in(lake):
    planted(lake)
    before = lake.current_snapshot().id
    alone(lake).drop_schema("sales", cascade=True)

    lake.restore("sales.europe.de.orders", at=before)
    assert lake.tables() == [QualifiedName.of("sales.europe.de.orders")]
    assert lake.read_arrow("sales.europe.de.orders").sort_by("i") == ROWS
    lake.restore(schema="sales", at=before)
    assert [str(name) for name in lake.tables()] == ["sales.europe.orders", "sales.europe.de.orders"]
    assert lake.reads.view("sales.europe.de.v").sql == "SELECT i FROM orders"
    assert lake.reads.schema("sales.asia") is not None
    assert lake.verify() == []


def test_what_happens_to_a_table_there_is_seen(lake):
    planted(lake)
    name = "Sales.europe.orders"

    assert lake.table_changes(name, 0, {"insert"}).changes == ("insert",)
    assert lake.table_changes(name, lake.current_snapshot().id, {"insert"}) is None
    assert lake.table_changes("sales.europe.new", 0, {"insert"}) is None


def test_nothing_waits_for_a_table_that_1_0_cannot_have(catalog):
    with (
        Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake,
        pytest.raises(errors.UnsupportedFeatureError, match="nested schemas"),
    ):
        lake.table_changes("a.b.c", 0, {"insert"})


def test_ddl_names_them(lake):
    statements = parse_ddl(
        """
        CREATE SCHEMA sales; CREATE SCHEMA sales.europe;
        CREATE TABLE sales.europe.t (i INT, j INT);
        CREATE VIEW sales.europe.v AS SELECT i FROM sales.europe.t;
        ALTER TABLE sales.europe.t DROP COLUMN j; COMMENT ON COLUMN sales.europe.t.i IS 'x';
        ALTER TABLE sales.europe.t RENAME TO u; DROP VIEW sales.europe.v;
        """,
        write_version(NEWEST),
    )
    with lake.transaction() as tx:
        apply_ddl(tx, statements)

    assert lake.table_snapshot("sales.europe.u").schema.names == ("i",)
