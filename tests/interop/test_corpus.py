"""Whatever the reference wrote, every table at every snapshot reads the same: names, types and values."""

import random
from collections import Counter

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests import corpus_summary as summary
from tests.interop import corpus
from tests.interop.comparison import Tables, differences, tables_of
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

HISTORIES = {"ci": (2, 20), "full": (200, 80)}  # how many are drawn, and how many statements each has
PARTS = 2  # for the workers to share


@pytest.fixture
def noted(record_property):
    """Put counts into the test's report, for the summary of the run."""
    return lambda counts: record_property(summary.PROPERTY, dict(counts))


# Faults of the reference (observed on 1.5.5): it keeps bounds of a table that are NULL where values have
# none (texts with NUL or beyond 256 bytes, NaN, columns promoted while their rows lay in the catalog), and a
# flush gives a data file that has ended with a delete file a second one. A table that is altered while its
# limit of inlined rows is 0 keeps the table that it has for them: with another limit small inserts fail.
NARROW, TWICE = FindingCode.TABLE_STATS_NARROW, FindingCode.TWO_DELETE_FILES
OLD_LAYOUT = FindingCode.INLINED_COLUMNS_DIFFER
NARROW_OF_THE_REFERENCE = {
    "types in files",
    "types inlined",
    "types inlined, flushed",
    "alterations, flushed",
    "partitions, inlined",
    "added files",
    "added files of many types",
}

# Files that were added from outside of the data path are deleted only where the connection says so.
REFUSED, SCHEDULED_ELSEWHERE = FindingCode.SCHEDULED_REFUSED, {"added files", "added files, inlined deletes"}


def compared(catalog: CatalogDatabase) -> Counter[str]:
    """Return how often a lake on SQLite has each feature, and how many tables were compared."""
    return Counter(corpus.features(catalog), compared=compare(catalog))


def faults(catalog: CatalogDatabase) -> dict[FindingCode, str]:
    """Return what verification finds, one sentence of each kind."""
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return {one.code: one.sentence for one in lake.verify()}


def compare(catalog: CatalogDatabase, *, with_bounds: bool = True) -> int:
    """Compare every table at every snapshot, and again where the lake has 1.1; return how many."""
    with open_lake(catalog) as reference:  # closed before we look: a DuckDB file admits one client
        theirs = list(tables_of(reference))
    count = _compare_with(catalog, theirs, with_bounds=with_bounds)
    before = faults(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.migrate(to_version="1.1", backup=False)
    assert _compare_with(catalog, theirs, with_bounds=with_bounds) == count
    assert faults(catalog).keys() <= before.keys()
    return count


def _compare_with(catalog: CatalogDatabase, theirs: list[tuple[int, Tables]], *, with_bounds: bool) -> int:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        found = list(differences(lake, theirs, with_bounds=with_bounds))
        assert not (wrong := [one for one in found if one]), f"{lake.version}: " + "\n".join(wrong[:5])
    return len(found)


@pytest.mark.parametrize("scenario", corpus.SCENARIOS, ids=lambda one: one.name)
def test_a_scenario_reads_the_same(sqlite_catalog, tmp_path, noted, scenario):
    corpus.build(scenario, sqlite_catalog, tmp_path / "given")
    counts = compared(sqlite_catalog)
    homes = {name for name, (home, _) in corpus.FEATURES.items() if home == scenario.name}
    assert all(counts[name] for name in homes), counts
    assert counts["compared"] > 0
    noted(counts)
    expected = {NARROW} if scenario.name in NARROW_OF_THE_REFERENCE else set()
    expected |= {REFUSED} if scenario.name in SCHEDULED_ELSEWHERE else set()
    assert set(faults(sqlite_catalog)) == expected


@pytest.mark.parametrize("name", ["types inlined, flushed", "defaults for inlined rows"])
def test_what_postgres_keeps_otherwise_reads_the_same(postgres_catalog, tmp_path, name):
    (scenario,) = (one for one in corpus.SCENARIOS if one.name == name)
    corpus.build(scenario, postgres_catalog, tmp_path / "given")
    assert compare(postgres_catalog) > 5


@pytest.mark.parametrize("name", ["types inlined", "mixed, flushed twice"])
def test_a_duckdb_file_keeps_rows_in_its_own_types(duckdb_catalog, tmp_path, name):
    (scenario,) = (one for one in corpus.SCENARIOS if one.name == name)
    corpus.build(scenario, duckdb_catalog, tmp_path / "given")
    assert compare(duckdb_catalog, with_bounds=False) > 5  # each question opens the file


def test_every_feature_has_a_scenario():
    assert {home for home, _ in corpus.FEATURES.values()} <= {scenario.name for scenario in corpus.SCENARIOS}


@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_histories_read_the_same(new_catalog, noted, seed, size, part):
    count, steps = HISTORIES[size]
    counts: Counter[str] = Counter()
    for number in range(part, count, PARTS):
        draw = random.Random(f"corpus {seed} {number}")
        catalog = corpus.drawn_catalog(new_catalog("sqlite"), draw)
        history = corpus.History(draw, Counter())
        with open_lake(catalog) as reference:
            history.play(reference, steps)
        try:
            counts += compared(catalog)
            stopped = any("'data_inlining_row_limit', 0" in one for one in history.statements)
            known = {NARROW, TWICE, OLD_LAYOUT} if stopped else {NARROW, TWICE}
            assert not faults(catalog).keys() - known, faults(catalog)
        except AssertionError as error:
            pytest.fail(f"--seed {seed}, history {number}: {error}\n" + ";\n".join(history.statements))
    assert size == "ci" or counts["inlined rows"]
    assert counts["compared"] > count / PARTS * steps / 3
    noted(counts)
