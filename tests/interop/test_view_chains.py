"""Views that read views: how many a query may have below each other, and circles of them."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.writes.sql_plan import Reads

JOB = "01a214b0-005d-7a75-9966-2ec304b4ac3e"


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int64"})
            tx.create_view("v1", "SELECT id FROM t", dialect="spark")
            for number in range(2, 400):
                tx.create_view(f"v{number}", f"SELECT id FROM v{number - 1}", dialect="spark")
            tx.create_view("one", "SELECT id FROM other", dialect="spark")
            tx.create_view("other", "SELECT id FROM one", dialect="spark")
            tx.create_view("own", "SELECT id FROM own", dialect="spark")
            tx.create_view("twice", "SELECT id FROM v1 JOIN v2 USING (id)", dialect="spark")
        yield lake


@pytest.fixture
def reads(lake) -> Reads:
    return Reads(lake, JOB, lake.current_snapshot())


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


@pytest.fixture
def doubling(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int64"})
            tx.create_view("x0", "SELECT id FROM t", dialect="spark")
            for number in range(1, 12):
                below = f"x{number - 1}"
                joined = f"SELECT a.id FROM {below} a JOIN {below} b USING (id)"
                tx.create_view(f"x{number}", joined, dialect="spark")
            tx.create_view("y0", "SELECT id FROM t", dialect="spark")
            for number in range(1, 12):
                common = f"WITH c AS (SELECT id FROM y{number - 1}) SELECT a.id FROM c a JOIN c b USING (id)"
                tx.create_view(f"y{number}", common, dialect="spark")
            commons = ", ".join(f"c{n} AS (SELECT a.id FROM c{n - 1} a, c{n - 1} b)" for n in range(1, 20))
            tx.create_view("z", f"WITH c0 AS (SELECT 1 AS id), {commons} SELECT id FROM c19", dialect="spark")
            tx.create_view("long", "SELECT " + "a.b(" * 30_000, dialect="spark")
        yield Reads(lake, JOB, lake.current_snapshot())


@pytest.mark.parametrize(("fits", "doubles"), [("x8", "x11"), ("y7", "y11")])
def test_views_that_read_the_one_before_twice_have_an_end(doubling, fits, doubles):
    doubling.view_of(QualifiedName.of(fits))

    with pytest.raises(
        UnsupportedFeatureError,
        match=r"View main\.[xy]\d reads tables \d{3} times in all, .* 500 are possible",
    ):
        doubling.view_of(QualifiedName.of(doubles))


def test_common_table_expressions_that_double_have_an_end(doubling):
    with pytest.raises(UnsupportedFeatureError, match=r"View main\.z reads tables \d+ times in all"):
        doubling.view_of(QualifiedName.of("z"))


def test_a_view_too_long_to_be_checked_is_refused_before_its_macros_are_looked_for(doubling):
    with pytest.raises(UnsupportedFeatureError, match=r"View main\.long, .* has 120007 characters"):
        doubling.view_of(QualifiedName.of("long"))
