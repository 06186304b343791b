"""Comments of views' columns, which 1.1 has: rows as ducklakepy's, and what becomes of them."""

import pytest

from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    ColumnNotFoundError,
    InvalidInputError,
    TransactionConflictError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.versions import NEWEST, write_version
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from airflow_provider_ducklake.lake.writes.sql_plan import Reads
from tests.interop.lakes import alone
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake


@pytest.fixture
def lake(catalog: CatalogDatabase):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as opened:
        with opened.transaction() as tx:
            tx.create_table("t", {"id": "int32", "n": "int32"})
            tx.create_view("v", "SELECT id, n + 1 AS m FROM t", column_aliases=["x", "y"])
            tx.create_view("plain", "SELECT id FROM t")
            tx.create_view("star", "SELECT * FROM t")
        yield opened


def run(lake: Lake, text: str) -> None:
    with lake.transaction() as tx:
        apply_ddl(tx, parse_ddl(text, write_version(NEWEST)))


def tags(catalog: CatalogDatabase) -> list[tuple[object, ...]]:
    names = ("column_name", "begin_snapshot", "end_snapshot", "key", "value")
    rows = dump_catalog(catalog)["ducklake_view_column_tag"]
    return sorted((tuple(row[name] for name in names) for row in rows), key=str)


def test_rows_are_those_of_ducklakepy(lake, catalog, reference_catalog):
    run(lake, "COMMENT ON COLUMN plain.ID IS 'first'")
    run(lake, "COMMENT ON COLUMN main.plain.id IS 'second'")
    with ducklakepy_lake.open_lake(reference_catalog) as theirs:
        theirs.create_table("t", {"id": "int32", "n": "int32"})
        theirs.create_view("plain", "SELECT id FROM t")
        first = theirs.comment("plain", "first", column="id")
        theirs.comment("plain", "second", column="id")

    shift = first - 2

    def moved(row: tuple[object, ...]) -> tuple[object, ...]:
        name, begin, end, *rest = row
        return name, begin - shift, None if end is None else end - shift, *rest

    assert tags(catalog) == [moved(row) for row in tags(reference_catalog)]
    assert dump_catalog(catalog)["ducklake_snapshot_changes"][-1]["changes_made"].startswith("altered_view:")
    with ducklakepy_lake.open_lake(catalog) as theirs:
        assert theirs.view("plain")["column_comments"] == {"id": "second"}


def test_a_comment_is_kept_under_the_querys_name(lake, catalog):
    run(
        lake,
        "COMMENT ON COLUMN v.x IS 'of id'; COMMENT ON COLUMN v.Y IS 'of m'; COMMENT ON COLUMN star.n IS 'n'",
    )

    assert {(row[0], row[4]) for row in tags(catalog)} == {("id", "of id"), ("m", "of m"), ("n", "n")}


def test_one_that_is_taken_away_leaves_null(lake, catalog):
    run(lake, "COMMENT ON COLUMN plain.id IS 'x'")
    run(lake, "COMMENT ON COLUMN plain.id IS NULL")

    assert [(row[2] is None, row[4]) for row in tags(catalog)] == [(False, "x"), (True, None)]
    assert lake.verify() == []


@pytest.mark.parametrize("column", ["v.id", "v.nope", "plain.nope"])
def test_a_column_that_the_view_does_not_show_is_refused(lake, column):
    with pytest.raises(ColumnNotFoundError):
        run(lake, f"COMMENT ON COLUMN {column} IS 'x'")


def test_a_query_that_does_not_say_the_name_is_refused(lake):
    run(lake, "CREATE VIEW w(a) AS SELECT * FROM t; CREATE VIEW u(a) AS SELECT n + 1 FROM t")

    for view in ("w", "u"):
        with pytest.raises(UnsupportedFeatureError, match="does not say the name"):
            run(lake, f"COMMENT ON COLUMN {view}.a IS 'x'")


def test_they_go_with_the_view_and_come_back_with_it(lake, catalog):
    run(lake, "COMMENT ON COLUMN v.x IS 'one'; COMMENT ON VIEW v IS 'all'")
    before = lake.current_snapshot().id
    run(lake, "ALTER VIEW v RENAME TO w; COMMENT ON COLUMN w.x IS 'two'")
    run(lake, "DROP VIEW w")
    assert all(row[2] is not None for row in tags(catalog))

    lake.restore(at=before)

    with ducklakepy_lake.open_lake(catalog) as theirs:
        assert theirs.view("v")["column_comments"] == {"id": "one"}
        assert theirs.view("v", before)["column_comments"] == {"id": "one"}
    lake.expire_snapshots(snapshots=[one.id for one in lake.snapshots()[:-1]])
    assert [(row[0], row[4]) for row in tags(catalog)] == [("id", "one")]
    assert lake.verify() == []


def test_two_comments_on_one_view_conflict(lake, catalog):
    def both() -> None:
        with lake.transaction() as tx:
            tx.comment_on_column("plain", "id", "ours")
            with Lake.connect(catalog.sqlalchemy_url) as other, other.transaction() as first:
                first.comment_on_column("plain", "id", "theirs")

    with pytest.raises(TransactionConflictError, match="altered it"):
        both()


def test_1_0_has_none(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_view("v", "SELECT 1 AS a")
        sentence = r"DuckLake 1\.0 does not support COMMENT ON COLUMN for views"
        with pytest.raises(UnsupportedFeatureError, match=sentence):
            run(lake, "COMMENT ON COLUMN v.a IS 'x'")


def test_views_of_the_reference_are_read_with_its_placeholder(sqlite_catalog):
    with open_lake(sqlite_catalog) as reference:
        for statement in (
            "CREATE TABLE t (i INTEGER, j VARCHAR)",
            "CREATE VIEW w AS SELECT lake.main.t.i, j AS k FROM lake.main.t",
            "CREATE VIEW v(x) AS SELECT t.i + 1 AS q, w.k FROM t JOIN lake.main.w USING (i)",
        ):
            reference.sql(statement)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.migrate(to_version="1.1", backup=False)
    stored = {row["view_name"]: row["sql"] for row in dump_catalog(sqlite_catalog)["ducklake_view"]}
    assert all("{DUCKLAKE_CATALOG}" in sql for sql in stored.values())

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for column in ("v.x", "v.k", "w.I", "w.k"):
            run(lake, f"COMMENT ON COLUMN {column} IS 'about {column}'")
        for absent in ("v.i", "w.j"):
            with pytest.raises(ColumnNotFoundError):
                run(lake, f"COMMENT ON COLUMN {absent} IS ''")

    expected = {("q", "about v.x"), ("k", "about v.k"), ("i", "about w.I"), ("k", "about w.k")}
    assert {(row[0], row[4]) for row in tags(sqlite_catalog)} == expected
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
        assert theirs.view("v")["column_comments"] == {"q": "about v.x", "k": "about v.k"}


def test_a_rename_writes_them_again(lake, catalog):
    run(
        lake,
        "COMMENT ON COLUMN v.x IS 'one'; COMMENT ON COLUMN v.y IS 'two'; COMMENT ON COLUMN plain.id IS 'p'",
    )
    run(lake, "COMMENT ON COLUMN plain.id IS NULL")
    before = tags(catalog)
    run(lake, "ALTER VIEW v RENAME TO w; COMMENT ON COLUMN w.y IS 'three'; ALTER VIEW plain RENAME TO bare")
    at = lake.current_snapshot().id

    ended = [(*row[:2], at, *row[3:]) if row[4] in {"one", "two"} else row for row in before]
    begun = [("id", at, None, "comment", "one"), ("m", at, None, "comment", "three")]
    assert tags(catalog) == sorted([*ended, *begun], key=str)
    with ducklakepy_lake.open_lake(catalog) as theirs:
        assert theirs.view("w")["column_comments"] == {"id": "one", "m": "three"}
        assert theirs.view("v", at - 1)["column_comments"] == {"id": "one", "m": "two"}
        assert theirs.view("bare")["column_comments"] == {"id": None}  # as it was
    assert lake.verify() == []


# Views that read views: how many a query may have below each other, and circles of them.


JOB = "01a214b0-005d-7a75-9966-2ec304b4ac3e"


@pytest.fixture
def chains(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as chains:
        with chains.transaction() as tx:
            tx.create_table("t", {"id": "int64"})
            tx.create_view("v1", "SELECT id FROM t", dialect="spark")
            for number in range(2, 400):
                tx.create_view(f"v{number}", f"SELECT id FROM v{number - 1}", dialect="spark")
            tx.create_view("one", "SELECT id FROM other", dialect="spark")
            tx.create_view("other", "SELECT id FROM one", dialect="spark")
            tx.create_view("own", "SELECT id FROM own", dialect="spark")
            tx.create_view("twice", "SELECT id FROM v1 JOIN v2 USING (id)", dialect="spark")
        yield chains


@pytest.fixture
def reads(chains) -> Reads:
    return Reads(chains, JOB, chains.current_snapshot())


def test_a_chain_of_views_has_an_end(reads):
    reads.view_of(QualifiedName.of("v50"))
    assert len(reads.steps) == 50

    with pytest.raises(
        UnsupportedFeatureError,
        match=r"View main\.v349 is read through main\.v399 and main\.v350: .* 50 views",
    ):
        reads.view_of(QualifiedName.of("v399"))


def test_views_that_read_each_other_in_a_circle_are_named(reads):
    with pytest.raises(InvalidInputError, match=r"View main\.one reads itself through main\.other\."):
        reads.view_of(QualifiedName.of("one"))


def test_a_view_that_reads_itself_is_named(reads):
    with pytest.raises(InvalidInputError, match=r"View main\.own reads itself\."):
        reads.view_of(QualifiedName.of("own"))


def test_a_view_that_two_others_read_is_no_circle(reads):
    reads.view_of(QualifiedName.of("twice"))

    assert reads.names == ["main.t", "main.twice", "main.v1", "main.v2"]


def test_a_view_too_long_to_be_checked_is_refused_before_it_is_parsed(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as chains:
        alone(chains).create_view("long", "SELECT " + "a.b(" * 30_000, dialect="spark")

        with pytest.raises(UnsupportedFeatureError, match=r"View main\.long: .* has 120007 characters"):
            Reads(chains, JOB, chains.current_snapshot()).view_of(QualifiedName.of("long"))
