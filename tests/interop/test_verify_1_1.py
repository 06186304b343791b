"""What `verify()` finds in lakes of 1.1 that ducklakepy wrote: where its rows are not the reference's."""

from collections import Counter

import pyarrow as pa
import pytest
from sqlalchemy import NullPool, create_engine, text

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.golden.lakes_1_1.histories import HISTORIES
from tests.golden.lakes_1_1.recorded import recorded_lake
from tests.interop.lakes import alone
from tests.reference import ducklakepy_lake
from tests.reference.catalogs import CatalogDatabase

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
