"""The scale models are valid lakes, and on a larger one no call takes more statements."""

from contextlib import closing
from dataclasses import replace

from airflow_provider_ducklake.catalog.lake import Lake
from tests.reference.duckdb_lake import open_lake
from tests.scale.calls import CALLS, FOUND, Target
from tests.scale.models import EVERYTHING, TABLE, Model, make
from tests.scale.statements import statements

SMALL, LARGE = 3, 12


def test_a_model_is_a_valid_lake_that_duckdb_reads(new_catalog, catalog_kind):
    catalog = new_catalog(catalog_kind)
    make(Model(catalog, EVERYTHING, SMALL))

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.verify(sample=0) == []
        assert lake.read_arrow(TABLE, where=FOUND).num_rows == 1
    with closing(open_lake(catalog.attach_string)) as reference:
        assert reference.sql(f"SELECT count(*) FROM {TABLE} WHERE {FOUND}") == [(1,)]


def test_the_number_of_statements_does_not_grow_with_a_lake(new_catalog, catalog_kind):
    small, large = (
        _statement_counts(Model(new_catalog(catalog_kind), EVERYTHING, size)) for size in (SMALL, LARGE)
    )

    assert large == small


def _statement_counts(model: Model) -> dict[str, int]:
    make(model)
    counts = {}
    with Lake.connect(model.catalog.sqlalchemy_url) as lake:
        lake.current_snapshot()  # which opens the connection
        for call in CALLS:
            target = replace(Target.of(lake, model), many=3)
            with statements() as sent:
                call.run(target)
            counts[call.name] = len(sent)
    return counts
