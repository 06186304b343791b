"""Views that read views: how many a query may have below each other, and circles of them."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.writes.sql_plan import Reads
from tests.interop.lakes import alone

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


def test_a_view_too_long_to_be_checked_is_refused_before_it_is_parsed(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_view("long", "SELECT " + "a.b(" * 30_000, dialect="spark")

        with pytest.raises(UnsupportedFeatureError, match=r"View main\.long: .* has 120007 characters"):
            Reads(lake, JOB, lake.current_snapshot()).view_of(QualifiedName.of("long"))
