"""The same history, written by us and by the reference, leaves equal catalogs."""

import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from tests.differential.ddl_scenarios import DDL_SCENARIOS
from tests.differential.scenarios import SCENARIOS, Scenario
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog, dump_schema
from tests.reference.duckdb_lake import open_lake


@pytest.mark.parametrize("scenario", [*SCENARIOS, *DDL_SCENARIOS], ids=lambda scenario: scenario.name)
def test_our_catalog_equals_the_references(catalog, reference_catalog, scenario: Scenario):
    with open_lake(
        reference_catalog, data_path=reference_catalog.data_path, data_inlining_row_limit=0
    ) as reference:
        for statement in scenario.reference:
            reference.sql(statement)
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
            scenario.ours(lake, reference)

    assert_catalogs_equal(
        dump_catalog(catalog), dump_catalog(reference_catalog), ignore=set(scenario.ignored)
    )


def test_a_new_catalog_has_the_references_tables_columns_and_types(catalog, reference_catalog):
    open_lake(reference_catalog, data_path=reference_catalog.data_path).close()

    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()

    assert dump_schema(catalog) == dump_schema(reference_catalog)
