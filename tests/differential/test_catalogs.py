"""The same history, written by us and by the reference, leaves equal catalogs."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.differential.ddl_scenarios import DDL_SCENARIOS
from tests.differential.scenarios import SCENARIOS, Scenario
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog, dump_schema
from tests.reference.duckdb_lake import open_lake

EVERY = [*SCENARIOS, *DDL_SCENARIOS]


@pytest.mark.parametrize("scenario", EVERY, ids=lambda scenario: scenario.name)
def test_our_catalog_equals_the_references(catalog, reference_catalog, scenario: Scenario):
    compare(catalog, reference_catalog, scenario, row_limit=0)


@pytest.mark.parametrize("scenario", EVERY, ids=lambda scenario: scenario.name)
def test_our_catalog_equals_the_references_with_inlining(catalog, reference_catalog, scenario: Scenario):
    compare(
        catalog, reference_catalog, scenario, row_limit=10, ignored=scenario.ignored_inlined | _INLINED_FLOATS
    )


# Of inlined floats the reference keeps no contains_nan.
_INLINED_FLOATS = frozenset({"ducklake_table_column_stats.contains_nan"})


def compare(
    catalog, reference_catalog, scenario: Scenario, row_limit: int, ignored: frozenset[str] = frozenset()
) -> None:
    """Write the history twice, inserts of up to `row_limit` rows into the catalog, and compare."""
    with (
        open_lake(reference_catalog, data_path=reference_catalog.data_path) as reference,
        Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake,
    ):
        reference.sql(f"CALL lake.set_option('data_inlining_row_limit', {row_limit})")
        lake.set_option("data_inlining_row_limit", str(row_limit))
        for statement in scenario.reference:
            reference.sql(statement)
        scenario.ours(lake, reference)

    assert_catalogs_equal(
        dump_catalog(catalog), dump_catalog(reference_catalog), ignore={*scenario.ignored, *ignored}
    )


def test_a_new_catalog_has_the_references_tables_columns_and_types(catalog, reference_catalog):
    open_lake(reference_catalog, data_path=reference_catalog.data_path).close()

    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()

    assert dump_schema(catalog) == dump_schema(reference_catalog)
