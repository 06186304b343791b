"""Twin lakes with one history by the reference: one expires by us, the other by the reference."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

HISTORY = (
    "CREATE SCHEMA s",  # 1
    "CREATE TABLE s.dropped (i INTEGER, l INTEGER[])",  # 2
    "INSERT INTO s.dropped SELECT i, [i] FROM range(30) r(i)",  # 3
    "INSERT INTO s.dropped VALUES (100, NULL)",  # 4: inlined
    "DELETE FROM s.dropped WHERE i = 5",  # 5: inlined
    "COMMENT ON TABLE s.dropped IS 'soon gone'",  # 6
    "COMMENT ON COLUMN s.dropped.i IS 'too'",  # 7
    "CREATE TABLE parts (k VARCHAR, i INTEGER)",  # 8
    "ALTER TABLE parts SET PARTITIONED BY (k, bucket(2, i))",  # 9
    "INSERT INTO parts SELECT chr((97 + i % 2)::INTEGER), i FROM range(40) r(i)",  # 10
    "DELETE FROM parts WHERE i < 15",  # 11: files
    "DELETE FROM parts WHERE i < 30",  # 12: replaces them
    "ALTER TABLE parts RESET PARTITIONED BY",  # 13
    "ALTER TABLE parts SET SORTED BY (i)",  # 14
    "ALTER TABLE parts DROP COLUMN k",  # 15
    "UPDATE parts SET i = i + 100",  # 16
    "CREATE VIEW s.v AS SELECT 1",  # 17
    "COMMENT ON VIEW s.v IS 'view'",  # 18
    "CREATE MACRO s.plus(a, b := 2) AS a + b",  # 19
    "DROP TABLE s.dropped",  # 20
    "DROP MACRO s.plus",  # 21
    "DROP VIEW s.v",  # 22
    "DROP SCHEMA s",  # 23
    "CREATE TABLE kept (i INTEGER)",  # 24
    "CALL ducklake_add_data_files('lake', 'kept', '{external}')",  # 25
    "INSERT INTO kept FROM range(20)",  # 26
    "COMMENT ON TABLE kept IS 'one'",  # 27
    "COMMENT ON TABLE kept IS 'two'",  # 28
    "ALTER TABLE kept RENAME TO renamed",  # 29
    "DELETE FROM renamed",  # 30: the files end, also the external one
    "INSERT INTO renamed FROM range(5)",  # 31
    "DELETE FROM renamed WHERE i = 2",  # 32
    "CREATE OR REPLACE TABLE renamed (j INTEGER)",  # 33
    "INSERT INTO renamed FROM range(15)",  # 34
    "DELETE FROM renamed WHERE j < 12",  # 35
    "CALL ducklake_rewrite_data_files('lake', 'renamed', delete_threshold => 0)",  # 36
    "INSERT INTO renamed VALUES (1)",  # 37
    "CREATE TABLE emptied (i INTEGER)",  # 38
    "INSERT INTO emptied FROM range(40)",  # 39
    "DELETE FROM emptied WHERE i < 20",  # 40
    "DELETE FROM emptied",  # 41: ends the data file and leaves its delete file open
)
LAST = len(HISTORY)


def write_history(catalog: CatalogDatabase) -> None:
    external = Path(catalog.data_path).parents[1] / "external.parquet"  # one for both twins
    pq.write_table(pa.table({"i": pa.array(range(12), pa.int32())}), external)
    with open_lake(catalog) as reference:
        for statement in HISTORY:
            reference.sql(statement.format(external=external))


@pytest.fixture
def twins(catalog, reference_catalog):
    write_history(catalog)
    write_history(reference_catalog)
    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog))
    return catalog, reference_catalog


STEPS = {
    "all but the newest": [list(range(LAST + 1))],
    "a table's last snapshots, not its first": [[20, 21, 22, 23]],
    "a table's first snapshots, not its last": [list(range(19))],
    "one in the middle, then everything": [[11], list(range(LAST))],
    "one by one": [[number] for number in range(0, LAST, 4)] + [list(range(LAST))],
    "none, and unknown ones": [[LAST, 999]],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS.keys())
def test_expiry_by_version_leaves_the_references_catalog(twins, steps):
    catalog, reference_catalog = twins
    for versions in steps:
        with open_lake(reference_catalog) as reference:
            theirs = reference.sql(f"CALL ducklake_expire_snapshots('lake', versions => {versions})")
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            before = dump_catalog(catalog)
            planned = lake.expire_snapshots(snapshots=versions, dry_run=True)
            assert dump_catalog(catalog) == before
            ours = lake.expire_snapshots(snapshots=versions)

        assert [one.id for one in ours.snapshots] == sorted(row[0] for row in theirs)
        assert (
            planned.snapshots,
            planned.data_files,
            planned.delete_files,
            planned.tables,
            planned.bytes,
        ) == (ours.snapshots, ours.data_files, ours.delete_files, ours.tables, ours.bytes)
        assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog))


def test_what_we_scheduled_the_reference_cleans_up_and_the_rest_stays_readable(catalog):
    write_history(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        result = lake.expire_snapshots(keep_last=1)

    with open_lake(catalog) as reference:
        removed = reference.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
        rows = reference.sql("SELECT count(*) FROM renamed UNION ALL SELECT count(*) FROM parts")
        left = {
            row[0] for row in reference.sql("SELECT data_file FROM ducklake_list_files('lake', 'renamed')")
        }

    assert len(removed) == result.data_files + result.delete_files
    assert not any(Path(path).exists() for (path,) in removed)
    assert not (Path(catalog.data_path).parents[1] / "external.parquet").exists()
    assert all(Path(path).exists() for path in left)
    assert rows == [(4,), (10,)]


def test_older_than_goes_by_time_where_the_reference_on_sqlite_goes_by_text(catalog):
    write_history(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        snapshots = lake.snapshots()
        limit = snapshots[10].time

        by_age = lake.expire_snapshots(older_than=timedelta(hours=1))
        by_time = lake.expire_snapshots(older_than=limit)

        assert by_age.snapshots == ()
        assert [one.id for one in by_time.snapshots] == [one.id for one in snapshots if one.time < limit]
        assert [one.id for one in lake.expire_snapshots(older_than=datetime.now(UTC)).snapshots][
            -1
        ] == LAST - 1


def test_older_than_leaves_the_references_catalog(new_catalog):
    catalog, reference_catalog = new_catalog("postgres"), new_catalog("postgres")
    for one in (catalog, reference_catalog):
        write_history(one)
    with Lake.connect(reference_catalog.sqlalchemy_url) as lake:
        limit = lake.snapshots()[30].time
    with open_lake(reference_catalog) as reference:
        reference.sql(f"CALL ducklake_expire_snapshots('lake', older_than => '{limit}'::TIMESTAMPTZ)")

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.expire_snapshots(older_than=lake.snapshots()[30].time)

    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog))
