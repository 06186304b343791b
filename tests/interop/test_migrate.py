"""Lakes of 0.1 to 0.4 become lakes of 1.0 in which every snapshot, and every change, is as it was."""

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CatalogError
from tests.golden.old_lakes.record import rows_at_every_snapshot
from tests.interop.old_lakes import OLD_VERSIONS, OldLake, Rows, copy_lake, old_lake, read_alike
from tests.reference.catalogs import CATALOG_KINDS
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

# Of each table's changes: those that deletes, merges and updates of the history lie in.
RANGES = {"t": [(1, 26), (3, 5), (4, 5), (5, 5)], "m": [(16, 16), (17, 22), (19, 21)]}
# A DuckDB file is opened anew for each question.
SNAPSHOTS = {"duckdb": (3, 17, 26)}
FEED = "SELECT snapshot_id, rowid, change_type, * EXCLUDE (snapshot_id, rowid, change_type)"


@pytest.fixture(params=CATALOG_KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=OLD_VERSIONS)
def old(request, kind, new_catalog, tmp_path) -> OldLake:
    lake = old_lake(request.param, tmp_path / "old")
    return lake if kind == "sqlite" else copy_lake(lake, new_catalog(kind))


@pytest.fixture(scope="module")
def native_changes(tmp_path_factory) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """What we, and the reference, say of the same history that it wrote itself."""
    lake = old_lake("0.4", tmp_path_factory.mktemp("native") / "lake")
    lake.execute("UPDATE ducklake_metadata SET value = '1.0' WHERE key = 'version'")
    with Lake.connect(lake.catalog.sqlalchemy_url) as ours:
        changes = our_changes(ours)
    with open_lake(lake.catalog) as reference:
        return changes, their_changes(reference)


def expected_rows(old: OldLake) -> Rows:
    return {
        snapshot: {name: read_alike(rows) for name, rows in tables.items()}
        for snapshot, tables in old.rows.items()
    }


def our_rows(lake: Lake, expected: Rows) -> Rows:
    return {
        snapshot: {name: texts(lake.read_arrow(name, at=int(snapshot))) for name in tables}
        for snapshot, tables in expected.items()
    }


def their_rows(reference: DuckLakeConnection) -> Rows:
    return {
        snapshot: {name: read_alike(rows) for name, rows in tables.items()}
        for snapshot, tables in rows_at_every_snapshot(reference.raw).items()
    }


def our_changes(lake: Lake) -> dict[str, list[str]]:
    return {
        f"{table} {start} {end}": texts(lake.changes(table, start, end).read_arrow())
        for table, ranges in RANGES.items()
        for start, end in ranges
    }


def their_changes(reference: DuckLakeConnection) -> dict[str, list[str]]:
    return {
        f"{table} {start} {end}": sorted(
            str(row) for row in reference.sql(f"{FEED} FROM lake.table_changes('{table}', {start}, {end})")
        )
        for table, ranges in RANGES.items()
        for start, end in ranges
    }


def texts(rows: pa.Table) -> list[str]:
    return sorted(str(tuple(row.values())) for row in rows.to_pylist())


def test_every_snapshot_and_change_is_as_it_was(old, kind, native_changes):
    expected = expected_rows(old)
    with Lake.connect(old.catalog.sqlalchemy_url, to_migrate=True) as lake:
        result = lake.migrate()

        assert (result.from_version, result.to_version, result.dry_run) == (old.version, "1.0", False)
        assert lake.version.value == "1.0"
        chosen = SNAPSHOTS.get(kind, range(99))
        looked_at = {snapshot: tables for snapshot, tables in expected.items() if int(snapshot) in chosen}
        assert our_rows(lake, looked_at) == looked_at
        assert our_changes(lake) == native_changes[0]
        assert lake.migrate().steps == ()
        assert lake.verify() == []
    with open_lake(old.catalog.attach_string) as reference:
        assert their_rows(reference) == expected
        assert their_changes(reference) == native_changes[1]


@pytest.mark.parametrize("column", ["scope VARCHAR", "scope_id BIGINT"])
def test_a_migration_that_was_stopped_between_two_columns_of_options_goes_on(tmp_path, column):
    lake = old_lake("0.1", tmp_path / "old")
    lake.execute(f"ALTER TABLE ducklake_metadata ADD COLUMN {column}")

    with Lake.connect(lake.catalog.sqlalchemy_url, to_migrate=True) as ours:
        if column.startswith("scope_id"):  # no migration of ours begins with it
            with pytest.raises(CatalogError, match="in this order"):
                ours.migrate()
        else:
            ours.migrate()
            assert ours.verify() == []
