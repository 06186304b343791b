"""Macros that we made: kept, called by the reference, restored, expired, verified."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import AlreadyExistsError, InvalidInputError, MacroNotFoundError
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
    with pytest.raises(InvalidInputError, match=r"table s\.t, macro s\.(net|few)"), lake.transaction() as tx:
        tx.drop_schema("s")
    with lake.transaction() as tx:
        tx.drop_schema("s", cascade=True)
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
    with lake.transaction() as tx:
        tx.rename_table("s.t", "u")

    assert definitions(catalog) == was
    assert lake.verify() == []


def test_names_are_compared_as_duckdb_compares_them(lake):
    with pytest.raises(AlreadyExistsError, match=r"macro named s\.net"), lake.transaction() as tx:
        tx.create_macro("S.NET", "(a) AS a")
    with lake.transaction() as tx:
        tx.create_macro("s.net", "(a) AS a", if_not_exists=True)
        tx.create_macro("s.net", "(a) AS TABLE SELECT a")
        tx.create_table("s.net", {"i": "int32"})
    assert names(lake) == ["s.few", "s.net", "s.net"]
    with lake.transaction() as tx:
        tx.drop_macro("s.NET")
    assert [one.definition.is_table for one in lake.macros()] == [True, True]
    with pytest.raises(MacroNotFoundError, match=r"Table macro s\.gone"), lake.transaction() as tx:
        tx.drop_macro("s.gone", table=True)
