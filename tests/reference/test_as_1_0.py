"""DuckDB 1.5.5 reads what a 1.1 writer wrote, in a copy that says it in the words of 1.0."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest

from tests.golden.lakes_1_1.recorded import NAMES, RecordedLake, recorded_lake, rows_of
from tests.reference import duckdb_lake, ducklakepy_lake
from tests.reference.as_1_0 import CannotJudgeError
from tests.reference.duckdb_core import open_core
from tests.reference.duckdb_lake import open_lake

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAYS = (-400, -1, 0, 1, 40, 400)


@pytest.mark.parametrize("inline_limit", [0, 100], ids=["files", "inlined"])
def test_the_reference_reads_nested_schemas_epoch_partitions_and_new_types(catalog, judge, inline_limit):
    with ducklakepy_lake.open_lake(catalog, inline_limit=inline_limit) as lake:
        for schema in ("sales", "sales.europe", ("a.b",)):
            lake.create_schema(schema)
        columns = {"id": "int64", "day": "timestamp", "moment": "timestamptz_ns", "n": "null"}
        lake.create_table("sales.europe.orders", columns)
        lake.partition_by("sales.europe.orders", "epoch_day(day)", "epoch_hour(moment)")
        for n in DAYS:
            at = EPOCH + timedelta(days=n)
            row = {"id": n, "day": at.replace(tzinfo=None), "moment": at + timedelta(hours=3)}
            inserted = lake.insert("sales.europe.orders", [row])
        lake.delete("sales.europe.orders", "id = 40")
        lake.create_view("sales.v", "SELECT id FROM main.t")
        lake.comment("sales.v", "the column", column="id")

    with open_lake(judge(catalog)) as reference:
        orders = '"sales/europe".orders'
        kept = [(n, EPOCH + timedelta(days=n, hours=3), None) for n in DAYS if n != 40]
        assert reference.sql(f"SELECT id, moment, n FROM {orders} ORDER BY id") == kept
        then = reference.sql(f"SELECT id FROM {orders} AT (VERSION => {inserted}) ORDER BY id")
        assert then == [(n,) for n in DAYS]
        for n, at, _ in kept:
            day = f"TIMESTAMP '1970-01-01' + INTERVAL '{n} days'"
            assert reference.sql(f"SELECT id FROM {orders} WHERE day = {day}") == [(n,)]
            assert reference.sql(f"SELECT id FROM {orders} WHERE moment = '{at}'::TIMESTAMPTZ") == [(n,)]
        created = "SELECT changes['tables_created'] FROM ducklake_snapshots('lake') WHERE snapshot_id = 4"
        assert reference.sql(created) == [(['"sales/europe".orders'],)]
        schemas = "SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake' ORDER BY 1"
        assert reference.sql(schemas) == [("a.b",), ("main",), ("sales",), ("sales/europe",)]


def test_the_reference_reads_null_below_the_top(catalog, judge):
    with ducklakepy_lake.open_lake(catalog) as lake:
        lake.create_table("t", {"id": "int64", "n": {"x": "null", "l": ["null"]}, "row_id": "int32"})
        lake.insert("t", [{"id": 1, "n": {"x": None, "l": [None]}, "row_id": 7}])

    with open_lake(judge(catalog)) as reference:
        assert reference.sql("FROM t") == [(1, {"x": None, "l": [None]}, 7)]


def test_the_reference_reads_the_vectors_of_a_container_at_each_snapshot(catalog, judge):
    with ducklakepy_lake.open_lake(catalog, inline_limit=0) as lake:
        lake.create_table("t", {"i": "int64"})
        lake.set_option("write_deletion_vectors", "true")
        counts = {lake.insert("t", [{"i": n} for n in range(100)]): 100}
        for first in (0, 10, 20):
            counts[lake.delete("t", f"i BETWEEN {first} AND {first + 2}")] = 97 - 3 * first // 10
        counts[lake.rename_table("t", "renamed")] = 91
        counts[lake.delete("renamed", "i = 99")] = 90

    with open_lake(judge(catalog)) as reference:
        for snapshot, count in counts.items():
            name = "renamed" if snapshot >= 6 else "t"
            found = reference.sql(f"SELECT count(i), sum(i) FROM {name} AT (VERSION => {snapshot})")
            assert found[0][0] == count
        deleted = "SELECT snapshot_id, rowid FROM ducklake_table_deletions('lake', 'main', 'renamed', 0, 7)"
        at = [
            (s, i) for s, first in zip((3, 4, 5), (0, 10, 20), strict=True) for i in range(first, first + 3)
        ]
        assert sorted(reference.sql(deleted)) == [*at, (7, 99)]


def test_the_reference_reads_columns_whose_names_1_0_reserves(catalog, judge):
    with ducklakepy_lake.open_lake(catalog) as lake:
        lake.create_table("t", {"id": "int64", "Row_Id": "int64", "end_snapshot": "varchar"})
        lake.insert("t", [{"id": 1, "Row_Id": 2, "end_snapshot": "x"}])
        lake.insert("t", [{"id": n, "Row_Id": n} for n in range(20)])

    with open_lake(judge(catalog)) as reference:
        rows = reference.sql("SELECT id, row_id_, end_snapshot_ FROM t ORDER BY rowid")
        assert rows[:2] == [(1, 2, "x"), (0, 0, None)]


def test_the_reference_reads_inlined_variants_as_their_bytes(catalog, judge):
    with ducklakepy_lake.open_lake(catalog) as lake, open_core() as core:
        lake.create_table("t", {"id": "int64", "doc": "variant"})
        lake.insert("t", core.arrow("SELECT 1::BIGINT AS id, 5::TINYINT::VARIANT AS doc"))

    with open_lake(judge(catalog)) as reference:
        assert reference.sql("FROM t") == [(1, b"\x01\x00\x00\x0c\x05")]


def test_a_schema_with_the_name_that_a_nested_one_would_have_is_refused(sqlite_catalog, judge):
    with ducklakepy_lake.open_lake(sqlite_catalog) as lake:
        for schema in ("a", ("a", "b"), ("A/b",)):
            lake.create_schema(schema)
    with pytest.raises(CannotJudgeError, match="a nested schema would have the name of a/b"):
        judge(sqlite_catalog)


def test_a_lake_of_1_0_needs_no_judge(sqlite_catalog, judge):
    with ducklakepy_lake.open_lake(sqlite_catalog, version="1.0"):
        pass
    with pytest.raises(CannotJudgeError, match=r"the lake is of version 1\.0"):
        judge(sqlite_catalog)


# The recorded lakes of 1.1 hold what they say: to ducklakepy, and to DuckDB 1.5.5 in the words of 1.0.


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
