"""Macros that we made: kept, called by the reference, restored, expired, verified; Spark calls none."""

import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.writes.row_changes import Delete, Update
from airflow_provider_ducklake.lake.writes.sql import Sql
from airflow_provider_ducklake.lake.writes.verb import Commit
from tests.interop.lakes import alone
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.every_catalog
ROWS = ("ducklake_macro_impl", "ducklake_macro_parameters")
MACROS = {
    "s.net": "(price, rate := 0.19) AS price * (1 - rate)",
    "s.few": "(n) AS TABLE SELECT i FROM s.t LIMIT n",
}


@pytest.fixture
def lake(catalog):
    with Lake.create(
        catalog.sqlalchemy_url, data_path=catalog.data_path, version=catalog.spec_version
    ) as lake:
        with lake.transaction() as tx:
            tx.create_schema("s")
            tx.create_table("s.t", {"i": "int32"})
            for name, definition in MACROS.items():
                tx.create_macro(name, definition)
        yield lake


def names(lake: Lake) -> list[str]:
    return [str(one.name) for one in lake.macros()]


def definitions(catalog) -> list[list[dict]]:
    dump = dump_catalog(catalog)
    return [dump[name] for name in ROWS]


def test_the_reference_calls_them(lake, catalog):
    if not catalog.is_for_the_reference:
        pytest.skip("the reference cannot be shown this lake")
    with open_lake(catalog) as reference:
        reference.sql("INSERT INTO s.t FROM range(3)")
        assert reference.sql("SELECT s.net(100) = 81, s.net(100, rate := 0.5) = 50") == [(True, True)]
        assert reference.sql("SELECT count(*) FROM s.few(2)") == [(2,)]
    assert lake.verify() == []


def test_a_restored_schema_has_them_as_they_were(lake, catalog):
    before, was = lake.current_snapshot().id, definitions(catalog)
    with lake.transaction() as tx:
        tx.create_macro("s.net", "(a) AS a", or_replace=True)
        tx.drop_macro("s.few", table=True)
        tx.create_macro("s.born", "() AS 1")

    lake.restore(schema="s", at=before)

    assert names(lake) == ["s.few", "s.net"]
    assert [one.definition for one in lake.macros()] == [one.definition for one in lake.macros(at=before)]
    assert [
        one for one in definitions(catalog)[0] if one["macro_id"] in {row["macro_id"] for row in was[0]}
    ] == was[0]
    assert lake.verify() == []


def test_they_come_back_with_a_dropped_schema(lake):
    before = lake.current_snapshot().id
    with (
        pytest.raises(errors.InvalidInputError, match=r"table s\.t, macro s\.(net|few)"),
        lake.transaction() as tx,
    ):
        tx.drop_schema("s")
    alone(lake).drop_schema("s", cascade=True)
    assert names(lake) == []

    lake.restore(schema="s", at=before)

    assert names(lake) == ["s.few", "s.net"]
    assert lake.verify() == []


def test_their_rows_go_with_the_last_snapshot_that_has_them(lake, catalog):
    with lake.transaction() as tx:
        tx.create_macro("s.net", "(a) AS a", or_replace=True)
        tx.drop_macro("s.few")
    lake.expire_snapshots(keep_last=1)

    bodies, parameters = definitions(catalog)
    assert [row["sql"] for row in bodies] == ["a"]
    assert [row["parameter_name"] for row in parameters] == ["a"]
    assert len(dump_catalog(catalog)["ducklake_macro"]) == 1
    assert lake.verify() == []


def test_renaming_a_table_leaves_them_as_they_are(lake, catalog):
    was = definitions(catalog)
    alone(lake).rename_table("s.t", "u")

    assert definitions(catalog) == was
    assert lake.verify() == []


def test_names_are_compared_as_duckdb_compares_them(lake):
    with pytest.raises(errors.AlreadyExistsError, match=r"macro named s\.net"), lake.transaction() as tx:
        tx.create_macro("S.NET", "(a) AS a")
    with lake.transaction() as tx:
        tx.create_macro("s.net", "(a) AS a", if_not_exists=True)
        tx.create_macro("s.net", "(a) AS TABLE SELECT a")
        tx.create_table("s.net", {"i": "int32"})
    assert names(lake) == ["s.few", "s.net", "s.net"]
    alone(lake).drop_macro("s.NET")
    assert [one.definition.is_table for one in lake.macros()] == [True, True]
    with pytest.raises(errors.MacroNotFoundError, match=r"Table macro s\.gone"), lake.transaction() as tx:
        tx.drop_macro("s.gone", table=True)


IN_SPARK_SQL = {
    "statement": (Sql("INSERT INTO s.t SELECT abs(S.`Net`(i, 1)) FROM s.t"), "Macro s.net"),
    "statement of a table macro": (Sql("CREATE TABLE s.u AS SELECT * FROM s.few(3) AS f"), "Macro s.few"),
    "view": (Sql("INSERT INTO s.t SELECT i FROM s.v"), "View s.v: Macro s.net"),
    "condition": (Delete("s.t", "i > 1 AND s.net(i) IN (1, 2)"), "Macro s.net"),
    "value": (Update("s.t", {"i": "s.net(target.i)"}, "true"), "Macro s.net"),
}


@pytest.mark.parametrize(("verb", "named"), IN_SPARK_SQL.values(), ids=IN_SPARK_SQL)
def test_spark_sql_that_calls_one_is_refused_before_a_job(lake, verb, named):
    alone(lake).create_view("s.v", "SELECT s.net(i) AS i FROM s.t", dialect="spark")

    with pytest.raises(
        errors.UnsupportedFeatureError, match=f"^{named} is called, .* Run the query in DuckDB, or"
    ):
        verb.plan(lake, Commit(CommitInfo()), lambda source: source)


def test_a_function_of_spark_and_a_table_may_have_the_name_of_one(lake):
    with lake.transaction() as tx:
        tx.create_macro("s.abs", "(a) AS a")
        tx.create_table("s.net", {"i": "int32"})

    verb = Sql("INSERT INTO s.net (i) SELECT abs(i) FROM s.t")

    assert verb.plan(lake, Commit(CommitInfo()), lambda source: source).request is not None
