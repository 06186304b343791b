"""Verification finds what was broken, each kind by its own code, and nothing in what is whole."""

import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import NullPool, create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, TableNotFoundError
from airflow_provider_ducklake.lake.planning.upkeep.findings import NOTES, REPAIRABLE, Finding, FindingCode
from airflow_provider_ducklake.lake.storage.moving import compact
from tests.golden.lakes_1_1.histories import HISTORIES
from tests.golden.lakes_1_1.recorded import recorded_lake
from tests.interop import corpus, planted
from tests.interop.lakes import alone
from tests.reference import ducklakepy_lake
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake


@dataclass(frozen=True)
class Whole:
    """A lake that nothing is wrong with, and its rows."""

    lake: planted.Planted
    rows: dict[str, list[str]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    lake = planted.Planted(planted.build(tmp_path_factory.mktemp("planted") / "lake"))
    return Whole(lake, lake.rows())


def codes_of(catalog, **arguments) -> Counter[FindingCode]:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return Counter(one.code for one in lake.verify(**arguments))


def test_nothing_is_found_in_a_whole_lake(whole):
    assert not codes_of(whole.lake.catalog, with_notes=True)


EMPTY_LAYOUT = "an inlined table without rows of another layout"
NOT_MENDED = "no statistics of rows in the catalog"


def is_mended(corruption: planted.Corruption) -> bool:
    return corruption.name == EMPTY_LAYOUT or (
        corruption.code in REPAIRABLE and corruption.name != NOT_MENDED
    )


@pytest.mark.parametrize("corruption", planted.CORRUPTIONS, ids=lambda one: one.name)
def test_what_was_broken_is_found_and_mended_where_no_row_is_lost(whole, tmp_path, corruption):
    lake = planted.copy(whole.lake.catalog, tmp_path / "lake")
    corruption.plant(lake)
    with Lake.connect(lake.catalog.sqlalchemy_url) as opened:
        found = opened.verify()

        codes = {one.code for one in found}
        assert corruption.code in codes
        assert codes <= {corruption.code, *corruption.also}
        if is_mended(corruption):
            _mend(opened, found)
            assert lake.rows() == whole.rows


def _mend(lake: Lake, found: list[Finding]) -> None:
    before = lake.current_snapshot().id
    planned = lake.repair(found, dry_run=True)
    assert lake.current_snapshot().id == before

    result = lake.repair(found)

    assert (result.repaired, result.left, result.snapshot_id) == (tuple(found), (), planned.snapshot_id)
    assert lake.current_snapshot().id == (result.snapshot_id or before)
    assert lake.verify() == []


@pytest.mark.parametrize(
    "name",
    [
        "a path in two rows",
        "too many rows",
        "a file that is gone",
        "an inlined table of another layout",
        NOT_MENDED,
    ],
)
def test_what_cannot_be_mended_stays(whole, tmp_path, name):
    (corruption,) = (one for one in planted.CORRUPTIONS if one.name == name)
    lake = planted.copy(whole.lake.catalog, tmp_path / "lake")
    corruption.plant(lake)

    with Lake.connect(lake.catalog.sqlalchemy_url) as opened:
        found = [one for one in opened.verify() if one.code is corruption.code]
        result = opened.repair(found)

        assert (result.repaired, result.left, result.snapshot_id) == ((), tuple(found), None)
        assert [one for one in opened.verify() if one.code is corruption.code] == found


def test_the_examples_of_the_guide_run(whole, tmp_path):
    lake = planted.copy(whole.lake.catalog, tmp_path / "lake")
    lake.sql("UPDATE ducklake_data_file SET footer_size = 1")
    guide = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()
    examples = [
        code
        for code in re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
        if "DAG(" not in code
    ]
    code = "".join(examples).replace("sqlite:////data/lake.sqlite", lake.catalog.sqlalchemy_url)
    names: dict[str, Any] = {}

    exec(code, names)

    assert len(examples) == 2
    assert names["planned"].left == ()
    names["lake"].close()


def test_row_ids_are_compared_a_window_at_a_time(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(compact, "_WINDOW", 4)
    assert not codes_of(whole.lake.catalog)
    for number, corruption in enumerate(planted.CORRUPTIONS):
        if corruption.code is FindingCode.ROW_ID_TWICE:
            lake = planted.copy(whole.lake.catalog, tmp_path / f"lake{number}")
            corruption.plant(lake)
            assert set(codes_of(lake.catalog)) == {FindingCode.ROW_ID_TWICE}


def test_row_ids_may_lie_far_from_each_other(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (id INT); INSERT INTO t SELECT 1 FROM range(100)")
        with closing(sqlite3.connect(sqlite_catalog.location)) as database, database:
            database.execute("UPDATE ducklake_table_stats SET next_row_id = 10000000000000000")
        reference.sql("INSERT INTO t SELECT 2 FROM range(100); UPDATE t SET id = 3 WHERE rowid % 50 = 0")
        reference.sql("CREATE TABLE u AS SELECT i FROM range(100) r(i)")
        reference.sql("DELETE FROM u; CALL ducklake_rewrite_data_files('lake', 'u', delete_threshold => 0)")

    assert not codes_of(sqlite_catalog)


def test_the_parts_of_variants_need_no_field_ids(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (i INT, v VARIANT)")
        reference.sql("INSERT INTO t SELECT i, i::VARIANT FROM range(20) r(i)")

    assert not codes_of(sqlite_catalog)


def test_every_kind_was_broken_once():
    of_1_1 = {FindingCode.EXACT_WITHOUT_BOUND, FindingCode.FILE_STATS_INEXACT}
    elsewhere = {FindingCode.SCHEMA_CIRCLE, *NOTES, *of_1_1}

    assert {one.code for one in planted.CORRUPTIONS} >= set(FindingCode) - elsewhere


def test_each_finding_names_its_objects_and_a_remedy(whole, tmp_path):
    lake = planted.copy(whole.lake.catalog, tmp_path / "lake")
    lake.sql("UPDATE ducklake_data_file SET footer_size = 1")

    with Lake.connect(lake.catalog.sqlalchemy_url) as opened:
        found = opened.verify(tables=["m"])

    assert [one.as_json()["code"] for one in found] == ["footer-size-differs"]
    assert found[0].objects["data_file_id"] in {
        row[0] for row in lake.sql("SELECT data_file_id FROM ducklake_data_file")
    }
    assert "main.m" in str(found[0])
    assert found[0].remedy


def test_a_view_that_is_there_twice_is_no_finding_of_a_table(whole, tmp_path):
    lake = planted.copy(whole.lake.catalog, tmp_path / "lake")
    lake.sql("INSERT INTO ducklake_view SELECT * FROM ducklake_view")

    assert not codes_of(lake.catalog, tables=["t"])
    assert FindingCode.TWO_AT_ONCE in codes_of(lake.catalog)


def test_some_tables_and_some_files_can_be_looked_at(whole, tmp_path):
    lake = planted.copy(whole.lake.catalog, tmp_path / "lake")
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


def test_files_below_a_data_path_of_another_spelling_are_none(sqlite_catalog):
    """DuckDB stores full paths of the files that it merges in a lake whose data path is a URI."""
    catalog = replace(sqlite_catalog, data_path=f"file://{sqlite_catalog.data_path}")
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t (i INT); INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
        reference.sql("CALL ducklake_merge_adjacent_files('lake')")

    assert not codes_of(catalog, with_notes=True)


def test_another_database_is_asked_the_same(postgres_catalog, tmp_path):
    (scenario,) = (one for one in corpus.SCENARIOS if one.name == "mixed, flushed twice")
    corpus.build(scenario, postgres_catalog, tmp_path / "given")

    assert not codes_of(postgres_catalog)


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
def test_what_we_write_is_whole_in_every_database_and_can_be_mended(catalog):
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        _history(lake)
        assert lake.verify(with_notes=True) == []

        engine = create_engine(parse_url(catalog.sqlalchemy_url))  # whose statements name no schema
        with engine.begin() as connection:
            for statement in BROKEN:
                connection.execute(text(statement))
        engine.dispose()

        found = lake.verify()
        assert {one.code for one in found} == BROKEN_CODES
        result = lake.repair(found)
        assert (result.left, result.snapshot_id) == ((), lake.current_snapshot().id)

        behind = lake.verify()  # what was hidden: rows in the catalog could not be read
        assert {one.code for one in behind} <= {FindingCode.ROW_COUNTER_BEHIND}
        lake.repair(behind)
        assert lake.verify() == []
        assert lake.read_arrow("t").num_rows == 27


BROKEN = (
    "DELETE FROM ducklake_schema_versions",
    "DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = 1",
    "UPDATE ducklake_table_stats SET next_row_id = 1",
    "UPDATE ducklake_table_column_stats SET max_value = '2' WHERE column_id = 1",
    "UPDATE ducklake_data_file SET footer_size = 1, file_size_bytes = 2",
    "INSERT INTO ducklake_snapshot_changes (snapshot_id) VALUES (900)",
    "UPDATE ducklake_snapshot SET next_file_id = next_file_id - 2",
)
BROKEN_CODES = {
    FindingCode.SCHEMA_VERSION_MISSING,
    FindingCode.CHANGES_MISSING,
    FindingCode.ROW_COUNTER_BEHIND,
    FindingCode.TABLE_STATS_NARROW,
    FindingCode.FOOTER_SIZE_DIFFERS,
    FindingCode.FILE_SIZE_DIFFERS,
    FindingCode.ROWS_OF_NOTHING,
    FindingCode.COUNTER_BEHIND,
}


def _history(lake: Lake) -> None:
    """Write files, partitions, deletes, rows in the catalog where it can hold them, and alterations."""
    with lake.transaction() as tx:
        tx.create_table("t", {"i": "int64", "s": "varchar", "day": "date"}, partition_by=["bucket(2, i)"])
    for start, count in ((0, 20), (20, 10)):  # files, and rows in the catalog
        numbers = list(range(start, start + count))
        days = [date(2024, 1, 1 + number) for number in numbers]
        lake.append_arrow(
            "t", pa.table({"i": numbers, "s": [f"s{number}" for number in numbers], "day": days})
        )
    alone(lake).delete_rows("t", "i IN (3, 4, 25)")
    with lake.transaction() as tx:
        tx.add_column("t", "late", "int32", default=7)
        tx.rename_table("t", "u")
    with lake.transaction() as tx:
        tx.rename_table("u", "t")
        tx.create_table("dropped", {"i": "int64"})
    alone(lake).drop_table("dropped")


# What `verify()` finds in lakes of 1.1 that ducklakepy wrote: where its rows are not the reference's.


# An inlined insert takes no file id; a table has no bounds of blobs (`DEVIATIONS` in tests/reference).
FOUND = {
    "nested": {"file-counter-stood": 4},
    "inlined": {"file-counter-stood": 2, "table-stats-narrow": 1},
    "files": {},
    "migrated": {},
}


def codes(lake: Lake) -> dict[str, int]:
    return dict(Counter(one.code.value for one in lake.verify()))


@pytest.mark.parametrize("name", HISTORIES)
def test_a_recorded_lake(name, tmp_path):
    with Lake.connect(recorded_lake(name, tmp_path / "lake").catalog.sqlalchemy_url) as lake:
        assert codes(lake) == FOUND[name]
        for one in lake.verify():
            assert one.code.value == "file-counter-stood" or "column 5 of main.t" in one.sentence
        lake.repair(lake.verify())

        assert codes(lake) == {code: n for code, n in FOUND[name].items() if code == "file-counter-stood"}


@pytest.mark.parametrize("name", [name for name in HISTORIES if name != "migrated"])
def test_a_lake_that_ducklakepy_writes(catalog, name):
    with ducklakepy_lake.open_lake(catalog) as theirs:
        HISTORIES[name](theirs)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert set(codes(lake)) == set(FOUND[name])


def test_statistics_that_an_option_leaves_out_are_no_finding(catalog):
    """Until the option goes: then the next insert would narrow them."""
    columns = {"i": "int64", "s": {"a": "varchar", "b": "int32"}}
    with ducklakepy_lake.open_lake(catalog) as theirs:
        theirs.create_table("t", columns)
        theirs.set_option("skip_stats_columns", ["s"], table="t")
        theirs.insert("t", [{"i": 1, "s": {"a": "x", "b": 2}}])
        theirs.set_option("data_inlining_row_limit", 0)
        theirs.insert("t", [{"i": 2, "s": {"a": "y", "b": 3}}])

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert set(codes(lake)) <= {"file-counter-stood"}
        assert lake.read_arrow("t", filter="i = 2").num_rows == 1
    with ducklakepy_lake.open_lake(catalog) as theirs:
        theirs.set_option("skip_stats_columns", "", table="t")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert codes(lake)["table-stats-narrow"] == 2
        lake.repair(lake.verify())
        assert set(codes(lake)) <= {"file-counter-stood"}


def _two_numbered_files(catalog: CatalogDatabase, deleted: range) -> None:
    """Leave files of rows 0 to 99 and 50 to 59, with rows of the first deleted."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", {"i": "int64"})
        lake.append_arrow("t", pa.table({"i": range(100)}))
        lake.append_arrow("t", pa.table({"i": range(100, 110)}))
        first = lake.scan("t").files[0].id
        alone(lake).delete_at("t", {first: list(deleted)}, [])
    engine = create_engine(catalog.sqlalchemy_url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("UPDATE ducklake_data_file SET row_id_start = 50 WHERE record_count = 10"))


@pytest.mark.parametrize(
    ("deleted", "found"),
    [(range(10), True), (range(45, 55), True), (range(50, 60), False), (range(40, 70), False)],
)
def test_numbers_of_two_files_are_twice_unless_the_rows_are_deleted(sqlite_catalog, deleted, found):
    """As many deletes elsewhere in the file do not excuse it."""
    _two_numbered_files(sqlite_catalog, deleted)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert ("row-ids-overlap" in codes(lake)) is found
