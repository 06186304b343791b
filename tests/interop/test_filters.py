"""Filtered reads: no file with a wanted row is left out, and the rows are those of DuckDB's WHERE."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, example, given, settings
from sqlalchemy import Engine, event

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
from airflow_provider_ducklake.lake.storage.rows.table_reader import live_rows, matching, read_rows
from tests.interop.filtered_lake import fill_by_the_reference, fill_by_us, filters
from tests.interop.many_files import POINT_FILTERS, make_many_files
from tests.reference.catalogs import CatalogDatabase, data_directory
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake
from tests.reference.postgres import fresh_database


class Subject:
    """A table, its rows file by file, and DuckDB with a copy of it that has no statistics to go by."""

    def __init__(self, lake: Lake, reference: DuckLakeConnection) -> None:
        reference.sql("CREATE TEMP TABLE copied AS FROM t")
        plan = lake.scan("t")
        self.lake, self.reference = lake, reference
        self.rows = {file.id: live_rows(plan, file, lake.locate) for file in plan.files}
        self.inlined = read_rows(ScanPlan(plan.table, (), plan.columns, plan.inlined_rows), lake.locate)


@pytest.fixture(params=["the reference", "us"])
def subject(request, catalog, new_catalog, tmp_path):
    before = fill_by_the_reference(catalog, tmp_path / "given")
    if request.param == "us":
        theirs, catalog = catalog, new_catalog(catalog.kind)
        with Lake.connect(theirs.sqlalchemy_url) as source:
            fill_by_us(catalog, source, before)
    with open_lake(catalog) as reference, Lake.connect(catalog.sqlalchemy_url) as lake:
        yield Subject(lake, reference)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=filters)
@example("i32 < 0 AND d < DATE '1970-01-01'")
@example("i32 <= -7 OR d <= '1969-12-31'")
@example("i32 > 0 OR day > '2024-02-29'")
@example("i32 >= 3 AND s >= 'a'")
@example("s < 'b' OR u < '80000000-0000-0000-0000-000000000000'")
@example("ts_s < TIMESTAMP '2020-01-02 03:04:05'")
@example("n < 1.5 AND tz > '2020-12-31 23:29:59+00'")
@example("f64 >= 1e300")
@example("key IN (6, -1)")
def test_no_wanted_row_is_left_out_and_no_other_comes(subject, text):
    plan = subject.lake.scan("t", filter=text)
    schema = plan.table.schema
    kept = {file.id for file in plan.files}
    found = matching(subject.inlined, plan.where, schema)["id"].to_pylist()
    for file_id, rows in subject.rows.items():
        ids = matching(rows, plan.where, schema)["id"].to_pylist()
        assert file_id in kept or not ids, text
        found += ids

    wanted = subject.reference.sql(f"SELECT id FROM copied WHERE {text}")
    assert sorted(found) == sorted(one for (one,) in wanted), text


@pytest.mark.parametrize("where", POINT_FILTERS, ids=POINT_FILTERS.get)
def test_a_point_query_fetches_and_reads_one_of_10_000_files(many_files, where):
    with Lake.connect(many_files.sqlalchemy_url) as lake:
        lake.current_snapshot()
        with counted() as fetched:
            plan = lake.scan("t", filter=where)

        assert len(plan.files) == 1
        assert len(fetched) < 25  # statements
        assert sum(fetched) < 100  # rows
        assert lake.read_arrow("t", columns=["name"], filter=where).to_pylist() == [{"name": "n000000005"}]


def test_a_filter_that_no_database_judges_fetches_the_statistics_of_its_columns(many_files):
    with Lake.connect(many_files.sqlalchemy_url) as lake:
        with counted() as fetched:
            plan = lake.scan("t", filter="name LIKE 'n000000005%'")
        assert len(plan.files) == 1
        assert sum(fetched) < 2 * 10_000 + 100  # a file and one column's statistics

        with counted() as fetched:
            assert lake.row_count("t") == 10_000
        assert sum(fetched) < 50


@pytest.fixture(scope="module")
def many_files(postgres_port, tmp_path_factory):
    with fresh_database(postgres_port) as database:
        catalog = CatalogDatabase("postgres", database, data_directory(tmp_path_factory.mktemp("files")))
        make_many_files(catalog, 10_000)
        yield catalog


@contextmanager
def counted() -> Iterator[list[int]]:
    """Yield a list that grows by the number of rows of each statement."""
    fetched: list[int] = []

    def note(_connection, cursor, *_) -> None:
        fetched.append(max(cursor.rowcount, 0))

    event.listen(Engine, "after_cursor_execute", note)
    try:
        yield fetched
    finally:
        event.remove(Engine, "after_cursor_execute", note)
