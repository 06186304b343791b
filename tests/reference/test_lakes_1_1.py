"""The recorded lakes of 1.1 hold what they say: to ducklakepy, and to DuckDB 1.5.5 in the words of 1.0."""

import json
from typing import Any

import duckdb
import pytest

from tests.golden.lakes_1_1.recorded import NAMES, RecordedLake, recorded_lake, rows_of
from tests.reference import duckdb_lake, ducklakepy_lake

# It compares the full paths of data files with those that a container names, which a copy cannot keep.
READ_BY_DUCKLAKEPY = [name for name in NAMES if name != "files"]


_UNKNOWN_TO_1_0 = ("timestamptz_ns", "variant")


@pytest.fixture
def recorded(request, tmp_path) -> RecordedLake:
    return recorded_lake(request.param, tmp_path / "lake")


@pytest.mark.parametrize("recorded", READ_BY_DUCKLAKEPY, indirect=True)
def test_ducklakepy_reads_what_was_recorded(recorded):
    with ducklakepy_lake.open_lake(recorded.catalog) as lake:
        assert lake.version() == "1.1"
        assert [str(snapshot) for snapshot in lake.snapshots()] == list(recorded.snapshots)
        for snapshot, expected in recorded.snapshots.items():
            assert len(lake.schemas(int(snapshot))) == len(expected["schemas"])
            for name, table in expected["tables"].items():
                assert lake.columns(name, int(snapshot)) == table["columns"]
                assert rows_of(lake.read_row_ids(name, int(snapshot))) == table["rows"]


@pytest.mark.parametrize("recorded", NAMES, indirect=True)
def test_the_reference_reads_what_was_recorded(recorded, judge):
    with duckdb_lake.open_lake(judge(recorded.catalog)) as reference:
        for snapshot, expected in recorded.snapshots.items():
            for name, table in expected["tables"].items():
                query = f"SELECT rowid, * FROM {_flat(name)} AT (VERSION => {snapshot})"
                found = [_comparable(row, table["columns"]) for row in rows_of(reference.arrow(query))]
                wanted = [_comparable(row, table["columns"]) for row in table["rows"]]
                assert sorted(found, key=json.dumps) == sorted(wanted, key=json.dumps)


@pytest.mark.parametrize("recorded", NAMES, indirect=True)
def test_the_reference_has_the_recorded_change_feed(recorded, judge):
    newest = list(recorded.snapshots)[-1]
    with duckdb_lake.open_lake(judge(recorded.catalog)) as reference:
        for name, feed in recorded.changes.items():
            schema, table = (part.strip('"') for part in _flat(name).rsplit('"."', 1))
            query = f"""
                SELECT snapshot_id, rowid, change_type
                FROM ducklake_table_changes('lake', '{schema}', '{table}', 0, {newest})
            """
            assert sorted(reference.sql(query)) == [tuple(change) for change in feed]


@pytest.mark.parametrize("recorded", NAMES, indirect=True)
def test_the_reference_does_not_attach_them(recorded):
    with pytest.raises(duckdb.Error, match="catalog version mismatch"):
        duckdb_lake.open_lake(recorded.catalog)


def _flat(name: str) -> str:
    *schemas, table = (part.strip('"') for part in name.split('"."'))
    return f'"{"/".join(schemas)}"."{table}"'


def _comparable(row: dict[str, Any], types: dict[str, str]) -> dict[str, Any]:
    """Leave out what 1.0 cannot show, and give columns their own names again."""
    named = {name if name in types else name.removesuffix("_"): value for name, value in row.items()}
    return {name: value for name, value in named.items() if types.get(name) not in _UNKNOWN_TO_1_0}
