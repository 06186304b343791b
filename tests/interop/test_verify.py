"""Verification finds what was broken, each kind by its own code, and nothing in what is whole."""

import random
from collections import Counter

import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.errors import InvalidInputError, TableNotFoundError
from airflow_provider_ducklake.planning.findings import FindingCode
from tests.interop import corpus, planted
from tests.reference.duckdb_lake import open_lake

# The reference keeps bounds of a table that are NULL where a value has none: texts with NUL or beyond 256
# bytes, NaN, columns that were promoted while their rows lay in the catalog (observed on 1.5.5).
NARROW_OF_THE_REFERENCE = {
    "types in files",
    "types inlined, flushed",
    "alterations, flushed",
    "partitions, inlined",
    "added files",
    "added files of many types",
}
HISTORIES = {"ci": (2, 25), "full": (100, 80)}  # how many are drawn, and how many statements each has
THEIR_FAULTS = {FindingCode.TABLE_STATS_NARROW, FindingCode.TWO_DELETE_FILES}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a lake that nothing is wrong with."""
    return planted.build(tmp_path_factory.mktemp("planted") / "lake")


def codes_of(catalog, **arguments) -> Counter[FindingCode]:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return Counter(one.code for one in lake.verify(**arguments))


def test_nothing_is_found_in_a_whole_lake(whole):
    assert not codes_of(whole, with_notes=True)


@pytest.mark.parametrize("corruption", planted.CORRUPTIONS, ids=lambda one: one.name)
def test_what_was_broken_is_found(whole, tmp_path, corruption):
    lake = planted.copy(whole, tmp_path / "lake")
    corruption.plant(lake)

    found = codes_of(lake.catalog)

    assert found[corruption.code]
    assert set(found) <= {corruption.code, *corruption.also}


def test_every_kind_was_broken_once():
    assert {one.code for one in planted.CORRUPTIONS} >= set(FindingCode) - {FindingCode.OUTSIDE_DATA_PATH}


def test_each_finding_names_its_objects_and_a_remedy(whole, tmp_path):
    lake = planted.copy(whole, tmp_path / "lake")
    lake.sql("UPDATE ducklake_data_file SET footer_size = 1")

    with Lake.connect(lake.catalog.sqlalchemy_url) as opened:
        found = opened.verify(tables=["m"])

    assert [one.as_json()["code"] for one in found] == ["footer-size-differs"]
    assert found[0].objects["data_file_id"] in {
        row[0] for row in lake.sql("SELECT data_file_id FROM ducklake_data_file")
    }
    assert "main.m" in str(found[0])
    assert found[0].remedy


def test_some_tables_and_some_files_can_be_looked_at(whole, tmp_path):
    lake = planted.copy(whole, tmp_path / "lake")
    lake.path("data_file", "m").unlink()

    assert codes_of(lake.catalog, tables=["main.m"]) == {FindingCode.FILE_MISSING: 1}
    assert not codes_of(lake.catalog, tables=["t", "p", "n"])
    assert not codes_of(lake.catalog, sample=0)
    with pytest.raises(TableNotFoundError):
        codes_of(lake.catalog, tables=["nothing"])
    with pytest.raises(InvalidInputError, match="sample is 2"):
        codes_of(lake.catalog, sample=2)


def test_files_elsewhere_are_a_note(sqlite_catalog, tmp_path):
    (scenario,) = (one for one in corpus.SCENARIOS if one.name == "an added file beside one without rows")
    corpus.build(scenario, sqlite_catalog, tmp_path / "given")

    assert not codes_of(sqlite_catalog)
    assert set(codes_of(sqlite_catalog, with_notes=True)) == {FindingCode.OUTSIDE_DATA_PATH}


@pytest.mark.parametrize("scenario", corpus.SCENARIOS, ids=lambda one: one.name)
def test_what_the_reference_writes_is_whole(sqlite_catalog, tmp_path, scenario):
    corpus.build(scenario, sqlite_catalog, tmp_path / "given")

    faults = {FindingCode.TABLE_STATS_NARROW} if scenario.name in NARROW_OF_THE_REFERENCE else set()
    assert set(codes_of(sqlite_catalog)) == faults


@pytest.mark.parametrize("name", ["mixed, flushed twice", "partitions in files", "sorted"])
def test_other_databases_are_asked_the_same(postgres_catalog, tmp_path, name):
    (scenario,) = (one for one in corpus.SCENARIOS if one.name == name)
    corpus.build(scenario, postgres_catalog, tmp_path / "given")

    assert not codes_of(postgres_catalog)


def test_drawn_histories_of_the_reference_are_whole(new_catalog, seed, size):
    count, steps = HISTORIES[size]
    for number in range(count):
        catalog = new_catalog("sqlite")
        history = corpus.History(random.Random(f"verify {seed} {number}"), Counter())
        with open_lake(catalog) as reference:
            history.play(reference, steps)
        found = codes_of(catalog)
        assert set(found) <= THEIR_FAULTS, (seed, number, found, history.statements)
