"""What `verify()` finds in lakes of 1.1 that ducklakepy wrote: where its rows are not the reference's."""

from collections import Counter

import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from tests.golden.lakes_1_1.histories import HISTORIES
from tests.golden.lakes_1_1.recorded import recorded_lake
from tests.reference import ducklakepy_lake

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
        lake.repair(lake.verify(), dry_run=False)

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
        assert lake.read_arrow("t", where="i = 2").num_rows == 1
    with ducklakepy_lake.open_lake(catalog) as theirs:
        theirs.set_option("skip_stats_columns", "", table="t")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert codes(lake)["table-stats-narrow"] == 2
        lake.repair(lake.verify(), dry_run=False)
        assert set(codes(lake)) <= {"file-counter-stood"}
