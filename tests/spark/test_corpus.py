"""What the reference wrote, Spark reads as the reader without Spark, which tests/interop compares with it."""

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from tests import corpus_summary as summary
from tests.interop import corpus
from tests.interop.comparison import names_of
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.spark.reading import assert_same_rows

# how many scenarios, tables at a snapshot of each (None: all), and histories of how many statements
SIZES = {"ci": (12, 3, 1, 20), "full": (len(corpus.SCENARIOS), None, 30, 60)}


@pytest.fixture
def noted(record_property):
    """Put counts into the test's report, for the summary of the run."""
    return lambda counts: record_property(summary.BY_SPARK, dict(counts))


def compare(spark: SparkSession, catalog: CatalogDatabase, draw: random.Random, most: int | None) -> int:
    """Compare tables at a snapshot, some or all; return how many."""
    with open_lake(catalog) as duck, Lake.connect(catalog.sqlalchemy_url) as lake:
        pairs = list(_pairs(list(names_of(duck))))
        chosen = pairs if most is None else draw.sample(pairs, min(most, len(pairs)))
        for version, name in chosen:
            assert_same_rows(spark, lake, duck, name, at=version)
    return len(chosen)


def _pairs(names: list[tuple[int, list[QualifiedName]]]) -> Iterator[tuple[int, QualifiedName]]:
    return ((version, name) for version, tables in names for name in tables)


def test_scenarios_read_the_same(spark, new_catalog, noted, tmp_path, seed, size):
    count, most, *_ = SIZES[size]
    draw = random.Random(f"corpus by Spark {seed}")
    compared: Counter[str] = Counter()
    for number, scenario in enumerate(draw.sample(corpus.SCENARIOS, count)):
        catalog = new_catalog("sqlite")
        corpus.build(scenario, catalog, tmp_path / f"given{number}")
        compared[scenario.name] = compare(spark, catalog, draw, most)
    assert len(compared) == count
    assert all(compared.values()), compared
    noted({"compared": compared.total()})


def test_drawn_histories_read_the_same(spark, new_catalog, noted, seed, size):
    _, most, count, steps = SIZES[size]
    compared = 0
    for number in range(count):
        draw = random.Random(f"corpus by Spark {seed} {number}")
        catalog = new_catalog("sqlite")
        history = corpus.History(draw, Counter())
        with open_lake(catalog) as reference:
            history.play(reference, steps)
        try:
            compared += compare(spark, catalog, draw, None if most is None else 4 * most)
        except Exception as error:  # noqa: BLE001 - whatever it is, the statements show it again
            pytest.fail(f"--seed {seed}, history {number}: {error}\n" + ";\n".join(history.statements))
    assert compared > count * 5
    noted({"compared": compared})
